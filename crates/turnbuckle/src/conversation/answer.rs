//! Answering, cancelling, finishing: what is asked of a turn that is open. If another process has it, it is asked by
//! letter.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Conversations;
use super::cell::{Cell, Given};
use super::command::{Cancel, Command};
use super::outcome::{Cancelled, ResolveError, SendError, TurnHandle};
use crate::event::{Event, EventKind, Place};
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
        resolve::measure(call, &answer)?;
        self.owned(id, &scope).await?;
        let cell = self.cell(id);
        // A turn that is about to be is waited for: until its driver has claimed the conversation, nothing is shown.
        if cell.flies().await && !cell.plane.is_pending(call) {
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
            Err(_) => Err(ResolveError::Gone),
        }
    }

    /// Another process carries the turn on: it finds the answer in the inbox. If that one has left meanwhile, the turn is
    /// carried on here after all.
    async fn hand_over(
        &self,
        id: &ConversationId,
        call: CallId,
        answer: Answer,
        digest: Option<Text>,
        scope: Scope,
    ) -> Result<TurnHandle, ResolveError> {
        let pending = self.snapshot(id, scope.clone()).await?.pending;
        let Some(pending) = pending.into_iter().find(|pending| pending.call == call) else {
            return Err(ResolveError::Stale { call, why: "nothing is asked under this id".into() });
        };
        resolve::check(&call, &pending.prompt, &answer, digest.as_ref())?;
        let answers = |letter: &Letter| matches!(&letter.says, Says::Answer { call: other, .. } if *other == call);
        if self.house.store.letters(id, Mail::Orders).await?.iter().any(answers) {
            return Err(ResolveError::Stale { call, why: "somebody has answered it already".into() });
        }
        let turn = self.open_turn(id).await?;
        self.deliver(id, Says::Answer { call, answer, digest }, &scope).await?;
        let elsewhere = || TurnHandle::elsewhere(turn.unwrap_or_else(|| "".into()));
        match self.resume(id, scope).await {
            Ok(here) => Ok(here.unwrap_or_else(elsewhere)),
            Err(SendError::Store(StoreError::InUse { .. })) => Ok(elsewhere()),
            Err(error) => Err(error.into()),
        }
    }

    /// Cancels the turn under way, from whatever stage, at once, and says who does. The order is stored before this
    /// returns, where the store is durable. If another process has the conversation, it finds the order in the inbox.
    pub async fn cancel(&self, id: &ConversationId, scope: Scope) -> Result<Cancelled, SendError> {
        self.owned(id, &scope).await?;
        let cell = self.cell(id);
        let turn = match cell.turn_under_way() {
            Some(turn) => turn,
            None => match self.open_turn(id).await? {
                Some(turn) => turn,
                None => return Ok(Cancelled::Nothing),
            },
        };
        let cut = Cut::Cancelled(scope.by());
        let here = cell.cut(&turn, cut.clone());
        let letter = match self.is_durable() && !id.is_of_a_sub_agent() {
            true => Some(self.deliver(id, Says::Cancel { turn: turn.clone() }, &scope).await?),
            false => None,
        };
        if !here {
            return self.cancel_at_rest(&cell, turn, cut, letter, &scope).await;
        }
        if letter.is_some_and(|letter| !cell.hear_of_cut(&turn, letter)) {
            // The turn was over before its letter was there: somebody must take it out again.
            cell.command(&self.house, Command::Wake);
        }
        Ok(Cancelled::Here { turn })
    }

    /// No turn flies here that could be cut: whoever gets the conversation carries the order out.
    async fn cancel_at_rest(
        &self,
        cell: &Arc<Cell>,
        turn: TurnId,
        cut: Cut,
        letter: Option<Text>,
        scope: &Scope,
    ) -> Result<Cancelled, SendError> {
        let (done, obeyed) = oneshot::channel();
        let cancel = Cancel { turn: turn.clone(), cut, letter: letter.clone(), done };
        match cell.give(&self.house, Command::Cancel(cancel)) {
            Given::Driver(driver) => drop(tokio::spawn(driver)),
            // A driver is at work here and will see it: nobody waits for what it is doing.
            Given::Sent | Given::Busy(_) if obeyed.is_empty() => return Ok(Cancelled::Here { turn }),
            Given::Sent | Given::Busy(_) => {}
        }
        match (obeyed.await.map_err(|_| SendError::Gone)?, letter) {
            (Ok(true), _) => Ok(Cancelled::Here { turn }),
            (Ok(false), _) => Ok(Cancelled::Nothing),
            (Err(SendError::Store(StoreError::InUse { .. }) | SendError::Full { .. }), Some(_)) => {
                Ok(Cancelled::ByLetter { turn })
            }
            (Err(SendError::Store(StoreError::InUse { .. })), None) => {
                self.post(&cell.id, Says::Cancel { turn: turn.clone() }, scope).await?;
                Ok(Cancelled::ByLetter { turn })
            }
            (Err(error), _) => Err(error),
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
        // Its driver lets go of it when it rests, if it does not rest already.
        self.house.forget(&cell);
        Ok(())
    }

    /// Delivers a letter, and looks whether its receiver has left meanwhile: then it is taken up here.
    pub(super) async fn post(&self, id: &ConversationId, says: Says, scope: &Scope) -> Result<(), StoreError> {
        self.deliver(id, says, scope).await?;
        self.cell(id).command(&self.house, Command::Wake);
        Ok(())
    }

    async fn deliver(&self, id: &ConversationId, says: Says, scope: &Scope) -> Result<Text, StoreError> {
        let (letter, at) = (self.house.ids.mint("l_"), self.house.clock.now());
        let delivered = Letter { id: letter.clone(), from: scope.actor().clone(), at, says };
        self.house.store.deliver(id, delivered).await?;
        Ok(letter)
    }

    /// The turn that is under way, as far as it is stored, or that the next message opens.
    pub(super) async fn open_turn(&self, id: &ConversationId) -> Result<Option<TurnId>, StoreError> {
        match self.last_word(id).await? {
            Some(event) if !matches!(event.kind, EventKind::TurnEnded(_)) => Ok(Some(event.turn.clone())),
            _ => Ok(self.house.store.letters(id, Mail::All).await?.iter().find_map(Letter::opens)),
        }
    }

    /// The last event that belongs to the turn it stands in: notes of an earlier one may stand behind it. Read backwards,
    /// a little more each time, for the open turn may be huge.
    async fn last_word(&self, id: &ConversationId) -> Result<Option<Arc<Event>>, StoreError> {
        let (mut before, mut tokens) = (u64::MAX, 1);
        loop {
            let events = self.house.store.tail(id, before, tokens).await?;
            let is_note = |event: &Event| matches!(event.kind, EventKind::Injection { place: Place::NextTurn, .. });
            let word = events.iter().rev().find(|event| !is_note(event));
            match (word, events.first()) {
                (None, Some(first)) => (before, tokens) = (first.seq, tokens.saturating_mul(4)),
                (word, _) => return Ok(word.cloned()),
            }
        }
    }
}
