//! dispatch: per call: normal form → validate → `before_tool` → approval → `wrap_tool_call`( tool ) → `after_tool`.
//!
//! All calls that are ready are decided before any of them starts, so one write says what will run, and a hook that
//! halts the turn at one call stops them all. Started calls run concurrently; results are logged as they come.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use smallvec::SmallVec;

use super::active::{ActiveTurn, Interrupt};
use super::answer;
use super::context::TurnContext;
use super::decide::{CallDecision, DecidedCall, ReadyCall, decide};
use super::host::AnswerOrder;
use super::last_answer;
use super::perform::{FinishedCall, perform};
use super::state::{OpenCall, Verdict};
use crate::event::{EventKind, Outcome};
use crate::hook::Point;
use crate::message::Text;
use crate::store::{LEASE, StoreError};
use crate::tool::OwnQuestion;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let mut running = RunningCalls { only: pin!(None), many: None };
    // Calls become ready when the stage begins and when one is answered; a result makes no other call ready.
    let mut look = true;
    loop {
        active.ctx().abort.check()?;
        if let Some(verdict) = last_answer::verdict(active.ctx()) {
            return Err(verdict.into());
        }
        if std::mem::take(&mut look) {
            let ready = ready(active, !running.is_empty());
            if !ready.is_empty() {
                running.add(start(active, ready).await?.into_iter().map(perform));
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

/// Calls whose tools run. Most replies have one call, which needs no allocation. Of several, only those are polled that
/// were woken.
struct RunningCalls<'a, F> {
    only: Pin<&'a mut Option<F>>,
    many: Option<FuturesUnordered<F>>,
}

impl<F: Future<Output = Result<FinishedCall, Interrupt>>> RunningCalls<'_, F> {
    fn is_empty(&self) -> bool {
        self.only.is_none() && self.many.as_ref().is_none_or(FuturesUnordered::is_empty)
    }

    /// Adds calls that begin together.
    fn add(&mut self, mut calls: impl ExactSizeIterator<Item = F>) {
        match (self.is_empty(), calls.len()) {
            (_, 0) => {}
            (true, 1) => self.only.set(calls.next()),
            _ => self.many.get_or_insert_default().extend(calls),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<FinishedCall, Interrupt>> {
        if let Some(call) = self.only.as_mut().as_pin_mut()
            && let Poll::Ready(finished) = call.poll(cx)
        {
            self.only.set(None);
            return Poll::Ready(finished);
        }
        match self.many.as_mut().map(|many| many.poll_next_unpin(cx)) {
            Some(Poll::Ready(Some(finished))) => Poll::Ready(finished),
            // Nothing of `many` is left: `only` or an answer wakes the turn.
            Some(Poll::Ready(None) | Poll::Pending) | None => Poll::Pending,
        }
    }
}

/// Calls that can go on and do not run yet. A call that runs was started and has no question.
fn ready(active: &ActiveTurn, is_running: bool) -> SmallVec<[OpenCall; 1]> {
    let Some(turn) = &active.state.turn else { return SmallVec::new() };
    let runs = |open: &OpenCall| is_running && open.started && open.question.is_none();
    turn.calls.values().filter(|open| open.can_go_on() && !runs(open)).cloned().collect()
}

/// Decides every ready call, writes what was decided, and returns those that run now.
async fn start(active: &mut ActiveTurn, ready: SmallVec<[OpenCall; 1]>) -> Result<SmallVec<[ReadyCall; 1]>, Interrupt> {
    let (decided, interrupted) = decide(active, ready).await;
    if let Some(Interrupt::Abort(cause)) = interrupted {
        return Err(cause.into());
    }
    let runs = match decided.iter().any(|call| !call.standing.is_empty()) && interrupted.is_none() {
        // In a box: few calls have a standing approval, and the future of every call would be larger.
        true => Box::pin(write_with_standing(active, decided)).await?,
        false => write_decided(active, decided, interrupted.is_some()).await?,
    };
    interrupted.map_or(Ok(runs), Err)
}

/// Writes what was decided, with standing approvals in the place of questions as far as they can be used. Others may use or
/// end one until the write counts the use. The store refuses the write then, and it is made again without that one.
async fn write_with_standing(
    active: &mut ActiveTurn,
    decided: SmallVec<[DecidedCall; 1]>,
) -> Result<SmallVec<[ReadyCall; 1]>, Interrupt> {
    let mut ended: Vec<Text> = Vec::new();
    loop {
        let (chosen, before) = (choose_standing(&decided, &ended), active.restore_point());
        match write_decided(active, chosen, false).await {
            Err(Interrupt::Store(StoreError::StandingEnded { approval })) if !ended.contains(&approval) => {
                tracing::debug!(conversation = %active.ctx().conversation, %approval, "a standing approval has ended");
                active.restore(before);
                ended.push(approval);
            }
            done => return done,
        }
    }
}

/// The calls with the first standing approval each that has not ended and that the calls before it leave a use of.
fn choose_standing(decided: &[DecidedCall], ended: &[Text]) -> SmallVec<[DecidedCall; 1]> {
    let (mut used, mut chosen) = (Vec::new(), SmallVec::new());
    for DecidedCall { call, standing, decision } in decided {
        let first = standing.iter().find(|one| {
            let before = used.iter().filter(|other| **other == &one.approval).count();
            !ended.contains(&one.approval) && one.uses_left.is_none_or(|left| before < left as usize)
        });
        used.extend(first.map(|one| &one.approval));
        let standing = first.cloned().into_iter().collect();
        chosen.push(DecidedCall { call: call.clone(), standing, decision: decision.clone() });
    }
    chosen
}

/// Writes what was decided, and returns the calls that run now.
async fn write_decided(
    active: &mut ActiveTurn,
    decided: SmallVec<[DecidedCall; 1]>,
    is_ending: bool,
) -> Result<SmallVec<[ReadyCall; 1]>, Interrupt> {
    let (mut runs, mut over) = (SmallVec::new(), Vec::new());
    let mut write = active.new_write();
    for DecidedCall { call, standing, mut decision } in decided {
        if let (Some(used), false) = (standing.into_iter().next(), is_ending) {
            write.push(used.event);
            decision = used.decision;
        }
        match decision {
            // Nothing begins in a turn that is about to end.
            CallDecision::Run { .. } | CallDecision::Suspend(..) if is_ending => {}
            CallDecision::Run { call, is_logged } => {
                if !is_logged {
                    write.push(call.started());
                }
                runs.push(call);
            }
            CallDecision::Suspend(asked) => {
                let (question, rule) = *asked;
                // What was answered to another question is no answer to this one.
                active.forget_answer(&call);
                write.push(active.ctx().suspension(call, question, rule).await?);
            }
            CallDecision::Finish(output) => {
                // A refusal may quote what the model sent.
                let output = output.capped();
                over.extend(active.sub_agent_of(&call));
                active.forget_answer(&call);
                write.push(EventKind::ToolResult { call, ok: output.ok, content: output.content });
            }
        }
    }
    if !write.is_empty() {
        let began = active.ctx().clock().elapsed();
        active.append(write).await?;
        still_ours(active.ctx(), active.epoch, began).await?;
    }
    for sub_agent in over {
        active.cancel_sub_agent(sub_agent).await;
    }
    Ok(runs)
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
        Some(asked) => {
            let OwnQuestion { question, rule } = *asked;
            active.ctx().suspension(call, question, rule.as_deref().cloned()).await?
        }
        None => EventKind::ToolResult { call, ok: output.ok, content: output.content },
    };
    let mut write = active.new_write();
    write.push(kind);
    active.append(write).await?;
    if let Some(sub_agent) = over {
        active.cancel_sub_agent(sub_agent).await;
    }
    match halted {
        None => Ok(()),
        Some((hook, reason)) => Err(Verdict::by_hook(Outcome::Halted, reason, &hook, Point::AfterTool).into()),
    }
}
