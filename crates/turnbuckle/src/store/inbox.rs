//! What is in an inbox until the conversation's writer takes it up.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Answer, Job, MessageKey, StandingApproval};
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
    /// What a running turn may have to act on: orders for the writer, and messages that steer a turn.
    DuringTurn,
}

impl InboxFilter {
    /// Whether this item is among those to read.
    pub fn wants(self, item: &InboxItem) -> bool {
        match self {
            Self::All => true,
            Self::Control => item.opens().is_none(),
            Self::DuringTurn => item.opens().is_none() || item.steers().is_some(),
        }
    }
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
        /// The turn that it steers: the model of that turn is given it at its next call. If the turn ends first, it opens a
        /// turn of its own, like any other message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steers: Option<TurnId>,
        /// By which it is known if it is sent again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<MessageKey>,
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
        Self {
            id: ItemId::of_turn(turn),
            from,
            at,
            kind: InboxKind::Message { content, schema: None, agent: None, steers: None, key: None },
        }
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

    /// The same message, for the turn `turn` while that is open. One whose answer must fit a schema has a turn of its own.
    #[must_use]
    pub fn steering(mut self, turn: Option<TurnId>) -> Self {
        if let InboxKind::Message { schema: None, steers, .. } = &mut self.kind {
            *steers = turn;
        }
        self
    }

    /// The same message, known by this key if it is sent again.
    #[must_use]
    pub fn with_key(mut self, given: Option<MessageKey>) -> Self {
        if let InboxKind::Message { key, .. } = &mut self.kind {
            *key = given;
        }
        self
    }

    /// The key of a message that has one, with the user who sent it. What the system sends has no key.
    pub fn key(&self) -> Option<(&str, &MessageKey)> {
        match &self.kind {
            InboxKind::Message { key: Some(key), .. } => Some((self.from.user_id()?, key)),
            _ => None,
        }
    }

    /// The turn that it steers while that is open, if it is such a message.
    pub fn steers(&self) -> Option<&TurnId> {
        match &self.kind {
            InboxKind::Message { steers, .. } => steers.as_ref(),
            _ => None,
        }
    }

    /// The call that it answers, if it is an answer.
    pub fn answers(&self) -> Option<&CallId> {
        match &self.kind {
            InboxKind::Answer { call, .. } => Some(call),
            _ => None,
        }
    }

    /// The turn that it opens, if it is a message. One that steers another turn opens this one only if that has ended.
    pub fn opens(&self) -> Option<TurnId> {
        matches!(self.kind, InboxKind::Message { .. }).then(|| TurnId::from(self.id.clone()))
    }
}
