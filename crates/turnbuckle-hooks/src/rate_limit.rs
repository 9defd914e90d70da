//! Rate limit: limits how many calls are made in a period; the others wait or are refused.
//!
//! # What it does
//!
//! Spreads calls evenly over time (GCRA), counted for each model, each tool or each user. A call that comes too early
//! waits until it may go; if that is longer than `max_wait`, it is not made: the model call fails with the time after
//! which it may be tried, which `retry` honours, and the tool call ends with an error result. `burst` calls may go at
//! once after a pause.
//!
//! The count is kept in memory: each process counts for itself, and a restart begins anew. Several processes that use
//! one account let through as many times the limit.
//!
//! A clock that goes back neither grants nor costs calls: only time that moves forward counts.
//!
//! # Points
//!
//! `wrap_model_call`, `wrap_tool_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `limit` | 60 | how many calls, 1 to 1,000,000 |
//! | `every` | `"1m"` | in how much time |
//! | `burst` | as `limit` | how many may go at once, 1 to `limit` |
//! | `max_wait` | `"30s"` | how long a call may wait; `"0s"`: not at all |
//! | `around` | `"model_calls"` | or `"tool_calls"`, or `"both"` |
//! | `per` | `["model", "tool"]` | what has a limit of its own: `model`, `tool`, `user`; empty: one for all |
//! | `models` | all | names of models; `*` stands for anything |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::HumanDuration;
//! use turnbuckle_hooks::LimitPer;
//! use turnbuckle_hooks::rate_limit::{RateLimit, RateLimitOptions};
//!
//! let (limit, every, per) = (10, HumanDuration::secs(60), vec![LimitPer::User]);
//! let hook = RateLimit::new(RateLimitOptions { limit, every, per, ..Default::default() })?;
//! assert!(RateLimit::new(RateLimitOptions { limit: 0, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use serde::Deserialize;
use turnbuckle::hook::{Hook, ModelNext, Settings, ToolNext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError, WrappedCalls};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};

use crate::call_filter::{CallFilter, LimitKey, LimitPer, per_model_and_tool};
use crate::time;

/// The options of [`RateLimit`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimitOptions {
    /// How many calls are allowed per period.
    pub limit: u32,
    /// The period.
    pub every: HumanDuration,
    /// How many may go at once after a pause; `None`: as many as `limit`.
    pub burst: Option<u32>,
    /// How long a call may wait before it is refused.
    pub max_wait: HumanDuration,
    /// Which calls are limited.
    pub around: WrappedCalls,
    /// What has a limit of its own.
    pub per: Vec<LimitPer>,
    /// Globs of the models whose calls are limited; empty for all.
    pub models: Vec<String>,
}

impl Default for RateLimitOptions {
    fn default() -> Self {
        let (every, max_wait) = (HumanDuration::secs(60), HumanDuration::secs(30));
        let (around, per) = (WrappedCalls::ModelCalls, per_model_and_tool());
        Self { limit: 60, every, burst: None, max_wait, around, per, models: Vec::new() }
    }
}

const MOST_CALLS: u32 = 1_000_000;
/// How many limits are kept before those that are unused are looked for.
const MANY_KEYS: usize = 1_000;

/// Spreads calls over time. See the [module](self) for rules and options.
pub struct RateLimit {
    limiter: RateLimiter<LimitKey, HashMapStateStore<LimitKey>, Forward, NoOpMiddleware<Nanos>>,
    /// The number of limits at which unused ones are removed next.
    many: AtomicUsize,
    max_wait: Duration,
    filter: CallFilter,
}

impl RateLimit {
    /// Checks the options.
    pub fn new(options: RateLimitOptions) -> Result<Self, OptionError> {
        let RateLimitOptions { limit, every, burst, max_wait, around, per, models } = options;
        if !(1..=MOST_CALLS).contains(&limit) {
            return Err(OptionError::new("limit", format!("must be 1 to {MOST_CALLS}, and is {limit}")));
        }
        let burst = burst.unwrap_or(limit);
        let Some(at_once) = NonZeroU32::new(burst).filter(|_| burst <= limit) else {
            return Err(OptionError::new("burst", format!("must be 1 to `limit`, which is {limit}, and is {burst}")));
        };
        let every = time::checked("every", every)?;
        if !max_wait.0.is_zero() {
            time::checked("max_wait", max_wait)?;
        }
        let quota = Quota::with_period(every / limit)
            .ok_or_else(|| OptionError::new("every", "is too short for so many calls"))?
            .allow_burst(at_once);
        let limiter = RateLimiter::new(quota, HashMapStateStore::default(), Forward::default());
        let many = AtomicUsize::new(MANY_KEYS);
        Ok(Self { limiter, many, max_wait: max_wait.0, filter: CallFilter::new(around, per, &models)? })
    }

    /// Waits until the call may go. `Err` holds the wait that would exceed `max_wait`.
    async fn pass(&self, turn: &Turn, key: &LimitKey) -> Result<(), Duration> {
        let clock = turn.clock();
        let began = clock.elapsed();
        loop {
            let now = self.limiter.clock().at_least(clock.elapsed());
            self.remove_unused();
            let Err(not_until) = self.limiter.check_key(key) else { return Ok(()) };
            let wait = not_until.wait_time_from(now);
            let left = self.max_wait.saturating_sub(clock.elapsed().saturating_sub(began));
            if wait > left {
                return Err(wait);
            }
            clock.sleep(wait).await;
        }
    }

    /// Removes limits that have recovered completely, as they are equal to new ones. A scan costs as much as there are
    /// limits, so it is done only when their number has doubled.
    fn remove_unused(&self) {
        if self.limiter.len() > self.many.load(Ordering::Relaxed) {
            self.limiter.retain_recent();
            self.many.store(MANY_KEYS.max(2 * self.limiter.len()), Ordering::Relaxed);
        }
    }

    fn refusal(key: &LimitKey, wait: Duration) -> String {
        format!("the rate limit for {key} is reached for another {}", time::shown(wait))
    }
}

impl std::fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limiter: _, many: _, max_wait, filter } = self;
        f.debug_struct("RateLimit").field("max_wait", max_wait).field("filter", filter).finish_non_exhaustive()
    }
}

/// The latest time that any turn's clock has shown, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Forward(Arc<AtomicU64>);

impl Forward {
    fn at_least(&self, elapsed: Duration) -> Nanos {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        Nanos::new(self.0.fetch_max(nanos, Ordering::Relaxed).max(nanos))
    }
}

impl GovernorClock for Forward {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

impl Hook for RateLimit {
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
        if let Some(key) = self.filter.model_call(turn, next) {
            self.pass(turn, &key)
                .await
                .map_err(|wait| ModelError::NotAsked { why: Self::refusal(&key, wait), retry_after: Some(wait) })?;
        }
        next.run(request, out).await
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let key = self.filter.tool_call(turn, call);
        self.pass(turn, &key).await.map_err(|wait| Self::refusal(&key, wait))?;
        next.run(call).await
    }
}

impl ConfigHook for RateLimit {
    const NAME: &'static str = "rate_limit";
    const SUMMARY: &'static str = "spreads model or tool calls over time";
    type Options = RateLimitOptions;

    fn from_options(options: RateLimitOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
