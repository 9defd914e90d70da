//! Concurrency: so many calls at once, the others wait their turn.
//!
//! # What it does
//!
//! Lets a number of calls run at the same time, counted for each model, each tool or each user. One more waits in line,
//! first come, first served; if its turn does not come within `max_wait`, it is not made: the model call fails in a way
//! that `retry` tries again, the tool call ends with an error result. A call that is cancelled leaves the line.
//!
//! The line is in this process: several processes let through as many times the limit.
//!
//! A tool that is itself an agent holds its place while its own tools run. If they count for the same limit, give it
//! room for both.
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
//! | `max_wait` | `"30s"` | how long a call waits for its turn |
//! | `around` | `"model_calls"` | or `"tool_calls"`, or `"both"` |
//! | `per` | `["model", "tool"]` | what has a limit of its own: `model`, `tool`, `user`; empty: one for all |
//! | `models` | all | names of models; `*` stands for anything |
//!
//! # Example
//!
//! ```
//! use turnbuckle_hooks::{Concurrency, ConcurrencyOptions, Per};
//!
//! let hook = Concurrency::new(ConcurrencyOptions { limit: 2, per: vec![Per::User], ..Default::default() })?;
//! assert!(Concurrency::new(ConcurrencyOptions { limit: 0, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use turnbuckle::hook::{Hook, ModelNext, Settings, ToolNext};
use turnbuckle::hooks::{OptionError, Period, ReadyMade, Surroundings};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};

use crate::around::{Around, Key, Per, Reach, per_model_and_tool};
use crate::time;

/// What a person may set of a [`Concurrency`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyOptions {
    /// How many calls may run at once.
    pub limit: usize,
    /// How long a call waits for its turn.
    pub max_wait: Period,
    /// Which calls.
    pub around: Around,
    /// What has a limit of its own.
    pub per: Vec<Per>,
    /// Of which models; empty for all.
    pub models: Vec<String>,
}

impl Default for ConcurrencyOptions {
    fn default() -> Self {
        let (around, per) = (Around::default(), per_model_and_tool());
        Self { limit: 8, max_wait: Period::secs(30), around, per, models: Vec::new() }
    }
}

const MOST_AT_ONCE: usize = 100_000;

/// Lets so many calls run at once. The rules are at the top of its source file.
#[derive(Debug)]
pub struct Concurrency {
    limit: usize,
    max_wait: Duration,
    reach: Reach,
    lines: Lines,
}

/// The lines that somebody stands in, or is served from. The others are forgotten.
type Lines = Mutex<HashMap<Key, Arc<Semaphore>>>;

impl Concurrency {
    /// Checks the options.
    pub fn new(options: ConcurrencyOptions) -> Result<Self, OptionError> {
        let ConcurrencyOptions { limit, max_wait, around, per, models } = options;
        if !(1..=MOST_AT_ONCE).contains(&limit) {
            return Err(OptionError::new("limit", format!("must be 1 to {MOST_AT_ONCE}, and is {limit}")));
        }
        let max_wait = time::checked("max_wait", max_wait)?;
        Ok(Self { limit, max_wait, reach: Reach::new(around, per, &models)?, lines: Lines::default() })
    }

    /// A place, or nothing if none came free in time.
    async fn place(&self, turn: &Turn, key: Key) -> Option<Place<'_>> {
        let line = lock(&self.lines).entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.limit))).clone();
        // Made before the wait: whoever leaves the line clears it away, too.
        let mut place = Place { lines: &self.lines, key, permit: None };
        let permit = time::within(&**turn.clock(), self.max_wait, line.acquire_owned()).await;
        place.permit = Some(permit?.ok()?);
        Some(place)
    }

    fn no_place(&self, key: &Key) -> String {
        format!("{} at once is the limit for {key}, and none ended within {}", self.limit, time::shown(self.max_wait))
    }
}

fn lock(lines: &Lines) -> MutexGuard<'_, HashMap<Key, Arc<Semaphore>>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a call runs or waits.
struct Place<'a> {
    lines: &'a Lines,
    key: Key,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut lines = lock(self.lines);
        // Permits and waiters hold the semaphore as well: with one holder left nobody needs it.
        if lines.get(&self.key).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.key);
        }
    }
}

impl Hook for Concurrency {
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
        let Some(key) = self.reach.model_call(turn, next) else { return next.run(request, out).await };
        let Some(_place) = self.place(turn, key.clone()).await else {
            return Err(ModelError::NotAsked { why: self.no_place(&key), retry_after: None });
        };
        next.run(request, out).await
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let key = self.reach.tool_call(turn, call);
        let Some(_place) = self.place(turn, key.clone()).await else { return Err(self.no_place(&key).into()) };
        next.run(call).await
    }
}

impl ReadyMade for Concurrency {
    const USE: &'static str = "concurrency";
    const DOES: &'static str = "lets so many model or tool calls run at once; the others wait their turn";
    type Options = ConcurrencyOptions;

    fn from_options(options: ConcurrencyOptions, _: &Surroundings<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
