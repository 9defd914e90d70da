//! What a turn has used: model calls, tokens, money, time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::context::TurnContext;
use super::scratch::SAME_COST;
use super::state::Verdict;
use crate::id::ConversationId;
use crate::limits::{Limits, RemainingBudget, UsedBudget};
use crate::message::{Text, Usage};
use crate::model::ModelError;

/// Counts for one turn. Wraps may use it from other tasks.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The conversation of the turn. A parent's budget knows its sub-agents by it.
    conversation: ConversationId,
    /// Model calls of earlier turns: a script goes on where they stopped.
    earlier_calls: u64,
    /// Attempts of this turn that reached a model.
    calls: AtomicU32,
    /// Attempts that were made before the present reply.
    reply_from: AtomicU32,
    spent: Mutex<Spent>,
    /// A sub-agent uses its parent's budget as well.
    parent: Option<Arc<TurnContext>>,
}

#[derive(Debug)]
struct Spent {
    usage: Usage,
    cost: f64,
    /// The last attempt at the present reply.
    last: Option<Attempt>,
    /// What each sub-agent of the turn has used. It is in `usage` and `cost` as well; kept apart, so that after a crash only
    /// what is missing there is added.
    sub_agents: Vec<(ConversationId, UsedBudget)>,
}

/// An attempt at a reply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempt {
    /// The model's name.
    pub(crate) model: Option<Text>,
    /// Money, in dollars.
    pub(crate) cost: f64,
}

impl Budget {
    /// `earlier_calls`: model calls of earlier turns. `used` and `sub_agents`: what this turn and its sub-agents used
    /// before a crash, as far as it is stored.
    pub(crate) fn new(
        conversation: ConversationId,
        earlier_calls: u64,
        used: UsedBudget,
        sub_agents: Vec<(ConversationId, UsedBudget)>,
        parent: Option<Arc<TurnContext>>,
    ) -> Self {
        let UsedBudget { calls, usage, cost } = used;
        let spent = Mutex::new(Spent { usage, cost, last: None, sub_agents });
        let (calls, reply_from) = (AtomicU32::new(calls), AtomicU32::new(calls));
        Self { conversation, earlier_calls, calls, reply_from, spent, parent }
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new reply begins, at which `attempts` were made already.
    pub(crate) fn begin_reply(&self, attempts: u32) {
        self.reply_from.store(self.calls().saturating_sub(attempts), Ordering::Relaxed);
        self.lock().last = None;
    }

    /// Counts one more attempt. Returns its number within the reply and within the conversation.
    pub(crate) fn begin(&self, limits: &Limits) -> Result<(u32, u64), ModelError> {
        if let Some(limit) = self.used_up(limits) {
            return Err(ModelError::Exhausted { limit: limit.into() });
        }
        let calls = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((calls - self.reply_from.load(Ordering::Relaxed), self.earlier_calls + u64::from(calls)))
    }

    /// Counts what a reply cost, here and for the parents.
    pub(crate) fn spend(&self, usage: Usage, cost: Option<f64>) {
        self.count(usage, cost.unwrap_or(0.0), None);
    }

    /// `of`: the sub-agent that used it, if one did.
    fn count(&self, usage: Usage, cost: f64, of: Option<&ConversationId>) {
        let mut spent = self.lock();
        spent.usage += usage;
        spent.cost += cost;
        if let Some(id) = of {
            let place = spent.sub_agents.iter().position(|(known, _)| known == id);
            let used = UsedBudget { calls: 0, usage, cost };
            match place.and_then(|place| spent.sub_agents.get_mut(place)) {
                Some((_, before)) => *before = before.plus(&used),
                None => spent.sub_agents.push((id.clone(), used)),
            }
        }
        drop(spent);
        if let Some(parent) = &self.parent {
            parent.budget.count(usage, cost, Some(&self.conversation));
        }
    }

    /// A sub-agent has used this much in all, as its own log and scratch say. What was lost of it here in a crash is counted
    /// now.
    pub(crate) fn sub_agent_used(&self, id: &ConversationId, used: &UsedBudget) {
        let known = self.lock().sub_agents.iter().find(|(known, _)| known == id).map(|(_, used)| *used);
        let missing = used.beyond(&known.unwrap_or_default());
        if missing.usage != Usage::default() || missing.cost > SAME_COST {
            self.count(missing.usage, missing.cost.max(0.0), Some(id));
        }
    }

    /// What was used so far and, if that is not what `stored` says, what each sub-agent has used of it.
    pub(crate) fn used_unlike(
        &self,
        stored: &[(ConversationId, UsedBudget)],
    ) -> (UsedBudget, Option<Vec<(ConversationId, UsedBudget)>>) {
        let spent = self.lock();
        let used = UsedBudget { calls: self.calls(), usage: spent.usage, cost: spent.cost };
        (used, (spent.sub_agents != stored).then(|| spent.sub_agents.clone()))
    }

    /// Notes which model makes the present attempt, and what the attempt cost once that is known.
    pub(crate) fn note_attempt(&self, attempt: Attempt) {
        self.lock().last = Some(attempt);
    }

    /// The last attempt at the present reply; without a model if a wrap answered by itself.
    pub(crate) fn last_attempt(&self) -> Attempt {
        self.lock().last.clone().unwrap_or_default()
    }

    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Attempts at the present reply so far.
    pub(crate) fn attempt(&self) -> u32 {
        self.calls() - self.reply_from.load(Ordering::Relaxed)
    }

    pub(crate) fn used(&self) -> UsedBudget {
        let spent = self.lock();
        UsedBudget { calls: self.calls(), usage: spent.usage, cost: spent.cost }
    }

    /// The limit that allows no further model call, if there is one.
    pub(crate) fn used_up(&self, limits: &Limits) -> Option<&'static str> {
        if self.calls() >= limits.max_model_calls {
            return Some("max_model_calls");
        }
        self.used_up_but_calls(limits)
    }

    /// Like [`used_up`](Self::used_up), without `max_model_calls`: a parent's calls are not a sub-agent's.
    fn used_up_but_calls(&self, limits: &Limits) -> Option<&'static str> {
        // Most agents limit neither: then nothing has to be locked.
        if limits.max_tokens > 0 || limits.max_cost > 0.0 {
            let used = self.used();
            if limits.max_tokens > 0 && used.usage.total() >= limits.max_tokens {
                return Some("max_tokens");
            }
            if limits.max_cost > 0.0 && used.cost >= limits.max_cost {
                return Some("max_cost");
            }
        }
        let parent = self.parent.as_ref()?;
        parent.budget.used_up_but_calls(&parent.limits)
    }

    pub(crate) fn remaining(&self, limits: &Limits) -> RemainingBudget {
        let used = self.used();
        RemainingBudget {
            model_calls: limits.max_model_calls.saturating_sub(used.calls),
            tokens: (limits.max_tokens > 0).then(|| limits.max_tokens.saturating_sub(used.usage.total())),
            cost: (limits.max_cost > 0.0).then_some(limits.max_cost - used.cost),
        }
    }

    /// How the turn ends if a limit allows no further model call.
    pub(crate) fn verdict(&self, limits: &Limits) -> Option<Verdict> {
        self.used_up(limits).map(Verdict::exhausted)
    }
}

/// Time at work. Waiting for answers and downtime are not in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch {
    before: Duration,
    began: Duration,
}

impl Stopwatch {
    /// Starts now, with the time that was worked before.
    pub(crate) fn started(before: Duration, now: Duration) -> Self {
        Self { before, began: now }
    }

    pub(crate) fn active(&self, now: Duration) -> Duration {
        self.before + now.saturating_sub(self.began)
    }
}
