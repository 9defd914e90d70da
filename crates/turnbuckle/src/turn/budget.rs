//! What a turn has used: model calls, tokens, money, time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::context::TurnContext;
use super::scratch::SAME_COST;
use super::state::Verdict;
use crate::id::ConversationId;
use crate::limits::{CallPrice, Limits, RemainingBudget, UsedBudget};
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
    /// Whether something is kept back for a last answer. Apart from `spent`, so that most turns lock nothing.
    keeps_back: AtomicBool,
    /// Whether the next attempt is the last answer, which may use what was kept back.
    is_last: AtomicBool,
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
    /// What a last answer would cost, by estimate, beside one model call.
    kept_back: CallPrice,
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
        let spent = Mutex::new(Spent { usage, cost, last: None, sub_agents, kept_back: CallPrice::default() });
        let (calls, reply_from) = (AtomicU32::new(calls), AtomicU32::new(calls));
        let (keeps_back, is_last) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { conversation, earlier_calls, calls, reply_from, keeps_back, is_last, spent, parent }
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
        let used_up = match self.is_last.load(Ordering::Relaxed) {
            true => self.used_up_wholly(CallPrice::default(), limits),
            false => self.used_up(limits),
        };
        if let Some(limit) = used_up {
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

    /// Keeps one model call and this price back for a last answer.
    pub(crate) fn keep_back(&self, price: CallPrice) {
        self.lock().kept_back = price;
        self.keeps_back.store(true, Ordering::Relaxed);
    }

    /// The next attempts are at the last answer: they may use what was kept back.
    pub(crate) fn begin_last(&self) {
        self.is_last.store(true, Ordering::Relaxed);
    }

    /// The last answer was given: nothing is kept back any more.
    pub(crate) fn release_kept_back(&self) {
        self.keeps_back.store(false, Ordering::Relaxed);
    }

    /// What is kept back: model calls, tokens and money.
    fn kept_back(&self) -> (u32, CallPrice) {
        match self.keeps_back.load(Ordering::Relaxed) {
            true => (1, self.lock().kept_back),
            false => (0, CallPrice::default()),
        }
    }

    /// Whether tokens or money are limited, here or for a parent.
    pub(crate) fn is_limited(&self, limits: &Limits) -> bool {
        let is_limited = limits.max_tokens > 0 || limits.max_cost > 0.0;
        is_limited || self.parent.as_ref().is_some_and(|parent| parent.budget.is_limited(&parent.limits))
    }

    /// The limit that allows no further model call beside what is kept back, if there is one.
    pub(crate) fn used_up(&self, limits: &Limits) -> Option<&'static str> {
        self.without_room_for(CallPrice::default(), limits)
    }

    /// The limit that a model call of this price would cross, what is kept back counted.
    pub(crate) fn without_room_for(&self, price: CallPrice, limits: &Limits) -> Option<&'static str> {
        let (calls, kept_back) = self.kept_back();
        if self.calls().saturating_add(calls) >= limits.max_model_calls {
            return Some("max_model_calls");
        }
        self.crossed(price.plus(kept_back), limits)
    }

    /// The limit that allows no model call at all, not even the one that was kept back if it has this price.
    pub(crate) fn used_up_wholly(&self, price: CallPrice, limits: &Limits) -> Option<&'static str> {
        if self.calls() >= limits.max_model_calls {
            return Some("max_model_calls");
        }
        self.crossed(price, limits)
    }

    /// The limit of tokens or money that is reached, or that `more` would cross: a parent's calls are not a sub-agent's.
    fn crossed(&self, more: CallPrice, limits: &Limits) -> Option<&'static str> {
        // Most agents limit neither: then nothing has to be locked.
        if limits.max_tokens > 0 || limits.max_cost > 0.0 {
            let used = self.used();
            let (tokens, cost) = (used.usage.total(), used.cost);
            let (most_tokens, most_cost) = (limits.max_tokens, limits.max_cost);
            if most_tokens > 0 && (tokens >= most_tokens || tokens.saturating_add(more.tokens) > most_tokens) {
                return Some("max_tokens");
            }
            if most_cost > 0.0 && (cost >= most_cost || cost + more.cost > most_cost) {
                return Some("max_cost");
            }
        }
        let parent = self.parent.as_ref()?;
        let (_, kept_back) = parent.budget.kept_back();
        parent.budget.crossed(more.plus(kept_back), &parent.limits)
    }

    /// What is left, without what is kept back here and for the parents.
    pub(crate) fn remaining(&self, limits: &Limits) -> RemainingBudget {
        let (used, (calls, kept_back)) = (self.used(), self.kept_back());
        let above = self.parent.as_ref().map(|parent| parent.budget.remaining(&parent.limits));
        let tokens = (limits.max_tokens > 0).then(|| limits.max_tokens.saturating_sub(used.usage.total()));
        let cost = (limits.max_cost > 0.0).then_some(limits.max_cost - used.cost);
        let tokens = tokens.into_iter().chain(above.and_then(|above| above.tokens)).min();
        let cost = cost.into_iter().chain(above.and_then(|above| above.cost)).reduce(f64::min);
        RemainingBudget {
            model_calls: limits.max_model_calls.saturating_sub(used.calls.saturating_add(calls)),
            tokens: tokens.map(|tokens| tokens.saturating_sub(kept_back.tokens)),
            cost: cost.map(|cost| (cost - kept_back.cost).max(0.0)),
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
