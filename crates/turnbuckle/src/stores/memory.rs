//! A store that forgets when the process ends, and keeps every other promise.

mod audit;
mod deletion;
mod row;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::row::Row;
use crate::clock::Timestamp;
use crate::event::Event;
use crate::id::{CallId, ConversationId, NameMap, TurnId};
use crate::message::Text;
use crate::record::Record;
use crate::scope::{Actor, Author};
use crate::store::{
    Act, AuditLimits, AuditWrite, AuditedCall, Batch, CacheBreak, Calibration, Claim, ConversationSummary, Cut,
    Deletion, Factor, Hold, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector, KeyedMessage, LEASE,
    PurgeLimits, Purged, Scratch, SentRequest, StandingApproval, Store, StoreError, StoreFuture, Summary, Tombstone,
};

/// Conversations in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryStore {
    contents: Arc<Mutex<Contents>>,
}

#[derive(Default)]
struct Contents {
    rows: NameMap<ConversationId, Row>,
    /// How many conversations were made: orders the list.
    made: usize,
    /// Standing approvals, the oldest first.
    standing: Vec<StandingApproval>,
    /// By model.
    calibrations: BTreeMap<Text, Factor>,
    tombstones: BTreeMap<ConversationId, Tombstone>,
    /// The oldest first.
    acts: Vec<Act>,
}

impl Contents {
    fn row(&mut self, id: &ConversationId) -> Result<&mut Row, StoreError> {
        match self.rows.get_mut(id) {
            Some(row) => Ok(row),
            None => Err(deletion::missing(&self.tombstones, id)),
        }
    }
}

impl Contents {
    /// Writes a batch: to the conversation, and to the standing approvals that it uses or gives.
    fn append(&mut self, batch: Batch<'_>) -> Result<(), StoreError> {
        let (given, used) = (batch.standing, self.standing_after(batch.events)?);
        let calibrations = batch.calibrations;
        let (id, audit) = (batch.conversation, batch.audit);
        let row = self.row(id)?;
        row.append(batch)?;
        let now = row.written;
        if let Some(audit) = audit {
            row.audit.add(audit);
            self.expire_audit(audit.limits, now);
        }
        self.calibrations.extend(calibrations.iter().map(|one| (one.model.clone(), one.factor)));
        if let Some(used) = used {
            self.standing = used;
        }
        if let Some(given) = given {
            self.standing.push(given.clone());
        }
        Ok(())
    }

    /// The standing approvals once these events are written; `None` if they use none.
    fn standing_after(&self, events: &[Arc<Event>]) -> Result<Option<Vec<StandingApproval>>, StoreError> {
        let mut after = None;
        for event in events {
            let Some(used) = event.kind.uses_standing() else { continue };
            let all = after.get_or_insert_with(|| self.standing.clone());
            match all.iter_mut().find(|approval| approval.id == *used && approval.is_usable(event.at)) {
                Some(approval) => approval.uses_left = approval.uses_left.map(|left| left.saturating_sub(1)),
                None => return Err(StoreError::StandingEnded { approval: used.clone() }),
            }
        }
        Ok(after)
    }
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<'a, T>(
        &self,
        id: &ConversationId,
        work: impl FnOnce(&mut Row) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        StoreFuture::now(self.lock().row(id).and_then(work))
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("conversations", &self.lock().rows.len()).finish()
    }
}

impl Store for MemoryStore {
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        StoreFuture::now(self.lock().open(id, owner, now))
    }

    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        StoreFuture::now(Ok(self.lock().rows.get(id).map(|row| row.owner.clone())))
    }

    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        self.with(id, |row| row.deliver(id, item))
    }

    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>> {
        self.with(id, |row| {
            let sent = row.keys.get(&(Text::from(user), Text::from(key)));
            Ok(sent.filter(|sent| sent.is_known(now)).cloned())
        })
    }

    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        let wanted = |item: &&InboxItem| which.wants(item);
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
                cut: row.cuts.last().cloned(),
                sent: row.sent.clone(),
                summary: row.shown_summary(),
                newest_summary: row.summaries.last().cloned(),
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
        StoreFuture::now(self.lock().append(batch))
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
        self.with(id, |row| Ok(row.scratch.as_deref().cloned()))
    }

    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        self.with(id, |row| {
            Ok(row.records.iter().filter(|(of, _)| of == turn).flat_map(|(_, records)| records).cloned().collect())
        })
    }

    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>> {
        self.with(id, |row| Ok(row.cuts.iter().map(|cut| (**cut).clone()).collect()))
    }

    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        self.with(id, |row| Ok(row.sent.clone()))
    }

    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>> {
        self.with(id, |row| Ok(row.breaks.clone()))
    }

    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>> {
        self.with(id, |row| Ok(row.audit.calls.clone()))
    }

    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>> {
        self.with(id, |row| Ok(row.audit.contents.clone()))
    }

    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        let now = audit.calls.iter().map(|call| call.at).max().unwrap_or_default();
        let added = self.with(id, |row| {
            row.audit.add(audit);
            Ok(())
        });
        self.lock().expire_audit(audit.limits, now);
        added
    }

    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        StoreFuture::now(Ok(self.lock().expire_audit(limits, now)))
    }

    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        self.with(id, |row| Ok(row.summaries.clone()))
    }

    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        self.with(id, |row| {
            if row.summaries.last().is_some_and(|last| last.version >= summary.version) {
                return Err(StoreError::Fenced { id: id.clone(), epoch: u64::from(summary.version) });
            }
            row.summaries.push(Arc::new(summary));
            row.settle(job.clone(), JobDisposition::Remove);
            Ok(())
        })
    }

    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>> {
        self.with(id, |row| Ok(row.title.clone()))
    }

    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()> {
        self.with(id, |row| {
            row.title = Some(title.clone());
            Ok(())
        })
    }

    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        let contents = self.lock();
        let all =
            contents.calibrations.iter().map(|(model, factor)| Calibration { model: model.clone(), factor: *factor });
        StoreFuture::now(Ok(all.collect()))
    }

    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        self.with(id, |row| Ok(row.jobs.iter().map(|held| held.job.clone()).collect()))
    }

    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        self.with(id, |row| Ok(row.take_job(hooks, lease)))
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
        let contents = self.lock();
        let due = contents.rows.iter().filter_map(|(id, row)| match id.root() {
            None => row.is_due(now).then(|| id.clone()),
            Some(root) => row.has_due_job(now).then_some(root),
        });
        let due: BTreeSet<_> = due.filter(|id| after.is_none_or(|after| id > after)).collect();
        StoreFuture::now(Ok(due.into_iter().take(most).collect()))
    }

    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        let below = format!("{id}/");
        let contents = self.lock();
        let found = contents.rows.iter().filter(|(id, row)| id.as_str().starts_with(&below) && row.has_jobs());
        StoreFuture::now(Ok(found.map(|(id, _)| id.clone()).collect()))
    }

    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        let contents = self.lock();
        let mut rows: Vec<_> = contents.rows.iter().collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.made));
        StoreFuture::now(Ok(rows.into_iter().map(|(id, row)| row.listed(id)).collect()))
    }

    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        StoreFuture::now(Ok(self.lock().standing.clone()))
    }

    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        let all = &mut self.lock().standing;
        let before = all.len();
        all.retain(|approval| *approval.id != *id);
        StoreFuture::now(Ok(all.len() < before))
    }

    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()> {
        StoreFuture::now(self.lock().delete(deletion))
    }

    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>> {
        StoreFuture::now(Ok(self.lock().tombstones.get(id).cloned()))
    }

    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        StoreFuture::now(Ok(self.lock().unfinished()))
    }

    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()> {
        if let Some(tombstone) = self.lock().tombstones.get_mut(id) {
            tombstone.left.retain(|left| **left != *name);
        }
        StoreFuture::now(Ok(()))
    }

    fn purge<'a>(&'a self, _: PurgeLimits) -> StoreFuture<'a, Purged> {
        // There are no files.
        StoreFuture::now(Ok(Purged::Done))
    }

    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool> {
        StoreFuture::now(self.lock().place_hold(id, hold))
    }

    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        StoreFuture::now(self.lock().lift_hold(id, by, now))
    }

    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        StoreFuture::now(Ok(self.lock().unused_since(before, after, most)))
    }

    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        self.lock().acts.push(act);
        StoreFuture::now(Ok(()))
    }

    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        StoreFuture::now(Ok(self.lock().acts.iter().rev().take(most).cloned().collect()))
    }

    fn is_durable(&self) -> bool {
        false
    }
}
