//! A clock that moves only when told to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::BoxFuture;
use crate::clock::{Clock, Timestamp};

/// Time stands still until [`advance`](Self::advance). Clones are the same clock.
#[derive(Clone, Default)]
pub struct PausedClock {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    now: Duration,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

/// When a paused clock starts: 2026-01-31T12:00:00Z.
const START_MS: u64 = 1_769_860_800_000;

impl PausedClock {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves time on and wakes those whose time has come.
    pub fn advance(&self, by: Duration) {
        let mut inner = self.lock();
        inner.now += by;
        let now = inner.now;
        let all = std::mem::take(&mut inner.sleepers);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, _)| *at <= now);
        inner.sleepers = later;
        drop(inner);
        for (_, sleeper) in due {
            // The sleeping future may have been dropped.
            let _ = sleeper.send(());
        }
    }

    /// How many sleep.
    pub fn sleepers(&self) -> usize {
        let mut inner = self.lock();
        inner.sleepers.retain(|(_, sleeper)| !sleeper.is_closed());
        inner.sleepers.len()
    }

    /// How long until the next sleeper wakes.
    pub fn next_wake(&self) -> Option<Duration> {
        let inner = self.lock();
        let open = inner.sleepers.iter().filter(|(_, sleeper)| !sleeper.is_closed());
        open.map(|(at, _)| at.saturating_sub(inner.now)).min()
    }

    /// Lets other tasks run until one sleeps for at most `within`, then moves time on by it. For one-thread runtimes.
    pub async fn pass(&self, within: Duration) {
        for _ in 0..10_000 {
            let due = self.lock().now + within;
            if self.lock().sleepers.iter().any(|(at, sleeper)| *at <= due && !sleeper.is_closed()) {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.advance(within);
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(START_MS).after(self.lock().now)
    }

    fn elapsed(&self) -> Duration {
        self.lock().now
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.lock();
        let at = inner.now + wait;
        if wait.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        inner.sleepers.push((at, sender));
        Box::pin(async move {
            if receiver.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

impl std::fmt::Debug for PausedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PausedClock").field("now", &self.lock().now).finish_non_exhaustive()
    }
}
