//! The inbox: messages and orders that wait for the conversation's writer.

use std::sync::Arc;

use rusqlite::Connection;
use turnbuckle::access::{AnswerRule, may_store_answer};
use turnbuckle::event::{Event, EventKind, FORMAT};
use turnbuckle::scope::Author;
use turnbuckle::store::{InboxFilter, InboxItem, MAX_INBOX, StoreError};
use turnbuckle::{CallId, ConversationId, Timestamp};

use super::error::Fault;
use super::read::{bodies, key};
use super::sql_integer;
use crate::json::json;

/// An inbox item as a row.
pub(super) struct InboxRow {
    pub(super) id: turnbuckle::id::ItemId,
    /// Whether the item is a message, which opens a turn. Messages and orders are counted apart.
    opens: bool,
    /// The answer in it, if it is one.
    answer: Option<AnswerRow>,
    body: String,
}

/// An answer, as far as it decides whether it may be stored.
struct AnswerRow {
    call: CallId,
    by: Author,
    /// When it was given.
    at: Timestamp,
    /// Whether it approves what was asked, as it was asked.
    is_plain_approval: bool,
}

impl InboxRow {
    pub(super) fn of(item: InboxItem) -> Result<Self, StoreError> {
        let body = json(&item, "writing an inbox item as JSON")?;
        let (by, at, is_plain_approval) = (item.from.author(), item.at, item.is_plain_approval());
        let answer = item.answers().map(|call| AnswerRow { call: call.clone(), by, at, is_plain_approval });
        Ok(Self { opens: item.opens().is_some(), answer, id: item.id, body })
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
/// and needs it. All of it is one transaction, so of two answers that come at once exactly one is stored, whichever
/// processes they come from.
pub(super) fn deliver(db: &Connection, id: &ConversationId, item: &InboxRow) -> Result<(), Fault> {
    let key = key(db, id)?;
    let column = match &item.answer {
        Some(answer) => {
            let AnswerRow { call, by, at, is_plain_approval } = answer;
            let Some(asked) = open_question(db, key, call)?.filter(|asked| *at < asked.expires) else {
                let refusal = match has_answer(db, key, call)? {
                    true => StoreError::AlreadyAnswered { id: id.clone(), call: call.clone() },
                    false => StoreError::NotAsked { id: id.clone(), call: call.clone() },
                };
                return Err(refusal.into());
            };
            let waiting = waiting_answers(db, key, call)?;
            if !may_store_answer(asked.rule.as_deref(), &asked.approved, &waiting, (by, *is_plain_approval)) {
                return Err(StoreError::AlreadyAnswered { id: id.clone(), call: call.clone() }.into());
            }
            Some(answers_column(answer, asked.rule.as_deref()))
        }
        None => None,
    };
    let added = db
        .prepare_cached(
            "INSERT INTO inbox (conversation, letter, opens, format, body, answers) SELECT ?1, ?2, ?3, ?4, ?5, ?7
              WHERE (SELECT count(*) FROM inbox WHERE conversation = ?1 AND opens = ?3) < ?6",
        )?
        .execute((key, item.id.as_str(), item.opens, FORMAT, &item.body, sql_integer(MAX_INBOX as u64), column))?;
    match added {
        0 => Err(StoreError::Full { id: id.clone() }.into()),
        _ => Ok(()),
    }
}

/// What stands before the name of a user in the column `answers`. A model may choose a call id with this character in it; at
/// worst an answer to another call is refused then, until the first is taken up.
const OF_USER: char = '\u{1f}';

/// The value of the column `answers`, which is unique in a conversation: the call or, where several users must approve, the
/// call and the user. A user who approved may still change their mind, once, before the approval is taken up.
fn answers_column(answer: &AnswerRow, rule: Option<&AnswerRule>) -> String {
    let AnswerRow { call, by, is_plain_approval, .. } = answer;
    match rule {
        Some(rule) if rule.n > 1 && *is_plain_approval => format!("{call}{OF_USER}{by}"),
        Some(rule) if rule.n > 1 => format!("{call}{OF_USER}{by}{OF_USER}"),
        _ => call.to_string(),
    }
}

/// The range of values that the column has for answers to a call, beside the call itself.
fn answers_by_user(call: &CallId) -> (String, String) {
    (format!("{call}{OF_USER}"), format!("{call}{}", ' '))
}

/// Whether an answer to the call waits in the inbox.
pub(super) fn has_answer(db: &Connection, key: i64, call: &CallId) -> Result<bool, Fault> {
    let mut waiting = db.prepare_cached(
        "SELECT 1 FROM inbox WHERE conversation = ?1 AND (answers = ?2 OR (answers >= ?3 AND answers < ?4))",
    )?;
    let (from, to) = answers_by_user(call);
    Ok(waiting.exists((key, call.as_str(), from, to))?)
}

/// Answers to the call that wait in the inbox: who gave them, and whether they are plain approvals.
fn waiting_answers(db: &Connection, key: i64, call: &CallId) -> Result<Vec<(Author, bool)>, Fault> {
    let (from, to) = answers_by_user(call);
    let query = "SELECT format, body FROM inbox
                  WHERE conversation = ?1 AND (answers = ?2 OR (answers >= ?3 AND answers < ?4)) ORDER BY place";
    let items: Vec<InboxItem> = bodies(db, query, (key, call.as_str(), from, to))?;
    Ok(items.iter().map(|item| (item.from.author(), item.is_plain_approval())).collect())
}

/// A question that is open.
struct AskedQuestion {
    /// Who may answer, and how many must.
    rule: Option<Arc<AnswerRule>>,
    /// Who approved so far.
    approved: Vec<Author>,
    /// When it lapses: an answer that is given later is none.
    expires: Timestamp,
}

/// The latest question about a call, if it is open. A call can be asked about again, after a crash for instance, so only what
/// follows its latest suspension counts. The writer takes an answer out of the inbox and adds its resolution to the log in
/// one write, so an answer is always in one of the two places.
fn open_question(db: &Connection, key: i64, call: &CallId) -> Result<Option<AskedQuestion>, Fault> {
    let query = "SELECT format, body FROM event
                  WHERE conversation = ? AND call = ? AND type = 'suspension' ORDER BY seq DESC LIMIT 1";
    let asked: Vec<Event> = bodies(db, query, (key, call.as_str()))?;
    let Some(Event { seq, kind: EventKind::Suspension { rule, expires, .. }, .. }) = asked.into_iter().next() else {
        return Ok(None);
    };
    let asked = sql_integer(seq);
    let mut closing = db.prepare_cached(
        "SELECT 1 FROM event
          WHERE conversation = ?1 AND seq > ?2
            AND (type = 'turn_ended' OR json_extract(body, '$.call') = ?3
                 AND (type = 'tool_result' OR type = 'resolution' AND json_extract(body, '$.open') IS NULL))
          LIMIT 1",
    )?;
    if closing.exists((key, asked, call.as_str()))? {
        return Ok(None);
    }
    let mut approved = Vec::new();
    if rule.as_ref().is_some_and(|rule| rule.n > 1) {
        let query = "SELECT format, body FROM event
                      WHERE conversation = ?1 AND seq > ?2 AND type = 'resolution' AND json_extract(body, '$.call') = ?3
                      ORDER BY seq";
        let resolutions: Vec<Event> = bodies(db, query, (key, asked, call.as_str()))?;
        for event in resolutions {
            let EventKind::Resolution { by, evidence, .. } = event.kind else { continue };
            if evidence.arguments.is_some() {
                approved.clear();
            }
            approved.push(by);
        }
    }
    Ok(Some(AskedQuestion { rule, approved, expires }))
}
