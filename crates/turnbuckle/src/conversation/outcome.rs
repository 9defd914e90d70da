//! What callers are told: how a turn came to rest, and what went wrong on the way in.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::event::{Outcome, TurnEnded, Warning};
use crate::hook::{HookFailure, Point};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::{Reply, Text, Usage};
use crate::projection::Pending;
use crate::scope::Author;
use crate::store::StoreError;
use crate::turn::PermissionMode;

/// A turn that is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TurnReport {
    /// Of which conversation.
    pub conversation: ConversationId,
    /// Which turn.
    pub turn: TurnId,
    /// The agent's name.
    pub agent: Text,
    /// Whether a person was there to be asked.
    pub permission_mode: PermissionMode,
    /// How it came out.
    pub outcome: Outcome,
    /// Why, if not plainly completed.
    pub reason: Option<Text>,
    /// Who ended it, if not the model.
    pub by: Option<Author>,
    /// The model's last words, if the turn got that far.
    pub reply: Option<Arc<Reply>>,
    /// What an `after_agent` hook shows instead.
    pub result: Option<Arc<Value>>,
    /// What went wrong without ending the turn: overruled stops are here, with their hook.
    pub warnings: Vec<Warning>,
    /// Attempts that reached a model.
    pub model_calls: u32,
    /// Over all attempts.
    pub usage: Usage,
    /// Dollars, over all attempts of models with a known price.
    pub cost: f64,
    /// Time at work.
    pub ms: u64,
}

impl TurnReport {
    pub(crate) fn new(
        conversation: ConversationId,
        turn: TurnId,
        agent: Text,
        permission_mode: PermissionMode,
        ended: TurnEnded,
        reply: Option<Arc<Reply>>,
    ) -> Self {
        Self {
            conversation,
            turn,
            agent,
            permission_mode,
            outcome: ended.outcome,
            reason: ended.reason,
            by: ended.by,
            reply,
            result: ended.result,
            warnings: ended.warnings,
            model_calls: ended.model_calls,
            usage: ended.usage,
            cost: ended.cost,
            ms: ended.ms,
        }
    }

    /// What to show: the result a hook made, the object that was asked for, or the model's last words. Empty if the turn
    /// came to nothing.
    pub fn text(&self) -> String {
        if let (None, Some(object)) = (&self.result, self.object()) {
            return object.to_string();
        }
        match (&self.result, &self.reply) {
            (Some(result), _) => match &**result {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
            (None, Some(reply)) if self.outcome == Outcome::Completed => reply.content.text(),
            _ => String::new(),
        }
    }

    /// The object, when a schema was asked for and the turn completed.
    pub fn object(&self) -> Option<&Value> {
        let reply = self.reply.as_ref().filter(|_| self.is_completed())?;
        reply.object.as_deref()
    }

    /// Whether the turn completed.
    pub fn is_completed(&self) -> bool {
        self.outcome == Outcome::Completed
    }
}

/// How a turn came to rest.
#[derive(Clone, Debug)]
pub enum TurnStatus {
    /// It is over.
    Ended(Box<TurnReport>),
    /// Someone must answer these.
    Waiting(Vec<Pending>),
}

/// A turn that was taken up. Dropping the handle does not cancel it.
#[derive(Debug)]
pub struct TurnHandle {
    turn: TurnId,
    /// `None`: another process carries the turn on.
    rest: Option<oneshot::Receiver<Result<TurnStatus, TurnError>>>,
}

impl TurnHandle {
    pub(crate) fn new(turn: TurnId, rest: oneshot::Receiver<Result<TurnStatus, TurnError>>) -> Self {
        Self { turn, rest: Some(rest) }
    }

    pub(crate) fn elsewhere(turn: TurnId) -> Self {
        Self { turn, rest: None }
    }

    /// Whether another process carries the turn on: it was handed over.
    pub fn is_remote(&self) -> bool {
        self.rest.is_none()
    }

    /// The turn's id.
    pub fn turn(&self) -> &TurnId {
        &self.turn
    }

    /// Waits until the turn is over or waits for someone.
    pub async fn wait(self) -> Result<TurnStatus, TurnError> {
        match self.rest {
            Some(rest) => rest.await.unwrap_or(Err(TurnError::Gone)),
            None => Err(TurnError::Remote),
        }
    }
}

/// Why a turn could not be carried on. What was written stands, and the turn can be revived.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The log could not be written.
    #[error("the turn stopped: {0}")]
    Store(#[source] Arc<StoreError>),
    /// The runtime was shut down.
    #[error("the turn stopped: its driver is gone")]
    Gone,
    /// Another process has the conversation.
    #[error("another process carries the turn on")]
    Remote,
}

/// Why a message was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is nothing in it.
    #[error("the message is empty")]
    Empty,
    /// A turn runs or waits.
    #[error("conversation {id} is busy{}", waiting_for(.pending))]
    Busy {
        /// Which.
        id: ConversationId,
        /// The calls it waits for, if it waits.
        pending: Vec<CallId>,
    },
    /// There is no such conversation, or it is another's.
    #[error("there is no conversation {id}")]
    NotFound {
        /// Which.
        id: ConversationId,
    },
    /// More is asked of the conversation at once than may wait.
    #[error("too much is asked of conversation {id} at once")]
    Full {
        /// Which.
        id: ConversationId,
    },
    /// A hook failed whose failure blocks: the conversation was not closed.
    #[error("hook {hook} failed at {}: {cause}", Point::OnConversation)]
    Hook {
        /// Which.
        hook: Text,
        /// How.
        #[source]
        cause: HookFailure,
    },
    /// The store refused.
    #[error(transparent)]
    Store(StoreError),
    /// The runtime was shut down.
    #[error("the conversation's driver is gone")]
    Gone,
}

impl SendError {
    /// A conversation that another process has is busy.
    pub(crate) fn busy_elsewhere(self) -> Self {
        match self {
            Self::Store(StoreError::InUse { id }) => Self::Busy { id, pending: Vec::new() },
            other => other,
        }
    }
}

fn waiting_for(pending: &[CallId]) -> String {
    match pending {
        [] => String::new(),
        calls => {
            let calls: Vec<_> = calls.iter().map(CallId::as_str).collect();
            format!(": its turn waits for {}", calls.join(", "))
        }
    }
}

/// Why an answer was not taken.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Unknown, answered, expired, or about other arguments than those shown.
    #[error("the answer to call {call} is stale: {why}")]
    Stale {
        /// Which call.
        call: CallId,
        /// In which way.
        why: Text,
    },
    /// Not an answer to this question.
    #[error("call {call} cannot be answered like that: {why}")]
    Unfit {
        /// Which call.
        call: CallId,
        /// Why not.
        why: Text,
    },
    /// There is no such conversation, or it is another's.
    #[error("there is no conversation {id}")]
    NotFound {
        /// Which.
        id: ConversationId,
    },
    /// Another process has the conversation, and nobody can hand the answer over.
    #[error("conversation {id} is in use by another process")]
    InUse {
        /// Which.
        id: ConversationId,
    },
    /// It is longer than an answer may be.
    #[error("the answer to call {call} is too long: it has {size} bytes, and {most} are the most")]
    TooLong {
        /// Which call.
        call: CallId,
        /// In bytes.
        size: usize,
        /// In bytes.
        most: usize,
    },
    /// More is asked of the conversation at once than may wait.
    #[error("too much is asked of conversation {id} at once")]
    Full {
        /// Which.
        id: ConversationId,
    },
    /// The conversation could not be read, or the answer could not be written.
    #[error("the answer could not be written: {0}")]
    Store(#[source] Arc<StoreError>),
    /// The runtime was shut down.
    #[error("the conversation's driver is gone")]
    Gone,
}

impl From<StoreError> for ResolveError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { id } => Self::Full { id },
            error => Self::Store(Arc::new(error)),
        }
    }
}

impl From<SendError> for ResolveError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotFound { id } => Self::NotFound { id },
            SendError::Full { id } => Self::Full { id },
            SendError::Store(error) => error.into(),
            // Nothing is said here that could be empty or meet a turn, and nothing is closed.
            SendError::Gone | SendError::Empty | SendError::Busy { .. } | SendError::Hook { .. } => Self::Gone,
        }
    }
}

/// What became of a cancellation. It is stored before this is told: a turn that a crash revives stays cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// This process has the turn, and ends it.
    Local {
        /// Which.
        turn: TurnId,
    },
    /// Another process has the turn, and finds the order in its inbox.
    Remote {
        /// Which.
        turn: TurnId,
    },
    /// No turn was open.
    NotRunning,
}

/// Why [`Agent::run`](crate::Agent::run) has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The message was not taken.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The turn could not be carried on.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// Someone must answer first.
    #[error("the turn waits for an answer; resolve it through Conversations")]
    Waiting {
        /// Which conversation.
        conversation: ConversationId,
        /// What it waits for.
        pending: Vec<Pending>,
    },
}
