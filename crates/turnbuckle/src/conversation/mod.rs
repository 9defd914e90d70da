//! Conversations: the only door by id.
//!
//! A conversation is a cell, not a task: nothing runs while nothing happens. A message, an answer or a cancellation makes
//! a driver run until the turn is over or must wait. Disconnecting is not cancelling: the driver is a task of its own, or
//! becomes one when a caller who runs it in its own task goes away.

mod answer;
mod builder;
mod cell;
mod closing;
mod command;
mod driver;
mod hold;
mod inline;
mod inside;
mod landing;
mod look;
mod observers;
mod outbox;
mod outcome;
mod pace;
mod takeoff;
mod talk;
mod upkeep;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

pub use builder::ConversationsBuilder;
pub(crate) use cell::Cell;
pub(crate) use command::{Cancel, Command, Refused};
pub(crate) use outbox::Doing;
pub use outcome::{Cancelled, ResolveError, RunError, SendError, TurnError, TurnHandle, TurnReport, TurnStatus};
pub use talk::UserInput;

use crate::agent::Agent;
use crate::clock::Clock;
use crate::id::{ConversationId, Ids};
use crate::message::Text;
use crate::scope::{Actor, Scope};
use crate::store::{Store, StoreError};
use crate::stores::MemoryStore;
use crate::turn::{PermissionMode, TurnContext};

/// Where a revived turn's scope comes from: the actor is stored, the bag is not.
pub type ScopeSource = dyn Fn(&Actor) -> Scope + Send + Sync;

/// What all conversations of a process share.
pub(crate) struct Runtime {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) mode: PermissionMode,
    /// No background hooks.
    pub(crate) bare: bool,
    pub(crate) scope_source: Arc<ScopeSource>,
    /// Whether somebody gave it: else a scope's bag is only here, and an open turn's cell must stay.
    pub(crate) has_scope_source: bool,
    /// How many conversations stay in memory when they are at rest.
    pub(crate) max_idle: usize,
    /// How many turns may end before those at rest are looked through again, where nearly all of them must stay.
    pub(crate) patience: AtomicUsize,
    /// By which the store knows this process.
    pub(crate) writer: Text,
    pub(crate) cells: Mutex<HashMap<ConversationId, Arc<Cell>>>,
    /// Where the last look for what is due ended.
    pub(crate) looked_at: Mutex<Option<ConversationId>>,
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
///
/// Of a sub-agent's conversation, `PARENT/CALL`, [`log`](Self::log), [`records`](Self::records) and [`jobs`](Self::jobs) can
/// be read. To everything else it does not exist: answers and cancellations go to its parent, which shows what it does.
#[derive(Clone)]
pub struct Conversations {
    runtime: Arc<Runtime>,
    agent: Agent,
    /// The turn whose tools these conversations are.
    parent: Option<Arc<TurnContext>>,
}

impl Conversations {
    /// Conversations that are forgotten with the process.
    pub fn in_memory(agent: Agent) -> Self {
        Self::builder(agent, MemoryStore::default()).build()
    }

    /// Whether conversations outlive the process.
    pub fn is_durable(&self) -> bool {
        self.runtime.store.is_durable()
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    fn cell(&self, id: &ConversationId) -> Arc<Cell> {
        self.runtime.cell(id, &self.agent, self.parent.as_ref())
    }

    /// Makes the conversation if there is none; another's is not found.
    async fn open(&self, id: &ConversationId, scope: &Scope) -> Result<(), SendError> {
        self.check_door(id)?;
        let cell = self.cell(id);
        let owner = match cell.owner() {
            Some(owner) => owner,
            None => self.runtime.store.open(id, scope.actor(), self.runtime.clock.now()).await?,
        };
        check_owner(id, &owner, scope)?;
        cell.owned_by(owner);
        Ok(())
    }

    /// Like `open`, for a conversation that must exist.
    async fn owned(&self, id: &ConversationId, scope: &Scope) -> Result<(), SendError> {
        self.check_door(id)?;
        self.readable(id, scope).await
    }

    async fn readable(&self, id: &ConversationId, scope: &Scope) -> Result<(), SendError> {
        match self.runtime.store.owner(id).await? {
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

impl Runtime {
    pub(crate) fn cell(&self, id: &ConversationId, agent: &Agent, parent: Option<&Arc<TurnContext>>) -> Arc<Cell> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(id) {
            if let Some(parent) = parent {
                cell.work_for(parent);
            }
            return cell.clone();
        }
        let cell = Arc::new(Cell::new(id.clone(), agent.clone(), parent.cloned(), self.clock.clone()));
        cells.insert(id.clone(), cell.clone());
        cell
    }

    /// The conversation, if this process has it in memory.
    pub(crate) fn known_cell(&self, id: &ConversationId) -> Option<Arc<Cell>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Lets go of a conversation that was left, if it is at rest and still the one that is known by its id: whoever asks
    /// for it meanwhile must not get a second one.
    pub(crate) fn forget(&self, cell: &Arc<Cell>) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if cells.get(&cell.id).is_some_and(|known| Arc::ptr_eq(known, cell)) && cell.is_left() {
            cells.remove(&cell.id);
        }
    }
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl From<StoreError> for SendError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { id } => Self::Full { id },
            error => Self::Store(error),
        }
    }
}
