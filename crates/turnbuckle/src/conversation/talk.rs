//! Saying something: a message in, its turn until it rests.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::cell::{Cell, Given};
use super::command::{Command, NewMessage};
use super::inline::Inline;
use super::outcome::{RunError, SendError, TurnError, TurnHandle, TurnReport, TurnStatus};
use super::{Conversations, WhileBusy};
use crate::clock::Timestamp;
use crate::id::{ConversationId, TurnId};
use crate::message::Content;
use crate::output_schema::OutputSchema;
use crate::scope::Scope;
use crate::store::{InboxItem, InboxKind, StoreError};
use crate::turn::AbortCause;

/// What is said, and what the answer must look like.
#[derive(Clone, Debug)]
pub struct UserInput {
    content: Content,
    shape: Option<OutputSchema>,
}

impl UserInput {
    /// Just this.
    pub fn new(content: impl Into<Content>) -> Self {
        Self { content: content.into(), shape: None }
    }

    /// The answer must be an object of this shape.
    #[must_use]
    pub fn with_schema(mut self, shape: OutputSchema) -> Self {
        self.shape = Some(shape);
        self
    }

    pub(super) fn item(&self, turn: &TurnId, scope: &Scope, at: Timestamp) -> InboxItem {
        let schema = self.shape.as_ref().map(|shape| shape.schema().clone());
        InboxItem::message(turn, self.content.clone(), scope.actor().clone(), at).with_schema(schema)
    }
}

impl<C: Into<Content>> From<C> for UserInput {
    fn from(content: C) -> Self {
        Self::new(content)
    }
}

impl Conversations {
    /// One turn of a new conversation, to its end.
    pub async fn run(&self, message: impl Into<UserInput>, scope: Scope) -> Result<TurnReport, RunError> {
        let id = ConversationId::from(self.runtime.ids.mint("c_"));
        match self.turn(&id, message, scope).await? {
            TurnStatus::Ended(ended) => Ok(*ended),
            TurnStatus::Waiting(pending) => Err(RunError::Waiting { conversation: id, pending }),
        }
    }

    /// Sends a message and carries its turn on in the caller's task until it rests. Dropped before, the turn goes on in
    /// a task of its own: going away is not cancelling.
    pub async fn turn(
        &self,
        id: &ConversationId,
        message: impl Into<UserInput>,
        scope: Scope,
    ) -> Result<TurnStatus, RunError> {
        let say = message.into();
        if say.content.is_blank() {
            return Err(SendError::Empty.into());
        }
        self.open(id, &scope).await?;
        let turn = TurnId::from(self.runtime.ids.mint("t_"));
        let cell = self.cell(id);
        let (done, stored) = oneshot::channel();
        let (waiter, rest) = oneshot::channel();
        let message = NewMessage { turn, say, scope, while_busy: WhileBusy::Reject, done, rest: waiter };
        let mut inline = match cell.give(&self.runtime, Command::Message(message)) {
            Given::Busy(_) => return Err(SendError::Busy { id: id.clone(), pending: Vec::new() }.into()),
            Given::Driver(driver) => Inline::of(Some(driver)),
            Given::Sent => Inline::of(None),
        };
        inline.until(stored).await.map_err(|_| SendError::Gone)?.map_err(SendError::busy_elsewhere)?;
        Ok(inline.until(rest).await.unwrap_or(Err(TurnError::Gone))?)
    }

    /// Sends a message; it is stored before this returns. Refused while a turn runs or waits.
    pub async fn send(
        &self,
        id: &ConversationId,
        message: impl Into<UserInput>,
        scope: Scope,
    ) -> Result<TurnHandle, SendError> {
        self.send_while(id, message, scope, WhileBusy::Reject).await
    }

    /// Sends a message, and says what to do if a turn runs.
    pub async fn send_while(
        &self,
        id: &ConversationId,
        message: impl Into<UserInput>,
        scope: Scope,
        while_busy: WhileBusy,
    ) -> Result<TurnHandle, SendError> {
        let say = message.into();
        if say.content.is_blank() {
            return Err(SendError::Empty);
        }
        self.open(id, &scope).await?;
        let turn = TurnId::from(self.runtime.ids.mint("t_"));
        let cell = self.cell(id);
        let (done, stored) = oneshot::channel();
        let (waiter, rest) = oneshot::channel();
        let (words, sender) = (say.clone(), scope.clone());
        let mut message = NewMessage { turn: turn.clone(), say, scope, while_busy, done, rest: waiter };
        loop {
            message = match cell.give(&self.runtime, Command::Message(message)) {
                Given::Busy(message) => message,
                Given::Driver(driver) => break drop(tokio::spawn(driver)),
                Given::Sent => break,
            };
            if while_busy == WhileBusy::Reject {
                return Err(SendError::Busy { id: id.clone(), pending: Vec::new() });
            }
            // A message that came first is stored first.
            if cell.flies().await {
                self.send_to_busy(&cell, message).await?;
                return Ok(TurnHandle::new(turn, rest));
            }
        }
        match stored.await {
            Ok(Ok(())) => Ok(TurnHandle::new(turn, rest)),
            Ok(Err(SendError::Store(StoreError::InUse { .. }))) if while_busy != WhileBusy::Reject => {
                let (door, id) = (self.clone(), id.clone());
                let sent = async move { door.send_elsewhere(&id, turn, words, sender, while_busy).await };
                // Like `send_to_busy`: once it is stored, what belongs to it is done.
                tokio::spawn(sent).await.unwrap_or(Err(SendError::Gone))
            }
            Ok(Err(error)) => Err(error.busy_elsewhere()),
            Err(_) => Err(SendError::Gone),
        }
    }

    /// The driver is at work: the message is stored here, and taken up when the turn is over. In a task of its own: once
    /// it is stored the rest is done, whether or not the sender still waits.
    async fn send_to_busy(&self, cell: &Arc<Cell>, message: NewMessage) -> Result<(), SendError> {
        let NewMessage { turn, say, scope, while_busy, rest, .. } = message;
        let (item, by) = (say.item(&turn, &scope, self.runtime.clock.now()), scope.by());
        // The turn that is meant: when the message is stored, another may be under way, its own even.
        let meant = cell.flying().filter(|_| while_busy == WhileBusy::Interrupt);
        let (cell, runtime) = (cell.clone(), self.runtime.clone());
        let arriving = cell.arriving(&turn, scope, rest);
        let sent = tokio::spawn(async move {
            runtime.store.deliver(&cell.id, item).await?;
            arriving.stored();
            if let Some(meant) = meant {
                cell.abort(&meant, AbortCause::Cancelled(by));
            }
            cell.command(&runtime, Command::Wake);
            Ok(())
        });
        sent.await.unwrap_or(Err(SendError::Gone))
    }

    /// Another process has the conversation: it finds the message in the inbox.
    async fn send_elsewhere(
        &self,
        id: &ConversationId,
        turn: TurnId,
        say: UserInput,
        scope: Scope,
        while_busy: WhileBusy,
    ) -> Result<TurnHandle, SendError> {
        let open = self.open_turn(id).await?;
        let item = say.item(&turn, &scope, self.runtime.clock.now());
        self.runtime.store.deliver(id, item).await?;
        match (while_busy, open) {
            (WhileBusy::Interrupt, Some(turn)) => self.post(id, InboxKind::Cancel { turn }, &scope).await?,
            _ => self.cell(id).command(&self.runtime, Command::Wake),
        }
        Ok(TurnHandle::elsewhere(turn))
    }
}
