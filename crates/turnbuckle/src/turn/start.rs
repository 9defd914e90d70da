//! From what is stored to a turn that can run. A new turn and one that a crash left open take the same path.

use std::sync::Arc;

use super::active::ActiveTurn;
use super::budget::Budget;
use super::build::restore_context;
use super::context::{NewTurn, TurnContext};
use super::left::LeftTurn;
use super::prompt_cache::RequestMemory;
use super::scratch::{TrackedScratch, new_scratch};
use super::state::State;
use super::view::Turn;
use crate::agent::Agent;
use crate::cache_break::SentRequest;
use crate::context::layout::ContextCache;
use crate::event::{Cause, EventKind};
use crate::hook::Lifecycle;
use crate::limits::{CallPrice, OnBudget};
use crate::output_schema::OutputSchema;
use crate::report::last_reply;
use crate::scope::{Actor, Author};
use crate::store::{InboxItem, InboxKind, Scratch, Summary};

/// What is stored of a turn that is to run.
pub(crate) struct StoredTurn {
    /// The message that opens it, if it is still in the inbox.
    pub(crate) message: Option<InboxItem>,
    /// What it needs to go on, if it was accepted before.
    pub(crate) scratch: Option<Arc<Scratch>>,
    pub(crate) state: Box<State>,
    pub(crate) cache: ContextCache,
    pub(crate) epoch: u64,
    /// The last request of the conversation that a model answered.
    pub(crate) last_sent: Option<Arc<SentRequest>>,
    /// What else is known of its last requests.
    pub(crate) memory: Box<RequestMemory>,
    /// The newest summary of the conversation.
    pub(crate) newest_summary: Option<Arc<Summary>>,
    /// Why it is not carried on, if it is not.
    pub(crate) left: Option<LeftTurn>,
    /// Who insists that it is carried on although its agent has changed.
    pub(crate) insisted: Option<Author>,
}

/// Makes a turn ready to run. `context` makes what it runs with, for the actor who sent the message.
pub(crate) fn start(
    stored: StoredTurn,
    lifecycle: Option<Lifecycle>,
    context: impl FnOnce(&Actor) -> NewTurn,
) -> Box<ActiveTurn> {
    let StoredTurn { message, scratch, mut state, cache, epoch, last_sent, memory, newest_summary, left, insisted } =
        stored;
    let actor = message.as_ref().map(|item| item.from.clone());
    let actor = actor.or_else(|| scratch.as_ref().map(|scratch| scratch.actor.clone())).unwrap_or(Actor::System);
    let new = context(&actor);
    if state.turn.is_none() {
        state.begin(new.id.clone());
    }
    let project = || new.services.project.clone();
    let mut scratch = scratch.unwrap_or_else(|| Arc::new(new_scratch(&new.agent, &new.id, actor, project())));
    let content = message.and_then(|item| match item.kind {
        InboxKind::Message { content, schema, .. } => {
            if scratch.schema != schema {
                Arc::make_mut(&mut scratch).schema = schema;
            }
            Some(content)
        }
        _ => None,
    });
    // The schema was compiled when the message was sent, so it compiles.
    let schema = scratch.schema.as_ref().and_then(|schema| OutputSchema::new((**schema).clone()).ok());
    let schema = schema.or_else(|| new.agent.output_schema().cloned());
    let opening = || {
        state.turn_events().iter().find_map(|event| match &event.kind {
            EventKind::UserMessage { content, .. } => Some(content.clone()),
            _ => None,
        })
    };
    let user_message = content.or_else(opening).unwrap_or_default();
    let logged = state.turn.as_ref().map_or_else(Default::default, |turn| turn.used_after(&[]));
    let used = logged.plus(&scratch.unlogged);
    if let Some(parent) = &new.parent {
        parent.budget.sub_agent_used(&new.conversation, &used);
    }
    let (earlier_calls, sub_agents) = (state.window.totals().model_calls, scratch.sub_agents.clone());
    let budget = Budget::new(new.conversation.clone(), earlier_calls, used, sub_agents, new.parent.clone());
    if scratch.limits.on_budget == OnBudget::Answer {
        budget.keep_back(CallPrice::default());
    }
    if scratch.last_answer.is_some() {
        budget.begin_last();
    }
    let changes = match &left {
        // One that stands in for the agent, to end its turn, is no other configuration.
        None if !new.agent.is_stand_in() && scratch.digest != *new.agent.digest() => {
            Some(changes(&scratch, &new.agent, insisted.as_ref()))
        }
        _ => None,
    };
    let ctx = TurnContext::new(new, scratch.limits.clone(), budget, scratch.touched.clone());
    let mut turn = Turn::new(ctx, user_message);
    let is_new = state.turn_events().is_empty();
    if !is_new {
        let reply = last_reply(state.turn_events(), &turn.ctx.id);
        let view = turn.edit();
        view.assistant_message = reply;
        view.stop_active = state.turn.as_ref().is_some_and(|turn| turn.stop_active);
    }
    let mut active = Box::new(ActiveTurn::new(turn, (state, cache, memory), TrackedScratch::new(scratch), epoch));
    (active.lifecycle, active.schema) = (lifecycle, schema);
    active.last_sent = last_sent;
    active.newest_summary = newest_summary;
    if let Some(text) = changes {
        active.warn_once(text, Cause::AgentChanged);
    }
    active.left = left;
    if !is_new && active.left.is_none() {
        active.restore_injections();
        restore_context(&mut active);
    }
    active
}

/// What is different from the agent that the turn began with, for people.
fn changes(scratch: &Scratch, agent: &Agent, insisted: Option<&Author>) -> String {
    let (mut changes, mut missing) = match &scratch.parts {
        Some(before) => (agent.parts().changes_since(before), agent.parts().missing_of(before)),
        None => (Vec::new(), Vec::new()),
    };
    if scratch.model != *agent.model_choice() {
        changes.push(format!("the model is {} instead of {}", agent.model_choice(), scratch.model));
    }
    let mut text = match changes.is_empty() {
        true => "the configuration changed since this turn began".to_owned(),
        false => format!("the configuration changed since this turn began: {}", changes.join(", ")),
    };
    text += "; its limits stay, hooks and tools are the present ones";
    if !missing.is_empty() {
        let missing: Vec<_> = missing.drain(..).map(|part| part.to_string()).collect();
        text += &format!("; it is carried on without {}", missing.join(", "));
        if let Some(by) = insisted {
            text += &format!(", because {by} insisted");
        }
    }
    text
}
