//! Queries for single rows and bodies. Each runs in a transaction of its caller, so it sees one state of the database.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};
use turnbuckle::event::FORMAT;
use turnbuckle::hook::Record;
use turnbuckle::message::Text;
use turnbuckle::store::{CacheBreak, Calibration, Cut, Scratch, SentRequest, StoreError, Summary};
use turnbuckle::{Actor, ConversationId, TurnId};

use super::audit;
use super::deletion::missing;
use super::error::Fault;
use super::jobs::JobKey;
use crate::format::{self, Stored};

/// The key of a conversation: the number by which all other tables refer to it.
pub(super) fn key(db: &Connection, id: &ConversationId) -> Result<i64, Fault> {
    let key = db
        .prepare_cached("SELECT made FROM conversation WHERE id = ?")?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?;
    match key {
        Some(key) => Ok(key),
        None => Err(missing(db, id)?.into()),
    }
}

/// The body of a row whose first two columns are the format and the body.
pub(super) fn body<T: Stored>(row: &Row<'_>) -> Result<T, Fault> {
    let format: i64 = row.get(0)?;
    Ok(format::read(format, row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?)
}

/// The bodies of all rows that a query finds.
pub(super) fn bodies<T: Stored>(db: &Connection, query: &str, params: impl rusqlite::Params) -> Result<Vec<T>, Fault> {
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

/// The scratch of the open turn.
pub(super) fn scratch(db: &Connection, id: &ConversationId) -> Result<Option<Scratch>, Fault> {
    let query = "SELECT beside_format, beside FROM conversation WHERE made = ? AND beside IS NOT NULL";
    Ok(bodies(db, query, [key(db, id)?])?.pop())
}

/// The last cut of the conversation with this key.
pub(super) fn last_cut(db: &Connection, key: i64) -> Result<Option<Cut>, Fault> {
    let query = "SELECT format, body FROM cut WHERE conversation = ? ORDER BY place DESC LIMIT 1";
    Ok(bodies(db, query, [key])?.pop())
}

/// The last request that a model answered, of a row with its format and body from `at` on.
pub(super) fn sent(row: &Row<'_>, at: usize) -> Result<Option<Arc<SentRequest>>, Fault> {
    let (format, body): (Option<i64>, Option<String>) = (row.get(at)?, row.get(at + 1)?);
    let Some((format, body)) = format.zip(body) else { return Ok(None) };
    Ok(Some(Arc::new(format::read(format, &body)?)))
}

pub(super) fn sent_of(db: &Connection, id: &ConversationId) -> Result<Option<Arc<SentRequest>>, Fault> {
    let key = key(db, id)?;
    if !audit::is_there(db)? {
        return Ok(None);
    }
    let mut query = db.prepare_cached("SELECT sent_format, sent FROM conversation WHERE made = ?")?;
    let mut rows = query.query([key])?;
    rows.next()?.map_or(Ok(None), |row| sent(row, 0))
}

pub(super) fn cache_breaks(db: &Connection, id: &ConversationId) -> Result<Vec<CacheBreak>, Fault> {
    let key = key(db, id)?;
    if !audit::is_there(db)? {
        return Ok(Vec::new());
    }
    bodies(db, "SELECT format, body FROM cache_break WHERE conversation = ? ORDER BY place", [key])
}

pub(super) fn cuts(db: &Connection, id: &ConversationId) -> Result<Vec<Cut>, Fault> {
    let key = key(db, id)?;
    // A database that an older program made, opened to be read, has no such table.
    if !db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'cut'")?.exists([])? {
        return Ok(Vec::new());
    }
    bodies(db, "SELECT format, body FROM cut WHERE conversation = ? ORDER BY place", [key])
}

pub(super) fn summaries(db: &Connection, id: &ConversationId) -> Result<Vec<Arc<Summary>>, Fault> {
    let key = key(db, id)?;
    // A database that an older program made, opened to be read, has no such table.
    if !db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'summary'")?.exists([])? {
        return Ok(Vec::new());
    }
    let query = "SELECT format, body FROM summary WHERE conversation = ? ORDER BY version";
    Ok(bodies(db, query, [key])?.into_iter().map(Arc::new).collect())
}

/// Whether there are titles at all: a database that an older program made, opened to be read, has no such table.
pub(super) fn has_titles(db: &Connection) -> Result<bool, Fault> {
    Ok(db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'title'")?.exists([])?)
}

pub(super) fn title(db: &Connection, id: &ConversationId) -> Result<Option<Text>, Fault> {
    let key = key(db, id)?;
    if !has_titles(db)? {
        return Ok(None);
    }
    let mut query = db.prepare_cached("SELECT text FROM title WHERE conversation = ?")?;
    let title: Option<String> = query.query_row([key], |row| row.get(0)).optional()?;
    Ok(title.map(Text::from))
}

pub(super) fn set_title(db: &Connection, id: &ConversationId, title: &str) -> Result<(), Fault> {
    let key = key(db, id)?;
    db.prepare_cached("INSERT OR REPLACE INTO title (conversation, text) VALUES (?, ?)")?.execute((key, title))?;
    Ok(())
}

/// The summary of this version, and the newest one, of the conversation with this key.
pub(super) fn claimed_summaries(
    db: &Connection,
    key: i64,
    version: Option<u32>,
) -> Result<[Option<Arc<Summary>>; 2], Fault> {
    let query = "SELECT format, body FROM summary WHERE conversation = ?1 ORDER BY version DESC LIMIT 1";
    let Some(newest) = bodies::<Summary>(db, query, [key])?.pop().map(Arc::new) else { return Ok([None, None]) };
    let Some(version) = version else { return Ok([None, Some(newest)]) };
    if newest.version == version {
        return Ok([Some(newest.clone()), Some(newest)]);
    }
    let query = "SELECT format, body FROM summary WHERE conversation = ?1 AND version = ?2";
    Ok([bodies::<Summary>(db, query, (key, version))?.pop().map(Arc::new), Some(newest)])
}

/// Adds a summary and removes its job.
pub(super) fn add_summary(
    db: &Connection,
    id: &ConversationId,
    (version, body): (u32, &str),
    job: &JobKey,
) -> Result<(), Fault> {
    let key = key(db, id)?;
    let newest: Option<u32> = db
        .prepare_cached("SELECT max(version) FROM summary WHERE conversation = ?")?
        .query_row([key], |row| row.get(0))?;
    if newest.is_some_and(|newest| newest >= version) {
        return Err(StoreError::Fenced { id: id.clone(), epoch: u64::from(version) }.into());
    }
    db.prepare_cached("INSERT INTO summary (conversation, version, format, body) VALUES (?, ?, ?, ?)")?
        .execute((key, version, FORMAT, body))?;
    job.remove(db, key)
}

pub(super) fn calibrations(db: &Connection) -> Result<Vec<Calibration>, Fault> {
    // A database that an older program made, opened to be read, has no such table.
    if !db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'calibration'")?.exists([])? {
        return Ok(Vec::new());
    }
    bodies(db, "SELECT format, body FROM calibration", [])
}

pub(super) fn records(db: &Connection, id: &ConversationId, turn: &TurnId) -> Result<Vec<Record>, Fault> {
    let query = "SELECT format, body FROM record WHERE conversation = ? AND turn = ? ORDER BY place";
    let batches: Vec<Vec<Record>> = bodies(db, query, (key(db, id)?, turn.as_str()))?;
    Ok(batches.into_iter().flatten().collect())
}
