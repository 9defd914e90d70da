//! The world: what survives a crash, because it is not in the process.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::life::{BoundaryKind, Life};
use super::watched;
use crate::agent::Agent;
use crate::clock::Clock;
use crate::id::{CallId, ConversationId, CountingIds};
use crate::stores::MemoryStore;
use crate::testing::PausedClock;
use crate::turn::Turn;

/// The world around an agent under test: the store, the clock, and what its tools did. The process dies, the world does
/// not. Every run of the kit has a fresh one.
#[derive(Clone)]
pub struct World {
    pub(super) lasting: Arc<Lasting>,
    pub(super) life: Arc<Life>,
}

/// What all lives of a run share.
#[derive(Default)]
pub(super) struct Lasting {
    pub(super) store: MemoryStore,
    pub(super) clock: PausedClock,
    pub(super) ids: Arc<CountingIds>,
    pub(super) deeds: Mutex<Deeds>,
    things: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// A call of a conversation.
pub(super) type Call = (ConversationId, CallId);

/// What was done, by whom.
#[derive(Clone, Default)]
pub(super) struct Deeds {
    /// What was noted with [`World::happened`], in order.
    pub(super) effects: Vec<(Call, String)>,
    /// In which lives a tool ran.
    pub(super) runs: BTreeMap<Call, Vec<usize>>,
    /// In which lives the world was asked whether a call had happened, and whether it said no.
    pub(super) asked: BTreeMap<Call, Vec<(usize, bool)>>,
    /// Whose conversations they are, as far as a tool or an effect showed.
    pub(super) agents: BTreeMap<ConversationId, Agent>,
    /// How many messages and answers the person was told are stored.
    pub(super) acknowledged: usize,
}

impl Deeds {
    pub(super) fn effects_of(&self, call: &Call) -> usize {
        self.effects.iter().filter(|(of, _)| of == call).count()
    }
}

impl World {
    pub(super) fn first(dies_at: Option<usize>) -> Self {
        Self { lasting: Arc::default(), life: Arc::new(Life::new(1, dies_at)) }
    }

    /// The same world, and a process that does not die.
    pub(super) fn reborn(&self) -> Self {
        Self { lasting: self.lasting.clone(), life: Arc::new(Life::new(self.life.number + 1, None)) }
    }

    pub(super) fn deeds(&self) -> MutexGuard<'_, Deeds> {
        self.lasting.deeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a tool had its effect on the world: call it where the real effect is. The kit dies right before and
    /// right after it, and counts how often each call had its effect.
    pub async fn happened(&self, turn: &Turn, what: impl Into<String>) {
        let what = what.into();
        let call = call_of(turn);
        self.life.pass(BoundaryKind::Effect, format!("before the effect of {} ({what})", call.1)).await;
        let name = format!("after the effect of {} ({what})", call.1);
        {
            let mut deeds = self.deeds();
            deeds.agents.insert(call.0.clone(), turn.agent().clone());
            deeds.effects.push((call, what));
        }
        self.life.pass(BoundaryKind::Effect, name).await;
    }

    /// Whether the present call had an effect already: what an idempotent tool or a `reconcile` asks the world. By the
    /// key that the world was given, which is the call's id.
    pub fn has_happened(&self, turn: &Turn) -> bool {
        self.deeds().effects_of(&call_of(turn)) > 0
    }

    /// A thing of yours that is in the world and not in the process, such as a fake booking service: made when first
    /// asked for, the same after the crash, and fresh in every run.
    pub fn keep<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut things = self.lasting.things.lock().unwrap_or_else(PoisonError::into_inner);
        let thing = things.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        drop(things);
        // It is filed under its type.
        thing.downcast().unwrap_or_default()
    }

    /// The clock of this run. It moves on when nothing else can happen; give it to a model or a tool that waits.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.lasting.clock.clone())
    }

    /// `agent`, with a boundary at each start and end of its tools, hooks and model calls. The kit does it for the main
    /// agent; do it for a sub-agent before you make a tool of it. Without, what a sub-agent writes is a boundary still.
    pub fn watch(&self, agent: &Agent) -> Agent {
        watched::agent(agent, self)
    }
}

/// The call that a tool is at; outside a tool there is none.
pub(super) fn call_of(turn: &Turn) -> Call {
    (turn.conversation().clone(), turn.call().cloned().unwrap_or_else(|| "".into()))
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("life", &self.life.number).finish_non_exhaustive()
    }
}
