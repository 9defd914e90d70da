//! Claims: which writer has a conversation. The condition of a claim is the `WHERE` of the statement that grants it, so two
//! processes cannot both find a conversation free.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};
use turnbuckle::store::{Claim, InboxFilter, LEASE, StoreError, Totals};
use turnbuckle::{ConversationId, Timestamp};

use super::deletion::missing;
use super::error::Fault;
use super::inbox::inbox;
use super::lease::LeaseRow;
use super::process::Process;
use super::read::{body, claimed_summaries, key, last_cut, sent};
use super::sql_integer;

/// Makes `writer` in this process the only writer: if the conversation is free, if its lease has expired, or if the same
/// writer of the same process has it already. Each claim raises the epoch, which keeps an earlier writer out.
pub(super) fn claim(
    db: &Connection,
    id: &ConversationId,
    writer: &str,
    me: Option<&Process>,
    now: Timestamp,
) -> Result<Claim, Fault> {
    let process = me.map(ToString::to_string);
    let (now, until) = (sql_integer(now.as_millis()), sql_integer(now.after(LEASE).as_millis()));
    // A writer is known by its name and its process: the same name in another process is another writer.
    let mut grant = db.prepare_cached(
        "UPDATE conversation SET epoch = epoch + 1, writer = ?2, lease_until = ?4, process = ?5
          WHERE id = ?1 AND (writer IS NULL OR lease_until <= ?3 OR epoch = ?6 OR (writer = ?2 AND process IS ?5))
      RETURNING beside_format, beside, made, epoch, seq, model_calls, tokens, sent_format, sent",
    )?;
    // `expired` is the epoch of a claim that is replaced although its lease has not ended.
    let mut try_to_claim = |expired: Option<i64>| -> Result<Option<(i64, Claim)>, Fault> {
        let mut rows = grant.query((id.as_str(), writer, now, until, &process, expired))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let read = |at| Ok::<_, Fault>(row.get::<_, i64>(at)?.unsigned_abs());
        let scratch =
            if row.get_ref(1)? == rusqlite::types::ValueRef::Null { None } else { Some(Arc::new(body(row)?)) };
        let totals = Totals { model_calls: read(5)?, tokens: read(6)? };
        let claim = Claim {
            epoch: read(3)?,
            seq: read(4)?,
            totals,
            cut: None,
            sent: sent(row, 7)?,
            summary: None,
            newest_summary: None,
            inbox: Vec::new(),
            scratch,
        };
        Ok(Some((row.get(2)?, claim)))
    };
    let granted = match try_to_claim(None)? {
        None => match epoch_of_expired_claim(db, id, me, now)? {
            Some(epoch) => try_to_claim(Some(epoch))?,
            None => None,
        },
        granted => granted,
    };
    let Some((key, claim)) = granted else { return Err(StoreError::InUse { id: id.clone() }.into()) };
    let cut = last_cut(db, key)?.map(Arc::new);
    let [summary, newest_summary] = claimed_summaries(db, key, cut.as_ref().and_then(|cut| cut.summary))?;
    Ok(Claim { cut, summary, newest_summary, inbox: inbox(db, key, InboxFilter::All)?, ..claim })
}

/// The epoch of the present claim, if others may replace it before its lease ends: its process is dead, or its end cannot be
/// true.
fn epoch_of_expired_claim(
    db: &Connection,
    id: &ConversationId,
    me: Option<&Process>,
    now: i64,
) -> Result<Option<i64>, Fault> {
    let mut claim = db.prepare_cached("SELECT epoch, lease_until, process FROM conversation WHERE id = ?")?;
    let claim = claim
        .query_row([id.as_str()], |row| {
            Ok((row.get(0)?, LeaseRow { from: None, until: row.get(1)?, process: row.get(2)? }))
        })
        .optional()?;
    let Some((epoch, lease)) = claim else { return Err(missing(db, id)?.into()) };
    Ok(lease.claim_has_expired(me, now).then_some(epoch))
}

/// Keeps a claim for another [`LEASE`].
pub(super) fn renew(db: &Connection, id: &ConversationId, epoch: u64, now: Timestamp) -> Result<(), Fault> {
    let kept = db
        .prepare_cached("UPDATE conversation SET lease_until = ?3 WHERE id = ?1 AND epoch = ?2 AND writer IS NOT NULL")?
        .execute((id.as_str(), sql_integer(epoch), sql_integer(now.after(LEASE).as_millis())))?;
    if kept == 1 {
        return Ok(());
    }
    key(db, id)?;
    Err(StoreError::Fenced { id: id.clone(), epoch }.into())
}
