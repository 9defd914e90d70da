//! A file of an older version is copied before it is migrated, whatever happens meanwhile.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use turnbuckle::store::Store;
use turnbuckle_stores::{SqliteError, SqliteStore};

use crate::child::Other;
use crate::kit::{Place, said};
use crate::migrating::{first_version, second_version};

fn beside(place: &Place, end: &str) -> PathBuf {
    place.folder.path().join(format!("turnbuckle.db{end}"))
}

fn version(path: &Path) -> i64 {
    Connection::open(path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// Whether the file is a sound database of this version, with all events of the conversation.
fn is_whole(path: &Path, wanted: i64, events: i64) -> bool {
    let db = Connection::open(path).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    let found: i64 = db.query_row("SELECT count(*) FROM event", [], |row| row.get(0)).unwrap();
    sound == "ok" && version(path) == wanted && found == events
}

/// Makes the file larger than what is copied in a moment.
fn fill(place: &Place) {
    let db = Connection::open(place.file()).unwrap();
    db.execute_batch("CREATE TABLE filler (body BLOB); BEGIN;").unwrap();
    for _ in 0..64 {
        db.execute("INSERT INTO filler VALUES (randomblob(262144))", []).unwrap();
    }
    db.execute_batch("COMMIT;").unwrap();
}

#[tokio::test]
async fn an_older_file_is_copied_for_its_owner_alone_before_it_is_migrated() {
    let place = Place::new();
    let id = second_version(&place);
    let store = place.store();
    let copy = beside(&place, ".bak-2");
    assert_eq!(store.backup(), Some(&*copy));
    assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(is_whole(&copy, 2, 1), "as it was");
    assert_eq!(store.log(&id, 1, 9).await.unwrap(), [said(1, "one")]);
    assert_eq!(SqliteStore::backups_of(place.file()).unwrap(), [copy]);
    drop(store);
    assert_eq!(place.store().backup(), None, "once is enough");
}

#[tokio::test]
async fn a_new_file_is_not_copied() {
    let place = Place::new();
    assert_eq!(place.store().backup(), None);
    assert_eq!(SqliteStore::backups_of(place.file()).unwrap(), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn the_copy_can_be_put_back_and_migrated_again() {
    let place = Place::new();
    let id = second_version(&place);
    drop(place.store());
    for end in ["", "-wal", "-shm"] {
        let _not_there = std::fs::remove_file(beside(&place, end));
    }
    std::fs::rename(beside(&place, ".bak-2"), place.file()).unwrap();
    assert_eq!(version(&place.file()), 2);
    let store = place.store();
    assert_eq!(store.log(&id, 1, 9).await.unwrap(), [said(1, "one")]);
    assert_eq!(store.backup(), Some(&*beside(&place, ".bak-2")));
}

#[tokio::test]
async fn what_stands_only_in_the_write_ahead_log_is_in_the_copy() {
    let (made, place) = (Place::new(), Place::new());
    second_version(&made);
    let db = Connection::open(made.file()).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;").unwrap();
    db.execute(
        "INSERT INTO event (conversation, seq, turn, at, type, format, tokens, body)
         SELECT conversation, 2, turn, at, type, format, tokens, replace(body, '\"seq\":1', '\"seq\":2') FROM event",
        [],
    )
    .unwrap();
    db.execute("UPDATE conversation SET seq = 2", []).unwrap();
    // As a process leaves them that died: the log was not moved into the file.
    for end in ["", "-wal"] {
        std::fs::copy(beside(&made, end), beside(&place, end)).unwrap();
    }
    assert!(beside(&place, "-wal").metadata().unwrap().len() > 0);
    let store = place.store();
    assert!(is_whole(&beside(&place, ".bak-2"), 2, 2));
    assert_eq!(store.log(&"c".into(), 1, 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_an_interrupted_copy_left_is_replaced() {
    let place = Place::new();
    first_version(&place);
    std::fs::write(beside(&place, ".bak-1.partial"), "half a copy").unwrap();
    std::fs::write(beside(&place, ".bak-1"), "a copy that a migration left which did not come to its end").unwrap();
    let store = place.store();
    assert!(is_whole(store.backup().unwrap(), 1, 1));
    assert!(!beside(&place, ".bak-1.partial").exists());
}

#[tokio::test]
async fn a_link_in_the_place_of_the_copy_leads_nowhere() {
    let place = Place::new();
    first_version(&place);
    let target = place.folder.path().join("victim");
    std::fs::write(&target, "untouched").unwrap();
    for end in [".bak-1", ".bak-1.partial"] {
        std::os::unix::fs::symlink(&target, beside(&place, end)).unwrap();
    }
    let store = place.store();
    assert!(is_whole(store.backup().unwrap(), 1, 1));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "untouched");
    assert!(!beside(&place, ".bak-1").is_symlink());
}

#[tokio::test]
async fn without_a_copy_nothing_is_migrated() {
    let place = Place::new();
    first_version(&place);
    // A folder that is not empty can be neither removed nor written over.
    std::fs::create_dir_all(beside(&place, ".bak-1/in-the-way")).unwrap();
    let error = place.error();
    assert!(matches!(&error, SqliteError::Unreachable { path, .. } if *path == beside(&place, ".bak-1")), "{error:?}");
    assert_eq!(version(&place.file()), 1);
    assert!(!beside(&place, ".bak-1.partial").exists());
    std::fs::remove_dir_all(beside(&place, ".bak-1")).unwrap();
    assert!(place.store().backup().is_some(), "and the next attempt succeeds");
}

#[test]
fn of_processes_that_open_an_older_file_at_once_one_copies_and_migrates_it() {
    let place = Place::new();
    first_version(&place);
    fill(&place);
    let mut others: Vec<Other> = (0..4).map(|_| Other::start("migrate", &place.file())).collect();
    for other in &mut others {
        assert_eq!(other.next().as_deref(), Some("ready"));
    }
    others.iter_mut().for_each(Other::tell);
    let said: Vec<String> = others.iter_mut().map(|other| other.next().unwrap()).collect();
    assert_eq!(said.iter().filter(|said| *said == "migrated").count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|said| *said == "opened").count(), 3, "{said:?}");
    assert!(is_whole(&beside(&place, ".bak-1"), 1, 1));
}

#[tokio::test]
async fn a_process_that_is_killed_meanwhile_leaves_the_old_file_or_the_new_one_with_its_copy() {
    for wait in 0..12_u64 {
        let place = Place::new();
        let id = first_version(&place);
        fill(&place);
        let mut other = Other::start("migrate", &place.file());
        assert_eq!(other.next().as_deref(), Some("ready"));
        other.tell();
        // Where the kill falls is left to chance; what is checked holds wherever it falls.
        std::thread::sleep(std::time::Duration::from_millis(wait * 4));
        drop(other);
        let copy = beside(&place, ".bak-1");
        if copy.exists() {
            assert!(is_whole(&copy, 1, 1), "a copy that has its name is whole");
        }
        let (found, store) = (version(&place.file()), place.store());
        assert!(found == 1 || (found == SqliteStore::SCHEMA_VERSION && copy.exists()), "version {found}");
        assert!(is_whole(&copy, 1, 1));
        assert_eq!(store.log(&id, 1, 9).await.unwrap(), [said(1, "one")]);
        assert!(!beside(&place, ".bak-1.partial").exists() || found != 1, "the next copy removes what is left");
    }
}
