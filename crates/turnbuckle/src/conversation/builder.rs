//! Settings of a [`Conversations`]: which agent, which store, and what is injected.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::conversations::Conversations;
use super::loaded::Resting;
use super::runtime::{Runtime, ScopeSource, TakenUp, TellTakenUp};
use crate::access::{Access, OwnerOnly};
use crate::agent::Agent;
use crate::audit::{AuditOptions, AuditRedaction};
use crate::clock::{Clock, SystemClock};
use crate::id::{Ids, SystemIds};
use crate::message::Text;
use crate::scope::{Actor, PermissionMode, Scope};
use crate::store::{SideStore, Store};
use crate::turn::{Calibrations, ChangedAgentPolicy, LeftTurn, OnChangedAgent, OtherAgents, Services};

/// Settings of a [`Conversations`].
#[must_use = "settings do nothing until `build` is called"]
pub struct ConversationsBuilder {
    agent: Agent,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    permission_mode: PermissionMode,
    background_hooks: bool,
    scope_source: Option<Arc<ScopeSource>>,
    max_idle: usize,
    project: Text,
    access: Arc<dyn Access>,
    on_changed_agent: Arc<ChangedAgentPolicy>,
    other_agents: OtherAgents,
    side_stores: Vec<Arc<dyn SideStore>>,
    retain: Option<Duration>,
    on_taken_up: Option<Arc<TellTakenUp>>,
    audit: Option<AuditOptions>,
    redact_records: Option<Arc<AuditRedaction>>,
}

impl ConversationsBuilder {
    pub(super) fn new(agent: Agent, store: Arc<dyn Store>) -> Self {
        Self {
            agent,
            store,
            clock: Arc::new(SystemClock::default()),
            ids: Arc::new(SystemIds::default()),
            permission_mode: PermissionMode::default(),
            background_hooks: true,
            scope_source: None,
            max_idle: 1024,
            project: "".into(),
            access: Arc::new(OwnerOnly),
            on_changed_agent: Arc::new(|_| OnChangedAgent::Leave),
            other_agents: OtherAgents::default(),
            side_stores: Vec::new(),
            retain: None,
            on_taken_up: None,
            audit: None,
            redact_records: None,
        }
    }

    /// Another source of time. Default: the system clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Another source of ids. Default: [`SystemIds`].
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.ids = ids;
        self
    }

    /// Whether a person is there to be asked; hooks can read it. Default: interactive.
    pub fn permission_mode(mut self, mode: PermissionMode) -> Self {
        self.permission_mode = mode;
        self
    }

    /// Enqueues no background hooks and takes up no jobs.
    pub fn without_background_hooks(mut self) -> Self {
        self.background_hooks = false;
        self
    }

    /// Where a revived turn's scope comes from. Default: the stored actor with an empty bag.
    pub fn scope_source(mut self, source: impl Fn(&Actor) -> Scope + Send + Sync + 'static) -> Self {
        self.scope_source = Some(Arc::new(source));
        self
    }

    /// How many conversations stay in memory when nothing happens in them; the store has the others. Default: 1,024.
    pub fn max_idle(mut self, conversations: usize) -> Self {
        self.max_idle = conversations;
        self
    }

    /// Who may do what with which conversation: a [`RoleAccess`](crate::access::RoleAccess), a closure, or an
    /// [`Access`] of your own. Default: the owner, who is the one that opened it.
    pub fn access(mut self, access: impl Access) -> Self {
        self.access = Arc::new(access);
        self
    }

    /// The project that the conversations are about: a standing approval holds only in the project that it was given in, and a
    /// turn is carried on only in the project that it began in.
    /// Default: an empty name.
    pub fn project(mut self, project: impl Into<Text>) -> Self {
        self.project = project.into();
        self
    }

    /// What becomes of an open turn that began with tools or blocking hooks which the agent lacks by now. Asked for turns
    /// of an agent of the same name only: a turn of another agent is always left. Default: it is left, and
    /// [`Conversations::accept_changes`] can insist.
    pub fn on_changed_agent(mut self, decide: impl Fn(&LeftTurn) -> OnChangedAgent + Send + Sync + 'static) -> Self {
        self.on_changed_agent = Arc::new(decide);
        self
    }

    /// What becomes of a message in a conversation whose last turn was of an agent of another name. Turns that are open are always
    /// left. Default: the conversation goes on with this agent.
    pub fn other_agents(mut self, choice: OtherAgents) -> Self {
        self.other_agents = choice;
        self
    }

    /// Adds something that keeps text of conversations beside the store, so that deleting one reaches it. What hooks of the
    /// agent keep is known without this.
    pub fn side_store(mut self, side: Arc<dyn SideStore>) -> Self {
        self.side_stores.push(side);
        self
    }

    /// How long a conversation is kept in which nothing happens. Then [`Conversations::run_maintenance`] deletes it. Default:
    /// for ever.
    pub fn retain(mut self, age: Duration) -> Self {
        self.retain = Some(age);
        self
    }

    /// Records exactly what models are sent, and digests of what hooks were given. Default: not recorded.
    pub fn audit(mut self, options: AuditOptions) -> Self {
        self.audit = Some(options);
        self
    }

    /// Takes secrets out of the texts that records have of what hooks [changed](crate::hook::Change); `None` for a text that has none.
    /// Default: as in the audit, if there is one. What hooks take out of what is stored is not in records either way.
    pub fn redact_records(mut self, redact: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.redact_records = Some(Arc::new(redact));
        self
    }

    /// Told of each open turn that [`Conversations::recover_due`] takes up, before it goes on: another process began it and left
    /// it, or someone answered what it waited for. It must return quickly. Default: nobody is told.
    pub fn on_taken_up(mut self, tell: impl Fn(&TakenUp) + Send + Sync + 'static) -> Self {
        self.on_taken_up = Some(Arc::new(tell));
        self
    }

    /// The conversations.
    pub fn build(self) -> Conversations {
        let writer = self.ids.mint("w_").into();
        let agent = self.agent.under(&*self.access);
        let services = Services {
            store: self.store,
            clock: self.clock,
            ids: self.ids,
            permission_mode: self.permission_mode,
            background_hooks: self.background_hooks,
            project: self.project,
            access: self.access,
            on_changed_agent: self.on_changed_agent,
            other_agents: self.other_agents,
            calibrations: Calibrations::default(),
            redact_records: self.redact_records.or_else(|| Some(self.audit.as_ref()?.redact.clone())),
            audit: self.audit.map(Arc::new),
        };
        let runtime = Runtime {
            services: Arc::new(services),
            writer,
            has_scope_source: self.scope_source.is_some(),
            scope_source: self.scope_source.unwrap_or_else(|| Arc::new(|actor| Scope::of(actor.clone()))),
            max_idle: self.max_idle,
            skip_evictions: AtomicUsize::new(0),
            resting: Resting::default(),
            conversations: Mutex::default(),
            due_from: Mutex::default(),
            side_stores: self.side_stores,
            retain: self.retain,
            on_taken_up: self.on_taken_up,
            reads: Mutex::default(),
            tasks: tokio::sync::watch::Sender::new(0),
        };
        Conversations { runtime: Arc::new(runtime), agent, parent: None }
    }
}

impl fmt::Debug for ConversationsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationsBuilder").field("agent", &self.agent).finish_non_exhaustive()
    }
}
