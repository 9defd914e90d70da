//! Opening the door: which agent, which store, and what is injected.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use super::{Conversations, Runtime, ScopeSource};
use crate::agent::Agent;
use crate::clock::{Clock, SystemClock};
use crate::id::{Ids, SystemIds};
use crate::scope::{Actor, Scope};
use crate::store::Store;
use crate::turn::PermissionMode;

/// Settings of a [`Conversations`].
pub struct ConversationsBuilder {
    agent: Agent,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    mode: PermissionMode,
    bare: bool,
    scope_source: Option<Arc<ScopeSource>>,
    max_idle: usize,
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
    pub fn without_background_hooks(mut self) -> Self {
        self.bare = true;
        self
    }
    /// Where a revived turn's scope comes from. Default: the stored actor with an empty bag.
    pub fn scope_source(mut self, source: impl Fn(&Actor) -> Scope + Send + Sync + 'static) -> Self {
        self.scope_source = Some(Arc::new(source));
        self
    }
    /// How many conversations at rest stay in memory; the store has the others. Default: 1,024.
    pub fn max_idle(mut self, conversations: usize) -> Self {
        self.max_idle = conversations;
        self
    }
    /// Opens the door.
    pub fn build(self) -> Conversations {
        let runtime = Runtime {
            writer: self.ids.mint("w_"),
            store: self.store,
            clock: self.clock,
            ids: self.ids,
            mode: self.mode,
            bare: self.bare,
            has_scope_source: self.scope_source.is_some(),
            scope_source: self.scope_source.unwrap_or_else(|| Arc::new(|actor| Scope::of(actor.clone()))),
            max_idle: self.max_idle,
            patience: AtomicUsize::new(0),
            cells: Mutex::default(),
            looked_at: Mutex::default(),
            aside: tokio::sync::watch::Sender::new(0),
        };
        Conversations { runtime: Arc::new(runtime), agent: self.agent, parent: None }
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
            scope_source: None,
            max_idle: 1024,
        }
    }
}
