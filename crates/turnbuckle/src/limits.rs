//! What a turn may use, what it has used, and what is left.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Usage;

/// Limits of one turn. The defaults are those of `turnbuckle.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Tokens that a context may hold.
    pub context_tokens: u64,
    /// Of these: what hooks may add to one call, together.
    pub injection_reserve: u64,
    /// Attempts that reach a model.
    pub max_model_calls: u32,
    /// Tokens read and written; 0: no limit.
    pub max_tokens: u64,
    /// Dollars; 0: no limit. Models without known prices cost nothing.
    pub max_cost: f64,
    /// Regenerations of one reply, by all hooks together.
    pub max_regenerations: u32,
    /// Refused stops in a row with no tool call between.
    pub max_stop_refusals: u32,
    /// Time at work; waiting is not counted.
    pub turn_timeout: Duration,
    /// How long a question stays open.
    pub approval_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            context_tokens: 32_000,
            injection_reserve: 4_000,
            max_model_calls: 50,
            max_tokens: 0,
            max_cost: 0.0,
            max_regenerations: 2,
            max_stop_refusals: 8,
            turn_timeout: Duration::from_secs(30 * 60),
            approval_timeout: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Limits {
    /// Tokens left for what no hook adds: system prompt, tools, history and the turn itself.
    pub(crate) fn without_reserve(&self) -> u64 {
        self.context_tokens.saturating_sub(self.injection_reserve)
    }
}

/// What a turn has used, over all attempts, discarded ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsedBudget {
    /// Attempts that reached a model.
    pub calls: u32,
    /// Tokens read and written.
    pub usage: Usage,
    /// Dollars, for models with known prices.
    pub cost: f64,
}

/// What is left of a turn's budget; `None` where there is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RemainingBudget {
    /// Model calls.
    pub model_calls: u32,
    /// Tokens, read and written.
    pub tokens: Option<u64>,
    /// Money, in dollars.
    pub cost: Option<f64>,
}

impl UsedBudget {
    /// What is in `self` and not in `other`.
    pub(crate) fn beyond(&self, other: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            usage: self.usage.beyond(&other.usage),
            cost: self.cost - other.cost,
        }
    }

    /// Both together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let mut usage = self.usage;
        usage += other.usage;
        Self { calls: self.calls.saturating_add(other.calls), usage, cost: self.cost + other.cost }
    }
}
