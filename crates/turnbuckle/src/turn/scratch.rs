//! The scratch of a turn, with its changes tracked: no stage decides whether it is written.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::Agent;
use crate::id::TurnId;
use crate::limits::UsedBudget;
use crate::message::Text;
use crate::scope::Actor;
use crate::store::Scratch;

/// Costs closer than this are the same: sums of floating-point numbers differ in the last digits.
pub(super) const SAME_COST: f64 = 1e-9;

/// A scratch that knows whether it differs from what is stored.
#[derive(Clone, Debug)]
pub(crate) struct TrackedScratch {
    /// Shared with a store that keeps it in memory, until it is changed. It is large, and the turn that holds it is moved.
    scratch: Arc<Scratch>,
    changed: bool,
}

impl TrackedScratch {
    /// A scratch that the next write stores. A revived one counts as changed, too: storing it fixes how long the turn
    /// was at work before the crash.
    pub(crate) fn new(scratch: Arc<Scratch>) -> Self {
        Self { scratch, changed: true }
    }

    /// The scratch, to change. The next write stores it.
    pub(crate) fn edit(&mut self) -> &mut Scratch {
        self.changed = true;
        Arc::make_mut(&mut self.scratch)
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }

    pub(crate) fn mark_stored(&mut self) {
        self.changed = false;
    }

    /// Notes what was used beyond what the log tells: discarded attempts, and models that hooks asked.
    pub(crate) fn update(&mut self, used: UsedBudget, logged: UsedBudget) {
        let mut beyond = used.beyond(&logged);
        if beyond.cost.abs() < SAME_COST {
            beyond.cost = 0.0;
        }
        if beyond != self.scratch.unlogged {
            self.edit().unlogged = beyond;
        }
    }

    /// How long the turn was at work, if the log says that `worked` passed since it began: what was stored, and what
    /// the log tells since then.
    pub(crate) fn active_after(&self, worked: Duration) -> Duration {
        self.scratch.active + worked.saturating_sub(self.scratch.worked)
    }

    pub(crate) fn shared(&self) -> &Arc<Scratch> {
        &self.scratch
    }

    pub(crate) fn into_inner(self) -> Arc<Scratch> {
        self.scratch
    }
}

impl Deref for TrackedScratch {
    type Target = Scratch;
    fn deref(&self) -> &Scratch {
        &self.scratch
    }
}

/// The scratch of a turn that has just begun.
pub(crate) fn new_scratch(agent: &Agent, turn: &TurnId, actor: Actor, project: Text) -> Scratch {
    Scratch {
        turn: turn.clone(),
        actor,
        agent: agent.shared_name().clone(),
        model: agent.model_choice().clone(),
        project,
        digest: agent.digest().clone(),
        parts: Some(agent.parts().clone()),
        limits: agent.limits().clone(),
        schema: None,
        injections: Vec::new(),
        steering: Vec::new(),
        regeneration: None,
        asked: None,
        approved_reply: None,
        answers: Vec::new(),
        answered_by: Vec::new(),
        effective: agent.redacts_arguments().then(Vec::new),
        touched: Vec::new(),
        active: Duration::ZERO,
        worked: Duration::ZERO,
        unlogged: Default::default(),
        sub_agents: Vec::new(),
        last_answer: None,
        advice: Vec::new(),
        warnings: Vec::new(),
    }
}
