//! dispatch: per call: validate → `before_tool` → gate → `wrap_tool_call`( tool ) → `after_tool`.
//!
//! All calls that are ready are decided before any of them starts, so one write says what will run, and a hook that
//! halts the turn at one call stops them all. Started calls run concurrently; results are logged as they come.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use super::active::{ActiveTurn, Interrupt, With};
use super::decide::{Decided, ReadyCall, decide};
use super::perform::{FinishedCall, perform};
use super::resolve;
use super::state::{OpenCall, Verdict};
use super::view::TurnContext;
use crate::BoxFuture;
use crate::conversation::Command;
use crate::event::{EventKind, Outcome, Question};
use crate::id::CallId;
use crate::scope::Author;
use crate::store::LEASE;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let mut running = Running::default();
    loop {
        active.ctx().abort.check()?;
        if let Some(verdict) = active.ctx().budget.verdict(&active.ctx().limits) {
            return Err(verdict.into());
        }
        let ready = ready(active, &running);
        if !ready.is_empty() {
            for ready_call in start(active, ready).await? {
                running.0.push((ready_call.call.call.clone(), Box::pin(perform(ready_call))));
            }
        }
        if running.0.is_empty() {
            return Ok(());
        }
        let ActiveTurn { cell, turn, .. } = &*active;
        let step = poll_fn(|cx| match running.poll(cx) {
            Poll::Ready(finished) => Poll::Ready(Step::FinishedCall(finished)),
            Poll::Pending => cell.poll_command(cx).map(Step::Command),
        });
        match turn.ctx.abort.race(step).await? {
            Step::FinishedCall(finished) => write_result(active, finished?).await?,
            Step::Command(command) => resolve::obey(active, command).await?,
        }
    }
}

type RunningCall = BoxFuture<'static, Result<FinishedCall, Interrupt>>;

/// Calls at their tools. A reply has few, so whoever is woken looks at all of them.
#[derive(Default)]
struct Running(SmallVec<[(CallId, RunningCall); 1]>);

impl Running {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<FinishedCall, Interrupt>> {
        for index in 0..self.0.len() {
            if let Poll::Ready(finished) = self.0[index].1.as_mut().poll(cx) {
                drop(self.0.remove(index));
                return Poll::Ready(finished);
            }
        }
        Poll::Pending
    }
}

enum Step {
    FinishedCall(Result<FinishedCall, Interrupt>),
    Command(Command),
}

/// Calls that can go on and do not run yet.
fn ready(active: &ActiveTurn, running: &Running) -> SmallVec<[OpenCall; 1]> {
    let Some(turn) = &active.state.turn else { return SmallVec::new() };
    let runs = |open: &OpenCall| running.0.iter().any(|(call, _)| *call == open.call.call);
    let ready = |open: &&OpenCall| open.can_go_on() && !runs(open);
    turn.calls.iter().filter(ready).cloned().collect()
}

/// Decides every ready call, writes what was decided, and gives back those that run now.
async fn start(active: &mut ActiveTurn, ready: SmallVec<[OpenCall; 1]>) -> Result<SmallVec<[ReadyCall; 1]>, Interrupt> {
    let mut kinds: SmallVec<[EventKind; 1]> = SmallVec::new();
    let (mut runs, mut called_off) = (SmallVec::new(), Vec::new());
    let expires = active.ctx().clock.now().after(active.ctx().limits.approval_timeout);
    let (decided, interrupted) = decide(active, ready).await;
    if let Some(Interrupt::AbortCause(abort)) = interrupted {
        return Err(abort.into());
    }
    for (call, decided) in decided {
        match decided {
            // Nothing begins in a turn that is about to end.
            Decided::Run { .. } | Decided::Suspend(_) if interrupted.is_some() => {}
            Decided::Run { ready_call, event } => {
                kinds.extend(event);
                runs.push(ready_call);
            }
            Decided::Suspend(question) => kinds.push(EventKind::Suspension { call, question, expires }),
            Decided::Finish(output) => {
                called_off.extend(active.sub_agent_of(&call));
                active.scratch.answers.retain(|(answered, _)| *answered != call);
                kinds.push(EventKind::ToolResult { call, ok: output.ok, content: output.content });
            }
        }
    }
    let suspends = kinds.iter().any(|kind| matches!(kind, EventKind::Suspension { .. }));
    if !kinds.is_empty() {
        let began = active.ctx().clock.elapsed();
        active.write(kinds, if suspends { With::BESIDE } else { With::NOTHING }).await?;
        still_ours(&active.ctx().clone(), active.epoch, began).await?;
    }
    for inside in called_off {
        active.call_off(inside).await;
    }
    interrupted.map_or(Ok(runs), Err)
}

/// A process that was stopped in the middle of a write may wake up long after it: by then another may have the turn.
async fn still_ours(ctx: &TurnContext, epoch: u64, began: Duration) -> Result<(), Interrupt> {
    if ctx.clock.elapsed().saturating_sub(began) < LEASE {
        return Ok(());
    }
    Ok(ctx.runtime.store.renew(&ctx.conversation, epoch, ctx.clock.now()).await?)
}

async fn write_result(active: &mut ActiveTurn, finished: FinishedCall) -> Result<(), Interrupt> {
    let FinishedCall { call, output, records, halted } = finished;
    active.records.extend(records);
    let answers = active.scratch.answers.len();
    active.scratch.answers.retain(|(answered, _)| *answered != call);
    let changed = answers != active.scratch.answers.len()
        || output.waits.is_some()
        || active.scratch.touched.len() != active.ctx().touched_count();
    let inside = active.sub_agent_of(&call).filter(|_| output.waits.is_none());
    let kind = match output.waits {
        Some(question) => suspension(active, call, *question),
        None => EventKind::ToolResult { call, ok: output.ok, content: output.content },
    };
    active.write([kind], if changed { With::BESIDE } else { With::NOTHING }).await?;
    if let Some(inside) = inside {
        active.call_off(inside).await;
    }
    match halted {
        None => Ok(()),
        Some((hook, reason)) => Err(Verdict::new(Outcome::Halted, reason).by(Author::Hook(hook)).into()),
    }
}

fn suspension(active: &ActiveTurn, call: CallId, question: Question) -> EventKind {
    let expires = active.ctx().clock.now().after(active.ctx().limits.approval_timeout);
    EventKind::Suspension { call, question, expires }
}
