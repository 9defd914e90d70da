//! The inbox: messages and orders that wait for the conversation's writer.

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::event::FORMAT;
use turnbuckle::store::{InboxFilter, InboxItem, InboxKind, MAX_INBOX, StoreError};
use turnbuckle::{CallId, ConversationId};

use super::error::Fault;
use super::read::{bodies, key};
use super::sql_integer;
use crate::json::json;

/// An inbox item as a row.
pub(super) struct InboxRow {
    pub(super) id: turnbuckle::id::ItemId,
    /// Whether the item is a message, which opens a turn. Messages and orders are counted apart.
    opens: bool,
    /// The call that the item answers.
    answers: Option<CallId>,
    body: String,
}

impl InboxRow {
    pub(super) fn of(item: InboxItem) -> Result<Self, StoreError> {
        let body = json(&item, "writing an inbox item as JSON")?;
        let answers = match &item.kind {
            InboxKind::Answer { call, .. } => Some(call.clone()),
            _ => None,
        };
        Ok(Self { opens: item.opens().is_some(), answers, id: item.id, body })
    }
}

/// Reads the inbox of the conversation with this key, oldest item first.
pub(super) fn inbox(db: &Connection, key: i64, which: InboxFilter) -> Result<Vec<InboxItem>, Fault> {
    let query = match which {
        InboxFilter::All => "SELECT format, body FROM inbox WHERE conversation = ? ORDER BY place",
        InboxFilter::Control => "SELECT format, body FROM inbox WHERE conversation = ? AND opens = 0 ORDER BY place",
    };
    bodies(db, query, [key])
}

/// Adds an item, unless as many of its kind wait as may. The answer to a call is added only if the call's question is open
/// and has no answer yet. All of it is one transaction, so of two answers that come at once exactly one is stored, whichever
/// processes they come from.
pub(super) fn deliver(db: &Connection, id: &ConversationId, item: &InboxRow) -> Result<(), Fault> {
    let key = key(db, id)?;
    if let Some(call) = &item.answers {
        if has_answer(db, key, call)? {
            return Err(StoreError::AlreadyAnswered { id: id.clone(), call: call.clone() }.into());
        }
        if !is_open(db, key, call)? {
            return Err(StoreError::NotAsked { id: id.clone(), call: call.clone() }.into());
        }
    }
    let added = db
        .prepare_cached(
            "INSERT INTO inbox (conversation, letter, opens, format, body, answers) SELECT ?1, ?2, ?3, ?4, ?5, ?7
              WHERE (SELECT count(*) FROM inbox WHERE conversation = ?1 AND opens = ?3) < ?6",
        )?
        .execute((
            key,
            item.id.as_str(),
            item.opens,
            FORMAT,
            &item.body,
            sql_integer(MAX_INBOX as u64),
            item.answers.as_ref().map(CallId::as_str),
        ))?;
    match added {
        0 => Err(StoreError::Full { id: id.clone() }.into()),
        _ => Ok(()),
    }
}

/// Whether an answer to the call waits in the inbox.
pub(super) fn has_answer(db: &Connection, key: i64, call: &CallId) -> Result<bool, Fault> {
    let mut waiting = db.prepare_cached("SELECT 1 FROM inbox WHERE conversation = ? AND answers = ?")?;
    Ok(waiting.exists((key, call.as_str()))?)
}

/// Whether the latest question about a call is open. A call can be asked about again, after a crash for instance, so only what
/// follows its latest suspension counts. The writer takes an answer out of the inbox and adds its resolution to the log in
/// one write, so an answer is always in one of the two places.
fn is_open(db: &Connection, key: i64, call: &CallId) -> Result<bool, Fault> {
    let mut asked = db.prepare_cached(
        "SELECT seq FROM event WHERE conversation = ? AND call = ? AND type = 'suspension' ORDER BY seq DESC LIMIT 1",
    )?;
    let asked: Option<i64> = asked.query_row((key, call.as_str()), |row| row.get(0)).optional()?;
    let Some(asked) = asked else { return Ok(false) };
    let mut closing = db.prepare_cached(
        "SELECT 1 FROM event
          WHERE conversation = ?1 AND seq > ?2
            AND (type = 'turn_ended' OR type IN ('resolution', 'tool_result') AND json_extract(body, '$.call') = ?3)
          LIMIT 1",
    )?;
    Ok(!closing.exists((key, asked, call.as_str()))?)
}
