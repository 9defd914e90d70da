//! From what is stored to a turn in flight: the same for a new message and for a turn that a crash left open.

use std::sync::Arc;
use std::time::Duration;

use super::driver::Sitting;
use super::outbox::last_words;
use crate::event::EventKind;
use crate::hook::Moment;
use crate::live::{Level, Live};
use crate::message::Reply;
use crate::scope::Actor;
use crate::shape::Shape;
use crate::store::{Beside, Says};
use crate::turn::{Flight, Frame, FrameParts, Meter, Spent, State, Turn, look_back};

impl Sitting {
    /// The flight of the open turn, or of the next message.
    pub(super) fn take_off(&mut self, epoch: u64) -> Option<Box<Flight>> {
        let mut state = self.state.take()?;
        let (agent, parent) = (self.cell.agent.clone(), self.cell.parent());
        if state.turn.is_none() {
            state.begin(self.inbox.first()?.opens()?);
        }
        let open = state.turn.as_ref()?;
        let id = open.id.clone();
        let place = self.inbox.iter().position(|letter| *letter.id == *id.as_str());
        let message = place.map(|index| self.inbox.remove(index));
        let beside = self.beside.take().filter(|beside| beside.turn == id);
        let actor = message.as_ref().map(|letter| letter.from.clone());
        let actor = actor.or_else(|| beside.as_ref().map(|beside| beside.actor.clone())).unwrap_or(Actor::System);
        let scope = self.cell.scope_of(&id).unwrap_or_else(|| (self.house.scope_source)(&actor));
        let mut beside = beside.unwrap_or_else(|| fresh_beside(&agent, &id, actor));
        // Attempts at a reply that is not in the log yet.
        let regenerated = beside.regeneration.as_ref().map_or(0, |again| again.attempts);
        let attempts = beside.asked.as_ref().map_or(regenerated, |asked| asked.attempt);
        let logged = Spent { calls: open.model_calls + attempts, usage: open.usage, cost: beside.spent.cost };
        let spent = if beside.spent.calls >= logged.calls { beside.spent } else { logged };
        let meter = Meter::new(state.totals.model_calls, spent, parent.clone());
        let message = message.and_then(|letter| match letter.says {
            Says::Message { content, schema } => {
                beside.schema = schema;
                Some(content)
            }
            _ => None,
        });
        // It was a schema when it was sent.
        let shape = beside.schema.as_ref().and_then(|schema| Shape::new((**schema).clone()).ok());
        let shape = shape.or_else(|| agent.shape().cloned());
        let user_message = message.or_else(|| opening(&state)).unwrap_or_default();
        let frame = Frame::new(FrameParts {
            conversation: self.cell.id.clone(),
            scope,
            agent,
            limits: beside.limits.clone(),
            plane: self.cell.plane.clone(),
            house: self.house.clone(),
            cut: self.cell.begin(&id, parent.as_ref()),
            parent,
            meter,
            touched: beside.touched.clone(),
            id,
        });
        let moment = self.cell.meets_first_turn().then_some(match state.seq {
            0 => Moment::Started,
            _ => Moment::Revived,
        });
        if frame.agent.digest() != &beside.digest {
            let text = "the configuration changed since this turn began: its limits stay, hooks and tools are the present ones";
            frame.tell(Live::Notice { level: Level::Warning, text: text.into(), hook: None });
        }
        let mut turn = Turn::new(Arc::new(frame), user_message);
        let seen = turn.change();
        seen.assistant_message = last_reply(&state);
        seen.stop_active = state.turn.as_ref().is_some_and(|turn| turn.stop_active);
        let mut flight = Box::new(Flight::new(turn, state, beside, epoch, self.cell.clone()));
        (flight.moment, flight.shape) = (moment, shape);
        flight.remember_injections();
        look_back(&mut flight);
        Some(flight)
    }
}

fn fresh_beside(agent: &crate::Agent, turn: &crate::TurnId, actor: Actor) -> Beside {
    Beside {
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
        spent: Spent::default(),
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
