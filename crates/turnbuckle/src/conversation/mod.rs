//! Conversations: the only door by id.
//!
//! A conversation is a cell, not a task: nothing runs while nothing happens. A message, an answer or a cancellation makes
//! a driver run until the turn is over or must wait. Disconnecting is not cancelling: the driver is a task of its own.

mod cell;
mod driver;
mod inline;
mod observers;
mod outcome;
mod pace;
mod takeoff;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use cell::Given;
pub(crate) use cell::{Cell, Command, NewMessage};
pub use outcome::{Ended, ResolveError, Rest, RunError, SendError, TurnError, TurnHandle};

use crate::agent::Agent;
use crate::clock::{Clock, SystemClock};
use crate::event::{Event, EventKind};
use crate::hook::Record;
use crate::id::{CallId, ConversationId, Ids, SystemIds, TurnId};
use crate::live::{Delivery, Subscription};
use crate::message::{Content, Reply, Text};
use crate::projection::Projection;
use crate::scope::{Actor, Scope};
use crate::store::{Answer, InboxMessage, Store, StoreError};
use crate::stores::MemoryStore;
use crate::turn::{Cut, Frame, PermissionMode, Resolve};
use inline::Inline;

/// Where a revived turn's scope comes from: the actor is stored, the bag is not.
pub type ScopeSource = dyn Fn(&Actor) -> Scope + Send + Sync;

/// What all conversations of a process share.
pub(crate) struct House {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) mode: PermissionMode,
    /// No background hooks.
    pub(crate) bare: bool,
    pub(crate) scope_source: Arc<ScopeSource>,
    /// By which the store knows this process.
    pub(crate) writer: Text,
    pub(crate) cells: Mutex<HashMap<ConversationId, Arc<Cell>>>,
    /// Background work under way, for [`Conversations::drain`].
    pub(crate) aside: tokio::sync::watch::Sender<usize>,
}

/// What to do with a message while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileBusy {
    /// Refuse it: [`SendError::Busy`].
    #[default]
    Reject,
    /// Take it up when the turn is over.
    Queue,
    /// Cancel the turn, then take it up.
    Interrupt,
}

/// The door: conversations of one agent in one store.
#[derive(Clone)]
pub struct Conversations {
    house: Arc<House>,
    agent: Agent,
    /// The turn whose tools these conversations are.
    parent: Option<Arc<Frame>>,
}

/// Settings of a [`Conversations`].
pub struct ConversationsBuilder {
    agent: Agent,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    mode: PermissionMode,
    bare: bool,
    scope_source: Arc<ScopeSource>,
}

impl ConversationsBuilder {
    /// Another source of time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
    /// Another source of ids.
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = ids;
        self
    }
    /// Whether a person is there to be asked.
    pub fn permission_mode(mut self, mode: PermissionMode) -> Self {
        self.mode = mode;
        self
    }
    /// Runs no background hooks.
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self
    }
    /// Where a revived turn's scope comes from. Default: the stored actor with an empty bag.
    pub fn scope_source(mut self, source: impl Fn(&Actor) -> Scope + Send + Sync + 'static) -> Self {
        self.scope_source = Arc::new(source);
        self
    }
    /// Opens the door.
    pub fn build(self) -> Conversations {
        let house = House {
            writer: self.ids.mint("w_"),
            store: self.store,
            clock: self.clock,
            ids: self.ids,
            mode: self.mode,
            bare: self.bare,
            scope_source: self.scope_source,
            cells: Mutex::default(),
            aside: tokio::sync::watch::Sender::new(0),
        };
        Conversations { house: Arc::new(house), agent: self.agent, parent: None }
    }
}

impl fmt::Debug for ConversationsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationsBuilder").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl Conversations {
    /// Conversations of `agent` in `store`.
    pub fn builder(agent: Agent, store: impl Store) -> ConversationsBuilder {
        ConversationsBuilder {
            agent,
            store: Arc::new(store),
            clock: Arc::new(SystemClock::default()),
            ids: Arc::new(SystemIds::default()),
            mode: PermissionMode::default(),
            bare: false,
            scope_source: Arc::new(|actor| Scope::of(actor.clone())),
        }
    }

    /// Conversations that are forgotten with the process.
    pub fn in_memory(agent: Agent) -> Self {
        Self::builder(agent, MemoryStore::default()).build()
    }

    /// A sub-agent's conversations, in its parent's house.
    pub(crate) fn inside(parent: &Arc<Frame>, agent: Agent) -> Self {
        Self { house: parent.house.clone(), agent, parent: Some(parent.clone()) }
    }

    /// How the only turn of a sub-agent's conversation ended, if it did.
    pub(crate) async fn ended(&self, id: &ConversationId) -> Result<Option<Ended>, StoreError> {
        let log = self.house.store.log(id, 1).await?;
        let Some(EventKind::TurnEnded(ended)) = log.last().map(|event| &event.kind) else { return Ok(None) };
        let reply = log.iter().rev().find_map(|event| match &event.kind {
            EventKind::AssistantMessage { content, .. } => {
                Some(Arc::new(Reply { content: content.clone(), ..Reply::default() }))
            }
            _ => None,
        });
        let turn = log.last().map_or_else(|| "".into(), |event| event.turn.clone());
        Ok(Some(Ended::new(id.clone(), turn, self.agent.shared_name().clone(), self.house.mode, ended.clone(), reply)))
    }

    /// Nothing of a sub-agent's conversation stays in memory once it is over.
    pub(crate) fn forget(&self, id: &ConversationId) {
        self.house.forget(id);
    }

    /// One turn of a new conversation, to its end.
    pub async fn run(&self, message: impl Into<Content>, scope: Scope) -> Result<Ended, RunError> {
        let id = ConversationId::from(self.house.ids.mint("c_"));
        match self.turn(&id, message, scope).await? {
            Rest::Ended(ended) => Ok(*ended),
            Rest::Waiting(pending) => Err(RunError::Waiting { conversation: id, pending }),
        }
    }

    /// Sends a message and carries its turn on in the caller's task until it rests. Dropped before, the turn goes on in
    /// a task of its own: going away is not cancelling.
    pub async fn turn(&self, id: &ConversationId, message: impl Into<Content>, scope: Scope) -> Result<Rest, RunError> {
        let content = message.into();
        if content.is_blank() {
            return Err(SendError::Empty.into());
        }
        let cell = self.open(id, &scope).await?;
        let turn = TurnId::from(self.house.ids.mint("t_"));
        let (done, stored) = oneshot::channel();
        let rest = cell.wait_for(&turn);
        let message = NewMessage { turn, content, scope, while_busy: WhileBusy::Reject, done };
        let mut inline = match cell.give(&self.house, Command::Message(message)) {
            Given::Busy(_) => return Err(SendError::Busy { id: id.clone(), pending: Vec::new() }.into()),
            Given::Driver(driver) => Inline::of(Some(driver)),
            Given::Sent => Inline::of(None),
        };
        inline.until(stored).await.map_err(|_| SendError::Gone)??;
        Ok(inline.until(rest).await.unwrap_or(Err(TurnError::Gone))?)
    }

    /// Sends a message; it is stored before this returns. Refused while a turn runs or waits.
    pub async fn send(
        &self,
        id: &ConversationId,
        message: impl Into<Content>,
        scope: Scope,
    ) -> Result<TurnHandle, SendError> {
        self.send_while(id, message, scope, WhileBusy::Reject).await
    }

    /// Sends a message, and says what to do if a turn runs.
    pub async fn send_while(
        &self,
        id: &ConversationId,
        message: impl Into<Content>,
        scope: Scope,
        while_busy: WhileBusy,
    ) -> Result<TurnHandle, SendError> {
        let content = message.into();
        if content.is_blank() {
            return Err(SendError::Empty);
        }
        let cell = self.open(id, &scope).await?;
        let turn = TurnId::from(self.house.ids.mint("t_"));
        let (done, stored) = oneshot::channel();
        let rest = cell.wait_for(&turn);
        let mut message = NewMessage { turn: turn.clone(), content, scope, while_busy, done };
        loop {
            message = match cell.give(&self.house, Command::Message(message)) {
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
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SendError::Gone),
        }
    }

    /// The driver is at work: the message is stored here, and taken up when the turn is over.
    async fn send_to_busy(&self, cell: &Arc<Cell>, message: NewMessage) -> Result<(), SendError> {
        let NewMessage { turn, content, scope, while_busy, .. } = message;
        let (actor, at) = (scope.actor().clone(), self.house.clock.now());
        let message = InboxMessage { turn: turn.clone(), content, actor, at };
        self.house.store.deliver(&cell.id, message).await?;
        let by = scope.by();
        cell.keep_scope(&turn, scope);
        if while_busy == WhileBusy::Interrupt {
            cell.cut(Cut::Cancelled(by));
        }
        cell.command(&self.house, Command::Wake);
        Ok(())
    }

    /// Answers a suspended call. Returns when the answer is written, before the turn goes on; the handle follows it.
    /// `digest`, if given, is what the person was shown: an answer about other arguments is stale.
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
        let resolve = Resolve { call: call.clone(), answer, digest, by: scope.by(), done, rest };
        cell.command(&self.house, Command::Resolve(resolve));
        match written.await {
            Ok(Ok(turn)) => Ok(TurnHandle::new(turn, rested)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ResolveError::Store("the conversation could not be claimed".into())),
        }
    }

    /// Cancels the turn under way, from whatever stage, and answers at once. Nothing happens if none is.
    pub async fn cancel(&self, id: &ConversationId, scope: Scope) -> Result<(), SendError> {
        self.owned(id, &scope).await?;
        self.cell(id).cancel(&self.house, Cut::Cancelled(scope.by()));
        Ok(())
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

    /// Snapshot and tail of both planes.
    pub async fn subscribe(
        &self,
        id: &ConversationId,
        delivery: Delivery,
        scope: Scope,
    ) -> Result<Subscription, SendError> {
        let cell = self.open(id, &scope).await?;
        cell.show_log(&self.house).await?;
        Ok(cell.plane.subscribe(delivery))
    }

    /// What a person sees now.
    pub async fn snapshot(&self, id: &ConversationId, scope: Scope) -> Result<Projection, SendError> {
        self.owned(id, &scope).await?;
        let cell = self.cell(id);
        cell.show_log(&self.house).await?;
        Ok(cell.plane.snapshot())
    }

    /// The log, oldest first.
    pub async fn log(&self, id: &ConversationId, scope: Scope) -> Result<Vec<Arc<Event>>, SendError> {
        self.owned(id, &scope).await?;
        Ok(self.house.store.log(id, 1).await?)
    }

    /// What each hook did in a turn.
    pub async fn records(&self, id: &ConversationId, turn: &TurnId, scope: Scope) -> Result<Vec<Record>, SendError> {
        self.owned(id, &scope).await?;
        Ok(self.house.store.records(id, turn).await?)
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

    /// Waits for background hooks, at most this long. What is left stays in the outbox.
    pub async fn drain(&self, most: Duration) {
        let mut aside = self.house.aside.subscribe();
        let idle = aside.wait_for(|count| *count == 0);
        tokio::select! {
            biased;
            _ = idle => {}
            () = self.house.clock.sleep(most) => {}
        }
    }

    /// Whether conversations outlive the process.
    pub fn is_durable(&self) -> bool {
        self.house.store.is_durable()
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    fn cell(&self, id: &ConversationId) -> Arc<Cell> {
        self.house.cell(id, &self.agent, self.parent.as_ref())
    }

    /// Makes the conversation if there is none; another's is not found.
    async fn open(&self, id: &ConversationId, scope: &Scope) -> Result<Arc<Cell>, SendError> {
        let cell = self.cell(id);
        match cell.owner() {
            Some(owner) => check_owner(id, &owner, scope)?,
            None => {
                let owner = self.house.store.open(id, scope.actor()).await?;
                check_owner(id, &owner, scope)?;
                cell.owned_by(owner);
            }
        }
        Ok(cell)
    }

    /// Like `open`, for a conversation that must exist.
    async fn owned(&self, id: &ConversationId, scope: &Scope) -> Result<(), SendError> {
        match self.house.store.owner(id).await? {
            Some(owner) => check_owner(id, &owner, scope),
            None => Err(SendError::NotFound { id: id.clone() }),
        }
    }
}

/// A conversation has an owner; to others it does not exist. The system may do everything.
fn check_owner(id: &ConversationId, owner: &Actor, scope: &Scope) -> Result<(), SendError> {
    match (owner, scope.actor()) {
        (_, Actor::System) => Ok(()),
        (Actor::User { id: owner, .. }, Actor::User { id: user, .. }) if owner == user => Ok(()),
        _ => Err(SendError::NotFound { id: id.clone() }),
    }
}

impl House {
    pub(crate) fn cell(&self, id: &ConversationId, agent: &Agent, parent: Option<&Arc<Frame>>) -> Arc<Cell> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(id) {
            return cell.clone();
        }
        let cell = Arc::new(Cell::new(id.clone(), agent.clone(), parent.cloned(), self.clock.clone()));
        cells.insert(id.clone(), cell.clone());
        cell
    }

    pub(crate) fn forget(&self, id: &ConversationId) {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl From<StoreError> for SendError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
