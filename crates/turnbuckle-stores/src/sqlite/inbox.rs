//! The inbox: messages and orders that wait for the conversation's writer.

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::event::FORMAT;
use turnbuckle::store::{InboxFilter, InboxItem, InboxKind, MAX_INBOX, StoreError};
use turnbuckle::{CallId, ConversationId};

use super::error::Fault;
use super::read::{bodies, key};
use super::sql_integer;
use crate::json::json;

/// What became of an answer to a suspended call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an answer that was not delivered is stale, and its sender must hear of it"]
pub enum AnswerDelivery {
    /// The answer is in the inbox. It is the only one for its call.
    Delivered,
    /// Another answer came first: it waits in the inbox, or its resolution is in the log.
    AlreadyAnswered,
    /// The log has no open question for the call: it was never asked, its call has a result, or its turn is over.
    NotOpen,
}

/// An inbox item as a row.
pub(super) struct InboxRow {
    pub(super) id: turnbuckle::message::Text,
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

/// Adds an item, unless as many of its kind wait as may. A second answer to a call is added without its key, so that the
/// first one keeps it: whether it is stale is then for the writer to find out. [`deliver_answer`] refuses it instead.
pub(super) fn deliver(db: &Connection, id: &ConversationId, item: &InboxRow) -> Result<(), Fault> {
    let added = db
        .prepare_cached(
            "INSERT INTO inbox (conversation, letter, opens, format, body, answers)
             SELECT ?1, ?2, ?3, ?4, ?5,
                    iif(EXISTS (SELECT 1 FROM inbox WHERE conversation = ?1 AND answers = ?7), NULL, ?7)
              WHERE (SELECT count(*) FROM inbox WHERE conversation = ?1 AND opens = ?3) < ?6",
        )?
        .execute((
            key(db, id)?,
            &*item.id,
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

/// Adds the answer to a call if the call's question is open and has no answer yet. Runs in one transaction, so of two answers
/// that come at once exactly one is delivered, whichever processes they come from.
pub(super) fn deliver_answer(db: &Connection, id: &ConversationId, item: &InboxRow) -> Result<AnswerDelivery, Fault> {
    let Some(call) = &item.answers else {
        deliver(db, id, item)?;
        return Ok(AnswerDelivery::Delivered);
    };
    let key = key(db, id)?;
    let mut waiting = db.prepare_cached("SELECT 1 FROM inbox WHERE conversation = ? AND answers = ?")?;
    if waiting.exists((key, call.as_str()))? {
        return Ok(AnswerDelivery::AlreadyAnswered);
    }
    match question(db, key, call)? {
        Question::Open => {
            deliver(db, id, item)?;
            Ok(AnswerDelivery::Delivered)
        }
        Question::Answered => Ok(AnswerDelivery::AlreadyAnswered),
        Question::Closed => Ok(AnswerDelivery::NotOpen),
    }
}

enum Question {
    Open,
    Answered,
    Closed,
}

/// The state of the latest question about a call. A call can be asked about again, after a crash for instance, so only what
/// follows its latest suspension counts. The writer takes an answer out of the inbox and adds its resolution to the log in
/// one write, so an answer is always in one of the two places.
fn question(db: &Connection, key: i64, call: &CallId) -> Result<Question, Fault> {
    let mut asked = db.prepare_cached(
        "SELECT seq FROM event WHERE conversation = ? AND call = ? AND type = 'suspension' ORDER BY seq DESC LIMIT 1",
    )?;
    let asked: Option<i64> = asked.query_row((key, call.as_str()), |row| row.get(0)).optional()?;
    let Some(asked) = asked else { return Ok(Question::Closed) };
    let mut closing = db.prepare_cached(
        "SELECT type = 'resolution' FROM event
          WHERE conversation = ?1 AND seq > ?2
            AND (type = 'turn_ended' OR type IN ('resolution', 'tool_result') AND json_extract(body, '$.call') = ?3)
          ORDER BY seq LIMIT 1",
    )?;
    let answered: Option<bool> = closing.query_row((key, asked, call.as_str()), |row| row.get(0)).optional()?;
    Ok(match answered {
        None => Question::Open,
        Some(true) => Question::Answered,
        Some(false) => Question::Closed,
    })
}
