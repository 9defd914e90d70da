//! A driver in the caller's own task: no task is made for a turn that somebody waits for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::cell::Driver;

/// Runs a driver while something else is waited for. Dropped before the driver is done, the rest becomes a task.
pub(super) struct Inline(Option<Driver>);

impl Inline {
    pub(super) fn of(driver: Option<Driver>) -> Self {
        Self(driver)
    }

    /// `wanted`, with the driver run beside it.
    pub(super) async fn until<F: Future>(&mut self, wanted: F) -> F::Output {
        let mut wanted = pin!(wanted);
        poll_fn(|cx| {
            if let Poll::Ready(output) = wanted.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            let Some(driver) = &mut self.0 else { return Poll::Pending };
            if driver.as_mut().poll(cx).is_ready() {
                self.0 = None;
            }
            wanted.as_mut().poll(cx)
        })
        .await
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        // Without a runtime nobody could go on: the seat is left, and the log stands.
        if let (Some(driver), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(driver);
        }
    }
}
