//! dispatch: per call: validate → `before_tool` → approval → `wrap_tool_call`( tool ) → `after_tool`.
//!
//! All calls that are ready are decided before any of them starts, so one write says what will run, and a hook that
//! halts the turn at one call stops them all. Started calls run concurrently; results are logged as they come.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::SmallVec;

use super::active::{ActiveTurn, Interrupt};
use super::answer;
use super::context::TurnContext;
use super::decide::{CallDecision, ReadyCall, decide};
use super::host::AnswerOrder;
use super::perform::{FinishedCall, perform};
use super::state::{OpenCall, Verdict};
use crate::BoxFuture;
use crate::event::{EventKind, Outcome};
use crate::hook::Point;
use crate::store::LEASE;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let mut running = RunningCalls::None;
    // Calls become ready when the stage begins and when one is answered; a result makes no other call ready.
    let mut look = true;
    loop {
        active.ctx().abort.check()?;
        if let Some(verdict) = active.ctx().budget.verdict(&active.ctx().limits) {
            return Err(verdict.into());
        }
        if std::mem::take(&mut look) {
            let ready = ready(active, &running);
            if !ready.is_empty() {
                for call in start(active, ready).await? {
                    running.add(Box::pin(perform(call)));
                }
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        let ctx = active.ctx();
        let step = poll_fn(|cx| match running.poll(cx) {
            Poll::Ready(finished) => Poll::Ready(Step::Finished(finished)),
            Poll::Pending => ctx.host.poll_answer(cx).map(Step::Answered),
        });
        match ctx.abort.race(step).await? {
            Step::Finished(finished) => write_result(active, finished?).await?,
            Step::Answered(order) => {
                answer::take(active, order).await?;
                look = true;
            }
        }
    }
}

enum Step {
    Finished(Result<FinishedCall, Interrupt>),
    Answered(AnswerOrder),
}

type RunningCall = BoxFuture<'static, Result<FinishedCall, Interrupt>>;

/// Calls whose tools run. Most replies have one call; of many only those are polled that were woken.
enum RunningCalls {
    None,
    One(RunningCall),
    Many(FuturesUnordered<RunningCall>),
}

impl RunningCalls {
    fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(_) => false,
            Self::Many(calls) => calls.is_empty(),
        }
    }

    fn add(&mut self, call: RunningCall) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(call),
            Self::One(other) => Self::Many([other, call].into_iter().collect()),
            Self::Many(calls) => {
                calls.push(call);
                Self::Many(calls)
            }
        };
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<FinishedCall, Interrupt>> {
        match self {
            Self::None => Poll::Pending,
            Self::One(call) => {
                let finished = call.as_mut().poll(cx);
                if finished.is_ready() {
                    *self = Self::None;
                }
                finished
            }
            Self::Many(calls) => match calls.poll_next_unpin(cx) {
                Poll::Ready(Some(finished)) => Poll::Ready(finished),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            },
        }
    }
}

/// Calls that can go on and do not run yet. A call that runs was started and has no question.
fn ready(active: &ActiveTurn, running: &RunningCalls) -> SmallVec<[OpenCall; 1]> {
    let Some(turn) = &active.state.turn else { return SmallVec::new() };
    let runs = |open: &OpenCall| !running.is_empty() && open.started && open.question.is_none();
    turn.calls.values().filter(|open| open.can_go_on() && !runs(open)).cloned().collect()
}

/// Decides every ready call, writes what was decided, and returns those that run now.
async fn start(active: &mut ActiveTurn, ready: SmallVec<[OpenCall; 1]>) -> Result<SmallVec<[ReadyCall; 1]>, Interrupt> {
    let mut kinds: SmallVec<[EventKind; 1]> = SmallVec::new();
    let (mut runs, mut over) = (SmallVec::new(), Vec::new());
    let expires = active.ctx().question_expires();
    let (decided, interrupted) = decide(active, ready).await;
    if let Some(Interrupt::Abort(cause)) = interrupted {
        return Err(cause.into());
    }
    for (call, decision) in decided {
        match decision {
            // Nothing begins in a turn that is about to end.
            CallDecision::Run { .. } | CallDecision::Suspend(_) if interrupted.is_some() => {}
            CallDecision::Run { call, event } => {
                kinds.extend(event);
                runs.push(call);
            }
            CallDecision::Suspend(question) => kinds.push(EventKind::Suspension { call, question, expires }),
            CallDecision::Finish(output) => {
                over.extend(active.sub_agent_of(&call));
                active.forget_answer(&call);
                kinds.push(EventKind::ToolResult { call, ok: output.ok, content: output.content });
            }
        }
    }
    if !kinds.is_empty() {
        let began = active.ctx().clock().elapsed();
        active.write(kinds).await?;
        still_ours(active.ctx(), active.epoch, began).await?;
    }
    for sub_agent in over {
        active.cancel_sub_agent(sub_agent).await;
    }
    interrupted.map_or(Ok(runs), Err)
}

/// A process that was stopped in the middle of a write may wake up long after it. By then another process may have the
/// turn, and the tool must not run here.
async fn still_ours(ctx: &TurnContext, epoch: u64, began: Duration) -> Result<(), Interrupt> {
    if ctx.clock().elapsed().saturating_sub(began) < LEASE {
        return Ok(());
    }
    Ok(ctx.store().renew(&ctx.conversation, epoch, ctx.clock().now()).await?)
}

async fn write_result(active: &mut ActiveTurn, finished: FinishedCall) -> Result<(), Interrupt> {
    let FinishedCall { call, output, records, halted } = finished;
    active.records.extend(records);
    active.forget_answer(&call);
    let over = active.sub_agent_of(&call).filter(|_| output.waits.is_none());
    let kind = match output.waits {
        Some(question) => EventKind::Suspension { call, question: *question, expires: active.ctx().question_expires() },
        None => EventKind::ToolResult { call, ok: output.ok, content: output.content },
    };
    active.write([kind]).await?;
    if let Some(sub_agent) = over {
        active.cancel_sub_agent(sub_agent).await;
    }
    match halted {
        None => Ok(()),
        Some((hook, reason)) => Err(Verdict::by_hook(Outcome::Halted, reason, &hook, Point::AfterTool).into()),
    }
}
