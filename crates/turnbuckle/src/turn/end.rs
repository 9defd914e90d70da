//! end: stop hooks judge, `after_agent` hooks have the last word, and the turn is written off in one append.

use std::sync::Arc;

use futures_util::future::try_join_all;
use smallvec::SmallVec;

use super::flight::{Flight, Interrupt, Keeping, With};
use super::state::{OpenTurn, Verdict};
use crate::agent::Agent;
use crate::event::{EventKind, Outcome, Place, Prompt, Refusal, Resolved, TurnEnded};
use crate::hook::run::Run;
use crate::hook::{AfterAgent, HookEntry, OnFailure, OnStop, Point, Settled, Stopping, ToolTrace};
use crate::id::ConversationId;
use crate::message::{Content, StopReason, Text, Usage};
use crate::scope::{By, System};
use crate::store::{Job, JobKind, Lease, Standing};

pub(crate) async fn run(flight: &mut Flight) -> Result<(), Interrupt> {
    let mut closing = Closing::default();
    let verdict = match flight.state.turn.as_ref().and_then(|turn| turn.verdict.clone()) {
        Some(verdict) => verdict,
        None => {
            flight.frame().cut.check()?;
            if !judge(flight, &mut closing).await? {
                return Ok(());
            }
            settle(flight, &mut closing).await?;
            observed(flight).await?;
            Verdict { outcome: Outcome::Completed, reason: None, by: None }
        }
    };
    write(flight, verdict, closing).await
}

/// No turn completes before those observers have seen it whose failure would end it.
async fn observed(flight: &mut Flight) -> Result<(), Interrupt> {
    let blocks = |entry: &HookEntry| entry.failure_policy(Point::OnEvent) == OnFailure::Block;
    if !flight.frame().agent.chains().on_event.iter().any(blocks) {
        return Ok(());
    }
    Ok(flight.frame().cut.race(flight.cell.observed()).await?)
}

/// What the hooks of this stage leave for the last append.
#[derive(Default)]
struct Closing {
    injections: Vec<(Text, Content)>,
    result: Option<Arc<serde_json::Value>>,
}

/// Asks the stop hooks, side by side; all finish. False if the turn goes on.
async fn judge(flight: &mut Flight, closing: &mut Closing) -> Result<bool, Interrupt> {
    let approved = flight.state.turn.as_ref().is_some_and(OpenTurn::stop_approved);
    if approved {
        closing.injections = std::mem::take(&mut flight.beside.advice);
        return Ok(true);
    }
    if flight.frame().agent.chains().on_stop.is_empty() {
        return Ok(true);
    }
    let agent = flight.agent();
    let trace: Arc<[ToolTrace]> = tool_trace(flight).into();
    let frame = flight.frame().clone();
    let views: Vec<Stopping> = agent
        .chains()
        .on_stop
        .iter()
        .map(|entry| Stopping { turn: flight.turn.clone(), hook: entry.name.clone(), trace: trace.clone() })
        .collect();
    let runs = agent.chains().on_stop.iter().zip(&views).filter_map(|(entry, view)| {
        let hook = entry.hook()?;
        // Stop hooks are always told of, and before they tell anything themselves: they wait for one poll first.
        let judge = async move {
            tokio::task::yield_now().await;
            hook.on_stop(view).await
        };
        Some(Run::new(&frame, entry, Point::OnStop).decide(Box::pin(judge)))
    });
    let (mut refusals, mut pauses) = (Vec::new(), Vec::new());
    let (mut prevented, mut blocked) = (None, None);
    for (entry, ran) in agent.chains().on_stop.iter().zip(try_join_all(runs).await?) {
        let hook = entry.name.clone();
        let decided = ran.unless_blocked(&flight.turn.frame, entry, &mut flight.records).unwrap_or_else(|interrupt| {
            blocked.get_or_insert(interrupt);
            None
        });
        if let Some(failure) = flight.records.last().and_then(|record| record.failure.clone()) {
            flight.warn(Some(hook.clone()), format!("it failed, and nobody judged in its place: {failure}"));
        }
        match decided {
            None | Some(OnStop::Accept) => {}
            Some(OnStop::Advise(text)) => closing.injections.push((hook, text.to_string().into())),
            Some(OnStop::Refuse(feedback)) => refusals.push(Refusal { hook, feedback }),
            Some(OnStop::Pause(reason)) => pauses.push((hook, reason)),
            Some(OnStop::Prevent(reason)) => {
                prevented.get_or_insert_with(|| Verdict::new(Outcome::Halted, reason).by(By::Hook(hook)));
            }
        }
    }
    if let Some(interrupt) = blocked {
        return Err(interrupt);
    }
    if let Some(verdict) = prevented {
        return Err(verdict.into());
    }
    if !refusals.is_empty() && !overruled(flight, &refusals) {
        let with = if flight.beside.warnings.is_empty() { With::NOTHING } else { With::BESIDE };
        flight.write([EventKind::StopFeedback { refusals }], with).await?;
        return Ok(false);
    }
    if pauses.is_empty() {
        return Ok(true);
    }
    flight.beside.advice = std::mem::take(&mut closing.injections);
    pause(flight, pauses).await?;
    Ok(false)
}

/// A refusal is fed back only so often, and never twice in the same words with nothing done in between.
fn overruled(flight: &mut Flight, refusals: &[Refusal]) -> bool {
    let most = flight.frame().limits.max_stop_refusals;
    let Some(turn) = &flight.state.turn else { return false };
    let why = if turn.refused >= most {
        format!("overruled after {most} refused stops in a row")
    } else if turn.last_refusals == refusals {
        "overruled: the same refusal twice, and nothing was done in between".to_owned()
    } else {
        return false;
    };
    for refusal in refusals {
        flight.warn(Some(refusal.hook.clone()), why.clone());
    }
    true
}

async fn pause(flight: &mut Flight, pauses: Vec<(Text, Text)>) -> Result<(), Interrupt> {
    let frame = flight.frame().clone();
    let expires = frame.clock.now().after(frame.limits.approval_timeout);
    let ask = |(hook, reason)| EventKind::Suspension {
        call: frame.house.ids.mint("pause_").into(),
        prompt: Prompt::Pause { hook, reason },
        expires,
    };
    Ok(flight.write(pauses.into_iter().map(ask), With::BESIDE).await?)
}

/// The tools of this turn, in call order.
fn tool_trace(flight: &Flight) -> Vec<ToolTrace> {
    let first = flight.state.turn.as_ref().map_or(0, |turn| turn.first);
    let mut trace: Vec<ToolTrace> = Vec::new();
    for event in &flight.state.history[first..] {
        match &event.kind {
            EventKind::ToolCall { call, name, arguments, .. } => trace.push(ToolTrace {
                call: call.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
                ok: false,
                content: Content::default(),
            }),
            EventKind::ToolResult { call, ok, content } => {
                if let Some(traced) = trace.iter_mut().find(|traced| traced.call == *call) {
                    (traced.ok, traced.content) = (*ok, content.clone());
                }
            }
            _ => {}
        }
    }
    trace
}

/// The `after_agent` hooks, in order.
async fn settle(flight: &mut Flight, closing: &mut Closing) -> Result<(), Interrupt> {
    if flight.frame().agent.chains().after_agent.is_empty() {
        return Ok(());
    }
    let agent = flight.agent();
    let (mut view, mut ended) = (None, None);
    for entry in &agent.chains().after_agent {
        let Some(hook) = entry.hook() else { continue };
        let settled = view.get_or_insert_with(|| Settled::new(flight.turn.clone()));
        let run = Run::new(&flight.turn.frame, entry, Point::AfterAgent).behind(ended);
        let ran = run.decide(hook.after_agent(settled)).await?;
        ended = Some(ran.ended);
        let (injected, result) = (std::mem::take(&mut settled.injected), settled.result.take());
        let Some(decision) = ran.unless_blocked(&flight.turn.frame, entry, &mut flight.records)? else { continue };
        if let Some(result) = result {
            closing.result = Some(Arc::new(result));
            settled.shown.clone_from(&closing.result);
        }
        closing.injections.extend(injected.into_iter().map(|content| (entry.name.clone(), content)));
        if decision == AfterAgent::Halt {
            break;
        }
    }
    Ok(())
}

/// Everything that is left open is closed in the same append as `turn_ended`.
async fn write(flight: &mut Flight, verdict: Verdict, closing: Closing) -> Result<(), Interrupt> {
    let mut kinds: SmallVec<[EventKind; 2]> = SmallVec::new();
    let accepted = flight.state.turn.as_ref().is_some_and(|turn| turn.accepted);
    if !accepted && !flight.erased {
        let content = flight.turn.seen.user_message.clone();
        kinds.push(EventKind::UserMessage { content, by: flight.frame().scope.by() });
    }
    kinds.extend(cut_short(flight, &verdict));
    kinds.extend(left_open(flight, &verdict));
    let at_work = sub_agents(flight);
    kinds.extend(closing.injections.into_iter().map(|(hook, content)| EventKind::Injection {
        hook,
        content,
        place: Place::NextTurn,
    }));
    let frame = flight.frame().clone();
    let ended = TurnEnded {
        outcome: verdict.outcome,
        reason: verdict.reason,
        by: verdict.by,
        result: closing.result,
        warnings: std::mem::take(&mut flight.beside.warnings),
        model_calls: frame.meter.made(),
        usage: frame.meter.usage(),
        cost: frame.meter.spent().cost,
        ms: u64::try_from(flight.stopwatch.active(frame.clock.elapsed()).as_millis()).unwrap_or(u64::MAX),
    };
    kinds.push(EventKind::TurnEnded(ended.clone()));
    let jobs = jobs(flight, ended.outcome, flight.state.seq + kinds.len() as u64);
    flight.jobs.clone_from(&jobs);
    flight.taking.extend(flight.cell.take_heard());
    // Where `on_ended` hooks follow, their records go with the claim; else it goes with this write.
    let lease = if frame.agent.chains().on_ended.is_empty() { Lease::Release } else { Lease::Keep };
    let standing = Some(Standing::Idle);
    let with = With { take_message: !accepted, beside: Keeping::Nothing, jobs, standing, lease };
    flight.write(kinds, with).await?;
    flight.ended = Some(ended);
    flight.outlet = None;
    for inside in at_work {
        flight.call_off(inside).await;
    }
    Ok(())
}

/// Those whose calls are open.
fn sub_agents(flight: &Flight) -> Vec<(ConversationId, Agent)> {
    let open = flight.state.turn.iter().flat_map(|turn| &turn.calls);
    open.filter_map(|open| flight.sub_agent_of(&open.call.call)).collect()
}

/// What was told of a reply that was cut short is what happened; what was held back is dropped.
fn cut_short(flight: &mut Flight, verdict: &Verdict) -> Option<EventKind> {
    let cancelled = verdict.outcome == Outcome::Cancelled;
    let (attempt, content) = match (flight.outlet.take(), flight.beside.asked.take()) {
        (_, Some(asked)) if cancelled && asked.told => (asked.attempt, asked.reply.content),
        (Some(outlet), None) if cancelled => (outlet.attempt(), outlet.told_content()?),
        (Some(mut outlet), _) => {
            outlet.discard(verdict.by.clone(), verdict.reason.clone());
            return None;
        }
        _ => return None,
    };
    Some(EventKind::AssistantMessage {
        attempt,
        content,
        stop_reason: StopReason::Cancelled,
        usage: Usage::default(),
        object: None,
        annotations: None,
    })
}

/// Open questions are resolved and open calls get their one result.
fn left_open(flight: &Flight, verdict: &Verdict) -> Vec<EventKind> {
    let Some(turn) = &flight.state.turn else { return Vec::new() };
    let by = verdict.by.clone().unwrap_or(By::System(System::Recovery));
    let asked = turn.open_questions().map(|question| EventKind::Resolution {
        call: question.call.clone(),
        decision: Resolved::Cancelled,
        by: by.clone(),
        reason: None,
    });
    let calls = turn.calls.iter().map(|open| {
        let text = match (verdict.outcome, open.started) {
            (Outcome::Cancelled, _) => "[cancelled]".to_owned(),
            (Outcome::Exhausted, false) => "[not run: limit]".to_owned(),
            (Outcome::Exhausted, true) => "[interrupted: limit]".to_owned(),
            (outcome, false) => format!("[not run: turn {outcome}]"),
            (outcome, true) => format!("[interrupted: turn {outcome}]"),
        };
        EventKind::ToolResult { call: open.call.call.clone(), ok: false, content: text.into() }
    });
    asked.chain(calls).collect()
}

/// What is to be done when the turn is over: written with it, so that a crash does not lose it.
fn jobs(flight: &Flight, outcome: Outcome, seq: u64) -> Vec<Job> {
    let chains = flight.frame().agent.chains();
    if chains.on_ended.is_empty() && chains.background.is_empty() {
        return Vec::new();
    }
    let aside = outcome == Outcome::Completed && !flight.frame().house.bare;
    let job = |kind: JobKind| {
        let (turn, actor) = (flight.frame().id.clone(), flight.frame().scope.actor().clone());
        let agent = flight.frame().agent.shared_name().clone();
        let due = Some(flight.frame().clock.now());
        move |entry: &HookEntry| Job {
            turn: turn.clone(),
            seq,
            agent: agent.clone(),
            hook: entry.name.clone(),
            kind,
            actor: actor.clone(),
            // The writer begins it: if that is the end of the process, it counts.
            tries: 1,
            error: None,
            due,
        }
    };
    let ended = chains.on_ended.iter().map(job(JobKind::Ended));
    let background = chains.background.iter().filter(|_| aside).map(job(JobKind::Background));
    ended.chain(background).collect()
}
