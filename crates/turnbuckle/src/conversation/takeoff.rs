//! From what is stored to a turn in flight: the same for a new message and for a turn that a crash left open.

use std::sync::Arc;
use std::time::Duration;

use super::driver::Sitting;
use super::outbox::last_words;
use crate::event::EventKind;
use crate::feed::{Level, LiveEvent};
use crate::hook::Lifecycle;
use crate::message::Reply;
use crate::output_schema::OutputSchema;
use crate::scope::Actor;
use crate::store::{InboxKind, Scratch};
use crate::turn::{ActiveTurn, Budget, State, Turn, TurnContext, TurnContextParts, UsedBudget, look_back};

impl Sitting {
    /// The flight of the open turn, or of the next message.
    pub(super) fn take_off(&mut self, epoch: u64) -> Option<Box<ActiveTurn>> {
        let mut state = self.state.take()?;
        let (agent, parent) = (self.cell.agent.clone(), self.cell.parent());
        if state.turn.is_none() {
            state.begin(self.inbox.first()?.opens()?);
        }
        let open = state.turn.as_ref()?;
        let id = open.id.clone();
        let place = self.inbox.iter().position(|item| *item.id == *id.as_str());
        let message = place.map(|index| self.inbox.remove(index));
        let scratch = self.scratch.take().filter(|scratch| scratch.turn == id);
        let actor = message.as_ref().map(|item| item.from.clone());
        let actor = actor.or_else(|| scratch.as_ref().map(|scratch| scratch.actor.clone())).unwrap_or(Actor::System);
        let scope = self.cell.scope_of(&id).unwrap_or_else(|| (self.runtime.scope_source)(&actor));
        let mut scratch = scratch.unwrap_or_else(|| new_scratch(&agent, &id, actor));
        // Attempts at a reply that is not in the log yet.
        let regenerated = scratch.regeneration.as_ref().map_or(0, |again| again.attempts);
        let attempts = scratch.asked.as_ref().map_or(regenerated, |asked| asked.attempt);
        let logged = UsedBudget { calls: open.model_calls + attempts, usage: open.usage, cost: scratch.spent.cost };
        let spent = if scratch.spent.calls >= logged.calls { scratch.spent } else { logged };
        let budget = Budget::new(state.totals.model_calls, spent, parent.clone());
        let message = message.and_then(|item| match item.kind {
            InboxKind::Message { content, schema } => {
                scratch.schema = schema;
                Some(content)
            }
            _ => None,
        });
        // It was a schema when it was sent.
        let shape = scratch.schema.as_ref().and_then(|schema| OutputSchema::new((**schema).clone()).ok());
        let shape = shape.or_else(|| agent.shape().cloned());
        let user_message = message.or_else(|| opening(&state)).unwrap_or_default();
        let ctx = TurnContext::new(TurnContextParts {
            conversation: self.cell.id.clone(),
            scope,
            agent,
            limits: scratch.limits.clone(),
            feed: self.cell.feed.clone(),
            runtime: self.runtime.clone(),
            abort: self.cell.begin(&id, parent.as_ref()),
            parent,
            budget,
            touched: scratch.touched.clone(),
            id,
        });
        let moment = self.cell.meets_first_turn().then_some(match state.seq {
            0 => Lifecycle::Started,
            _ => Lifecycle::Revived,
        });
        if ctx.agent.digest() != &scratch.digest {
            let text = "the configuration changed since this turn began: its limits stay, hooks and tools are the present ones";
            ctx.publish(LiveEvent::Notice { level: Level::Warning, text: text.into(), hook: None });
        }
        let mut turn = Turn::new(Arc::new(ctx), user_message);
        let seen = turn.change();
        seen.assistant_message = last_reply(&state);
        seen.stop_active = state.turn.as_ref().is_some_and(|turn| turn.stop_active);
        let mut active = Box::new(ActiveTurn::new(turn, state, scratch, epoch, self.cell.clone()));
        (active.moment, active.shape) = (moment, shape);
        active.remember_injections();
        look_back(&mut active);
        Some(active)
    }
}

fn new_scratch(agent: &crate::Agent, turn: &crate::TurnId, actor: Actor) -> Scratch {
    Scratch {
        turn: turn.clone(),
        actor,
        agent: agent.shared_name().clone(),
        model: agent.model_choice().clone(),
        digest: agent.digest().clone(),
        schema: None,
        limits: agent.limits().clone(),
        injections: Vec::new(),
        regeneration: None,
        asked: None,
        approved: None,
        answers: Vec::new(),
        touched: Vec::new(),
        active: Duration::ZERO,
        spent: UsedBudget::default(),
        advice: Vec::new(),
        warnings: Vec::new(),
    }
}

/// The message that opened the open turn.
fn opening(state: &State) -> Option<crate::Content> {
    let first = state.turn.as_ref()?.first;
    state.history[first..].iter().find_map(|event| match &event.kind {
        EventKind::UserMessage { content, .. } => Some(content.clone()),
        _ => None,
    })
}

/// What the model said last in the open turn.
fn last_reply(state: &State) -> Option<Arc<Reply>> {
    let turn = state.turn.as_ref()?;
    last_words(&state.history[turn.first..], &turn.id)
}
