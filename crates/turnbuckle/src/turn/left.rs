//! Turns that are open and that this process does not carry on, and why.

use std::fmt;

use crate::agent::{Agent, AgentParts, MissingPart};
use crate::id::TurnId;
use crate::message::Text;
use crate::store::{InboxItem, InboxKind, Scratch};

/// A turn that is open and that this process does not carry on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftTurn {
    /// The turn.
    pub turn: TurnId,
    /// The name of the agent that it began with.
    pub agent: Text,
    /// Why it is left.
    pub reason: LeftReason,
}

/// Why a turn is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftReason {
    /// It belongs to an agent of another name, which alone may carry it on.
    OtherAgent,
    /// The agent of this name has changed: it lacks something that the turn began with. A person can insist, see
    /// [`Conversations::accept_changes`](crate::Conversations::accept_changes).
    Changed {
        /// What it lacks.
        missing: Vec<MissingPart>,
    },
    /// It is about another project than this process works in: an approved path means another file here. A person can
    /// insist, after the project was moved for instance.
    OtherProject {
        /// The project that it began in.
        project: Text,
    },
}

/// What becomes of an open turn whose agent has changed since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnChangedAgent {
    /// It is left, until a person insists or an agent comes that has everything the turn began with.
    #[default]
    Leave,
    /// It is carried on without what is missing, and the end of the turn says so.
    CarryOn,
}

/// What becomes of a message in a conversation whose last turn was of an agent of another name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherAgents {
    /// It is taken: the conversation goes on with this agent.
    #[default]
    TakeOver,
    /// It is refused, [`SendError::OtherAgent`](crate::conversation::SendError::OtherAgent), unless its sender
    /// [insists](crate::UserInput::accept_agent).
    Refuse,
}

/// Decides about a turn whose agent has changed.
pub(crate) type ChangedAgentPolicy = dyn Fn(&LeftTurn) -> OnChangedAgent + Send + Sync;

impl LeftTurn {
    /// Why `agent`, which works in `project`, must leave a turn that has begun, if it must.
    pub(crate) fn of_scratch(scratch: &Scratch, agent: &Agent, project: &Text) -> Option<Self> {
        let left = |reason| Some(Self { turn: scratch.turn.clone(), agent: scratch.agent.clone(), reason });
        if *scratch.agent != *agent.name() {
            return left(LeftReason::OtherAgent);
        }
        // A program that knows of no projects says nothing about them.
        if !scratch.project.is_empty() && !project.is_empty() && scratch.project != *project {
            return left(LeftReason::OtherProject { project: scratch.project.clone() });
        }
        // Programs before this one did not record it: then the name decides alone.
        let missing = scratch.parts.as_ref().map(|before| missing(before, agent)).unwrap_or_default();
        if missing.is_empty() { None } else { left(LeftReason::Changed { missing }) }
    }

    /// Why `agent` must leave a message, if it must: it was sent to another agent.
    pub(crate) fn of_message(item: &InboxItem, agent: &Agent) -> Option<Self> {
        match &item.kind {
            InboxKind::Message { agent: Some(name), .. } if **name != *agent.name() => {
                Some(Self { turn: item.opens()?, agent: name.clone(), reason: LeftReason::OtherAgent })
            }
            _ => None,
        }
    }

    /// Whether a person may insist that it is carried on here.
    pub fn can_insist(&self) -> bool {
        matches!(self.reason, LeftReason::Changed { .. } | LeftReason::OtherProject { .. })
    }
}

fn missing(before: &std::sync::Arc<AgentParts>, agent: &Agent) -> Vec<MissingPart> {
    // The usual case: the same agent, in the same process.
    if std::sync::Arc::ptr_eq(before, agent.parts()) { Vec::new() } else { agent.parts().missing_of(before) }
}

impl fmt::Display for LeftTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            LeftReason::OtherAgent => {
                write!(f, "it is a turn of agent {}, and only that agent carries it on", self.agent)
            }
            LeftReason::OtherProject { project } => {
                write!(f, "it is a turn of project {project}, and would work in another folder here")
            }
            LeftReason::Changed { missing } => {
                let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
                write!(f, "agent {} has changed since the turn began: it lacks {}", self.agent, missing.join(", "))
            }
        }
    }
}
