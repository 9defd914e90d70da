//! `on_event` hooks: lossless viewers of the feed, called by one task beside the turn.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::runtime::Runtime;
use super::shared::Conversation;
use crate::BoxError;
use crate::clock::Clock;
use crate::feed::{Cursor, LiveEvent, Queue, Subscription};
use crate::hook::call::contained;
use crate::hook::{Decision, HookEntry, HookFailure, OnFailure, Point, Record};
use crate::id::TurnId;
use crate::turn::{AbortCause, AbortToken, TurnContext};

/// The observers of a conversation at work. As long as this is held, one task gives them every event, in order.
pub(crate) struct Observers {
    queue: Arc<Queue>,
    /// How far all observers have come.
    seen: watch::Sender<Cursor>,
    /// The turn that a failure can stop.
    turn: Mutex<Option<(TurnId, AbortToken)>>,
}

impl Observers {
    /// The observers of this conversation; they are started if they are not at work. `None` if the agent has none.
    pub(super) fn of(conversation: &Arc<Conversation>, runtime: &Arc<Runtime>) -> Option<Arc<Self>> {
        if conversation.agent.hooks_at(Point::OnEvent).is_empty() {
            return None;
        }
        let start = || {
            let (events, queue) = conversation.feed.follow();
            let (seen, turn) = (watch::Sender::new(Cursor::default()), Mutex::default());
            let observers = Arc::new(Self { queue, seen, turn });
            let task = ObserverTask {
                conversation: conversation.clone(),
                clock: runtime.services.clock.clone(),
                observers: Arc::downgrade(&observers),
                reported: Vec::new(),
            };
            let guards = (runtime.begin_task(), conversation.begin_observing());
            tokio::spawn(async move {
                task.run(events).await;
                drop(guards);
            });
            observers
        };
        Some(conversation.observers_or(start))
    }

    /// From now on a failure that blocks stops this turn.
    pub(super) fn follow(&self, ctx: &TurnContext) {
        *self.turn() = Some((ctx.id.clone(), ctx.abort.clone()));
    }

    /// Ready when the observers have seen everything up to here, or see nothing more.
    pub(crate) async fn caught_up(&self, cursor: Cursor) {
        // It cannot fail, because this holds the sender.
        drop(self.seen.subscribe().wait_for(|seen| *seen >= cursor).await);
    }

    fn turn(&self) -> MutexGuard<'_, Option<(TurnId, AbortToken)>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Observers {
    /// What is in the queue is still given to the observers.
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct ObserverTask {
    conversation: Arc<Conversation>,
    clock: Arc<dyn Clock>,
    observers: Weak<Observers>,
    /// Which observer's failure was published last for which turn. Only the first failure of an observer in a turn is
    /// published: the event about it is itself given to the observers, and would fail again, without end.
    reported: Vec<(usize, Option<TurnId>)>,
}

impl ObserverTask {
    async fn run(mut self, mut events: Subscription) {
        let agent = self.conversation.agent.clone();
        let hooks = agent.hooks_at(Point::OnEvent);
        let mut turn = None;
        while let Some(event) = events.next().await {
            turn.clone_from(&event.turn);
            for (index, entry) in hooks.iter().enumerate() {
                let Some(hook) = entry.hook() else { continue };
                let began = self.clock.coarse();
                if let Err(failure) = within_time(&*self.clock, entry, hook.on_event(&event)).await {
                    self.failed(index, entry, turn.as_ref(), self.clock.coarse().saturating_sub(began), &failure);
                }
            }
            self.has_seen(event.cursor);
        }
        // If someone still wants the observers, they were too slow and the feed has cut them off.
        if self.observers.strong_count() > 0 {
            for (index, entry) in hooks.iter().enumerate() {
                let failure = HookFailure::from(BoxError::from("the observers were too slow and miss events"));
                self.failed(index, entry, turn.as_ref(), Duration::ZERO, &failure);
            }
        }
        self.has_seen(Cursor { epoch: u64::MAX, position: u64::MAX });
    }

    fn has_seen(&self, cursor: Cursor) {
        if let Some(observers) = self.observers.upgrade() {
            observers.seen.send_replace(cursor);
        }
    }

    fn failed(
        &mut self,
        index: usize,
        entry: &HookEntry,
        turn: Option<&TurnId>,
        took: Duration,
        failure: &HookFailure,
    ) {
        if entry.failure_policy(Point::OnEvent) == OnFailure::Block
            && let Some(observers) = self.observers.upgrade()
            && let Some((_, abort)) = observers.turn().as_ref().filter(|(running, _)| Some(running) == turn)
        {
            let reason = format!("hook {} failed at {}: {failure}", entry.name, Point::OnEvent).into();
            abort.abort(AbortCause::ObserverFailed { hook: entry.name.clone(), reason });
        }
        match self.reported.iter_mut().find(|(reported, _)| *reported == index) {
            Some((_, reported)) if reported.as_ref() == turn => return,
            Some((_, reported)) => *reported = turn.cloned(),
            None => self.reported.push((index, turn.cloned())),
        }
        let record = Record::new(Point::OnEvent, entry.name.clone(), Decision::Failed, took);
        let record = Record { failure: Some(failure.to_string().into()), ..record };
        self.conversation.feed.publish_live(turn, LiveEvent::hook_finished(&record));
    }
}

/// Runs an observer within its time limit, with panics contained.
async fn within_time(
    clock: &dyn Clock,
    entry: &HookEntry,
    future: impl Future<Output = Result<(), BoxError>>,
) -> Result<(), HookFailure> {
    let mut future = pin!(future);
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
