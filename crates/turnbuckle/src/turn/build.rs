//! build: the context of the next model call is reduced if it is too large, assembled, shown to the `before_model` hooks, and
//! counted once.

use std::pin::pin;
use std::sync::Arc;

use super::active::{ActiveTurn, Interrupt};
use super::changes;
use super::inject::{Addition, admit, cost_of, run_group};
use super::last_answer;
use super::make_room::{factor, make_room};
use super::state::Verdict;
use super::steer;
use super::view::Turn;
use crate::audit::message_json;
use crate::change::InjectionSpan;
use crate::context::layout::{self, Overlay};
use crate::context::reserve::{Candidate, Overflow, total};
use crate::context::tokens;
use crate::cut::Factor;
use crate::event::{Cause, Event, EventKind, Outcome};
use crate::feed::LiveEvent;
use crate::hook::call::HookCaller;
use crate::hook::erased::DynHook;
use crate::hook::{BeforeModel, BeforeModelContext, Code, HookEntry, Point};
use crate::message::{Content, Message, Part, Text};
use crate::model::{Estimate, Request, Segments};
use crate::output_schema::OutputSchema;

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
