//! Which calls a limit is around, and what it is kept for: a model, a tool, a user.

use serde::Deserialize;
use turnbuckle::hook::{ModelNext, Point, Settings};
use turnbuckle::hooks::OptionError;
use turnbuckle::message::Text;
use turnbuckle::{ToolCall, Turn};
use wildmatch::WildMatch;

/// Which calls a hook is around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Around {
    /// Calls of the model.
    #[default]
    ModelCalls,
    /// Calls of tools.
    ToolCalls,
    /// Both.
    Both,
}

/// What a limit is kept for: each of these has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each model, by its name.
    Model,
    /// Each tool, by its name.
    Tool,
    /// Each user; the system is one of them.
    User,
}

/// A limit for each model and each tool, shared by all users.
pub(crate) fn per_model_and_tool() -> Vec<Per> {
    vec![Per::Model, Per::Tool]
}

/// Whose limit it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    what: Option<What>,
    user: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum What {
    Model(Text),
    Tool(Text),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            Some(What::Model(name)) => write!(f, "model {name}")?,
            Some(What::Tool(name)) => write!(f, "tool {name}")?,
            None => f.write_str("all calls")?,
        }
        match &self.user {
            Some(user) => write!(f, " of user {user}"),
            None => Ok(()),
        }
    }
}

/// The calls that a hook minds.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    around: Around,
    per: Vec<Per>,
    models: Vec<WildMatch>,
}

impl Reach {
    /// `models`: globs; empty for all. Which tools is a setting that every hook has.
    pub(crate) fn new(around: Around, per: Vec<Per>, models: &[String]) -> Result<Self, OptionError> {
        if models.iter().any(|glob| glob.trim().is_empty()) {
            return Err(OptionError::new("models", "has an empty name; leave it out for all models"));
        }
        if !models.is_empty() && around == Around::ToolCalls {
            return Err(OptionError::new("models", "says which models, and `around` leaves model calls out"));
        }
        let idle = match around {
            Around::ModelCalls => per.iter().all(|per| *per == Per::Tool) && !per.is_empty(),
            Around::ToolCalls => per.iter().all(|per| *per == Per::Model) && !per.is_empty(),
            Around::Both => false,
        };
        if idle {
            return Err(OptionError::new("per", "names only calls that `around` leaves out"));
        }
        Ok(Self { around, per, models: models.iter().map(|glob| WildMatch::new(glob)).collect() })
    }

    /// A hook whose options leave out a kind of call does not run there at all.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.only = match self.around {
            Around::ModelCalls => Some([Point::WrapModelCall].into_iter().collect()),
            Around::ToolCalls => Some([Point::WrapToolCall].into_iter().collect()),
            Around::Both => None,
        };
        settings
    }

    /// Whose limit a model call counts for; `None` if the hook does not mind it.
    pub(crate) fn model_call(&self, turn: &Turn, next: ModelNext<'_>) -> Option<Key> {
        let name = next.model().name();
        let minded = self.models.is_empty() || self.models.iter().any(|glob| glob.matches(name));
        minded.then(|| self.key(turn, Per::Model, || What::Model(name.into())))
    }

    /// Whose limit a tool call counts for.
    pub(crate) fn tool_call(&self, turn: &Turn, call: &ToolCall) -> Key {
        self.key(turn, Per::Tool, || What::Tool(call.name.clone()))
    }

    fn key(&self, turn: &Turn, kind: Per, what: impl FnOnce() -> What) -> Key {
        let what = self.per.contains(&kind).then(what);
        let user = || turn.scope().user_id().cloned().unwrap_or_else(|| "system".into());
        Key { what, user: self.per.contains(&Per::User).then(user) }
    }
}
