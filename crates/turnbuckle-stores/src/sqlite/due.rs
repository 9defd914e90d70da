//! What nobody does: found through indexes that hold only what is open, so that a store of a million conversations at
//! rest is asked as fast as an empty one.

use rusqlite::Connection;
use turnbuckle::{ConversationId, Timestamp};

use super::claim::Held;
use super::error::Fault;
use super::number;
use super::process::Process;

/// Everything that somebody should do by now, with whoever may be at it. A message behind a turn that waits must wait.
/// `UNION` instead of `UNION ALL` would have SQLite sort, and for that walk through all conversations.
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

/// Whoever has a conversation takes care of the jobs of its sub-agents, and of theirs.
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

/// At most `most` conversations behind `after`, in the order of their ids. The plus keeps SQLite from walking through all
/// conversations in that order.
pub(super) fn due(
    db: &Connection,
    me: Option<&Process>,
    now: Timestamp,
    after: &str,
    most: usize,
) -> Result<Vec<ConversationId>, Fault> {
    let now = number(now.as_millis());
    let mut candidates = db.prepare_cached(CANDIDATES)?;
    let mut rows = candidates.query((now, after))?;
    let mut due: Vec<ConversationId> = Vec::new();
    while due.len() < most
        && let Some(row) = rows.next()?
    {
        let id = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        let (claimed, held) = (row.get(1)?, Held { from: row.get(2)?, until: row.get(3)?, process: row.get(4)? });
        let free = if claimed { held.is_lapsed(me, now) } else { held.is_over(me, now) };
        // All of a conversation stand together.
        if free && due.last().is_none_or(|last| last.as_str() != id) {
            due.push(id.into());
        }
    }
    Ok(due)
}
