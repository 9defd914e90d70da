//! Why a store did not do what it was asked.

use std::fmt;
use std::sync::Arc;

use super::{Hold, KeyedMessage, MAX_INBOX, StaleAnswer};
use crate::clock::Timestamp;
use crate::id::{CallId, ConversationId};
use crate::message::Text;

/// Why a store did not do what it was asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Another writer holds the conversation.
    InUse {
        /// The conversation.
        id: ConversationId,
    },
    /// The writer's claim is no longer the newest.
    Fenced {
        /// The conversation.
        id: ConversationId,
        /// The old claim.
        epoch: u64,
    },
    /// The log is longer or shorter than the writer thinks.
    WrongSeq {
        /// The conversation.
        id: ConversationId,
        /// Where the writer thinks it ends.
        expected: u64,
        /// Where it does.
        actual: u64,
    },
    /// There is no such conversation.
    NotFound {
        /// The conversation.
        id: ConversationId,
    },
    /// The conversation was deleted. Its id cannot be used again.
    Deleted {
        /// The conversation.
        id: ConversationId,
        /// When it was deleted.
        at: Timestamp,
    },
    /// The conversation is on hold: it cannot be deleted.
    Held {
        /// The conversation.
        id: ConversationId,
        /// Since when, and by whom.
        hold: Hold,
    },
    /// The inbox holds as many items of this kind as it may.
    Full {
        /// The conversation.
        id: ConversationId,
    },
    /// A message was sent under this key already.
    SentBefore {
        /// The conversation.
        id: ConversationId,
        /// What was sent.
        sent: KeyedMessage,
    },
    /// An answer to this call is stored already.
    AlreadyAnswered {
        /// The conversation.
        id: ConversationId,
        /// The call.
        call: CallId,
    },
    /// No question is open under this call id.
    NotAsked {
        /// The conversation.
        id: ConversationId,
        /// The call.
        call: CallId,
    },
    /// The answer is about other arguments than those that are asked about.
    ArgumentsChanged {
        /// The conversation.
        id: ConversationId,
        /// The call.
        call: CallId,
    },
    /// An event uses a standing approval that was revoked, has expired or is used up.
    StandingEnded {
        /// The id of the standing approval.
        approval: Text,
    },
    /// The medium failed.
    Failed {
        /// What it was doing.
        doing: String,
        /// The cause.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// An answer to this call does not count.
    pub fn stale_answer(id: &ConversationId, call: &CallId, why: StaleAnswer) -> Self {
        let (id, call) = (id.clone(), call.clone());
        match why {
            StaleAnswer::Expired => Self::NotAsked { id, call },
            StaleAnswer::AlreadyAnswered => Self::AlreadyAnswered { id, call },
            StaleAnswer::OtherArguments => Self::ArgumentsChanged { id, call },
        }
    }

    /// The medium failed while doing this.
    pub fn failed(doing: impl Into<String>, source: impl Into<crate::BoxError>) -> Self {
        Self::Failed { doing: doing.into(), source: source.into().into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { id } => write!(f, "conversation {id} is in use by another writer"),
            Self::Fenced { id, epoch } => {
                write!(f, "conversation {id} was taken over: epoch {epoch} is not the newest")
            }
            Self::WrongSeq { id, expected, actual } => {
                write!(f, "the log of conversation {id} ends at {actual}, not at {expected}")
            }
            Self::NotFound { id } => write!(f, "there is no conversation {id}"),
            Self::Deleted { id, at } => write!(f, "conversation {id} was deleted at {at}; its id cannot be used again"),
            Self::Held { id, hold } => write!(f, "conversation {id} is on hold since {}, by {}", hold.at, hold.by),
            Self::Full { id } => write!(f, "the inbox of conversation {id} is full: {MAX_INBOX} items wait in it"),
            Self::SentBefore { id, sent } => {
                write!(f, "a message of conversation {id} was sent under this key already, for turn {}", sent.turn)
            }
            Self::AlreadyAnswered { id, call } => {
                write!(f, "call {call} of conversation {id} has an answer already")
            }
            Self::NotAsked { id, call } => write!(f, "nothing is asked under call {call} of conversation {id}"),
            Self::ArgumentsChanged { id, call } => {
                write!(f, "the arguments of call {call} of conversation {id} were changed since they were shown")
            }
            Self::StandingEnded { approval } => write!(f, "the standing approval {approval} can no longer be used"),
            Self::Failed { doing, .. } => write!(f, "the store failed while {doing}"),
        }
    }
}

/// Written by hand, because a derived `source` would give the `Arc` instead of the error in it.
impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
