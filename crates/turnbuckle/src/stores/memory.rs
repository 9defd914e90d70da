//! A store that forgets when the process ends, and keeps every other promise.

mod row;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::row::Row;
use crate::clock::Timestamp;
use crate::event::Event;
use crate::id::{CallId, ConversationId, NameMap, TurnId};
use crate::message::Text;
use crate::record::Record;
use crate::scope::Actor;
use crate::store::{
    Batch, Claim, ConversationSummary, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector, LEASE,
    Scratch, StandingApproval, Store, StoreError, StoreFuture,
};

/// Conversations in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryStore {
    rows: Arc<Mutex<NameMap<ConversationId, Row>>>,
    /// Standing approvals, the oldest first. Never locked together with `rows`.
    standing: Arc<Mutex<Vec<StandingApproval>>>,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, NameMap<ConversationId, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_standing(&self) -> MutexGuard<'_, Vec<StandingApproval>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<'a, T>(
        &self,
        id: &ConversationId,
        work: impl FnOnce(&mut Row) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        StoreFuture::now(match self.lock().get_mut(id) {
            Some(row) => work(row),
            None => Err(StoreError::NotFound { id: id.clone() }),
        })
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("conversations", &self.lock().len()).finish()
    }
}

impl Store for MemoryStore {
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        let mut rows = self.lock();
        let made = rows.len();
        let row = rows.entry(id.clone()).or_insert_with(|| Row::new(owner.clone(), made, now));
        StoreFuture::now(Ok(row.owner.clone()))
    }

    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        StoreFuture::now(Ok(self.lock().get(id).map(|row| row.owner.clone())))
    }

    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        self.with(id, |row| row.deliver(id, item))
    }

    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        let wanted = |item: &&InboxItem| which == InboxFilter::All || item.opens().is_none();
        self.with(id, |row| Ok(row.inbox.iter().filter(wanted).cloned().collect()))
    }

    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        self.with(id, |row| {
            if row.writer.as_ref().is_some_and(|(holder, until)| holder != writer && *until > now) {
                return Err(StoreError::InUse { id: id.clone() });
            }
            row.epoch += 1;
            row.writer = Some((writer.clone(), now.after(LEASE)));
            Ok(Claim {
                epoch: row.epoch,
                seq: row.last_seq(),
                totals: row.totals,
                inbox: row.inbox.clone(),
                scratch: row.scratch.clone(),
            })
        })
    }

    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        self.with(id, |row| {
            row.check_epoch(id, epoch)?;
            if let Some((_, until)) = &mut row.writer {
                *until = now.after(LEASE);
            }
            Ok(())
        })
    }

    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        self.with(batch.conversation, |row| row.append(batch))
    }

    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        let skipped = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        self.with(id, |row| Ok(row.log.iter().skip(skipped).take(most).cloned().collect()))
    }

    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.with(id, |row| Ok(row.tail(before, tokens)))
    }

    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool> {
        self.with(id, |row| Ok(row.log.iter().any(|event| event.kind.names_call() == Some(call))))
    }

    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>> {
        self.with(id, |row| Ok(row.scratch.clone()))
    }

    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        self.with(id, |row| {
            Ok(row.records.iter().filter(|(of, _)| of == turn).flat_map(|(_, records)| records).cloned().collect())
        })
    }

    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        self.with(id, |row| Ok(row.jobs.iter().map(|held| held.job.clone()).collect()))
    }

    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        hold: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        self.with(id, |row| Ok(row.take_job(hooks, hold)))
    }

    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        self.with(id, |row| {
            row.settle(job, done);
            Ok(())
        })
    }

    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        let rows = self.lock();
        let due = rows.iter().filter_map(|(id, row)| match id.root() {
            None => row.is_due(now).then(|| id.clone()),
            Some(root) => row.has_due_job(now).then_some(root),
        });
        let due: BTreeSet<_> = due.filter(|id| after.is_none_or(|after| id > after)).collect();
        StoreFuture::now(Ok(due.into_iter().take(most).collect()))
    }

    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        let below = format!("{id}/");
        let rows = self.lock();
        let found = rows.iter().filter(|(id, row)| id.as_str().starts_with(&below) && row.has_jobs());
        StoreFuture::now(Ok(found.map(|(id, _)| id.clone()).collect()))
    }

    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        let rows = self.lock();
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.made));
        StoreFuture::now(Ok(rows.into_iter().map(|(id, row)| row.listed(id)).collect()))
    }

    fn add_standing<'a>(&'a self, approval: StandingApproval) -> StoreFuture<'a, ()> {
        self.lock_standing().push(approval);
        StoreFuture::now(Ok(()))
    }

    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        StoreFuture::now(Ok(self.lock_standing().clone()))
    }

    fn use_standing<'a>(&'a self, id: &'a str, now: Timestamp) -> StoreFuture<'a, bool> {
        let mut all = self.lock_standing();
        let found = all.iter_mut().find(|approval| *approval.id == *id && approval.is_usable(now));
        let used = found.map(|approval| approval.uses_left = approval.uses_left.map(|left| left.saturating_sub(1)));
        StoreFuture::now(Ok(used.is_some()))
    }

    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        let mut all = self.lock_standing();
        let before = all.len();
        all.retain(|approval| *approval.id != *id);
        StoreFuture::now(Ok(all.len() < before))
    }

    fn is_durable(&self) -> bool {
        false
    }
}
