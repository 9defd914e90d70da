//! What tasks of a conversation hold, so that it is never left in a state that only they could end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Conversation;
use crate::turn::TurnError;

/// A task that gives events to observers. It is counted until this is dropped, also if the task panics.
pub(in crate::conversation) struct ObservingGuard(pub(super) Arc<Conversation>);

impl Drop for ObservingGuard {
    fn drop(&mut self) {
        self.0.observing.fetch_sub(1, Ordering::Release);
        self.0.observed.notify_waiters();
    }
}

impl Conversation {
    /// Whether a driver works on it.
    pub(in crate::conversation) fn is_driven(&self) -> bool {
        self.lock().is_driving()
    }
}

/// Held by the driver. A driver that panics or is dropped leaves the conversation to the next one; the log stands.
pub(crate) struct DriverGuard {
    pub(crate) conversation: Arc<Conversation>,
    /// Whether the driver has dismissed itself.
    pub(super) at_rest: bool,
}

impl DriverGuard {
    /// The driver has dismissed itself.
    pub(crate) fn at_rest(mut self) {
        self.at_rest = true;
    }
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        if self.at_rest {
            return;
        }
        let left = self.conversation.lock().rest(None);
        drop(left);
        self.conversation.turn_started.notify_waiters();
        self.conversation.waiters.tell_all(&TurnError::Gone);
    }
}
