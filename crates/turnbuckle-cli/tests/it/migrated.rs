//! A database of an older version, as the program meets it.

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;

use crate::program::{Folder, Ran};

/// A database as the first version made it, with some megabytes in it.
fn old(folder: &Folder) -> PathBuf {
    let path = folder.path().join("old.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(include_str!("../../../turnbuckle-stores/src/sqlite/v1.sql")).unwrap();
    db.execute_batch(
        "PRAGMA application_id = 0x54624B6C; PRAGMA user_version = 1; CREATE TABLE filler (body BLOB);
         INSERT INTO filler VALUES (randomblob(4000000));",
    )
    .unwrap();
    path
}

fn version(path: &Path) -> i64 {
    Connection::open(path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn the_copy_is_named_when_it_is_made_and_when_something_is_deleted() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    let path = old(&folder);
    let store = ["--store", "sqlite:old.db"];
    let ran = folder.run(&[&["run", "-c", "talk", "hello"], &store[..]].concat()).exits(0).prints("hi\n");
    ran.says("was made by an older version and was migrated").says("old.db.bak-1 is as it was");
    assert_eq!(version(&path.with_extension("db.bak-1")), 1);
    let ran = folder.run(&[&["delete", "talk", "--yes"], &store[..]].concat()).exits(0);
    ran.says("what was deleted may still be in").says("old.db.bak-1");
    std::fs::remove_file(path.with_extension("db.bak-1")).unwrap();
    folder.run(&[&["run", "-c", "again", "hello"], &store[..]].concat()).exits(0);
    let ran = folder.run(&[&["delete", "again", "--yes"], &store[..]].concat()).exits(0);
    assert!(!ran.err.contains("bak-"), "{}", ran.err);
}

#[test]
fn without_room_for_the_copy_the_database_stays_as_it_is() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    let path = old(&folder);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 1000; exec \"$0\" run --store sqlite:old.db hi", env!("CARGO_BIN_EXE_turnbuckle")]);
    shell.current_dir(folder.path()).env("HOME", folder.home());
    shell.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").env_remove("XDG_CACHE_HOME");
    Ran::of(shell).exits(1).says("copying it before its tables are migrated");
    assert_eq!(version(&path), 1);
    assert!(!path.with_extension("db.bak-1").exists() && !path.with_extension("db.bak-1.partial").exists());
    folder.run(&["run", "--store", "sqlite:old.db", "hi"]).exits(0).says("old.db.bak-1 is as it was");
}
