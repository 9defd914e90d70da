//! A store in a folder of its own, and small things to put into it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use turnbuckle::event::{Event, EventKind};
use turnbuckle::hook::{Decision, Point, Record};
use turnbuckle::scope::Author;
use turnbuckle::store::{Batch, Claim, InboxItem, Job, JobKind, JobSelector, Store, StoreError};
use turnbuckle::{Actor, ConversationId, Timestamp};
use turnbuckle_stores::{SqliteError, SqliteStore};

pub const NOW: Timestamp = Timestamp::from_millis(1_769_860_800_000);

pub struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("turnbuckle.db")
    }

    pub fn store(&self) -> SqliteStore {
        SqliteStore::open(self.file()).unwrap()
    }

    pub fn error(&self) -> SqliteError {
        SqliteStore::open(self.file()).unwrap_err()
    }
}

pub fn said(seq: u64, text: &str) -> Arc<Event> {
    let kind = EventKind::UserMessage { content: text.into(), by: Author::User("ann".into()) };
    Arc::new(Event { seq, turn: "t1".into(), at: NOW, kind })
}

pub fn batch<'a>(id: &'a ConversationId, epoch: u64, expected_seq: u64, events: &'a [Arc<Event>]) -> Batch<'a> {
    Batch { events, ..Batch::new(id, epoch, expected_seq) }
}

pub fn message(turn: &str) -> InboxItem {
    InboxItem::message(&turn.into(), "hi".into(), Actor::System, NOW)
}

pub fn job(hook: &str) -> Job {
    let (turn, hook, kind, actor) = ("t1".into(), hook.into(), JobKind::Background, Actor::System);
    Job {
        turn,
        seq: 1,
        agent: "a".into(),
        hook,
        kind,
        actor,
        tries: 1,
        error: None,
        due: Some(NOW),
        used: None,
        reminder: None,
        spent: None,
        partial: None,
    }
}

pub fn record(hook: &str) -> Record {
    let mut record = Record::new(Point::OnStop, hook.into(), Decision::Accept, Duration::from_nanos(1501));
    (record.tokens, record.shed, record.call) = (3, 1, None);
    (record.failure, record.reason) = (Some("none".into()), Some("why".into()));
    record
}

/// What does [`job`].
pub fn hooks(hook: &str) -> [JobSelector; 1] {
    [JobSelector { hook: hook.into(), used: None, kind: JobKind::Background }]
}

pub async fn claim(
    store: &SqliteStore,
    id: &ConversationId,
    writer: &str,
    now: Timestamp,
) -> Result<Claim, StoreError> {
    Store::open(store, id, &Actor::System, now).await?;
    store.claim(id, &writer.into(), now).await
}

/// What SQLite's store says beneath the contract's error.
pub fn cause(error: &StoreError) -> &SqliteError {
    std::error::Error::source(error).unwrap().downcast_ref().unwrap()
}
