//! Concurrency: limits how many calls run at once; the others wait.
//!
//! # What it does
//!
//! Lets up to `limit` calls run at the same time, counted for each model, each tool or each user. Further calls wait in a
//! queue, first come, first served; a call that is not admitted within `max_wait` is not made: the model call fails with
//! an error that `retry` tries again, the tool call ends with an error result. A cancelled call leaves the queue.
//!
//! The limit is per process: N processes together let through N times as many calls.
//!
//! A tool that is itself an agent keeps its permit while its own tools run. If they count for the same limit, set the
//! limit high enough for both.
//!
//! # Points
//!
//! `wrap_model_call`, `wrap_tool_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `limit` | 8 | how many calls may run at once, 1 to 100,000 |
//! | `max_wait` | `"30s"` | how long a call waits to be admitted |
//! | `around` | `"model_calls"` | or `"tool_calls"`, or `"both"` |
//! | `per` | `["model", "tool"]` | what has a limit of its own: `model`, `tool`, `user`; empty: one for all |
//! | `models` | all | names of models; `*` stands for anything |
//!
//! # Example
//!
//! ```
//! use turnbuckle_hooks::LimitPer;
//! use turnbuckle_hooks::concurrency::{Concurrency, ConcurrencyOptions};
//!
//! let hook = Concurrency::new(ConcurrencyOptions { limit: 2, per: vec![LimitPer::User], ..Default::default() })?;
//! assert!(Concurrency::new(ConcurrencyOptions { limit: 0, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use turnbuckle::hook::{Hook, ModelNext, Settings, ToolNext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError, WrappedCalls};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};

use crate::call_filter::{CallFilter, LimitKey, LimitPer, per_model_and_tool};
use crate::time;

/// The options of [`Concurrency`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyOptions {
    /// How many calls may run at once.
    pub limit: usize,
    /// How long a call waits to be admitted.
    pub max_wait: HumanDuration,
    /// Which calls are limited.
    pub around: WrappedCalls,
    /// What has a limit of its own.
    pub per: Vec<LimitPer>,
    /// Globs of the models whose calls are limited; empty for all.
    pub models: Vec<String>,
}

impl Default for ConcurrencyOptions {
    fn default() -> Self {
        let (around, per) = (WrappedCalls::ModelCalls, per_model_and_tool());
        Self { limit: 8, max_wait: HumanDuration::secs(30), around, per, models: Vec::new() }
    }
}

const MOST_AT_ONCE: usize = 100_000;

/// Limits how many calls run at once. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct Concurrency {
    limit: usize,
    max_wait: Duration,
    filter: CallFilter,
    semaphores: Semaphores,
}

/// The semaphores in use, by limit. One that no call holds or waits for is removed.
type Semaphores = Mutex<HashMap<LimitKey, Arc<Semaphore>>>;

impl Concurrency {
    /// Checks the options.
    pub fn new(options: ConcurrencyOptions) -> Result<Self, OptionError> {
        let ConcurrencyOptions { limit, max_wait, around, per, models } = options;
        if !(1..=MOST_AT_ONCE).contains(&limit) {
            return Err(OptionError::new("limit", format!("must be 1 to {MOST_AT_ONCE}, and is {limit}")));
        }
        let max_wait = time::checked("max_wait", max_wait)?;
        Ok(Self { limit, max_wait, filter: CallFilter::new(around, per, &models)?, semaphores: Semaphores::default() })
    }

    /// Waits for a permit; `None` if none was free in time.
    async fn admit(&self, turn: &Turn, key: LimitKey) -> Option<Permit<'_>> {
        let semaphore =
            lock(&self.semaphores).entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.limit))).clone();
        // Made before the wait, so that a call that gives up also removes a semaphore that is no longer used.
        let mut admitted = Permit { semaphores: &self.semaphores, key, permit: None };
        let permit = time::within(&**turn.clock(), self.max_wait, semaphore.acquire_owned()).await;
        admitted.permit = Some(permit?.ok()?);
        Some(admitted)
    }

    fn refusal(&self, key: &LimitKey) -> String {
        format!("{} at once is the limit for {key}, and none ended within {}", self.limit, time::shown(self.max_wait))
    }
}

fn lock(semaphores: &Semaphores) -> MutexGuard<'_, HashMap<LimitKey, Arc<Semaphore>>> {
    semaphores.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a call runs or waits.
struct Permit<'a> {
    semaphores: &'a Semaphores,
    key: LimitKey,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut semaphores = lock(self.semaphores);
        // Permits and waiting calls hold the semaphore as well: with the map as its only holder it is unused.
        if semaphores.get(&self.key).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            semaphores.remove(&self.key);
        }
    }
}

impl Hook for Concurrency {
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
        let Some(_permit) = self.admit(turn, key.clone()).await else {
            return Err(ModelError::NotAsked { why: self.refusal(&key), retry_after: None });
        };
        next.run(request, out).await
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let key = self.filter.tool_call(turn, call);
        let Some(_permit) = self.admit(turn, key.clone()).await else { return Err(self.refusal(&key).into()) };
        next.run(call).await
    }
}

impl ConfigHook for Concurrency {
    const NAME: &'static str = "concurrency";
    const SUMMARY: &'static str = "limits how many model or tool calls run at once; the others wait";
    type Options = ConcurrencyOptions;

    fn from_options(options: ConcurrencyOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
