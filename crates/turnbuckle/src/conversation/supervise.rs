//! What runs beside a turn: its deadline, the renewal of its claim, orders of other processes, and viewers that must not
//! be outrun.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::order::Order;
use super::runtime::Runtime;
use super::shared::Conversation;
use crate::BoxFuture;
use crate::feed::Queue;
use crate::store::{InboxFilter, InboxItem, InboxKind, RENEW_EVERY, StoreError, StoreFuture};
use crate::turn::{AbortCause, ActiveTurn, Stage, TurnContext, drive};

/// How long a turn waits for a lossless viewer.
const VIEWER_DEADLINE: Duration = Duration::from_secs(5);
/// How often a running turn looks into its inbox for orders of other processes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Drives a turn until it ends or waits. Meanwhile its claim is renewed, its deadline is watched, orders of other
/// processes are taken in, and lossless viewers that fall behind make it pause.
pub(super) async fn supervise(
    active: &mut ActiveTurn,
    conversation: &Arc<Conversation>,
    runtime: &Arc<Runtime>,
) -> Result<Stage, StoreError> {
    let ctx = active.ctx().clone();
    let left = ctx.limits.turn_timeout.saturating_sub(active.stopwatch.active(ctx.clock().elapsed()));
    let epoch = active.epoch;
    let mut work = pin!(drive(active));
    let mut viewers: Option<BoxFuture<'static, ()>> = None;
    let mut timers: Option<Timers<'_>> = None;
    poll_fn(|cx| {
        loop {
            let waits_for_viewers = match &mut viewers {
                Some(caught_up) => caught_up.as_mut().poll(cx).is_pending(),
                None => false,
            };
            if !waits_for_viewers {
                viewers = None;
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(done);
                }
                let behind = ctx.feed.behind();
                if !behind.is_empty() {
                    viewers = Some(Box::pin(wait_for(behind, ctx.clone())));
                    continue;
                }
            }
            // Made at the first pause: a turn that is over at its first poll needs no timer. Claim and deadline do not
            // wait for a viewer.
            let timers = timers.get_or_insert_with(|| Timers::new(&ctx, conversation, runtime, epoch, left));
            match timers.poll(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// What is done by the clock while a turn runs.
struct Timers<'a> {
    ctx: &'a Arc<TurnContext>,
    conversation: &'a Arc<Conversation>,
    runtime: &'a Arc<Runtime>,
    epoch: u64,
    deadline: BoxFuture<'static, ()>,
    next_renewal: BoxFuture<'static, ()>,
    renewal: Option<StoreFuture<'a, ()>>,
    /// `None` if no other process can store orders.
    next_look: Option<BoxFuture<'static, ()>>,
    look: Option<StoreFuture<'a, Vec<InboxItem>>>,
}

impl<'a> Timers<'a> {
    fn new(
        ctx: &'a Arc<TurnContext>,
        conversation: &'a Arc<Conversation>,
        runtime: &'a Arc<Runtime>,
        epoch: u64,
        left: Duration,
    ) -> Self {
        let is_shared = ctx.store().is_durable() && !conversation.id.is_sub_agent();
        Self {
            ctx,
            conversation,
            runtime,
            epoch,
            deadline: ctx.clock().sleep(left),
            next_renewal: ctx.clock().sleep(RENEW_EVERY),
            renewal: None,
            next_look: is_shared.then(|| ctx.clock().sleep(LOOK_EVERY)),
            look: None,
        }
    }

    /// Ready when the turn should be polled again; an error when the claim is lost.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let ctx = self.ctx;
        if !ctx.abort.is_aborted() && self.deadline.as_mut().poll(cx).is_ready() {
            ctx.abort.abort(AbortCause::TimedOut);
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(error) = self.poll_renewal(cx) {
            return Poll::Ready(Err(error));
        }
        self.poll_inbox(cx).map(Ok)
    }

    /// Renews the claim when it is time to. Ready if the claim is lost.
    ///
    /// The renewal under way is polled before its timer: a timer that is replaced must be polled once more, or nothing
    /// wakes this task when the new one is due.
    fn poll_renewal(&mut self, cx: &mut Context<'_>) -> Poll<StoreError> {
        let ctx = self.ctx;
        loop {
            if let Some(renewal) = &mut self.renewal {
                let Poll::Ready(renewed) = Pin::new(renewal).poll(cx) else { return Poll::Pending };
                self.renewal = None;
                match renewed {
                    Ok(()) => {
                        tracing::trace!(conversation = %ctx.conversation, epoch = self.epoch, "renewed the claim");
                    }
                    Err(error @ StoreError::Fenced { .. }) => {
                        tracing::warn!(conversation = %ctx.conversation, epoch = self.epoch, "lost the claim");
                        return Poll::Ready(error);
                    }
                    // Tried again at the next renewal; the claim holds a while longer.
                    Err(error) => {
                        tracing::warn!(conversation = %ctx.conversation, %error, "the claim could not be renewed");
                    }
                }
            }
            if self.next_renewal.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.next_renewal = ctx.clock().sleep(RENEW_EVERY);
            self.renewal = Some(ctx.store().renew(&ctx.conversation, self.epoch, ctx.clock().now()));
        }
    }

    /// Looks into the inbox when it is time to, in the same order as [`poll_renewal`](Self::poll_renewal). Ready when an
    /// order was taken in.
    fn poll_inbox(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ctx = self.ctx;
        loop {
            if let Some(look) = &mut self.look {
                let Poll::Ready(items) = Pin::new(look).poll(cx) else { return Poll::Pending };
                self.look = None;
                match items {
                    Ok(items) => {
                        if items.into_iter().filter(|item| self.take_in(item)).count() > 0 {
                            return Poll::Ready(());
                        }
                    }
                    // Read again at the next look.
                    Err(error) => {
                        tracing::warn!(conversation = %ctx.conversation, %error, "the inbox could not be read");
                    }
                }
            }
            let Some(next_look) = &mut self.next_look else { return Poll::Pending };
            if next_look.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            *next_look = ctx.clock().sleep(LOOK_EVERY);
            self.look = Some(ctx.store().inbox(&ctx.conversation, InboxFilter::DuringTurn));
        }
    }

    /// Submits a stored order that concerns the running turn. Others are for the time after it.
    fn take_in(&self, item: &InboxItem) -> bool {
        if item.steers().is_some() {
            return self.conversation.steer(item.clone());
        }
        let is_for_this_turn = match &item.kind {
            InboxKind::Cancel { turn } => *turn == self.ctx.id,
            InboxKind::Answer { call, .. } => self.conversation.feed.is_pending(call),
            _ => false,
        };
        if let (true, Some(order)) = (is_for_this_turn, Order::stored(item.clone())) {
            tracing::debug!(conversation = %self.ctx.conversation, item = %item.id, "took in an order of another process");
            self.conversation.submit_and_spawn(self.runtime, order);
        }
        is_for_this_turn
    }
}

/// Ready when the viewers have caught up. Those that let the deadline pass are cut off.
async fn wait_for(behind: Vec<Arc<Queue>>, ctx: Arc<TurnContext>) {
    let all = async {
        for queue in &behind {
            queue.caught_up().await;
        }
    };
    tokio::select! {
        biased;
        () = all => {}
        () = ctx.clock().sleep(VIEWER_DEADLINE) => ctx.feed.cut_off(&behind),
    }
}
