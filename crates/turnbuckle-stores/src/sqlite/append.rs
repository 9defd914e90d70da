//! What a batch does to the rows, and how a conversation is made.

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::event::FORMAT;
use turnbuckle::store::{Lease, StoreError};
use turnbuckle::{Actor, ConversationId, Timestamp};

use super::deletion::missing;
use super::error::Fault;
use super::read::owner;
use super::rows::{OwnedBatch, ScratchRow, status_columns};
use super::{inbox, process::Process, sql_integer, standing};
use crate::format;

/// Moves the end of the log on. The conditions stand in the `WHERE` of the same statement, so a writer whose claim or whose
/// idea of the log is old changes nothing: there is no moment between check and change. Columns of the status are indexed, and
/// a statement that names them is dearer even if it leaves them as they are. Most writes have no new status, hence two
/// statements.
macro_rules! advance {
    ($status:literal) => {
        concat!(
            "UPDATE conversation
                SET seq = seq + ?4, written = coalesce(?5, written),
                    model_calls = coalesce(?6, model_calls), tokens = coalesce(?7, tokens),
                    beside = iif(?8, ?9, beside), beside_format = iif(?8, ?10, beside_format),
                    writer = iif(?11, NULL, writer), lease_until = iif(?11, NULL, lease_until),
                    process = iif(?11, NULL, process),
                    sent = coalesce(?12, sent), sent_format = coalesce(?13, sent_format)",
            $status,
            " WHERE id = ?1 AND epoch = ?2 AND writer IS NOT NULL AND seq = ?3 RETURNING made, written"
        )
    };
}
const ADVANCE: &str = advance!("");
const ADVANCE_WITH_STATUS: &str = advance!(", standing = ?14, due = ?15");

impl OwnedBatch {
    /// Writes the whole batch. If any part is refused, the savepoint around the call takes all of it back.
    pub(super) fn write(self, db: &Connection, me: Option<&Process>) -> Result<(), Fault> {
        let (key, written) = self.advance(db)?;
        self.add_events(db, key)?;
        // Looked up before the items that this write takes up are gone.
        let place = match &self.answer {
            Some(item) => inbox::place_of(db, key, item)?,
            None => None,
        };
        for item in &self.take {
            db.prepare_cached("DELETE FROM inbox WHERE conversation = ? AND letter = ?")?
                .execute((key, item.as_str()))?;
        }
        for call in &self.answers {
            let is_gone = self.answer.is_some() && place.is_none();
            // An answer that another process stored first comes before the one that is written now.
            if is_gone || inbox::has_answer_before(db, key, call, place)? {
                let (id, call) = (self.conversation.clone(), call.clone());
                return Err(StoreError::AlreadyAnswered { id, call }.into());
            }
        }
        for (approval, at) in &self.uses {
            if !standing::use_once(db, approval, *at)? {
                return Err(StoreError::StandingEnded { approval: approval.clone() }.into());
            }
        }
        if let Some(standing) = &self.standing {
            standing.add(db)?;
        }
        if let Some((turn, body)) = &self.records {
            db.prepare_cached("INSERT INTO record (conversation, turn, format, body) VALUES (?, ?, ?, ?)")?
                .execute((key, turn.as_str(), FORMAT, body))?;
        }
        if let Some(body) = &self.cut {
            db.prepare_cached("INSERT INTO cut (conversation, format, body) VALUES (?, ?, ?)")?
                .execute((key, FORMAT, body))?;
        }
        for body in &self.breaks {
            db.prepare_cached("INSERT INTO cache_break (conversation, format, body) VALUES (?, ?, ?)")?
                .execute((key, FORMAT, body))?;
        }
        if let Some(audit) = &self.audit {
            audit.write(db, key)?;
        }
        for (model, body) in &self.calibrations {
            db.prepare_cached("INSERT OR REPLACE INTO calibration (model, format, body) VALUES (?, ?, ?)")?
                .execute((&**model, FORMAT, body))?;
        }
        for job in &self.done {
            job.remove(db, key)?;
        }
        if !self.jobs.is_empty() {
            let until = sql_integer(Timestamp::from_millis(written.unsigned_abs()).after(self.job_lease).as_millis());
            let me = me.map(ToString::to_string);
            for job in &self.jobs {
                job.add(db, key, (written, until), me.as_deref())?;
            }
        }
        Ok(())
    }

    /// Moves the end of the log on, if the claim is the newest and the log ends where the writer thinks. Returns the key of
    /// the conversation, and when it was last written to.
    fn advance(&self, db: &Connection) -> Result<(i64, i64), Fault> {
        let moved = if self.is_gapless() { self.move_end(db)? } else { None };
        match moved {
            Some(moved) => Ok(moved),
            None => Err(self.refusal(db)?),
        }
    }

    fn move_end(&self, db: &Connection) -> Result<Option<(i64, i64)>, Fault> {
        let mut advance = db.prepare_cached(if self.status.is_some() { ADVANCE_WITH_STATUS } else { ADVANCE })?;
        advance.raw_bind_parameter(1, self.conversation.as_str())?;
        advance.raw_bind_parameter(2, sql_integer(self.epoch))?;
        advance.raw_bind_parameter(3, sql_integer(self.expected_seq))?;
        advance.raw_bind_parameter(4, sql_integer(self.events.len() as u64))?;
        advance.raw_bind_parameter(5, self.events.last().map(|event| event.at))?;
        advance.raw_bind_parameter(6, self.totals.map(|totals| sql_integer(totals.model_calls)))?;
        advance.raw_bind_parameter(7, self.totals.map(|totals| sql_integer(totals.tokens)))?;
        let (change, scratch) = match &self.scratch {
            ScratchRow::Keep => (false, None),
            ScratchRow::Put(body) => (true, Some(body)),
            ScratchRow::Delete => (true, None),
        };
        advance.raw_bind_parameter(8, change)?;
        advance.raw_bind_parameter(9, scratch)?;
        advance.raw_bind_parameter(10, scratch.map(|_| FORMAT))?;
        advance.raw_bind_parameter(11, self.lease == Lease::Release)?;
        advance.raw_bind_parameter(12, self.sent.as_ref())?;
        advance.raw_bind_parameter(13, self.sent.as_ref().map(|_| FORMAT))?;
        if let Some(status) = self.status {
            let (name, due) = status_columns(status);
            advance.raw_bind_parameter(14, name)?;
            advance.raw_bind_parameter(15, due)?;
        }
        let mut rows = advance.raw_query();
        rows.next()?.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
    }

    /// Why the end of the log was not moved.
    fn refusal(&self, db: &Connection) -> Result<Fault, Fault> {
        let id = self.conversation.clone();
        let row = db
            .prepare_cached("SELECT epoch, writer IS NOT NULL, seq FROM conversation WHERE id = ?")?
            .query_row([id.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, i64>(2)?)))
            .optional()?;
        let refusal = match row {
            None => missing(db, &id)?,
            Some((epoch, claimed, _)) if !claimed || epoch != sql_integer(self.epoch) => {
                StoreError::Fenced { id, epoch: self.epoch }
            }
            Some((_, _, seq)) => StoreError::WrongSeq { id, expected: self.expected_seq, actual: seq.unsigned_abs() },
        };
        Ok(refusal.into())
    }

    fn add_events(&self, db: &Connection, key: i64) -> Result<(), Fault> {
        let mut add = db.prepare_cached(
            "INSERT INTO event (conversation, seq, turn, at, type, call, format, tokens, body)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        for row in &self.events {
            let call = row.call.as_ref().map(|call| call.as_str());
            add.execute((
                key,
                sql_integer(row.seq),
                row.turn.as_str(),
                row.at,
                row.kind,
                call,
                FORMAT,
                row.tokens,
                &row.body,
            ))?;
        }
        Ok(())
    }
}

/// Makes the conversation if there is none. Returns its owner, which is `actor` only for a new one.
pub(super) fn open(db: &Connection, id: &ConversationId, actor: &str, now: Timestamp) -> Result<Actor, Fault> {
    if let Some(owner) = owner(db, id)? {
        return Ok(owner);
    }
    match missing(db, id)? {
        StoreError::NotFound { .. } => {}
        deleted => return Err(deleted.into()),
    }
    db.prepare_cached("INSERT INTO conversation (id, format, owner, opened, written) VALUES (?1, ?2, ?3, ?4, ?4)")?
        .execute((id.as_str(), FORMAT, actor, sql_integer(now.as_millis())))?;
    Ok(format::read(i64::from(FORMAT), actor)?)
}
