//! What is asked of a conversation.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::cell::Waiter;
use super::outcome::{ResolveError, SendError};
use super::{UserInput, WhileBusy};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::scope::Scope;
use crate::store::StoreError;
use crate::turn::{AbortCause, JobResults, Resolve};

/// Something asked of a conversation.
pub(crate) enum Command {
    Message(NewMessage),
    Resolve(Resolve),
    Cancel(Cancel),
    /// Finish a turn that a crash left open; says which.
    Resume(oneshot::Sender<Result<Option<TurnId>, SendError>>, Waiter),
    Close(Scope, oneshot::Sender<Result<(), SendError>>),
    /// What jobs of this turn came to. Given back if nobody here can write it.
    Notes(TurnId, Box<JobResults>, oneshot::Sender<Box<JobResults>>),
    /// Something may be due: a letter, a turn that a crash left, a question that lapsed.
    Wake,
}

/// A turn is to be cancelled.
pub(crate) struct Cancel {
    /// Which: one that came after it is not meant.
    pub(crate) turn: TurnId,
    pub(crate) abort: AbortCause,
    /// The letter that says so, if it was stored.
    pub(crate) item: Option<Text>,
    /// Told whether the turn was open.
    pub(crate) done: oneshot::Sender<Result<bool, SendError>>,
}

/// Why nobody carries a command out.
pub(crate) enum Refused {
    /// The conversation could not be claimed, read or written.
    Store(Arc<StoreError>),
    /// Too many wait already.
    Full(ConversationId),
}

impl Refused {
    fn of_sender(&self) -> SendError {
        match self {
            Self::Full(id) => SendError::Full { id: id.clone() },
            Self::Store(error) => SendError::Store(match &**error {
                StoreError::InUse { id } => StoreError::InUse { id: id.clone() },
                _ => StoreError::Failed {
                    doing: "opening the conversation".into(),
                    source: Box::new(Shared(error.clone())),
                },
            }),
        }
    }

    fn of_answer(&self) -> ResolveError {
        match self {
            Self::Full(id) => ResolveError::Full { id: id.clone() },
            Self::Store(error) => match &**error {
                StoreError::InUse { id } => ResolveError::InUse { id: id.clone() },
                _ => ResolveError::Store(error.clone()),
            },
        }
    }
}

/// A message on its way in.
pub(crate) struct NewMessage {
    pub(crate) turn: TurnId,
    pub(crate) say: UserInput,
    pub(crate) scope: Scope,
    pub(crate) while_busy: WhileBusy,
    /// Told when it is stored.
    pub(crate) done: oneshot::Sender<Result<(), SendError>>,
    /// Told when its turn rests.
    pub(crate) rest: Waiter,
}

impl Command {
    /// Nobody carries it out. Whoever asked may have gone.
    pub(crate) fn refuse(self, why: &Refused) {
        match self {
            Self::Message(message) => drop(message.done.send(Err(why.of_sender()))),
            Self::Resolve(resolve) => drop(resolve.done.send(Err(why.of_answer()))),
            Self::Resume(found, _) => drop(found.send(Err(why.of_sender()))),
            Self::Close(_, done) => drop(done.send(Err(why.of_sender()))),
            Self::Cancel(cancel) => drop(cancel.done.send(Err(why.of_sender()))),
            Self::Notes(_, results, back) => drop(back.send(results)),
            Self::Wake => {}
        }
    }
}

impl NewMessage {
    pub(crate) fn refuse(self, id: &ConversationId, pending: Vec<CallId>) {
        let _ = self.done.send(Err(SendError::Busy { id: id.clone(), pending }));
    }
}

/// A store error that several are told.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shared(Arc<StoreError>);
