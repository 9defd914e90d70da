//! Tests that need the writer's own connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{InboxItem, Store, StoreError};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Actor, Agent, ConversationId, Conversations, Scope, Timestamp, TurnStatus};

use super::{SqliteError, SqliteStore, schema};

const NOW: Timestamp = Timestamp::from_millis(0);

/// A store whose file may not grow beyond so many pages.
fn cramped(path: &std::path::Path, pages: u32) -> SqliteStore {
    let db = schema::prepare(path, None).unwrap().db;
    allow(&db, pages);
    SqliteStore::with_connection(db, path.to_owned(), None).unwrap()
}

fn allow(db: &rusqlite::Connection, pages: u32) {
    db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
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
    let message = |size: usize| InboxItem::message(&"t1".into(), "x".repeat(size).into(), Actor::System, NOW);
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

#[test]
fn what_is_due_is_found_without_looking_at_what_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let db = schema::prepare(&folder.path().join("a.db"), None).unwrap().db;
    let plan = |query: &str| -> Vec<String> {
        let mut plan =
            db.prepare(&format!("EXPLAIN QUERY PLAN {}", query.replace("?1", "1").replace("?2", "''"))).unwrap();
        plan.query_map([], |row| row.get("detail")).unwrap().map(Result::unwrap).collect()
    };
    let due = plan(super::due::CANDIDATES);
    for index in ["conversation_due", "job_due"] {
        assert!(due.iter().any(|step| step.contains(index)), "{due:#?}");
    }
    // The inbox holds nothing but what is to be done.
    for table in ["conversation", "job", "event"] {
        assert!(!due.iter().any(|step| step.starts_with(&format!("SCAN {table}"))), "{due:#?}");
    }
    let call = plan("SELECT 1 FROM event WHERE conversation = 1 AND call = 'c'");
    assert!(call.iter().all(|step| step.contains("event_call")), "{call:#?}");
}

/// A disk that is full in the middle of a turn: the turn stops, and what was written stands. With room it goes on.
#[tokio::test]
async fn a_turn_that_found_no_room_is_finished_when_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let ran = Arc::new(AtomicU32::new(0));
    let agent = {
        let ran = ran.clone();
        let tool =
            function_with_schema("write", "Writes much.", json!({"type": "object"}), Effect::Pure, move |_, _| {
                ran.fetch_add(1, Ordering::Relaxed);
                async { Ok("x".repeat(100_000)) }
            });
        let script = [ScriptReply::calls("c1", "write", json!({})), ScriptReply::says("done")];
        Agent::builder("a", Script::of(script)).tool(tool).build().unwrap()
    };
    let id = ConversationId::from("c");
    let store = cramped(&folder.path().join("a.db"), 30);
    let conversations = Conversations::builder(agent, store.clone()).build();
    let error = conversations.turn(&id, "go", Scope::local()).await.unwrap_err();
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    assert!(causes.map(ToString::to_string).any(|text| text.contains("no room for the database")), "{error:?}");
    let more = |db: &_| {
        allow(db, 10_000);
        Ok(())
    };
    store.write("making room", more).await.unwrap();
    let handle = conversations.resume(&id, Scope::local()).await.unwrap().expect("the turn is open");
    assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(ended) if ended.is_completed()));
    assert_eq!(ran.load(Ordering::Relaxed), 2, "a pure tool without a result runs again");
    let log = conversations.log(&id, Scope::local()).await.unwrap();
    assert!(log.iter().zip(1..).all(|(event, seq)| event.seq == seq), "{log:?}");
}
