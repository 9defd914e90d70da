//! What a turn may use, what it has used, and what is left.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Usage;

/// Limits of one turn. The defaults are those of `turnbuckle.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Tokens that a context may hold, at most 75 % of what the model takes. 0: 75 % of what the model takes where that is
    /// [known](crate::model::Model::context_window), else 32,000. The limits of an agent that is built have the number.
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
    /// What happens when model calls, tokens or money are used up.
    pub on_budget: OnBudget,
    /// Whether the model is told what is left of them, with each call.
    pub show_budget: bool,
    /// Time at work; waiting is not counted.
    pub turn_timeout: Duration,
    /// How long a question stays open.
    pub approval_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            context_tokens: 0,
            injection_reserve: 4_000,
            max_model_calls: 50,
            max_tokens: 0,
            max_cost: 0.0,
            max_regenerations: 2,
            max_stop_refusals: 8,
            on_budget: OnBudget::Stop,
            show_budget: false,
            turn_timeout: Duration::from_secs(30 * 60),
            approval_timeout: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// What happens when a turn has used up its model calls, tokens or money. The outcome is `exhausted` in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBudget {
    /// The turn ends.
    #[default]
    Stop,
    /// The model is asked for a last answer, without tools, and the turn ends with it as its result. What that call costs by
    /// estimate is kept back from the beginning. Guards and stream transformers judge it as they judge any reply; stop hooks
    /// are not asked.
    Answer,
}

/// What a context may hold if nobody says so and the model's window is not known.
const DEFAULT_CONTEXT: u64 = 32_000;

impl Limits {
    /// The most tokens that a context may hold for a model with this window: the rest is for the reply, and for what an
    /// estimate is wrong by.
    pub fn ceiling(window: u64) -> u64 {
        window / 4 * 3
    }

    /// With `context_tokens` as it is for a model with this window.
    pub(crate) fn for_window(mut self, window: Option<u64>) -> Self {
        let ceiling = window.map(Self::ceiling);
        self.context_tokens = match (self.context_tokens, ceiling) {
            (0, ceiling) => ceiling.unwrap_or(DEFAULT_CONTEXT),
            (tokens, ceiling) => tokens.min(ceiling.unwrap_or(u64::MAX)),
        };
        self
    }

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

/// What is left of a turn's budget; `None` where there is no limit. What is kept back for a last answer
/// ([`OnBudget::Answer`]) is not in it. A sub-agent has at most what is left of its parent's tokens and money.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RemainingBudget {
    /// Model calls.
    pub model_calls: u32,
    /// Tokens, read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl std::fmt::Display for RemainingBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} model call{}", self.model_calls, if self.model_calls == 1 { "" } else { "s" })?;
        if let Some(tokens) = self.tokens {
            write!(f, ", {tokens} tokens")?;
        }
        match self.cost {
            Some(cost) => write!(f, ", ${cost:.4}"),
            None => Ok(()),
        }
    }
}

/// What a model call costs, by estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CallPrice {
    pub(crate) tokens: u64,
    /// Dollars; 0 where no price is known.
    pub(crate) cost: f64,
}

impl CallPrice {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost: self.cost + other.cost }
    }
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
