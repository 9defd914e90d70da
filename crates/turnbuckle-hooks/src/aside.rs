//! A thread with a bounded queue before it: for observers that must never hold up a turn.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

type Work<T> = dyn Fn(&Inbox<T>) + Send + Sync;

/// Takes things at once and has them worked on aside. The thread starts with the first thing.
pub(crate) struct Aside<T> {
    name: &'static str,
    room: usize,
    /// How long the end of the hook waits for what is in the queue.
    linger: Duration,
    work: Arc<Work<T>>,
    lost: Arc<AtomicU64>,
    desk: OnceLock<Option<Desk<T>>>,
}

struct Desk<T> {
    queue: Option<SyncSender<T>>,
    done: Mutex<Receiver<()>>,
}

/// What the thread reads from.
pub(crate) struct Inbox<T> {
    queue: Receiver<T>,
    lost: Arc<AtomicU64>,
}

impl<T: Send + 'static> Aside<T> {
    pub(crate) fn new(
        name: &'static str,
        room: usize,
        linger: Duration,
        work: impl Fn(&Inbox<T>) + Send + Sync + 'static,
    ) -> Self {
        Self { name, room, linger, work: Arc::new(work), lost: Arc::default(), desk: OnceLock::new() }
    }

    /// Never waits: what finds no room is lost, and counted. False then.
    pub(crate) fn give(&self, thing: T) -> bool {
        let desk = self.desk.get_or_init(|| self.open());
        let queue = desk.as_ref().and_then(|desk| desk.queue.as_ref());
        let taken = queue.is_some_and(|queue| queue.try_send(thing).is_ok());
        if !taken {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// How many were lost so far and are not accounted for.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn open(&self) -> Option<Desk<T>> {
        let (queue, things) = sync_channel(self.room);
        let (over, done) = sync_channel(1);
        let (work, lost) = (self.work.clone(), self.lost.clone());
        let run = move || {
            work(&Inbox { queue: things, lost });
            // Nobody may be left to hear it.
            let _ = over.send(());
        };
        std::thread::Builder::new().name(self.name.into()).spawn(run).ok()?;
        Some(Desk { queue: Some(queue), done: Mutex::new(done) })
    }
}

impl<T> Inbox<T> {
    /// The next thing; `None` when the hook is gone and the queue empty.
    pub(crate) fn next(&self) -> Option<T> {
        self.queue.recv().ok()
    }

    /// So many could not be worked on.
    pub(crate) fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// How many were lost since this was asked last.
    #[cfg(feature = "audit_log")]
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl<T> Drop for Aside<T> {
    /// What is in the queue is still worked on, for a while: a program that ends at once would lose its last words.
    fn drop(&mut self) {
        let Some(Some(desk)) = self.desk.get_mut() else { return };
        desk.queue = None;
        let done = desk.done.lock().unwrap_or_else(PoisonError::into_inner);
        // Timed out: what hangs is left to itself.
        let _ = done.recv_timeout(self.linger);
    }
}

impl<T> fmt::Debug for Aside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("name", &self.name).field("room", &self.room).finish_non_exhaustive()
    }
}
