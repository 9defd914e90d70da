//! `on_event` hooks: lossless viewers that are driven beside the turn.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Failure;
use crate::clock::{Boxed, Clock};
use crate::hook::run::contained;
use crate::hook::{HookEntry, HookFailure};
use crate::live::{Queue, Subscription};
use crate::turn::Frame;

/// The observers of a stretch of work, each event given to them in order. They are not told of: that would have no end.
pub(super) struct Observers {
    pump: Boxed<'static, ()>,
    queue: Arc<Queue>,
    frame: Arc<Frame>,
}

impl Observers {
    /// `None` if the agent has none.
    pub(super) fn of(frame: &Arc<Frame>) -> Option<Self> {
        if frame.agent.chains().on_event.is_empty() {
            return None;
        }
        let (tail, queue) = frame.plane.subscribe_lossless();
        Some(Self { pump: Box::pin(pump(frame.clone(), tail)), queue, frame: frame.clone() })
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) {
        // The pump ends only with its subscription.
        let _ = self.pump.as_mut().poll(cx);
    }

    /// Does `work` with the observers beside it.
    pub(super) async fn beside<F: Future>(observers: &mut Option<Self>, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        poll_fn(|cx| {
            if let Some(observers) = observers {
                observers.poll(cx);
            }
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Gives them what is left, to a deadline, and ends.
    pub(super) async fn catch_up(self) {
        let Self { mut pump, queue, frame } = self;
        queue.close();
        tokio::select! {
            biased;
            () = &mut pump => {}
            () = frame.clock.sleep(super::pace::VIEWER_DEADLINE) => {}
        }
    }
}

async fn pump(frame: Arc<Frame>, mut tail: Subscription) {
    while let Some(told) = tail.next().await {
        for entry in &frame.agent.chains().on_event {
            let Some(hook) = entry.hook() else { continue };
            // An observer's failure is its own: it is recorded nowhere but in the hook itself.
            let _ = within(frame.clock.as_ref(), entry, hook.on_event(&told)).await;
        }
    }
}

/// Runs a hook that nobody is told of: panics contained, within its time.
pub(super) async fn within(
    clock: &dyn Clock,
    entry: &HookEntry,
    mut future: Boxed<'_, Result<(), Failure>>,
) -> Result<(), HookFailure> {
    let mut timer = None;
    poll_fn(|cx| {
        if let Poll::Ready(result) = contained(future.as_mut(), cx) {
            return Poll::Ready(result);
        }
        let timer = timer.get_or_insert_with(|| clock.sleep(entry.time_limit()));
        timer.as_mut().poll(cx).map(|()| Err(HookFailure::TimedOut(entry.time_limit())))
    })
    .await
}
