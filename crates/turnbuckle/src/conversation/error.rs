//! What callers get: a handle on a turn, and the errors on the way in.

use tokio::sync::oneshot;

use crate::access::Action;
use crate::clock::Timestamp;
use crate::event::Resolved;
use crate::feed::projection::Pending;
use crate::hook::{HookFailure, Point};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::report::{TurnReport, TurnStatus};
use crate::scope::Author;
use crate::store::{Hold, StoreError};
use crate::turn::{AnswerError, LeftTurn, TurnError};

/// A turn that was taken up. Dropping the handle does not cancel it.
#[derive(Debug)]
pub struct TurnHandle {
    turn: TurnId,
    /// `None` if this process does not carry the turn on.
    status: Option<oneshot::Receiver<Result<TurnStatus, TurnError>>>,
    /// Why no process carries the turn on for now.
    left: Option<LeftTurn>,
}

impl TurnHandle {
    pub(crate) fn new(turn: TurnId, status: oneshot::Receiver<Result<TurnStatus, TurnError>>) -> Self {
        Self { turn, status: Some(status), left: None }
    }

    pub(crate) fn remote(turn: TurnId) -> Self {
        Self { turn, status: None, left: None }
    }

    pub(crate) fn left_behind(left: LeftTurn) -> Self {
        Self { turn: left.turn.clone(), status: None, left: Some(left) }
    }

    /// Whether another process carries the turn on: it was handed over.
    pub fn is_remote(&self) -> bool {
        self.status.is_none() && self.left.is_none()
    }

    /// Whether this process carries the turn on.
    pub(crate) fn is_here(&self) -> bool {
        self.status.is_some()
    }

    /// Why the turn is left, if it is: what was asked is written, and another agent must carry the turn on.
    pub fn left(&self) -> Option<&LeftTurn> {
        self.left.as_ref()
    }

    /// The turn's id.
    pub fn turn(&self) -> &TurnId {
        &self.turn
    }

    /// Waits until the turn is over or waits for someone.
    pub async fn wait(self) -> Result<TurnStatus, TurnError> {
        match self.status {
            Some(status) => status.await.unwrap_or(Err(TurnError::Gone)),
            None => Err(self.left.map_or(TurnError::Remote, TurnError::Left)),
        }
    }
}

/// A call that waits for an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PendingCall {
    /// The conversation.
    pub conversation: ConversationId,
    /// The name of the agent that asks.
    pub agent: Text,
    /// Who sent the message of the turn.
    pub requester: Author,
    /// Since when it waits.
    pub asked: Timestamp,
    /// What is asked, who may answer, until when, and who approved so far.
    pub pending: Pending,
}

/// An answer that is recorded for the agent of its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedFor {
    /// The turn.
    pub turn: TurnId,
    /// The name of the agent that carries it on.
    pub agent: Text,
    /// Whether a process has the conversation and was left the answer in its inbox. Otherwise the answer is in the log.
    pub is_stored_for_owner: bool,
    /// Whether others must approve as well, next to everyone whose approval is in the log or in the inbox.
    pub needs_more: bool,
}

/// What became of an answer that was stored for the process that has the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerStatus {
    /// It waits in the inbox.
    Stored,
    /// It is in the log.
    Recorded {
        /// What it came to.
        decision: Resolved,
        /// Whether others must approve as well.
        needs_more: bool,
    },
    /// It was not taken: the question ended before, or whoever has the conversation refused it.
    NotTaken {
        /// How the question was resolved last, if it was.
        resolved: Option<Resolved>,
    },
}

/// Why a message was not taken.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is nothing in it.
    #[error("the message is empty")]
    Empty,
    /// With nothing but the system prompt and the tools beside it, it has more tokens than a context may hold. It was not stored.
    #[error("the message, the system prompt and the tools have up to {size} tokens, and context_tokens is {limit}")]
    TooLarge {
        /// Their estimated tokens, with the margin that every call must have.
        size: u64,
        /// What a context may hold.
        limit: u64,
    },
    /// The same message was sent under its key before. Nothing was stored.
    #[error("the message was sent before, for turn {turn}")]
    SentBefore {
        /// The turn that the first one opened.
        turn: TurnId,
    },
    /// Another message was sent under its key before. Nothing was stored.
    #[error("another message was sent under this key before")]
    KeyReused,
    /// A turn runs or waits.
    #[error("conversation {id} is busy{}", waiting_for(.pending))]
    Busy {
        /// The conversation.
        id: ConversationId,
        /// The calls it waits for, if it waits.
        pending: Vec<CallId>,
    },
    /// There is no such conversation, or it is another's.
    #[error("there is no conversation {id}")]
    NotFound {
        /// The conversation.
        id: ConversationId,
    },
    /// The conversation may be read by this actor, and this may be done only by others.
    #[error("you may not {} here, but {who} may", in_words(*action))]
    Forbidden {
        /// The conversation.
        id: ConversationId,
        /// What was to be done.
        action: Action,
        /// Who may, for people.
        who: Text,
    },
    /// A turn is open that this process does not carry on: it is of another agent, or its agent has changed.
    #[error("the open turn of conversation {id} is left: {left}")]
    Left {
        /// The conversation.
        id: ConversationId,
        /// The turn, and why.
        left: LeftTurn,
    },
    /// The last turn was of an agent of another name, and these conversations
    /// [take no messages](super::ConversationsBuilder::other_agents) then.
    #[error("conversation {id} is with agent {agent}, which is another one than answers here")]
    OtherAgent {
        /// The conversation.
        id: ConversationId,
        /// The agent of the last turn.
        agent: Text,
    },
    /// These conversations have no agent, so nothing can be said in them.
    #[error("there is no agent to take a message")]
    NoAgent,
    /// More is asked of the conversation at once than may wait.
    #[error("too much is asked of conversation {id} at once")]
    Full {
        /// The conversation.
        id: ConversationId,
    },
    /// The conversation was deleted, by this actor. Its id cannot be used again. To others it is [`NotFound`](Self::NotFound).
    #[error("conversation {id} was deleted at {at}; its id cannot be used again")]
    Deleted {
        /// The conversation.
        id: ConversationId,
        /// When it was done.
        at: Timestamp,
    },
    /// The conversation is on hold and cannot be deleted.
    #[error("conversation {id} is on hold since {}, by {}", .hold.at, .hold.by)]
    Held {
        /// The conversation.
        id: ConversationId,
        /// Since when, and by whom.
        hold: Hold,
    },
    /// A hook failed whose failure blocks: the conversation was not closed.
    #[error("hook {hook} failed at {}: {cause}", Point::OnConversation)]
    Hook {
        /// The hook's name.
        hook: Text,
        /// How it failed.
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
    /// For a sender who does not want to queue, a conversation that another process has is busy.
    pub(crate) fn or_busy(self) -> Self {
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
        /// The call's id.
        call: CallId,
        /// What makes it stale, for people.
        why: Text,
    },
    /// Not an answer to this question.
    #[error("call {call} cannot be answered like that: {why}")]
    Unfit {
        /// The call's id.
        call: CallId,
        /// What is wrong, for people.
        why: Text,
    },
    /// There is no such conversation, or it is another's.
    #[error("there is no conversation {id}")]
    NotFound {
        /// The conversation.
        id: ConversationId,
    },
    /// The conversation may be read by this actor, and the call may be answered only by others.
    #[error("conversation {id} may not be answered by you, but by {who}")]
    Forbidden {
        /// The conversation.
        id: ConversationId,
        /// Who may, for people.
        who: Text,
    },
    /// The agent has changed since the turn began, and would carry it on without something it began with. Nothing was
    /// written. [`Conversations::answer`](super::Conversations::answer) records the answer and leaves the turn.
    #[error("call {call} was not answered: {left}")]
    Changed {
        /// The call's id.
        call: CallId,
        /// The turn, and what is missing.
        left: LeftTurn,
    },
    /// Another process has the conversation, and nobody can hand the answer over.
    #[error("conversation {id} is in use by another process")]
    InUse {
        /// The conversation.
        id: ConversationId,
    },
    /// It is longer than an answer may be.
    #[error("the answer to call {call} is too long: it has {size} bytes, and {most} are the most")]
    TooLong {
        /// The call's id.
        call: CallId,
        /// Its length in bytes.
        size: usize,
        /// The longest that is allowed, in bytes.
        most: usize,
    },
    /// More is asked of the conversation at once than may wait.
    #[error("too much is asked of conversation {id} at once")]
    Full {
        /// The conversation.
        id: ConversationId,
    },
    /// The conversation could not be read, or the answer could not be written.
    #[error("the answer could not be written: {0}")]
    Store(#[source] StoreError),
    /// The runtime was shut down.
    #[error("the conversation's driver is gone")]
    Gone,
}

impl From<StoreError> for SendError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { id } => Self::Full { id },
            StoreError::NotFound { id } => Self::NotFound { id },
            StoreError::Deleted { id, at } => Self::Deleted { id, at },
            StoreError::Held { id, hold } => Self::Held { id, hold },
            error => Self::Store(error),
        }
    }
}

/// What an action allows, as far as its name does not say it.
fn in_words(action: Action) -> &'static str {
    match action {
        Action::Delete => "delete or hold",
        other => other.name(),
    }
}

impl ResolveError {
    pub(crate) fn nothing_asked(call: &CallId) -> Self {
        Self::Stale { call: call.clone(), why: "nothing is asked under this id".into() }
    }

    /// An answer could not be stored.
    pub(crate) fn not_stored(error: StoreError) -> Self {
        match error {
            StoreError::AlreadyAnswered { call, .. } => Self::Stale { call, why: "it has an answer already".into() },
            StoreError::ArgumentsChanged { call, .. } => {
                Self::Stale { call, why: "it was shown with other arguments".into() }
            }
            StoreError::NotAsked { call, .. } => Self::nothing_asked(&call),
            error => error.into(),
        }
    }

    pub(crate) fn of(id: &ConversationId, call: &CallId, error: AnswerError) -> Self {
        let call = call.clone();
        match error {
            AnswerError::NotAsked => Self::nothing_asked(&call),
            AnswerError::Stale(why) => Self::Stale { call, why },
            AnswerError::Unfit(why) => Self::Unfit { call, why },
            AnswerError::Forbidden { who } => Self::Forbidden { id: id.clone(), who },
            AnswerError::Left(left) => Self::Changed { call, left },
            AnswerError::Store(error) => error.into(),
            AnswerError::Full => Self::Full { id: id.clone() },
        }
    }
}

impl From<StoreError> for ResolveError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { id } => Self::Full { id },
            StoreError::InUse { id } => Self::InUse { id },
            StoreError::NotFound { id } | StoreError::Deleted { id, .. } => Self::NotFound { id },
            error => Self::Store(error),
        }
    }
}

impl From<SendError> for ResolveError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotFound { id } | SendError::Deleted { id, .. } => Self::NotFound { id },
            SendError::Full { id } => Self::Full { id },
            SendError::Forbidden { id, who, .. } => Self::Forbidden { id, who },
            SendError::Store(error) => error.into(),
            // Nothing is said here that could be empty or meet a turn, and nothing is closed.
            SendError::Gone
            | SendError::Empty
            | SendError::TooLarge { .. }
            | SendError::SentBefore { .. }
            | SendError::KeyReused
            | SendError::NoAgent
            | SendError::Left { .. }
            | SendError::OtherAgent { .. }
            | SendError::Busy { .. }
            | SendError::Held { .. }
            | SendError::Hook { .. } => Self::Gone,
        }
    }
}

/// What became of a cancellation. It is stored before this is told: a turn that a crash revives stays cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// This process has the turn, and ends it.
    Local {
        /// The turn that ends.
        turn: TurnId,
    },
    /// Another process has the turn, and finds the order in its inbox.
    Remote {
        /// The turn that ends.
        turn: TurnId,
    },
    /// No turn was open.
    NotRunning,
}

/// Why [`Agent::run`](crate::Agent::run) and [`Conversations::run`](super::Conversations::run) return no completed turn.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The message was not taken.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The turn could not be carried on.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// The turn ended, but did not complete: it was halted, rejected, exhausted, cancelled, or it failed. The report says
    /// why, for people and, as `cause`, for programs.
    #[error("the turn did not complete: {}", not_completed(.0))]
    NotCompleted(Box<TurnReport>),
    /// The turn waits for an answer, which only [`Conversations::resolve`](super::Conversations::resolve) can give.
    #[error("the turn waits for an answer to {}", calls(.pending))]
    Waiting {
        /// The conversation.
        conversation: ConversationId,
        /// What it waits for.
        pending: Vec<Pending>,
    },
}

fn not_completed(report: &TurnReport) -> String {
    match &report.reason {
        Some(reason) => format!("{}: {reason}", report.outcome),
        None => report.outcome.to_string(),
    }
}

fn calls(pending: &[Pending]) -> String {
    pending.iter().map(|pending| pending.call.as_str()).collect::<Vec<_>>().join(", ")
}

/// An error with its causes, for a person who has nothing else.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
