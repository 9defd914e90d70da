//! The audit: what models were sent.

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::Connection;
use turnbuckle::event::FORMAT;
use turnbuckle::message::Text;
use turnbuckle::store::{AuditLimits, AuditWrite, AuditedCall, StoreError};
use turnbuckle::{ConversationId, Timestamp};

use super::error::Fault;
use super::read::{bodies, body, key};
use super::sql_integer;
use crate::json::json;

/// How many calls go in one step at most: a writer must not be held up by the audit of years.
const MOST_AT_ONCE: i64 = 1_000;

/// Where there are too many calls or bytes, this part of the calls goes at once: a twentieth.
const PART: i64 = 20;

/// The longest text of a link, in bytes: two digests and what stands between them.
const LINK: i64 = 65;

/// An [`AuditWrite`] as rows.
pub(super) struct AuditRows {
    calls: Vec<(i64, String)>,
    contents: Vec<(Text, Text)>,
    limits: AuditLimits,
    now: Timestamp,
}

impl AuditRows {
    pub(super) fn of(write: &AuditWrite) -> Result<Self, StoreError> {
        let row = |call: &AuditedCall| {
            Ok::<_, StoreError>((sql_integer(call.at.as_millis()), json(call, "writing an audited call as JSON")?))
        };
        Ok(Self {
            calls: write.calls.iter().map(row).collect::<Result<_, _>>()?,
            contents: write.contents.clone(),
            limits: write.limits,
            now: write.calls.iter().map(|call| call.at).max().unwrap_or_default(),
        })
    }

    pub(super) fn write(&self, db: &Connection, key: i64) -> Result<(), Fault> {
        let mut bytes = 0;
        let mut add = db.prepare_cached(
            "INSERT INTO audit_content (conversation, digest, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        )?;
        for (digest, body) in &self.contents {
            if add.execute((key, &**digest, &**body))? == 1 {
                bytes += body.len();
            }
        }
        let mut add =
            db.prepare_cached("INSERT INTO audit_call (conversation, at, format, body) VALUES (?, ?, ?, ?)")?;
        for (at, body) in &self.calls {
            add.execute((key, at, FORMAT, body))?;
        }
        resize(db, self.calls.len() as i64, bytes as i64)?;
        expire(db, self.limits, self.now).map(|_| ())
    }
}

/// Adds what was sent outside of the turns of a conversation.
pub(super) fn add(db: &Connection, id: &ConversationId, rows: &AuditRows) -> Result<(), Fault> {
    rows.write(db, key(db, id)?)
}

fn resize(db: &Connection, calls: i64, bytes: i64) -> Result<(), Fault> {
    db.prepare_cached("UPDATE audit_size SET calls = calls + ?, bytes = bytes + ?")?.execute((calls, bytes))?;
    Ok(())
}

/// Removes what is beyond the limits, the oldest calls first. Returns how many calls went.
pub(super) fn expire(db: &Connection, limits: AuditLimits, now: Timestamp) -> Result<u64, Fault> {
    let expired = sql_integer(now.as_millis())
        .saturating_sub(sql_integer(u64::try_from(limits.ttl.as_millis()).unwrap_or(u64::MAX)));
    let query = "SELECT place, conversation FROM audit_call WHERE at <= ? ORDER BY at LIMIT ?";
    let mut gone = remove(db, query, (expired, MOST_AT_ONCE))?;
    loop {
        let (calls, bytes): (i64, i64) = db
            .prepare_cached("SELECT calls, bytes FROM audit_size")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let over = calls.saturating_sub(sql_integer(limits.calls));
        // A part of them goes with it: otherwise each call that comes would have the texts of a conversation looked through for one
        // that goes.
        let over = if over > 0 { over.max(sql_integer(limits.calls) / PART) } else { 0 };
        // Of bytes nobody knows whose they are before they are gone, so a part of the calls goes, and then it is looked again.
        let over_bytes = if bytes > sql_integer(limits.bytes) { (calls / PART).max(1) } else { 0 };
        let most = over.max(over_bytes).min(MOST_AT_ONCE);
        if most <= 0 || calls == 0 {
            return Ok(gone);
        }
        let query = "SELECT place, conversation FROM audit_call ORDER BY at, place LIMIT ?";
        let removed = remove(db, query, [most])?;
        if removed == 0 {
            return Ok(gone);
        }
        gone += removed;
    }
}

/// Removes the calls that a query finds, and what no other call refers to.
fn remove(db: &Connection, query: &str, params: impl rusqlite::Params) -> Result<u64, Fault> {
    let mut query = db.prepare_cached(query)?;
    let found = query.query_map(params, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    let found: Vec<(i64, i64)> = found.collect::<Result<_, _>>()?;
    for (place, _) in &found {
        db.prepare_cached("DELETE FROM audit_call WHERE place = ?")?.execute([place])?;
    }
    let mut bytes = 0;
    for conversation in found.iter().map(|(_, conversation)| *conversation).collect::<BTreeSet<_>>() {
        bytes += sweep(db, conversation)?;
    }
    if !found.is_empty() {
        resize(db, -(found.len() as i64), -bytes)?;
    }
    Ok(found.len() as u64)
}

/// Removes contents of a conversation that no call of it refers to. Returns how many bytes they had.
///
/// Only links are read. What was sent can be many megabytes, and the writer of all conversations waits meanwhile.
fn sweep(db: &Connection, conversation: i64) -> Result<i64, Fault> {
    let mut query = db.prepare_cached(
        "SELECT digest, octet_length(body), CASE WHEN octet_length(body) <= ? THEN body END FROM audit_content \
         WHERE conversation = ?",
    )?;
    let found = query.query_map((LINK, conversation), |row| {
        Ok((Text::from(row.get::<_, String>(0)?), (row.get::<_, i64>(1)?, row.get::<_, Option<String>>(2)?)))
    })?;
    let contents: HashMap<Text, (i64, Option<String>)> = found.collect::<Result<_, _>>()?;
    let calls: Vec<AuditedCall> =
        bodies(db, "SELECT format, body FROM audit_call WHERE conversation = ?", [conversation])?;
    let mut kept: HashSet<&str> = HashSet::new();
    for call in &calls {
        kept.extend(call.fixed().map(|digest| &**digest));
        let mut link: &str = &call.messages;
        // Most calls share most of their links, and those before a link that was seen were seen with it.
        while kept.insert(link) {
            let Some((_, Some(body))) = contents.get(link) else { break };
            let Some((before, message)) = body.split_once(' ') else { break };
            kept.insert(message);
            link = before;
        }
    }
    let mut bytes = 0;
    for (digest, (length, _)) in contents.iter().filter(|(digest, _)| !kept.contains(&***digest)) {
        db.prepare_cached("DELETE FROM audit_content WHERE conversation = ? AND digest = ?")?
            .execute((conversation, &**digest))?;
        bytes += length;
    }
    Ok(bytes)
}

/// The audit of a conversation goes with it.
pub(super) fn delete(db: &Connection, conversation: i64) -> Result<(), Fault> {
    let calls = db.prepare_cached("DELETE FROM audit_call WHERE conversation = ?")?.execute([conversation])?;
    let bytes: i64 = db
        .prepare_cached(
            "SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM audit_content WHERE conversation = ?",
        )?
        .query_row([conversation], |row| row.get(0))?;
    db.prepare_cached("DELETE FROM audit_content WHERE conversation = ?")?.execute([conversation])?;
    if calls > 0 || bytes > 0 {
        resize(db, -(calls as i64), -bytes)?;
    }
    Ok(())
}

/// Whether the tables are there. A database that an older program made, opened to be read, lacks them.
pub(super) fn is_there(db: &Connection) -> Result<bool, Fault> {
    Ok(db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'audit_call'")?.exists([])?)
}

pub(super) fn calls(db: &Connection, id: &ConversationId) -> Result<Vec<AuditedCall>, Fault> {
    let key = key(db, id)?;
    if !is_there(db)? {
        return Ok(Vec::new());
    }
    let mut query = db.prepare_cached("SELECT format, body FROM audit_call WHERE conversation = ? ORDER BY place")?;
    let mut rows = query.query([key])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(body(row)?);
    }
    Ok(found)
}

pub(super) fn contents(db: &Connection, id: &ConversationId) -> Result<HashMap<Text, Text>, Fault> {
    let key = key(db, id)?;
    if is_there(db)? { contents_of(db, key) } else { Ok(HashMap::new()) }
}

fn contents_of(db: &Connection, key: i64) -> Result<HashMap<Text, Text>, Fault> {
    let mut query = db.prepare_cached("SELECT digest, body FROM audit_content WHERE conversation = ?")?;
    let found = query
        .query_map([key], |row| Ok((Text::from(row.get::<_, String>(0)?), Text::from(row.get::<_, String>(1)?))))?;
    Ok(found.collect::<Result<_, _>>()?)
}
