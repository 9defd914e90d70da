//! A turn that is over: whoever waits is told, and what it left to be done is done.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use super::driver::Sitting;
use super::outbox::{take_up_jobs, work_aside};
use super::outcome::{TurnReport, TurnStatus};
use crate::context::layout::{self, Overlay};
use crate::hook::BackgroundContext;
use crate::id::TurnId;
use crate::store::{Batch, ConversationStatus, Job, JobKind, Lease, RENEW_EVERY, StoreError};
use crate::turn::{ActiveTurn, NoteBuffer, PostTurn, Stage, TurnContext};

impl Sitting {
    /// Takes the state back. `on_ended` hooks see the end before whoever waits; background hooks begin.
    pub(super) async fn land(
        &mut self,
        active: Box<ActiveTurn>,
        done: Result<Stage, StoreError>,
    ) -> Result<(), StoreError> {
        let ActiveTurn { turn, state, scratch, ended, released, jobs, taking, .. } = *active;
        done?;
        // Letters that came to nothing, in a turn that wrote nothing behind them.
        self.read.extend(taking);
        if released {
            self.epoch = None;
        }
        self.state = Some(state);
        let Some(ended) = ended else {
            self.scratch = Some(scratch);
            return Ok(());
        };
        let (ctx, reply) = (turn.ctx, turn.view.assistant_message.clone());
        let (conversation, agent) = (ctx.conversation.clone(), ctx.agent.shared_name().clone());
        let ended = TurnReport::new(conversation, ctx.id.clone(), agent, ctx.mode, ended, reply);
        let chains = ctx.agent.chains();
        if chains.on_ended.is_empty() && chains.background.is_empty() {
            self.tell_ended(&ctx.id, ended);
            return Ok(());
        }
        Box::pin(self.finish(ctx, ended, jobs)).await
    }

    async fn finish(&mut self, ctx: Arc<TurnContext>, ended: TurnReport, jobs: Vec<Job>) -> Result<(), StoreError> {
        let messages = self.state.as_ref().map(|state| layout::messages(&state.history, &Overlay::default()));
        let snapshot = snapshot(&ctx, &ended, messages.unwrap_or_default());
        let after = PostTurn { ctx, ended, snapshot };
        let (observers, aside): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.kind == JobKind::Ended);
        let told = self.renewing(after.attempt(observers)).await;
        let released = match (self.epoch.take(), &self.state) {
            (Some(epoch), Some(state)) => {
                let batch = Batch::new(&self.cell.id, epoch, state.seq);
                let turn = Some(&after.ctx.id);
                let (standing, lease) = (Some(ConversationStatus::Idle), Lease::Release);
                let batch = Batch { turn, records: told.records, done: &told.done, standing, lease, ..batch };
                self.runtime.store.append(batch).await
            }
            _ => Ok(()),
        };
        let (turn, ended) = (after.ctx.id.clone(), after.ended.clone());
        if !aside.is_empty() {
            work_aside(self.cell.clone(), self.runtime.clone(), after, aside);
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
                () = self.runtime.clock.sleep(RENEW_EVERY) => {}
            }
            if let Some(epoch) = self.epoch {
                // A claim that is lost is found out by the next write.
                let _ = self.runtime.store.renew(&self.cell.id, epoch, self.runtime.clock.now()).await;
            }
        }
    }

    fn tell_ended(&self, turn: &TurnId, ended: TurnReport) {
        self.cell.drop_scope(turn);
        self.cell.tell_rest(Some(turn), Ok(TurnStatus::Ended(Box::new(ended))));
    }

    /// The first time that this process holds the conversation: jobs that another left are taken up.
    pub(super) fn sweep(&self) {
        let old = self.state.as_ref().is_some_and(|state| state.seq > 0);
        if !self.runtime.bare && old && self.cell.sweeps_first() && self.cell.agent.does_jobs() {
            take_up_jobs(self.cell.clone(), self.runtime.clone());
        }
    }
}

/// What jobs see of their turn.
pub(super) fn snapshot(
    ctx: &Arc<TurnContext>,
    ended: &TurnReport,
    messages: Arc<Vec<crate::Message>>,
) -> BackgroundContext {
    BackgroundContext {
        conversation: ctx.conversation.clone(),
        turn: ctx.id.clone(),
        agent: ctx.agent.shared_name().clone(),
        scope: ctx.scope.clone(),
        at: ctx.clock.now(),
        messages,
        reply: ended.reply.clone(),
        outcome: ended.outcome,
        desk: Arc::new(NoteBuffer::new(ctx.feed.clone())),
    }
}
