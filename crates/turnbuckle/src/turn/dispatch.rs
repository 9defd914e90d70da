//! dispatch: per call: validate → `before_tool` → gate → `wrap_tool_call`( tool ) → `after_tool`.
//!
//! All calls that are ready are decided before any of them starts, so one write says what will run, and a hook that
//! halts the turn at one call stops them all. Started calls run concurrently; results are logged as they come.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;

use super::decide::{Decided, Going, decide};
use super::flight::{Flight, Interrupt, With};
use super::perform::{Performed, perform};
use super::resolve;
use super::seen::Frame;
use super::state::{OpenCall, Verdict};
use crate::clock::Boxed;
use crate::conversation::Command;
use crate::event::{EventKind, Outcome, Prompt};
use crate::id::CallId;
use crate::scope::By;
use crate::store::LEASE;

pub(crate) async fn run(flight: &mut Flight) -> Result<(), Interrupt> {
    let mut running = Running::default();
    loop {
        flight.frame().cut.check()?;
        if let Some(verdict) = flight.frame().meter.verdict(&flight.frame().limits) {
            return Err(verdict.into());
        }
        let ready = ready(flight, &running);
        if !ready.is_empty() {
            for going in start(flight, ready).await? {
                running.0.push((going.call.call.clone(), Box::pin(perform(going))));
            }
        }
        if running.0.is_empty() {
            return Ok(());
        }
        let Flight { cell, turn, .. } = &*flight;
        let step = poll_fn(|cx| match running.poll(cx) {
            Poll::Ready(performed) => Poll::Ready(Step::Performed(performed)),
            Poll::Pending => cell.poll_command(cx).map(Step::Command),
        });
        match turn.frame.cut.race(step).await? {
            Step::Performed(performed) => write_result(flight, performed?).await?,
            Step::Command(command) => resolve::obey(flight, command).await?,
        }
    }
}

type Performing = Boxed<'static, Result<Performed, Interrupt>>;

/// Calls at their tools. A reply has few, so whoever is woken looks at all of them.
#[derive(Default)]
struct Running(SmallVec<[(CallId, Performing); 1]>);

impl Running {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Performed, Interrupt>> {
        for index in 0..self.0.len() {
            if let Poll::Ready(performed) = self.0[index].1.as_mut().poll(cx) {
                drop(self.0.remove(index));
                return Poll::Ready(performed);
            }
        }
        Poll::Pending
    }
}

enum Step {
    Performed(Result<Performed, Interrupt>),
    Command(Command),
}

/// Calls that can go on and do not run yet.
fn ready(flight: &Flight, running: &Running) -> SmallVec<[OpenCall; 1]> {
    let Some(turn) = &flight.state.turn else { return SmallVec::new() };
    let runs = |open: &OpenCall| running.0.iter().any(|(call, _)| *call == open.call.call);
    let ready = |open: &&OpenCall| open.can_go_on() && !runs(open);
    turn.calls.iter().filter(ready).cloned().collect()
}

/// Decides every ready call, writes what was decided, and gives back those that run now.
async fn start(flight: &mut Flight, ready: SmallVec<[OpenCall; 1]>) -> Result<SmallVec<[Going; 1]>, Interrupt> {
    let mut kinds: SmallVec<[EventKind; 1]> = SmallVec::new();
    let (mut runs, mut called_off) = (SmallVec::new(), Vec::new());
    let expires = flight.frame().clock.now().after(flight.frame().limits.approval_timeout);
    let (decided, interrupted) = decide(flight, ready).await;
    if let Some(Interrupt::Cut(cut)) = interrupted {
        return Err(cut.into());
    }
    for (call, decided) in decided {
        match decided {
            // Nothing begins in a turn that is about to end.
            Decided::Run { .. } | Decided::Suspend(_) if interrupted.is_some() => {}
            Decided::Run { going, event } => {
                kinds.extend(event);
                runs.push(going);
            }
            Decided::Suspend(prompt) => kinds.push(EventKind::Suspension { call, prompt, expires }),
            Decided::Finish(output) => {
                called_off.extend(flight.sub_agent_of(&call));
                flight.beside.answers.retain(|(answered, _)| *answered != call);
                kinds.push(EventKind::ToolResult { call, ok: output.ok, content: output.content });
            }
        }
    }
    let suspends = kinds.iter().any(|kind| matches!(kind, EventKind::Suspension { .. }));
    if !kinds.is_empty() {
        let began = flight.frame().clock.elapsed();
        flight.write(kinds, if suspends { With::BESIDE } else { With::NOTHING }).await?;
        still_ours(&flight.frame().clone(), flight.epoch, began).await?;
    }
    for inside in called_off {
        flight.call_off(inside).await;
    }
    interrupted.map_or(Ok(runs), Err)
}

/// A process that was stopped in the middle of a write may wake up long after it: by then another may have the turn.
async fn still_ours(frame: &Frame, epoch: u64, began: Duration) -> Result<(), Interrupt> {
    if frame.clock.elapsed().saturating_sub(began) < LEASE {
        return Ok(());
    }
    Ok(frame.house.store.renew(&frame.conversation, epoch, frame.clock.now()).await?)
}

async fn write_result(flight: &mut Flight, performed: Performed) -> Result<(), Interrupt> {
    let Performed { call, output, records, halted } = performed;
    flight.records.extend(records);
    let answers = flight.beside.answers.len();
    flight.beside.answers.retain(|(answered, _)| *answered != call);
    let changed = answers != flight.beside.answers.len()
        || output.waits.is_some()
        || flight.beside.touched.len() != flight.frame().touched_count();
    let inside = flight.sub_agent_of(&call).filter(|_| output.waits.is_none());
    let kind = match output.waits {
        Some(prompt) => suspension(flight, call, *prompt),
        None => EventKind::ToolResult { call, ok: output.ok, content: output.content },
    };
    flight.write([kind], if changed { With::BESIDE } else { With::NOTHING }).await?;
    if let Some(inside) = inside {
        flight.call_off(inside).await;
    }
    match halted {
        None => Ok(()),
        Some((hook, reason)) => Err(Verdict::new(Outcome::Halted, reason).by(By::Hook(hook)).into()),
    }
}

fn suspension(flight: &Flight, call: CallId, prompt: Prompt) -> EventKind {
    let expires = flight.frame().clock.now().after(flight.frame().limits.approval_timeout);
    EventKind::Suspension { call, prompt, expires }
}
