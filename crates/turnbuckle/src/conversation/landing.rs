//! A turn that is over: whoever waits is told, and what it left to be done is done.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use super::driver::Sitting;
use super::outbox::{take_up_jobs, work_aside};
use super::outcome::{Ended, Rest};
use crate::context::layout::{self, Beyond};
use crate::hook::Snapshot;
use crate::id::TurnId;
use crate::store::{Batch, Job, JobKind, Lease, RENEW_EVERY, Standing, StoreError};
use crate::turn::{Aftermath, BackgroundDesk, Flight, Frame, Stage};

impl Sitting {
    /// Takes the state back. `on_ended` hooks see the end before whoever waits; background hooks begin.
    pub(super) async fn land(
        &mut self,
        flight: Box<Flight>,
        done: Result<Stage, StoreError>,
    ) -> Result<(), StoreError> {
        let Flight { turn, state, beside, ended, released, jobs, taking, .. } = *flight;
        done?;
        // Letters that came to nothing, in a turn that wrote nothing behind them.
        self.read.extend(taking);
        if released {
            self.epoch = None;
        }
        self.state = Some(state);
        let Some(ended) = ended else {
            self.beside = Some(beside);
            return Ok(());
        };
        let (frame, reply) = (turn.frame, turn.seen.assistant_message.clone());
        let (conversation, agent) = (frame.conversation.clone(), frame.agent.shared_name().clone());
        let ended = Ended::new(conversation, frame.id.clone(), agent, frame.mode, ended, reply);
        let chains = frame.agent.chains();
        if chains.on_ended.is_empty() && chains.background.is_empty() {
            self.tell_ended(&frame.id, ended);
            return Ok(());
        }
        Box::pin(self.finish(frame, ended, jobs)).await
    }

    async fn finish(&mut self, frame: Arc<Frame>, ended: Ended, jobs: Vec<Job>) -> Result<(), StoreError> {
        let messages = self.state.as_ref().map(|state| layout::messages(&state.history, &Beyond::default()));
        let snapshot = snapshot(&frame, &ended, messages.unwrap_or_default());
        let after = Aftermath { frame, ended, snapshot };
        let (observers, aside): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.kind == JobKind::Ended);
        let told = self.renewing(after.attempt(observers)).await;
        let released = match (self.epoch.take(), &self.state) {
            (Some(epoch), Some(state)) => {
                let batch = Batch::new(&self.cell.id, epoch, state.seq);
                let turn = Some(&after.frame.id);
                let (standing, lease) = (Some(Standing::Idle), Lease::Release);
                let batch = Batch { turn, records: told.records, done: &told.done, standing, lease, ..batch };
                self.house.store.append(batch).await
            }
            _ => Ok(()),
        };
        let (turn, ended) = (after.frame.id.clone(), after.ended.clone());
        if !aside.is_empty() {
            work_aside(self.cell.clone(), self.house.clone(), after, aside);
        }
        // The turn is over and written, whatever becomes of the claim.
        self.tell_ended(&turn, ended);
        released
    }

    /// Keeps the claim while hooks run under it.
    pub(super) async fn renewing<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.house.clock.sleep(RENEW_EVERY) => {}
            }
            if let Some(epoch) = self.epoch {
                // A claim that is lost is found out by the next write.
                let _ = self.house.store.renew(&self.cell.id, epoch, self.house.clock.now()).await;
            }
        }
    }

    fn tell_ended(&self, turn: &TurnId, ended: Ended) {
        self.cell.drop_scope(turn);
        self.cell.tell_rest(Some(turn), Ok(Rest::Ended(Box::new(ended))));
    }

    /// The first time that this process holds the conversation: jobs that another left are taken up.
    pub(super) fn sweep(&self) {
        let old = self.state.as_ref().is_some_and(|state| state.seq > 0);
        if !self.house.bare && old && self.cell.sweeps_first() && self.cell.agent.does_jobs() {
            take_up_jobs(self.cell.clone(), self.house.clone());
        }
    }
}

/// What jobs see of their turn.
pub(super) fn snapshot(frame: &Arc<Frame>, ended: &Ended, messages: Arc<Vec<crate::Message>>) -> Snapshot {
    Snapshot {
        conversation: frame.conversation.clone(),
        turn: frame.id.clone(),
        agent: frame.agent.shared_name().clone(),
        scope: frame.scope.clone(),
        at: frame.clock.now(),
        messages,
        reply: ended.reply.clone(),
        outcome: ended.outcome,
        desk: Arc::new(BackgroundDesk::new(frame.plane.clone())),
    }
}
