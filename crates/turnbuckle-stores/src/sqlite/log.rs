//! Reading a log: all events that should be there, or an error that names the one that is wrong.
//!
//! The row of a conversation says where its log ends. An editor of the file can remove an event or add one, and a turn
//! that is resumed from such a log would forget a result or believe a forged one. So each read checks that the seqs have no gap.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};
use turnbuckle::event::{Event, EventKind};
use turnbuckle::{CallId, ConversationId};

use super::deletion::missing;
use super::error::Fault;
use super::read::{body, key};
use super::sql_integer;

/// A log as its conversation's row describes it.
struct Log<'a> {
    id: &'a ConversationId,
    key: i64,
    /// The seq of the last event; 0 for an empty log.
    end: u64,
}

impl<'a> Log<'a> {
    fn of(db: &Connection, id: &'a ConversationId) -> Result<Self, Fault> {
        let row = db
            .prepare_cached("SELECT made, seq FROM conversation WHERE id = ?")?
            .query_row([id.as_str()], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))
            .optional()?;
        let Some((key, end)) = row else { return Err(missing(db, id)?.into()) };
        Ok(Self { id, key, end: end.unsigned_abs() })
    }

    fn missing(&self, seq: u64) -> Fault {
        Fault::MissingEvent { conversation: self.id.clone(), seq }
    }

    /// The event of a row of `format, body, seq`, which must be the one at `expected`.
    fn event(&self, row: &Row<'_>, expected: u64) -> Result<Event, Fault> {
        let unexpected = |seq| Fault::UnexpectedEvent { conversation: self.id.clone(), seq };
        let seq = row.get::<_, i64>(2)?.unsigned_abs();
        if seq != expected && (1..=self.end).contains(&expected) {
            return Err(self.missing(expected));
        }
        if seq != expected || !(1..=self.end).contains(&seq) {
            return Err(unexpected(seq));
        }
        let event: Event = body(row)?;
        if event.seq == seq { Ok(event) } else { Err(unexpected(event.seq)) }
    }
}

/// Events from `from` on, oldest first, at most `most`.
pub(super) fn log(db: &Connection, id: &ConversationId, from: u64, most: usize) -> Result<Vec<Arc<Event>>, Fault> {
    let log = Log::of(db, id)?;
    let mut query = db.prepare_cached(
        "SELECT format, body, seq FROM event WHERE conversation = ? AND seq >= ? ORDER BY seq LIMIT ?",
    )?;
    let mut rows = query.query((log.key, sql_integer(from.max(1)), sql_integer(most as u64)))?;
    let (mut found, mut next) = (Vec::new(), from.max(1));
    while let Some(row) = rows.next()? {
        found.push(log.event(row, next)?);
        next = next.saturating_add(1);
    }
    if found.len() < most && next <= log.end {
        return Err(log.missing(next));
    }
    Ok(deduplicated(found))
}

/// Events before `before`, oldest first: read backwards until they hold `enough` tokens, and not further.
pub(super) fn tail(db: &Connection, id: &ConversationId, before: u64, enough: u64) -> Result<Vec<Arc<Event>>, Fault> {
    let log = Log::of(db, id)?;
    let mut query = db.prepare_cached(
        "SELECT format, body, seq, tokens FROM event WHERE conversation = ? AND seq < ? ORDER BY seq DESC",
    )?;
    let mut rows = query.query((log.key, sql_integer(before)))?;
    let (mut found, mut tokens, mut next) = (Vec::new(), 0_u64, before.saturating_sub(1).min(log.end));
    while tokens < enough {
        let Some(row) = rows.next()? else {
            if next > 0 {
                return Err(log.missing(next));
            }
            break;
        };
        // A row beyond the log's end comes first, where the log's last event is expected.
        if row.get::<_, i64>(2)?.unsigned_abs() > log.end {
            return Err(Fault::UnexpectedEvent { conversation: id.clone(), seq: row.get::<_, i64>(2)?.unsigned_abs() });
        }
        found.push(log.event(row, next)?);
        tokens = tokens.saturating_add(row.get::<_, i64>(3)?.unsigned_abs());
        next = next.saturating_sub(1);
    }
    found.reverse();
    Ok(deduplicated(found))
}

/// Lets events share what they have in common, as those of a running turn do: the id of the turn, and the id and arguments of
/// a call that was started as the model asked for it. Without it a resumed turn takes twice the memory.
fn deduplicated(events: Vec<Event>) -> Vec<Arc<Event>> {
    let mut shared: Vec<Arc<Event>> = Vec::with_capacity(events.len());
    // The calls of the turn that is being read, by their place in `shared`.
    let mut calls: HashMap<CallId, usize> = HashMap::new();
    for mut event in events {
        match shared.last().filter(|before| before.turn == event.turn) {
            Some(before) => event.turn = before.turn.clone(),
            None => calls.clear(),
        }
        match &mut event.kind {
            EventKind::ToolCall { call, .. } => {
                calls.insert(call.clone(), shared.len());
            }
            EventKind::ToolStarted { call, arguments, .. } => {
                let asked = calls.get(call).map(|place| &shared[*place].kind);
                if let Some(EventKind::ToolCall { call: asked, arguments: asked_with, .. }) = asked {
                    *call = asked.clone();
                    if arguments == asked_with {
                        *arguments = asked_with.clone();
                    }
                }
            }
            _ => {}
        }
        shared.push(Arc::new(event));
    }
    shared
}

/// Whether a tool call or a suspension of this id is in the log.
pub(super) fn has_call(db: &Connection, id: &ConversationId, call: &CallId) -> Result<bool, Fault> {
    let mut query = db.prepare_cached("SELECT 1 FROM event WHERE conversation = ? AND call = ?")?;
    Ok(query.exists((key(db, id)?, call.as_str()))?)
}
