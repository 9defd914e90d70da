//! Which calls a limit applies to, and which of them share one limit: by model, by tool, by user.

use serde::Deserialize;
use turnbuckle::hook::{ModelNext, Settings};
use turnbuckle::hooks::{OptionError, WrappedCalls};
use turnbuckle::message::Text;
use turnbuckle::{ToolCall, Turn};
use wildmatch::WildMatch;

/// What has a limit of its own: the `per` option of `rate_limit`, `concurrency` and `circuit_breaker`.
///
/// Several combine: `["tool", "user"]` gives every user a limit for every tool. An empty list is one limit for all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitPer {
    /// Each model, by its name.
    Model,
    /// Each tool, by its name.
    Tool,
    /// Each user; the system counts as one user.
    User,
}

/// The default of `per`: a limit for each model and each tool, shared by all users.
pub(crate) fn per_model_and_tool() -> Vec<LimitPer> {
    vec![LimitPer::Model, LimitPer::Tool]
}

/// Identifies one limit: calls with the same key share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LimitKey {
    target: Option<Target>,
    user: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Target {
    Model(Text),
    Tool(Text),
}

impl std::fmt::Display for LimitKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.target {
            Some(Target::Model(name)) => write!(f, "model {name}")?,
            Some(Target::Tool(name)) => write!(f, "tool {name}")?,
            None => f.write_str("all calls")?,
        }
        match &self.user {
            Some(user) => write!(f, " of user {user}"),
            None => Ok(()),
        }
    }
}

/// The calls that a hook applies to.
#[derive(Clone, Debug)]
pub(crate) struct CallFilter {
    around: WrappedCalls,
    per: Vec<LimitPer>,
    models: Vec<WildMatch>,
}

impl CallFilter {
    /// `models` are globs; empty for all. Tools are filtered by the `tools` setting that every hook has.
    pub(crate) fn new(around: WrappedCalls, per: Vec<LimitPer>, models: &[String]) -> Result<Self, OptionError> {
        if models.iter().any(|glob| glob.trim().is_empty()) {
            return Err(OptionError::new("models", "has an empty name; leave it out for all models"));
        }
        if !models.is_empty() && !around.includes_models() {
            return Err(OptionError::new("models", "says which models, and `around` leaves model calls out"));
        }
        let excluded = match around {
            WrappedCalls::ModelCalls => Some(LimitPer::Tool),
            WrappedCalls::ToolCalls => Some(LimitPer::Model),
            WrappedCalls::Both => None,
        };
        if !per.is_empty() && per.iter().all(|per| Some(*per) == excluded) {
            return Err(OptionError::new("per", "names only calls that `around` leaves out"));
        }
        Ok(Self { around, per, models: models.iter().map(|glob| WildMatch::new(glob)).collect() })
    }

    /// Settings under which the hook does not run at all around calls that `around` leaves out.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.only = Some(self.around.points());
        settings
    }

    /// The limit that a model call counts for; `None` if the hook does not apply to this model.
    pub(crate) fn model_call(&self, turn: &Turn, next: ModelNext<'_>) -> Option<LimitKey> {
        let name = next.model().name();
        let applies = self.models.is_empty() || self.models.iter().any(|glob| glob.matches(name));
        applies.then(|| self.key(turn, LimitPer::Model, || Target::Model(name.into())))
    }

    /// The limit that a tool call counts for.
    pub(crate) fn tool_call(&self, turn: &Turn, call: &ToolCall) -> LimitKey {
        self.key(turn, LimitPer::Tool, || Target::Tool(call.name.clone()))
    }

    fn key(&self, turn: &Turn, kind: LimitPer, target: impl FnOnce() -> Target) -> LimitKey {
        let target = self.per.contains(&kind).then(target);
        let user = || turn.scope().user_id().cloned().unwrap_or_else(|| "system".into());
        LimitKey { target, user: self.per.contains(&LimitPer::User).then(user) }
    }
}
