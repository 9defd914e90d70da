//! What all conversations of a process share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::conversations::Conversations;
use super::loaded::Resting;
use super::shared::Conversation;
use crate::agent::Agent;
use crate::id::{ConversationId, NameMap, TurnId};
use crate::message::Text;
use crate::scope::{Actor, Scope};
use crate::store::SideStore;
use crate::turn::{Services, TurnContext};

/// Where a revived turn's scope comes from: the actor is stored, the bag is not.
pub type ScopeSource = dyn Fn(&Actor) -> Scope + Send + Sync;

/// An open turn that [`Conversations::recover_due`] takes up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenUp {
    /// The conversation.
    pub conversation: ConversationId,
    /// The turn.
    pub turn: TurnId,
    /// The model that the turn began with, if another one carries it on.
    pub model_before: Option<Text>,
}

/// Is told of turns that are taken up.
pub(crate) type TellTakenUp = dyn Fn(&TakenUp) + Send + Sync;

/// How many reads of conversations of others are remembered.
const MAX_READS: usize = 256;

/// What all conversations of a process share.
pub(crate) struct Runtime {
    pub(crate) services: Arc<Services>,
    /// The name by which the store knows this process.
    pub(crate) writer: Text,
    /// Makes the scope of a turn that another process, or this one before a crash, began.
    pub(crate) scope_source: Arc<ScopeSource>,
    /// Whether the user gave `scope_source`. If not, a scope's bag exists only in memory, and a conversation with an open
    /// turn must stay there.
    pub(crate) has_scope_source: bool,
    /// How many conversations may stay in memory when nothing happens in them.
    pub(crate) max_idle: usize,
    /// Turns that may end before the next search for conversations to evict. Set after a search that freed almost
    /// nothing: without this back-off, searching would dominate while most conversations must stay.
    pub(crate) skip_evictions: AtomicUsize,
    /// Those that came to rest last. Its lock is held with no other.
    pub(crate) resting: Resting,
    /// The conversations in memory. Locked before a conversation's own lock, never after it.
    pub(crate) conversations: Mutex<NameMap<ConversationId, Arc<Conversation>>>,
    /// The last conversation of the previous search for due ones, if there may be more behind it.
    pub(crate) due_from: Mutex<Option<ConversationId>>,
    /// What keeps text of conversations beside the store, and is no hook of the agent.
    pub(crate) side_stores: Vec<Arc<dyn SideStore>>,
    /// How long unused conversations are kept; `None`: for ever.
    pub(crate) retain: Option<Duration>,
    /// Is told of open turns that maintenance takes up.
    pub(crate) on_taken_up: Option<Arc<TellTakenUp>>,
    /// Who was recorded last as reading which conversation of another: not every look at it is recorded again.
    pub(crate) reads: Mutex<VecDeque<(ConversationId, Arc<str>)>>,
    /// How many background tasks run. [`Conversations::drain`] waits for zero.
    pub(crate) tasks: watch::Sender<usize>,
}

impl Runtime {
    fn lock(&self) -> MutexGuard<'_, NameMap<ConversationId, Arc<Conversation>>> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The conversation of this id; it is made if it is not in memory.
    pub(crate) fn conversation(
        self: &Arc<Self>,
        id: &ConversationId,
        agent: &Agent,
        parent: Option<&Arc<TurnContext>>,
    ) -> Arc<Conversation> {
        let mut conversations = self.lock();
        if let Some(conversation) = conversations.get(id) {
            if let Some(parent) = parent {
                conversation.set_parent(parent);
            }
            return conversation.clone();
        }
        let conversation = Arc::new(self.detached(id, agent, parent));
        conversations.insert(id.clone(), conversation.clone());
        conversation
    }

    /// A conversation that is not entered into the map.
    pub(crate) fn detached(
        self: &Arc<Self>,
        id: &ConversationId,
        agent: &Agent,
        parent: Option<&Arc<TurnContext>>,
    ) -> Conversation {
        let runtime: Weak<Self> = Arc::downgrade(self);
        Conversation::new(id.clone(), agent.clone(), parent.cloned(), self.services.clock.clone(), runtime)
    }

    /// The conversation, if it is in memory.
    pub(crate) fn resident(&self, id: &ConversationId) -> Option<Arc<Conversation>> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn resident_count(&self) -> usize {
        self.lock().len()
    }

    /// How many conversations are worked on here.
    pub(crate) fn driven_count(&self) -> usize {
        self.lock().values().filter(|conversation| conversation.is_driven()).count()
    }

    /// Conversations of a sub-agent, for a turn of its parent.
    pub(crate) fn sub_agent(self: &Arc<Self>, parent: &Arc<TurnContext>, agent: Agent) -> Conversations {
        Conversations { runtime: self.clone(), agent, parent: Some(parent.clone()) }
    }

    /// Forgets a conversation that was left, if it is at rest and still the one with this id: someone who asks for it
    /// meanwhile must not get a second one.
    pub(crate) fn forget(&self, conversation: &Arc<Conversation>) {
        let mut conversations = self.lock();
        let same = conversations.get(&conversation.id).is_some_and(|known| Arc::ptr_eq(known, conversation));
        if same && conversation.has_left() {
            conversations.remove(&conversation.id);
        }
    }

    /// Forgets conversations at rest when there are too many, those first that have been at rest longest. The store has
    /// them.
    pub(crate) fn evict(&self) {
        let mut conversations = self.lock();
        if conversations.len() <= self.max_idle {
            return;
        }
        let skip = self.skip_evictions.load(Ordering::Relaxed);
        if skip > 0 {
            return self.skip_evictions.store(skip - 1, Ordering::Relaxed);
        }
        let keeps_scopes = !self.has_scope_source;
        // A quarter at a time: a search through all of them for each one that goes would cost more than it saves.
        let surplus = conversations.len() - self.max_idle / 4 * 3;
        let evictable = conversations.iter().filter(|(_, conversation)| conversation.is_evictable(keeps_scopes));
        let mut idle: Vec<_> = evictable.map(|(id, conversation)| (conversation.idle_since(), id.clone())).collect();
        idle.sort_unstable();
        let evicted = idle.len().min(surplus);
        for (_, id) in idle.into_iter().take(surplus) {
            conversations.remove(&id);
        }
        tracing::debug!(evicted, resident = conversations.len(), "evicted idle conversations");
        if conversations.len() > self.max_idle {
            self.skip_evictions.store(conversations.len() / 4, Ordering::Relaxed);
        }
    }

    /// Whether it was recorded lately that this user reads this conversation.
    pub(crate) fn has_read(&self, id: &ConversationId, reader: &Arc<str>) -> bool {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.iter().any(|(known, user)| known == id && user == reader)
    }

    /// It was recorded that this user reads this conversation.
    pub(crate) fn remember_read(&self, id: ConversationId, reader: Arc<str>) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        if reads.len() >= MAX_READS {
            reads.pop_front();
        }
        reads.push_back((id, reader));
    }

    /// Counts a background task until the guard is dropped.
    pub(crate) fn begin_task(self: &Arc<Self>) -> TaskGuard {
        self.tasks.send_modify(|count| *count += 1);
        TaskGuard(self.clone())
    }
}

/// A background task under way. It is counted until this is dropped, also if the task panics.
pub(crate) struct TaskGuard(Arc<Runtime>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.tasks.send_modify(|count| *count -= 1);
    }
}
