//! What is asked of a conversation: one type, whether it comes from a caller of this process or, through the inbox, from
//! another process.

use tokio::sync::oneshot;

use super::error::SendError;
use super::input::{UserInput, WhileBusy};
use crate::id::{CallId, ConversationId, ItemId, TurnId};
use crate::message::Text;
use crate::scope::{Author, Scope};
use crate::store::{InboxItem, InboxKind, StoreError};
use crate::turn::{AbortCause, AnswerError, AnswerOrder, AnswerOrigin, JobResults, Waiter};

/// Something asked of a conversation. [`Driver::handle`](super::driver::Driver) carries it out.
pub(crate) enum Order {
    /// A message for a turn of its own.
    Message(MessageOrder),
    /// An answer to a suspended call.
    Answer(AnswerOrder),
    /// The end of a turn.
    Cancel(CancelOrder),
    /// What jobs of an earlier turn came to.
    JobResults(JobResultsOrder),
    /// Carry on a turn that a crash left open. Told which turn is open, if any.
    Resume(oneshot::Sender<Result<Option<TurnId>, SendError>>, Waiter),
    /// Take a message back whose turn has not begun. Told whether it was taken back.
    TakeBack(TakeBackOrder),
    /// End the conversation.
    Close(Scope, oneshot::Sender<Result<(), SendError>>),
    /// Write down answers that are stored; the turn is not carried on for their sake.
    Record,
    /// Delete the conversation.
    Delete(DeleteOrder),
    /// Look at what is stored: an inbox item, a turn that a crash left, a question that expired.
    Wake,
}

/// A message on its way in.
pub(crate) struct MessageOrder {
    pub(crate) turn: TurnId,
    pub(crate) input: UserInput,
    pub(crate) scope: Scope,
    pub(crate) while_busy: WhileBusy,
    /// Told when the message is stored, or why it was not taken.
    pub(crate) accepted: oneshot::Sender<Result<(), SendError>>,
    /// Told when its turn ends or waits.
    pub(crate) waiter: Waiter,
}

/// A turn is to be cancelled.
pub(crate) struct CancelOrder {
    /// Which turn: one that came after it is not meant.
    pub(crate) turn: TurnId,
    pub(crate) cause: AbortCause,
    /// The inbox item that says so, if it was stored.
    pub(crate) item: Option<ItemId>,
    /// Told whether that turn was open; nobody is told of a stored order.
    pub(crate) reply: Option<oneshot::Sender<Result<bool, SendError>>>,
}

/// A message is to be taken back.
pub(crate) struct TakeBackOrder {
    /// The turn that it would open.
    pub(crate) turn: TurnId,
    /// Told whether it was still there to be taken back.
    pub(crate) reply: oneshot::Sender<Result<bool, SendError>>,
}

/// What jobs of a turn came to, to be written under a claim.
pub(crate) struct JobResultsOrder {
    pub(crate) turn: TurnId,
    pub(crate) results: JobResults,
    /// The inbox item that holds it, if another process did the jobs.
    pub(crate) item: Option<ItemId>,
    /// Told once it is written; dropped without a word if it could not be.
    pub(crate) written: Option<oneshot::Sender<()>>,
}

/// The conversation is to be deleted.
pub(crate) struct DeleteOrder {
    pub(crate) by: Author,
    /// What else is to be erased once it is gone.
    pub(crate) left: Vec<Text>,
    /// Told when it is gone from the store.
    pub(crate) reply: oneshot::Sender<Result<(), SendError>>,
}

impl Order {
    /// The order that another process stored. A message is none: the driver takes it from the inbox when no turn is open.
    pub(crate) fn stored(item: InboxItem) -> Option<Self> {
        let InboxItem { id, from, at, kind } = item;
        match kind {
            InboxKind::Message { .. } => None,
            InboxKind::Answer { call, answer, digest, via, standing } => {
                let origin = AnswerOrigin::Inbox(id);
                Some(Self::Answer(AnswerOrder {
                    call,
                    answer,
                    digest,
                    standing,
                    from,
                    via,
                    record_only: false,
                    at,
                    tries: 0,
                    origin,
                }))
            }
            InboxKind::Cancel { turn } => {
                let cause = AbortCause::Cancelled(from.author());
                Some(Self::Cancel(CancelOrder { turn, cause, item: Some(id), reply: None }))
            }
            InboxKind::JobResults { turn, notes, records, done } => {
                let results = JobResults { notes, records, done, failed: Vec::new() };
                Some(Self::JobResults(JobResultsOrder { turn, results, item: Some(id), written: None }))
            }
        }
    }

    /// The inbox item it came in.
    pub(crate) fn item(&self) -> Option<&ItemId> {
        match self {
            Self::Answer(order) => order.item(),
            Self::Cancel(order) => order.item.as_ref(),
            Self::JobResults(order) => order.item.as_ref(),
            _ => None,
        }
    }

    /// Tells the sender that the order is not carried out. The sender may have gone away.
    pub(crate) fn refuse(self, why: &Refusal) {
        match self {
            Self::Message(message) => drop(message.accepted.send(Err(why.to_sender()))),
            Self::Answer(order) => drop(order.refuse(why.to_answer())),
            Self::Cancel(CancelOrder { reply: Some(reply), .. }) => drop(reply.send(Err(why.to_sender()))),
            Self::Resume(reply, _) => drop(reply.send(Err(why.to_sender()))),
            Self::TakeBack(TakeBackOrder { reply, .. }) => drop(reply.send(Err(why.to_sender()))),
            Self::Close(_, reply) | Self::Delete(DeleteOrder { reply, .. }) => drop(reply.send(Err(why.to_sender()))),
            Self::Cancel(_) | Self::JobResults(_) | Self::Record | Self::Wake => {}
        }
    }
}

/// Why an order is not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The conversation could not be claimed, read or written.
    Store(StoreError),
    /// Too many orders wait already.
    Full(ConversationId),
}

impl Refusal {
    fn to_sender(&self) -> SendError {
        match self {
            Self::Full(id) => SendError::Full { id: id.clone() },
            Self::Store(error) => error.clone().into(),
        }
    }

    fn to_answer(&self) -> AnswerError {
        match self {
            Self::Full(_) => AnswerError::Full,
            Self::Store(error) => AnswerError::Store(error.clone()),
        }
    }
}

impl MessageOrder {
    /// Refuses the message because a turn runs, or waits for these calls.
    pub(crate) fn refuse_busy(self, id: &ConversationId, pending: Vec<CallId>) {
        // The sender may have gone away.
        drop(self.accepted.send(Err(SendError::Busy { id: id.clone(), pending })));
    }
}
