//! A memory store that passes for a durable one, with faults that a test chooses: it delays writes, or refuses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use turnbuckle::ConversationId as Id;
use turnbuckle::clock::Timestamp;
use turnbuckle::event::Event;
use turnbuckle::scope::Actor;
use turnbuckle::store::{Batch, Claim, InboxFilter, InboxItem, Store, StoreError, StoreFuture, StoreLayer};
use turnbuckle::stores::MemoryStore;

/// What happens to a write.
pub enum Fault {
    Nothing,
    /// It is written so many polls later.
    Delay(usize),
    /// It is not written.
    Fail,
    /// Another process stores this first.
    Deliver(InboxItem),
}

type FaultRule = dyn Fn(&Batch<'_>) -> Fault + Send + Sync;

/// What takes its time.
#[derive(Clone, Copy, PartialEq)]
enum Slow {
    Nothing,
    Deliver,
    Claim,
}

#[derive(Clone)]
pub struct FaultyStore {
    store: MemoryStore,
    fault: Arc<FaultRule>,
    slow: Slow,
    read: Arc<AtomicUsize>,
    /// Nobody's owner can be read.
    broken: Arc<AtomicBool>,
    /// Nothing is taken into an inbox.
    closed: Arc<AtomicBool>,
}

impl FaultyStore {
    /// Several `Conversations` may share it, as processes share a file.
    pub fn shared() -> Self {
        Self::with(|_| Fault::Nothing)
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
    pub fn refuse_deliveries(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub fn with(fault: impl Fn(&Batch<'_>) -> Fault + Send + Sync + 'static) -> Self {
        let (store, fault) = (MemoryStore::default(), Arc::new(fault));
        Self { store, fault, slow: Slow::Nothing, read: Arc::default(), broken: Arc::default(), closed: Arc::default() }
    }

    /// How many events were read backwards, and how many inbox items, since this was asked last.
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

impl StoreLayer for FaultyStore {
    type Inner = MemoryStore;
    fn inner(&self) -> &MemoryStore {
        &self.store
    }
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        match (self.fault)(&batch) {
            Fault::Nothing => self.store.append(batch),
            Fault::Fail => StoreFuture::now(Err(hiccup())),
            Fault::Deliver(item) => StoreFuture::later(async move {
                self.store.deliver(batch.conversation, item).await?;
                self.store.append(batch).await
            }),
            Fault::Delay(polls) => StoreFuture::later(async move {
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
                self.store.append(batch).await
            }),
        }
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
    fn tail<'a>(&'a self, id: &'a Id, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.counted(self.store.tail(id, before, tokens))
    }
    fn inbox<'a>(&'a self, id: &'a Id, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        self.counted(self.store.inbox(id, which))
    }
    fn is_durable(&self) -> bool {
        true
    }
}
