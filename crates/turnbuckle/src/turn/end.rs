//! end: stop hooks judge, `after_agent` hooks have the last word, and the turn is written off in one append.

use std::sync::Arc;

use futures_util::future::try_join_all;
use smallvec::SmallVec;

use super::active::{ActiveTurn, Interrupt, Keeping, With};
use super::state::{OpenTurn, Verdict};
use crate::agent::Agent;
use crate::event::{EventKind, InjectionTarget, Outcome, Question, Refusal, Resolved, TurnEnded};
use crate::hook::run::Run;
use crate::hook::{AfterAgent, AfterAgentContext, HookEntry, OnFailure, OnStop, OnStopContext, Point, ToolTrace};
use crate::id::ConversationId;
use crate::message::{Content, StopReason, Text, Usage};
use crate::scope::{Author, SystemAuthor};
use crate::store::{ConversationStatus, Job, JobKind, Lease};

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let mut closing = Closing::default();
    let verdict = match active.state.turn.as_ref().and_then(|turn| turn.verdict.clone()) {
        Some(verdict) => verdict,
        None => {
            active.ctx().abort.check()?;
            if !judge(active, &mut closing).await? {
                return Ok(());
            }
            settle(active, &mut closing).await?;
            observed(active).await?;
            Verdict { outcome: Outcome::Completed, reason: None, by: None }
        }
    };
    write(active, verdict, closing).await
}

/// No turn completes before those observers have seen it whose failure would end it.
async fn observed(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let blocks = |entry: &HookEntry| entry.failure_policy(Point::OnEvent) == OnFailure::Block;
    if !active.ctx().agent.chains().on_event.iter().any(blocks) {
        return Ok(());
    }
    Ok(active.ctx().abort.race(active.cell.observed()).await?)
}

/// What the hooks of this stage leave for the last append.
#[derive(Default)]
struct Closing {
    injections: Vec<(Text, Content)>,
    result: Option<Arc<serde_json::Value>>,
}

/// Asks the stop hooks, side by side; all finish. False if the turn goes on.
async fn judge(active: &mut ActiveTurn, closing: &mut Closing) -> Result<bool, Interrupt> {
    let approved = active.state.turn.as_ref().is_some_and(OpenTurn::stop_approved);
    if approved {
        closing.injections = std::mem::take(&mut active.scratch.advice);
        return Ok(true);
    }
    if active.ctx().agent.chains().on_stop.is_empty() {
        return Ok(true);
    }
    let agent = active.agent();
    let trace: Arc<[ToolTrace]> = tool_trace(active).into();
    let ctx = active.ctx().clone();
    let views: Vec<OnStopContext> = agent
        .chains()
        .on_stop
        .iter()
        .map(|entry| OnStopContext { turn: active.turn.clone(), hook: entry.name.clone(), trace: trace.clone() })
        .collect();
    let runs = agent.chains().on_stop.iter().zip(&views).filter_map(|(entry, view)| {
        let hook = entry.hook()?;
        // Stop hooks are always told of, and before they tell anything themselves: they wait for one poll first.
        let judge = async move {
            tokio::task::yield_now().await;
            hook.on_stop(view).await
        };
        Some(Run::new(&ctx, entry, Point::OnStop).decide(Box::pin(judge)))
    });
    let (mut refusals, mut pauses) = (Vec::new(), Vec::new());
    let (mut prevented, mut blocked) = (None, None);
    for (entry, finished) in agent.chains().on_stop.iter().zip(try_join_all(runs).await?) {
        let hook = entry.name.clone();
        let decided =
            finished.unless_blocked(&active.turn.ctx, entry, &mut active.records).unwrap_or_else(|interrupt| {
                blocked.get_or_insert(interrupt);
                None
            });
        if let Some(failure) = active.records.last().and_then(|record| record.failure.clone()) {
            active.warn(Some(hook.clone()), format!("it failed, and nobody judged in its place: {failure}"));
        }
        match decided {
            None | Some(OnStop::Accept) => {}
            Some(OnStop::Advise(text)) => closing.injections.push((hook, text.to_string().into())),
            Some(OnStop::Refuse(feedback)) => refusals.push(Refusal { hook, feedback }),
            Some(OnStop::Pause(reason)) => pauses.push((hook, reason)),
            Some(OnStop::Prevent(reason)) => {
                prevented.get_or_insert_with(|| Verdict::new(Outcome::Halted, reason).by(Author::Hook(hook)));
            }
        }
    }
    if let Some(interrupt) = blocked {
        return Err(interrupt);
    }
    if let Some(verdict) = prevented {
        return Err(verdict.into());
    }
    if !refusals.is_empty() && !overruled(active, &refusals) {
        let with = if active.scratch.warnings.is_empty() { With::NOTHING } else { With::BESIDE };
        active.write([EventKind::StopFeedback { refusals }], with).await?;
        return Ok(false);
    }
    if pauses.is_empty() {
        return Ok(true);
    }
    active.scratch.advice = std::mem::take(&mut closing.injections);
    pause(active, pauses).await?;
    Ok(false)
}

/// A refusal is fed back only so often, and never twice in the same words with nothing done in between.
fn overruled(active: &mut ActiveTurn, refusals: &[Refusal]) -> bool {
    let most = active.ctx().limits.max_stop_refusals;
    let Some(turn) = &active.state.turn else { return false };
    let why = if turn.refused >= most {
        format!("overruled after {most} refused stops in a row")
    } else if turn.last_refusals == refusals {
        "overruled: the same refusal twice, and nothing was done in between".to_owned()
    } else {
        return false;
    };
    for refusal in refusals {
        active.warn(Some(refusal.hook.clone()), why.clone());
    }
    true
}

async fn pause(active: &mut ActiveTurn, pauses: Vec<(Text, Text)>) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let expires = ctx.clock.now().after(ctx.limits.approval_timeout);
    let ask = |(hook, reason)| EventKind::Suspension {
        call: ctx.runtime.ids.mint("pause_").into(),
        question: Question::Pause { hook, reason },
        expires,
    };
    Ok(active.write(pauses.into_iter().map(ask), With::BESIDE).await?)
}

/// The tools of this turn, in call order.
fn tool_trace(active: &ActiveTurn) -> Vec<ToolTrace> {
    let first = active.state.turn.as_ref().map_or(0, |turn| turn.first);
    let mut trace: Vec<ToolTrace> = Vec::new();
    for event in &active.state.history[first..] {
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
async fn settle(active: &mut ActiveTurn, closing: &mut Closing) -> Result<(), Interrupt> {
    if active.ctx().agent.chains().after_agent.is_empty() {
        return Ok(());
    }
    let agent = active.agent();
    let (mut view, mut ended) = (None, None);
    for entry in &agent.chains().after_agent {
        let Some(hook) = entry.hook() else { continue };
        let settled = view.get_or_insert_with(|| AfterAgentContext::new(active.turn.clone()));
        let run = Run::new(&active.turn.ctx, entry, Point::AfterAgent).behind(ended);
        let finished = run.decide(hook.after_agent(settled)).await?;
        ended = Some(finished.ended);
        let (injected, result) = (std::mem::take(&mut settled.injected), settled.result.take());
        let Some(decision) = finished.unless_blocked(&active.turn.ctx, entry, &mut active.records)? else { continue };
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
async fn write(active: &mut ActiveTurn, verdict: Verdict, closing: Closing) -> Result<(), Interrupt> {
    let mut kinds: SmallVec<[EventKind; 2]> = SmallVec::new();
    let accepted = active.state.turn.as_ref().is_some_and(|turn| turn.accepted);
    if !accepted && !active.erased {
        let content = active.turn.view.user_message.clone();
        kinds.push(EventKind::UserMessage { content, by: active.ctx().scope.by() });
    }
    kinds.extend(cut_short(active, &verdict));
    kinds.extend(left_open(active, &verdict));
    let at_work = sub_agents(active);
    kinds.extend(closing.injections.into_iter().map(|(hook, content)| EventKind::Injection {
        hook,
        content,
        place: InjectionTarget::NextTurn,
    }));
    let ctx = active.ctx().clone();
    let ended = TurnEnded {
        outcome: verdict.outcome,
        reason: verdict.reason,
        by: verdict.by,
        result: closing.result,
        warnings: std::mem::take(&mut active.scratch.warnings),
        model_calls: ctx.budget.made(),
        usage: ctx.budget.usage(),
        cost: ctx.budget.spent().cost,
        ms: u64::try_from(active.stopwatch.active(ctx.clock.elapsed()).as_millis()).unwrap_or(u64::MAX),
    };
    kinds.push(EventKind::TurnEnded(ended.clone()));
    let jobs = jobs(active, ended.outcome, active.state.seq + kinds.len() as u64);
    active.jobs.clone_from(&jobs);
    active.taking.extend(active.cell.take_heard());
    // Where `on_ended` hooks follow, their records go with the claim; else it goes with this write.
    let lease = if ctx.agent.chains().on_ended.is_empty() { Lease::Release } else { Lease::Keep };
    let standing = Some(ConversationStatus::Idle);
    let with = With { take_message: !accepted, scratch: Keeping::Nothing, jobs, standing, lease };
    active.write(kinds, with).await?;
    active.ended = Some(ended);
    active.reply_stream = None;
    for inside in at_work {
        active.call_off(inside).await;
    }
    Ok(())
}

/// Those whose calls are open.
fn sub_agents(active: &ActiveTurn) -> Vec<(ConversationId, Agent)> {
    let open = active.state.turn.iter().flat_map(|turn| &turn.calls);
    open.filter_map(|open| active.sub_agent_of(&open.call.call)).collect()
}

/// What was told of a reply that was cut short is what happened; what was held back is dropped.
fn cut_short(active: &mut ActiveTurn, verdict: &Verdict) -> Option<EventKind> {
    let cancelled = verdict.outcome == Outcome::Cancelled;
    let (attempt, content) = match (active.reply_stream.take(), active.scratch.asked.take()) {
        (_, Some(asked)) if cancelled && asked.told => (asked.attempt, asked.reply.content),
        (Some(reply_stream), None) if cancelled => (reply_stream.attempt(), reply_stream.told_content()?),
        (Some(mut reply_stream), _) => {
            reply_stream.discard(verdict.by.clone(), verdict.reason.clone());
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
fn left_open(active: &ActiveTurn, verdict: &Verdict) -> Vec<EventKind> {
    let Some(turn) = &active.state.turn else { return Vec::new() };
    let by = verdict.by.clone().unwrap_or(Author::System(SystemAuthor::Recovery));
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
fn jobs(active: &ActiveTurn, outcome: Outcome, seq: u64) -> Vec<Job> {
    let chains = active.ctx().agent.chains();
    if chains.on_ended.is_empty() && chains.background.is_empty() {
        return Vec::new();
    }
    let aside = outcome == Outcome::Completed && !active.ctx().runtime.bare;
    let job = |kind: JobKind| {
        let (turn, actor) = (active.ctx().id.clone(), active.ctx().scope.actor().clone());
        let agent = active.ctx().agent.shared_name().clone();
        let due = Some(active.ctx().clock.now());
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
