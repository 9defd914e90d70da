//! The model contract: push chunks into a sink, return the reply.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BoxFuture;
pub use crate::event::ModelErrorKind;
use crate::message::{Content, Message, Part, Reply, Text, Usage};

/// The agent that requests for summaries name.
pub(crate) const SUMMARY_AGENT: &str = "summary";

/// Something that answers.
///
/// A model pushes what it says into `out` as it says it, and returns the whole reply at the end. Whatever of the reply
/// it did not push is told when it returns, so a model that does not stream just returns. Dropping the future must
/// close whatever it holds open.
///
/// ```
/// use turnbuckle::{BoxFuture, model::{Model, ModelError, Request, Sink}, Reply};
/// struct Parrot;
/// impl Model for Parrot {
///     fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
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
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// What the record and the configuration's digest call it.
    fn name(&self) -> &str {
        "model"
    }

    /// What this usage costs in dollars, if prices are known.
    fn price(&self, usage: &Usage) -> Option<f64> {
        let _ = usage;
        None
    }

    /// Whether it can make summaries of conversations. A script can if it has replies for an agent named `summary`.
    fn summarises(&self) -> bool {
        true
    }

    /// How many tokens the model takes in one request, reply included, if that is known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// How much trouble it takes by its configuration, in the provider's word: `low`, `high`.
    fn effort(&self) -> Option<&str> {
        None
    }

    /// How many tokens this text is to the model, if its tokenizer is known; what is only estimated is better left to the
    /// [estimates](crate::context::tokens), which are corrected by what the provider counts. Asked about every text of a
    /// context that comes near its limit.
    fn count_tokens(&self, text: &str) -> Option<u64> {
        let _ = text;
        None
    }

    /// The body that [`stream`](Self::stream) sends for this request, but without its messages and its system prompt: the
    /// model's own name, its options, the tools as its API has them. For the audit, which asks after each call and records it.
    /// It must have no key. `None` if nothing is sent anywhere.
    fn body_fields(&self, request: &Request) -> Option<Value> {
        let _ = request;
        None
    }
}

/// A model that was chosen while the program runs.
impl<M: Model + ?Sized> Model for Arc<M> {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        (**self).stream(request, out)
    }
    fn name(&self) -> &str {
        (**self).name()
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        (**self).price(usage)
    }
    fn summarises(&self) -> bool {
        (**self).summarises()
    }
    fn context_window(&self) -> Option<u64> {
        (**self).context_window()
    }
    fn effort(&self) -> Option<&str> {
        (**self).effort()
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        (**self).count_tokens(text)
    }
    fn body_fields(&self, request: &Request) -> Option<Value> {
        (**self).body_fields(request)
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
    /// Where the parts of the context end that stay as they are from call to call.
    pub(crate) segments: Segments,
    /// What the runtime estimated it at.
    pub(crate) estimate: Option<Estimate>,
    /// Fixed per agent; only [`narrow_tools`](Self::narrow_tools) changes them.
    tools: Arc<[Definition]>,
    /// Tools that the context tells of and that cannot be called. `None` in most requests, which need no allocation for it.
    withheld: Option<Arc<[Definition]>>,
}

/// What a request was estimated at. It holds for these messages and no others: a wrap may send other ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    pub(crate) tokens: u64,
    /// Where the messages are in memory. The turn keeps them, so nothing else gets there meanwhile.
    messages: usize,
}

impl Estimate {
    pub(crate) fn of(messages: &Arc<Vec<Message>>, tokens: u64) -> Self {
        Self { tokens, messages: Arc::as_ptr(messages) as usize }
    }
}

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// By which it is called.
    pub name: Text,
    /// What it is for, to the model.
    pub description: Text,
    /// A JSON schema of an object.
    pub parameters: Arc<Value>,
}

/// Where the segments of a context end, in order: `history │ user message · turn's injections │ this turn's calls and
/// results │ this call's injections`. What stands before an end is likely to be sent again, byte for byte, so a provider's
/// prompt cache may keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segments {
    /// Behind the summary of older turns.
    pub summary: SegmentEnd,
    /// Behind the history.
    pub history: SegmentEnd,
    /// Behind the user message that opened the turn, before what hooks added to it for this turn.
    pub message: SegmentEnd,
    /// Behind the user message that opened the turn and what hooks added to it.
    pub opening: SegmentEnd,
    /// Behind this turn's calls and results.
    pub calls: SegmentEnd,
}

/// A place in a context: behind so many messages, and of the last of them behind so many parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentEnd {
    /// How many messages; 0: the segment is empty.
    pub messages: usize,
    /// How many parts of the last one.
    pub parts: usize,
}

impl SegmentEnd {
    /// Behind all of these.
    pub(crate) fn behind(messages: &[Message]) -> Self {
        Self { messages: messages.len(), parts: messages.last().map_or(0, |last| last.content().parts().len()) }
    }
}

impl Segments {
    /// After an edit: an end in front of the first change stays, the others keep their distance from the tail.
    pub(crate) fn moved(self, before: &[Message], now: &[Message]) -> Self {
        let same = before.iter().zip(now).take_while(|(old, new)| old == new).count();
        let shift = |end: SegmentEnd| match end.messages {
            messages if messages <= same => end,
            messages => SegmentEnd { messages: (messages + now.len()).saturating_sub(before.len()), ..end },
        };
        Self {
            summary: shift(self.summary),
            history: shift(self.history),
            message: shift(self.message),
            opening: shift(self.opening),
            calls: shift(self.calls),
        }
    }
}

impl Request {
    pub(crate) fn new(agent: Text, system: Text, messages: Arc<Vec<Message>>, tools: Arc<[Definition]>) -> Self {
        let (segments, estimate) = (Segments::default(), None);
        let withheld = None;
        Self { agent, system, messages, schema: None, attempt: 0, ordinal: 0, segments, estimate, tools, withheld }
    }

    /// What the runtime estimated it at, if these are the messages that it estimated.
    pub(crate) fn estimated(&self) -> Option<u64> {
        let estimate = self.estimate?;
        (estimate.messages == Arc::as_ptr(&self.messages) as usize).then_some(estimate.tokens)
    }

    /// Whether it has nothing but text: what a picture costs says nothing about the tokens of a text.
    pub(crate) fn is_text(&self) -> bool {
        let is_text = |part: &Part| matches!(part, Part::Text { .. } | Part::Thinking(_));
        self.messages.iter().all(|message| message.content().parts().iter().all(is_text))
    }

    /// A request as an agent of this name would send it: for trying a model by itself. In a turn the runtime makes them.
    pub fn of(agent: impl Into<Text>, messages: Vec<Message>, tools: impl IntoIterator<Item = Definition>) -> Self {
        let end = SegmentEnd::behind(&messages);
        let mut request = Self::new(agent.into(), "".into(), Arc::new(messages), tools.into_iter().collect());
        request.segments = Segments { calls: end, ..Segments::default() };
        (request.attempt, request.ordinal) = (1, 1);
        request
    }

    /// One question without tools, for a model that is asked outside a conversation (see
    /// [`Turn::ask_model`](crate::Turn::ask_model)). No part of it is marked as stable, so no provider caches it.
    pub fn question(agent: impl Into<Text>, system: impl Into<Text>, question: impl Into<Content>) -> Self {
        let messages = Arc::new(vec![Message::User(question.into())]);
        let mut request = Self::new(agent.into(), system.into(), messages, Arc::new([]));
        (request.attempt, request.ordinal) = (1, 1);
        request
    }

    /// Where the context's stable segments end. A wrap that changed the messages of its copy may have left an end behind the
    /// last of them.
    pub fn segments(&self) -> Segments {
        self.segments
    }

    /// The reply must be an object that fits `schema`; there is no tool loop.
    pub(crate) fn must_answer_with(&mut self, schema: &Arc<Value>) {
        (self.schema, self.tools) = (Some(schema.clone()), Arc::new([]));
    }

    /// The tools offered.
    pub fn tools(&self) -> &[Definition] {
        &self.tools
    }

    /// Tools that are not offered in the last call of a turn, though its context may have calls of them. A provider that wants
    /// every tool of a context to be defined is told of these, and that none may be called.
    pub fn withheld_tools(&self) -> &[Definition] {
        self.withheld.as_deref().unwrap_or_default()
    }

    /// The tools that a provider is told of: those that are offered, or those that are withheld.
    pub(crate) fn defined_tools(&self) -> &Arc<[Definition]> {
        self.withheld.as_ref().unwrap_or(&self.tools)
    }

    /// Whether there are tools that are not offered.
    pub(crate) fn withholds_tools(&self) -> bool {
        self.withheld.as_deref().is_some_and(|tools| !tools.is_empty())
    }

    /// Offers no tools any more; they stay [defined](Self::withheld_tools).
    pub fn withhold_tools(&mut self) {
        self.withheld = Some(std::mem::replace(&mut self.tools, Arc::new([])));
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
    /// The request has more tokens than the model takes. The runtime makes the context smaller and asks once more.
    #[error("the request is too long for the model: {message}")]
    TooLong {
        /// The provider's words.
        message: String,
        /// HTTP status, if the provider answered with one.
        status: Option<u16>,
        /// How many tokens the request may have, if that was said.
        limit: Option<u64>,
        /// How many it had, if that was said.
        size: Option<u64>,
    },
    /// The connection failed or broke off.
    #[error("the connection to the model broke: {message}")]
    Transport {
        /// What was being done.
        message: String,
        /// The cause.
        #[source]
        source: Option<crate::BoxError>,
    },
    /// Nothing came for too long.
    #[error("the model said nothing for {} s", idle.as_secs_f64())]
    Stalled {
        /// For how long.
        idle: Duration,
    },
    /// What came back cannot be understood.
    #[error("the model's answer makes no sense: {0}")]
    Protocol(String),
    /// The model's code panicked.
    #[error("the model panicked: {0}")]
    Panicked(String),
    /// A script has no entry left for this call.
    #[error("the script has {replies} {} and this is model call {ordinal}", if *replies == 1 { "reply" } else { "replies" })]
    ScriptExhausted {
        /// How many it has.
        replies: usize,
        /// Which was asked for.
        ordinal: u64,
    },
    /// A wrap failed.
    #[error("hook {hook} failed around the model call: {cause}")]
    Hook {
        /// The hook's name.
        hook: Text,
        /// What it said.
        cause: crate::record::HookFailure,
    },
    /// A wrap did not let the call through: a rate limit, an open circuit.
    #[error("the model was not asked: {why}")]
    NotAsked {
        /// What is wrong, for people.
        why: String,
        /// When it may be asked again, if that is known.
        retry_after: Option<Duration>,
    },
    /// A wrap asked several models, and none gave a complete reply.
    #[error("{}", models_failed(errors, not_asked))]
    ModelsFailed {
        /// The models in the order they were asked, each with its error.
        errors: Vec<(String, ModelError)>,
        /// The models that were left, but not asked: the last one broke off after text of its reply had been shown, and
        /// another reply would have taken that text back.
        not_asked: Vec<String>,
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

fn models_failed(errors: &[(String, ModelError)], not_asked: &[String]) -> String {
    let failed = errors.iter().map(|(model, error)| format!("{model}: {error}")).collect::<Vec<_>>().join("; ");
    if not_asked.is_empty() {
        return format!("every model failed: {failed}");
    }
    let (count, all) = (errors.len(), errors.len() + not_asked.len());
    let left = not_asked.join(", ");
    format!(
        "{count} of {all} models failed: {failed}; not asked, because text had been shown (after_text = false): {left}"
    )
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

impl Retry {
    /// The one that helps sooner.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, any) | (any, Self::Never) => any,
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            _ => Self::Soon,
        }
    }
}

impl ModelError {
    /// In which way the call failed, for programs.
    pub fn kind(&self) -> ModelErrorKind {
        match self {
            Self::Status { .. } => ModelErrorKind::Status,
            Self::TooLong { .. } => ModelErrorKind::TooLong,
            Self::Transport { .. } => ModelErrorKind::Transport,
            Self::Stalled { .. } => ModelErrorKind::Stalled,
            Self::Protocol(_) => ModelErrorKind::Protocol,
            Self::Panicked(_) => ModelErrorKind::Panicked,
            Self::ScriptExhausted { .. } => ModelErrorKind::ScriptExhausted,
            Self::Hook { .. } => ModelErrorKind::Hook,
            Self::NotAsked { .. } => ModelErrorKind::NotAsked,
            Self::ModelsFailed { not_asked, .. } if !not_asked.is_empty() => ModelErrorKind::TextShown,
            Self::ModelsFailed { .. } => ModelErrorKind::ModelsFailed,
            Self::Exhausted { .. } => ModelErrorKind::Exhausted,
            Self::Cancelled => ModelErrorKind::Cancelled,
        }
    }

    /// The HTTP status, if the provider answered with one. Of several models, the status of the last one that has one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::TooLong { status, .. } => *status,
            Self::ModelsFailed { errors, .. } => errors.iter().rev().find_map(|(_, error)| error.status()),
            _ => None,
        }
    }

    /// Whether the request was too long: how many tokens it may have and how many it had, as far as that was said. Of several
    /// models, what the last one that found it too long said.
    pub(crate) fn too_long(&self) -> Option<(Option<u64>, Option<u64>)> {
        match self {
            Self::TooLong { limit, size, .. } => Some((*limit, *size)),
            Self::ModelsFailed { errors, .. } => errors.iter().rev().find_map(|(_, error)| error.too_long()),
            _ => None,
        }
    }

    /// Whether and when to try again: 429, 5xx, transport and a stream that stalled yes, everything else no.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Status { status, retry_after, .. } if *status == 429 || *status >= 500 => {
                retry_after.map_or(Retry::Soon, Retry::After)
            }
            Self::ModelsFailed { errors, .. } => {
                errors.iter().map(|(_, error)| error.retry()).fold(Retry::Never, Retry::or)
            }
            Self::NotAsked { retry_after, .. } => retry_after.map_or(Retry::Soon, Retry::After),
            Self::Transport { .. } | Self::Stalled { .. } => Retry::Soon,
            _ => Retry::Never,
        }
    }
}
