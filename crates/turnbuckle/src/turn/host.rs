//! What a running turn needs from the conversation it belongs to.
//!
//! `turn` owns this trait and `conversation` implements it, so that a turn depends on nothing above it.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::abort::AbortCause;
use super::context::TurnContext;
use super::left::LeftTurn;
use crate::BoxFuture;
use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::event::Cause;
use crate::id::{CallId, ConversationId, ItemId, TurnId};
use crate::message::Text;
use crate::report::TurnStatus;
use crate::scope::{Actor, Author};
use crate::store::{Answer, InboxItem, StandingApproval, StoreError};

/// Told when a turn ends or waits.
pub(crate) type Waiter = oneshot::Sender<Result<TurnStatus, TurnError>>;

/// Why a turn stopped without a status, told to those who wait for it. What was written stands, and the turn can be revived.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The log could not be written.
    #[error("the turn stopped: {0}")]
    Store(#[source] StoreError),
    /// The runtime was shut down.
    #[error("the turn stopped: its driver is gone")]
    Gone,
    /// Another process has the conversation.
    #[error("another process carries the turn on")]
    Remote,
    /// The message was to steer a turn, and was refused; the turn goes on without it.
    #[error("the message was refused: {}", .0.reason)]
    Refused(Box<RefusedMessage>),
    /// The message was taken back before its turn began.
    #[error("the message was taken back")]
    TakenBack,
    /// The turn is open, and this process does not carry it on.
    #[error("the turn is left: {0}")]
    Left(LeftTurn),
}

/// Why a message that was to steer a turn was refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RefusedMessage {
    /// The turn that goes on without it.
    pub turn: TurnId,
    /// Who refused it, if a hook did.
    pub by: Option<Author>,
    /// In words.
    pub reason: Text,
    /// The same for programs.
    pub cause: Option<Cause>,
}

/// The conversation, as a running turn sees it.
pub(crate) trait TurnHost: Send + Sync {
    /// The next answer to a call of the running turn. Answers arrive from callers of this process and, through the
    /// inbox, from other processes.
    fn poll_answer(&self, cx: &mut Context<'_>) -> Poll<AnswerOrder>;

    /// Brings an answer again, behind the answers to the same call that other processes stored before it.
    fn take_after_stored(&self, order: AnswerOrder) -> BoxFuture<'_, ()>;

    /// Answers that other processes stored and that no write has taken up, oldest first. The turn has them from now on:
    /// [`poll_answer`](Self::poll_answer) does not bring them.
    fn stored_answers(&self) -> BoxFuture<'_, Result<Vec<AnswerOrder>, StoreError>>;

    /// Adds someone who waits for this turn to end or to wait.
    fn add_waiter(&self, turn: &TurnId, waiter: Waiter);

    /// The next message that steers this turn, oldest first. It stays in the inbox until a write of the turn takes it out.
    fn next_steering(&self, turn: &TurnId) -> Option<InboxItem>;

    /// This message is not for the turn and will have one of its own. So will what its sender says after it.
    fn defer_steering(&self, turn: &TurnId, message: ItemId, by: Author);

    /// A message that steered this turn is in the log: whoever waits for what becomes of it waits for this turn.
    fn steered(&self, message: &TurnId, turn: &TurnId);

    /// A message that was to steer the turn was refused: its sender is told.
    fn refuse_steering(&self, message: &TurnId, why: RefusedMessage);

    /// Ids of inbox items other than answers that the running turn has acted on: its last write removes them.
    fn take_acknowledged(&self) -> Vec<ItemId>;

    /// Takes up jobs that the running turn has stored, beside the turn.
    fn take_up_jobs(&self);

    /// Ready when every observer has seen what was published so far.
    fn observers_caught_up(&self) -> BoxFuture<'_, ()>;

    /// Cancels what a sub-agent still does or waits for, because the call it works for is over. The future inside is
    /// ready when its turn has stopped; `None` if no turn is open.
    fn cancel_sub_agent<'a>(
        &'a self,
        parent: &'a Arc<TurnContext>,
        id: ConversationId,
        agent: Agent,
        cause: AbortCause,
    ) -> BoxFuture<'a, Option<BoxFuture<'static, ()>>>;

    /// The runtime, for tools that open conversations of their own. Opaque here: its type is defined above `turn`.
    fn runtime(&self) -> Option<Arc<dyn Any + Send + Sync>>;
}

/// An answer to a suspended call, from a caller of this process or from another process.
pub(crate) struct AnswerOrder {
    pub(crate) call: CallId,
    pub(crate) answer: Answer,
    /// The digest of what the person was shown, if they say so.
    pub(crate) digest: Option<Text>,
    /// The standing approval that begins with it.
    pub(crate) standing: Option<Box<StandingApproval>>,
    /// Who gives it.
    pub(crate) from: Actor,
    /// How it came, if not through a program of Turnbuckle.
    pub(crate) via: Option<Text>,
    /// Whether it is only written down: then the turn is not carried on here, unless it runs already.
    pub(crate) record_only: bool,
    /// When it was given. It counts if the question was open then, even if it is taken up later.
    pub(crate) at: Timestamp,
    /// How often the store had another answer that came first.
    pub(crate) tries: usize,
    pub(crate) origin: AnswerOrigin,
}

/// Where an answer came from, and so who is told what became of it.
pub(crate) enum AnswerOrigin {
    /// A caller of this process.
    Local {
        /// Told once the answer is written, before the turn goes on; or why it was not taken.
        written: oneshot::Sender<Result<RecordedAnswer, AnswerError>>,
        /// Told when that turn ends or waits again.
        waiter: Waiter,
    },
    /// An inbox item with this id. Its sender was told when it was stored.
    Inbox(ItemId),
}

/// An answer that is written.
#[derive(Debug)]
pub(crate) struct RecordedAnswer {
    pub(crate) turn: TurnId,
    /// Why the turn is not carried on here, if it is not.
    pub(crate) left: Option<LeftTurn>,
}

/// Why an answer was not taken.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AnswerError {
    /// The call waits for no answer: it is unknown, or was answered before.
    #[error("nothing is asked under this id")]
    NotAsked,
    /// The question has expired, or the answer is about other arguments than those shown.
    #[error("{0}")]
    Stale(Text),
    /// It is not an answer to this kind of question.
    #[error("{0}")]
    Unfit(Text),
    /// Who gives it may not.
    #[error("{who} may answer this")]
    Forbidden {
        /// Who may.
        who: Text,
    },
    /// The agent has changed since the turn began, and would carry it on without something it began with.
    #[error("{0}")]
    Left(LeftTurn),
    /// The answer could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The conversation has too many orders waiting.
    #[error("too many orders wait")]
    Full,
}

impl AnswerOrder {
    /// Whether its sender wants the turn carried on here, once the answer is written.
    pub(crate) fn carries_on(&self) -> bool {
        matches!(self.origin, AnswerOrigin::Local { .. }) && !self.record_only
    }

    /// The inbox item it came in, if it came from one.
    pub(crate) fn item(&self) -> Option<&ItemId> {
        match &self.origin {
            AnswerOrigin::Inbox(id) => Some(id),
            AnswerOrigin::Local { .. } => None,
        }
    }

    /// Refuses the answer. Returns the id of the inbox item that is done with, if it came from one.
    pub(crate) fn refuse(self, why: AnswerError) -> Option<ItemId> {
        match self.origin {
            AnswerOrigin::Inbox(id) => Some(id),
            AnswerOrigin::Local { written, .. } => {
                // The caller may have gone away; then nobody needs to know.
                drop(written.send(Err(why)));
                None
            }
        }
    }
}
