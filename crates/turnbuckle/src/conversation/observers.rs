//! `on_event` hooks: lossless viewers that are driven beside the turn.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::Runtime;
use super::cell::Cell;
use crate::BoxError;
use crate::BoxFuture;
use crate::clock::Clock;
use crate::feed::{Cursor, LiveEvent, Queue, Subscription};
use crate::hook::run::contained;
use crate::hook::{HookEntry, HookFailure, OnFailure, Point, Record};
use crate::id::TurnId;
use crate::turn::{AbortCause, AbortToken, TurnContext};

/// While anybody holds it, the conversation's observers are given every event, in order, by one task. Only their failures
/// are told, of each hook the first of a turn: whatever is told is given to them again, and that must have an end.
pub(crate) struct Watching {
    queue: Arc<Queue>,
    /// How far every observer has come.
    seen: watch::Sender<Cursor>,
    /// The turn that a failure can block.
    flying: Mutex<Option<(TurnId, AbortToken)>>,
}

impl Watching {
    /// Joins those who watch already. `None` if the agent has no observers.
    pub(super) fn of(cell: &Arc<Cell>, runtime: &Arc<Runtime>) -> Option<Arc<Self>> {
        if cell.agent.chains().on_event.is_empty() {
            return None;
        }
        cell.watch(|| {
            let (tail, queue) = cell.feed.subscribe_lossless();
            let (seen, flying) = (watch::Sender::new(Cursor::default()), Mutex::default());
            let watching = Arc::new(Self { queue, seen, flying });
            let (weak, cell, runtime) = (Arc::downgrade(&watching), cell.clone(), runtime.clone());
            let aside = runtime.begin_aside();
            tokio::spawn(async move {
                Pump { cell, clock: runtime.clock.clone(), watching: weak, told: Vec::new() }.run(tail).await;
                drop(aside);
            });
            watching
        })
        .into()
    }

    /// From now on a failure that blocks ends this turn.
    pub(super) fn follow(&self, ctx: &TurnContext) {
        *self.flying() = Some((ctx.id.clone(), ctx.abort.clone()));
    }

    /// Ready when the observers have seen all that was told up to here, or see nothing more.
    pub(crate) async fn has_seen(&self, cursor: Cursor) {
        // It cannot fail: this holds the sender.
        let _ = self.seen.subscribe().wait_for(|seen| *seen >= cursor).await;
    }

    fn flying(&self) -> MutexGuard<'_, Option<(TurnId, AbortToken)>> {
        self.flying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watching {
    /// What is in the queue is still given out.
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct Pump {
    cell: Arc<Cell>,
    clock: Arc<dyn Clock>,
    watching: Weak<Watching>,
    /// Whose failure was told, and in which turn.
    told: Vec<(usize, Option<TurnId>)>,
}

impl Pump {
    async fn run(mut self, mut tail: Subscription) {
        let agent = self.cell.agent.clone();
        let observers = &agent.chains().on_event;
        let mut turn = None;
        while let Some(told) = tail.next().await {
            turn.clone_from(&told.turn);
            for (nth, entry) in observers.iter().enumerate() {
                let Some(hook) = entry.hook() else { continue };
                let began = self.clock.coarse();
                if let Err(failure) = within(self.clock.as_ref(), entry, hook.on_event(&told)).await {
                    self.failed(nth, entry, turn.as_ref(), self.clock.coarse().saturating_sub(began), &failure);
                }
            }
            self.saw(told.cursor);
        }
        // Somebody still wants them to watch: they were too slow, and were cut off.
        if self.watching.strong_count() > 0 {
            for (nth, entry) in observers.iter().enumerate() {
                let failure = HookFailure::Error("the observers were too slow and miss events".into());
                self.failed(nth, entry, turn.as_ref(), Duration::ZERO, &failure);
            }
        }
        self.saw(Cursor { epoch: u64::MAX, position: u64::MAX });
    }

    fn saw(&self, cursor: Cursor) {
        if let Some(watching) = self.watching.upgrade() {
            watching.seen.send_replace(cursor);
        }
    }

    fn failed(&mut self, nth: usize, entry: &HookEntry, turn: Option<&TurnId>, took: Duration, failure: &HookFailure) {
        if entry.failure_policy(Point::OnEvent) == OnFailure::Block
            && let Some(watching) = self.watching.upgrade()
            && let Some((_, abort)) = watching.flying().as_ref().filter(|(flying, _)| Some(flying) == turn)
        {
            let why = format!("hook {} failed at {}: {failure}", entry.name, Point::OnEvent).into();
            abort.abort(AbortCause::Blocked { hook: entry.name.clone(), why });
        }
        match self.told.iter_mut().find(|(told, _)| *told == nth) {
            Some((_, told)) if told.as_ref() == turn => return,
            Some((_, told)) => *told = turn.cloned(),
            None => self.told.push((nth, turn.cloned())),
        }
        let record = Record {
            point: Point::OnEvent,
            hook: entry.name.clone(),
            decision: "failed".into(),
            took,
            tokens: 0,
            shed: 0,
            call: None,
            failure: Some(failure.to_string()),
        };
        self.cell.feed.publish_live(turn, LiveEvent::hook_finished(&record));
    }
}

/// Runs a hook that nobody is told of: panics contained, within its time.
async fn within(
    clock: &dyn Clock,
    entry: &HookEntry,
    mut future: BoxFuture<'_, Result<(), BoxError>>,
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
