//! Runs a driver in the task of the caller who waits for its turn. What the driver still does after that, such as the last
//! look into a durable inbox, goes on in a task of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::BoxFuture;

/// Runs a driver while something else is waited for. If it is dropped before the driver is done, a new task runs the rest.
pub(super) struct Inline(Option<BoxFuture<'static, ()>>);

impl Inline {
    pub(super) fn new(driver: Option<BoxFuture<'static, ()>>) -> Self {
        Self(driver)
    }

    /// Waits for `wanted`, and runs the driver meanwhile.
    pub(super) async fn until<F: Future>(&mut self, wanted: F) -> F::Output {
        let mut wanted = pin!(wanted);
        poll_fn(|cx| {
            if let Poll::Ready(output) = wanted.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            // Taken out while it is polled: a driver that panics must not be run again when this is dropped.
            let Some(mut driver) = self.0.take() else { return Poll::Pending };
            if driver.as_mut().poll(cx).is_pending() {
                self.0 = Some(driver);
            }
            wanted.as_mut().poll(cx)
        })
        .await
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        // Without a tokio runtime nothing can go on: the driver is dropped, and the log stands.
        if let (Some(driver), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(driver);
        }
    }
}
