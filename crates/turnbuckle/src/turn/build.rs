//! build: the context of the next model call is assembled, shown to the `before_model` hooks, and counted once.

use std::sync::Arc;
use std::time::Duration;

use super::accept::{admit, append_all};
use super::active::{ActiveTurn, Interrupt};
use super::state::Verdict;
use crate::context::layout::{self, Overlay};
use crate::context::reserve::{Candidate, overflow};
use crate::context::tokens;
use crate::event::{Event, EventKind, Outcome};
use crate::hook::erased::DynHook;
use crate::hook::run::Run;
use crate::hook::{BeforeModel, BeforeModelContext, Code, HookEntry, Point};
use crate::message::{Content, Message, Part, Text};
use crate::model::{Request, Segments};
use crate::output_schema::OutputSchema;
use crate::scope::Author;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    active.ctx().abort.check()?;
    if let Some(verdict) = active.ctx().budget.verdict(&active.ctx().limits) {
        return Err(verdict.into());
    }
    let (messages, segments) = assemble(active);
    let mut request = request(active, messages);
    request.segments = segments;
    let seen = active.turn.change();
    seen.context = Some(request);
    seen.assistant_message = None;
    seen.stop_active = active.state.turn.as_ref().is_some_and(|turn| turn.stop_active);
    seen.injections = active.injected.iter().map(|candidate| candidate.injection.clone()).collect();
    if !active.ctx().agent.chains().before_model.is_empty() {
        let agent = active.agent();
        show(active, &agent.chains().before_model).await?;
    }
    count(active)?;
    if let Some(turn) = &mut active.state.turn {
        turn.built = true;
    }
    Ok(())
}

fn request(active: &ActiveTurn, messages: Arc<Vec<Message>>) -> Request {
    let agent = &active.ctx().agent;
    let (name, system) = (agent.shared_name().clone(), agent.system().clone());
    let mut request = Request::new(name, system, messages, agent.tools().clone());
    if let Some(shape) = &active.shape {
        request.must_answer_with(shape.schema());
    }
    request
}

/// The context of the reply that a turn taken up again has in its log, for the hooks and tools behind it. What hooks added
/// at the tail of that one call is gone with it.
pub(crate) fn look_back(active: &mut ActiveTurn) {
    let first = active.state.turn.as_ref().map_or(0, |turn| turn.first);
    let said = |event: &Arc<Event>| matches!(event.kind, EventKind::AssistantMessage { .. });
    let Some(reply) = active.state.history[first..].iter().rposition(said) else { return };
    let parts = transient_parts(&active.injected);
    let overlay = Overlay { turn: Some((&active.turn.ctx.id, &parts)), regeneration: None };
    let messages = layout::messages(&active.state.history[..first + reply], &overlay);
    let request = request(active, messages);
    active.turn.change().context = Some(request);
}

fn assemble(active: &mut ActiveTurn) -> (Arc<Vec<Message>>, Segments) {
    // The request before this one is gone, so that its messages can be written on.
    active.turn.change().context = None;
    let ctx = active.ctx();
    let room = ctx.agent.room_within(&ctx.limits);
    active.state.make_room(room);
    let parts: Vec<Part> = transient_parts(&active.injected);
    let overlay =
        Overlay { turn: Some((&active.turn.ctx.id, &parts)), regeneration: active.scratch.regeneration.as_ref() };
    active.state.show(&overlay)
}

/// What is durable stands in the log already.
fn transient_parts(injected: &[Candidate]) -> Vec<Part> {
    injected
        .iter()
        .filter(|candidate| !candidate.durable)
        .flat_map(|candidate| candidate.injection.content.parts())
        .cloned()
        .collect()
}

/// What the `before_model` hooks of one call have added.
#[derive(Default)]
struct Added {
    tail: Vec<Candidate>,
    /// Tokens by which edits made the context grow.
    grown: u64,
    /// When the last of them ended.
    ended: Option<Duration>,
}

async fn show(active: &mut ActiveTurn, hooks: &[HookEntry]) -> Result<(), Interrupt> {
    let mut added = Added::default();
    // One view for the whole chain: making one costs more than asking a hook.
    let mut outgoing = None;
    for entry in hooks {
        match &*entry.code {
            Code::Group(group) => {
                let contents = append_all(entry, group, Point::BeforeModel, &active.turn, &mut active.records).await?;
                for (name, content) in contents {
                    inject(active, &mut added, entry, &name, vec![content])?;
                }
                (outgoing, added.ended) = (None, None);
            }
            Code::Hook(hook) => {
                let outgoing = outgoing.get_or_insert_with(|| BeforeModelContext::new(active.turn.clone()));
                ask(active, outgoing, &mut added, entry, &**hook).await?;
            }
        }
    }
    let parts: Vec<Part> =
        added.tail.iter().flat_map(|candidate| candidate.injection.content.parts()).cloned().collect();
    if parts.is_empty() {
        return Ok(());
    }
    drop(outgoing);
    if let Some(request) = &mut active.turn.change().context {
        layout::add_at_tail(Arc::make_mut(&mut request.messages), &parts);
    }
    Ok(())
}

async fn ask(
    active: &mut ActiveTurn,
    outgoing: &mut BeforeModelContext,
    added: &mut Added,
    entry: &HookEntry,
    hook: &dyn DynHook,
) -> Result<(), Interrupt> {
    let run = Run::new(&active.turn.ctx, entry, Point::BeforeModel);
    let mut finished = run.behind(added.ended).decide(hook.before_model(outgoing)).await?;
    finished.tokens = super::accept::tokens_of(&outgoing.injected);
    added.ended = Some(finished.ended);
    let (injected, edited) = (std::mem::take(&mut outgoing.injected), outgoing.edited.take());
    match finished.unless_blocked(&active.turn.ctx, entry, &mut active.records)? {
        None => return Ok(()),
        Some(BeforeModel::Halt(reason)) => {
            return Err(Verdict::new(Outcome::Halted, reason).by(Author::hook(&entry.name)).into());
        }
        Some(BeforeModel::Continue) => {}
    }
    if let Some(messages) = edited {
        edit(active, added, &entry.name, messages)?;
        outgoing.turn = active.turn.clone();
    }
    if !injected.is_empty() {
        inject(active, added, entry, &entry.name, injected)?;
        outgoing.turn = active.turn.clone();
    }
    Ok(())
}

/// Replaces this call's messages; by what they grew counts against the reserve.
fn edit(active: &mut ActiveTurn, added: &mut Added, hook: &Text, messages: Vec<Message>) -> Result<(), Interrupt> {
    let Some(request) = &mut active.turn.change().context else { return Ok(()) };
    let before = tokens::of_messages(&request.messages);
    added.grown += tokens::of_messages(&messages).saturating_sub(before);
    request.segments = request.segments.moved(&request.messages, &messages);
    request.messages = Arc::new(messages);
    let reserve = active.ctx().limits.injection_reserve;
    let size = added.grown + tokens_of(&active.injected) + tokens_of(&added.tail);
    if size > reserve {
        return Err(overflow(hook, size, reserve).into());
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
    let other = added.grown + tokens_of(&active.injected);
    let reserve = active.ctx().limits.injection_reserve;
    admit(&mut added.tail, &mut active.records, entry, hook, contents, other, reserve)?;
    let of_turn = active.injected.iter().map(|candidate| candidate.injection.clone());
    let of_call = added.tail.iter().map(|candidate| candidate.injection.clone());
    active.turn.change().injections = of_turn.chain(of_call).collect();
    Ok(())
}

fn tokens_of(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|candidate| u64::from(candidate.injection.tokens)).sum()
}

/// Once, over the final context. What does not fit is not cut: the turn fails and says by how much.
fn count(active: &ActiveTurn) -> Result<(), Interrupt> {
    let Some(request) = active.turn.context() else { return Ok(()) };
    let shape = active.shape.as_ref().map(OutputSchema::schema);
    let standing = match shape {
        // Offered instead of tools.
        Some(schema) => tokens::of_text(&request.system) + tokens::of_json(schema),
        None => active.ctx().agent.standing(),
    };
    let mut size = standing + active.state.cache.count(&request.messages);
    let most = active.ctx().limits.context_tokens;
    if size > most / 2 {
        // Only near the limit does an exact count change anything, and counting exactly takes its time.
        let model = active.agent().model().clone();
        let counted = |text: &str| model.count_tokens(text).unwrap_or_else(|| tokens::of_text(text));
        let offered: u64 = request.tools().iter().map(|tool| tokens::of_definition_by(tool, &counted)).sum();
        let shape = shape.map_or(0, |schema| counted(&schema.to_string()));
        size = counted(&request.system) + offered + shape + tokens::of_messages_by(&request.messages, &counted);
    }
    if size > most {
        let reason = format!("the context of this call has about {size} tokens, and context_tokens is {most}");
        return Err(Verdict::failed(reason).into());
    }
    Ok(())
}
