//! Queries for single rows and bodies. Each runs in a transaction of its caller, so it sees one state of the database.

use rusqlite::{Connection, OptionalExtension, Row};
use turnbuckle::hook::Record;
use turnbuckle::store::{Cut, Scratch};
use turnbuckle::{Actor, ConversationId, TurnId};

use super::deletion::missing;
use super::error::Fault;
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

pub(super) fn cuts(db: &Connection, id: &ConversationId) -> Result<Vec<Cut>, Fault> {
    let key = key(db, id)?;
    // A database that an older program made, opened to be read, has no such table.
    if !db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'cut'")?.exists([])? {
        return Ok(Vec::new());
    }
    bodies(db, "SELECT format, body FROM cut WHERE conversation = ? ORDER BY place", [key])
}

pub(super) fn records(db: &Connection, id: &ConversationId, turn: &TurnId) -> Result<Vec<Record>, Fault> {
    let query = "SELECT format, body FROM record WHERE conversation = ? AND turn = ? ORDER BY place";
    let batches: Vec<Vec<Record>> = bodies(db, query, (key(db, id)?, turn.as_str()))?;
    Ok(batches.into_iter().flatten().collect())
}
