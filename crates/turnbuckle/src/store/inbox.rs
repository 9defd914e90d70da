//! What is in an inbox until the conversation's writer takes it up.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, Job, StandingApproval};
use crate::clock::Timestamp;
use crate::id::{CallId, ItemId, TurnId};
use crate::message::{Content, Text};
use crate::record::Record;
use crate::scope::Actor;

/// A message before hooks have seen it, or what another process asks of the conversation's writer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxItem {
    /// Unique in the conversation. A message's is the id of the turn that it opens.
    pub id: ItemId,
    /// Who sent it. Whether they may was checked before it was stored.
    pub from: Actor,
    /// When it happened.
    pub at: Timestamp,
    /// What it asks for.
    #[serde(rename = "says")]
    pub kind: InboxKind,
}

/// Which items of an inbox to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxFilter {
    /// All items.
    All,
    /// Orders for the writer. Messages, of which many may wait and which may be long, are left out.
    Control,
}

/// What an [`InboxItem`] asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InboxKind {
    /// A message for a turn of its own.
    Message {
        /// What was said.
        content: Content,
        /// What the answer must look like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Arc<Value>>,
        /// The name of the agent that it was sent to: no other takes it up. `None` if an older program stored it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<Text>,
    },
    /// The answer to a suspended call.
    Answer {
        /// The call's id.
        call: CallId,
        /// The answer.
        answer: Answer,
        /// What the person was shown, if they say so.
        digest: Option<Text>,
        /// How it came, if not through a program of Turnbuckle.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<Text>,
        /// The standing approval that begins when the answer is taken up. If it is refused there, none begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        standing: Option<Box<StandingApproval>>,
    },
    /// What jobs of a turn came to, in a process that does not have the conversation.
    #[serde(rename = "notes")]
    JobResults {
        /// Whose jobs.
        turn: TurnId,
        /// What they leave for the next turn, by hook.
        notes: Vec<(Text, Content)>,
        /// How their hooks ran.
        records: Vec<Record>,
        /// The jobs, which are done.
        done: Vec<Job>,
    },
    /// The turn is to be cancelled.
    Cancel {
        /// Which: one that came after it is not meant.
        turn: TurnId,
    },
}

impl InboxItem {
    /// A message for the turn `turn`.
    pub fn message(turn: &TurnId, content: Content, from: Actor, at: Timestamp) -> Self {
        Self { id: ItemId::of_turn(turn), from, at, kind: InboxKind::Message { content, schema: None, agent: None } }
    }

    /// The same message, whose answer must fit `schema`.
    #[must_use]
    pub fn with_schema(mut self, wanted: Option<Arc<Value>>) -> Self {
        if let InboxKind::Message { schema, .. } = &mut self.kind {
            *schema = wanted;
        }
        self
    }

    /// The same message, for the agent of this name.
    #[must_use]
    pub fn for_agent(mut self, name: Text) -> Self {
        if let InboxKind::Message { agent, .. } = &mut self.kind {
            *agent = Some(name);
        }
        self
    }

    /// The call that it answers, if it is an answer.
    pub fn answers(&self) -> Option<&CallId> {
        match &self.kind {
            InboxKind::Answer { call, .. } => Some(call),
            _ => None,
        }
    }

    /// The turn that it opens, if it is a message.
    pub fn opens(&self) -> Option<TurnId> {
        matches!(self.kind, InboxKind::Message { .. }).then(|| TurnId::from(self.id.clone()))
    }
}
