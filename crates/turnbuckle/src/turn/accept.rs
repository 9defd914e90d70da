//! accept: the inbox message meets the `before_agent` hooks, in order, and becomes history.

use std::time::Duration;

use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};

use super::flight::{Flight, Interrupt, With};
use super::seen::Turn;
use super::state::Verdict;
use crate::context::reserve::{Candidate, Room, make_room};
use crate::context::tokens;
use crate::event::{EventKind, Outcome, Place};
use crate::hook::run::{Run, blocked};
use crate::hook::twin::DynHook;
use crate::hook::{BeforeAgent, Code, HookEntry, Incoming, Injection, Meeting, OnFailure, Parallel, Point, Record};
use crate::live::Live;
use crate::message::{Content, Text};
use crate::scope::By;
use crate::store::{Standing, TransientInjection};

pub(crate) async fn run(flight: &mut Flight) -> Result<(), Interrupt> {
    let frame = flight.frame();
    let by = frame.scope.by();
    frame.tell(Live::TurnStarted { agent: frame.agent.shared_name().clone(), by: by.clone() });
    frame.cut.check()?;
    if frame.agent.chains().before_agent.is_empty() {
        return write(flight, by).await;
    }
    let agent = flight.agent();
    // One view for the whole chain: making one costs more than asking a hook.
    let (mut incoming, mut ended) = (None, None);
    for entry in &agent.chains().before_agent {
        match &*entry.code {
            Code::Group(group) => {
                let contents = append_all(entry, group, Point::BeforeAgent, &flight.turn, &mut flight.records).await?;
                for (name, content) in contents {
                    inject(flight, entry, &name, vec![content])?;
                }
                (incoming, ended) = (None, None);
            }
            Code::Hook(hook) => {
                let incoming = incoming.get_or_insert_with(|| Incoming::new(flight.turn.clone()));
                ask(flight, incoming, entry, &**hook, &mut ended).await?;
            }
        }
    }
    write(flight, by).await
}

/// `on_conversation`, in the first turn that this process sees of the conversation.
pub(super) async fn meet(flight: &mut Flight) -> Result<(), Interrupt> {
    let Some(moment) = flight.moment.take() else { return Ok(()) };
    let agent = flight.agent();
    for entry in &agent.chains().on_conversation {
        let Some(hook) = entry.hook() else { continue };
        let frame = flight.frame().clone();
        let (conversation, scope) = (frame.conversation.clone(), frame.scope.clone());
        let mut meeting = Meeting { conversation, scope, moment, injected: Vec::new() };
        let mut ran = Run::new(&frame, entry, Point::OnConversation).decide(hook.on_conversation(&mut meeting)).await?;
        ran.tokens = tokens_of(&meeting.injected);
        if ran.unless_blocked(&flight.turn.frame, entry, &mut flight.records)?.is_some() {
            let first = flight.injected.len();
            inject(flight, entry, &entry.name, meeting.injected)?;
            keep_at_once(flight, first).await?;
        }
    }
    Ok(())
}

/// In a turn that was accepted before, what is durable is written now: `accept` does not run again.
async fn keep_at_once(flight: &mut Flight, first: usize) -> Result<(), Interrupt> {
    let accepted = flight.state.turn.as_ref().is_some_and(|turn| turn.accepted);
    let added = flight.injected.get(first..).unwrap_or_default();
    let durable: Vec<EventKind> = added.iter().filter(|candidate| candidate.durable).map(kept).collect();
    if accepted && !durable.is_empty() {
        flight.write(durable, With::NOTHING).await?;
    }
    Ok(())
}

fn kept(candidate: &Candidate) -> EventKind {
    let Injection { hook, content, .. } = candidate.injection.clone();
    EventKind::Injection { hook, content, place: Place::ThisTurn }
}

async fn ask(
    flight: &mut Flight,
    incoming: &mut Incoming,
    entry: &HookEntry,
    hook: &dyn DynHook,
    ended: &mut Option<Duration>,
) -> Result<(), Interrupt> {
    let run = Run::new(&flight.turn.frame, entry, Point::BeforeAgent).behind(*ended);
    let mut ran = run.decide(hook.before_agent(incoming)).await?;
    ran.tokens = tokens_of(&incoming.injected);
    *ended = Some(ran.ended);
    let (injected, rewritten) = (std::mem::take(&mut incoming.injected), incoming.rewritten.take());
    let Some(decision) = ran.unless_blocked(&flight.turn.frame, entry, &mut flight.records)? else { return Ok(()) };
    if let Some(content) = rewritten {
        flight.turn.change().user_message = content;
        incoming.turn = flight.turn.clone();
    }
    let halted = |reason: Text| Interrupt::from(Verdict::new(Outcome::Halted, reason).by(By::hook(&entry.name)));
    match decision {
        BeforeAgent::Continue if injected.is_empty() => {}
        BeforeAgent::Continue => {
            inject(flight, entry, &entry.name, injected)?;
            incoming.turn = flight.turn.clone();
        }
        BeforeAgent::Halt(reason) => return Err(halted(reason)),
        BeforeAgent::Erase(reason) => {
            flight.erased = true;
            return Err(halted(reason));
        }
    }
    Ok(())
}

/// Members of a group run side by side and append in declaration order; one that fails appends nothing, unless the
/// group says that it blocks.
pub(super) async fn append_all(
    entry: &HookEntry,
    group: &Parallel,
    point: Point,
    turn: &Turn,
    records: &mut Vec<Record>,
) -> Result<Vec<(Text, Content)>, Interrupt> {
    let runs = group.members.iter().map(|member| {
        let run = Run { hook: &member.name, ..Run::new(&turn.frame, entry, point) };
        let append = (member.append)(turn.clone());
        run.decide(Box::pin(async move { append.await.map(Appended) }))
    });
    let mut contents = Vec::new();
    for (member, ran) in group.members.iter().zip(join_all(runs).await) {
        let mut ran = ran?;
        if let Ok(Appended(content)) = &ran.result {
            ran.tokens = tokens_of(std::slice::from_ref(content));
        }
        match ran.recorded(&turn.frame, records) {
            Ok(Appended(content)) => contents.push((member.name.clone(), content)),
            Err(failure) if entry.settings().on_failure == Some(OnFailure::Block) => {
                return Err(blocked(&member.name, point, &failure));
            }
            Err(_) => {}
        }
    }
    Ok(contents)
}

/// What a member of a group decides: there is nothing else it could.
struct Appended(Content);

impl crate::hook::Named for Appended {
    fn name(&self) -> &'static str {
        "continue"
    }
}

/// Adds to the turn's injections within the reserve.
fn inject(flight: &mut Flight, entry: &HookEntry, hook: &Text, contents: Vec<Content>) -> Result<(), Interrupt> {
    let reserve = flight.frame().limits.injection_reserve;
    admit(&mut flight.injected, &mut flight.records, entry, hook, contents, 0, reserve)?;
    flight.turn.change().injections = flight.injected.iter().map(|candidate| candidate.injection.clone()).collect();
    Ok(())
}

/// Puts contents among the candidates; what finds no room is shed with a receipt, or fails the turn.
pub(super) fn admit(
    candidates: &mut Vec<Candidate>,
    records: &mut [Record],
    entry: &HookEntry,
    hook: &Text,
    contents: Vec<Content>,
    other: u64,
    reserve: u64,
) -> Result<(), Interrupt> {
    let mut used = 0_u32;
    for content in contents {
        let tokens = u32::try_from(tokens::of_content(&content)).unwrap_or(u32::MAX);
        used = used.saturating_add(tokens);
        if entry.settings().max_tokens.is_some_and(|most| used > most) {
            note(records, hook, |record| record.sheds(tokens));
            continue;
        }
        candidates.push(Candidate::new(entry, Injection { hook: hook.clone(), content, tokens }));
        match make_room(candidates, other, reserve, hook) {
            Room::Shed(lost) => lost.iter().for_each(|(hook, tokens)| {
                note(records, hook, |record| record.sheds(*tokens));
            }),
            Room::Overflow(verdict) => return Err(verdict.into()),
        }
    }
    Ok(())
}

/// What contents cost together.
pub(crate) fn tokens_of(contents: &[Content]) -> u32 {
    u32::try_from(contents.iter().map(tokens::of_content).sum::<u64>()).unwrap_or(u32::MAX)
}

/// Changes the last record of a hook.
fn note(records: &mut [Record], hook: &Text, change: impl FnOnce(&mut Record)) {
    if let Some(record) = records.iter_mut().rfind(|record| record.hook == *hook) {
        change(record);
    }
}

/// The message and durable injections become history; transient ones are kept beside it.
async fn write(flight: &mut Flight, by: By) -> Result<(), Interrupt> {
    let mut kinds: SmallVec<[EventKind; 1]> =
        smallvec![EventKind::UserMessage { content: flight.turn.seen.user_message.clone(), by }];
    let (durable, transient): (Vec<_>, Vec<_>) = flight.injected.iter().partition(|candidate| candidate.durable);
    kinds.extend(durable.into_iter().map(kept));
    let keep = |candidate: &Candidate| {
        let Injection { hook, content, tokens } = candidate.injection.clone();
        TransientInjection { hook, content, tokens }
    };
    flight.beside.injections = transient.into_iter().map(keep).collect();
    let with = With { take_message: true, standing: Some(Standing::Running), ..With::BESIDE };
    Ok(flight.write(kinds, with).await?)
}
