//! Retry: calls that failed for a transient reason are tried again.
//!
//! # What it does
//!
//! Tries a model call or a tool call again when that may help, with a wait in between that doubles.
//!
//! - Model calls: as the error advises. Rate limits, overload and broken connections are tried again, a bad request is
//!   not. A wait that the provider asks for is kept to; one longer than `max_wait` is not waited for, and the error goes on.
//! - Tool calls: after a failure (an error result that the tool itself gave is an answer, unless `error_results` says otherwise).
//!   A repetition must be harmless: [`Effect::Pure`] and [`Effect::Idempotent`] tools are tried again,
//!   [`Effect::Reconcile`] tools after the world was asked, [`Effect::Ask`] and [`Effect::Never`] tools only if `repeat`
//!   names them. The common key `tools` narrows it further.
//! - A reply that broke off after text was shown is tried again only with `after_text`: the shown text is then taken
//!   back.
//! - Jitter: between half of the wait and all of it, derived from the ids of conversation and turn, so many turns
//!   that failed together do not come back together, and a replay waits as long as the turn did.
//! - Every wait is announced as a notice. Each try at a model is an attempt of the turn and counts against its limits.
//!
//! # Points
//!
//! `wrap_model_call`, `wrap_tool_call`; `around` selects one of them.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `max_attempts` | 3 | tries altogether, 1 to 20 |
//! | `backoff` | `"500ms"` | the first wait; it doubles with each |
//! | `max_wait` | `"60s"` | no wait is longer |
//! | `after_text` | `false` | also when part of the reply was shown |
//! | `around` | `"both"` | or `"model_calls"`, `"tool_calls"` |
//! | `repeat` | none | globs of tools that are tried again although their effect forbids it |
//! | `error_results` | `false` | also when a tool answered with an error result |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use turnbuckle::hooks::retry::{Retry, RetryOptions};
//! use turnbuckle::models::{Script, ScriptReply};
//! use turnbuckle::Agent;
//!
//! let model = Script::of([ScriptReply::fails(529), ScriptReply::says("Hello!")]);
//! let retry = Retry::new(RetryOptions { backoff: Duration::from_millis(1).into(), ..RetryOptions::default() })?;
//! let agent = Agent::builder("greeter", model).hook(retry).build()?;
//! assert_eq!(agent.run("hi").await?.text(), "Hello!");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::Deserialize;
use wildmatch::WildMatch;

use super::tracking_sink::TrackingSink;
use super::{ConfigHook, HookBuildContext, HumanDuration, OptionError, WrappedCalls};
use crate::BoxError;
use crate::feed::Level;
use crate::hook::{Hook, HookEntry, ModelNext, Settings, ToolNext};
use crate::message::{Reply, Text, ToolCall};
use crate::model::{self, ModelError, Request, Sink};
use crate::tool::{Effect, Output};
use crate::turn::Turn;

/// Tries calls again after transient failures. See the [module](self) for rules and options.
#[derive(Clone, Debug)]
pub struct Retry {
    name: Text,
    options: RetryOptions,
    repeat: Vec<WildMatch>,
}

/// Options of [`Retry`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryOptions {
    /// How many tries a call gets altogether.
    pub max_attempts: u32,
    /// The wait after the first failure; it doubles with each.
    pub backoff: HumanDuration,
    /// The longest wait.
    pub max_wait: HumanDuration,
    /// Whether a reply of which text was shown is tried again.
    pub after_text: bool,
    /// Which calls are tried again.
    pub around: WrappedCalls,
    /// Globs of tools that are tried again whatever their effect.
    pub repeat: Vec<String>,
    /// Whether a tool call that ended in an error result is tried again.
    pub error_results: bool,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            backoff: HumanDuration::millis(500),
            max_wait: HumanDuration::secs(60),
            after_text: false,
            around: WrappedCalls::Both,
            repeat: Vec::new(),
            error_results: false,
        }
    }
}

/// The upper bound of `max_wait`: longer waits overflow a clock that counts nanoseconds.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Retry {
    /// Checks the options.
    pub fn new(options: RetryOptions) -> Result<Self, OptionError> {
        if !(1..=20).contains(&options.max_attempts) {
            return Err(OptionError::new("max_attempts", "must be 1 to 20"));
        }
        if options.backoff > options.max_wait {
            return Err(OptionError::new("backoff", "must not be longer than `max_wait`"));
        }
        if options.max_wait.0 > LONGEST {
            return Err(OptionError::new("max_wait", "must be at most a year"));
        }
        if let Some(item) = options.repeat.iter().position(|glob| glob.trim().is_empty()) {
            return Err(OptionError::new("repeat", "has an empty name").item(item));
        }
        if !options.repeat.is_empty() && !options.around.includes_tools() {
            return Err(OptionError::new("repeat", "says which tools, and `around` leaves tool calls out"));
        }
        if options.after_text && !options.around.includes_models() {
            return Err(OptionError::new(
                "after_text",
                "is about replies of models, and `around` leaves model calls out",
            ));
        }
        let repeat = options.repeat.iter().map(|glob| WildMatch::new(glob)).collect();
        Ok(Self { name: Self::NAME.into(), options, repeat })
    }

    /// How long to wait after the n-th failed try, if trying again is advised and there is a try left.
    fn wait(&self, turn: &Turn, salt: &str, tried: u32, advice: model::Retry) -> Option<Duration> {
        if tried >= self.options.max_attempts {
            return None;
        }
        match advice {
            model::Retry::Never => None,
            model::Retry::After(wait) => (wait <= self.options.max_wait.0).then_some(wait),
            model::Retry::Soon => {
                let doubled = self.options.backoff.0.saturating_mul(1 << (tried - 1));
                let whole = doubled.min(self.options.max_wait.0);
                Some(whole.mul_f64(0.5 + jitter(turn, salt, tried) / 2.0))
            }
        }
    }

    async fn pause(&self, turn: &Turn, what: &str, tried: u32, wait: Duration, error: &str) {
        let [wait_shown, most] = [format!("{:.1}", wait.as_secs_f64()), self.options.max_attempts.to_string()];
        let text = format!("try {tried} of {most} at {what} failed, the next in {wait_shown} s: {error}");
        turn.notice(Level::Info, &self.name, text);
        turn.clock().sleep(wait).await;
    }

    fn may_repeat(&self, effect: &Effect, tool: &str) -> bool {
        match effect {
            Effect::Pure | Effect::Idempotent | Effect::Reconcile(_) => true,
            Effect::Ask | Effect::Never => self.repeat.iter().any(|glob| glob.matches(tool)),
        }
    }
}

/// A number from 0 to 1, derived from the try and the turn.
fn jitter(turn: &Turn, salt: &str, tried: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (turn.conversation(), turn.id(), salt, tried).hash(&mut hasher);
    f64::from(hasher.finish() as u32) / f64::from(u32::MAX)
}

impl Hook for Retry {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn settings(&self) -> Settings {
        Settings { only: Some(self.options.around.points()), ..Settings::default() }
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let mut out = TrackingSink::new(out);
        let mut tried = 0;
        loop {
            tried += 1;
            let error = match next.run(request, &mut out).await {
                Ok(reply) => return Ok(reply),
                Err(error) if out.has_text && !self.options.after_text => return Err(error),
                Err(error) => error,
            };
            let Some(wait) = self.wait(turn, "model", tried, error.retry()) else { return Err(error) };
            self.pause(turn, "the model", tried, wait, &error.to_string()).await;
        }
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let effect = turn.agent().spec(&call.name).map(|spec| &spec.effect);
        let Some(effect) = effect.filter(|effect| self.may_repeat(effect, &call.name)) else {
            return next.run(call).await;
        };
        let mut tried = 0;
        loop {
            tried += 1;
            let result = next.run(call).await;
            let error = match &result {
                Err(failure) => failure.to_string(),
                Ok(output) if !output.ok && self.options.error_results => output.content.text(),
                Ok(_) => return result,
            };
            let Some(wait) = self.wait(turn, call.call.as_str(), tried, model::Retry::Soon) else { return result };
            self.pause(turn, &call.name, tried, wait, &error).await;
            if let Effect::Reconcile(world) = effect
                && let Some(happened) = world.reconcile(turn, call).await?
            {
                return Ok(happened);
            }
        }
    }
}

impl ConfigHook for Retry {
    const NAME: &'static str = "retry";
    const SUMMARY: &'static str = "tries model and tool calls again that failed for a passing reason";
    const RENAMED_OPTIONS: &'static [(&'static str, &'static str)] =
        &[("on", "`around = \"model_calls\"`, `\"tool_calls\"` or `\"both\"`")];
    type Options = RetryOptions;

    fn from_options(options: RetryOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }

    /// The hook posts notices under this name.
    fn entry(mut self, name: String) -> HookEntry {
        self.name = name.into();
        self.into()
    }
}
