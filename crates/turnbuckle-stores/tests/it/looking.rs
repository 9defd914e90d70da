//! Whoever only looks writes nothing, not even beside the file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use turnbuckle::store::{JobDisposition, JobLease, LEASE, Store, StoreError};
use turnbuckle::{Actor, ConversationId};
use turnbuckle_stores::{SqliteError, SqliteStore};

use crate::child::Other;
use crate::kit::{NOW, Place, batch, cause, claim, message, said};

type Listing = BTreeMap<PathBuf, (Vec<u8>, SystemTime)>;

/// All files of a folder, with what is in them and when they were written.
fn listing(folder: &Path) -> Listing {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.path(), (fs::read(entry.path()).unwrap(), entry.metadata().unwrap().modified().unwrap()))
    };
    fs::read_dir(folder).unwrap().map(entry).collect()
}

async fn filled(place: &Place) -> ConversationId {
    let (store, id) = (place.store(), ConversationId::from("c"));
    claim(&store, &id, "w", NOW).await.unwrap();
    store.append(batch(&id, 1, 0, &[said(1, "one")])).await.unwrap();
    id
}

#[tokio::test]
async fn looking_leaves_the_folder_as_it_was() {
    let place = Place::new();
    let id = filled(&place).await;
    let before = listing(place.folder.path());
    let store = SqliteStore::open_read_only(place.file()).unwrap();
    assert_eq!(store.log(&id, 1, 9).await.unwrap(), [said(1, "one")]);
    assert_eq!(store.list().await.unwrap().len(), 1);
    assert_eq!(store.due(NOW.after(LEASE), None, 9).await.unwrap().len(), 0);
    drop(store);
    assert!(listing(place.folder.path()) == before, "something was written");
}

#[tokio::test]
async fn a_name_with_every_kind_of_character_is_looked_at() {
    let place = Place::new();
    let file = place.folder.path().join("a?b#c%41 ü&mode=rwc.db");
    drop(SqliteStore::open(&file).unwrap());
    let store = SqliteStore::open_read_only(&file).unwrap();
    assert!(store.list().await.unwrap().is_empty());
    drop(store);
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn whatever_would_write_is_refused() {
    let place = Place::new();
    let id = filled(&place).await;
    let store = SqliteStore::open_read_only(place.file()).unwrap();
    fn refused<T: std::fmt::Debug>(result: Result<T, StoreError>) {
        let error = result.unwrap_err();
        assert!(matches!(cause(&error), SqliteError::OpenedToRead { .. }), "{error:?}");
    }
    refused(Store::open(&store, &"new".into(), &Actor::System, NOW).await);
    refused(store.deliver(&id, message("t2")).await);
    refused(store.claim(&id, &"w".into(), NOW).await);
    refused(store.renew(&id, 1, NOW).await);
    refused(store.append(batch(&id, 1, 1, &[said(2, "two")])).await);
    refused(store.take_job(&id, &[], JobLease { writer: &"w".into(), from: NOW, lasts: LEASE }).await);
    let job = crate::kit::job("memory");
    refused(store.settle_job(&id, job, JobDisposition::Remove).await);
    assert_eq!(store.commits(), 0);
}

#[tokio::test]
async fn a_file_is_read_while_another_process_writes_it() {
    let place = Place::new();
    let id = filled(&place).await;
    // Opened while nobody writes: it must notice that somebody began.
    let before = SqliteStore::open_read_only(place.file()).unwrap();
    assert_eq!(before.log(&id, 1, 9).await.unwrap().len(), 1);
    let mut other = Other::start("append", &place.file());
    let said = other.next().unwrap();
    let (n, seq) = said.split_once(' ').unwrap();
    let (told, written) = (ConversationId::from(format!("c{n}")), seq.parse::<usize>().unwrap());
    let during = SqliteStore::open_read_only(place.file()).unwrap();
    for store in [&before, &during] {
        assert!(store.log(&told, 1, usize::MAX).await.unwrap().len() >= written);
    }
    other.kill();
    while other.next().is_some() {}
    drop(other);
    // It died writing: what it left in the write-ahead log is read, and not moved.
    let main = fs::read(place.file()).unwrap();
    let after = SqliteStore::open_read_only(place.file()).unwrap();
    let log = after.log(&told, 1, usize::MAX).await.unwrap();
    assert!(log.len() >= written && log.len() % 2 == 0);
    drop((before, during, after));
    assert!(fs::read(place.file()).unwrap() == main, "the file was written");
}

#[tokio::test]
async fn a_store_that_was_open_sees_what_was_written_and_closed_meanwhile() {
    let place = Place::new();
    let id = filled(&place).await;
    let looking = SqliteStore::open_read_only(place.file()).unwrap();
    assert_eq!(looking.log(&id, 1, 9).await.unwrap().len(), 1);
    let store = place.store();
    store.append(batch(&id, 1, 1, &[said(2, "two")])).await.unwrap();
    drop(store);
    assert_eq!(looking.log(&id, 1, 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_file_that_goes_or_becomes_another_while_it_is_looked_at_is_told() {
    let place = Place::new();
    let id = filled(&place).await;
    let looking = SqliteStore::open_read_only(place.file()).unwrap();
    assert_eq!(looking.log(&id, 1, 9).await.unwrap().len(), 1);
    fs::remove_file(place.file()).unwrap();
    let error = looking.log(&id, 1, 9).await.unwrap_err();
    assert!(matches!(cause(&error), SqliteError::Moved { .. }), "{error:?}");
    fs::write(place.file(), "dear diary").unwrap();
    let error = looking.log(&id, 1, 9).await.unwrap_err();
    assert!(matches!(cause(&error), SqliteError::Foreign { .. }), "{error:?}");
}

/// As somebody without any rights to write, also where the tests run as the super-user.
#[tokio::test]
async fn a_file_in_a_folder_that_may_not_be_written_is_looked_at() {
    let place = Place::new();
    filled(&place).await;
    fs::set_permissions(place.file(), PermissionsExt::from_mode(0o444)).unwrap();
    fs::set_permissions(place.folder.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let before = listing(place.folder.path());
    let mut other = Other::start_as_nobody("look", &place.file());
    assert_eq!(other.next().unwrap(), "1 conversations, 1 events");
    drop(other);
    assert!(listing(place.folder.path()) == before, "something was written");
    fs::set_permissions(place.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_no_database_of_ours_is_told_and_nothing_is_made() {
    let place = Place::new();
    let look = || SqliteStore::open_read_only(place.file()).unwrap_err();
    assert!(matches!(look(), SqliteError::Unreachable { .. }));
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0);
    fs::write(place.file(), "").unwrap();
    assert!(matches!(look(), SqliteError::Unreachable { .. }));
    fs::write(place.file(), "dear diary").unwrap();
    assert!(matches!(look(), SqliteError::Foreign { .. }));
    fs::remove_file(place.file()).unwrap();
    drop(place.store());
    for version in [99, 0] {
        let db = rusqlite::Connection::open(place.file()).unwrap();
        db.execute_batch(&format!("PRAGMA user_version = {version}")).unwrap();
        drop(db);
        let error = look();
        assert!(matches!(error, SqliteError::Newer { .. } | SqliteError::Older { .. }), "{error:?}");
    }
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 1);
}
