//! A memory store that passes for a durable one, and that somebody may meddle with: it delays writes, or refuses them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use turnbuckle::clock::Timestamp;
use turnbuckle::event::Event;
use turnbuckle::hook::Record;
use turnbuckle::message::Text;
use turnbuckle::scope::{Actor, Author};
use turnbuckle::store::{
    Act, AuditLimits, AuditWrite, AuditedCall, Batch, CacheBreak, Calibration, Claim, ConversationSummary, Cut,
    Deletion, Hold, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector, KeyedMessage, PurgeLimits,
    Purged, Scratch, SentRequest, StandingApproval, Store, StoreError, StoreFuture, Summary, Tombstone,
};
use turnbuckle::stores::MemoryStore;
use turnbuckle::{CallId, ConversationId as Id, TurnId};

/// What happens to a write.
pub enum Meddling {
    Nothing,
    /// It is written so many polls later.
    Delay(usize),
    /// It is not written.
    Fail,
    /// Another process stores this first.
    Deliver(InboxItem),
}

type Meddle = dyn Fn(&Batch<'_>) -> Meddling + Send + Sync;

/// What takes its time.
#[derive(Clone, Copy, PartialEq)]
enum Slow {
    Nothing,
    Deliver,
    Claim,
}

#[derive(Clone)]
pub struct Meddled {
    store: MemoryStore,
    meddle: Arc<Meddle>,
    slow: Slow,
    read: Arc<AtomicUsize>,
    /// Nobody's owner can be read.
    broken: Arc<AtomicBool>,
    /// No letter is taken.
    closed: Arc<AtomicBool>,
}

impl Meddled {
    /// Several houses may share it, as processes share a file.
    pub fn shared() -> Self {
        Self::with(|_| Meddling::Nothing)
    }

    pub fn slow_deliver() -> Self {
        Self::shared().slow_to_deliver()
    }

    pub fn slow_to_deliver(self) -> Self {
        Self { slow: Slow::Deliver, ..self }
    }

    /// The same store, for a process whose claims take their time.
    pub fn slow_to_claim(&self) -> Self {
        Self { slow: Slow::Claim, ..self.clone() }
    }

    /// From now on the store fails to say whose a conversation is.
    pub fn break_down(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// From now on nothing gets into an inbox.
    pub fn refuse_mail(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub fn with(meddle: impl Fn(&Batch<'_>) -> Meddling + Send + Sync + 'static) -> Self {
        let (store, meddle) = (MemoryStore::default(), Arc::new(meddle));
        Self {
            store,
            meddle,
            slow: Slow::Nothing,
            read: Arc::default(),
            broken: Arc::default(),
            closed: Arc::default(),
        }
    }

    /// How many events were read backwards, and how many letters, since this was asked last.
    pub fn were_read(&self) -> usize {
        self.read.swap(0, Ordering::Relaxed)
    }

    fn counted<'a, T: Send>(&'a self, read: StoreFuture<'a, Vec<T>>) -> StoreFuture<'a, Vec<T>> {
        let StoreFuture::Now(read) = read else { return read };
        let read = read.into_inner();
        self.read.fetch_add(read.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
        StoreFuture::now(read)
    }
}

fn hiccup() -> StoreError {
    StoreError::failed("testing", "disk hiccup")
}

impl Store for Meddled {
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        match (self.meddle)(&batch) {
            Meddling::Nothing => self.store.append(batch),
            Meddling::Fail => StoreFuture::now(Err(hiccup())),
            Meddling::Deliver(item) => StoreFuture::later(async move {
                self.store.deliver(batch.conversation, item).await?;
                self.store.append(batch).await
            }),
            Meddling::Delay(polls) => StoreFuture::later(async move {
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
                self.store.append(batch).await
            }),
        }
    }
    fn open<'a>(&'a self, id: &'a Id, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        self.store.open(id, owner, now)
    }
    fn owner<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Option<Actor>> {
        if self.broken.load(Ordering::Relaxed) {
            return StoreFuture::now(Err(hiccup()));
        }
        self.store.owner(id)
    }
    fn deliver<'a>(&'a self, id: &'a Id, message: InboxItem) -> StoreFuture<'a, ()> {
        if self.closed.load(Ordering::Relaxed) {
            return StoreFuture::now(Err(hiccup()));
        }
        if self.slow != Slow::Deliver {
            return self.store.deliver(id, message);
        }
        StoreFuture::later(async move {
            self.store.deliver(id, message).await?;
            for _ in 0..60 {
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }
    fn claim<'a>(&'a self, id: &'a Id, writer: &'a Arc<str>, now: Timestamp) -> StoreFuture<'a, Claim> {
        if self.slow != Slow::Claim {
            return self.store.claim(id, writer, now);
        }
        StoreFuture::later(async move {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            self.store.claim(id, writer, now).await
        })
    }
    fn renew<'a>(&'a self, id: &'a Id, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        self.store.renew(id, epoch, now)
    }
    fn log<'a>(&'a self, id: &'a Id, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.store.log(id, from, most)
    }
    fn tail<'a>(&'a self, id: &'a Id, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.counted(self.store.tail(id, before, tokens))
    }
    fn has_call<'a>(&'a self, id: &'a Id, call: &'a CallId) -> StoreFuture<'a, bool> {
        self.store.has_call(id, call)
    }
    fn inbox<'a>(&'a self, id: &'a Id, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        self.counted(self.store.inbox(id, which))
    }
    fn take_job<'a>(
        &'a self,
        id: &'a Id,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        self.store.take_job(id, hooks, lease)
    }
    fn due<'a>(&'a self, now: Timestamp, after: Option<&'a Id>, most: usize) -> StoreFuture<'a, Vec<Id>> {
        self.store.due(now, after, most)
    }
    fn scratch<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Option<Scratch>> {
        self.store.scratch(id)
    }
    fn records<'a>(&'a self, id: &'a Id, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        self.store.records(id, turn)
    }
    fn cuts<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Vec<Cut>> {
        self.store.cuts(id)
    }
    fn sent<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        self.store.sent(id)
    }
    fn cache_breaks<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Vec<CacheBreak>> {
        self.store.cache_breaks(id)
    }
    fn audited_calls<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Vec<AuditedCall>> {
        self.store.audited_calls(id)
    }
    fn audit_contents<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, HashMap<Text, Text>> {
        self.store.audit_contents(id)
    }
    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        self.store.expire_audit(limits, now)
    }
    fn add_audited<'a>(&'a self, id: &'a Id, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        self.store.add_audited(id, audit)
    }
    fn summaries<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        self.store.summaries(id)
    }
    fn add_summary<'a>(&'a self, id: &'a Id, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        self.store.add_summary(id, summary, job)
    }
    fn keyed_message<'a>(
        &'a self,
        id: &'a Id,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>> {
        self.store.keyed_message(id, user, key, now)
    }
    fn title<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Option<Text>> {
        self.store.title(id)
    }
    fn set_title<'a>(&'a self, id: &'a Id, title: &'a Text) -> StoreFuture<'a, ()> {
        self.store.set_title(id, title)
    }
    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        self.store.calibrations()
    }
    fn jobs<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Vec<Job>> {
        self.store.jobs(id)
    }
    fn settle_job<'a>(&'a self, id: &'a Id, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        self.store.settle_job(id, job, done)
    }
    fn sub_agents_with_jobs<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Vec<Id>> {
        self.store.sub_agents_with_jobs(id)
    }
    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        self.store.list()
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
    fn tombstone<'a>(&'a self, id: &'a Id) -> StoreFuture<'a, Option<Tombstone>> {
        self.store.tombstone(id)
    }
    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        self.store.unfinished_deletions()
    }
    fn note_erased<'a>(&'a self, id: &'a Id, name: &'a str) -> StoreFuture<'a, ()> {
        self.store.note_erased(id, name)
    }
    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged> {
        self.store.purge(limits)
    }
    fn place_hold<'a>(&'a self, id: &'a Id, hold: &'a Hold) -> StoreFuture<'a, bool> {
        self.store.place_hold(id, hold)
    }
    fn lift_hold<'a>(&'a self, id: &'a Id, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        self.store.lift_hold(id, by, now)
    }
    fn unused_since<'a>(&'a self, before: Timestamp, after: Option<&'a Id>, most: usize) -> StoreFuture<'a, Vec<Id>> {
        self.store.unused_since(before, after, most)
    }
    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        self.store.record_act(act)
    }
    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        self.store.acts(most)
    }
    fn is_durable(&self) -> bool {
        true
    }
}
