//! build: the context of the next model call is reduced if it is too large, assembled, shown to the `before_model` hooks, and
//! counted once.

use std::pin::pin;
use std::sync::Arc;

use super::active::{ActiveTurn, Interrupt};
use super::changes;
use super::inject::{Addition, admit, cost_of, run_group};
use super::last_answer;
use super::state::Verdict;
use super::steer;
use super::view::Turn;
use crate::audit::message_json;
use crate::change::InjectionSpan;
use crate::context::layout::{self, ContextCache, Overlay};
use crate::context::plan::Pressure;
use crate::context::reducer;
use crate::context::reserve::{Candidate, Overflow, total};
use crate::context::tokens;
use crate::cut::steps::SEARCH_HISTORY;
use crate::cut::{Cut, CutCause, Factor};
use crate::event::{Cause, Event, EventKind, Outcome};
use crate::feed::{Level, LiveEvent};
use crate::hook::call::HookCaller;
use crate::hook::erased::DynHook;
use crate::hook::{BeforeModel, BeforeModelContext, Code, HookEntry, Point};
use crate::message::{Content, Message, Part, Text};
use crate::model::{Estimate, Request, Segments};
use crate::output_schema::OutputSchema;

/// What the words around a discarded reply cost: more than they take.
const REGENERATION_FRAME: u64 = 32;

/// A request that was too long, as its provider said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRequest {
    /// What corrects estimates from now on.
    pub(crate) factor: Factor,
    /// How many tokens a request may have, if that was said.
    pub(crate) limit: Option<u64>,
    /// Estimated tokens that hooks had added to it; more than any reserve if that is not known.
    pub(crate) added: u64,
    /// Attempts at the reply so far.
    pub(crate) attempts: u32,
    /// Whether the context was made smaller since. A second refusal ends the turn.
    pub(crate) is_answered: bool,
}

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    active.ctx().abort.check()?;
    last_answer::look_ahead(active)?;
    steer::take_in(active).await?;
    let cut = make_room(active);
    if let Some(refused) = &mut active.refused {
        refused.is_answered = true;
    }
    active.memory.edited_by = None;
    let (messages, segments) = assemble(active);
    if let Some(cut) = cut {
        active.ctx().publish(LiveEvent::compacted(&cut, messages.len()));
    }
    let mut request = request(active, messages);
    request.segments = segments;
    tell_of_budget(active, &mut request);
    let stop_active = active.state.turn.as_ref().is_some_and(|turn| turn.stop_active);
    let view = active.turn.edit();
    view.context = Some(request);
    view.assistant_message = None;
    view.stop_active = stop_active;
    if active.turn.view.injections.len() != active.injected.len() {
        // The injections of the call before this one are gone.
        active.show_injections();
    }
    if !active.ctx().agent.hooks_at(Point::BeforeModel).is_empty() {
        run_hooks(active).await?;
    }
    count(active)?;
    active.progress.request_ready = true;
    Ok(())
}

/// Lets the agent's reducers make history and open turn smaller if they have become too large. What they decided is stored with
/// the next write; a process that dies before decides the same again.
fn make_room(active: &mut ActiveTurn) -> Option<Arc<Cut>> {
    let ctx = active.ctx().clone();
    let again = active.scratch.regeneration.as_ref().map_or(0, |again| {
        // The discarded reply and what was wrong with it stand behind the turn.
        tokens::of_content(&again.discarded) + tokens::of_text(&again.feedback) + REGENERATION_FRAME
    });
    let (window, agent) = (&active.state.window, &ctx.agent);
    let refused = active.refused.filter(|refused| !refused.is_answered);
    let least = agent.history_capacity(&ctx.limits, Factor::LARGEST).saturating_sub(again);
    if window.tokens() <= least && window.dropped() == 0 && refused.is_none() {
        // Most calls: the factor need not be looked up.
        return None;
    }
    let factor = factor(active);
    let limit = agent.history_capacity(&ctx.limits, factor).saturating_sub(again);
    let dropped = window.dropped();
    let is_too_large = window.tokens() > limit || refused.is_some();
    if !is_too_large && dropped == 0 {
        return None;
    }
    // A cut is the one moment at which the factor may change.
    let factor =
        refused.map_or_else(|| ctx.services.calibrations.factor(agent.model_choice()), |refused| refused.factor);
    let mut limits = ctx.limits.clone();
    if let Some(refused) = &refused {
        limits.context_tokens = limits.context_tokens.min(refused.limit.unwrap_or(u64::MAX));
        // What hooks may add is more than they do add, and history would go for it: room for as much again is enough. It is at
        // most a quarter, so that a small window is not taken up by what may never come.
        let reserve = limits.injection_reserve.min(limits.context_tokens / 4);
        limits.injection_reserve = reserve.min(factor.apply(refused.added).saturating_mul(2));
    }
    let mut limit = agent.history_capacity(&limits, factor).saturating_sub(again).max(1);
    let mut target = agent.history_target(&limits, factor).min(limit);
    if refused.is_some() {
        // Whatever the estimate says: less than what was too long. If system prompt and tools alone are too long, leaving all
        // of the history out would not help.
        let least = factor.room(limits.context_tokens) / 8;
        limit = limit.max(least).min(window.tokens() / 4 * 3);
        target = target.max(least).min(limit).min(window.tokens() / 2);
    }
    let newest = active.newest_summary.clone().filter(|_| agent.wants_summaries());
    let mut plan = window.plan(newest.as_ref(), &|tool| agent.tool_facts(tool), limit, target);
    plan.set_found_by(agent.tools().iter().map(|tool| &tool.name).find(|name| ***name == *SEARCH_HISTORY).cloned());
    let reduced = match is_too_large {
        true => {
            let from = if refused.is_some() { Pressure::Recent } else { Pressure::Normal };
            reducer::reduce(agent.reducers(), &mut plan, from)
        }
        false => reducer::Reduced::default(),
    };
    for reducer in &reduced.panicked {
        let text = format!("the reducer {reducer} panicked; what it had done before counts");
        ctx.publish(LiveEvent::Notice { level: Level::Warning, text: text.into(), hook: None });
    }
    if plan.tokens() == window.tokens() && dropped == 0 {
        return None;
    }
    let first = window.events().get(plan.events_left_out()).map_or(active.state.seq + 1, |event| event.seq);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (steps, ended_steps) = plan.steps_left_out();
    let cut = Arc::new(Cut {
        turn: ctx.id.clone(),
        made_at: active.state.seq,
        first,
        stubs: plan.stubs(),
        turns: count(plan.turns_left_out()),
        results: count(plan.changed_results().count()),
        calls: count(plan.changed_calls().count()),
        steps: count(steps),
        ended_steps: count(ended_steps),
        left_out: plan.left_out_steps(),
        before: factor.apply(window.tokens() + dropped),
        after: factor.apply(plan.tokens()),
        reducers: reduced.by,
        factor,
        summary: match plan.shows_newer_summary() {
            true => newest.as_ref().map(|newest| newest.version),
            false => window.summary().map(|shown| shown.version),
        },
        cause: if refused.is_some() { CutCause::Refused } else { CutCause::Estimate },
    });
    if agent.wants_summaries() && !ctx.conversation.is_sub_agent() {
        let shown = if plan.shows_newer_summary() { newest.as_ref() } else { window.summary() };
        let uncovered = plan.turns_left_out_behind(shown.map_or(0, |shown| shown.last));
        if uncovered > 0 {
            let turns = if uncovered == 1 { "1 turn was".to_owned() } else { format!("{uncovered} turns were") };
            let text = format!("{turns} left out before there was a summary of them; the next one covers them");
            ctx.publish(LiveEvent::Notice { level: Level::Warning, text: text.into(), hook: None });
        }
    }
    let is_idle = window.last_cut().is_some_and(|last| is_idle_since(active.state.window.events(), last.made_at));
    active.state.cut(&plan, cut.clone(), newest.as_ref());
    active.memory.note_cut(active.cache.messages());
    active.cache = ContextCache::default();
    active.cut = Some(cut.clone());
    if is_idle {
        let text = "the context was made smaller twice, and nothing was said or done in between: the model may be going in circles";
        active.warn_once(text.to_owned(), Cause::RepeatedCompaction);
    }
    Some(cut)
}

/// Whether nobody said anything and no tool ran since the event with this seq.
fn is_idle_since(events: &[Arc<Event>], seq: u64) -> bool {
    let newer = events.iter().rev().take_while(|event| event.seq > seq);
    !newer.map(|event| &event.kind).any(|kind| {
        matches!(kind, EventKind::UserMessage { .. } | EventKind::ToolResult { .. } | EventKind::ToolCall { .. })
    })
}

/// What corrects estimates: what the last cut says, so that the front of contexts moves with cuts only; before the first one,
/// what is known of the model.
pub(super) fn factor(active: &ActiveTurn) -> Factor {
    let ctx = active.ctx();
    let known = || ctx.services.calibrations.factor(ctx.agent.model_choice());
    active.state.window.factor().unwrap_or_else(known)
}

/// Tells the model what is left of the budget, if it is to know, or that this is its last call.
fn tell_of_budget(active: &ActiveTurn, request: &mut Request) {
    let ctx = active.ctx();
    let text = match active.scratch.last_answer.is_some() {
        true => {
            request.withhold_tools();
            last_answer::REQUEST.to_owned()
        }
        false if ctx.limits.show_budget => format!("[left for this turn: {}]", active.turn.remaining_budget()),
        false => return,
    };
    layout::add_at_tail(Arc::make_mut(&mut request.messages), &[Part::text(text)]);
}

fn request(active: &ActiveTurn, messages: Arc<Vec<Message>>) -> Request {
    let agent = &active.ctx().agent;
    let (name, system) = (agent.shared_name().clone(), agent.system().clone());
    let mut request = Request::new(name, system, messages, agent.tools().clone());
    if let Some(schema) = &active.schema {
        request.must_answer_with(schema.schema());
    }
    request
}

/// Restores the context of the last reply, for the hooks and tools behind it, in a turn that goes on after a crash or a
/// wait. What hooks added at the tail of that one call is gone with it.
pub(crate) fn restore_context(active: &mut ActiveTurn) {
    let said = |event: &Arc<Event>| matches!(event.kind, EventKind::AssistantMessage { .. });
    let Some(reply) = active.state.turn_events().iter().rposition(said) else { return };
    let first = active.state.turn.as_ref().map_or(0, |turn| turn.first);
    let (parts, steering) = (transient_parts(&active.injected), steering_parts(&active.injected));
    let (turn, summary) = (Some((&active.turn.ctx.id, parts.as_slice())), active.state.window.summary());
    let left_out = active.state.window.left_out();
    let overlay = Overlay { turn, steering: &steering, regeneration: None, summary, left_out };
    let messages = layout::messages(&active.state.window.events()[..first + reply], &overlay);
    let request = request(active, messages);
    active.turn.edit().context = Some(request);
}

fn assemble(active: &mut ActiveTurn) -> (Arc<Vec<Message>>, Segments) {
    // Drops the request before this one, so that its messages can be reused in place.
    active.turn.edit().context = None;
    let ActiveTurn { turn, state, cache, injected, scratch, .. } = active;
    let ctx = &*turn.ctx;
    let open = state.turn.as_ref().map_or(state.window.len(), |turn| turn.first);
    let (parts, steering) = (transient_parts(injected), steering_parts(injected));
    let (regeneration, summary) = (scratch.regeneration.as_deref(), state.window.summary());
    let (turn, left_out) = (Some((&ctx.id, parts.as_slice())), state.window.left_out());
    let overlay = Overlay { turn, steering: &steering, regeneration, summary, left_out };
    cache.show(state.window.events(), open, &overlay)
}

/// What stands behind the message that opened the turn. Durable injections are in the log already.
fn transient_parts(injected: &[Candidate]) -> Vec<Part> {
    let transient = injected.iter().filter(|candidate| !candidate.durable && candidate.behind.is_none());
    transient.flat_map(|candidate| candidate.injection.content.parts()).cloned().collect()
}

/// What stands behind messages that steered the turn, each part with the seq of its message.
fn steering_parts(injected: &[Candidate]) -> Vec<(u64, Part)> {
    let transient = injected.iter().filter(|candidate| !candidate.durable);
    let placed = transient.filter_map(|candidate| Some((candidate.behind?, candidate.injection.content.parts())));
    placed.flat_map(|(seq, parts)| parts.iter().map(move |part| (seq, part.clone()))).collect()
}

/// What the `before_model` hooks of one call have added.
#[derive(Default)]
struct Added {
    tail: Vec<Candidate>,
    /// Tokens by which edits made the context grow.
    grown: u64,
}

async fn run_hooks(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let context = |turn: &Turn| {
        let messages = turn.context().map(|request| request.messages.clone()).unwrap_or_default();
        messages.iter().map(|message| message_json(message).to_string()).collect::<String>()
    };
    let mut caller = HookCaller::new(&ctx, Point::BeforeModel).given(|| context(&active.turn));
    let mut added = Added::default();
    // One view for the whole chain: making one costs more than calling a hook.
    let mut view = BeforeModelContext::new(active.turn.clone());
    for entry in ctx.agent.hooks_at(Point::BeforeModel) {
        match &*entry.code {
            Code::Hook(hook) => ask(active, &mut caller, &mut view, &mut added, entry, &**hook).await?,
            Code::Group(group) => {
                let (turn, records) = (&active.turn, &mut active.records);
                for (name, content) in run_group(entry, group, Point::BeforeModel, turn, records).await? {
                    inject(active, &mut added, entry, &name, vec![content])?;
                }
                view.turn = active.turn.clone();
            }
        }
    }
    drop(view);
    let parts: Vec<Part> =
        added.tail.iter().flat_map(|candidate| candidate.injection.content.parts()).cloned().collect();
    if let (Some(request), false) = (&mut active.turn.edit().context, parts.is_empty()) {
        layout::add_at_tail(Arc::make_mut(&mut request.messages), &parts);
    }
    Ok(())
}

async fn ask(
    active: &mut ActiveTurn,
    caller: &mut HookCaller<'_>,
    view: &mut BeforeModelContext,
    added: &mut Added,
    entry: &HookEntry,
    hook: &dyn DynHook,
) -> Result<(), Interrupt> {
    let mut run = caller.run(entry, pin!(hook.before_model(view))).await?;
    run.tokens = cost_of(&view.injected);
    let (injected, edited) = (std::mem::take(&mut view.injected), view.edited.take());
    match caller.unless_blocked(entry, run, &mut active.records)? {
        None => return Ok(()),
        Some(BeforeModel::Halt(reason)) => {
            return Err(Verdict::by_hook(Outcome::Halted, reason, &entry.name, Point::BeforeModel).into());
        }
        Some(BeforeModel::Continue) => {}
    }
    if let Some(messages) = edited {
        edit(active, added, entry, messages)?;
        view.turn = active.turn.clone();
    }
    if !injected.is_empty() {
        inject(active, added, entry, &entry.name, injected)?;
        view.turn = active.turn.clone();
    }
    Ok(())
}

/// Replaces this call's messages. What they grew by counts against the reserve.
fn edit(
    active: &mut ActiveTurn,
    added: &mut Added,
    entry: &HookEntry,
    messages: Vec<Message>,
) -> Result<(), Interrupt> {
    let (ctx, hook) = (active.ctx().clone(), &entry.name);
    let Some(request) = &mut active.turn.edit().context else { return Ok(()) };
    if let Some(applied) = changes::edited_context(&request.messages, &messages) {
        changes::note_edit(&ctx, entry, &mut active.records, applied);
    }
    let before = tokens::of_messages(&request.messages);
    added.grown += tokens::of_messages(&messages).saturating_sub(before);
    request.segments = request.segments.moved(&request.messages, &messages);
    request.messages = Arc::new(messages);
    active.memory.edited_by = Some(hook.clone());
    let reserve = active.ctx().limits.injection_reserve;
    let size = added.grown + total(&active.injected) + total(&added.tail);
    if size > reserve {
        return Err(Overflow { hook: hook.clone(), size, reserve }.into());
    }
    Ok(())
}

fn inject(
    active: &mut ActiveTurn,
    added: &mut Added,
    entry: &HookEntry,
    hook: &Text,
    contents: Vec<Content>,
) -> Result<(), Interrupt> {
    let other = added.grown + total(&active.injected);
    let addition = Addition { entry, hook, contents, other, lasts: InjectionSpan::ThisCall };
    admit(&active.turn.ctx, &mut added.tail, &mut active.records, addition)?;
    let all = active.injected.iter().chain(&added.tail);
    let injections = all.map(|candidate| candidate.injection.clone()).collect();
    active.turn.edit().injections = injections;
    Ok(())
}

/// Counts the final context once. What does not fit is not cut: the turn fails and says by how much.
fn count(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let Some(request) = active.turn.context() else { return Ok(()) };
    let last = active.last_sent.as_ref().map(|last| &last.ends);
    let memory = &mut *active.memory;
    memory.built = active.cache.measure(&mut memory.measure, request, memory.edited_by.is_some(), last);
    let schema = active.schema.as_ref().map(OutputSchema::schema);
    let fixed = match schema {
        // Offered instead of tools.
        Some(schema) => tokens::of_text(&request.system) + tokens::of_json(schema),
        None => active.ctx().agent.fixed_tokens(),
    };
    let estimate = Estimate::of(&request.messages, fixed + active.memory.built.total().tokens);
    let (limit, model) = (active.ctx().limits.context_tokens, active.ctx().agent.model());
    // The factor is looked up only where it can matter.
    let is_small = Factor::LARGEST.with_margin(estimate.tokens) <= limit / 2;
    let factor = if is_small { Factor::LARGEST } else { factor(active) };
    let mut size = factor.with_margin(estimate.tokens);
    if size > limit / 2 && model.count_tokens("").is_some() {
        // Only near the limit does an exact count change anything, and counting exactly takes time.
        let counted =
            |text: &str| model.count_tokens(text).unwrap_or_else(|| factor.with_margin(tokens::of_text(text)));
        let offered: u64 = request.tools().iter().map(|tool| tokens::of_definition_by(tool, &counted)).sum();
        let schema = schema.map_or(0, |schema| counted(&schema.to_string()));
        size = counted(&request.system) + offered + schema + tokens::of_messages_by(&request.messages, &counted);
    }
    if size > limit {
        let reason = format!("the context of this call has about {size} tokens, and context_tokens is {limit}");
        return Err(Verdict::failed(reason, Cause::ContextTooLarge { size, limit }).into());
    }
    if let Some(request) = &mut active.turn.edit().context {
        request.estimate = Some(estimate);
    }
    Ok(())
}
