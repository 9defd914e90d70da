//! Blocking work on a thread of its own, which a cancelled call stops at the next check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{JoinError, spawn_blocking};

use super::refusal::Refusal;

/// Tells blocking work whether its call was cancelled.
pub(super) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// For work that must come to its end: taking back what was half done.
    pub(super) fn never() -> Self {
        Self(Arc::default())
    }

    /// An error if the call was cancelled. Checked between files, and last before a change becomes visible: a cancelled call
    /// that has not changed anything yet changes nothing any more.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.0.load(Ordering::Acquire) { Err(Refusal::Cancelled) } else { Ok(()) }
    }
}

/// Sets the flag when the future that waits for the work is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `work` where it may block. Dropping the future cancels it.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce(&CancelFlag) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let flag = CancelFlag(cancelled.clone());
    let _cancel_on_drop = CancelOnDrop(cancelled);
    spawn_blocking(move || work(&flag)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_dropped_call_is_cancelled() {
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = CancelFlag(cancelled.clone());
        assert!(flag.check().is_ok());
        drop(CancelOnDrop(cancelled));
        assert!(matches!(flag.check(), Err(Refusal::Cancelled)));
    }
}
