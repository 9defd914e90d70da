//! Looking at a file does not drop the locks that this process holds on it.
//!
//! A process loses all its POSIX locks on a file when it closes any of its descriptors of that file. SQLite takes care of the
//! descriptors that it opens itself. Without its lock another process takes itself for the last one that uses the database, and
//! removes the write-ahead log of this one.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use turnbuckle::ConversationId;
use turnbuckle::store::Store;
use turnbuckle_stores::SqliteStore;

use crate::kit::{NOW, Place, batch, claim, said};

/// The locks of this process on the file, as the kernel lists them for each open descriptor. `/proc/locks` would not do: it is read
/// in pieces, and a lock that another test releases between two pieces makes the list skip one that is still held.
fn locks(path: &Path) -> Vec<String> {
    let about = path.metadata().unwrap();
    let is_ours = |fd: &PathBuf| fd.metadata().is_ok_and(|at| (at.dev(), at.ino()) == (about.dev(), about.ino()));
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let fd = entry.unwrap().path();
        if !is_ours(&fd) {
            continue;
        }
        // A descriptor of another thread may be closed by now; then it holds nothing.
        let listed = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(fd.file_name().unwrap()));
        let listed = listed.unwrap_or_default();
        let posix = listed.lines().filter(|line| line.starts_with("lock:") && line.contains("POSIX"));
        // Each descriptor of a file lists all locks that this process has on it, numbered anew.
        found.extend(posix.map(|line| line.splitn(3, ':').nth(2).unwrap().trim().to_owned()));
    }
    found.into_iter().collect()
}

#[test]
fn the_locks_of_an_open_store_survive_every_way_of_looking_at_its_file() {
    let place = Place::new();
    let path = place.file();
    let store = place.store();
    let before = locks(&path);
    assert!(!before.is_empty(), "an open store holds a lock on its file");
    let ways: [(&str, &dyn Fn()); 4] = [
        ("the id", &|| drop(SqliteStore::id_of(&path).unwrap())),
        ("to read", &|| drop(SqliteStore::open_read_only(&path).unwrap())),
        ("to write", &|| drop(SqliteStore::open(&path).unwrap())),
        ("through a link", &|| {
            let link = place.folder.path().join("link.db");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            let _id_or_none = SqliteStore::id_of(&link);
            std::fs::remove_file(&link).unwrap();
        }),
    ];
    for (way, look) in ways {
        look();
        assert_eq!(locks(&path), before, "after opening it again: {way}");
    }
    drop(store);
}

#[test]
fn a_transaction_keeps_its_lock_while_the_header_is_read() {
    let place = Place::new();
    drop(place.store());
    let path = place.file();
    // In rollback mode the lock of a writer is on the file itself.
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.execute_batch("PRAGMA journal_mode = DELETE; BEGIN IMMEDIATE").unwrap();
    let before = locks(&path);
    assert!(before.iter().any(|lock| lock.contains("WRITE")), "{before:?}");
    assert!(SqliteStore::id_of(&path).unwrap().is_some());
    assert_eq!(locks(&path), before);
    writer.execute_batch("ROLLBACK").unwrap();
}

/// Each thread may be the one that makes the file, while another has it open already.
#[tokio::test]
async fn stores_of_one_process_that_make_a_file_at_once_all_hold_a_lock() {
    for _ in 0..20 {
        let place = Place::new();
        let path = place.file();
        let stores: Vec<SqliteStore> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| SqliteStore::open(&path).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(!locks(&path).is_empty(), "the file was made, and nobody holds a lock on it");
        let id = ConversationId::from("c");
        claim(&stores[0], &id, "w", NOW).await.unwrap();
        stores[0].append(batch(&id, 1, 0, &[said(1, "x")])).await.unwrap();
    }
}
