//! Timeout: a model or tool call that takes too long is stopped.
//!
//! # What it does
//!
//! Limits the time of a call, by the runtime's clock. A call that takes longer is dropped: its connection closes, and text
//! that was shown is taken back. A model call then fails as a broken connection does, so a `retry` or `fallback` registered
//! before it tries again; a tool call ends with an error result that the model reads.
//!
//! Give several to have several limits: `models` and `tools` say which calls one is for. The `timeout` that every hook
//! has is another thing: the hook's own failure.
//!
//! # Points
//!
//! `wrap_model_call`, `wrap_tool_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `after` | `"60s"` | how long a call may take |
//! | `around` | `"model_calls"` | or `"tool_calls"`, or `"both"` |
//! | `models` | all | names of models; `*` stands for anything |
//! | `users` | all | ids of users; `*` stands for anything |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::{HumanDuration, WrappedCalls};
//! use turnbuckle_hooks::timeout::{Timeout, TimeoutOptions};
//!
//! let (after, around) = (HumanDuration::secs(5), WrappedCalls::ToolCalls);
//! let hook = Timeout::new(TimeoutOptions { after, around, ..TimeoutOptions::default() })?;
//! assert!(Timeout::new(TimeoutOptions { after: HumanDuration::secs(0), ..TimeoutOptions::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

use std::time::Duration;

use serde::Deserialize;
use turnbuckle::hook::{Hook, ModelNext, Settings, ToolNext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError, WrappedCalls};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};
use wildmatch::WildMatch;

use crate::call_filter::CallFilter;
use crate::time;

/// The options of [`Timeout`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutOptions {
    /// How long a call may take.
    pub after: HumanDuration,
    /// Which calls are limited.
    pub around: WrappedCalls,
    /// Globs of the models whose calls are limited; empty for all.
    pub models: Vec<String>,
    /// Globs of the users whose calls are limited; empty for all.
    pub users: Vec<String>,
}

impl Default for TimeoutOptions {
    fn default() -> Self {
        Self { after: HumanDuration::secs(60), around: WrappedCalls::ModelCalls, models: Vec::new(), users: Vec::new() }
    }
}

/// Stops calls that take too long. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct Timeout {
    after: Duration,
    filter: CallFilter,
    users: Vec<WildMatch>,
}

impl Timeout {
    /// Checks the options.
    pub fn new(options: TimeoutOptions) -> Result<Self, OptionError> {
        let TimeoutOptions { after, around, models, users } = options;
        let after = time::checked("after", after)?;
        if let Some(item) = users.iter().position(|user| user.trim().is_empty()) {
            return Err(OptionError::new("users", "has an empty name; leave it out for all users").item(item));
        }
        let users = users.iter().map(|glob| WildMatch::new(glob)).collect();
        Ok(Self { after, filter: CallFilter::new(around, Vec::new(), &models)?, users })
    }

    fn applies_to_user(&self, turn: &Turn) -> bool {
        let id = turn.scope().user_id().map_or("system", |id| id);
        self.users.is_empty() || self.users.iter().any(|glob| glob.matches(id))
    }
}

impl Hook for Timeout {
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
        if !self.applies_to_user(turn) || self.filter.model_call(turn, next).is_none() {
            return next.run(request, out).await;
        }
        time::within(&**turn.clock(), self.after, next.run(request, out)).await.unwrap_or_else(|| {
            let message = format!("no reply within {}", time::shown(self.after));
            Err(ModelError::Transport { message, source: None })
        })
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        if !self.applies_to_user(turn) {
            return next.run(call).await;
        }
        time::within(&**turn.clock(), self.after, next.run(call))
            .await
            .unwrap_or_else(|| Err(format!("no result within {}", time::shown(self.after)).into()))
    }
}

impl ConfigHook for Timeout {
    const NAME: &'static str = "timeout";
    const SUMMARY: &'static str = "stops a model or tool call that takes too long";
    type Options = TimeoutOptions;

    fn from_options(options: TimeoutOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
