//! Monitor: watches error rate, refusals, latency and cost, and adapts when one of them is above its limit.
//!
//! # What it does
//!
//! Counts the calls of the last `window` and follows one rule for each row of this table. The rows do not depend on each
//! other.
//!
//! | measured | limit | each step above the limit | each step back, at or below it |
//! |---|---|---|---|
//! | failed calls / all calls, refusals / all calls | `max_error_rate`, `max_refusal_rate` (either one) | model calls go to `fallback` | model calls go to the agent's model again |
//! | average time of a call | `max_latency` | half as many model calls run at once, from `concurrency` down to `min_concurrency` | twice as many |
//! | dollars spent | `max_cost` | a turn may make half as many model calls, from `budget` down to `min_budget` | twice as many |
//!
//! A row changes only when
//!
//! - at least `min_calls` calls were counted in the window since its last change (a change is judged by what comes after
//!   it, so its counts start at zero), and
//! - at least `hold` has passed since its last change.
//!
//! So with a model that is down, calls go to the fallback after `min_calls` calls; after `hold`, and with `min_calls` good
//! calls, the agent's model gets its next `min_calls` calls, and if they fail the fallback is used for another `hold`.
//!
//! Every change is a notice with the numbers that caused it: `error rate 60 % (limit 20 %) over 10 calls in 5m: model calls
//! go to the fallback model`. A limit without the matching `fallback`, `concurrency` or `budget` changes nothing and
//! only gives these notices. Configuration without any limit, `concurrency` or `budget` is refused.
//!
//! - An error counts if a retry may help (429, 5xx, transport) or if the reply cannot be parsed. Calls that the turn or
//!   another hook stopped are not counted.
//! - A refusal is a reply that the model refused to give, or a stop that a hook refused.
//! - Costs count only for models that know their prices.
//! - With `around = "both"` tool calls count for error rate and latency, too. They are never delayed or refused: a tool may
//!   be an agent that makes model calls itself.
//! - The window moves in steps of a tenth of its length.
//! - Counting takes constant time. Only `max_refusal_rate` makes the hook observe all events of a turn, which costs more than
//!   all the rest.
//! - All counts are in memory: each process has its own, and starts at zero.
//!
//! # Points
//!
//! `wrap_model_call`; with `around` also `wrap_tool_call`; with `max_refusal_rate` also `on_event`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `max_error_rate` | none | limit: failed calls / all calls, 0 to 1 |
//! | `max_refusal_rate` | none | limit: refusals / all calls, 0 to 1 |
//! | `max_latency` | none | limit: the average time of a call |
//! | `max_cost` | none | limit: dollars in a `window` |
//! | `around` | `"model_calls"` | which calls are counted: or `"tool_calls"`, `"both"` |
//! | `window` | `"5m"` | how long calls are counted |
//! | `min_calls` | 10 | how many calls are needed for a change, 1 to 10,000 |
//! | `hold` | `"1m"` | how long a change stays at least |
//! | `fallback` | none | the model that is used above the limit |
//! | `concurrency` | none | how many model calls may run at once normally |
//! | `min_concurrency` | 1 | how many may always run at once |
//! | `budget` | none | how many model calls a turn may make normally |
//! | `min_budget` | 3 | how many a turn may always make |
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use turnbuckle::models::Script;
//! use turnbuckle_hooks::monitor::{Monitor, MonitorOptions};
//!
//! let options = MonitorOptions { max_error_rate: Some(0.2), ..Default::default() };
//! let hook = Monitor::new(options, Some(Arc::new(Script::says(["Still here."]))))?;
//! assert!(!hook.state().on_fallback);
//! assert!(Monitor::new(MonitorOptions { max_error_rate: Some(2.0), ..Default::default() }, None).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod control;
mod gate;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedEvent, FeedItem, Level};
use turnbuckle::hook::{Hook, HookEntry, ModelNext, Point, Settings, ToolNext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError, WrappedCalls};
use turnbuckle::message::{StopReason, Text};
use turnbuckle::model::{Model, ModelError, Request, Retry, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};

use self::control::Controls;
use self::gate::Gate;
use self::window::Sample;
use crate::time;

/// The options of [`Monitor`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MonitorOptions {
    /// The limit of failed calls / all calls.
    pub max_error_rate: Option<f64>,
    /// The limit of the average time of a call.
    pub max_latency: Option<HumanDuration>,
    /// The limit of the dollars spent in a window.
    pub max_cost: Option<f64>,
    /// The limit of refusals / all calls.
    pub max_refusal_rate: Option<f64>,
    /// Which calls are counted.
    pub around: WrappedCalls,
    /// How long calls are counted.
    pub window: HumanDuration,
    /// How many calls are needed for a change.
    pub min_calls: usize,
    /// How long a change stays at least.
    pub hold: HumanDuration,
    /// The model that is used above the limit, for a hook that is built from configuration.
    pub fallback: Option<String>,
    /// How many model calls may run at once normally.
    pub concurrency: Option<u32>,
    /// How many model calls may always run at once.
    pub min_concurrency: u32,
    /// How many model calls a turn may make normally.
    pub budget: Option<u32>,
    /// How many model calls a turn may always make.
    pub min_budget: u32,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self {
            max_error_rate: None,
            max_latency: None,
            max_cost: None,
            max_refusal_rate: None,
            around: WrappedCalls::ModelCalls,
            window: HumanDuration::secs(300),
            min_calls: 10,
            hold: HumanDuration::secs(60),
            fallback: None,
            concurrency: None,
            min_concurrency: 1,
            budget: None,
            min_budget: 3,
        }
    }
}

/// What a [`Monitor`] has in force at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorState {
    /// Whether model calls go to the fallback.
    pub on_fallback: bool,
    /// How many model calls may run at once, if that is limited.
    pub concurrency: Option<u32>,
    /// How many model calls a turn may make, if that is limited.
    pub budget: Option<u32>,
}

/// How long a call waits to be admitted when the concurrency is limited.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Adapts when errors, refusals, latency or cost are above their limits. See the [module](self) for rules and options.
pub struct Monitor {
    name: Text,
    around: WrappedCalls,
    watches_refusals: bool,
    fallback: Option<Arc<dyn Model>>,
    controls: Mutex<Controls>,
    /// Present if the concurrency is limited.
    gate: Option<Gate>,
}

impl Monitor {
    /// Checks the options. `fallback` is used in place of the model in the options.
    pub fn new(options: MonitorOptions, fallback: Option<Arc<dyn Model>>) -> Result<Self, OptionError> {
        check(&options)?;
        let gate = options.concurrency.map(Gate::new);
        let (around, watches_refusals) = (options.around, options.max_refusal_rate.is_some());
        let controls = Mutex::new(Controls::new(options, fallback.is_some()));
        Ok(Self { name: Self::NAME.into(), around, watches_refusals, fallback, controls, gate })
    }

    /// What is in force at the moment.
    pub fn state(&self) -> MonitorState {
        self.controls().state()
    }

    fn controls(&self) -> MutexGuard<'_, Controls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and carries out and announces what it changes.
    fn count(&self, turn: &Turn, sample: &Sample, now: Duration) {
        let mut controls = self.controls();
        let notices = controls.add(sample, now);
        if notices.is_empty() {
            return;
        }
        let concurrency = controls.state().concurrency;
        drop(controls);
        if let (Some(gate), Some(concurrency)) = (&self.gate, concurrency) {
            gate.set(concurrency);
        }
        for notice in notices {
            turn.notice(Level::Warning, &self.name, notice);
        }
    }
}

fn check(options: &MonitorOptions) -> Result<(), OptionError> {
    time::checked("window", options.window)?;
    time::checked("hold", options.hold)?;
    if let Some(latency) = options.max_latency {
        time::checked("max_latency", latency)?;
    }
    let rates = [("max_error_rate", options.max_error_rate), ("max_refusal_rate", options.max_refusal_rate)];
    for (option, rate) in rates {
        if rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
            return Err(OptionError::new(option, "must be 0 to 1"));
        }
    }
    if options.max_cost.is_some_and(|cost| !(cost > 0.0 && cost.is_finite())) {
        return Err(OptionError::new("max_cost", "must be more than 0"));
    }
    if !(1..=10_000).contains(&options.min_calls) {
        return Err(OptionError::new("min_calls", format!("must be 1 to 10000, and is {}", options.min_calls)));
    }
    let floors = [
        ("min_concurrency", options.min_concurrency, "concurrency", options.concurrency),
        ("min_budget", options.min_budget, "budget", options.budget),
    ];
    for (option, floor, normal_option, normal) in floors {
        if floor == 0 || normal.is_some_and(|normal| floor > normal) {
            return Err(OptionError::new(option, format!("must be at least 1 and at most `{normal_option}`")));
        }
    }
    Ok(())
}

/// Whether a call failed, and whether the model refused. `None` if the turn or another hook stopped it, which says
/// nothing about the model.
fn outcome(result: &Result<Reply, ModelError>) -> Option<(bool, bool)> {
    match result {
        Ok(reply) => Some((false, reply.stop_reason == StopReason::Refusal)),
        Err(ModelError::Protocol(_) | ModelError::Panicked(_)) => Some((true, false)),
        Err(ModelError::NotAsked { .. }) => None,
        Err(error) => (error.retry() != Retry::Never).then_some((true, false)),
    }
}

impl Hook for Monitor {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn settings(&self) -> Settings {
        // Model calls are always wrapped, because that is where changes take effect.
        let tools = self.around.includes_tools().then_some(Point::WrapToolCall);
        let events = self.watches_refusals.then_some(Point::OnEvent);
        let mut settings = Settings::default();
        settings.only = Some([Point::WrapModelCall].into_iter().chain(tools).chain(events).collect());
        settings
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let MonitorState { on_fallback, budget, .. } = self.state();
        let made = || turn.agent().limits().max_model_calls.saturating_sub(turn.remaining_budget().model_calls);
        if budget.is_some_and(|budget| made() >= budget) {
            return Err(ModelError::Exhausted { limit: format!("model calls, as {} limits them", self.name) });
        }
        let _permit = match &self.gate {
            None => None,
            Some(gate) => match gate.enter(&**turn.clock(), MAX_WAIT).await {
                Some(permit) => Some(permit),
                None => {
                    let why = format!("{} limits how many calls run at once, and none ended in time", self.name);
                    return Err(ModelError::NotAsked { why, retry_after: None });
                }
            },
        };
        let model = self.fallback.as_ref().filter(|_| on_fallback).unwrap_or(next.model()).clone();
        let began = turn.clock().elapsed();
        let result = next.on(&model).run(request, out).await;
        if let (true, Some((failed, refused))) = (self.around.includes_models(), outcome(&result)) {
            let now = turn.clock().elapsed();
            let cost = result.as_ref().ok().and_then(|reply| model.price(&reply.usage)).unwrap_or(0.0);
            self.count(turn, &Sample { latency: now.saturating_sub(began), failed, refused, cost }, now);
        }
        result
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let began = turn.clock().elapsed();
        let result = next.run(call).await;
        let now = turn.clock().elapsed();
        let failed = result.as_ref().map_or(true, |output| !output.ok);
        self.count(turn, &Sample { latency: now.saturating_sub(began), failed, ..Sample::default() }, now);
        result
    }

    async fn on_event(&self, event: &FeedEvent) -> Result<(), BoxError> {
        if let FeedItem::Log(event) = &event.item
            && let EventKind::StopFeedback { .. } = &event.kind
        {
            self.controls().add_refused_stop();
        }
        Ok(())
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl ConfigHook for Monitor {
    const NAME: &'static str = "monitor";
    const SUMMARY: &'static str = "watches errors, latency, cost and refusals, and adapts when they are too high";
    type Options = MonitorOptions;

    fn from_options(options: MonitorOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let fallback = options.fallback.as_ref().map(|name| context.model("fallback", name)).transpose()?;
        let MonitorOptions { max_error_rate, max_latency, max_cost, max_refusal_rate, .. } = options;
        let limited = max_error_rate.or(max_cost).or(max_refusal_rate).is_some() || max_latency.is_some();
        if !limited && options.concurrency.or(options.budget).is_none() {
            let why = "is missing, and so is every other limit: nothing would come of watching";
            return Self::new(options, fallback).and(Err(OptionError::new("max_error_rate", why)));
        }
        Self::new(options, fallback)
    }

    /// The hook posts notices under this name.
    fn entry(mut self, name: String) -> HookEntry {
        self.name = name.into();
        self.into()
    }
}
