//! What one lossless viewer has not read yet.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use super::FeedEvent;

/// How far a lossless viewer may be behind before the turn waits for it.
const MAX_BEHIND: usize = 1024;
/// A viewer further behind than this is cut off: one poll of a model may push many chunks, but not this many.
const CUT_OFF: usize = 1 << 20;

/// What a lossless viewer has not read yet.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Wakes the reader when an event was pushed or the queue was closed. There is one reader.
    filled: AtomicWaker,
    /// Notified when an event was read, for a turn that waits.
    drained: Notify,
}

#[derive(Default)]
struct State {
    events: VecDeque<FeedEvent>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False once nobody reads any more.
    pub(super) fn push(&self, event: &FeedEvent) -> bool {
        let mut state = self.lock();
        state.closed |= state.events.len() >= CUT_OFF;
        let open = !state.closed;
        if open {
            state.events.push_back(event.clone());
        }
        drop(state);
        self.filled.wake();
        open
    }

    pub(super) fn len(&self) -> usize {
        self.lock().events.len()
    }

    /// Whether the turn should wait for the viewer.
    pub(super) fn is_behind(&self) -> bool {
        self.len() > MAX_BEHIND
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Nothing more is pushed. What is in the queue can still be read.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.wake();
        self.drained.notify_one();
    }

    pub(super) fn has_caught_up(&self) -> bool {
        self.is_closed() || self.len() <= MAX_BEHIND / 2
    }

    /// Ready when the viewer has read half of what it may be behind, or is gone.
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

    pub(super) fn try_next(&mut self) -> Option<FeedEvent> {
        let event = self.0.lock().events.pop_front()?;
        self.0.drained.notify_one();
        Some(event)
    }

    /// The next event; `None` when the queue was closed and everything was read.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<FeedEvent>> {
        // Registered before the look, so that an event pushed in between wakes this task.
        self.0.filled.register(cx.waker());
        let mut state = self.0.lock();
        if let Some(event) = state.events.pop_front() {
            drop(state);
            self.0.drained.notify_one();
            return Poll::Ready(Some(event));
        }
        if state.closed { Poll::Ready(None) } else { Poll::Pending }
    }
}
