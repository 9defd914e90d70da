//! What is asked of a conversation.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::cell::Waiter;
use super::outcome::{ResolveError, SendError};
use super::{Say, WhileBusy};
use crate::id::{CallId, ConversationId, TurnId};
use crate::scope::Scope;
use crate::store::StoreError;
use crate::turn::{Cut, Resolve, Yield};

/// Something asked of a conversation.
pub(crate) enum Command {
    Message(NewMessage),
    Resolve(Resolve),
    Cancel(Cut, oneshot::Sender<Result<(), SendError>>),
    /// Finish a turn that a crash left open; says which.
    Resume(oneshot::Sender<Result<Option<TurnId>, SendError>>, Waiter),
    Close(Scope, oneshot::Sender<Result<(), SendError>>),
    /// What jobs of this turn came to. Given back if nobody here can write it.
    Notes(TurnId, Box<Yield>, oneshot::Sender<Box<Yield>>),
    /// Something may be due: a letter, a turn that a crash left, a question that lapsed.
    Wake,
}

/// A message on its way in.
pub(crate) struct NewMessage {
    pub(crate) turn: TurnId,
    pub(crate) say: Say,
    pub(crate) scope: Scope,
    pub(crate) while_busy: WhileBusy,
    /// Told when it is stored.
    pub(crate) done: oneshot::Sender<Result<(), SendError>>,
}

impl Command {
    /// Nobody can carry it out: the conversation cannot be claimed. Whoever asked may have gone.
    pub(crate) fn fail(self, error: &Arc<StoreError>) {
        let failed = || match &**error {
            StoreError::InUse { id } => StoreError::InUse { id: id.clone() },
            _ => {
                StoreError::Failed { doing: "opening the conversation".into(), source: Box::new(Shared(error.clone())) }
            }
        };
        match self {
            Self::Message(message) => drop(message.done.send(Err(SendError::Store(failed())))),
            Self::Resolve(resolve) => drop(resolve.done.send(Err(match &**error {
                StoreError::InUse { id } => ResolveError::InUse { id: id.clone() },
                _ => ResolveError::Store(error.to_string()),
            }))),
            Self::Resume(found, _) => drop(found.send(Err(SendError::Store(failed())))),
            Self::Close(_, done) | Self::Cancel(_, done) => drop(done.send(Err(SendError::Store(failed())))),
            Self::Notes(_, yielded, back) => drop(back.send(yielded)),
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
