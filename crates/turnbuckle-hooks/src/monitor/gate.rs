//! A limit of concurrent calls that may change while calls wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use turnbuckle::clock::Clock;

use crate::time;

pub(super) struct Gate {
    state: Mutex<State>,
    /// Notified when a call ends or the limit changes.
    changed: Notify,
}

struct State {
    limit: u32,
    running: u32,
}

impl Gate {
    pub(super) fn new(limit: u32) -> Self {
        Self { state: Mutex::new(State { limit, running: 0 }), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, limit: u32) {
        self.lock().limit = limit;
        self.changed.notify_waiters();
    }

    /// Waits for a permit; `None` if none was free within `max_wait`.
    pub(super) async fn enter(&self, clock: &dyn Clock, max_wait: Duration) -> Option<Permit<'_>> {
        let wait = async {
            loop {
                // Created before the check, so that a call that ends in between is not missed.
                let changed = self.changed.notified();
                if let Some(permit) = self.try_enter() {
                    return permit;
                }
                changed.await;
            }
        };
        time::within(clock, max_wait, wait).await
    }

    fn try_enter(&self) -> Option<Permit<'_>> {
        let mut state = self.lock();
        if state.running >= state.limit {
            return None;
        }
        state.running += 1;
        Some(Permit(self))
    }
}

/// Held while a call runs.
pub(super) struct Permit<'a>(&'a Gate);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.changed.notify_waiters();
    }
}
