//! Queries for single rows and bodies. Each runs in a transaction of its caller, so it sees one state of the database.

use rusqlite::{Connection, OptionalExtension, Row};
use turnbuckle::hook::Record;
use turnbuckle::store::Scratch;
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

pub(super) fn records(db: &Connection, id: &ConversationId, turn: &TurnId) -> Result<Vec<Record>, Fault> {
    let query = "SELECT format, body FROM record WHERE conversation = ? AND turn = ? ORDER BY place";
    let batches: Vec<Vec<Record>> = bodies(db, query, (key(db, id)?, turn.as_str()))?;
    Ok(batches.into_iter().flatten().collect())
}
