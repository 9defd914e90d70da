//! Answering, cancelling, finishing: what is asked of a turn that is open. If another process has it, it is asked by
//! letter.

use tokio::sync::oneshot;

use super::Conversations;
use super::cell::Given;
use super::command::Command;
use super::outcome::{ResolveError, SendError, TurnHandle};
use crate::event::EventKind;
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::scope::Scope;
use crate::store::{Answer, Letter, Mail, Says, StoreError};
use crate::turn::{Cut, Resolve, resolve};

impl Conversations {
    /// Answers a suspended call. Returns when the answer is written, before the turn goes on; the handle follows it.
    /// `digest`, if given, is what the person was shown: an answer about other arguments is stale.
    ///
    /// If another process has the conversation, the answer is handed over to it, and the handle says so.
    pub async fn resolve(
        &self,
        id: &ConversationId,
        call: &CallId,
        answer: Answer,
        digest: Option<Text>,
        scope: Scope,
    ) -> Result<TurnHandle, ResolveError> {
        self.owned(id, &scope).await.map_err(|_| ResolveError::NotFound { id: id.clone() })?;
        let cell = self.cell(id);
        if cell.is_busy() && !cell.plane.is_pending(call) {
            return Err(ResolveError::Stale { call: call.clone(), why: "nothing is asked under this id".into() });
        }
        let (done, written) = oneshot::channel();
        let (rest, rested) = oneshot::channel();
        let (call, by) = (call.clone(), scope.by());
        let resolve = Resolve {
            call: call.clone(),
            answer: answer.clone(),
            digest: digest.clone(),
            by,
            letter: None,
            done,
            rest,
        };
        cell.command(&self.house, Command::Resolve(resolve));
        match written.await {
            Ok(Ok(turn)) => Ok(TurnHandle::new(turn, rested)),
            Ok(Err(ResolveError::InUse { .. })) => self.hand_over(id, call, answer, digest, scope).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ResolveError::Store("the conversation could not be claimed".into())),
        }
    }

    /// Another process carries the turn on: it finds the answer in the inbox.
    async fn hand_over(
        &self,
        id: &ConversationId,
        call: CallId,
        answer: Answer,
        digest: Option<Text>,
        scope: Scope,
    ) -> Result<TurnHandle, ResolveError> {
        let failed = |error: SendError| ResolveError::Store(error.to_string());
        let pending = self.snapshot(id, scope.clone()).await.map_err(failed)?.pending;
        let Some(pending) = pending.into_iter().find(|pending| pending.call == call) else {
            return Err(ResolveError::Stale { call, why: "nothing is asked under this id".into() });
        };
        resolve::check(&call, &pending.prompt, &answer, digest.as_ref())?;
        let turn = self.open_turn(id).await.map_err(|error| ResolveError::Store(error.to_string()))?;
        let says = Says::Answer { call, answer, digest };
        self.post(id, says, &scope).await.map_err(|error| ResolveError::Store(error.to_string()))?;
        Ok(TurnHandle::elsewhere(turn.unwrap_or_else(|| "".into())))
    }

    /// Cancels the turn under way, from whatever stage. Nothing happens if none is. If another process has the
    /// conversation, it is asked to.
    pub async fn cancel(&self, id: &ConversationId, scope: Scope) -> Result<(), SendError> {
        self.owned(id, &scope).await?;
        let (cell, cut) = (self.cell(id), Cut::Cancelled(scope.by()));
        if cell.is_busy() {
            cell.cut(cut);
            return Ok(());
        }
        let (done, cancelled) = oneshot::channel();
        match cell.give(&self.house, Command::Cancel(cut, done)) {
            Given::Driver(driver) => drop(tokio::spawn(driver)),
            // A driver is at work here and will see it: nobody waits for what it is doing.
            Given::Sent | Given::Busy(_) => return Ok(()),
        }
        match cancelled.await {
            Ok(Err(SendError::Store(StoreError::InUse { .. }))) => match self.open_turn(id).await? {
                Some(turn) => Ok(self.post(id, Says::Cancel { turn }, &scope).await?),
                None => Ok(()),
            },
            Ok(done) => done,
            Err(_) => Err(SendError::Gone),
        }
    }

    /// Finishes a turn that a crash left open; `None` if there is none.
    pub async fn resume(&self, id: &ConversationId, scope: Scope) -> Result<Option<TurnHandle>, SendError> {
        self.owned(id, &scope).await?;
        let cell = self.cell(id);
        let (found, open) = oneshot::channel();
        let (rest, rested) = oneshot::channel();
        cell.command(&self.house, Command::Resume(found, rest));
        match open.await {
            Ok(Ok(turn)) => Ok(turn.map(|turn| TurnHandle::new(turn, rested))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SendError::Gone),
        }
    }

    /// Ends a conversation that is at rest: `on_conversation` hooks are told, and nothing of it stays in memory.
    pub async fn close(&self, id: &ConversationId, scope: Scope) -> Result<(), SendError> {
        self.owned(id, &scope).await?;
        let cell = self.cell(id);
        let (done, closed) = oneshot::channel();
        cell.command(&self.house, Command::Close(scope, done));
        closed.await.map_err(|_| SendError::Gone)??;
        self.house.forget(id);
        Ok(())
    }

    /// Delivers a letter, and looks whether its receiver has left meanwhile: then it is taken up here.
    pub(super) async fn post(&self, id: &ConversationId, says: Says, scope: &Scope) -> Result<(), StoreError> {
        let (letter, at) = (self.house.ids.mint("l_"), self.house.clock.now());
        let letter = Letter { id: letter, from: scope.actor().clone(), at, says };
        self.house.store.deliver(id, letter).await?;
        self.cell(id).command(&self.house, Command::Wake);
        Ok(())
    }

    /// The turn that another process has under way, as far as it is stored.
    pub(super) async fn open_turn(&self, id: &ConversationId) -> Result<Option<TurnId>, StoreError> {
        let tail = self.house.store.tail(id, u64::MAX, self.agent.room()).await?;
        let bound = tail
            .iter()
            .rev()
            .find(|event| matches!(event.kind, EventKind::UserMessage { .. } | EventKind::TurnEnded(_)));
        match bound.or(tail.last()) {
            Some(event) if !matches!(event.kind, EventKind::TurnEnded(_)) => Ok(Some(event.turn.clone())),
            _ => Ok(self.house.store.letters(id, Mail::All).await?.iter().find_map(Letter::opens)),
        }
    }
}
