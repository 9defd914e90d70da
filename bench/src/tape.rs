//! What a turn writes, taken down once, and the same rows written by hand: the measure of a durable turn.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};
use turnbuckle::context::tokens;
use turnbuckle::event::{Event, FORMAT};
use turnbuckle::message::Text;
use turnbuckle::store::{
    Batch, Claim, ConversationStatus, InboxItem, Lease, ScratchWrite, Store, StoreFuture, StoreLayer,
};
use turnbuckle::{ConversationId, Timestamp};

use crate::BoxError;

/// One transaction.
#[derive(Clone, Debug)]
enum Step {
    Claim { writer: String, until: i64 },
    Deliver { item: String, body: String },
    Append(Box<Append>),
}

#[derive(Clone, Debug)]
struct Append {
    events: Vec<Row>,
    take: Vec<String>,
    /// `None`: as it is.
    scratch: Option<Option<String>>,
    records: Option<String>,
    standing: Option<(&'static str, Option<i64>)>,
    totals: Option<(i64, i64)>,
    release: bool,
}

#[derive(Clone, Debug)]
struct Row {
    seq: i64,
    turn: String,
    at: i64,
    kind: String,
    call: Option<String>,
    tokens: i64,
    body: String,
}

/// A store that takes down what it is given to write.
#[derive(Clone)]
pub struct Taped<S> {
    store: S,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl<S> Taped<S> {
    /// Around this one.
    pub fn new(store: S) -> Self {
        Self { store, steps: Arc::default() }
    }

    fn note(&self, step: Step) {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }

    /// What was written so far.
    pub fn tape(&self) -> Tape {
        Tape { steps: self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }
}

/// What a turn writes, transaction by transaction.
#[derive(Clone, Debug)]
pub struct Tape {
    steps: Vec<Step>,
}

impl Tape {
    /// How many transactions.
    pub fn transactions(&self) -> usize {
        self.steps.len()
    }
}

/// A file of the store's tables, written with nothing but `rusqlite`.
#[derive(Debug)]
pub struct ByHand {
    db: Connection,
}

impl ByHand {
    /// A file that the store made and left.
    pub fn open(path: &Path) -> Result<Self, BoxError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        db.set_prepared_statement_cache_capacity(64);
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
        Ok(Self { db })
    }

    /// A row for a conversation.
    pub fn conversation(&self, id: &str) -> Result<i64, BoxError> {
        let sql = "INSERT INTO conversation (id, format, owner, opened, written) VALUES (?, 1, '{}', 0, 0)";
        self.db.execute(sql, [id])?;
        Ok(self.db.last_insert_rowid())
    }

    /// One turn of the conversation: all of the tape, in as many transactions.
    pub fn turn(&self, tape: &Tape, key: i64) -> Result<(), BoxError> {
        for step in &tape.steps {
            self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            match step {
                Step::Claim { writer, until } => {
                    self.db
                        .prepare_cached(
                            "UPDATE conversation SET epoch = epoch + 1, writer = ?2, lease_until = ?3 WHERE made = ?1",
                        )?
                        .execute((key, writer, until))?;
                }
                Step::Deliver { item, body } => {
                    self.db
                        .prepare_cached(
                            "INSERT INTO inbox (conversation, letter, opens, format, body) VALUES (?, ?, 1, ?, ?)",
                        )?
                        .execute((key, item, FORMAT, body))?;
                }
                Step::Append(append) => self.append(append, key)?,
            }
            self.db.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }

    fn append(&self, append: &Append, key: i64) -> Result<(), BoxError> {
        let last = append.events.last();
        self.db
            .prepare_cached(
                "UPDATE conversation SET seq = coalesce(?2, seq), written = coalesce(?3, written) WHERE made = ?1",
            )?
            .execute((key, last.map(|row| row.seq), last.map(|row| row.at)))?;
        if let Some(scratch) = &append.scratch {
            self.db
                .prepare_cached("UPDATE conversation SET beside = ?2, beside_format = ?3 WHERE made = ?1")?
                .execute((key, scratch, FORMAT))?;
        }
        if let Some((standing, due)) = &append.standing {
            self.db
                .prepare_cached("UPDATE conversation SET standing = ?2, due = ?3 WHERE made = ?1")?
                .execute((key, standing, due))?;
        }
        if let Some((calls, tokens)) = &append.totals {
            self.db
                .prepare_cached("UPDATE conversation SET model_calls = ?2, tokens = ?3 WHERE made = ?1")?
                .execute((key, calls, tokens))?;
        }
        if append.release {
            self.db
                .prepare_cached("UPDATE conversation SET writer = NULL, lease_until = NULL WHERE made = ?1")?
                .execute([key])?;
        }
        let mut insert = self.db.prepare_cached(
            "INSERT INTO event (conversation, seq, turn, at, type, call, format, tokens, body)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        for row in &append.events {
            insert.execute((key, row.seq, &row.turn, row.at, &row.kind, &row.call, FORMAT, row.tokens, &row.body))?;
        }
        for item in &append.take {
            self.db.prepare_cached("DELETE FROM inbox WHERE conversation = ? AND letter = ?")?.execute((key, item))?;
        }
        if let (Some(records), Some(row)) = (&append.records, append.events.last()) {
            self.db
                .prepare_cached("INSERT INTO record (conversation, turn, format, body) VALUES (?, ?, ?, ?)")?
                .execute((key, &row.turn, FORMAT, records))?;
        }
        Ok(())
    }
}

fn text(thing: &impl serde::Serialize) -> String {
    serde_json::to_string(thing).unwrap_or_default()
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn row(event: &Event) -> Row {
    let body = serde_json::to_value(event).unwrap_or_default();
    Row {
        seq: number(event.seq),
        turn: event.turn.to_string(),
        at: number(event.at.as_millis()),
        kind: body["type"].as_str().unwrap_or_default().to_owned(),
        call: event.kind.names_call().map(ToString::to_string),
        tokens: number(tokens::of_event(event)),
        body: text(event),
    }
}

fn append(batch: &Batch<'_>) -> Append {
    Append {
        events: batch.events.iter().map(|event| row(event)).collect(),
        take: batch.take.iter().map(|item| item.to_string()).collect(),
        scratch: match batch.scratch {
            ScratchWrite::Keep => None,
            ScratchWrite::Put(scratch) => Some(Some(text(&**scratch))),
            ScratchWrite::Delete => Some(None),
        },
        records: (!batch.records.is_empty()).then(|| text(&batch.records)),
        standing: batch.status.map(|status| match status {
            ConversationStatus::Idle => ("idle", None),
            ConversationStatus::Running => ("running", Some(0)),
            ConversationStatus::Waiting { until } => ("waiting", Some(number(until.as_millis()))),
        }),
        totals: batch.totals.map(|totals| (number(totals.model_calls), number(totals.tokens))),
        release: batch.lease == Lease::Release,
    }
}

impl<S: Store> StoreLayer for Taped<S> {
    type Inner = S;
    fn inner(&self) -> &S {
        &self.store
    }
    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        self.note(Step::Deliver { item: item.id.to_string(), body: text(&item) });
        self.store.deliver(id, item)
    }
    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        self.note(Step::Claim { writer: writer.to_string(), until: number(now.as_millis()) + 15_000 });
        self.store.claim(id, writer, now)
    }
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        self.note(Step::Append(Box::new(append(&batch))));
        self.store.append(batch)
    }
}

impl<S> std::fmt::Debug for Taped<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taped").finish_non_exhaustive()
    }
}
