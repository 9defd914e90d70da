//! What one lossless viewer has not read yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::FeedEvent;

/// How far a lossless viewer may be behind before the turn waits for it.
const ROOM: usize = 1024;
/// A viewer further behind than this is cut off: one poll of a model may push many chunks, not this many.
const END: usize = 1 << 20;

/// What a lossless viewer has not read yet.
#[derive(Default)]
pub(crate) struct Queue {
    told: Mutex<(VecDeque<Arc<FeedEvent>>, bool)>,
    /// Woken when something was told or the queue was closed.
    filled: Notify,
    /// Woken when something was read.
    drained: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Arc<FeedEvent>>, bool)> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False once nobody reads any more.
    pub(super) fn push(&self, told: &Arc<FeedEvent>) -> bool {
        let mut state = self.lock();
        if state.0.len() >= END {
            state.1 = true;
        }
        if !state.1 {
            state.0.push_back(told.clone());
        }
        let open = !state.1;
        drop(state);
        self.filled.notify_one();
        open
    }

    pub(super) fn len(&self) -> usize {
        self.lock().0.len()
    }

    /// Whether the turn should wait for its viewer.
    pub(super) fn is_behind(&self) -> bool {
        self.len() > ROOM
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().1
    }

    pub(crate) fn close(&self) {
        self.lock().1 = true;
        self.filled.notify_one();
        self.drained.notify_one();
    }

    pub(super) fn has_caught_up(&self) -> bool {
        self.is_closed() || self.len() <= ROOM / 2
    }

    /// Ready when the viewer has caught up half-way, or is gone.
    pub(crate) async fn caught_up(&self) {
        while !self.has_caught_up() {
            self.drained.notified().await;
        }
    }
}

/// The reading end; dropping it ends the subscription.
pub(super) struct QueueReader(Arc<Queue>);

impl Drop for QueueReader {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl QueueReader {
    pub(super) fn of(queue: Arc<Queue>) -> Self {
        Self(queue)
    }

    pub(super) fn try_next(&mut self) -> Option<Arc<FeedEvent>> {
        let told = self.0.lock().0.pop_front()?;
        self.0.drained.notify_one();
        Some(told)
    }

    pub(super) async fn next(&mut self) -> Option<Arc<FeedEvent>> {
        loop {
            {
                let mut state = self.0.lock();
                if let Some(told) = state.0.pop_front() {
                    drop(state);
                    self.0.drained.notify_one();
                    return Some(told);
                }
                if state.1 {
                    return None;
                }
            }
            self.0.filled.notified().await;
        }
    }
}
