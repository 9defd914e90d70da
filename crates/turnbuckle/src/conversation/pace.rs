//! What runs beside a turn: its deadline, its lease, letters of other processes, and viewers that must not be outrun.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::cell::Cell;
use super::command::Command;
use crate::BoxFuture;
use crate::feed::Queue;
use crate::scope::Scope;
use crate::store::{InboxFilter, InboxItem, InboxKind, RENEW_EVERY, StoreError, StoreFuture};
use crate::turn::{AbortCause, ActiveTurn, Resolve, Stage, TurnContext, drive};

/// How long a turn waits for a lossless viewer.
pub(super) const VIEWER_DEADLINE: Duration = Duration::from_secs(5);
/// How often a turn under way looks into its inbox for what other processes ask.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Drives the flight, with its deadline, its lease, its observers, and viewers that must not be outrun.
pub(super) async fn paced(active: &mut ActiveTurn) -> Result<Stage, StoreError> {
    let ctx = active.turn.ctx.clone();
    let left = ctx.limits.turn_timeout.saturating_sub(active.stopwatch.active(ctx.clock.elapsed()));
    let (epoch, cell) = (active.epoch, active.cell.clone());
    let mut work = pin!(drive(active));
    let mut gate: Option<BoxFuture<'static, ()>> = None;
    let mut errands: Option<Errands<'_>> = None;
    poll_fn(|cx| {
        loop {
            if let Some(waiting) = &mut gate {
                if waiting.as_mut().poll(cx).is_pending() {
                    // The lease and the deadline do not wait for a viewer.
                    let errands = errands.get_or_insert_with(|| Errands::new(&ctx, &cell, epoch, left));
                    match errands.poll(cx) {
                        Poll::Ready(Ok(())) => continue,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                gate = None;
            }
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            let behind = if ctx.feed.has_lossless() { ctx.feed.behind() } else { Vec::new() };
            if !behind.is_empty() {
                gate = Some(Box::pin(wait_for(behind, ctx.clone())));
                continue;
            }
            // A turn that is over at its first poll never sees a timer.
            let errands = errands.get_or_insert_with(|| Errands::new(&ctx, &cell, epoch, left));
            match errands.poll(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// What is done by the clock while a turn is under way.
struct Errands<'a> {
    ctx: &'a Arc<TurnContext>,
    cell: &'a Arc<Cell>,
    epoch: u64,
    deadline: BoxFuture<'static, ()>,
    renew: BoxFuture<'static, ()>,
    renewal: Option<StoreFuture<'a, ()>>,
    /// `None` where no other process can write letters.
    look: Option<BoxFuture<'static, ()>>,
    inbox: Option<StoreFuture<'a, Vec<InboxItem>>>,
}

impl<'a> Errands<'a> {
    fn new(ctx: &'a Arc<TurnContext>, cell: &'a Arc<Cell>, epoch: u64, left: Duration) -> Self {
        let shared = ctx.runtime.store.is_durable() && !cell.id.is_sub_agent();
        Self {
            ctx,
            cell,
            epoch,
            deadline: ctx.clock.sleep(left),
            renew: ctx.clock.sleep(RENEW_EVERY),
            renewal: None,
            look: shared.then(|| ctx.clock.sleep(LOOK_EVERY)),
            inbox: None,
        }
    }

    /// Ready when the turn should be looked at again; an error when the claim is lost.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let ctx = self.ctx;
        if !ctx.abort.is_aborted() && self.deadline.as_mut().poll(cx).is_ready() {
            ctx.abort.abort(AbortCause::TimeUp);
            return Poll::Ready(Ok(()));
        }
        while self.renewal.is_none() && self.renew.as_mut().poll(cx).is_ready() {
            self.renew = ctx.clock.sleep(RENEW_EVERY);
            self.renewal = Some(ctx.runtime.store.renew(&ctx.conversation, self.epoch, ctx.clock.now()));
        }
        if let Some(renewing) = &mut self.renewal {
            match Pin::new(renewing).poll(cx) {
                Poll::Ready(Err(error @ StoreError::Fenced { .. })) => return Poll::Ready(Err(error)),
                Poll::Ready(_) => self.renewal = None,
                Poll::Pending => {}
            }
        }
        self.poll_letters(cx).map(Ok)
    }

    fn poll_letters(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(look) = &mut self.look else { return Poll::Pending };
        while self.inbox.is_none() && look.as_mut().poll(cx).is_ready() {
            *look = self.ctx.clock.sleep(LOOK_EVERY);
            self.inbox = Some(self.ctx.runtime.store.inbox(&self.ctx.conversation, InboxFilter::Control));
        }
        let Some(reading) = &mut self.inbox else { return Poll::Pending };
        let Poll::Ready(inbox) = Pin::new(reading).poll(cx) else { return Poll::Pending };
        self.inbox = None;
        let mut heard = false;
        // What cannot be read now is read at the next look.
        for item in inbox.unwrap_or_default() {
            heard |= self.hear(item);
        }
        if heard { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Obeys a letter that concerns the turn under way; others are for the time after it.
    fn hear(&self, item: InboxItem) -> bool {
        let by = Scope::of(item.from).by();
        match item.kind {
            InboxKind::Cancel { turn } if turn == self.ctx.id => {
                let new = self.cell.hear(&item.id);
                if new {
                    self.ctx.abort.abort(AbortCause::Cancelled(by));
                }
                new
            }
            InboxKind::Answer { call, answer, digest } if self.cell.feed.is_pending(&call) => {
                let new = self.cell.hear(&item.id);
                if new {
                    // Nobody here waits for it.
                    let (done, rest) = (oneshot::channel().0, oneshot::channel().0);
                    let resolve = Resolve { call, answer, digest, by, item: Some(item.id), done, rest };
                    self.cell.command(&self.ctx.runtime, Command::Resolve(resolve));
                }
                new
            }
            _ => false,
        }
    }
}

/// Ready when the viewers have caught up; those that let the deadline pass are cut off.
async fn wait_for(behind: Vec<Arc<Queue>>, ctx: Arc<TurnContext>) {
    let all = async {
        for queue in &behind {
            queue.caught_up().await;
        }
    };
    tokio::select! {
        biased;
        () = all => {}
        () = ctx.clock.sleep(VIEWER_DEADLINE) => ctx.feed.cut_off(&behind),
    }
}
