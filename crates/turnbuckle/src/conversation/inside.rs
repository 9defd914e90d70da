//! Conversations inside a turn: a sub-agent's, `PARENT/CALL`. The call opens it, and when the call is over it is closed.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::cell::Given;
use super::command::{Cancel, Command};
use super::outbox::last_words;
use super::outcome::{TurnHandle, TurnReport};
use super::{Conversations, SendError};
use crate::agent::Agent;
use crate::event::EventKind;
use crate::id::ConversationId;
use crate::store::StoreError;
use crate::turn::{AbortCause, TurnContext};

impl Conversations {
    /// A sub-agent's conversations, in its parent's house.
    pub(crate) fn inside(parent: &Arc<TurnContext>, agent: Agent) -> Self {
        Self { runtime: parent.runtime.clone(), agent, parent: Some(parent.clone()) }
    }

    /// From outside a sub-agent's conversation is read and nothing else: only its call knows its agent, and whose cancel
    /// and budget it is under.
    pub(super) fn check_door(&self, id: &ConversationId) -> Result<(), SendError> {
        match self.parent.is_none() && id.is_sub_agent() {
            true => Err(SendError::NotFound { id: id.clone() }),
            false => Ok(()),
        }
    }

    /// Nothing of a sub-agent's conversation stays in memory once it is over.
    pub(crate) fn forget(&self, id: &ConversationId) {
        let cell = self.cell(id);
        cell.leave();
        self.runtime.forget(&cell);
    }

    /// The call is over: the sub-agent's turn is cancelled, whether it runs or waits. `None` if none is open. A turn that
    /// cannot be read stays as it is: nobody takes it up any more.
    pub(crate) async fn call_off(&self, id: &ConversationId, abort: AbortCause) -> Option<TurnHandle> {
        let under_way = self.runtime.known_cell(id).and_then(|cell| cell.turn_under_way());
        let turn = match under_way {
            Some(turn) => turn,
            None => self.open_turn(id).await.ok().flatten()?,
        };
        let cell = self.cell(id);
        let rest = cell.wait_for(&turn);
        cell.leave();
        if !cell.abort(&turn, abort.clone()) {
            let cancel = Cancel { turn: turn.clone(), abort, item: None, done: oneshot::channel().0 };
            if let Given::Driver(driver) = cell.give(&self.runtime, Command::Cancel(cancel)) {
                tokio::spawn(driver);
            }
        }
        Some(TurnHandle::new(turn, rest))
    }

    /// How the only turn of a sub-agent's conversation ended, if it did. Notes may stand behind its end.
    pub(crate) async fn ended(&self, id: &ConversationId) -> Result<Option<TurnReport>, StoreError> {
        let log = self.runtime.store.log(id, 1, usize::MAX).await?;
        let end = log.iter().rev().find_map(|event| match &event.kind {
            EventKind::TurnEnded(ended) => Some((event.turn.clone(), ended.clone())),
            _ => None,
        });
        let Some((turn, ended)) = end else { return Ok(None) };
        let reply = last_words(&log, &turn);
        Ok(Some(TurnReport::new(id.clone(), turn, self.agent.shared_name().clone(), self.runtime.mode, ended, reply)))
    }
}
