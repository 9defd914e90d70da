//! The outbox: jobs that turns left behind, the process that works on each, and how they end.

use std::borrow::Cow;

use rusqlite::Connection;
use turnbuckle::ConversationId;
use turnbuckle::event::FORMAT;
use turnbuckle::message::Text;
use turnbuckle::store::{Job, JobDisposition, JobSelector, StoreError};

use super::error::Fault;
use super::lease::LeaseRow;
use super::process::Process;
use super::read::{bodies, body, key};
use super::sql_integer;
use crate::json::json;

/// A job as a row.
pub(super) struct JobRow {
    pub(super) key: JobKey,
    due: Option<i64>,
    /// Whether its writer has begun it, and so holds it.
    begun: bool,
    body: String,
}

/// What tells the jobs of a conversation apart.
pub(super) struct JobKey {
    turn: turnbuckle::TurnId,
    hook: Text,
    /// In the column `kind`: the kind, and what else tells jobs of it apart.
    key: Cow<'static, str>,
}

impl JobKey {
    pub(super) fn of(job: &Job) -> Self {
        Self { turn: job.turn.clone(), hook: job.hook.clone(), key: job.key() }
    }

    pub(super) fn remove(&self, db: &Connection, conversation: i64) -> Result<(), Fault> {
        db.prepare_cached("DELETE FROM job WHERE conversation = ? AND turn = ? AND hook = ? AND kind = ?")?
            .execute((conversation, self.turn.as_str(), &*self.hook, &*self.key))?;
        Ok(())
    }
}

impl JobRow {
    pub(super) fn of(job: &Job) -> Result<Self, StoreError> {
        let due = job.due.map(|due| sql_integer(due.as_millis()));
        Ok(Self { key: JobKey::of(job), due, begun: job.tries > 0, body: json(job, "writing a job as JSON")? })
    }

    /// Adds the job, leased to the process that adds it if that has begun it. A job with the same key is replaced.
    pub(super) fn add(
        &self,
        db: &Connection,
        conversation: i64,
        (leased_from, leased_until): (i64, i64),
        me: Option<&str>,
    ) -> Result<(), Fault> {
        let JobKey { turn, hook, key } = &self.key;
        db.prepare_cached(
            "INSERT INTO job (conversation, turn, hook, kind, due, held_from, held_until, process, format, body)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT DO UPDATE SET due = excluded.due, held_from = excluded.held_from,
                held_until = excluded.held_until, process = excluded.process, format = excluded.format,
                body = excluded.body",
        )?
        .execute((
            conversation,
            turn.as_str(),
            &**hook,
            &**key,
            self.due,
            self.begun.then_some(leased_from),
            self.begun.then_some(leased_until),
            me.filter(|_| self.begun),
            FORMAT,
            &self.body,
        ))?;
        Ok(())
    }

    /// Stores the job as it is now and ends its lease. A job that was removed meanwhile stays removed.
    fn replace(&self, db: &Connection, conversation: i64) -> Result<(), Fault> {
        let JobKey { turn, hook, key } = &self.key;
        db.prepare_cached(
            "UPDATE job SET due = ?5, held_from = NULL, held_until = NULL, process = NULL, format = ?6, body = ?7
              WHERE conversation = ?1 AND turn = ?2 AND hook = ?3 AND kind = ?4",
        )?
        .execute((conversation, turn.as_str(), &**hook, &**key, self.due, FORMAT, &self.body))?;
        Ok(())
    }
}

pub(super) fn jobs(db: &Connection, id: &ConversationId) -> Result<Vec<Job>, Fault> {
    bodies(db, "SELECT format, body FROM job WHERE conversation = ? ORDER BY place", [key(db, id)?])
}

/// Takes the oldest job that is due, that one of `hooks` runs and whose lease has expired. It is leased to this process until
/// `until`, and its try is counted in the same write: a job that kills its process is counted, too.
pub(super) fn take(
    db: &Connection,
    id: &ConversationId,
    hooks: &[JobSelector],
    me: Option<&Process>,
    (now, until): (i64, i64),
) -> Result<Option<Job>, Fault> {
    let mut due = db.prepare_cached(
        "SELECT format, body, place, held_from, held_until, process FROM job
          WHERE conversation = ? AND due <= ? ORDER BY place",
    )?;
    let mut rows = due.query((key(db, id)?, now))?;
    while let Some(row) = rows.next()? {
        if !(LeaseRow { from: row.get(3)?, until: row.get(4)?, process: row.get(5)? }).has_expired(me, now) {
            continue;
        }
        let mut job: Job = body(row)?;
        if hooks.iter().any(|hook| hook.matches(&job)) {
            job.tries = job.tries.saturating_add(1);
            let (process, text) = (me.map(ToString::to_string), json(&job, "writing a job as JSON")?);
            db.prepare_cached(
                "UPDATE job SET held_from = ?, held_until = ?, process = ?, format = ?, body = ? WHERE place = ?",
            )?
            .execute((now, until, process, FORMAT, text, row.get::<_, i64>(2)?))?;
            return Ok(Some(job));
        }
    }
    Ok(None)
}

/// Removes the job, or stores how it failed.
pub(super) fn settle(db: &Connection, id: &ConversationId, job: &JobRow, done: JobDisposition) -> Result<(), Fault> {
    let conversation = key(db, id)?;
    match done {
        JobDisposition::Remove => job.key.remove(db, conversation),
        JobDisposition::Keep => job.replace(db, conversation),
    }
}
