//! Answering, cancelling, finishing: what is asked of a turn that is open. If another process has it, it is asked by
//! letter.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Conversations;
use super::cell::{Cell, Given};
use super::command::{Cancel, Command};
use super::outcome::{Cancelled, ResolveError, SendError, TurnHandle};
use crate::event::{Event, EventKind, InjectionTarget};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::scope::Scope;
use crate::store::{Answer, InboxFilter, InboxItem, InboxKind, StoreError};
use crate::turn::{AbortCause, Resolve, resolve};

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
        if cell.flies().await && !cell.feed.is_pending(call) {
            return Err(ResolveError::Stale { call: call.clone(), why: "nothing is asked under this id".into() });
        }
        let (done, written) = oneshot::channel();
        let (rest, rested) = oneshot::channel();
        let (call, by) = (call.clone(), scope.by());
        let resolve =
            Resolve { call: call.clone(), answer: answer.clone(), digest: digest.clone(), by, item: None, done, rest };
        cell.command(&self.runtime, Command::Resolve(resolve));
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
        resolve::check(&call, &pending.question, &answer, digest.as_ref())?;
        let answers = |item: &InboxItem| matches!(&item.kind, InboxKind::Answer { call: other, .. } if *other == call);
        if self.runtime.store.inbox(id, InboxFilter::Control).await?.iter().any(answers) {
            return Err(ResolveError::Stale { call, why: "somebody has answered it already".into() });
        }
        let turn = self.open_turn(id).await?;
        self.deliver(id, InboxKind::Answer { call, answer, digest }, &scope).await?;
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
                None => return Ok(Cancelled::NotRunning),
            },
        };
        let abort = AbortCause::Cancelled(scope.by());
        let here = cell.abort(&turn, abort.clone());
        let item = match self.is_durable() && !id.is_sub_agent() {
            true => Some(self.deliver(id, InboxKind::Cancel { turn: turn.clone() }, &scope).await?),
            false => None,
        };
        if !here {
            return self.cancel_at_rest(&cell, turn, abort, item, &scope).await;
        }
        if item.is_some_and(|item| !cell.hear_of_cut(&turn, item)) {
            // The turn was over before its letter was there: somebody must take it out again.
            cell.command(&self.runtime, Command::Wake);
        }
        Ok(Cancelled::Local { turn })
    }

    /// No turn flies here that could be cut: whoever gets the conversation carries the order out.
    async fn cancel_at_rest(
        &self,
        cell: &Arc<Cell>,
        turn: TurnId,
        abort: AbortCause,
        item: Option<Text>,
        scope: &Scope,
    ) -> Result<Cancelled, SendError> {
        let (done, obeyed) = oneshot::channel();
        let cancel = Cancel { turn: turn.clone(), abort, item: item.clone(), done };
        match cell.give(&self.runtime, Command::Cancel(cancel)) {
            Given::Driver(driver) => drop(tokio::spawn(driver)),
            // A driver is at work here and will see it: nobody waits for what it is doing.
            Given::Sent | Given::Busy(_) if obeyed.is_empty() => return Ok(Cancelled::Local { turn }),
            Given::Sent | Given::Busy(_) => {}
        }
        match (obeyed.await.map_err(|_| SendError::Gone)?, item) {
            (Ok(true), _) => Ok(Cancelled::Local { turn }),
            (Ok(false), _) => Ok(Cancelled::NotRunning),
            (Err(SendError::Store(StoreError::InUse { .. }) | SendError::Full { .. }), Some(_)) => {
                Ok(Cancelled::Remote { turn })
            }
            (Err(SendError::Store(StoreError::InUse { .. })), None) => {
                self.post(&cell.id, InboxKind::Cancel { turn: turn.clone() }, scope).await?;
                Ok(Cancelled::Remote { turn })
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
        cell.command(&self.runtime, Command::Resume(found, rest));
        match open.await {
            Ok(Ok(turn)) => Ok(turn.map(|turn| TurnHandle::new(turn, rested))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SendError::Gone),
        }
    }

    /// Ends a conversation that is at rest: `on_conversation` hooks are told, and nothing of it stays in memory. A hook
    /// that fails and whose failure blocks keeps it open: [`SendError::Hook`].
    pub async fn close(&self, id: &ConversationId, scope: Scope) -> Result<(), SendError> {
        self.owned(id, &scope).await?;
        let cell = self.cell(id);
        let (done, closed) = oneshot::channel();
        cell.command(&self.runtime, Command::Close(scope, done));
        closed.await.map_err(|_| SendError::Gone)??;
        // Its driver lets go of it when it rests, if it does not rest already.
        self.runtime.forget(&cell);
        Ok(())
    }

    /// Delivers a letter, and looks whether its receiver has left meanwhile: then it is taken up here.
    pub(super) async fn post(&self, id: &ConversationId, kind: InboxKind, scope: &Scope) -> Result<(), StoreError> {
        self.deliver(id, kind, scope).await?;
        self.cell(id).command(&self.runtime, Command::Wake);
        Ok(())
    }

    async fn deliver(&self, id: &ConversationId, kind: InboxKind, scope: &Scope) -> Result<Text, StoreError> {
        let (item, at) = (self.runtime.ids.mint("l_"), self.runtime.clock.now());
        let delivered = InboxItem { id: item.clone(), from: scope.actor().clone(), at, kind };
        self.runtime.store.deliver(id, delivered).await?;
        Ok(item)
    }

    /// The turn that is under way, as far as it is stored, or that the next message opens.
    pub(super) async fn open_turn(&self, id: &ConversationId) -> Result<Option<TurnId>, StoreError> {
        match self.last_word(id).await? {
            Some(event) if !matches!(event.kind, EventKind::TurnEnded(_)) => Ok(Some(event.turn.clone())),
            _ => Ok(self.runtime.store.inbox(id, InboxFilter::All).await?.iter().find_map(InboxItem::opens)),
        }
    }

    /// The last event that belongs to the turn it stands in: notes of an earlier one may stand behind it. Read backwards,
    /// a little more each time, for the open turn may be huge.
    async fn last_word(&self, id: &ConversationId) -> Result<Option<Arc<Event>>, StoreError> {
        let (mut before, mut tokens) = (u64::MAX, 1);
        loop {
            let events = self.runtime.store.tail(id, before, tokens).await?;
            let is_note =
                |event: &Event| matches!(event.kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. });
            let word = events.iter().rev().find(|event| !is_note(event));
            match (word, events.first()) {
                (None, Some(first)) => (before, tokens) = (first.seq, tokens.saturating_mul(4)),
                (word, _) => return Ok(word.cloned()),
            }
        }
    }
}
