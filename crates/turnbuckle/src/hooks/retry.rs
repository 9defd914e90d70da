//! Retry: what failed for a passing reason is tried again.
//!
//! # What it does
//!
//! Tries a model call or a tool call again when trying may help, with a wait in between that doubles.
//!
//! - Of models: as the error advises. Rate limits, overload and broken connections are tried again, a bad request is
//!   not. A wait that the provider asks for is kept to; one longer than `max_wait` is not waited for, and the error goes on.
//! - Of tools: a failure (an error result that the tool itself gave is an answer, unless `error_results` says otherwise).
//!   A repetition must be harmless: [`Effect::Pure`] and [`Effect::Idempotent`] tools are tried again,
//!   [`Effect::Reconcile`] tools after the world was asked, [`Effect::Ask`] and [`Effect::Never`] tools only if `repeat`
//!   names them. The common key `tools` narrows it further.
//! - Text that was told is not taken back behind a reader's back: a reply that broke off is tried again only with
//!   `after_text`.
//! - Jitter: between half of the wait and all of it, derived from the ids of conversation and turn, so many turns
//!   that failed together do not come back together, and a replay waits as long as the turn did.
//! - Every wait is told as a notice. Each try at a model is an attempt of the turn and counts against its limits.
//!
//! # Points
//!
//! `wrap_model_call`, `wrap_tool_call`; `on` narrows them.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `max_attempts` | 3 | tries altogether, 1 to 20 |
//! | `backoff` | `"500ms"` | the first wait; it doubles with each |
//! | `max_wait` | `"60s"` | no wait is longer |
//! | `after_text` | `false` | also when part of the reply was told |
//! | `on` | `["model", "tool"]` | around which calls |
//! | `repeat` | none | globs of tools that are tried again although their effect forbids it |
//! | `error_results` | `false` | also when a tool answered with an error result |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use turnbuckle::hooks::{Retry, RetryOptions};
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

use super::listening::Listening;
use super::{OptionError, Period, ReadyMade, Surroundings};
use crate::BoxError;
use crate::feed::Level;
use crate::hook::{Hook, HookEntry, ModelNext, Point, Settings, ToolNext};
use crate::message::{Reply, Text, ToolCall};
use crate::model::{self, ModelError, Request, Sink};
use crate::tool::{Effect, Output};
use crate::turn::Turn;

/// Tries again what failed for a passing reason.
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
    /// Tries altogether.
    pub max_attempts: u32,
    /// The first wait.
    pub backoff: Period,
    /// No wait is longer.
    pub max_wait: Period,
    /// Also when part of the reply was told.
    pub after_text: bool,
    /// Around which calls.
    pub on: Vec<Around>,
    /// Globs of tools that are tried again whatever their effect.
    pub repeat: Vec<String>,
    /// Also when a tool answered with an error result.
    pub error_results: bool,
}

/// Around which calls a wrap stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Around {
    /// Model calls.
    Model,
    /// Tool calls.
    Tool,
}

impl Around {
    /// The points of these.
    pub fn points(around: &[Self]) -> impl Iterator<Item = Point> {
        around.iter().map(|around| match around {
            Self::Model => Point::WrapModelCall,
            Self::Tool => Point::WrapToolCall,
        })
    }
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            backoff: Period::millis(500),
            max_wait: Period::secs(60),
            after_text: false,
            on: vec![Around::Model, Around::Tool],
            repeat: Vec::new(),
            error_results: false,
        }
    }
}

/// Nobody waits longer, and a clock that counts in nanoseconds could not.
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
        if options.on.is_empty() {
            return Err(OptionError::new("on", "must name \"model\", \"tool\" or both"));
        }
        if let Some(item) = options.repeat.iter().position(|glob| glob.trim().is_empty()) {
            return Err(OptionError::new("repeat", "has an empty name").item(item));
        }
        if !options.repeat.is_empty() && !options.on.contains(&Around::Tool) {
            return Err(OptionError::new("repeat", "says which tools, and `on` leaves tools out"));
        }
        if options.after_text && !options.on.contains(&Around::Model) {
            return Err(OptionError::new("after_text", "is about what models say, and `on` leaves models out"));
        }
        let repeat = options.repeat.iter().map(|glob| WildMatch::new(glob)).collect();
        Ok(Self { name: Self::USE.into(), options, repeat })
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

/// From 0 to 1: the same for the same try of the same turn, and another for every other.
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
        Settings { only: Some(Around::points(&self.options.on).collect()), ..Settings::default() }
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let mut out = Listening::to(out);
        let mut tried = 0;
        loop {
            tried += 1;
            let error = match next.run(request, &mut out).await {
                Ok(reply) => return Ok(reply),
                Err(error) if out.spoke && !self.options.after_text => return Err(error),
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

impl ReadyMade for Retry {
    const USE: &'static str = "retry";
    const DOES: &'static str = "tries model and tool calls again that failed for a passing reason";
    type Options = RetryOptions;

    fn from_options(options: RetryOptions, _: &Surroundings<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }

    /// Its notices are in its name.
    fn entry(mut self, name: String) -> HookEntry {
        self.name = name.into();
        self.into()
    }
}
