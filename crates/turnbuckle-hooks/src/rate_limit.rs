//! Rate limit: so many calls in a time, the others wait a little or are refused.
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
//! A clock that goes back gives nobody a call and takes none away: time only counts
//! forward.
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
//! use turnbuckle::hooks::Period;
//! use turnbuckle_hooks::{Per, RateLimit, RateLimitOptions};
//!
//! let (limit, every, per) = (10, Period::secs(60), vec![Per::User]);
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
use turnbuckle::hooks::{OptionError, Period, ReadyMade, Surroundings};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};

use crate::around::{Around, Key, Per, Reach, per_model_and_tool};
use crate::time;

/// What a person may set of a [`RateLimit`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimitOptions {
    /// How many calls.
    pub limit: u32,
    /// In how much time.
    pub every: Period,
    /// How many may go at once; none: as `limit`.
    pub burst: Option<u32>,
    /// How long a call may wait.
    pub max_wait: Period,
    /// Which calls.
    pub around: Around,
    /// What has a limit of its own.
    pub per: Vec<Per>,
    /// Of which models; empty for all.
    pub models: Vec<String>,
}

impl Default for RateLimitOptions {
    fn default() -> Self {
        let (every, max_wait) = (Period::secs(60), Period::secs(30));
        let (around, per) = (Around::default(), per_model_and_tool());
        Self { limit: 60, every, burst: None, max_wait, around, per, models: Vec::new() }
    }
}

const MOST_CALLS: u32 = 1_000_000;
/// So many limits are kept without a look at which are still needed.
const MANY_KEYS: usize = 1_000;

/// Spreads calls over time. The rules are at the top of its source file.
pub struct RateLimit {
    limiter: RateLimiter<Key, HashMapStateStore<Key>, Forward, NoOpMiddleware<Nanos>>,
    /// From how many limits on those that are full again are forgotten.
    many: AtomicUsize,
    max_wait: Duration,
    reach: Reach,
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
        Ok(Self { limiter, many, max_wait: max_wait.0, reach: Reach::new(around, per, &models)? })
    }

    /// Waits until the call may go. `Err`: so long it would have to wait beyond what it may.
    async fn pass(&self, turn: &Turn, key: &Key) -> Result<(), Duration> {
        let clock = turn.clock();
        let began = clock.elapsed();
        loop {
            let now = self.limiter.clock().at_least(clock.elapsed());
            self.forget_the_full();
            let Err(not_until) = self.limiter.check_key(key) else { return Ok(()) };
            let wait = not_until.wait_time_from(now);
            let left = self.max_wait.saturating_sub(clock.elapsed().saturating_sub(began));
            if wait > left {
                return Err(wait);
            }
            clock.sleep(wait).await;
        }
    }

    /// A limit that is full again is as good as none. Looking through all costs their number: it is done when that has
    /// doubled.
    fn forget_the_full(&self) {
        if self.limiter.len() > self.many.load(Ordering::Relaxed) {
            self.limiter.retain_recent();
            self.many.store(MANY_KEYS.max(2 * self.limiter.len()), Ordering::Relaxed);
        }
    }

    fn refusal(key: &Key, wait: Duration) -> String {
        format!("the rate limit for {key} is reached for another {}", time::shown(wait))
    }
}

impl std::fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limiter: _, many: _, max_wait, reach } = self;
        f.debug_struct("RateLimit").field("max_wait", max_wait).field("reach", reach).finish_non_exhaustive()
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
        self.reach.settings()
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        if let Some(key) = self.reach.model_call(turn, next) {
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
        let key = self.reach.tool_call(turn, call);
        self.pass(turn, &key).await.map_err(|wait| Self::refusal(&key, wait))?;
        next.run(call).await
    }
}

impl ReadyMade for RateLimit {
    const USE: &'static str = "rate_limit";
    const DOES: &'static str = "spreads model or tool calls over time";
    type Options = RateLimitOptions;

    fn from_options(options: RateLimitOptions, _: &Surroundings<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
