//! What this process shows of a conversation, and to whom.

use std::sync::Arc;

use super::{Cell, Seat};
use crate::conversation::Runtime;
use crate::conversation::observers::Watching;
use crate::event::Event;
use crate::store::StoreError;

impl Cell {
    /// Brings the view up to what is stored, unless a driver does.
    pub(crate) async fn show_log(&self, runtime: &Runtime) -> Result<(), StoreError> {
        if matches!(self.lock().seat, Seat::Driving) {
            return Ok(());
        }
        let shown = self.is_shown().then(|| self.feed.last_seq());
        let log = match shown {
            Some(last) => runtime.store.log(&self.id, last + 1, usize::MAX).await?,
            None => runtime.store.tail(&self.id, u64::MAX, self.agent.room()).await?,
        };
        // In one step with the look at the seat: a driver that takes it shows more than this.
        let mut inner = self.lock();
        match (&inner.seat, inner.shown) {
            (Seat::Driving, _) => {}
            (Seat::Resting(_), true) => self.feed.catch_up(&log),
            (Seat::Resting(_), false) => {
                inner.shown = true;
                self.feed.begin_epoch(0, Some(&log));
            }
        }
        Ok(())
    }

    pub(crate) fn show(&self, epoch: u64, log: &[Arc<Event>]) {
        self.lock().shown = true;
        self.feed.begin_epoch(epoch, Some(log));
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.lock().shown
    }

    /// The one watch there is, or a new one.
    pub(in crate::conversation) fn watch(&self, make: impl FnOnce() -> Arc<Watching>) -> Arc<Watching> {
        let mut inner = self.lock();
        if let Some(watching) = inner.watching.upgrade() {
            return watching;
        }
        let watching = make();
        inner.watching = Arc::downgrade(&watching);
        watching
    }

    /// Ready when every observer has seen what was told so far.
    pub(crate) async fn observed(&self) {
        let watching = self.lock().watching.upgrade();
        if let Some(watching) = watching {
            watching.has_seen(self.feed.cursor()).await;
        }
    }

    /// True once.
    pub(crate) fn meets_first_turn(&self) -> bool {
        !std::mem::replace(&mut self.lock().met, true)
    }
}
