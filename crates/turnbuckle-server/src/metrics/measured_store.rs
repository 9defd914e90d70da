//! A store that notes what is written to it, for the metrics.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use turnbuckle::event::Event;
use turnbuckle::hook::Record;
use turnbuckle::message::Text;
use turnbuckle::scope::Author;
use turnbuckle::store::{
    Act, AuditLimits, AuditWrite, AuditedCall, Batch, CacheBreak, Calibration, Claim, ConversationSummary, Cut,
    Deletion, Hold, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector, KeyedMessage, ListPart,
    PurgeLimits, Purged, Scratch, SentRequest, StandingApproval, Store, StoreFuture, Summary, Tombstone,
};
use turnbuckle::{Actor, CallId, ConversationId, Timestamp, TurnId};

use super::{Metrics, Noted};

/// A store whose writes are counted and timed, made by [`Metrics::measured`]. Every turn of the agent and of its sub-agents ends
/// in a write, with the records of its hooks, so nothing is missed and no hook has to watch.
pub struct MeasuredStore<S> {
    store: S,
    metrics: Metrics,
}

impl<S> MeasuredStore<S> {
    pub(super) fn new(store: S, metrics: Metrics) -> Self {
        Self { store, metrics }
    }
}

impl<S> fmt::Debug for MeasuredStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeasuredStore")
    }
}

impl<S: Store> Store for MeasuredStore<S> {
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        let (noted, begun) = (Noted::of(&batch), Instant::now());
        match self.store.append(batch) {
            StoreFuture::Now(answer) => {
                let answer = answer.into_inner();
                self.metrics.wrote(noted, begun.elapsed(), answer.is_ok());
                StoreFuture::now(answer)
            }
            StoreFuture::Later(answer) => StoreFuture::later(async move {
                let answer = answer.await;
                self.metrics.wrote(noted, begun.elapsed(), answer.is_ok());
                answer
            }),
        }
    }

    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        self.store.open(id, owner, now)
    }

    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        self.store.owner(id)
    }

    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        self.store.deliver(id, item)
    }

    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>> {
        self.store.keyed_message(id, user, key, now)
    }

    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        self.store.inbox(id, which)
    }

    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        self.store.claim(id, writer, now)
    }

    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        self.store.renew(id, epoch, now)
    }

    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.store.log(id, from, most)
    }

    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.store.tail(id, before, tokens)
    }

    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool> {
        self.store.has_call(id, call)
    }

    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>> {
        self.store.scratch(id)
    }

    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        self.store.records(id, turn)
    }

    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>> {
        self.store.cuts(id)
    }

    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        self.store.sent(id)
    }

    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>> {
        self.store.cache_breaks(id)
    }

    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>> {
        self.store.audited_calls(id)
    }

    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>> {
        self.store.audit_contents(id)
    }

    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        self.store.add_audited(id, audit)
    }

    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        self.store.expire_audit(limits, now)
    }

    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        self.store.summaries(id)
    }

    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        self.store.add_summary(id, summary, job)
    }

    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>> {
        self.store.title(id)
    }

    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()> {
        self.store.set_title(id, title)
    }

    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        self.store.calibrations()
    }

    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        self.store.jobs(id)
    }

    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        self.store.take_job(id, hooks, lease)
    }

    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        self.store.settle_job(id, job, done)
    }

    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.store.due(now, after, most)
    }

    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        self.store.sub_agents_with_jobs(id)
    }

    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        self.store.list()
    }

    fn list_part<'a>(&'a self, part: ListPart<'a>) -> StoreFuture<'a, Vec<ConversationSummary>> {
        self.store.list_part(part)
    }

    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        self.store.standing()
    }

    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        self.store.revoke_standing(id)
    }

    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()> {
        self.store.delete(deletion)
    }

    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>> {
        self.store.tombstone(id)
    }

    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        self.store.unfinished_deletions()
    }

    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()> {
        self.store.note_erased(id, name)
    }

    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged> {
        self.store.purge(limits)
    }

    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool> {
        self.store.place_hold(id, hold)
    }

    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        self.store.lift_hold(id, by, now)
    }

    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.store.unused_since(before, after, most)
    }

    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        self.store.record_act(act)
    }

    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        self.store.acts(most)
    }

    fn is_durable(&self) -> bool {
        self.store.is_durable()
    }
}
