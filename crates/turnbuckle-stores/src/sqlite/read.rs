//! Queries. Each runs on one state of the database.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::DeserializeOwned;
use turnbuckle::event::{Event, EventKind, FORMAT};
use turnbuckle::hook::Record;
use turnbuckle::store::{ConversationStatus, ConversationSummary, InboxFilter, InboxItem, Scratch, StoreError};
use turnbuckle::{Actor, CallId, ConversationId, Timestamp, TurnId};

use super::claim::Held;
use super::error::Fault;
use super::json::parsed;
use super::number;
use super::process::Process;

/// The row's number, by which all tables know a conversation.
pub(super) fn key(db: &Connection, id: &ConversationId) -> Result<i64, Fault> {
    db.prepare_cached("SELECT made FROM conversation WHERE id = ?")?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::NotFound { id: id.clone() }.into())
}

/// A body, from a row that begins with its format and itself.
pub(super) fn body<T: DeserializeOwned>(row: &Row<'_>) -> Result<T, Fault> {
    let format: i64 = row.get(0)?;
    if format > i64::from(FORMAT) {
        return Err(Fault::Newer(format));
    }
    Ok(parsed(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?)
}

/// All bodies that a query finds.
pub(super) fn bodies<T: DeserializeOwned>(
    db: &Connection,
    query: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<T>, Fault> {
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(body(row)?);
    }
    Ok(found)
}

pub(super) fn owner(db: &Connection, id: &ConversationId) -> Result<Option<Actor>, Fault> {
    Ok(bodies(db, "SELECT format, owner FROM conversation WHERE id = ?", [id.as_str()])?.pop())
}

/// Of the conversation with this key.
pub(super) fn inbox(db: &Connection, key: i64, which: InboxFilter) -> Result<Vec<InboxItem>, Fault> {
    let query = match which {
        InboxFilter::All => "SELECT format, body FROM inbox WHERE conversation = ? ORDER BY place",
        InboxFilter::Control => "SELECT format, body FROM inbox WHERE conversation = ? AND opens = 0 ORDER BY place",
    };
    bodies(db, query, [key])
}

pub(super) fn log(db: &Connection, id: &ConversationId, from: u64, most: usize) -> Result<Vec<Arc<Event>>, Fault> {
    let query = "SELECT format, body FROM event WHERE conversation = ? AND seq >= ? ORDER BY seq LIMIT ?";
    Ok(shared(bodies(db, query, (key(db, id)?, number(from), number(most as u64)))?))
}

/// Steps backwards and stops: what lies before is not read.
pub(super) fn tail(db: &Connection, id: &ConversationId, before: u64, enough: u64) -> Result<Vec<Arc<Event>>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT format, body, tokens FROM event WHERE conversation = ? AND seq < ? ORDER BY seq DESC",
    )?;
    let mut rows = query.query((key(db, id)?, number(before)))?;
    let (mut found, mut tokens) = (Vec::new(), 0_u64);
    while tokens < enough
        && let Some(row) = rows.next()?
    {
        found.push(body(row)?);
        tokens = tokens.saturating_add(row.get::<_, i64>(2)?.unsigned_abs());
    }
    found.reverse();
    Ok(shared(found))
}

/// Events as the turn that wrote them had them in memory: what is the same in those that follow each other is kept once.
fn shared(events: Vec<Event>) -> Vec<Arc<Event>> {
    let mut shared: Vec<Arc<Event>> = Vec::with_capacity(events.len());
    for mut event in events {
        let of_turn = || shared.iter().rev().take_while(|before| before.turn == event.turn);
        let turn = of_turn().next().map(|before| before.turn.clone());
        if let EventKind::ToolStarted { call, arguments, .. } = &mut event.kind {
            let asked = of_turn().find_map(|before| match &before.kind {
                EventKind::ToolCall { call: asked, arguments, .. } if asked == call => Some((asked, arguments)),
                _ => None,
            });
            if let Some((asked, asked_with)) = asked {
                *call = asked.clone();
                if arguments == asked_with {
                    *arguments = asked_with.clone();
                }
            }
        }
        event.turn = turn.unwrap_or(event.turn);
        shared.push(Arc::new(event));
    }
    shared
}

pub(super) fn has_call(db: &Connection, id: &ConversationId, call: &CallId) -> Result<bool, Fault> {
    let mut query = db.prepare_cached("SELECT 1 FROM event WHERE conversation = ? AND call = ?")?;
    Ok(query.exists((key(db, id)?, call.as_str()))?)
}

pub(super) fn scratch(db: &Connection, id: &ConversationId) -> Result<Option<Scratch>, Fault> {
    let query = "SELECT beside_format, beside FROM conversation WHERE made = ? AND beside IS NOT NULL";
    Ok(bodies(db, query, [key(db, id)?])?.pop())
}

pub(super) fn records(db: &Connection, id: &ConversationId, turn: &TurnId) -> Result<Vec<Record>, Fault> {
    let query = "SELECT format, body FROM record WHERE conversation = ? AND turn = ? ORDER BY place";
    let batches: Vec<Vec<Record>> = bodies(db, query, (key(db, id)?, turn.as_str()))?;
    Ok(batches.into_iter().flatten().collect())
}

pub(super) fn list(db: &Connection, me: Option<&Process>) -> Result<Vec<ConversationSummary>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT format, owner, id, opened, written, seq, standing, due, lease_until, process
           FROM conversation ORDER BY made DESC",
    )?;
    let mut rows = query.query([])?;
    let mut listed = Vec::new();
    while let Some(row) = rows.next()? {
        let time = |at| Ok::<_, Fault>(Timestamp::from_millis(row.get::<_, i64>(at)?.unsigned_abs()));
        let held = Held { from: None, until: row.get(8)?, process: row.get(9)? };
        listed.push(ConversationSummary {
            held: held.until_unless_gone(me),
            id: row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?.into(),
            owner: body(row)?,
            opened: time(3)?,
            written: time(4)?,
            seq: row.get::<_, i64>(5)?.unsigned_abs(),
            standing: match row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)? {
                "running" => ConversationStatus::Running,
                "waiting" => ConversationStatus::Waiting { until: time(7)? },
                _ => ConversationStatus::Idle,
            },
        });
    }
    Ok(listed)
}
