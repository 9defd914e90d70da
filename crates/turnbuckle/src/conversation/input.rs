//! What a user sends.

use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::id::TurnId;
use crate::message::Content;
use crate::output_schema::OutputSchema;
use crate::scope::Scope;
use crate::store::InboxItem;

/// What a user says, and what the answer must look like.
#[derive(Clone, Debug)]
#[must_use]
pub struct UserInput {
    pub(crate) content: Content,
    schema: Option<OutputSchema>,
}

impl UserInput {
    /// Just this.
    pub fn new(content: impl Into<Content>) -> Self {
        Self { content: content.into(), schema: None }
    }

    /// The answer must be an object that fits this schema.
    pub fn with_schema(mut self, schema: OutputSchema) -> Self {
        self.schema = Some(schema);
        self
    }

    /// The inbox item for a turn of its own.
    pub(super) fn item(&self, turn: &TurnId, agent: &Agent, scope: &Scope, at: Timestamp) -> InboxItem {
        let schema = self.schema.as_ref().map(|schema| schema.schema().clone());
        let item = InboxItem::message(turn, self.content.clone(), scope.actor().clone(), at);
        item.with_schema(schema).for_agent(agent.shared_name().clone())
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
}
