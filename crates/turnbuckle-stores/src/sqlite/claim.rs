//! Claims: who may write, enforced by the rows themselves.

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::store::{Claim, InboxFilter, LEASE, StoreError, Totals};
use turnbuckle::{ConversationId, Timestamp};

use super::error::Fault;
use super::number;
use super::process::{Fate, Process};
use super::read::{body, inbox, key};

/// Who holds something, and until when.
#[derive(Debug)]
pub(super) struct Held {
    /// `None`: not known.
    pub(super) from: Option<i64>,
    /// `None`: nobody.
    pub(super) until: Option<i64>,
    /// The holder's; `None`: not known.
    pub(super) process: Option<String>,
}

impl Held {
    /// Whether the time is over, or the holder is gone. What begins in the future was taken before the clock was set
    /// back, and counts only for a process that is known to live.
    pub(super) fn is_over(&self, me: Option<&Process>, now: i64) -> bool {
        let soon = now.saturating_add(number(LEASE.as_millis() as u64));
        let in_time = self.until.is_some_and(|until| until > now);
        match self.fate(me) {
            _ if !in_time => true,
            Fate::Gone => true,
            Fate::Lives => false,
            Fate::Unknown => self.from.is_some_and(|from| from > soon),
        }
    }

    /// The same of a claim, which is never given for longer than [`LEASE`]: one that lies further ahead was given before
    /// the clock was set back. Nobody may renew it, so it counts only for a process that is known to live.
    pub(super) fn is_lapsed(&self, me: Option<&Process>, now: i64) -> bool {
        let furthest = now.saturating_add(2 * number(LEASE.as_millis() as u64));
        self.is_over(me, now) || (self.until.is_some_and(|until| until > furthest) && self.fate(me) != Fate::Lives)
    }

    /// Until when, if the holder is not known to be gone.
    pub(super) fn until_unless_gone(&self, me: Option<&Process>) -> Option<Timestamp> {
        let until = self.until.filter(|_| self.fate(me) != Fate::Gone);
        until.map(|until| Timestamp::from_millis(until.unsigned_abs()))
    }

    fn fate(&self, me: Option<&Process>) -> Fate {
        let (Some(me), Some(process)) = (me, &self.process) else { return Fate::Unknown };
        me.fate_of(process)
    }
}

/// Makes `writer` in this process the one writer.
pub(super) fn claim(
    db: &Connection,
    id: &ConversationId,
    writer: &str,
    me: Option<&Process>,
    now: Timestamp,
) -> Result<Claim, Fault> {
    let process = me.map(ToString::to_string);
    let (now, until) = (number(now.as_millis()), number(now.after(LEASE).as_millis()));
    // The same words in another process are another writer.
    let mut grant = db.prepare_cached(
        "UPDATE conversation SET epoch = epoch + 1, writer = ?2, lease_until = ?4, process = ?5
          WHERE id = ?1 AND (writer IS NULL OR lease_until <= ?3 OR epoch = ?6 OR (writer = ?2 AND process IS ?5))
      RETURNING beside_format, beside, made, epoch, seq, model_calls, tokens",
    )?;
    let mut ask = |dead: Option<i64>| -> Result<Option<(i64, Claim)>, Fault> {
        let mut rows = grant.query((id.as_str(), writer, now, until, &process, dead))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let read = |at| Ok::<_, Fault>(row.get::<_, i64>(at)?.unsigned_abs());
        let scratch = if row.get_ref(1)? == rusqlite::types::ValueRef::Null { None } else { Some(body(row)?) };
        let totals = Totals { model_calls: read(5)?, tokens: read(6)? };
        let claim = Claim { epoch: read(3)?, seq: read(4)?, totals, inbox: Vec::new(), scratch };
        Ok(Some((row.get(2)?, claim)))
    };
    let granted = match ask(None)? {
        None => match epoch_of_a_lapsed_owner(db, id, me, now)? {
            Some(epoch) => ask(Some(epoch))?,
            None => None,
        },
        granted => granted,
    };
    let Some((key, claim)) = granted else { return Err(StoreError::InUse { id: id.clone() }.into()) };
    Ok(Claim { inbox: inbox(db, key, InboxFilter::All)?, ..claim })
}

/// The epoch of an owner that is replaced without waiting for its lease.
fn epoch_of_a_lapsed_owner(
    db: &Connection,
    id: &ConversationId,
    me: Option<&Process>,
    now: i64,
) -> Result<Option<i64>, Fault> {
    let mut owner = db.prepare_cached("SELECT epoch, lease_until, process FROM conversation WHERE id = ?")?;
    let owner = owner
        .query_row([id.as_str()], |row| {
            Ok((row.get(0)?, Held { from: None, until: row.get(1)?, process: row.get(2)? }))
        })
        .optional()?;
    let Some((epoch, held)) = owner else { return Err(StoreError::NotFound { id: id.clone() }.into()) };
    Ok(held.is_lapsed(me, now).then_some(epoch))
}

/// Keeps a claim.
pub(super) fn renew(db: &Connection, id: &ConversationId, epoch: u64, now: Timestamp) -> Result<(), Fault> {
    let kept = db
        .prepare_cached("UPDATE conversation SET lease_until = ?3 WHERE id = ?1 AND epoch = ?2 AND writer IS NOT NULL")?
        .execute((id.as_str(), number(epoch), number(now.after(LEASE).as_millis())))?;
    if kept == 1 {
        return Ok(());
    }
    key(db, id)?;
    Err(StoreError::Fenced { id: id.clone(), epoch }.into())
}
