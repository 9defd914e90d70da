//! A database that is damaged, locked or out of room: what can be done is done, and the rest is told.

use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::program::{Folder, Ran};

fn database(folder: &Folder) -> Connection {
    Connection::open(folder.path().join(".turnbuckle/turnbuckle.db")).unwrap()
}

#[test]
fn one_unreadable_conversation_does_not_hide_the_others() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    for id in ["one", "two", "three"] {
        folder.run(&["run", "-c", id, "say hi"]).exits(0);
    }
    let damage = "UPDATE event SET body = '{' WHERE conversation = (SELECT made FROM conversation WHERE id = 'two')";
    assert!(database(&folder).execute(damage, []).unwrap() > 0);
    for options in [&["list"][..], &["list", "--json"]] {
        let ran = folder.run(options).exits(1).says("error: conversation two is not listed: ").says("hint: ");
        assert!(ran.out.contains("one") && ran.out.contains("three") && !ran.out.contains("two"), "{}", ran.out);
        assert_eq!(ran.out.lines().count(), 2);
    }
    // Neither does one of which not even the state or the owner can be read.
    for damage in ["standing = 'flying'", "owner = 'nonsense'", "format = 99"] {
        let damage = format!("UPDATE conversation SET {damage} WHERE id = 'three'");
        assert_eq!(database(&folder).execute(&damage, []).unwrap(), 1);
        let ran = folder.run(&["list"]).exits(1).says("error: conversation three is not listed: ").says("hint: ");
        assert!(ran.out.contains("one") && !ran.out.contains("three"), "{damage}: {}", ran.out);
    }
}

#[test]
fn a_second_signal_ends_the_program_while_it_waits_for_the_store() {
    let folder = Folder::with_script(r#"{ "text": "hi" }, { "text": "again" }"#);
    folder.run(&["run", "-c", "talk", "hi"]).exits(0);
    let lock = database(&folder);
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut child = folder.command(&["run", "-c", "talk", "again"]).spawn().unwrap();
    // Signals are listened to once the store is open and the conversation is read, which the lock does not hinder.
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim).map(str::to_owned);
        caught.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).is_some_and(|mask| mask & 2 != 0)
    };
    let began = Instant::now();
    while !listens() {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let began = Instant::now();
    for _ in 0..2 {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_not_a_signal() {
    let folder = Folder::with_script(&serde_json::json!({ "text": "x".repeat(200_000) }).to_string());
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 64; exec \"$0\" run -c big hi", env!("CARGO_BIN_EXE_turnbuckle")]);
    shell
        .current_dir(folder.path())
        .env("HOME", folder.home())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME");
    Ran::of(shell).exits(1).says("error: ");
}

#[test]
fn a_database_that_was_being_made_is_no_riddle() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    folder.file(".turnbuckle/turnbuckle.db", "");
    let ran = folder.run(&["run", "-c", "talk"]).exits(1).says("turnbuckle.db is empty");
    ran.says(
        "hint: there is no turn to finish; with a message, `turnbuckle run -c talk \"…\"` begins the conversation",
    );
    folder.run(&["run", "-c", "talk", "hello"]).exits(0).prints("hi\n");
}
