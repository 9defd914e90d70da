//! Monitor: watches error rate, latency, cost and refusals, and changes course when they leave their set points.
//!
//! # What it does
//!
//! A control loop of four steps around one body of knowledge (MAPE-K):
//!
//! 1. **Monitor**: every model call adds what it took, cost and came to, and with `around = "both"` every tool call, too;
//!    every refused stop counts as a refusal.
//! 2. **Analyse**: with at least `min_calls` in the last `window`, four numbers are held against their set points.
//! 3. **Plan**: the first that is beyond its set point chooses a change, if there is one left to make:
//!
//!    | beyond its set point | first | then |
//!    |---|---|---|
//!    | error rate | the `fallback` model | half the concurrency |
//!    | latency | half the concurrency | the `fallback` model |
//!    | cost | half the budget | the `fallback` model |
//!    | refusals | the `fallback` model | half the budget |
//!
//! 4. **Execute**: from now on model calls go to the fallback, or fewer of them run at once, or a turn may make fewer of
//!    them. Then what was measured is forgotten, so that the change is judged by what comes after it.
//!
//! Changes are bounded: one every `hold` at most, never below `min_concurrency` and `min_budget`. When all is well for
//! `hold`, the last change is undone, one at a time. What it does and why is told as a notice. Without set points it
//! only watches, which configuration refuses; without `fallback`, `concurrency` or `budget` it has nothing to change.
//! Tool calls are watched and never held up: one may hold model calls of a sub-agent.
//!
//! Everything is kept in memory: each process watches for itself, and begins anew.
//!
//! # Points
//!
//! `wrap_model_call`, `on_event`; with `around` also `wrap_tool_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `max_error_rate` | none | set point: failed calls of all calls, 0 to 1 |
//! | `max_latency` | none | set point: how long a call takes on average |
//! | `max_cost` | none | set point: dollars in a `window`; counts models that know their prices |
//! | `max_refusal_rate` | none | set point: refusals of all calls, 0 to 1 |
//! | `around` | `"model_calls"` | what is watched: or `"tool_calls"`, `"both"` |
//! | `window` | `"5m"` | what is looked at |
//! | `min_calls` | 10 | how many calls make a judgement, 1 to 10,000 |
//! | `hold` | `"1m"` | how long a change stands before the next |
//! | `fallback` | none | the model to go to |
//! | `concurrency` | none | how many model calls may run at once when all is well |
//! | `min_concurrency` | 1 | and how many at least |
//! | `budget` | none | how many model calls a turn may make when all is well |
//! | `min_budget` | 3 | and how many at least |
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
//! assert!(!hook.course().on_fallback);
//! assert!(Monitor::new(MonitorOptions { max_error_rate: Some(2.0), ..Default::default() }, None).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod gate;
mod knowledge;

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

use self::gate::Gate;
pub use self::knowledge::Course;
use self::knowledge::{Knowledge, Sample};
use crate::time;

/// The options of [`Monitor`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MonitorOptions {
    /// Set point: failed calls of all calls.
    pub max_error_rate: Option<f64>,
    /// Set point: how long a call takes on average.
    pub max_latency: Option<HumanDuration>,
    /// Set point: dollars in a window.
    pub max_cost: Option<f64>,
    /// Set point: refusals of all calls.
    pub max_refusal_rate: Option<f64>,
    /// What is watched.
    pub around: WrappedCalls,
    /// What is looked at.
    pub window: HumanDuration,
    /// How many calls make a judgement.
    pub min_calls: usize,
    /// How long a change stands before the next.
    pub hold: HumanDuration,
    /// The model to go to, for a hook that configuration builds.
    pub fallback: Option<String>,
    /// How many model calls may run at once when all is well.
    pub concurrency: Option<u32>,
    /// And how many at least.
    pub min_concurrency: u32,
    /// How many model calls a turn may make when all is well.
    pub budget: Option<u32>,
    /// And how many at least.
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

/// How long a call waits for its place when concurrency was lowered.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Keeps an agent at its set points. See the [module](self) for rules and options.
pub struct Monitor {
    name: Text,
    around: WrappedCalls,
    fallback: Option<Arc<dyn Model>>,
    knowledge: Mutex<Knowledge>,
    gate: Gate,
}

impl Monitor {
    /// Checks the options. What they say of a fallback gives way to `fallback`.
    pub fn new(options: MonitorOptions, fallback: Option<Arc<dyn Model>>) -> Result<Self, OptionError> {
        check(&options)?;
        let gate = Gate::new(options.concurrency);
        let knowledge = Mutex::new(Knowledge::new(&options, fallback.is_some()));
        Ok(Self { name: Self::NAME.into(), around: options.around, fallback, knowledge, gate })
    }

    /// What is in force now.
    pub fn course(&self) -> Course {
        self.knowledge().course()
    }

    fn knowledge(&self) -> MutexGuard<'_, Knowledge> {
        self.knowledge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the loop once: takes the sample in, and tells what was changed and why.
    fn learn(&self, turn: &Turn, sample: Sample) {
        let mut knowledge = self.knowledge();
        let Some(said) = knowledge.learn(sample, turn.clock().elapsed()) else { return };
        let concurrency = knowledge.course().concurrency;
        drop(knowledge);
        self.gate.set(concurrency);
        turn.notice(Level::Warning, &self.name, said);
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
        ("min_concurrency", options.min_concurrency, options.concurrency),
        ("min_budget", options.min_budget, options.budget),
    ];
    for (option, floor, normal) in floors {
        if floor == 0 || normal.is_some_and(|normal| floor > normal) {
            return Err(OptionError::new(option, "must be at least 1, and at most what holds when all is well"));
        }
    }
    Ok(())
}

/// What a call came to. What the turn or another hook decided says nothing about the model.
fn judged(result: &Result<Reply, ModelError>) -> Option<(bool, bool)> {
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
        let mut settings = Settings::default();
        // Its limits stand around model calls in any case.
        let points = [Point::WrapModelCall, Point::OnEvent];
        settings.only = (self.around == WrappedCalls::ModelCalls).then(|| points.into_iter().collect());
        settings
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let Course { on_fallback, budget, .. } = self.course();
        let made = turn.agent().limits().max_model_calls.saturating_sub(turn.remaining_budget().model_calls);
        if budget.is_some_and(|budget| made >= budget) {
            return Err(ModelError::Exhausted { limit: format!("model calls, as {} limits them", self.name) });
        }
        let Some(_place) = self.gate.enter(&**turn.clock(), MAX_WAIT).await else {
            let why = format!("{} lets fewer calls run at once, and none ended in time", self.name);
            return Err(ModelError::NotAsked { why, retry_after: None });
        };
        let fallback = self.fallback.as_ref().filter(|_| on_fallback).cloned();
        let model = fallback.as_ref().unwrap_or(next.model());
        let began = turn.clock().elapsed();
        let result = next.on(model).run(request, out).await;
        let took = turn.clock().elapsed().saturating_sub(began);
        if let (WrappedCalls::ModelCalls | WrappedCalls::Both, Some((failed, refused))) = (self.around, judged(&result))
        {
            let cost = result.as_ref().ok().and_then(|reply| model.price(&reply.usage)).unwrap_or(0.0);
            self.learn(turn, Sample { at: began + took, took, failed, refused, cost });
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
        let took = turn.clock().elapsed().saturating_sub(began);
        let failed = result.as_ref().map_or(true, |output| !output.ok);
        self.learn(turn, Sample { at: began + took, took, failed, refused: false, cost: 0.0 });
        result
    }

    async fn on_event(&self, told: &Arc<FeedEvent>) -> Result<(), BoxError> {
        if let FeedItem::Log(event) = &told.item
            && let EventKind::StopFeedback { .. } = &event.kind
        {
            self.knowledge().refused_stop();
        }
        Ok(())
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("course", &self.course()).finish_non_exhaustive()
    }
}

impl ConfigHook for Monitor {
    const NAME: &'static str = "monitor";
    const SUMMARY: &'static str =
        "watches errors, latency, cost and refusals, and changes course when they are too high";
    type Options = MonitorOptions;

    fn from_options(options: MonitorOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let open = |name: &String| {
            let refused = || OptionError::new("fallback", format!("names {name:?}, which cannot be opened"));
            (context.open_model)(name).map_err(|error| refused().because(error))
        };
        let fallback = options.fallback.as_ref().map(open).transpose()?;
        let MonitorOptions { max_error_rate, max_latency, max_cost, max_refusal_rate, .. } = options;
        let set = max_error_rate.or(max_cost).or(max_refusal_rate).is_some() || max_latency.is_some();
        if !set && options.concurrency.or(options.budget).is_none() {
            let why = "is missing, and so is every other set point: nothing would come of watching";
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
