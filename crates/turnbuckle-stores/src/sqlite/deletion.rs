//! Deletions, holds and acts.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::event::FORMAT;
use turnbuckle::message::Text;
use turnbuckle::scope::Author;
use turnbuckle::store::{Act, ActKind, Deletion, Hold, StoreError, Tombstone};
use turnbuckle::{ConversationId, Timestamp};

use super::audit;
use super::error::Fault;
use super::lease::LeaseRow;
use super::process::Process;
use super::read::{bodies, body, key, owner};
use super::sql_integer;
use crate::json::json;

/// A [`Deletion`] that borrows nothing, so that it can be sent to the writer's thread.
pub(super) struct DeletionRow {
    id: ConversationId,
    epoch: u64,
    at: Timestamp,
    by: Author,
    author: String,
    left: Vec<Text>,
}

impl DeletionRow {
    pub(super) fn of(deletion: Deletion<'_>) -> Result<Self, StoreError> {
        let Deletion { conversation: id, epoch, by, at, left } = deletion;
        Ok(Self {
            id: id.clone(),
            epoch,
            at,
            by: by.clone(),
            author: json(by, "writing who deletes as JSON")?,
            left: left.to_vec(),
        })
    }

    fn borrowed(&self) -> Deletion<'_> {
        Deletion { conversation: &self.id, epoch: self.epoch, by: &self.by, at: self.at, left: &self.left }
    }

    /// Removes the conversation and those below it, if the claim is the newest and nothing stands against it.
    pub(super) fn write(&self, db: &Connection, me: Option<&Process>) -> Result<(), Fault> {
        let (id, conversation) = (&self.id, key(db, &self.id)?);
        let claimed = db
            .prepare_cached("SELECT 1 FROM conversation WHERE made = ? AND epoch = ? AND writer IS NOT NULL")?
            .exists((conversation, sql_integer(self.epoch)))?;
        if !claimed {
            return Err(StoreError::Fenced { id: id.clone(), epoch: self.epoch }.into());
        }
        let held: Vec<Hold> = bodies(db, "SELECT format, body FROM hold WHERE conversation = ?", [conversation])?;
        if let Some(hold) = held.into_iter().next() {
            return Err(StoreError::Held { id: id.clone(), hold }.into());
        }
        let act = match owner(db, id)? {
            Some(owner) => ActRow::of(&Act::deletion(&self.borrowed(), &owner))?,
            None => return Err(StoreError::NotFound { id: id.clone() }.into()),
        };
        let keys = keys_within(db, id)?;
        for key in &keys {
            if has_job_in_hand(db, *key, me, sql_integer(self.at.as_millis()))? {
                return Err(StoreError::InUse { id: id.clone() }.into());
            }
        }
        for key in keys {
            for table in
                ["event", "inbox", "record", "cut", "cache_break", "summary", "title", "job", "hold", "message_key"]
            {
                db.prepare_cached(&format!("DELETE FROM {table} WHERE conversation = ?"))?.execute([key])?;
            }
            audit::delete(db, key)?;
            db.prepare_cached("DELETE FROM conversation WHERE made = ?")?.execute([key])?;
        }
        db.prepare_cached(&format!(
            "DELETE FROM standing WHERE json_valid(body) AND {}",
            within("json_extract(body, '$.from[0]')")
        ))?
        .execute([id.as_str()])?;
        db.prepare_cached("INSERT INTO tombstone (id, at, format, author) VALUES (?, ?, ?, ?)")?.execute((
            id.as_str(),
            sql_integer(self.at.as_millis()),
            FORMAT,
            &self.author,
        ))?;
        for name in &self.left {
            db.prepare_cached("INSERT INTO unerased (id, name) VALUES (?, ?)")?.execute((id.as_str(), &**name))?;
        }
        act.add(db)
    }
}

/// The condition that `column` is the id `?1` or one below it. `0` is the character after `/`.
fn within(column: &str) -> String {
    format!("({column} = ?1 OR ({column} >= ?1 || '/' AND {column} < ?1 || '0'))")
}

/// The keys of a conversation and of those of its sub-agents.
fn keys_within(db: &Connection, id: &ConversationId) -> Result<Vec<i64>, Fault> {
    let mut query = db.prepare_cached(&format!("SELECT made FROM conversation WHERE {}", within("id")))?;
    let keys = query.query_map([id.as_str()], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}

fn has_job_in_hand(db: &Connection, key: i64, me: Option<&Process>, now: i64) -> Result<bool, Fault> {
    let mut query = db.prepare_cached(
        "SELECT held_from, held_until, process FROM job WHERE conversation = ? AND held_until IS NOT NULL",
    )?;
    let mut rows = query.query([key])?;
    while let Some(row) = rows.next()? {
        let lease = LeaseRow { from: row.get(0)?, until: row.get(1)?, process: row.get(2)? };
        if !lease.has_expired(me, now) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the tables of this file are there. A database that an older program made, opened to be read, lacks them.
fn is_there(db: &Connection) -> Result<bool, Fault> {
    Ok(db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'tombstone'")?.exists([])?)
}

/// Why there is no conversation of this id. A sub-agent's was deleted with its main agent's.
pub(super) fn missing(db: &Connection, id: &ConversationId) -> Result<StoreError, Fault> {
    let deleted = match is_there(db)? {
        true => {
            let root = id.root().unwrap_or_else(|| id.clone());
            db.prepare_cached("SELECT at FROM tombstone WHERE id = ?")?
                .query_row([root.as_str()], |row| row.get::<_, i64>(0))
                .optional()?
        }
        false => None,
    };
    Ok(match deleted {
        Some(at) => StoreError::Deleted { id: id.clone(), at: Timestamp::from_millis(at.unsigned_abs()) },
        None => StoreError::NotFound { id: id.clone() },
    })
}

/// What stays of the conversation.
pub(super) fn tombstone(db: &Connection, id: &ConversationId) -> Result<Option<Tombstone>, Fault> {
    Ok(tombstones(db, "SELECT format, author, id, at FROM tombstone WHERE id = ?", [id.as_str()])?.pop())
}

/// Deletions of which something is left to be erased, the oldest first.
pub(super) fn unfinished(db: &Connection) -> Result<Vec<Tombstone>, Fault> {
    let query = "SELECT format, author, id, at FROM tombstone WHERE id IN (SELECT id FROM unerased) ORDER BY at";
    tombstones(db, query, [])
}

fn tombstones(db: &Connection, query: &str, params: impl rusqlite::Params) -> Result<Vec<Tombstone>, Fault> {
    if !is_there(db)? {
        return Ok(Vec::new());
    }
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (by, id, at): (Author, String, i64) = (body(row)?, row.get(2)?, row.get(3)?);
        let mut left = db.prepare_cached("SELECT name FROM unerased WHERE id = ? ORDER BY place")?;
        let left = left.query_map([&id], |row| row.get::<_, String>(0))?;
        let left: Vec<Text> = left.map(|name| name.map(Text::from)).collect::<Result<_, _>>()?;
        found.push(Tombstone::new(id.into(), by, Timestamp::from_millis(at.unsigned_abs()), left));
    }
    Ok(found)
}

/// One place is erased.
pub(super) fn note_erased(db: &Connection, id: &ConversationId, name: &str) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM unerased WHERE id = ? AND name = ?")?.execute((id.as_str(), name))?;
    Ok(())
}

/// All holds, by the keys of their conversations.
pub(super) fn holds(db: &Connection) -> Result<HashMap<i64, Hold>, Fault> {
    let mut found = HashMap::new();
    if is_there(db)? {
        let mut query = db.prepare_cached("SELECT format, body, conversation FROM hold")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            found.insert(row.get(2)?, body(row)?);
        }
    }
    Ok(found)
}

/// A hold as a row, and the act of putting it there.
pub(super) struct HoldRow {
    id: ConversationId,
    body: String,
    act: ActRow,
}

impl HoldRow {
    pub(super) fn of(id: &ConversationId, hold: &Hold) -> Result<Self, StoreError> {
        let act = ActRow::of(&Act::new(ActKind::Held, id.as_str(), hold.by.clone(), hold.at))?;
        Ok(Self { id: id.clone(), body: json(hold, "writing a hold as JSON")?, act })
    }

    /// False if there was one.
    pub(super) fn add(&self, db: &Connection) -> Result<bool, Fault> {
        let added = db
            .prepare_cached("INSERT INTO hold (conversation, format, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")?
            .execute((key(db, &self.id)?, FORMAT, &self.body))?;
        if added == 1 {
            self.act.add(db)?;
        }
        Ok(added == 1)
    }
}

/// Ends a hold. False if there was none.
pub(super) fn lift_hold(db: &Connection, id: &ConversationId, act: &ActRow) -> Result<bool, Fault> {
    let released = db.prepare_cached("DELETE FROM hold WHERE conversation = ?")?.execute([key(db, id)?])?;
    if released == 1 {
        act.add(db)?;
    }
    Ok(released == 1)
}

/// An act as a row.
pub(super) struct ActRow(String);

impl ActRow {
    pub(super) fn of(act: &Act) -> Result<Self, StoreError> {
        json(act, "writing an act as JSON").map(Self)
    }

    pub(super) fn add(&self, db: &Connection) -> Result<(), Fault> {
        db.prepare_cached("INSERT INTO act (format, body) VALUES (?, ?)")?.execute((FORMAT, &self.0))?;
        Ok(())
    }
}

/// The newest acts, the newest first.
pub(super) fn acts(db: &Connection, most: usize) -> Result<Vec<Act>, Fault> {
    if !is_there(db)? {
        return Ok(Vec::new());
    }
    bodies(db, "SELECT format, body FROM act ORDER BY place DESC LIMIT ?", [sql_integer(most as u64)])
}

/// Conversations in which nothing was written since `before`, in the order of their ids.
pub(super) fn unused_since(
    db: &Connection,
    before: Timestamp,
    after: &str,
    most: usize,
) -> Result<Vec<ConversationId>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT id FROM conversation
          WHERE id > ?1 AND written < ?2 AND standing = 'idle' AND instr(id, '/') = 0
            AND made NOT IN (SELECT conversation FROM hold) ORDER BY id LIMIT ?3",
    )?;
    let before = sql_integer(before.as_millis());
    let found = query.query_map((after, before, sql_integer(most as u64)), |row| row.get::<_, String>(0))?;
    Ok(found.map(|id| id.map(ConversationId::from)).collect::<Result<_, _>>()?)
}
