//! So many calls at once, a number that may change while they wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use turnbuckle::clock::Clock;

use crate::time;

pub(super) struct Gate {
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    limit: Option<u32>,
    inside: u32,
}

impl Gate {
    pub(super) fn new(limit: Option<u32>) -> Self {
        Self { state: Mutex::new(State { limit, inside: 0 }), freed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, limit: Option<u32>) {
        self.lock().limit = limit;
        self.freed.notify_waiters();
    }

    /// A place; nothing if none came free in time.
    pub(super) async fn enter(&self, clock: &dyn Clock, most: Duration) -> Option<Place<'_>> {
        let wait = async {
            loop {
                // Made before the look: whoever leaves in between is not missed.
                let freed = self.freed.notified();
                if let Some(place) = self.try_enter() {
                    return place;
                }
                freed.await;
            }
        };
        time::within(clock, most, wait).await
    }

    fn try_enter(&self) -> Option<Place<'_>> {
        let mut state = self.lock();
        if state.limit.is_some_and(|limit| state.inside >= limit) {
            return None;
        }
        state.inside += 1;
        Some(Place(self))
    }
}

/// Held while a call runs.
pub(super) struct Place<'a>(&'a Gate);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
        self.0.freed.notify_waiters();
    }
}
