//! build: the context of the next model call is assembled, shown to the `before_model` hooks, and counted once.

use std::sync::Arc;
use std::time::Duration;

use super::accept::{admit, append_all};
use super::flight::{Flight, Interrupt};
use super::state::Verdict;
use crate::context::layout::{self, Beyond};
use crate::context::reserve::{Candidate, overflow};
use crate::context::tokens;
use crate::event::{Event, EventKind, Outcome};
use crate::hook::run::Run;
use crate::hook::twin::DynHook;
use crate::hook::{BeforeModel, Code, HookEntry, Outgoing, Point};
use crate::message::{Content, Message, Part, Text};
use crate::model::{Request, Segments};
use crate::scope::By;
use crate::shape::Shape;

pub(crate) async fn run(flight: &mut Flight) -> Result<(), Interrupt> {
    flight.frame().cut.check()?;
    if let Some(verdict) = flight.frame().meter.verdict(&flight.frame().limits) {
        return Err(verdict.into());
    }
    let (messages, segments) = assemble(flight);
    let mut request = request(flight, messages);
    request.segments = segments;
    let seen = flight.turn.change();
    seen.context = Some(request);
    seen.assistant_message = None;
    seen.stop_active = flight.state.turn.as_ref().is_some_and(|turn| turn.stop_active);
    seen.injections = flight.injected.iter().map(|candidate| candidate.injection.clone()).collect();
    if !flight.frame().agent.chains().before_model.is_empty() {
        let agent = flight.agent();
        show(flight, &agent.chains().before_model).await?;
    }
    count(flight)?;
    if let Some(turn) = &mut flight.state.turn {
        turn.built = true;
    }
    Ok(())
}

fn request(flight: &Flight, messages: Arc<Vec<Message>>) -> Request {
    let agent = &flight.frame().agent;
    let (name, system) = (agent.shared_name().clone(), agent.system().clone());
    let mut request = Request::new(name, system, messages, agent.tools().clone());
    if let Some(shape) = &flight.shape {
        request.must_answer_with(shape.schema());
    }
    request
}

/// The context of the reply that a turn taken up again has in its log, for the hooks and tools behind it. What hooks added
/// at the tail of that one call is gone with it.
pub(crate) fn look_back(flight: &mut Flight) {
    let first = flight.state.turn.as_ref().map_or(0, |turn| turn.first);
    let said = |event: &Arc<Event>| matches!(event.kind, EventKind::AssistantMessage { .. });
    let Some(reply) = flight.state.history[first..].iter().rposition(said) else { return };
    let parts = transient_parts(&flight.injected);
    let beyond = Beyond { turn: Some((&flight.turn.frame.id, &parts)), regeneration: None };
    let messages = layout::messages(&flight.state.history[..first + reply], &beyond);
    let request = request(flight, messages);
    flight.turn.change().context = Some(request);
}

fn assemble(flight: &mut Flight) -> (Arc<Vec<Message>>, Segments) {
    // The request before this one is gone, so that its messages can be written on.
    flight.turn.change().context = None;
    let frame = flight.frame();
    let room = frame.agent.room_within(&frame.limits);
    flight.state.make_room(room);
    let parts: Vec<Part> = transient_parts(&flight.injected);
    let beyond =
        Beyond { turn: Some((&flight.turn.frame.id, &parts)), regeneration: flight.beside.regeneration.as_ref() };
    flight.state.show(&beyond)
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

async fn show(flight: &mut Flight, hooks: &[HookEntry]) -> Result<(), Interrupt> {
    let mut added = Added::default();
    // One view for the whole chain: making one costs more than asking a hook.
    let mut outgoing = None;
    for entry in hooks {
        match &*entry.code {
            Code::Group(group) => {
                let contents = append_all(entry, group, Point::BeforeModel, &flight.turn, &mut flight.records).await?;
                for (name, content) in contents {
                    inject(flight, &mut added, entry, &name, vec![content])?;
                }
                (outgoing, added.ended) = (None, None);
            }
            Code::Hook(hook) => {
                let outgoing = outgoing.get_or_insert_with(|| Outgoing::new(flight.turn.clone()));
                ask(flight, outgoing, &mut added, entry, &**hook).await?;
            }
        }
    }
    let parts: Vec<Part> =
        added.tail.iter().flat_map(|candidate| candidate.injection.content.parts()).cloned().collect();
    if parts.is_empty() {
        return Ok(());
    }
    drop(outgoing);
    if let Some(request) = &mut flight.turn.change().context {
        layout::add_at_tail(Arc::make_mut(&mut request.messages), &parts);
    }
    Ok(())
}

async fn ask(
    flight: &mut Flight,
    outgoing: &mut Outgoing,
    added: &mut Added,
    entry: &HookEntry,
    hook: &dyn DynHook,
) -> Result<(), Interrupt> {
    let run = Run::new(&flight.turn.frame, entry, Point::BeforeModel);
    let mut ran = run.behind(added.ended).decide(hook.before_model(outgoing)).await?;
    ran.tokens = super::accept::tokens_of(&outgoing.injected);
    added.ended = Some(ran.ended);
    let (injected, edited) = (std::mem::take(&mut outgoing.injected), outgoing.edited.take());
    match ran.unless_blocked(&flight.turn.frame, entry, &mut flight.records)? {
        None => return Ok(()),
        Some(BeforeModel::Halt(reason)) => {
            return Err(Verdict::new(Outcome::Halted, reason).by(By::hook(&entry.name)).into());
        }
        Some(BeforeModel::Continue) => {}
    }
    if let Some(messages) = edited {
        edit(flight, added, &entry.name, messages)?;
        outgoing.turn = flight.turn.clone();
    }
    if !injected.is_empty() {
        inject(flight, added, entry, &entry.name, injected)?;
        outgoing.turn = flight.turn.clone();
    }
    Ok(())
}

/// Replaces this call's messages; by what they grew counts against the reserve.
fn edit(flight: &mut Flight, added: &mut Added, hook: &Text, messages: Vec<Message>) -> Result<(), Interrupt> {
    let Some(request) = &mut flight.turn.change().context else { return Ok(()) };
    let before = tokens::of_messages(&request.messages);
    added.grown += tokens::of_messages(&messages).saturating_sub(before);
    request.segments = request.segments.moved(&request.messages, &messages);
    request.messages = Arc::new(messages);
    let reserve = flight.frame().limits.injection_reserve;
    let size = added.grown + tokens_of(&flight.injected) + tokens_of(&added.tail);
    if size > reserve {
        return Err(overflow(hook, size, reserve).into());
    }
    Ok(())
}

fn inject(
    flight: &mut Flight,
    added: &mut Added,
    entry: &HookEntry,
    hook: &Text,
    contents: Vec<Content>,
) -> Result<(), Interrupt> {
    let other = added.grown + tokens_of(&flight.injected);
    let reserve = flight.frame().limits.injection_reserve;
    admit(&mut added.tail, &mut flight.records, entry, hook, contents, other, reserve)?;
    let of_turn = flight.injected.iter().map(|candidate| candidate.injection.clone());
    let of_call = added.tail.iter().map(|candidate| candidate.injection.clone());
    flight.turn.change().injections = of_turn.chain(of_call).collect();
    Ok(())
}

fn tokens_of(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|candidate| u64::from(candidate.injection.tokens)).sum()
}

/// Once, over the final context. What does not fit is not cut: the turn fails and says by how much.
fn count(flight: &Flight) -> Result<(), Interrupt> {
    let Some(request) = flight.turn.context() else { return Ok(()) };
    let shape = flight.shape.as_ref().map(Shape::schema);
    let standing = match shape {
        // Offered instead of tools.
        Some(schema) => tokens::of_text(&request.system) + tokens::of_json(schema),
        None => flight.frame().agent.standing(),
    };
    let mut size = standing + flight.state.page.count(&request.messages);
    let most = flight.frame().limits.context_tokens;
    if size > most / 2 {
        // Only near the limit does an exact count change anything, and counting exactly takes its time.
        let model = flight.agent().model().clone();
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
