//! accept: the message meets the `before_agent` hooks, in order, and becomes history.

use std::pin::pin;

use super::active::{ActiveTurn, Interrupt};
use super::inject::{admit, cost_of, run_group};
use super::state::Verdict;
use crate::context::reserve::Candidate;
use crate::event::{EventKind, InjectionTarget, Outcome};
use crate::feed::LiveEvent;
use crate::hook::call::HookCaller;
use crate::hook::erased::DynHook;
use crate::hook::{BeforeAgent, BeforeAgentContext, Code, HookEntry, OnConversationContext, Point};
use crate::message::{Content, Text};
use crate::scope::Author;
use crate::store::ConversationStatus;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let by = ctx.scope.by();
    ctx.publish(LiveEvent::TurnStarted { agent: ctx.agent_name().clone(), by: by.clone() });
    ctx.abort.check()?;
    let hooks = ctx.agent.hooks_at(Point::BeforeAgent);
    if !hooks.is_empty() {
        let mut caller = HookCaller::new(&ctx, Point::BeforeAgent);
        // One view for the whole chain: making one costs more than calling a hook.
        let mut view = BeforeAgentContext::new(active.turn.clone());
        for entry in hooks {
            match &*entry.code {
                Code::Hook(hook) => ask(active, &mut caller, &mut view, entry, &**hook).await?,
                Code::Group(group) => {
                    let (turn, records) = (&active.turn, &mut active.records);
                    for (name, content) in run_group(entry, group, Point::BeforeAgent, turn, records).await? {
                        inject(active, entry, &name, vec![content])?;
                    }
                    view.turn = active.turn.clone();
                }
            }
        }
    }
    write(active, by).await
}

/// Runs the `on_conversation` hooks, in the first turn of the conversation that this process drives.
pub(super) async fn greet(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let Some(lifecycle) = active.lifecycle.take() else { return Ok(()) };
    let ctx = active.ctx().clone();
    let mut caller = HookCaller::new(&ctx, Point::OnConversation);
    for entry in ctx.agent.hooks_at(Point::OnConversation) {
        let Some(hook) = entry.hook() else { continue };
        let (conversation, scope) = (ctx.conversation.clone(), ctx.scope.clone());
        let mut view = OnConversationContext { conversation, scope, lifecycle, injected: Vec::new() };
        let mut run = caller.run(entry, pin!(hook.on_conversation(&mut view))).await?;
        run.tokens = cost_of(&view.injected);
        if caller.unless_blocked(entry, run, &mut active.records)?.is_some() {
            let before = active.injected.len();
            inject(active, entry, &entry.name, view.injected)?;
            write_durable(active, before).await?;
        }
    }
    Ok(())
}

/// Writes durable injections behind `first` at once, in a turn that was accepted before: `accept` does not run again.
async fn write_durable(active: &mut ActiveTurn, first: usize) -> Result<(), Interrupt> {
    let accepted = active.state.turn.as_ref().is_some_and(|turn| turn.accepted);
    let added = active.injected.get(first..).unwrap_or_default();
    let durable: Vec<EventKind> = added.iter().filter(|candidate| candidate.durable).map(event_of).collect();
    if accepted && !durable.is_empty() {
        active.write(durable).await?;
    }
    Ok(())
}

fn event_of(candidate: &Candidate) -> EventKind {
    let injection = &candidate.injection;
    let (hook, content) = (injection.hook.clone(), injection.content.clone());
    EventKind::Injection { hook, content, place: InjectionTarget::ThisTurn }
}

async fn ask(
    active: &mut ActiveTurn,
    caller: &mut HookCaller<'_>,
    view: &mut BeforeAgentContext,
    entry: &HookEntry,
    hook: &dyn DynHook,
) -> Result<(), Interrupt> {
    let mut run = caller.run(entry, pin!(hook.before_agent(view))).await?;
    run.tokens = cost_of(&view.injected);
    let (injected, rewritten) = (std::mem::take(&mut view.injected), view.rewritten.take());
    let Some(decision) = caller.unless_blocked(entry, run, &mut active.records)? else { return Ok(()) };
    if let Some(content) = rewritten {
        active.turn.edit().user_message = content;
        view.turn = active.turn.clone();
    }
    let halted = |reason| Verdict::by_hook(Outcome::Halted, reason, &entry.name, Point::BeforeAgent).into();
    match decision {
        BeforeAgent::Continue if injected.is_empty() => Ok(()),
        BeforeAgent::Continue => {
            inject(active, entry, &entry.name, injected)?;
            view.turn = active.turn.clone();
            Ok(())
        }
        BeforeAgent::Halt(reason) => Err(halted(reason)),
        BeforeAgent::Erase(reason) => {
            active.erased = true;
            Err(halted(reason))
        }
    }
}

/// Adds to the turn's injections, within the reserve.
fn inject(active: &mut ActiveTurn, entry: &HookEntry, hook: &Text, contents: Vec<Content>) -> Result<(), Interrupt> {
    let reserve = active.ctx().limits.injection_reserve;
    admit(&mut active.injected, &mut active.records, entry, hook, contents, 0, reserve)?;
    active.show_injections();
    Ok(())
}

/// The message and durable injections become history; transient injections are kept in the scratch.
async fn write(active: &mut ActiveTurn, by: Author) -> Result<(), Interrupt> {
    let content = active.turn.view.user_message.clone();
    let mut write = active.new_write();
    write.push(EventKind::UserMessage { content, by });
    if !active.injected.is_empty() {
        write.extend(active.injected.iter().filter(|candidate| candidate.durable).map(event_of));
        let transient = active.injected.iter().filter(|candidate| !candidate.durable);
        active.scratch.edit().injections = transient.map(|candidate| candidate.injection.clone()).collect();
    }
    write.take_message = true;
    write.status = Some(ConversationStatus::Running);
    Ok(active.append(write).await?)
}
