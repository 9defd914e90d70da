//! dispatch: per call: validate → `before_tool` → gate → `wrap_tool_call`( tool ) → `after_tool`.
//!
//! All calls that are ready are decided before any of them starts, so one write says what will run, and a hook that
//! halts the turn at one call stops them all. Started calls run concurrently; results are logged as they come.

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::decide::{Decided, Going, decide};
use super::flight::{Flight, Interrupt, With};
use super::perform::{Performed, perform};
use super::resolve;
use super::state::{OpenCall, Verdict};
use crate::conversation::Command;
use crate::event::{EventKind, Outcome, Prompt};
use crate::id::CallId;
use crate::scope::By;

pub(crate) async fn run(flight: &mut Flight) -> Result<(), Interrupt> {
    let mut running = FuturesUnordered::new();
    let mut started: Vec<CallId> = Vec::new();
    loop {
        flight.frame().cut.check()?;
        if let Some(verdict) = flight.frame().meter.verdict(&flight.frame().limits) {
            return Err(verdict.into());
        }
        let ready = ready(flight, &started);
        if !ready.is_empty() {
            for going in start(flight, ready).await? {
                started.push(going.call.call.clone());
                running.push(perform(going));
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        let Flight { commands, turn, .. } = &mut *flight;
        let step = async {
            tokio::select! {
                biased;
                Some(performed) = running.next() => Step::Performed(performed),
                Some(command) = commands.recv() => Step::Command(command),
            }
        };
        match turn.frame.cut.race(step).await? {
            Step::Performed(performed) => write_result(flight, performed?).await?,
            Step::Command(command) => resolve::obey(flight, command).await?,
        }
    }
}

enum Step {
    Performed(Result<Performed, Interrupt>),
    Command(Command),
}

/// Calls that can go on and do not run yet.
fn ready(flight: &Flight, started: &[CallId]) -> Vec<OpenCall> {
    let Some(turn) = &flight.state.turn else { return Vec::new() };
    let ready = |open: &&OpenCall| open.can_go_on() && !started.contains(&open.call.call);
    turn.calls.iter().filter(ready).cloned().collect()
}

/// Decides every ready call, writes what was decided, and gives back those that run now.
async fn start(flight: &mut Flight, ready: Vec<OpenCall>) -> Result<Vec<Going>, Interrupt> {
    let (mut kinds, mut runs) = (Vec::new(), Vec::new());
    let expires = flight.frame().clock.now().after(flight.frame().limits.approval_timeout);
    for (call, decided) in decide(flight, ready).await? {
        match decided {
            Decided::Run { going, event } => {
                kinds.extend(event);
                runs.push(*going);
            }
            Decided::Suspend(prompt) => kinds.push(EventKind::Suspension { call, prompt, expires }),
            Decided::Finish(output) => {
                flight.beside.answers.retain(|(answered, _)| *answered != call);
                kinds.push(EventKind::ToolResult { call, ok: output.ok, content: output.content });
            }
        }
    }
    let suspends = kinds.iter().any(|kind| matches!(kind, EventKind::Suspension { .. }));
    if !kinds.is_empty() {
        flight.write(kinds, if suspends { With::BESIDE } else { With::NOTHING }).await?;
    }
    Ok(runs)
}

async fn write_result(flight: &mut Flight, performed: Performed) -> Result<(), Interrupt> {
    let Performed { call, output, records, halted } = performed;
    flight.records.extend(records);
    flight.beside.answers.retain(|(answered, _)| *answered != call);
    let kind = match output.waits {
        Some(prompt) => suspension(flight, call, prompt),
        None => EventKind::ToolResult { call, ok: output.ok, content: output.content },
    };
    flight.write(vec![kind], With::BESIDE).await?;
    match halted {
        None => Ok(()),
        Some((hook, reason)) => Err(Verdict::new(Outcome::Halted, reason).by(By::Hook(hook)).into()),
    }
}

fn suspension(flight: &Flight, call: CallId, prompt: Prompt) -> EventKind {
    let expires = flight.frame().clock.now().after(flight.frame().limits.approval_timeout);
    EventKind::Suspension { call, prompt, expires }
}
