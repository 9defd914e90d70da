//! The inbox: messages and orders that wait for the conversation's writer.

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::event::{Event, FORMAT};
use turnbuckle::id::ItemId;
use turnbuckle::store::{AnswerTally, InboxFilter, InboxItem, MAX_INBOX, StoreError};
use turnbuckle::{CallId, ConversationId};

use super::error::Fault;
use super::message_key;
use super::read::{bodies, key};
use super::sql_integer;
use crate::json::json;

/// An inbox item as a row.
pub(super) struct InboxRow {
    item: InboxItem,
    body: String,
}

impl InboxRow {
    pub(super) fn of(item: InboxItem) -> Result<Self, StoreError> {
        Ok(Self { body: json(&item, "writing an inbox item as JSON")?, item })
    }
}

/// Reads the inbox of the conversation with this key, oldest item first.
pub(super) fn inbox(db: &Connection, key: i64, which: InboxFilter) -> Result<Vec<InboxItem>, Fault> {
    let query = match which {
        InboxFilter::All => "SELECT format, body FROM inbox WHERE conversation = ? ORDER BY place",
        InboxFilter::Control => "SELECT format, body FROM inbox WHERE conversation = ? AND opens = 0 ORDER BY place",
        // Messages are counted and found by their column; which of those that wait steer a turn, their bodies say.
        InboxFilter::DuringTurn => {
            "SELECT format, body FROM inbox
              WHERE conversation = ? AND (opens = 0 OR json_extract(body, '$.says.message.steers') IS NOT NULL)
              ORDER BY place"
        }
    };
    bodies(db, query, [key])
}

/// Adds an item, unless as many of its kind wait as may. An answer is added only if it counts, next to what the log and the
/// inbox have. All of it is one transaction, whichever processes answers come from.
pub(super) fn deliver(db: &Connection, id: &ConversationId, row: &InboxRow) -> Result<(), Fault> {
    let InboxRow { item, body } = row;
    let key = key(db, id)?;
    let column = match item.answers() {
        Some(call) => {
            let Some(mut asked) = open_question(db, key, call)? else {
                let refusal = match has_answer_before(db, key, call, None)? {
                    true => StoreError::AlreadyAnswered { id: id.clone(), call: call.clone() },
                    false => StoreError::NotAsked { id: id.clone(), call: call.clone() },
                };
                return Err(refusal.into());
            };
            asked.count_waiting(&waiting_answers(db, key, call)?);
            asked.count(item).map_err(|stale| StoreError::stale_answer(id, call, stale))?;
            Some(answers_column(call, &item.id, &asked))
        }
        None => None,
    };
    // Messages, which open a turn, and orders are counted apart.
    let opens = item.opens().is_some();
    let added = db
        .prepare_cached(
            "INSERT INTO inbox (conversation, letter, opens, format, body, answers) SELECT ?1, ?2, ?3, ?4, ?5, ?7
              WHERE (SELECT count(*) FROM inbox WHERE conversation = ?1 AND opens = ?3) < ?6",
        )?
        .execute((key, item.id.as_str(), opens, FORMAT, body, sql_integer(MAX_INBOX as u64), column))?;
    match added {
        0 => Err(StoreError::Full { id: id.clone() }.into()),
        // Last: what is refused leaves no key.
        _ => message_key::store(db, id, key, item),
    }
}

/// What stands before the id of the item in the column `answers`. A model may choose a call id with this character in it; at
/// worst an answer to another call is refused then, until the first is taken up.
const OF_ITEM: char = '\u{1f}';

/// The value of the column `answers`, which is unique in a conversation: the call or, where several answers to it may wait, the
/// call and the item.
fn answers_column(call: &CallId, item: &ItemId, asked: &AnswerTally) -> String {
    match asked.needs_several() {
        true => format!("{call}{OF_ITEM}{item}"),
        false => call.to_string(),
    }
}

/// The range of values that the column has for answers to a call, beside the call itself.
fn answers_by_item(call: &CallId) -> (String, String) {
    (format!("{call}{OF_ITEM}"), format!("{call}{}", ' '))
}

/// Whether an answer to the call waits that was stored before the item with this place; with `None`, any.
pub(super) fn has_answer_before(db: &Connection, key: i64, call: &CallId, place: Option<i64>) -> Result<bool, Fault> {
    let mut waiting = db.prepare_cached(
        "SELECT 1 FROM inbox WHERE conversation = ?1 AND (answers = ?2 OR (answers >= ?3 AND answers < ?4))
            AND place < coalesce(?5, place + 1)",
    )?;
    let (from, to) = answers_by_item(call);
    Ok(waiting.exists((key, call.as_str(), from, to, place))?)
}

/// The place of an item in the inbox, if it is there.
pub(super) fn place_of(db: &Connection, key: i64, item: &ItemId) -> Result<Option<i64>, Fault> {
    let mut place = db.prepare_cached("SELECT place FROM inbox WHERE conversation = ? AND letter = ?")?;
    Ok(place.query_row((key, item.as_str()), |row| row.get(0)).optional()?)
}

/// Answers to the call that wait in the inbox, oldest first.
fn waiting_answers(db: &Connection, key: i64, call: &CallId) -> Result<Vec<InboxItem>, Fault> {
    let (from, to) = answers_by_item(call);
    let query = "SELECT format, body FROM inbox
                  WHERE conversation = ?1 AND (answers = ?2 OR (answers >= ?3 AND answers < ?4)) ORDER BY place";
    bodies(db, query, (key, call.as_str(), from, to))
}

/// The latest question about a call and the approvals in the log, if it is open. A call can be asked about again, after a crash
/// for instance, so only what follows its latest suspension counts. The writer takes an answer out of the inbox and adds its
/// resolution to the log in one write, so an answer is always in one of the two places.
fn open_question(db: &Connection, key: i64, call: &CallId) -> Result<Option<AnswerTally>, Fault> {
    let query = "SELECT format, body FROM event
                  WHERE conversation = ? AND call = ? AND type = 'suspension' ORDER BY seq DESC LIMIT 1";
    let asked: Vec<Event> = bodies(db, query, (key, call.as_str()))?;
    let Some(Event { seq, kind, .. }) = asked.into_iter().next() else { return Ok(None) };
    let Some(mut tally) = AnswerTally::of_event(&kind) else { return Ok(None) };
    let asked = sql_integer(seq);
    let mut closing = db.prepare_cached(
        "SELECT 1 FROM event
          WHERE conversation = ?1 AND seq > ?2
            AND (type = 'turn_ended' OR type = 'tool_result' AND json_extract(body, '$.call') = ?3)
          LIMIT 1",
    )?;
    if closing.exists((key, asked, call.as_str()))? {
        return Ok(None);
    }
    let query = "SELECT format, body FROM event
                  WHERE conversation = ?1 AND seq > ?2 AND type = 'resolution' AND json_extract(body, '$.call') = ?3
                  ORDER BY seq";
    let resolutions: Vec<Event> = bodies(db, query, (key, asked, call.as_str()))?;
    resolutions.iter().for_each(|event| tally.note(&event.kind));
    Ok((!tally.is_settled()).then_some(tally))
}
