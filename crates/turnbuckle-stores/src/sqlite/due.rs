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
    WITH candidate (conversation, claimed, since, until, process) AS (
        SELECT made, 1, NULL, lease_until, process FROM conversation WHERE due <= ?1
         UNION ALL
        SELECT made, 1, NULL, lease_until, process
          FROM (SELECT conversation AS of, min(opens) AS only_messages FROM inbox GROUP BY conversation)
          JOIN conversation ON made = of WHERE NOT (only_messages AND standing = 'waiting')
         UNION ALL
        SELECT conversation, 0, held_from, held_until, process FROM job WHERE due <= ?1
    )
    SELECT id, claimed, since, candidate.until, candidate.process
      FROM candidate JOIN conversation ON made = candidate.conversation
     WHERE instr(id, '/') = 0 AND id > ?2 ORDER BY +id";

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
