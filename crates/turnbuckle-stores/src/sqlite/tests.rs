//! What needs the writer's own connection to be shown.

use std::sync::{Arc, OnceLock};

use turnbuckle::store::{Letter, Store, StoreError};
use turnbuckle::{Actor, ConversationId, Timestamp};

use super::process::Process;
use super::readers::Readers;
use super::writer::{Shared, Writer};
use super::{Inner, SqliteError, SqliteStore, schema};

const NOW: Timestamp = Timestamp::from_millis(0);

/// A store whose file may not grow beyond so many pages.
fn cramped(path: &std::path::Path, pages: u32) -> SqliteStore {
    let db = schema::prepare(path).unwrap();
    db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
    let shared = Arc::new(Shared { path: path.to_owned(), stopped: OnceLock::new(), commits: 0.into() });
    let readers = Readers::start(path, shared.clone()).unwrap();
    let writer = Writer::start(db, shared.clone()).unwrap();
    SqliteStore { inner: Arc::new(Inner { readers, writer, shared, process: Process::this().map(Arc::new) }) }
}

fn is_full(error: &StoreError) -> bool {
    std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref())
        .is_some_and(|cause| matches!(cause, SqliteError::Full { .. }))
}

#[tokio::test]
async fn a_write_that_finds_no_room_leaves_no_trace_and_smaller_ones_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = cramped(&folder.path().join("a.db"), 60);
    let id = ConversationId::from("c");
    Store::open(&store, &id, &Actor::System, NOW).await.unwrap();
    let message = |size: usize| Letter::message(&"t1".into(), "x".repeat(size).into(), Actor::System, NOW);
    let (big, small) = tokio::join!(store.deliver(&id, message(1_000_000)), store.deliver(&id, message(10)));
    let error = big.unwrap_err();
    assert!(is_full(&error), "{error:?}");
    if let Err(error) = &small {
        assert!(is_full(error), "{error:?}");
    }
    store.deliver(&id, message(20)).await.unwrap();
    let claim = store.claim(&id, &"w".into(), NOW).await.unwrap();
    assert_eq!(claim.inbox.len(), 1 + usize::from(small.is_ok()));
}
