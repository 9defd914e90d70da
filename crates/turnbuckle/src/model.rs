//! The model contract: push chunks into a sink, return the reply.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::clock::Boxed;
use crate::message::{Message, Reply, Text, Usage};
use crate::tool::Definition;

/// Something that answers.
///
/// A model pushes what it says into `out` as it says it, and returns the whole reply at the end. Whatever of the reply
/// it did not push is told when it returns, so a model that does not stream just returns. Dropping the future must
/// close whatever it holds open.
///
/// ```
/// use turnbuckle::{Boxed, model::{Model, ModelError, Request, Sink}, Reply};
/// struct Parrot;
/// impl Model for Parrot {
///     fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> Boxed<'a, Result<Reply, ModelError>> {
///         Box::pin(async move {
///             let said = request.messages.last().map(|last| last.content().text()).unwrap_or_default();
///             out.text(&said);
///             Ok(Reply::text(said))
///         })
///     }
/// }
/// ```
pub trait Model: Send + Sync + 'static {
    /// Answers `request`.
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> Boxed<'a, Result<Reply, ModelError>>;

    /// What the record and the configuration's digest call it.
    fn name(&self) -> &str {
        "model"
    }

    /// What this usage costs in dollars, if prices are known.
    fn price(&self, usage: &Usage) -> Option<f64> {
        let _ = usage;
        None
    }
}

/// Where a model's chunks go. A wrap may give its own, to hold back or to look.
pub trait Sink: Send {
    /// A model is about to speak: what was pushed before belongs to an attempt that failed.
    fn begin(&mut self, attempt: u32) {
        let _ = attempt;
    }
    /// A piece of the answer.
    fn text(&mut self, text: &str);
    /// A piece of thought.
    fn thinking(&mut self, text: &str);
}

/// What a model is sent. Cheap to clone, so a wrap can change its copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The agent that asks.
    pub agent: Text,
    /// The system prompt.
    pub system: Text,
    /// The context, oldest first; [`Arc::make_mut`] changes a copy.
    pub messages: Arc<Vec<Message>>,
    /// What the reply's object must look like.
    pub schema: Option<Arc<Value>>,
    /// Which attempt at this reply, from 1.
    pub attempt: u32,
    /// Which model call of the conversation, from 1, retries included.
    pub ordinal: u64,
    /// Fixed per agent; only [`narrow_tools`](Self::narrow_tools) changes them.
    tools: Arc<[Definition]>,
}

impl Request {
    pub(crate) fn new(agent: Text, system: Text, messages: Arc<Vec<Message>>, tools: Arc<[Definition]>) -> Self {
        Self { agent, system, messages, schema: None, attempt: 0, ordinal: 0, tools }
    }

    /// The tools offered.
    pub fn tools(&self) -> &[Definition] {
        &self.tools
    }

    /// Offers only those tools that `keep` keeps. Tools can never be added: the list belongs to the agent.
    pub fn narrow_tools(&mut self, keep: impl Fn(&Definition) -> bool) {
        self.tools = self.tools.iter().filter(|tool| keep(tool)).cloned().collect();
    }
}

/// Why a model did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The provider answered with a status that is not success.
    #[error("the model answered with status {status}: {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// The provider's words.
        message: String,
        /// When it may be asked again, if it said so.
        retry_after: Option<Duration>,
    },
    /// The connection failed or broke off.
    #[error("the connection to the model broke: {message}")]
    Transport {
        /// What was being done.
        message: String,
        /// The cause.
        #[source]
        source: Option<crate::Failure>,
    },
    /// What came back cannot be understood.
    #[error("the model's answer makes no sense: {0}")]
    Protocol(String),
    /// The model's code panicked.
    #[error("the model panicked: {0}")]
    Panicked(String),
    /// A script has no entry left for this call.
    #[error("the script has {replies} replies and this is model call {ordinal}")]
    ScriptExhausted {
        /// How many it has.
        replies: usize,
        /// Which was asked for.
        ordinal: u64,
    },
    /// A wrap failed.
    #[error("hook {hook} failed around the model call: {cause}")]
    Hook {
        /// Which.
        hook: Text,
        /// What it said.
        cause: crate::hook::HookFailure,
    },
    /// The turn allows no further model call.
    #[error("the turn has used its {limit}")]
    Exhausted {
        /// Which limit.
        limit: String,
    },
    /// The turn is over; the model was not called.
    #[error("the turn was cancelled")]
    Cancelled,
}

/// Whether trying again may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request would fail again.
    Never,
    /// With the caller's own backoff.
    Soon,
    /// Not before this.
    After(Duration),
}

impl ModelError {
    /// Whether and when to try again: 429, 5xx and transport yes, everything else no.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Status { status, retry_after, .. } if *status == 429 || *status >= 500 => {
                retry_after.map_or(Retry::Soon, Retry::After)
            }
            Self::Transport { .. } => Retry::Soon,
            _ => Retry::Never,
        }
    }
}
