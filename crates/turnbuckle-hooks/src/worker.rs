//! A worker thread with a bounded queue, for observers that must never hold up a turn.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

type Work<T> = dyn Fn(&WorkQueue<T>) + Send + Sync;

/// Queues items and processes them on a thread of its own. The thread starts with the first item.
pub(crate) struct Worker<T> {
    name: &'static str,
    capacity: usize,
    /// How long dropping the worker waits for the items that are still queued.
    drain_timeout: Duration,
    work: Arc<Work<T>>,
    lost: Arc<AtomicU64>,
    /// `None` inside if the thread could not be started.
    thread: OnceLock<Option<WorkerThread<T>>>,
}

struct WorkerThread<T> {
    /// Taken when the worker is dropped, which ends the thread once the queue is empty.
    queue: Option<SyncSender<T>>,
    /// Receives one message when the thread is about to end. `Receiver` is not `Sync`, hence the mutex.
    done: Mutex<Receiver<()>>,
}

/// The thread's end of the queue.
pub(crate) struct WorkQueue<T> {
    items: Receiver<T>,
    lost: Arc<AtomicU64>,
}

impl<T: Send + 'static> Worker<T> {
    pub(crate) fn new(
        name: &'static str,
        capacity: usize,
        drain_timeout: Duration,
        work: impl Fn(&WorkQueue<T>) + Send + Sync + 'static,
    ) -> Self {
        Self { name, capacity, drain_timeout, work: Arc::new(work), lost: Arc::default(), thread: OnceLock::new() }
    }

    /// Queues an item without waiting. Returns false if the queue is full or there is no thread: the item is then lost,
    /// and counted.
    pub(crate) fn push(&self, item: T) -> bool {
        let queued = self.offer(item);
        if !queued {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        queued
    }

    /// Like [`push`](Self::push), for items that the caller keeps: they are not counted as lost.
    pub(crate) fn offer(&self, item: T) -> bool {
        let thread = self.thread.get_or_init(|| self.start());
        let queue = thread.as_ref().and_then(|thread| thread.queue.as_ref());
        queue.is_some_and(|queue| queue.try_send(item).is_ok())
    }

    /// How many items were lost and not reported by [`WorkQueue::take_lost`] yet.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn start(&self) -> Option<WorkerThread<T>> {
        let (queue, items) = sync_channel(self.capacity);
        let (ended, done) = sync_channel(1);
        let (work, lost) = (self.work.clone(), self.lost.clone());
        let run = move || {
            work(&WorkQueue { items, lost });
            // Fails if the worker no longer waits, which is fine.
            let _ = ended.send(());
        };
        std::thread::Builder::new().name(self.name.into()).spawn(run).ok()?;
        Some(WorkerThread { queue: Some(queue), done: Mutex::new(done) })
    }
}

impl<T> WorkQueue<T> {
    /// Waits for the next item; `None` when the worker was dropped and the queue is empty.
    pub(crate) fn next(&self) -> Option<T> {
        self.items.recv().ok()
    }

    /// Counts items that could not be processed.
    pub(crate) fn count_lost(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// How many items were lost since the last call.
    #[cfg(feature = "audit_log")]
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl<T> Drop for Worker<T> {
    /// Waits for the queued items, up to the drain timeout: a program that ends right after a turn would otherwise lose
    /// the last ones.
    fn drop(&mut self) {
        let Some(Some(thread)) = self.thread.get_mut() else { return };
        thread.queue = None;
        let done = thread.done.lock().unwrap_or_else(PoisonError::into_inner);
        // On a timeout the thread is left to itself.
        let _ = done.recv_timeout(self.drain_timeout);
    }
}

impl<T> fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
