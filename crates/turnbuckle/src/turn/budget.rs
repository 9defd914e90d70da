//! What a turn has used: calls, tokens, money, time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::state::Verdict;
use crate::agent::Limits;
use crate::message::Usage;
use crate::model::ModelError;

/// What is left of a turn's budget; `None` where there is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RemainingBudget {
    /// Model calls.
    pub model_calls: u32,
    /// Tokens, read and written.
    pub tokens: Option<u64>,
    /// Dollars.
    pub cost: Option<f64>,
}

/// Counts for one turn. Shared with wraps that run elsewhere.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Model calls of earlier turns.
    before: u64,
    made: AtomicU32,
    /// Calls made before the present reply.
    reply_from: AtomicU32,
    spent: Mutex<UsedBudget>,
    /// A sub-agent spends its parent's budget, too.
    parent: Option<Arc<super::TurnContext>>,
}

/// Over all attempts, discarded ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsedBudget {
    /// Attempts that reached a model.
    pub calls: u32,
    /// Tokens.
    pub usage: Usage,
    /// Dollars.
    pub cost: f64,
}

impl Budget {
    /// `before`: model calls of earlier turns. `spent`: what this one used already.
    pub(crate) fn new(before: u64, spent: UsedBudget, parent: Option<Arc<super::TurnContext>>) -> Self {
        let made = spent.calls;
        let (made, reply_from) = (AtomicU32::new(made), AtomicU32::new(made));
        Self { before, made, reply_from, spent: Mutex::new(spent), parent }
    }

    /// A new reply begins, of which `attempts` were made already.
    pub(crate) fn begin_reply(&self, attempts: u32) {
        self.reply_from.store(self.made().saturating_sub(attempts), Ordering::Relaxed);
    }

    /// One more attempt: its number within the reply, and within the conversation.
    pub(crate) fn begin(&self, limits: &Limits) -> Result<(u32, u64), ModelError> {
        if let Some(limit) = self.used_up(limits) {
            return Err(ModelError::Exhausted { limit: limit.into() });
        }
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((made - self.reply_from.load(Ordering::Relaxed), self.before + u64::from(made)))
    }

    pub(crate) fn spend(&self, usage: Usage, cost: Option<f64>) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.usage += usage;
        spent.cost += cost.unwrap_or(0.0);
        drop(spent);
        if let Some(parent) = &self.parent {
            parent.budget.spend(usage, cost);
        }
    }

    pub(crate) fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Attempts at the present reply so far.
    pub(crate) fn attempt(&self) -> u32 {
        self.made() - self.reply_from.load(Ordering::Relaxed)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.spent().usage
    }

    pub(crate) fn spent(&self) -> UsedBudget {
        UsedBudget { calls: self.made(), ..*self.spent.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// The limit that allows no further model call, if one does not.
    pub(crate) fn used_up(&self, limits: &Limits) -> Option<&'static str> {
        let left = self.left(limits);
        if left.model_calls == 0 {
            return Some("max_model_calls");
        }
        if left.tokens == Some(0) {
            return Some("max_tokens");
        }
        if left.cost.is_some_and(|cost| cost <= 0.0) {
            return Some("max_cost");
        }
        let parent = self.parent.as_ref()?;
        parent.budget.used_up_but_calls(&parent.limits)
    }

    fn used_up_but_calls(&self, limits: &Limits) -> Option<&'static str> {
        self.used_up(&Limits { max_model_calls: u32::MAX, ..limits.clone() })
    }

    pub(crate) fn left(&self, limits: &Limits) -> RemainingBudget {
        // Most agents limit neither: then nobody has to look.
        let asked = limits.max_tokens > 0 || limits.max_cost > 0.0;
        let spent = if asked { self.spent() } else { UsedBudget::default() };
        RemainingBudget {
            model_calls: limits.max_model_calls.saturating_sub(self.made()),
            tokens: (limits.max_tokens > 0).then(|| limits.max_tokens.saturating_sub(spent.usage.total())),
            cost: (limits.max_cost > 0.0).then_some(limits.max_cost - spent.cost),
        }
    }

    pub(crate) fn verdict(&self, limits: &Limits) -> Option<Verdict> {
        self.used_up(limits).map(Verdict::exhausted)
    }
}

/// Time at work. Waiting and downtime are not in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stopwatch {
    before: Duration,
    began: Duration,
}

impl Stopwatch {
    /// Started now, with what was at work before.
    pub(crate) fn started(before: Duration, now: Duration) -> Self {
        Self { before, began: now }
    }

    pub(crate) fn active(&self, now: Duration) -> Duration {
        self.before + now.saturating_sub(self.began)
    }
}
