//! Work that no process does at present: turns that a crash left open, messages and orders that wait, questions that have
//! expired, jobs. It is found through indexes that contain only open work, so that a store with a million idle conversations
//! answers as fast as an empty one.

use rusqlite::Connection;
use turnbuckle::{ConversationId, Timestamp};

use super::error::Fault;
use super::lease::LeaseRow;
use super::process::Process;
use super::sql_integer;

/// All work that is due by now, with the lease of the process that may be at it. A message does not count while the open turn
/// waits for an answer: its own turn comes later. `UNION ALL` and the plus in `ORDER BY +id` keep SQLite from walking through
/// all conversations in the order of their ids.
pub(super) const CANDIDATES: &str = "
    WITH candidate (id, claimed, since, until, process) AS (
        SELECT id, 1, NULL, lease_until, process FROM conversation WHERE due <= ?1 AND instr(id, '/') = 0
         UNION ALL
        SELECT id, 1, NULL, lease_until, process
          FROM (SELECT conversation AS of, min(opens) AS only_messages FROM inbox GROUP BY conversation)
          JOIN conversation ON made = of WHERE NOT (only_messages AND standing = 'waiting') AND instr(id, '/') = 0
         UNION ALL
        SELECT substr(id, 1, instr(id || '/', '/') - 1), 0, held_from, held_until, job.process
          FROM job JOIN conversation ON made = job.conversation WHERE job.due <= ?1
    )
    SELECT id, claimed, since, until, process FROM candidate WHERE id > ?2 ORDER BY +id";

/// Conversations of sub-agents at any depth below `id` that have jobs which are not parked. The process that has the main
/// conversation runs them.
pub(super) fn sub_agents_with_jobs(db: &Connection, id: &ConversationId) -> Result<Vec<ConversationId>, Fault> {
    let mut below = db.prepare_cached(
        "SELECT DISTINCT id FROM job JOIN conversation ON made = job.conversation
          WHERE job.due IS NOT NULL AND substr(id, 1, length(?1) + 1) = ?1 || '/' ORDER BY +id",
    )?;
    let mut rows = below.query([id.as_str()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?.into());
    }
    Ok(found)
}

/// At most `most` conversations with work, in the order of their ids, beginning after the id `after`.
pub(super) fn due(
    db: &Connection,
    me: Option<&Process>,
    now: Timestamp,
    after: &str,
    most: usize,
) -> Result<Vec<ConversationId>, Fault> {
    let now = sql_integer(now.as_millis());
    let mut candidates = db.prepare_cached(CANDIDATES)?;
    let mut rows = candidates.query((now, after))?;
    let mut due: Vec<ConversationId> = Vec::new();
    while due.len() < most
        && let Some(row) = rows.next()?
    {
        let id = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let (is_claim, lease) = (row.get(1)?, LeaseRow { from: row.get(2)?, until: row.get(3)?, process: row.get(4)? });
        let free = if is_claim { lease.claim_has_expired(me, now) } else { lease.has_expired(me, now) };
        // A conversation with several kinds of work has several rows, which follow each other.
        if free && due.last().is_none_or(|last| last.as_str() != id) {
            due.push(id.into());
        }
    }
    Ok(due)
}
