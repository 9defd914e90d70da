//! Circuit breaker: a model or tool that keeps failing is not called for a while.
//!
//! # What it does
//!
//! Counts failures in a row, for each model and each tool. After `failures` of them the circuit **opens**: calls fail at
//! once, without reaching the model or tool, and say when to try again, so that a `fallback` registered before it goes to the next
//! model. After `open_for` it is **half-open**: `probes` calls are let through. One that succeeds **closes** it, one that
//! fails opens it again. Each change is announced as a notice.
//!
//! Failures are model errors that a retry may help (429, 5xx, transport), replies that cannot be parsed, and errors of a
//! tool itself. Not counted are calls that the turn or another hook stopped (cancelled, exhausted, not asked), because
//! they say nothing about the model, and error *results* of tools, which are for the model to read. A cancelled probe does
//! not count either; another call may probe in its place.
//!
//! Circuits are kept in memory: each process has its own, all of them closed at the start.
//!
//! # Points
//!
//! `wrap_model_call`, `wrap_tool_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `failures` | 5 | how many in a row open the circuit, 1 to 1,000 |
//! | `open_for` | `"30s"` | how long it stays open |
//! | `probes` | 1 | how many calls are let through at once when it is half-open, 1 to 100 |
//! | `around` | `"model_calls"` | or `"tool_calls"`, or `"both"` |
//! | `per` | `["model", "tool"]` | what has a circuit of its own: `model`, `tool`, `user`; empty: one for all |
//! | `models` | all | names of models; `*` stands for anything |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::WrappedCalls;
//! use turnbuckle_hooks::circuit_breaker::{CircuitBreaker, CircuitBreakerOptions};
//!
//! let options = CircuitBreakerOptions { failures: 3, around: WrappedCalls::Both, ..Default::default() };
//! let hook = CircuitBreaker::new(options)?;
//! assert!(CircuitBreaker::new(CircuitBreakerOptions { failures: 0, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod circuit;

use std::time::Duration;

use serde::Deserialize;
use turnbuckle::feed::Level;
use turnbuckle::hook::{Hook, HookEntry, ModelNext, Settings, ToolNext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError, WrappedCalls};
use turnbuckle::message::Text;
use turnbuckle::model::{ModelError, Request, Retry, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};

use self::circuit::{Change, Circuits, Passage, Verdict};
use crate::call_filter::{CallFilter, LimitKey, LimitPer, per_model_and_tool};
use crate::time;

/// The options of [`CircuitBreaker`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CircuitBreakerOptions {
    /// How many failures in a row open the circuit.
    pub failures: u32,
    /// How long it stays open.
    pub open_for: HumanDuration,
    /// How many calls are let through at once when it is half-open.
    pub probes: u32,
    /// Which calls are counted.
    pub around: WrappedCalls,
    /// What has a circuit of its own.
    pub per: Vec<LimitPer>,
    /// Globs of the models whose calls are counted; empty for all.
    pub models: Vec<String>,
}

impl Default for CircuitBreakerOptions {
    fn default() -> Self {
        let (around, per) = (WrappedCalls::ModelCalls, per_model_and_tool());
        Self { failures: 5, open_for: HumanDuration::secs(30), probes: 1, around, per, models: Vec::new() }
    }
}

/// Stops calling what keeps failing. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct CircuitBreaker {
    name: Text,
    filter: CallFilter,
    circuits: Circuits,
}

impl CircuitBreaker {
    /// Checks the options.
    pub fn new(options: CircuitBreakerOptions) -> Result<Self, OptionError> {
        let CircuitBreakerOptions { failures, open_for, probes, around, per, models } = options;
        if !(1..=1000).contains(&failures) {
            return Err(OptionError::new("failures", format!("must be 1 to 1000, and is {failures}")));
        }
        if !(1..=100).contains(&probes) {
            return Err(OptionError::new("probes", format!("must be 1 to 100, and is {probes}")));
        }
        let circuits = Circuits::new(failures, time::checked("open_for", open_for)?, probes);
        Ok(Self { name: Self::NAME.into(), filter: CallFilter::new(around, per, &models)?, circuits })
    }

    /// Lets a call through; `Err` holds how long the circuit is still open.
    fn enter(&self, turn: &Turn, key: &LimitKey) -> Result<Passage<'_>, Duration> {
        self.circuits.enter(key, turn.clock().elapsed())
    }

    fn leave(&self, turn: &Turn, key: &LimitKey, passage: Passage<'_>, verdict: Verdict) {
        let (level, what) = match passage.leave(verdict, turn.clock().elapsed()) {
            None => return,
            Some(Change::Opened { for_: time }) => {
                let time = time::shown(time);
                (Level::Warning, format!("the circuit of {key} is open for {time}: it keeps failing"))
            }
            Some(Change::Closed) => (Level::Info, format!("the circuit of {key} is closed: it answers again")),
        };
        turn.notice(level, &self.name, what);
    }

    fn refusal(key: &LimitKey, wait: Duration) -> String {
        format!("the circuit of {key} is open for another {}", time::shown(wait))
    }
}

/// What the result of a call says about the model.
fn verdict(result: &Result<Reply, ModelError>) -> Verdict {
    match result {
        Ok(_) => Verdict::Worked,
        Err(ModelError::NotAsked { .. } | ModelError::Cancelled | ModelError::Exhausted { .. }) => Verdict::Unknown,
        Err(ModelError::Hook { .. } | ModelError::ScriptExhausted { .. }) => Verdict::Unknown,
        Err(ModelError::Protocol(_) | ModelError::Panicked(_)) => Verdict::Failed,
        Err(error) if error.retry() != Retry::Never => Verdict::Failed,
        // A request that the provider finds bad: the provider is there.
        Err(_) => Verdict::Worked,
    }
}

impl Hook for CircuitBreaker {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn settings(&self) -> Settings {
        self.filter.settings()
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let Some(key) = self.filter.model_call(turn, next) else { return next.run(request, out).await };
        let passage = self
            .enter(turn, &key)
            .map_err(|wait| ModelError::NotAsked { why: Self::refusal(&key, wait), retry_after: Some(wait) })?;
        let result = next.run(request, out).await;
        self.leave(turn, &key, passage, verdict(&result));
        result
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let key = self.filter.tool_call(turn, call);
        let passage = self.enter(turn, &key).map_err(|wait| Self::refusal(&key, wait))?;
        let result = next.run(call).await;
        let verdict = if result.is_ok() { Verdict::Worked } else { Verdict::Failed };
        self.leave(turn, &key, passage, verdict);
        result
    }
}

impl ConfigHook for CircuitBreaker {
    const NAME: &'static str = "circuit_breaker";
    const SUMMARY: &'static str = "stops calling a model or tool that keeps failing, for a while";
    type Options = CircuitBreakerOptions;

    fn from_options(options: CircuitBreakerOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }

    /// The hook posts notices under this name.
    fn entry(mut self, name: String) -> HookEntry {
        self.name = name.into();
        self.into()
    }
}
