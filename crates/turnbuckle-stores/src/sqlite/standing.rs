//! Standing approvals.

use rusqlite::Connection;
use turnbuckle::event::FORMAT;
use turnbuckle::store::{StandingApproval, StoreError};

use super::error::Fault;
use super::read::bodies;
use super::sql_integer;
use crate::json::json;

/// A standing approval as a row. How often it may still be used is counted in a column of its own: the body is written once.
pub(super) struct StandingRow {
    id: String,
    expires: i64,
    uses_left: Option<u32>,
    body: String,
}

impl StandingRow {
    pub(super) fn of(approval: &StandingApproval) -> Result<Self, StoreError> {
        Ok(Self {
            id: approval.id.to_string(),
            expires: sql_integer(approval.expires.as_millis()),
            uses_left: approval.uses_left,
            body: json(approval, "writing a standing approval as JSON")?,
        })
    }

    pub(super) fn add(&self, db: &Connection) -> Result<(), Fault> {
        db.prepare_cached("INSERT INTO standing (id, expires, uses_left, format, body) VALUES (?, ?, ?, ?, ?)")?
            .execute((&self.id, self.expires, self.uses_left, FORMAT, &self.body))?;
        Ok(())
    }
}

/// All of them, the oldest first. A database that an older program made, opened to be read, has none.
pub(super) fn standing(db: &Connection) -> Result<Vec<StandingApproval>, Fault> {
    if !db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'standing'")?.exists([])? {
        return Ok(Vec::new());
    }
    let mut all: Vec<StandingApproval> = bodies(db, "SELECT format, body FROM standing ORDER BY place", [])?;
    let mut query = db.prepare_cached("SELECT uses_left FROM standing ORDER BY place")?;
    let left = query.query_map([], |row| row.get::<_, Option<u32>>(0))?;
    for (approval, left) in all.iter_mut().zip(left) {
        approval.uses_left = left?;
    }
    Ok(all)
}

/// Counts one use, in the transaction that writes the event which is the evidence for it. False if it cannot be used. The
/// condition is in the statement itself, so two processes cannot both have the last one.
pub(super) fn use_once(db: &Connection, id: &str, at: i64) -> Result<bool, Fault> {
    let used = db
        .prepare_cached(
            "UPDATE standing SET uses_left = uses_left - 1
              WHERE id = ?1 AND expires > ?2 AND (uses_left IS NULL OR uses_left > 0)",
        )?
        .execute((id, at))?;
    Ok(used == 1)
}

/// Removes one.
pub(super) fn revoke(db: &Connection, id: &str) -> Result<bool, Fault> {
    Ok(db.prepare_cached("DELETE FROM standing WHERE id = ?")?.execute([id])? == 1)
}
