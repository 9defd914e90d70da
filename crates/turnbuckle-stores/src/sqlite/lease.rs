//! A lease as it is stored: when it lets others take what it protects.
//!
//! Two things are leased: a conversation, to its writer ([`super::claim`]), and a job, to the process that runs it
//! ([`super::jobs`]). A lease only decides how long others wait. A writer that lost its lease is kept out by the epoch.

use turnbuckle::Timestamp;
use turnbuckle::store::LEASE;

use super::process::{Liveness, Process};
use super::sql_integer;

/// The columns of a lease, in milliseconds since 1970.
#[derive(Debug)]
pub(super) struct LeaseRow {
    /// When it was taken. Stored for jobs only.
    pub(super) from: Option<i64>,
    /// `None` if there is no lease.
    pub(super) until: Option<i64>,
    /// The holder's process; `None` if it could not tell.
    pub(super) process: Option<String>,
}

impl LeaseRow {
    /// Whether others may take the job: the time is over, or the holder's process is known to be dead. A lease that begins in
    /// the future was taken before the clock was set back, and holds only for a process that is known to be alive.
    pub(super) fn has_expired(&self, me: Option<&Process>, now: i64) -> bool {
        let soon = now.saturating_add(sql_integer(LEASE.as_millis() as u64));
        let in_time = self.until.is_some_and(|until| until > now);
        match self.liveness(me) {
            _ if !in_time => true,
            Liveness::Dead => true,
            Liveness::Alive => false,
            Liveness::Unknown => self.from.is_some_and(|from| from > soon),
        }
    }

    /// Whether others may take the conversation. A claim is never given for longer than [`LEASE`]: one that ends much later
    /// was given before the clock was set back. Its writer may not renew it for hours, so it holds only for a process that is
    /// known to be alive.
    pub(super) fn claim_has_expired(&self, me: Option<&Process>, now: i64) -> bool {
        let latest = now.saturating_add(2 * sql_integer(LEASE.as_millis() as u64));
        let ends_too_late = self.until.is_some_and(|until| until > latest);
        self.has_expired(me, now) || (ends_too_late && self.liveness(me) != Liveness::Alive)
    }

    /// When the lease ends; `None` if there is none, or if the holder's process is known to be dead.
    pub(super) fn until_unless_dead(&self, me: Option<&Process>) -> Option<Timestamp> {
        let until = self.until.filter(|_| self.liveness(me) != Liveness::Dead);
        until.map(|until| Timestamp::from_millis(until.unsigned_abs()))
    }

    fn liveness(&self, me: Option<&Process>) -> Liveness {
        let (Some(me), Some(process)) = (me, &self.process) else { return Liveness::Unknown };
        me.liveness_of(process)
    }
}
