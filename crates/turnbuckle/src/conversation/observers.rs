//! `on_event` hooks: lossless viewers that are driven beside the turn.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::House;
use super::cell::Cell;
use crate::Failure;
use crate::agent::Agent;
use crate::clock::{Boxed, Clock};
use crate::hook::run::contained;
use crate::hook::{HookEntry, HookFailure};
use crate::live::{Queue, Subscription};

/// While anybody holds it, the conversation's observers are given every event, in order, by one task. They are not told
/// of: that would have no end.
pub(super) struct Watching(Arc<Queue>);

impl Watching {
    /// Joins those who watch already. `None` if the agent has no observers.
    pub(super) fn of(cell: &Arc<Cell>, house: &Arc<House>) -> Option<Arc<Self>> {
        if cell.agent.chains().on_event.is_empty() {
            return None;
        }
        cell.watch(|| {
            let (tail, queue) = cell.plane.subscribe_lossless();
            let (agent, clock) = (cell.agent.clone(), house.clock.clone());
            let aside = house.clone();
            aside.aside.send_modify(|count| *count += 1);
            tokio::spawn(async move {
                pump(agent, clock, tail).await;
                aside.aside.send_modify(|count| *count -= 1);
            });
            Arc::new(Self(queue))
        })
        .into()
    }
}

impl Drop for Watching {
    /// What is in the queue is still given out.
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn pump(agent: Agent, clock: Arc<dyn Clock>, mut tail: Subscription) {
    while let Some(told) = tail.next().await {
        for entry in &agent.chains().on_event {
            let Some(hook) = entry.hook() else { continue };
            // An observer's failure is its own: it is recorded nowhere but in the hook itself.
            let _ = within(clock.as_ref(), entry, hook.on_event(&told)).await;
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
