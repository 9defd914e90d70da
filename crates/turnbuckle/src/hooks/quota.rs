//! Quota: how much a user may ask for in a window of time.
//!
//! # What it does
//!
//! Counts the turns of each user, and the tokens of all their model calls. When one of the two is used up, further turns
//! end `halted` with the reason and when to come back, until the window is over; it begins with a user's first turn.
//!
//! - Who the user is comes with the scope. Users with an `exempt` role, and the system itself, are not counted.
//! - Tokens are known when a turn is over, so the turn that crosses the line still runs to its end; limits of one turn
//!   are for `[limits]`. A turn under way counts as a request from its beginning.
//! - It is a count of this process, kept in memory and for at most 100,000 users: a restart begins anew. Time is the clock
//!   that never goes back, so setting the machine's clock changes nothing.
//!
//! # Points
//!
//! `before_agent`, `on_ended`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `requests` | none | turns per user and window |
//! | `tokens` | none | tokens per user and window |
//! | `window` | `"1h"` | the length of the window, from the first turn of a user |
//! | `exempt` | none | roles that are not counted |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use turnbuckle::hooks::quota::{Quota, QuotaOptions};
//! use turnbuckle::{Agent, Conversations, Outcome, Scope, models::Script};
//!
//! let quota = Quota::new(QuotaOptions { requests: Some(1), ..QuotaOptions::default() })?;
//! let agent = Agent::builder("greeter", Script::says(["Hello!"])).hook(quota).build()?;
//! let conversations = Conversations::in_memory(agent);
//! assert_eq!(conversations.run("hi", Scope::user("ann")).await?.outcome, Outcome::Completed);
//! assert_eq!(conversations.run("hi", Scope::user("ann")).await?.outcome, Outcome::Halted);
//! assert_eq!(conversations.run("hi", Scope::user("bob")).await?.outcome, Outcome::Completed);
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use super::{ConfigHook, HookBuildContext, HumanDuration, OptionError};
use crate::BoxError;
use crate::conversation::TurnReport;
use crate::hook::{BeforeAgent, BeforeAgentContext, Hook};
use crate::id::TurnId;
use crate::message::Text;

/// How many users are counted. Beyond that, finished windows are dropped first, then the oldest.
const MOST_USERS: usize = 100_000;

/// Limits the turns and tokens of each user. See the [module](self) for options.
#[derive(Debug)]
pub struct Quota {
    options: QuotaOptions,
    books: Mutex<Books>,
}

/// Options of [`Quota`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaOptions {
    /// Turns per user and window.
    pub requests: Option<u64>,
    /// Tokens per user and window.
    pub tokens: Option<u64>,
    /// The length of the window, from the first turn of a user.
    pub window: HumanDuration,
    /// Roles that are not counted.
    pub exempt: Vec<String>,
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self { requests: None, tokens: None, window: HumanDuration::secs(3600), exempt: Vec::new() }
    }
}

#[derive(Debug, Default)]
struct Books {
    users: HashMap<Text, Count>,
    /// The user of each running turn: the report at its end does not name the user.
    turns: HashMap<TurnId, Text>,
}

#[derive(Clone, Copy, Debug)]
struct Count {
    since: Duration,
    requests: u64,
    tokens: u64,
}

impl Quota {
    /// Checks the options.
    pub fn new(options: QuotaOptions) -> Result<Self, OptionError> {
        if options.requests.is_none() && options.tokens.is_none() {
            return Err(OptionError::new("requests", "is missing, and so is `tokens`: nothing would be limited"));
        }
        for (option, limit) in [("requests", options.requests), ("tokens", options.tokens)] {
            // With exempt roles a limit of 0 is meaningful: only these roles may use the agent.
            if limit == Some(0) && options.exempt.is_empty() {
                return Err(OptionError::new(option, "must be at least 1; leave it out for no limit"));
            }
        }
        if let Some(item) = options.exempt.iter().position(|role| role.trim().is_empty()) {
            return Err(OptionError::new("exempt", "has an empty role").item(item));
        }
        if options.window.0.is_zero() {
            return Err(OptionError::new("window", "must be longer than 0"));
        }
        Ok(Self { options, books: Mutex::default() })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complaint(&self, count: &Count, now: Duration) -> Option<String> {
        let QuotaOptions { requests, tokens, window, .. } = &self.options;
        let used = match (requests, tokens) {
            (Some(most), _) if count.requests >= *most => format!("{most} requests"),
            (_, Some(most)) if count.tokens >= *most => format!("{most} tokens"),
            _ => return None,
        };
        let left = (count.since + window.0).saturating_sub(now);
        let (window, left) = (humantime::format_duration(window.0), whole_seconds(left));
        Some(format!("the quota of {used} in {window} is used up; come back in {}", humantime::format_duration(left)))
    }
}

fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

impl Books {
    /// The user's count in the current window.
    fn count(&mut self, user: &Text, now: Duration, window: Duration) -> &mut Count {
        if self.users.len() >= MOST_USERS && !self.users.contains_key(user) {
            self.users.retain(|_, count| now.saturating_sub(count.since) < window);
            if self.users.len() >= MOST_USERS
                && let Some(oldest) =
                    self.users.iter().min_by_key(|(_, count)| count.since).map(|(user, _)| user.clone())
            {
                self.users.remove(&oldest);
            }
        }
        let fresh = Count { since: now, requests: 0, tokens: 0 };
        let count = self.users.entry(user.clone()).or_insert(fresh);
        if now.saturating_sub(count.since) >= window {
            *count = fresh;
        }
        count
    }
}

impl Hook for Quota {
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let scope = turn.scope();
        let Some(user) = scope.user_id() else { return Ok(BeforeAgent::Continue) };
        if self.options.exempt.iter().any(|role| scope.has_role(role)) {
            return Ok(BeforeAgent::Continue);
        }
        let now = turn.clock().elapsed();
        let mut books = self.books();
        let count = books.count(user, now, self.options.window.0);
        if let Some(complaint) = self.complaint(count, now) {
            return Ok(BeforeAgent::Halt(complaint.into()));
        }
        count.requests += 1;
        // A turn that another process took over never ends in this one. Its tokens are not counted, and its entry
        // must not stay for ever.
        if books.turns.len() >= MOST_USERS {
            books.turns.clear();
        }
        books.turns.insert(turn.id().clone(), user.clone());
        Ok(BeforeAgent::Continue)
    }

    async fn on_ended(&self, ended: &TurnReport) -> Result<(), BoxError> {
        let mut books = self.books();
        if let Some(user) = books.turns.remove(&ended.turn)
            && let Some(count) = books.users.get_mut(&user)
        {
            count.tokens = count.tokens.saturating_add(ended.usage.total());
        }
        Ok(())
    }
}

impl ConfigHook for Quota {
    const NAME: &'static str = "quota";
    const SUMMARY: &'static str = "limits the turns and tokens of each user in a window of time";
    type Options = QuotaOptions;

    fn from_options(options: QuotaOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
