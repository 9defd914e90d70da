//! What a turn writes, taken down once, and the same rows written by hand: the measure of a durable turn.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};
use turnbuckle::context::tokens;
use turnbuckle::event::{Event, FORMAT};
use turnbuckle::hook::Record;
use turnbuckle::message::Text;
use turnbuckle::scope::Author;
use turnbuckle::store::{
    Act, AuditLimits, AuditWrite, AuditedCall, Batch, CacheBreak, Calibration, Claim, ConversationStatus,
    ConversationSummary, Cut, Deletion, Hold, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector,
    Lease, PurgeLimits, Purged, Scratch, ScratchWrite, SentRequest, StandingApproval, Store, StoreFuture, Summary,
    Tombstone,
};
use turnbuckle::{Actor, CallId, ConversationId, Timestamp, TurnId};

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

impl<S: Store> Store for Taped<S> {
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        self.store.open(id, owner, now)
    }
    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        self.store.owner(id)
    }
    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        self.note(Step::Deliver { item: item.id.to_string(), body: text(&item) });
        self.store.deliver(id, item)
    }
    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        self.store.inbox(id, which)
    }
    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        self.note(Step::Claim { writer: writer.to_string(), until: number(now.as_millis()) + 15_000 });
        self.store.claim(id, writer, now)
    }
    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        self.store.renew(id, epoch, now)
    }
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        self.note(Step::Append(Box::new(append(&batch))));
        self.store.append(batch)
    }
    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.store.log(id, from, most)
    }
    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.store.tail(id, before, tokens)
    }
    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool> {
        self.store.has_call(id, call)
    }
    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>> {
        self.store.scratch(id)
    }
    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        self.store.records(id, turn)
    }
    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>> {
        self.store.cuts(id)
    }
    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        self.store.sent(id)
    }
    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>> {
        self.store.cache_breaks(id)
    }
    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>> {
        self.store.audited_calls(id)
    }
    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>> {
        self.store.audit_contents(id)
    }
    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        self.store.expire_audit(limits, now)
    }
    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        self.store.add_audited(id, audit)
    }

    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        self.store.summaries(id)
    }
    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        self.store.add_summary(id, summary, job)
    }
    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<turnbuckle::store::KeyedMessage>> {
        self.store.keyed_message(id, user, key, now)
    }

    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>> {
        self.store.title(id)
    }
    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()> {
        self.store.set_title(id, title)
    }
    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        self.store.calibrations()
    }
    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        self.store.jobs(id)
    }
    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        self.store.take_job(id, hooks, lease)
    }
    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        self.store.settle_job(id, job, done)
    }
    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.store.due(now, after, most)
    }
    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        self.store.sub_agents_with_jobs(id)
    }
    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        self.store.list()
    }
    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        self.store.standing()
    }
    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        self.store.revoke_standing(id)
    }
    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()> {
        self.store.delete(deletion)
    }
    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>> {
        self.store.tombstone(id)
    }
    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        self.store.unfinished_deletions()
    }
    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()> {
        self.store.note_erased(id, name)
    }
    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged> {
        self.store.purge(limits)
    }
    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool> {
        self.store.place_hold(id, hold)
    }
    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        self.store.lift_hold(id, by, now)
    }
    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.store.unused_since(before, after, most)
    }
    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        self.store.record_act(act)
    }
    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        self.store.acts(most)
    }
    fn is_durable(&self) -> bool {
        self.store.is_durable()
    }
}

impl<S> std::fmt::Debug for Taped<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taped").finish_non_exhaustive()
    }
}
