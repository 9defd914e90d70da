//! build: the context of the next model call is reduced if it is too large, assembled, shown to the `before_model` hooks, and
//! counted once.

use std::pin::pin;
use std::sync::Arc;

use super::active::{ActiveTurn, Interrupt};
use super::inject::{admit, cost_of, run_group};
use super::state::Verdict;
use crate::context::layout::{self, ContextCache, Overlay};
use crate::context::reducer;
use crate::context::reserve::{Candidate, Overflow, total};
use crate::context::tokens;
use crate::cut::Cut;
use crate::event::{Cause, Event, EventKind, Outcome};
use crate::feed::{Level, LiveEvent};
use crate::hook::call::HookCaller;
use crate::hook::erased::DynHook;
use crate::hook::{BeforeModel, BeforeModelContext, Code, HookEntry, Point};
use crate::message::{Content, Message, Part, Text};
use crate::model::{Request, Segments};
use crate::output_schema::OutputSchema;

/// What the words around a discarded reply cost: more than they take.
const REGENERATION_FRAME: u64 = 32;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    active.ctx().abort.check()?;
    if let Some(verdict) = active.ctx().budget.verdict(&active.ctx().limits) {
        return Err(verdict.into());
    }
    let cut = make_room(active);
    let (messages, segments) = assemble(active);
    if let Some(cut) = cut {
        active.ctx().publish(LiveEvent::compacted(&cut, messages.len()));
    }
    let mut request = request(active, messages);
    request.segments = segments;
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
    let limit = agent.history_capacity(&ctx.limits).saturating_sub(again);
    let dropped = window.dropped();
    if window.tokens() <= limit && dropped == 0 {
        return None;
    }
    let target = agent.history_target(&ctx.limits).min(limit);
    let mut plan = window.plan(&|tool| agent.tool_facts(tool), limit, target);
    let reduced = match window.tokens() > limit {
        true => reducer::reduce(agent.reducers(), &mut plan),
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
    let cut = Arc::new(Cut {
        turn: ctx.id.clone(),
        made_at: active.state.seq,
        first,
        stubs: plan.stubs(),
        turns: count(plan.turns_left_out()),
        results: count(plan.changed().count()),
        before: window.tokens() + dropped,
        after: plan.tokens(),
        reducers: reduced.by,
    });
    active.state.cut(&plan, cut.clone());
    active.cache = ContextCache::default();
    active.cut = Some(cut.clone());
    Some(cut)
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
    let parts = transient_parts(&active.injected);
    let overlay = Overlay { turn: Some((&active.turn.ctx.id, &parts)), regeneration: None };
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
    let parts = transient_parts(injected);
    let overlay = Overlay { turn: Some((&ctx.id, &parts)), regeneration: scratch.regeneration.as_deref() };
    cache.show(state.window.events(), open, &overlay)
}

/// Durable injections are in the log already.
fn transient_parts(injected: &[Candidate]) -> Vec<Part> {
    let transient = injected.iter().filter(|candidate| !candidate.durable);
    transient.flat_map(|candidate| candidate.injection.content.parts()).cloned().collect()
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
    let mut caller = HookCaller::new(&ctx, Point::BeforeModel);
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
        edit(active, added, &entry.name, messages)?;
        view.turn = active.turn.clone();
    }
    if !injected.is_empty() {
        inject(active, added, entry, &entry.name, injected)?;
        view.turn = active.turn.clone();
    }
    Ok(())
}

/// Replaces this call's messages. What they grew by counts against the reserve.
fn edit(active: &mut ActiveTurn, added: &mut Added, hook: &Text, messages: Vec<Message>) -> Result<(), Interrupt> {
    let Some(request) = &mut active.turn.edit().context else { return Ok(()) };
    let before = tokens::of_messages(&request.messages);
    added.grown += tokens::of_messages(&messages).saturating_sub(before);
    request.segments = request.segments.moved(&request.messages, &messages);
    request.messages = Arc::new(messages);
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
    let reserve = active.ctx().limits.injection_reserve;
    admit(&mut added.tail, &mut active.records, entry, hook, contents, other, reserve)?;
    let all = active.injected.iter().chain(&added.tail);
    let injections = all.map(|candidate| candidate.injection.clone()).collect();
    active.turn.edit().injections = injections;
    Ok(())
}

/// Counts the final context once. What does not fit is not cut: the turn fails and says by how much.
fn count(active: &ActiveTurn) -> Result<(), Interrupt> {
    let Some(request) = active.turn.context() else { return Ok(()) };
    let schema = active.schema.as_ref().map(OutputSchema::schema);
    let fixed = match schema {
        // Offered instead of tools.
        Some(schema) => tokens::of_text(&request.system) + tokens::of_json(schema),
        None => active.ctx().agent.fixed_tokens(),
    };
    let mut size = fixed + active.cache.count(&request.messages);
    let limit = active.ctx().limits.context_tokens;
    if size > limit / 2 {
        // Only near the limit does an exact count change anything, and counting exactly takes time.
        let model = active.ctx().agent.model();
        let counted = |text: &str| model.count_tokens(text).unwrap_or_else(|| tokens::of_text(text));
        let offered: u64 = request.tools().iter().map(|tool| tokens::of_definition_by(tool, &counted)).sum();
        let schema = schema.map_or(0, |schema| counted(&schema.to_string()));
        size = counted(&request.system) + offered + schema + tokens::of_messages_by(&request.messages, &counted);
    }
    if size > limit {
        let reason = format!("the context of this call has about {size} tokens, and context_tokens is {limit}");
        return Err(Verdict::failed(reason, Cause::ContextTooLarge { size, limit }).into());
    }
    Ok(())
}
