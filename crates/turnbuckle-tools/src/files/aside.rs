//! Blocking work beside the async threads, on a leash: work nobody waits for any more stops where it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{JoinError, spawn_blocking};

use super::refusal::Refusal;

/// Tells blocking work whether anybody still waits for it.
pub(super) struct Leash(Arc<AtomicBool>);

impl Leash {
    /// Refuses to go on for nobody. Asked between files, and last before a change becomes visible: a cancelled call
    /// that has not changed anything yet changes nothing any more.
    pub(super) fn held(&self) -> Result<(), Refusal> {
        if self.0.load(Ordering::Acquire) { Err(Refusal::Abandoned) } else { Ok(()) }
    }
}

struct Holder(Arc<AtomicBool>);

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `work` where it may block. Dropping the future lets go of the leash.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce(&Leash) -> T + Send + 'static) -> Result<T, JoinError> {
    let dropped = Arc::new(AtomicBool::new(false));
    let leash = Leash(dropped.clone());
    let _holder = Holder(dropped);
    spawn_blocking(move || work(&leash)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_nobody_waits_for_is_told() {
        let dropped = Arc::new(AtomicBool::new(false));
        let leash = Leash(dropped.clone());
        assert!(leash.held().is_ok());
        drop(Holder(dropped));
        assert!(matches!(leash.held(), Err(Refusal::Abandoned)));
    }
}
