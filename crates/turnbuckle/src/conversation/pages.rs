//! For programs that show conversations to others, such as a server: making an empty one, naming it, and reading lists and logs
//! page by page.

use std::sync::Arc;

use super::conversations::Conversations;
use super::error::SendError;
use crate::access::Action;
use crate::audit::AuditedCall;
use crate::clock::Timestamp;
use crate::event::{Event, EventKind};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::{Content, Text};
use crate::scope::{Actor, Scope};
use crate::store::{ConversationSummary, InboxFilter, InboxKind, ListPart, StoreError, plain_title};

/// How many conversations are read in one go at least: of those that are read, the actor may see few.
const AT_ONCE: usize = 200;
/// How many events of a log are looked at in one go.
const EVENTS_AT_ONCE: usize = 512;

/// A part of a list, the newest first or, of a log, the oldest first.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page<T> {
    /// What is on the page.
    pub items: Vec<T>,
    /// Whether there are older ones.
    pub more: bool,
}

/// Why no conversation was made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// There is one of this id, whoever owns it, or there was one and it was deleted.
    #[error("the id {id} is taken: there is a conversation of that name, or there was one and it was deleted")]
    Exists {
        /// The conversation.
        id: ConversationId,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One model call of a turn as the audit has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditedModelCall {
    /// The call.
    pub call: AuditedCall,
    /// What the model was sent.
    pub request: serde_json::Value,
    /// False if a part of the request was removed from the audit meanwhile.
    pub is_complete: bool,
}

/// A message that waits: for the turn that runs to end, or for the next model call of that turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QueuedMessage {
    /// The turn that it opens. [`Conversations::take_back`] takes it back by this id.
    pub turn: TurnId,
    /// What was said.
    pub content: Content,
    /// Who sent it.
    pub from: Actor,
    /// When it was sent.
    pub at: Timestamp,
    /// Whether it is for the turn that runs, if that makes another model call.
    pub steers: bool,
}

impl Conversations {
    /// Messages that wait, the oldest first. A message that is just being taken up is among them until its turn has begun.
    pub async fn queued(&self, id: &ConversationId, scope: &Scope) -> Result<Vec<QueuedMessage>, SendError> {
        self.check_reachable(id)?;
        self.check(id, scope, Action::Read).await?;
        let open = self.store().scratch(id).await?.map(|scratch| scratch.turn.clone());
        let resident = self.runtime.resident(id);
        // What was taken back stays in the inbox until the turn that runs has written its last.
        let is_taken_back = |turn: &TurnId| resident.as_ref().is_some_and(|here| here.was_taken_back(turn));
        let waiting = self.store().inbox(id, InboxFilter::All).await?.into_iter().filter_map(|item| {
            let turn = item.opens().filter(|turn| open.as_ref() != Some(turn) && !is_taken_back(turn))?;
            let InboxKind::Message { content, steers, .. } = item.kind else { return None };
            let steers = steers.is_some() && steers == open;
            Some(QueuedMessage { turn, content, from: item.from, at: item.at, steers })
        });
        Ok(waiting.collect())
    }

    /// One conversation as [`list`](Self::list) has it.
    pub async fn summary(&self, id: &ConversationId, scope: &Scope) -> Result<ConversationSummary, SendError> {
        self.listed(id, scope).await?.ok_or_else(|| SendError::NotFound { id: id.clone() })
    }

    /// The same; `None` if the list that the actor sees does not have it.
    async fn listed(&self, id: &ConversationId, scope: &Scope) -> Result<Option<ConversationSummary>, StoreError> {
        let found = self.store().list_part(ListPart::One(id)).await?;
        Ok(found.into_iter().find(|one| one.id == *id && self.lists(one, scope)))
    }

    /// Whether a list that the actor sees has a conversation.
    pub(super) fn lists(&self, one: &ConversationSummary, scope: &Scope) -> bool {
        !one.id.is_sub_agent() && self.judge(&one.id, &one.owner, scope, Action::Read).is_ok()
    }

    /// Makes an empty conversation that belongs to the actor, under this id or a new one. If the same user makes one of the same
    /// id twice at the same moment, both calls may succeed; there is one conversation then.
    pub async fn create(&self, id: Option<ConversationId>, scope: &Scope) -> Result<ConversationId, CreateError> {
        let id = id.unwrap_or_else(|| ConversationId::from(self.runtime.services.ids.mint("c_")));
        let exists = || CreateError::Exists { id: id.clone() };
        if self.check_reachable(&id).is_err() || self.store().owner(&id).await?.is_some() {
            return Err(exists());
        }
        match self.store().open(&id, scope.actor(), self.runtime.services.clock.now()).await {
            Ok(owner) if owner == *scope.actor() => Ok(id),
            // Another was quicker.
            Ok(_) | Err(StoreError::Deleted { .. }) => Err(exists()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a conversation a title, in the place of the one it had. Control characters and line ends become spaces, and 100
    /// characters are kept. Who may speak in it may name it. False for a text without any letter or digit, which changes nothing.
    pub async fn set_title(&self, id: &ConversationId, title: &str, scope: &Scope) -> Result<bool, SendError> {
        self.check_reachable(id)?;
        self.check(id, scope, Action::Say).await?;
        match plain_title(title) {
            Some(title) => self.store().set_title(id, &title).await.map(|()| true).map_err(SendError::from),
            None => Ok(false),
        }
    }

    /// At most `most` of the conversations that the actor may read, the newest first: those that are older than `before`, or the
    /// newest. An id that is not in the list is followed by nothing.
    pub async fn list_page(
        &self,
        before: Option<&ConversationId>,
        most: usize,
        scope: &Scope,
    ) -> Result<Page<ConversationSummary>, StoreError> {
        let (mut items, mut last) = (Vec::new(), before.cloned());
        // What is not in the list that the actor sees must not tell that it is there.
        if let Some(before) = before
            && self.listed(before, scope).await?.is_none()
        {
            return Ok(Page { items, more: false });
        }
        let at_once = most.saturating_add(1).max(AT_ONCE);
        loop {
            let part = ListPart::Page { before: last.as_ref(), most: at_once };
            let found = self.store().list_part(part).await?;
            let is_end = found.len() < at_once;
            last = found.last().map(|one| one.id.clone());
            items.extend(found.into_iter().filter(|one| self.lists(one, scope)));
            if items.len() > most {
                items.truncate(most);
                return Ok(Page { items, more: true });
            }
            if is_end {
                return Ok(Page { items, more: false });
            }
        }
    }

    /// At most `most` events of the log, oldest first: those right before the event `before`, or the last ones. A `before` that
    /// there is no event of yet means the last ones, too.
    pub async fn history(
        &self,
        id: &ConversationId,
        before: Option<u64>,
        most: usize,
        scope: &Scope,
    ) -> Result<Page<Arc<Event>>, SendError> {
        self.check_reachable(id)?;
        self.begin_reading(id, scope).await?;
        let end = self.store().tail(id, u64::MAX, 1).await?.last().map_or(1, |last| last.seq.saturating_add(1));
        let end = before.map_or(end, |before| before.min(end));
        let first = end.saturating_sub(most as u64).max(1);
        let wanted = usize::try_from(end.saturating_sub(first)).unwrap_or(usize::MAX);
        let items = match wanted {
            0 => Vec::new(),
            wanted => self.store().log(id, first, wanted).await?,
        };
        Ok(Page { more: first > 1 && !items.is_empty(), items })
    }

    /// The events of one turn, oldest first; none if there is no such turn.
    pub async fn turn_log(
        &self,
        id: &ConversationId,
        turn: &TurnId,
        scope: &Scope,
    ) -> Result<Vec<Arc<Event>>, SendError> {
        self.begin_reading(id, scope).await?;
        let (mut from, mut found) = (1, Vec::new());
        loop {
            let events = self.store().log(id, from, EVENTS_AT_ONCE).await?;
            let Some(last) = events.last() else { return Ok(found) };
            from = last.seq.saturating_add(1);
            found.extend(events.into_iter().filter(|event| event.turn == *turn));
        }
    }

    /// The name of the tool of a call that waits, as the log has it: a question that a tool asks does not name it. `None` if a hook
    /// asks, or about a reply. For programs that have found the call by [`pending`](Self::pending), which says who may see it.
    pub async fn tool_of(&self, id: &ConversationId, waiting: &CallId) -> Result<Option<Text>, StoreError> {
        let (mut before, mut tokens) = (u64::MAX, 1_024);
        loop {
            let events = self.store().tail(id, before, tokens).await?;
            for event in events.iter().rev() {
                match &event.kind {
                    EventKind::ToolCall { call, name, .. } if call == waiting => return Ok(Some(name.clone())),
                    // What waits is of the turn that is open.
                    EventKind::TurnEnded(_) => return Ok(None),
                    _ => {}
                }
            }
            let Some(first) = events.first() else { return Ok(None) };
            (before, tokens) = (first.seq, tokens.saturating_mul(4));
        }
    }

    /// What models were sent in a turn, oldest first, as far as the audit has it.
    pub async fn audited_turn(
        &self,
        id: &ConversationId,
        turn: &TurnId,
        scope: &Scope,
    ) -> Result<Vec<AuditedModelCall>, SendError> {
        self.begin_reading(id, scope).await?;
        let mut calls = self.store().audited_calls(id).await?;
        calls.retain(|call| call.turn == *turn);
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let contents = self.store().audit_contents(id).await?;
        let with_request = |call: AuditedCall| {
            let request = call.request(&contents);
            AuditedModelCall { request: request.body, is_complete: request.is_complete, call }
        };
        Ok(calls.into_iter().map(with_request).collect())
    }
}
