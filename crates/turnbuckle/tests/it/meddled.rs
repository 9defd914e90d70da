//! A memory store that passes for a durable one, and that somebody may meddle with: it delays writes, or refuses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use turnbuckle::clock::Timestamp;
use turnbuckle::event::Event;
use turnbuckle::hook::Record;
use turnbuckle::scope::Actor;
use turnbuckle::store::{Batch, Claim, Hold, Job, JobDone, JobHook, Letter, Listed, Mail, Store, StoreError, Stored};
use turnbuckle::stores::MemoryStore;
use turnbuckle::{CallId, ConversationId as Id, TurnId};

/// What happens to a write.
pub enum Meddling {
    Nothing,
    /// It is written so many polls later.
    Delay(usize),
    /// It is not written.
    Fail,
}

type Meddle = dyn Fn(&Batch<'_>) -> Meddling + Send + Sync;

#[derive(Clone)]
pub struct Meddled(MemoryStore, Arc<Meddle>, bool, Arc<AtomicUsize>);

impl Meddled {
    /// Several houses may share it, as processes share a file.
    pub fn shared() -> Self {
        Self::with(|_| Meddling::Nothing)
    }

    pub fn slow_deliver() -> Self {
        Self { 2: true, ..Self::shared() }
    }

    pub fn with(meddle: impl Fn(&Batch<'_>) -> Meddling + Send + Sync + 'static) -> Self {
        Self(MemoryStore::default(), Arc::new(meddle), false, Arc::default())
    }

    /// How many events were read backwards, and how many letters, since this was asked last.
    pub fn were_read(&self) -> usize {
        self.3.swap(0, Ordering::Relaxed)
    }

    fn counted<'a, T: Send>(&'a self, read: Stored<'a, Vec<T>>) -> Stored<'a, Vec<T>> {
        let Stored::Now(read) = read else { return read };
        let read = read.into_inner();
        self.3.fetch_add(read.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
        Stored::now(read)
    }
}

impl Store for Meddled {
    fn append<'a>(&'a self, batch: Batch<'a>) -> Stored<'a, ()> {
        match (self.1)(&batch) {
            Meddling::Nothing => self.0.append(batch),
            Meddling::Fail => {
                Stored::now(Err(StoreError::Failed { doing: "testing".into(), source: "disk hiccup".into() }))
            }
            Meddling::Delay(polls) => Stored::later(async move {
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
                self.0.append(batch).await
            }),
        }
    }
    fn open<'a>(&'a self, id: &'a Id, owner: &'a Actor, now: Timestamp) -> Stored<'a, Actor> {
        self.0.open(id, owner, now)
    }
    fn owner<'a>(&'a self, id: &'a Id) -> Stored<'a, Option<Actor>> {
        self.0.owner(id)
    }
    fn deliver<'a>(&'a self, id: &'a Id, message: Letter) -> Stored<'a, ()> {
        if !self.2 {
            return self.0.deliver(id, message);
        }
        Stored::later(async move {
            self.0.deliver(id, message).await?;
            for _ in 0..60 {
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }
    fn claim<'a>(&'a self, id: &'a Id, writer: &'a Arc<str>, now: Timestamp) -> Stored<'a, Claim> {
        self.0.claim(id, writer, now)
    }
    fn renew<'a>(&'a self, id: &'a Id, epoch: u64, now: Timestamp) -> Stored<'a, ()> {
        self.0.renew(id, epoch, now)
    }
    fn log<'a>(&'a self, id: &'a Id, from: u64, most: usize) -> Stored<'a, Vec<Arc<Event>>> {
        self.0.log(id, from, most)
    }
    fn tail<'a>(&'a self, id: &'a Id, before: u64, tokens: u64) -> Stored<'a, Vec<Arc<Event>>> {
        self.counted(self.0.tail(id, before, tokens))
    }
    fn has_call<'a>(&'a self, id: &'a Id, call: &'a CallId) -> Stored<'a, bool> {
        self.0.has_call(id, call)
    }
    fn letters<'a>(&'a self, id: &'a Id, which: Mail) -> Stored<'a, Vec<Letter>> {
        self.counted(self.0.letters(id, which))
    }
    fn take_job<'a>(&'a self, id: &'a Id, hooks: &'a [JobHook], hold: Hold<'a>) -> Stored<'a, Option<Job>> {
        self.0.take_job(id, hooks, hold)
    }
    fn due<'a>(&'a self, now: Timestamp, after: Option<&'a Id>, most: usize) -> Stored<'a, Vec<Id>> {
        self.0.due(now, after, most)
    }
    fn records<'a>(&'a self, id: &'a Id, turn: &'a TurnId) -> Stored<'a, Vec<Record>> {
        self.0.records(id, turn)
    }
    fn jobs<'a>(&'a self, id: &'a Id) -> Stored<'a, Vec<Job>> {
        self.0.jobs(id)
    }
    fn settle_job<'a>(&'a self, id: &'a Id, job: Job, done: JobDone) -> Stored<'a, ()> {
        self.0.settle_job(id, job, done)
    }
    fn list<'a>(&'a self) -> Stored<'a, Vec<Listed>> {
        self.0.list()
    }
    fn is_durable(&self) -> bool {
        true
    }
}
