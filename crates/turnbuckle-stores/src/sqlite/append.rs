//! What a write does to the rows. Bodies are made in the caller's task, so that the one writer only writes.

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::context::tokens;
use turnbuckle::event::{Event, EventKind, FORMAT};
use turnbuckle::store::{Batch, BesideWrite, InboxMessage, Job, JobDone, JobKind, Lease, StoreError};
use turnbuckle::{Actor, ConversationId, TurnId};

use super::error::Fault;
use super::json::{json, parsed};
use super::number;
use super::read::{key, owner};

/// A [`Batch`] that needs nothing of the caller's any more.
pub(super) struct Owned {
    conversation: ConversationId,
    epoch: u64,
    expected_seq: u64,
    events: Vec<EventRow>,
    take: Option<TurnId>,
    beside: BesideRow,
    records: Option<(TurnId, String)>,
    jobs: Vec<JobRow>,
    lease: Lease,
}

struct EventRow {
    seq: u64,
    turn: TurnId,
    at: i64,
    /// Stands in the body too; here for people who look into the table.
    kind: &'static str,
    tokens: i64,
    body: String,
}

enum BesideRow {
    Keep,
    Put(TurnId, String),
    Delete,
}

/// A job with its body.
pub(super) struct JobRow {
    turn: TurnId,
    hook: turnbuckle::message::Text,
    kind: &'static str,
    body: String,
}

impl JobRow {
    pub(super) fn of(job: Job) -> Result<Self, StoreError> {
        let kind = match job.kind {
            JobKind::Ended => "ended",
            JobKind::Background => "background",
        };
        Ok(Self { body: json(&job, "writing a job as JSON")?, turn: job.turn, hook: job.hook, kind })
    }
}

/// The event's `type`.
fn name(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::UserMessage { .. } => "user_message",
        EventKind::Injection { .. } => "injection",
        EventKind::AssistantMessage { .. } => "assistant_message",
        EventKind::ToolCall { .. } => "tool_call",
        EventKind::ToolStarted { .. } => "tool_started",
        EventKind::ToolResult { .. } => "tool_result",
        EventKind::Suspension { .. } => "suspension",
        EventKind::Resolution { .. } => "resolution",
        EventKind::StopFeedback { .. } => "stop_feedback",
        EventKind::TurnEnded(_) => "turn_ended",
        _ => "other",
    }
}

impl Owned {
    pub(super) fn of(batch: Batch<'_>) -> Result<Self, StoreError> {
        let event = |event: &Event| {
            let body = json(event, "writing an event as JSON")?;
            let (seq, turn, at) = (event.seq, event.turn.clone(), number(event.at.as_millis()));
            Ok(EventRow { seq, turn, at, kind: name(&event.kind), tokens: number(tokens::of_event(event)), body })
        };
        Ok(Self {
            conversation: batch.conversation.clone(),
            epoch: batch.epoch,
            expected_seq: batch.expected_seq,
            events: batch.events.iter().map(|each| event(each)).collect::<Result<_, StoreError>>()?,
            take: batch.take.cloned(),
            beside: match batch.beside {
                BesideWrite::Keep => BesideRow::Keep,
                BesideWrite::Put(beside) => {
                    BesideRow::Put(beside.turn.clone(), json(beside, "writing what stands beside the log as JSON")?)
                }
                BesideWrite::Delete => BesideRow::Delete,
            },
            records: match batch.turn.filter(|_| !batch.records.is_empty()) {
                Some(turn) => Some((turn.clone(), json(&batch.records, "writing hook records as JSON")?)),
                None => None,
            },
            jobs: batch.jobs.into_iter().map(JobRow::of).collect::<Result<_, _>>()?,
            lease: batch.lease,
        })
    }

    /// All of it; what is refused is taken back by the savepoint around it.
    pub(super) fn write(self, db: &Connection) -> Result<(), Fault> {
        let key = self.advance(db)?;
        self.add_events(db, key)?;
        if let Some(turn) = &self.take {
            db.prepare_cached("DELETE FROM inbox WHERE conversation = ? AND turn = ?")?
                .execute((key, turn.as_str()))?;
        }
        match &self.beside {
            BesideRow::Keep => {}
            BesideRow::Put(turn, body) => {
                db.prepare_cached(
                    "INSERT OR REPLACE INTO beside (conversation, turn, format, body) VALUES (?, ?, ?, ?)",
                )?
                .execute((key, turn.as_str(), FORMAT, body))?;
            }
            BesideRow::Delete => {
                db.prepare_cached("DELETE FROM beside WHERE conversation = ?")?.execute([key])?;
            }
        }
        if let Some((turn, body)) = &self.records {
            db.prepare_cached("INSERT INTO record (conversation, turn, format, body) VALUES (?, ?, ?, ?)")?
                .execute((key, turn.as_str(), FORMAT, body))?;
        }
        for job in &self.jobs {
            db.prepare_cached(
                "INSERT INTO job (conversation, turn, hook, kind, format, body) VALUES (?, ?, ?, ?, ?, ?)
                 ON CONFLICT DO UPDATE SET format = excluded.format, body = excluded.body",
            )?
            .execute((key, job.turn.as_str(), &*job.hook, job.kind, FORMAT, &job.body))?;
        }
        Ok(())
    }

    /// Moves the end of the log on, if the claim is the newest and the log ends where the writer thinks.
    fn advance(&self, db: &Connection) -> Result<i64, Fault> {
        let (expected, more) = (number(self.expected_seq), number(self.events.len() as u64));
        let release = self.lease == Lease::Release;
        let gapless = self.events.iter().zip(1..).all(|(row, past)| row.seq == self.expected_seq.saturating_add(past));
        let moved: Option<i64> = if gapless {
            db.prepare_cached(
                "UPDATE conversation
                    SET seq = seq + ?4, writer = iif(?5, NULL, writer), lease_until = iif(?5, NULL, lease_until)
                  WHERE id = ?1 AND epoch = ?2 AND writer IS NOT NULL AND seq = ?3
              RETURNING made",
            )?
            .query_row((self.conversation.as_str(), number(self.epoch), expected, more, release), |row| row.get(0))
            .optional()?
        } else {
            None
        };
        match moved {
            Some(key) => Ok(key),
            None => Err(self.refusal(db)?),
        }
    }

    /// Why nothing was moved on.
    fn refusal(&self, db: &Connection) -> Result<Fault, Fault> {
        let id = self.conversation.clone();
        let row = db
            .prepare_cached("SELECT epoch, writer IS NOT NULL, seq FROM conversation WHERE id = ?")?
            .query_row([id.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, i64>(2)?)))
            .optional()?;
        let refusal = match row {
            None => StoreError::NotFound { id },
            Some((epoch, held, _)) if !held || epoch != number(self.epoch) => {
                StoreError::Fenced { id, epoch: self.epoch }
            }
            Some((_, _, seq)) => StoreError::WrongSeq { id, expected: self.expected_seq, actual: seq.unsigned_abs() },
        };
        Ok(refusal.into())
    }

    fn add_events(&self, db: &Connection, key: i64) -> Result<(), Fault> {
        let mut add = db.prepare_cached(
            "INSERT INTO event (conversation, seq, turn, at, type, format, tokens, body)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        for row in &self.events {
            add.execute((key, number(row.seq), row.turn.as_str(), row.at, row.kind, FORMAT, row.tokens, &row.body))?;
        }
        Ok(())
    }
}

/// Makes the conversation if there is none; its owner.
pub(super) fn open(db: &Connection, id: &ConversationId, actor: &str) -> Result<Actor, Fault> {
    if let Some(owner) = owner(db, id)? {
        return Ok(owner);
    }
    db.prepare_cached("INSERT INTO conversation (id, format, owner) VALUES (?, ?, ?)")?.execute((
        id.as_str(),
        FORMAT,
        actor,
    ))?;
    Ok(parsed(actor)?)
}

/// One more message in the inbox.
pub(super) fn deliver(db: &Connection, id: &ConversationId, turn: &TurnId, body: &str) -> Result<(), Fault> {
    db.prepare_cached("INSERT INTO inbox (conversation, turn, format, body) VALUES (?, ?, ?, ?)")?.execute((
        key(db, id)?,
        turn.as_str(),
        FORMAT,
        body,
    ))?;
    Ok(())
}

/// The job goes, or stays as it is now.
pub(super) fn settle(db: &Connection, id: &ConversationId, job: &JobRow, done: JobDone) -> Result<(), Fault> {
    let key = key(db, id)?;
    match done {
        JobDone::Removed => db
            .prepare_cached("DELETE FROM job WHERE conversation = ? AND turn = ? AND hook = ? AND kind = ?")?
            .execute((key, job.turn.as_str(), &*job.hook, job.kind))?,
        JobDone::Kept => db
            .prepare_cached(
                "UPDATE job SET format = ?5, body = ?6
                  WHERE conversation = ?1 AND turn = ?2 AND hook = ?3 AND kind = ?4",
            )?
            .execute((key, job.turn.as_str(), &*job.hook, job.kind, FORMAT, &job.body))?,
    };
    Ok(())
}

/// A message as it is stored.
pub(super) fn message(message: &InboxMessage) -> Result<String, StoreError> {
    json(message, "writing a message as JSON")
}
