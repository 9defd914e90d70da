//! What a user sends.

use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::digest;
use crate::id::TurnId;
use crate::message::{Content, Text};
use crate::output_schema::OutputSchema;
use crate::scope::Scope;
use crate::store::{InboxItem, MessageKey};

/// What a user says, and what the answer must look like.
#[derive(Clone, Debug)]
#[must_use]
pub struct UserInput {
    pub(crate) content: Content,
    schema: Option<OutputSchema>,
    key: Option<Text>,
    /// Whether it is for this agent although the conversation is with another one.
    accepts_agent: bool,
}

impl UserInput {
    /// Just this.
    pub fn new(content: impl Into<Content>) -> Self {
        Self { content: content.into(), schema: None, key: None, accepts_agent: false }
    }

    /// The answer must be an object that fits this schema.
    pub fn with_schema(mut self, schema: OutputSchema) -> Self {
        self.schema = Some(schema);
        self
    }

    /// A message of the same user that is sent again under this key within a day is not sent twice:
    /// [`SendError::SentBefore`](super::SendError::SentBefore) says which turn the first one opened. Across restarts, if the store is
    /// durable.
    pub fn with_key(mut self, key: impl Into<Text>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// It is for this agent also where the conversation is with another one, which
    /// [`ConversationsBuilder::other_agents`](super::ConversationsBuilder::other_agents) may have refused. The record of acts says who
    /// insisted.
    pub fn accept_agent(mut self) -> Self {
        self.accepts_agent = true;
        self
    }

    pub(super) fn accepts_agent(&self) -> bool {
        self.accepts_agent
    }

    /// The key, with the digest of what is said.
    pub(super) fn key(&self) -> Option<MessageKey> {
        let key = self.key.clone()?;
        let schema = self.schema.as_ref().map(|schema| schema.schema());
        let digest = digest::of(&serde_json::json!([self.content, schema]));
        Some(MessageKey { key, digest })
    }

    /// The inbox item for a turn of its own, unless it steers the turn that is open.
    pub(super) fn item(&self, turn: &TurnId, agent: &Agent, scope: &Scope, at: Timestamp) -> InboxItem {
        let schema = self.schema.as_ref().map(|schema| schema.schema().clone());
        let item = InboxItem::message(turn, self.content.clone(), scope.actor().clone(), at);
        item.with_schema(schema).with_key(self.key()).for_agent(agent.shared_name().clone())
    }
}

impl<C: Into<Content>> From<C> for UserInput {
    fn from(content: C) -> Self {
        Self::new(content)
    }
}

/// What to do with a message while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhileBusy {
    /// Refuse it: [`SendError::Busy`](super::SendError::Busy).
    #[default]
    Reject,
    /// Take it up when the turn is over.
    Queue,
    /// Cancel the turn, then take it up.
    Interrupt,
    /// Give it to the model at its next call within the turn. If the turn ends first, the message opens the next one.
    ///
    /// The `before_agent` hooks see it once, for itself, and [`Turn::is_steering`](crate::Turn::is_steering) tells them so. A
    /// hook that halts, fails and blocks, or injects more than the reserve holds refuses this message and not the turn;
    /// its sender gets [`TurnError::Refused`](crate::conversation::TurnError::Refused). A message of someone else than the
    /// turn's own user, or whose answer must fit a schema, waits for a turn of its own: the tools of a turn act for the one
    /// who opened it.
    Steer,
}
