//! end: stop hooks judge, `after_agent` hooks run, and the turn's end is written in one append.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::try_join_all;

use super::active::{ActiveTurn, Interrupt, Write};
use super::answer::{self, MAX_TRIES};
use super::changes::{self, Applied};
use super::due_summary::{self, NextSummary};
use super::state::{OpenTurn, Verdict};
use super::tool_trace;
use crate::agent::Agent;
use crate::change::{Edited, InjectionSpan};
use crate::event::{Cause, EndDetails, EventKind, InjectionTarget, Outcome, Question, Refusal, Resolved, TurnEnded};
use crate::hook::call::HookCaller;
use crate::hook::{AfterAgent, AfterAgentContext, HookEntry, OnFailure, OnStop, OnStopContext, Point, ToolTrace};
use crate::id::{ConversationId, ItemId};
use crate::message::{Content, Reply, StopReason, Text, Usage};
use crate::scope::{Author, SystemAuthor};
use crate::store::{ConversationStatus, Job, JobKind, Lease, StoreError};

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let mut closing = Closing::default();
    let decided = active.progress.verdict.clone();
    let decided = decided.or_else(|| active.state.turn.as_ref().and_then(|turn| turn.verdict.clone()));
    let verdict = match decided {
        Some(verdict) => verdict,
        None => {
            active.ctx().abort.check()?;
            match active.scratch.last_answer.clone() {
                // There is no budget left for what a stop hook could ask for.
                Some(limit) => {
                    closing.result = active.turn.assistant_message().map(|reply| last_result(reply));
                    observers_caught_up(active).await?;
                    Verdict::exhausted(limit)
                }
                None => {
                    if !judge(active, &mut closing).await? {
                        return Ok(());
                    }
                    after_agent(active, &mut closing).await?;
                    observers_caught_up(active).await?;
                    Verdict::completed()
                }
            }
        }
    };
    write(active, verdict, closing).await
}

/// The last answer as the result of its turn.
fn last_result(reply: &Reply) -> Arc<serde_json::Value> {
    reply.object.clone().unwrap_or_else(|| Arc::new(reply.content.text().into()))
}

/// Waits until those observers have seen everything whose failure would end the turn: it must not complete before.
async fn observers_caught_up(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let ctx = active.ctx();
    let blocks = |entry: &HookEntry| entry.failure_policy(Point::OnEvent) == OnFailure::Block;
    if !ctx.agent.hooks_at(Point::OnEvent).iter().any(blocks) {
        return Ok(());
    }
    Ok(ctx.abort.race(ctx.host.observers_caught_up()).await?)
}

/// What the hooks of this stage leave for the last append.
#[derive(Default)]
struct Closing {
    /// For the next turn, by hook.
    injections: Vec<(Text, Content)>,
    result: Option<Arc<serde_json::Value>>,
}

/// Asks the stop hooks, concurrently; all finish. False if the turn goes on.
async fn judge(active: &mut ActiveTurn, closing: &mut Closing) -> Result<bool, Interrupt> {
    if is_stop_approved(active).await? {
        closing.injections = std::mem::take(&mut active.scratch.edit().advice);
        return Ok(true);
    }
    let ctx = active.ctx().clone();
    let hooks = ctx.agent.hooks_at(Point::OnStop);
    if hooks.is_empty() {
        return Ok(true);
    }
    let trace: Arc<[ToolTrace]> = tool_trace::of(active).await?.into();
    let view =
        |entry: &HookEntry| OnStopContext { turn: active.turn.clone(), hook: entry.name.clone(), trace: trace.clone() };
    let views: Vec<OnStopContext> = hooks.iter().map(view).collect();
    let runs = hooks.iter().zip(&views).filter_map(|(entry, view)| {
        let (hook, ctx) = (entry.hook()?, &ctx);
        Some(async move {
            let mut caller = HookCaller::new(ctx, Point::OnStop)
                .given(|| serde_json::to_string(&view.turn.view.assistant_message).unwrap_or_default());
            // Viewers are always told of stop hooks, and before the hooks say anything themselves: yield once first.
            let judge = async {
                tokio::task::yield_now().await;
                hook.on_stop(view).await
            };
            caller.run(entry, pin!(judge)).await.map(|run| (caller, run))
        })
    });
    let runs = try_join_all(runs).await?;
    let (mut refusals, mut pauses) = (Vec::new(), Vec::new());
    let (mut prevented, mut blocked) = (None, None);
    for (entry, (caller, run)) in hooks.iter().zip(runs) {
        let hook = entry.name.clone();
        if let Err(failure) = &run.result {
            let cause = Cause::HookFailed { hook: hook.clone(), point: Point::OnStop };
            let text = format!("it failed, and nobody judged in its place: {failure}");
            active.warn(Some(hook.clone()), text, cause);
        }
        let decided = caller.unless_blocked(entry, run, &mut active.records).unwrap_or_else(|interrupt| {
            blocked.get_or_insert(interrupt);
            None
        });
        match decided {
            None | Some(OnStop::Accept) => {}
            Some(OnStop::Advise(text)) => closing.injections.push((hook, text.to_string().into())),
            Some(OnStop::Refuse(feedback)) => refusals.push(Refusal { hook, feedback }),
            Some(OnStop::Pause(reason)) => pauses.push((hook, reason)),
            Some(OnStop::Prevent(reason)) => {
                prevented.get_or_insert_with(|| Verdict::by_hook(Outcome::Halted, reason, &hook, Point::OnStop));
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
        active.write([EventKind::StopFeedback { refusals }]).await?;
        return Ok(false);
    }
    if pauses.is_empty() {
        return Ok(true);
    }
    active.scratch.edit().advice = std::mem::take(&mut closing.injections);
    pause(active, pauses).await?;
    Ok(false)
}

/// Whether people approved the pauses of this stop. They must be people who may.
async fn is_stop_approved(active: &mut ActiveTurn) -> Result<bool, Interrupt> {
    // Of several pauses one may have been denied when the turn was about to be stopped, and then was not: the hooks are asked again.
    if active.state.turn.as_ref().is_some_and(OpenTurn::is_pause_denied) {
        return Ok(false);
    }
    let pauses = active.state.turn.iter().flat_map(OpenTurn::approved_pauses);
    let pauses: Vec<_> = pauses.map(|pause| (pause.clone(), active.scratch.answered_by(&pause.call))).collect();
    for (pause, by) in &pauses {
        if !active.ctx().clone().accepts_answer(pause, by).await? {
            let reason = "those who approved the pause may not approve it";
            return Err(Verdict::new(Outcome::Halted, reason, Cause::NotApproved).into());
        }
    }
    Ok(!pauses.is_empty())
}

/// Whether a refusal is overruled: it is fed back only so often, and never twice in the same words with nothing done in
/// between.
fn overruled(active: &mut ActiveTurn, refusals: &[Refusal]) -> bool {
    let most = active.ctx().limits.max_stop_refusals;
    let Some(turn) = &active.state.turn else { return false };
    let hooks = active.ctx().agent.hooks_at(Point::OnStop);
    let may_repeat =
        |refusal: &Refusal| hooks.iter().any(|entry| entry.name == refusal.hook && entry.settings().repeats_refusals);
    let why = if turn.refused >= most {
        format!("overruled after {most} refused stops in a row")
    } else if turn.last_refusals == refusals && !refusals.iter().any(may_repeat) {
        "overruled: the same refusal twice, and nothing was done in between".to_owned()
    } else {
        return false;
    };
    for Refusal { hook, .. } in refusals {
        active.warn(Some(hook.clone()), why.clone(), Cause::Overruled { hook: hook.clone() });
    }
    true
}

async fn pause(active: &mut ActiveTurn, pauses: Vec<(Text, Text)>) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let mut write = active.new_write();
    for (hook, reason) in pauses {
        let call = ctx.services.ids.mint("pause_").into();
        write.push(ctx.suspension(call, Question::Pause { hook, reason }, None).await?);
    }
    Ok(active.append(write).await?)
}

/// Runs the `after_agent` hooks, in order.
async fn after_agent(active: &mut ActiveTurn, closing: &mut Closing) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let hooks = ctx.agent.hooks_at(Point::AfterAgent);
    if hooks.is_empty() {
        return Ok(());
    }
    let mut caller = HookCaller::new(&ctx, Point::AfterAgent)
        .given(|| serde_json::to_string(&active.turn.view.assistant_message).unwrap_or_default());
    let mut view = AfterAgentContext::new(active.turn.clone());
    for entry in hooks {
        let Some(hook) = entry.hook() else { continue };
        let run = caller.run(entry, pin!(hook.after_agent(&mut view))).await?;
        let (injected, result) = (std::mem::take(&mut view.injected), view.result.take());
        let Some(decision) = caller.unless_blocked(entry, run, &mut active.records)? else { continue };
        if let Some(result) = result {
            let before =
                closing.result.take().or_else(|| active.turn.assistant_message().map(|reply| last_result(reply)));
            let applied = Applied::new(Edited::TurnResult, before.as_deref().map(in_words), in_words(&result));
            changes::note_edit(&ctx, entry, &mut active.records, applied);
            closing.result = Some(Arc::new(result));
            view.shown.clone_from(&closing.result);
        }
        for content in &injected {
            changes::note_injected(&ctx, &mut active.records, &entry.name, content, InjectionSpan::NextTurn);
        }
        closing.injections.extend(injected.into_iter().map(|content| (entry.name.clone(), content)));
        if decision == AfterAgent::Halt {
            break;
        }
    }
    Ok(())
}

/// The result of a turn as text.
fn in_words(result: &serde_json::Value) -> Text {
    result.as_str().map_or_else(|| result.to_string().into(), Text::from)
}

/// Writes the end of the turn. An answer that another process stored before was acknowledged: it is in the log before the end,
/// although nothing follows from it any more.
async fn write(active: &mut ActiveTurn, verdict: Verdict, closing: Closing) -> Result<(), Interrupt> {
    let (mut acknowledged, mut tries) = (Vec::new(), 0);
    loop {
        match close(active, &verdict, &closing, &mut acknowledged).await {
            // After so many tries the turn stays open, and whoever takes it up ends it.
            Err(Interrupt::Store(StoreError::AlreadyAnswered { .. })) if tries < MAX_TRIES => tries += 1,
            done => return done,
        }
        // What is taken up now sets nothing going.
        active.settle(verdict.clone());
        // In a box: few turns end with such an answer, and the future of every turn would be larger.
        Box::pin(take_up_stored(active)).await?;
    }
}

/// Writes the answers that wait in the inbox, or refuses them, as a turn does that goes on.
async fn take_up_stored(active: &mut ActiveTurn) -> Result<(), StoreError> {
    active.releases_with_answer = false;
    for order in active.ctx().clone().host.stored_answers().await? {
        answer::take(active, order).await?;
    }
    Ok(())
}

/// Closes everything that is open and writes `turn_ended`, in one append. If the store refuses it, because there are answers that
/// were stored before, everything is as it was. `acknowledged` are inbox items that this append removes and no other one may:
/// a cancellation must outlast a crash before the end.
async fn close(
    active: &mut ActiveTurn,
    verdict: &Verdict,
    closing: &Closing,
    acknowledged: &mut Vec<ItemId>,
) -> Result<(), Interrupt> {
    let mut write = active.new_write();
    let accepted = active.state.turn.as_ref().is_some_and(|turn| turn.accepted);
    if !accepted && !active.erased {
        let content = active.turn.view.user_message.clone();
        write.push(EventKind::UserMessage { content, by: active.ctx().scope.by() });
    }
    write.extend(cut_off_reply(active, verdict));
    close_calls(active, verdict, &mut write);
    let over = open_sub_agents(active);
    write.extend(closing.injections.iter().map(|(hook, content)| EventKind::Injection {
        hook: hook.clone(),
        content: content.clone(),
        place: InjectionTarget::NextTurn,
    }));
    let ctx = active.ctx().clone();
    let used = ctx.budget.used();
    let details = EndDetails {
        reason: verdict.reason.clone(),
        cause: verdict.cause.clone(),
        by: verdict.by.clone(),
        result: closing.result.clone(),
        warnings: active.scratch.warnings.clone(),
    };
    let ended = Arc::new(TurnEnded {
        outcome: verdict.outcome,
        details: details.boxed(),
        model_calls: used.calls,
        usage: used.usage,
        cost: used.cost,
        ms: u64::try_from(active.stopwatch.active(ctx.clock().elapsed()).as_millis()).unwrap_or(u64::MAX),
        agent: Some(active.scratch.agent.clone()),
    });
    write.push(EventKind::TurnEnded(ended.clone()));
    write.jobs = jobs(active, ended.outcome, write.last_seq());
    let next = due_summary::next(active, &ended, write.last_seq()).await?;
    // An agent that stands in for another cannot do them: they wait for the one that has the hooks.
    if !ctx.agent.is_stand_in() {
        active.jobs.clone_from(&write.jobs);
    }
    active.summary_is_due = !matches!(next, NextSummary::None);
    if let NextSummary::Job(job) = next {
        write.jobs.push(*job);
    }
    // Without open questions the store has no reason to refuse it.
    let asks = active.state.turn.as_ref().is_some_and(|turn| turn.open_questions().next().is_some());
    let before = asks.then(|| (active.restore_point(), active.done_items.clone()));
    acknowledged.extend(ctx.host.take_acknowledged());
    active.done_items.extend(acknowledged.iter().cloned());
    // Where `on_ended` hooks follow, the claim is given back with their records; otherwise it is given back now.
    write.lease = if ctx.agent.hooks_at(Point::OnEnded).is_empty() { Lease::Release } else { Lease::Keep };
    write.take_message = !accepted;
    write.delete_scratch = true;
    write.status = Some(ConversationStatus::Idle);
    if let Err(error) = active.append(write).await {
        if let (StoreError::AlreadyAnswered { .. }, Some((point, done_items))) = (&error, before) {
            active.restore(point);
            active.done_items = done_items;
        }
        return Err(error.into());
    }
    active.ended = Some(ended);
    active.reply = None;
    for sub_agent in over {
        active.cancel_sub_agent(sub_agent).await;
    }
    Ok(())
}

/// Sub-agents whose calls are open.
fn open_sub_agents(active: &ActiveTurn) -> Vec<(ConversationId, Agent)> {
    let open = active.state.turn.iter().flat_map(|turn| turn.calls.iter());
    open.filter_map(|(call, _)| active.sub_agent_of(call)).collect()
}

/// What viewers saw of a reply that was cut off by a cancellation is what happened; what was held back is dropped. A
/// reply that is cut off for another reason is taken back, as one was that people denied.
fn cut_off_reply(active: &mut ActiveTurn, verdict: &Verdict) -> Option<EventKind> {
    let cancelled = verdict.outcome == Outcome::Cancelled;
    let (attempt, content, model) = match (&active.reply, &active.scratch.asked) {
        (_, Some(_)) if active.state.turn.as_ref().is_some_and(OpenTurn::is_reply_denied) => return None,
        (_, Some(asked)) if cancelled && asked.told => {
            (asked.attempt, asked.reply.content.clone(), asked.reply.model.clone())
        }
        (Some(stream), None) if cancelled => {
            (stream.attempt(), stream.shown_content()?, active.ctx().budget.last_attempt().model)
        }
        _ => {
            if let Some(mut stream) = active.reply.take() {
                stream.discard(verdict.by.clone(), verdict.reason.clone());
            }
            return None;
        }
    };
    Some(EventKind::AssistantMessage {
        attempt,
        content,
        stop_reason: StopReason::Cancelled,
        usage: Usage::default(),
        cost: 0.0,
        extras: None,
        model,
    })
}

/// Resolves open questions, and gives open calls their one result.
fn close_calls(active: &ActiveTurn, verdict: &Verdict, write: &mut Write) {
    let Some(turn) = &active.state.turn else { return };
    write.extend(turn.open_questions().map(|question| EventKind::Resolution {
        call: question.call.clone(),
        decision: Resolved::Cancelled,
        by: verdict.by.clone().unwrap_or(Author::System(SystemAuthor::Program)),
        reason: None,
        evidence: Box::default(),
    }));
    write.extend(turn.calls.iter().map(|(call, open)| {
        let text = match (verdict.outcome, open.started) {
            (Outcome::Cancelled, _) => "[cancelled]".to_owned(),
            (Outcome::Exhausted, false) => "[not run: limit]".to_owned(),
            (Outcome::Exhausted, true) => "[interrupted: limit]".to_owned(),
            (outcome, false) => format!("[not run: turn {outcome}]"),
            (outcome, true) => format!("[interrupted: turn {outcome}]"),
        };
        EventKind::ToolResult { call: call.clone(), ok: false, content: text.into() }
    }));
}

/// What is to be done after the turn. It is written with the turn's end, so that a crash does not lose it.
fn jobs(active: &ActiveTurn, outcome: Outcome, seq: u64) -> Vec<Job> {
    let ctx = active.ctx();
    let (on_ended, background) = (ctx.agent.hooks_at(Point::OnEnded), ctx.agent.hooks_at(Point::Background));
    // Hooks of the agent that the turn began with, where another one stands in for it.
    let of_another = if ctx.agent.is_stand_in() { &ctx.agent.parts().hooks[..] } else { &[] };
    if on_ended.is_empty() && background.is_empty() && of_another.is_empty() {
        return Vec::new();
    }
    let now = ctx.clock().now();
    let job = |(hook, used): (&Text, Option<&Text>), kind: JobKind, tries: u32| Job {
        turn: ctx.id.clone(),
        seq,
        agent: ctx.agent_name().clone(),
        hook: hook.clone(),
        used: used.cloned(),
        kind,
        actor: ctx.scope.actor().clone(),
        tries,
        error: None,
        due: Some(now),
        reminder: None,
        spent: None,
        partial: None,
    };
    fn named(entry: &HookEntry) -> (&Text, Option<&Text>) {
        (&entry.name, entry.configured_use())
    }
    let run_background = outcome == Outcome::Completed && ctx.services.background_hooks;
    // This process begins them at once, so the first try is counted now: if it takes the process down, it counts.
    let background =
        background.iter().filter(|_| run_background).map(|entry| job(named(entry), JobKind::Background, 1));
    let on_ended = on_ended.iter().map(|entry| job(named(entry), JobKind::Ended, 1));
    let of_another = of_another
        .iter()
        .filter(|hook| hook.on_ended)
        .map(|hook| job((&hook.name, hook.configured_use()), JobKind::Ended, 0));
    on_ended.chain(background).chain(of_another).collect()
}
