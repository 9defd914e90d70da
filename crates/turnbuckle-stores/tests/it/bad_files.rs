//! Files that are not what they should be: a clear error, and the file stays as it is.

use std::fs;

use turnbuckle::ConversationId;
use turnbuckle::store::Store;
use turnbuckle_stores::{SqliteError, SqliteStore};

use crate::kit::{NOW, Place, batch, cause, claim, said};

/// The folder's files after a refusal: nothing but the one, as it was.
fn untouched(place: &Place, before: &[u8]) {
    assert_eq!(fs::read(place.file()).unwrap(), before);
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 1, "files were made beside it");
}

async fn filled(place: &Place, events: u64) -> ConversationId {
    let (store, id) = (place.store(), ConversationId::from("c"));
    claim(&store, &id, "w", NOW).await.unwrap();
    let events: Vec<_> = (1..=events).map(|seq| said(seq, &"words ".repeat(50))).collect();
    store.append(batch(&id, 1, 0, &events)).await.unwrap();
    id
}

#[test]
fn a_file_that_is_no_database_is_foreign() {
    for text in ["dear diary", &"dear diary ".repeat(1000)] {
        let place = Place::new();
        fs::write(place.file(), text).unwrap();
        assert!(matches!(place.error(), SqliteError::Foreign { .. }));
        untouched(&place, text.as_bytes());
    }
}

#[test]
fn another_programs_database_is_foreign() {
    let place = Place::new();
    rusqlite::Connection::open(place.file()).unwrap().execute_batch("CREATE TABLE bookmark (url)").unwrap();
    let before = fs::read(place.file()).unwrap();
    let error = place.error();
    assert!(matches!(&error, SqliteError::Foreign { .. }));
    assert!(error.to_string().contains("turnbuckle.db is not a Turnbuckle database"), "{error}");
    untouched(&place, &before);
}

#[test]
fn a_newer_schema_is_refused() {
    let place = Place::new();
    drop(place.store());
    rusqlite::Connection::open(place.file()).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let before = fs::read(place.file()).unwrap();
    assert!(matches!(place.error(), SqliteError::Newer { found: 99, known: SqliteStore::SCHEMA_VERSION, .. }));
    untouched(&place, &before);
}

#[tokio::test]
async fn a_schema_that_became_newer_under_an_open_store_is_left_alone() {
    let place = Place::new();
    let id = filled(&place, 1).await;
    let store = place.store();
    let newer = rusqlite::Connection::open(place.file()).unwrap();
    newer.execute_batch("PRAGMA user_version = 99").unwrap();
    let error = claim(&store, &id, "w", NOW).await.unwrap_err();
    assert!(matches!(cause(&error), SqliteError::Newer { found: 99, .. }));
}

#[tokio::test]
async fn a_row_in_a_newer_format_is_refused_and_others_are_read() {
    let place = Place::new();
    let id = filled(&place, 2).await;
    let newer = rusqlite::Connection::open(place.file()).unwrap();
    newer.execute_batch("UPDATE event SET format = 9 WHERE seq = 1").unwrap();
    let store = place.store();
    let error = store.log(&id, 1, usize::MAX).await.unwrap_err();
    assert!(matches!(cause(&error), SqliteError::NewerFormat { found: 9, .. }), "{error:?}");
    assert_eq!(store.log(&id, 2, usize::MAX).await.unwrap().len(), 1);
    store.renew(&id, 1, NOW).await.unwrap();
}

#[test]
fn a_read_only_file_is_refused() {
    let place = Place::new();
    drop(place.store());
    let before = fs::read(place.file()).unwrap();
    let mut rights = fs::metadata(place.file()).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(place.file(), rights).unwrap();
    assert!(matches!(place.error(), SqliteError::ReadOnly { .. }));
    untouched(&place, &before);
}

#[test]
fn a_folder_in_place_of_the_file_or_a_file_in_place_of_the_folder() {
    let place = Place::new();
    fs::create_dir(place.file()).unwrap();
    assert!(matches!(place.error(), SqliteError::NotAFile { .. }));
    fs::write(place.folder.path().join("file"), "").unwrap();
    let error = SqliteStore::open(place.folder.path().join("file/turnbuckle.db")).unwrap_err();
    assert!(matches!(error, SqliteError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn damage_is_told_and_nothing_is_written_after_it() {
    let place = Place::new();
    let id = filled(&place, 2000).await;
    let mut bytes = fs::read(place.file()).unwrap();
    let from = bytes.len() / 4;
    bytes[from..].fill(0xA5);
    fs::write(place.file(), &bytes).unwrap();
    let store = match SqliteStore::open(place.file()) {
        Err(error) => return assert!(matches!(error, SqliteError::Damaged { .. }), "{error:?}"),
        Ok(store) => store,
    };
    let error = store.log(&id, 1, usize::MAX).await.unwrap_err();
    assert!(matches!(cause(&error), SqliteError::Damaged { .. }), "{error:?}");
    let error = Store::open(&store, &"d".into(), &turnbuckle::Actor::System, NOW).await.unwrap_err();
    assert!(matches!(cause(&error), SqliteError::Damaged { .. }), "{error:?}");
    drop(store);
    assert_eq!(fs::read(place.file()).unwrap(), bytes);
}

#[test]
fn a_damaged_header_is_told() {
    let place = Place::new();
    drop(place.store());
    let mut bytes = fs::read(place.file()).unwrap();
    bytes[100..3000].fill(0xA5);
    fs::write(place.file(), &bytes).unwrap();
    let error = place.error();
    assert!(matches!(error, SqliteError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn a_truncated_file_is_damaged() {
    let place = Place::new();
    let id = filled(&place, 2000).await;
    let bytes = fs::read(place.file()).unwrap();
    fs::write(place.file(), &bytes[..bytes.len() / 2]).unwrap();
    let error = match SqliteStore::open(place.file()) {
        Err(error) => return assert!(matches!(error, SqliteError::Damaged { .. }), "{error:?}"),
        Ok(store) => store.log(&id, 1, usize::MAX).await.unwrap_err(),
    };
    assert!(matches!(cause(&error), SqliteError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_while_open_is_not_written() {
    for replace in [false, true] {
        let place = Place::new();
        let id = filled(&place, 1).await;
        let store = place.store();
        fs::remove_file(place.file()).unwrap();
        if replace {
            fs::write(place.file(), "dear diary").unwrap();
        }
        let error = store.append(batch(&id, 1, 1, &[said(2, "lost")])).await.unwrap_err();
        assert!(matches!(cause(&error), SqliteError::Moved { .. }), "{error:?}");
        drop(store);
        assert_eq!(fs::read(place.file()).ok().as_deref(), replace.then_some(&b"dear diary"[..]));
    }
}

#[tokio::test]
async fn a_file_that_was_moved_while_open_is_not_written() {
    let place = Place::new();
    let id = filled(&place, 1).await;
    let store = place.store();
    fs::rename(place.file(), place.folder.path().join("moved.db")).unwrap();
    for _ in 0..2 {
        let error = store.append(batch(&id, 1, 1, &[said(2, "lost")])).await.unwrap_err();
        assert!(matches!(cause(&error), SqliteError::Moved { .. }), "{error:?}");
    }
}

/// Another program changes the file by hand.
fn by_hand(place: &Place, sql: &str) {
    rusqlite::Connection::open(place.file()).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_log_that_lacks_an_event_is_an_error_that_names_conversation_and_seq() {
    for (missing, sql) in [
        (1, "DELETE FROM event WHERE seq = 1"),
        (3, "DELETE FROM event WHERE seq = 3"),
        (5, "DELETE FROM event WHERE seq = 5"),
        (4, "DELETE FROM event WHERE seq > 3"),
    ] {
        let place = Place::new();
        let id = filled(&place, 5).await;
        by_hand(&place, sql);
        let store = place.store();
        let first_gap_from_the_end = if missing == 4 { 5 } else { missing };
        for (error, gap) in [
            (store.log(&id, 1, usize::MAX).await.unwrap_err(), missing),
            (store.log(&id, missing, 1).await.unwrap_err(), missing),
            (store.tail(&id, u64::MAX, u64::MAX).await.unwrap_err(), first_gap_from_the_end),
        ] {
            let SqliteError::MissingEvent { conversation, seq, .. } = cause(&error) else { panic!("{error:?}") };
            assert_eq!((conversation, *seq), (&id, gap), "{sql}");
            assert!(cause(&error).to_string().contains("conversation c"), "{error:?}");
        }
        // What lies before the gap can be read, and other conversations go on.
        assert_eq!(store.log(&id, 1, missing as usize - 1).await.unwrap().len() as u64, missing - 1);
        claim(&store, &"other".into(), "w", NOW).await.unwrap();
    }
}

#[tokio::test]
async fn an_event_that_should_not_be_there_is_an_error_that_names_conversation_and_seq() {
    let copy = "INSERT INTO event (conversation, seq, turn, at, type, format, tokens, body)
                SELECT conversation, 6, turn, at, type, format, tokens, replace(body, '\"seq\":5', '\"seq\":6')
                  FROM event WHERE seq = 5";
    let mislabelled = "UPDATE event SET body = replace(body, '\"seq\":5', '\"seq\":6') WHERE seq = 5";
    for sql in [copy, mislabelled] {
        let place = Place::new();
        let id = filled(&place, 5).await;
        by_hand(&place, sql);
        let store = place.store();
        for error in
            [store.log(&id, 1, usize::MAX).await.unwrap_err(), store.tail(&id, u64::MAX, u64::MAX).await.unwrap_err()]
        {
            let SqliteError::UnexpectedEvent { conversation, seq, .. } = cause(&error) else { panic!("{error:?}") };
            assert_eq!((conversation, *seq), (&id, 6), "{sql}");
        }
    }
}

#[tokio::test]
async fn one_conversation_that_cannot_be_read_does_not_hide_the_others() {
    for sql in [
        "UPDATE conversation SET owner = 'nonsense' WHERE id = 'c'",
        "UPDATE conversation SET format = 9 WHERE id = 'c'",
        "UPDATE conversation SET standing = 'flying' WHERE id = 'c'",
    ] {
        let place = Place::new();
        filled(&place, 1).await;
        for other in ["a", "b"] {
            claim(&place.store(), &other.into(), "w", NOW).await.unwrap();
        }
        by_hand(&place, sql);
        let store = place.store();
        let listing = store.list_with_errors().await.unwrap();
        assert_eq!(listing.conversations.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["b", "a"], "{sql}");
        let [unreadable] = &listing.unreadable[..] else { panic!("{listing:?}") };
        assert_eq!(unreadable.id.as_ref().map(ConversationId::as_str), Some("c"));
        let is_of_the_row =
            matches!(unreadable.error, SqliteError::Unreadable { .. } | SqliteError::NewerFormat { .. });
        assert!(is_of_the_row, "{:?}", unreadable.error);
        let error = store.list().await.unwrap_err();
        assert_eq!(error.to_string(), "the store failed while listing conversation c");
        store.renew(&"a".into(), 1, NOW).await.unwrap();
    }
}
