//! Upkeep: taking up what nobody does, and letting go of what nobody needs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::command::Command;
use super::{Conversations, Runtime, outbox};
use crate::id::ConversationId;
use crate::store::StoreError;

/// How often [`Conversations::run_maintenance`] looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How many looks may fail in a row.
const PATIENCE: u32 = 12;
/// How many conversations one look takes up at most.
const AT_ONCE: usize = 64;

impl Conversations {
    /// Takes up what is due in the whole store and nobody does: turns that a crash left, letters, questions that lapsed,
    /// jobs. Returns how many conversations it found; the work goes on beside the caller. At most 64 at once: the next
    /// look goes on behind them, so that those that stay due whatever is done keep nobody else waiting.
    pub async fn recover_due(&self) -> Result<usize, StoreError> {
        let (now, last) = (self.runtime.clock.now(), self.runtime.looked_at());
        let mut due = self.runtime.store.due(now, last.as_ref(), AT_ONCE).await?;
        if let (Some(last), true) = (&last, due.len() < AT_ONCE) {
            let from_the_start = self.runtime.store.due(now, None, AT_ONCE - due.len()).await?;
            due.extend(from_the_start.into_iter().take_while(|id| id <= last));
        }
        self.runtime.look_on_behind(due.last().filter(|_| due.len() == AT_ONCE));
        for id in &due {
            let cell = self.cell(id);
            if !self.runtime.bare {
                outbox::take_up_jobs(cell.clone(), self.runtime.clone());
            }
            cell.command(&self.runtime, Command::Wake);
        }
        Ok(due.len())
    }

    /// Does [`recover_due`](Self::take_up_due) again and again, until it is dropped or the store has failed for a minute.
    /// Programs that stay run it in a task of its own.
    pub async fn run_maintenance(&self) -> StoreError {
        let mut failures = 0;
        loop {
            match self.recover_due().await {
                Ok(_) => failures = 0,
                Err(error) if failures >= PATIENCE => return error,
                Err(_) => failures += 1,
            }
            self.runtime.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// How many conversations this process has in memory, at rest or not.
    pub fn resident_count(&self) -> usize {
        self.runtime.cells.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits for background hooks, at most this long. What is left stays in the outbox.
    pub async fn drain(&self, most: Duration) {
        let mut aside = self.runtime.aside.subscribe();
        let idle = aside.wait_for(|count| *count == 0);
        tokio::select! {
            biased;
            _ = idle => {}
            () = self.runtime.clock.sleep(most) => {}
        }
    }
}

/// Work beside the turns, until it is done, or panics, or its task is dropped.
pub(crate) struct Aside(Arc<Runtime>);

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.aside.send_modify(|count| *count -= 1);
    }
}

impl Runtime {
    /// The last conversation of the look before, if there may be more behind it.
    fn looked_at(&self) -> Option<ConversationId> {
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look_on_behind(&self, last: Option<&ConversationId>) {
        *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = last.cloned();
    }

    /// Work begins that [`Conversations::drain`] waits for.
    pub(crate) fn begin_aside(self: &Arc<Self>) -> Aside {
        self.aside.send_modify(|count| *count += 1);
        Aside(self.clone())
    }

    /// Lets go of conversations at rest when there are too many, those first that have rested longest. The store has
    /// them.
    pub(crate) fn evict(&self) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if cells.len() <= self.max_idle {
            return;
        }
        let patience = self.patience.load(Ordering::Relaxed);
        if patience > 0 {
            return self.patience.store(patience - 1, Ordering::Relaxed);
        }
        let keeps_scopes = !self.has_scope_source;
        // In steps: a look at all of them for each one that goes would cost more than it saves.
        let superfluous = cells.len() - self.max_idle / 4 * 3;
        let evictable = cells.iter().filter(|(_, cell)| cell.is_evictable(keeps_scopes));
        let mut resting: Vec<_> = evictable.map(|(id, cell)| (cell.rested_at(), id.clone())).collect();
        resting.sort_unstable();
        for (_, id) in resting.into_iter().take(superfluous) {
            cells.remove(&id);
        }
        if cells.len() > self.max_idle {
            // The others are at work, watched or waiting. A look at all of them whenever a turn ends would be the most that
            // such a house does.
            self.patience.store(cells.len() / 4, Ordering::Relaxed);
        }
    }
}
