//! accept: the inbox message meets the `before_agent` hooks, in order, and becomes history.

use std::time::Duration;

use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};

use super::active::{ActiveTurn, Interrupt, With};
use super::state::Verdict;
use super::view::Turn;
use crate::context::reserve::{Candidate, Room, make_room};
use crate::context::tokens;
use crate::event::{EventKind, InjectionTarget, Outcome};
use crate::feed::LiveEvent;
use crate::hook::erased::DynHook;
use crate::hook::run::{Run, blocked};
use crate::hook::{
    BeforeAgent, BeforeAgentContext, Code, HookEntry, Injection, OnConversationContext, OnFailure, Parallel, Point,
    Record,
};
use crate::message::{Content, Text};
use crate::scope::Author;
use crate::store::ConversationStatus;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let ctx = active.ctx();
    let by = ctx.scope.by();
    ctx.publish(LiveEvent::TurnStarted { agent: ctx.agent.shared_name().clone(), by: by.clone() });
    ctx.abort.check()?;
    if ctx.agent.chains().before_agent.is_empty() {
        return write(active, by).await;
    }
    let agent = active.agent();
    // One view for the whole chain: making one costs more than asking a hook.
    let (mut incoming, mut ended) = (None, None);
    for entry in &agent.chains().before_agent {
        match &*entry.code {
            Code::Group(group) => {
                let contents = append_all(entry, group, Point::BeforeAgent, &active.turn, &mut active.records).await?;
                for (name, content) in contents {
                    inject(active, entry, &name, vec![content])?;
                }
                (incoming, ended) = (None, None);
            }
            Code::Hook(hook) => {
                let incoming = incoming.get_or_insert_with(|| BeforeAgentContext::new(active.turn.clone()));
                ask(active, incoming, entry, &**hook, &mut ended).await?;
            }
        }
    }
    write(active, by).await
}

/// `on_conversation`, in the first turn that this process sees of the conversation.
pub(super) async fn meet(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let Some(moment) = active.moment.take() else { return Ok(()) };
    let agent = active.agent();
    for entry in &agent.chains().on_conversation {
        let Some(hook) = entry.hook() else { continue };
        let ctx = active.ctx().clone();
        let (conversation, scope) = (ctx.conversation.clone(), ctx.scope.clone());
        let mut meeting = OnConversationContext { conversation, scope, moment, injected: Vec::new() };
        let mut finished =
            Run::new(&ctx, entry, Point::OnConversation).decide(hook.on_conversation(&mut meeting)).await?;
        finished.tokens = tokens_of(&meeting.injected);
        if finished.unless_blocked(&active.turn.ctx, entry, &mut active.records)?.is_some() {
            let first = active.injected.len();
            inject(active, entry, &entry.name, meeting.injected)?;
            keep_at_once(active, first).await?;
        }
    }
    Ok(())
}

/// In a turn that was accepted before, what is durable is written now: `accept` does not run again.
async fn keep_at_once(active: &mut ActiveTurn, first: usize) -> Result<(), Interrupt> {
    let accepted = active.state.turn.as_ref().is_some_and(|turn| turn.accepted);
    let added = active.injected.get(first..).unwrap_or_default();
    let durable: Vec<EventKind> = added.iter().filter(|candidate| candidate.durable).map(kept).collect();
    if accepted && !durable.is_empty() {
        active.write(durable, With::NOTHING).await?;
    }
    Ok(())
}

fn kept(candidate: &Candidate) -> EventKind {
    let Injection { hook, content, .. } = candidate.injection.clone();
    EventKind::Injection { hook, content, place: InjectionTarget::ThisTurn }
}

async fn ask(
    active: &mut ActiveTurn,
    incoming: &mut BeforeAgentContext,
    entry: &HookEntry,
    hook: &dyn DynHook,
    ended: &mut Option<Duration>,
) -> Result<(), Interrupt> {
    let run = Run::new(&active.turn.ctx, entry, Point::BeforeAgent).behind(*ended);
    let mut finished = run.decide(hook.before_agent(incoming)).await?;
    finished.tokens = tokens_of(&incoming.injected);
    *ended = Some(finished.ended);
    let (injected, rewritten) = (std::mem::take(&mut incoming.injected), incoming.rewritten.take());
    let Some(decision) = finished.unless_blocked(&active.turn.ctx, entry, &mut active.records)? else { return Ok(()) };
    if let Some(content) = rewritten {
        active.turn.change().user_message = content;
        incoming.turn = active.turn.clone();
    }
    let halted = |reason: Text| Interrupt::from(Verdict::new(Outcome::Halted, reason).by(Author::hook(&entry.name)));
    match decision {
        BeforeAgent::Continue if injected.is_empty() => {}
        BeforeAgent::Continue => {
            inject(active, entry, &entry.name, injected)?;
            incoming.turn = active.turn.clone();
        }
        BeforeAgent::Halt(reason) => return Err(halted(reason)),
        BeforeAgent::Erase(reason) => {
            active.erased = true;
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
        let run = Run { hook: &member.name, ..Run::new(&turn.ctx, entry, point) };
        let append = (member.append)(turn.clone());
        run.decide(Box::pin(async move { append.await.map(Appended) }))
    });
    let mut contents = Vec::new();
    for (member, finished) in group.members.iter().zip(join_all(runs).await) {
        let mut finished = finished?;
        if let Ok(Appended(content)) = &finished.result {
            finished.tokens = tokens_of(std::slice::from_ref(content));
        }
        match finished.recorded(&turn.ctx, records) {
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
fn inject(active: &mut ActiveTurn, entry: &HookEntry, hook: &Text, contents: Vec<Content>) -> Result<(), Interrupt> {
    let reserve = active.ctx().limits.injection_reserve;
    admit(&mut active.injected, &mut active.records, entry, hook, contents, 0, reserve)?;
    active.turn.change().injections = active.injected.iter().map(|candidate| candidate.injection.clone()).collect();
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
async fn write(active: &mut ActiveTurn, by: Author) -> Result<(), Interrupt> {
    let mut kinds: SmallVec<[EventKind; 1]> =
        smallvec![EventKind::UserMessage { content: active.turn.view.user_message.clone(), by }];
    let (durable, transient): (Vec<_>, Vec<_>) = active.injected.iter().partition(|candidate| candidate.durable);
    kinds.extend(durable.into_iter().map(kept));
    let keep = |candidate: &Candidate| {
        let Injection { hook, content, tokens } = candidate.injection.clone();
        Injection { hook, content, tokens }
    };
    active.scratch.injections = transient.into_iter().map(keep).collect();
    let with = With { take_message: true, standing: Some(ConversationStatus::Running), ..With::BESIDE };
    Ok(active.write(kinds, with).await?)
}
