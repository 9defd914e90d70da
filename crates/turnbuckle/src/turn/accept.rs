//! accept: the message meets the `before_agent` hooks, in order, and becomes history.

use std::pin::pin;

use super::active::{ActiveTurn, Interrupt};
use super::changes::{self, Applied};
use super::context::TurnContext;
use super::inject::{Addition, admit, cost_of, run_group};
use super::state::Verdict;
use super::view::Turn;
use crate::change::{Edited, InjectionSpan, text_of};
use crate::context::reserve::Candidate;
use crate::event::{EventKind, InjectionTarget, Outcome};
use crate::feed::LiveEvent;
use crate::hook::call::HookCaller;
use crate::hook::erased::DynHook;
use crate::hook::{BeforeAgent, BeforeAgentContext, Code, HookEntry, OnConversationContext, Point};
use crate::message::{Content, Text};
use crate::record::Record;
use crate::scope::Author;
use crate::store::ConversationStatus;

pub(crate) async fn run(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let ctx = active.ctx().clone();
    let by = ctx.scope.by();
    ctx.publish(LiveEvent::TurnStarted { agent: ctx.agent_name().clone(), by: by.clone() });
    ctx.abort.check()?;
    let before = active.records.len();
    let ActiveTurn { turn, injected, records, .. } = active;
    let mut message = Incoming { turn, injected, records, other: 0, erased: false };
    let met = message.meet_hooks(&ctx).await;
    active.erased = message.erased;
    if active.erased {
        changes::forget(&mut active.records[before..]);
    }
    met?;
    write(active, by).await
}

/// Runs the `on_conversation` hooks, in the first turn of the conversation that this process drives.
pub(super) async fn greet(active: &mut ActiveTurn) -> Result<(), Interrupt> {
    let Some(lifecycle) = active.lifecycle.take() else { return Ok(()) };
    let ctx = active.ctx().clone();
    let mut caller = HookCaller::new(&ctx, Point::OnConversation);
    for entry in ctx.agent.hooks_at(Point::OnConversation) {
        let Some(hook) = entry.hook() else { continue };
        let mut view = OnConversationContext { ctx: ctx.clone(), lifecycle, injected: Vec::new() };
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

pub(super) fn event_of(candidate: &Candidate) -> EventKind {
    let injection = &candidate.injection;
    let (hook, content) = (injection.hook.clone(), injection.content.clone());
    EventKind::Injection { hook, content, place: InjectionTarget::ThisTurn }
}

/// A message on its way into the log: the one that opens the turn, or one that steers it.
pub(super) struct Incoming<'a> {
    /// What hooks see. Its user message is this one.
    pub(super) turn: &'a mut Turn,
    /// What hooks add behind it.
    pub(super) injected: &'a mut Vec<Candidate>,
    pub(super) records: &'a mut Vec<Record>,
    /// Tokens that were injected into the turn before it.
    pub(super) other: u64,
    /// Whether a hook wants that the message is not kept.
    pub(super) erased: bool,
}

impl Incoming<'_> {
    /// Runs the `before_agent` hooks on it, in order. An [`Interrupt::Settle`] is a hook that does not let it pass.
    pub(super) async fn meet_hooks(&mut self, ctx: &TurnContext) -> Result<(), Interrupt> {
        let hooks = ctx.agent.hooks_at(Point::BeforeAgent);
        if hooks.is_empty() {
            return Ok(());
        }
        let message = self.turn.user_message();
        let mut caller =
            HookCaller::new(ctx, Point::BeforeAgent).given(|| serde_json::to_string(message).unwrap_or_default());
        // One view for the whole chain: making one costs more than calling a hook.
        let mut view = BeforeAgentContext::new(self.turn.clone());
        for entry in hooks {
            match &*entry.code {
                Code::Hook(hook) => self.ask(&mut caller, &mut view, entry, &**hook).await?,
                Code::Group(group) => {
                    for (name, content) in run_group(entry, group, Point::BeforeAgent, self.turn, self.records).await? {
                        self.inject(ctx, entry, &name, vec![content])?;
                    }
                    view.turn = self.turn.clone();
                }
            }
        }
        Ok(())
    }

    async fn ask(
        &mut self,
        caller: &mut HookCaller<'_>,
        view: &mut BeforeAgentContext,
        entry: &HookEntry,
        hook: &dyn DynHook,
    ) -> Result<(), Interrupt> {
        let mut run = caller.run(entry, pin!(hook.before_agent(view))).await?;
        run.tokens = cost_of(&view.injected);
        let (injected, rewritten) = (std::mem::take(&mut view.injected), view.rewritten.take());
        if run.result.is_err() {
            changes::hide_after_failure(entry, self.records, Edited::Message, None);
        }
        let Some(decision) = caller.unless_blocked(entry, run, self.records)? else { return Ok(()) };
        if let Some(content) = rewritten {
            let before = text_of(self.turn.user_message());
            let applied = Applied::new(Edited::Message, before, text_of(&content));
            changes::note_edit(&self.turn.ctx, entry, self.records, applied);
            self.turn.edit().user_message = content;
            view.turn = self.turn.clone();
        }
        let halted = |reason| Verdict::by_hook(Outcome::Halted, reason, &entry.name, Point::BeforeAgent).into();
        match decision {
            BeforeAgent::Continue if injected.is_empty() => Ok(()),
            BeforeAgent::Continue => {
                let ctx = self.turn.ctx.clone();
                self.inject(&ctx, entry, &entry.name, injected)?;
                view.turn = self.turn.clone();
                Ok(())
            }
            BeforeAgent::Halt(reason) => Err(halted(reason)),
            BeforeAgent::Erase(reason) => {
                self.erased = true;
                Err(halted(reason))
            }
        }
    }

    /// Adds what a hook puts behind the message, within the reserve.
    fn inject(
        &mut self,
        ctx: &TurnContext,
        entry: &HookEntry,
        hook: &Text,
        contents: Vec<Content>,
    ) -> Result<(), Interrupt> {
        let shown = self.turn.view.injections.len() - self.injected.len();
        let addition = Addition { entry, hook, contents, other: self.other, lasts: InjectionSpan::ThisTurn };
        admit(ctx, self.injected, self.records, addition)?;
        let injections = &mut self.turn.edit().injections;
        injections.truncate(shown);
        injections.extend(self.injected.iter().map(|candidate| candidate.injection.clone()));
        Ok(())
    }
}

/// Adds to the turn's injections, within the reserve.
fn inject(active: &mut ActiveTurn, entry: &HookEntry, hook: &Text, contents: Vec<Content>) -> Result<(), Interrupt> {
    let ActiveTurn { turn, injected, records, .. } = active;
    let addition = Addition { entry, hook, contents, other: 0, lasts: InjectionSpan::ThisTurn };
    admit(&turn.ctx, injected, records, addition)?;
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
