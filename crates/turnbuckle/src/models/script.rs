//! A model that says what a script says. Entry k answers the k-th model call of the conversation, retries included.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BoxFuture;
use crate::clock::{Clock, SystemClock};
use crate::message::{Message, Part, Reply, StopReason, ToolCall, Usage};
use crate::model::{Model, ModelError, Request, Sink};

/// A scripted model. Its position comes with the request, so another process goes on where the last one stopped.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What to do when no entry is left.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
    /// One for each model call of the conversation.
    pub replies: Vec<ScriptReply>,
    /// For sub-agents, by name. One that is not here is given `replies`; see [`for_sub_agent`](Self::for_sub_agent).
    #[serde(default)]
    pub agents: BTreeMap<String, Vec<ScriptReply>>,
    #[serde(skip, default = "system_clock")]
    clock: Arc<dyn Clock>,
}

fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

/// What to do when no entry is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The call fails.
    #[default]
    Error,
    /// Say the last entry again.
    Repeat,
    /// Say the user's last words.
    Echo,
}

/// One reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptReply {
    /// What it says; one chunk, unless `chunks` are given.
    pub text: Option<String>,
    /// What it says, piece by piece.
    pub chunks: Option<Vec<String>>,
    /// Before each chunk.
    pub delay_ms: u64,
    /// What it thinks first.
    pub thinking: Option<String>,
    /// What it costs.
    #[serde(deserialize_with = "usage")]
    pub usage: Usage,
    /// What it calls.
    pub tool_calls: Vec<ScriptCall>,
    /// Why it stops, if not as usual.
    pub stop_reason: Option<StopReason>,
    /// It fails instead.
    pub error: Option<ScriptFault>,
    /// The connection breaks after so many chunks.
    pub fail_after_chunks: Option<usize>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptCall {
    /// Made up if not given.
    #[serde(default)]
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// An object; a string is sent raw.
    #[serde(default = "no_arguments")]
    pub arguments: Value,
}

fn no_arguments() -> Value {
    Value::Object(serde_json::Map::new())
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptFault {
    /// HTTP status.
    pub status: u16,
    /// Seconds to wait.
    #[serde(default)]
    pub retry_after: Option<f64>,
    /// The provider's words.
    #[serde(default)]
    pub message: String,
}

/// A script that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the script is not valid: {0}")]
pub struct ScriptError(#[from] serde_json::Error);

/// As strict as everything else in a script: readers of the log, which share the type, ignore what they do not know.
fn usage<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Usage, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Strict {
        input: u64,
        output: u64,
        cache_read: u64,
        cache_write: u64,
    }
    let Strict { input, output, cache_read, cache_write } = Strict::deserialize(deserializer)?;
    Ok(Usage { input, output, cache_read, cache_write })
}

impl ScriptReply {
    /// Says this in one chunk.
    pub fn says(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
    /// Says this piece by piece.
    pub fn chunks<C: Into<String>>(chunks: impl IntoIterator<Item = C>) -> Self {
        Self { chunks: Some(chunks.into_iter().map(Into::into).collect()), ..Self::default() }
    }
    /// Calls a tool.
    pub fn calls(id: &str, name: &str, arguments: Value) -> Self {
        Self::default().and_calls(id, name, arguments)
    }
    /// And calls a tool.
    pub fn and_calls(mut self, id: &str, name: &str, arguments: Value) -> Self {
        self.tool_calls.push(ScriptCall { id: Some(id.to_owned()), name: name.to_owned(), arguments });
        self
    }
    /// Fails with a status.
    pub fn fails(status: u16) -> Self {
        let message = "scripted".to_owned();
        Self { error: Some(ScriptFault { status, retry_after: None, message }), ..Self::default() }
    }
    /// Costs this much.
    pub fn costing(mut self, input: u64, output: u64) -> Self {
        self.usage = Usage { input, output, ..Usage::default() };
        self
    }

    fn pieces(&self) -> Vec<&str> {
        match (&self.chunks, &self.text) {
            (Some(chunks), _) => chunks.iter().map(String::as_str).collect(),
            (None, Some(text)) => vec![text],
            (None, None) => Vec::new(),
        }
    }
}

impl Script {
    /// A script in code.
    pub fn of(replies: impl IntoIterator<Item = ScriptReply>) -> Self {
        Self {
            on_exhausted: OnExhausted::Error,
            replies: replies.into_iter().collect(),
            agents: BTreeMap::new(),
            clock: system_clock(),
        }
    }
    /// Only words.
    pub fn says<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::of(texts.into_iter().map(ScriptReply::says))
    }
    /// A script file's text. Unknown keys are errors.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        Ok(serde_json::from_str(text)?)
    }
    /// What a sub-agent of this name says.
    pub fn agent(mut self, name: &str, replies: impl IntoIterator<Item = ScriptReply>) -> Self {
        self.agents.insert(name.to_owned(), replies.into_iter().collect());
        self
    }
    /// What a sub-agent of this name says, as a script of its own: its entry under `agents`, or nothing at all. A request
    /// does not tell whether a sub-agent asks, and without an entry it would be given the main agent's replies: so if
    /// one script serves several agents, give each sub-agent this one.
    pub fn for_sub_agent(&self, name: &str) -> Self {
        Self { replies: self.agents.get(name).cloned().unwrap_or_default(), ..self.clone() }
    }
    /// With another source of time for its delays.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
    /// What to do when no entry is left.
    pub fn when_exhausted(mut self, on_exhausted: OnExhausted) -> Self {
        self.on_exhausted = on_exhausted;
        self
    }

    fn entry(&self, request: &Request) -> Result<ScriptReply, ModelError> {
        let replies = self.agents.get(&*request.agent).unwrap_or(&self.replies);
        let index = usize::try_from(request.ordinal.saturating_sub(1)).unwrap_or(usize::MAX);
        if let Some(reply) = replies.get(index) {
            return Ok(reply.clone());
        }
        match (self.on_exhausted, replies.last()) {
            (OnExhausted::Repeat, Some(last)) => Ok(last.clone()),
            (OnExhausted::Echo, _) => Ok(ScriptReply::says(last_words(request))),
            _ => Err(ModelError::ScriptExhausted { replies: replies.len(), ordinal: request.ordinal }),
        }
    }

    async fn play(&self, request: &Request, out: &mut dyn Sink) -> Result<Reply, ModelError> {
        let entry = self.entry(request)?;
        if let Some(fault) = entry.error {
            let retry_after = fault.retry_after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            return Err(ModelError::Status { status: fault.status, message: fault.message, retry_after });
        }
        if let Some(thinking) = &entry.thinking {
            out.thinking(thinking);
        }
        self.speak(&entry, out).await?;
        let said = entry.pieces().concat();
        let thought = entry.thinking.iter().map(|text| Part::thinking(text.as_str()));
        let spoken = (!said.is_empty()).then(|| Part::text(said));
        let calls = calls(&entry.tool_calls, request.ordinal);
        let stop = if calls.is_empty() { StopReason::End } else { StopReason::ToolCalls };
        Ok(Reply {
            content: thought.chain(spoken).collect(),
            calls,
            stop_reason: entry.stop_reason.unwrap_or(stop),
            usage: entry.usage,
            ..Reply::default()
        })
    }

    async fn speak(&self, entry: &ScriptReply, out: &mut dyn Sink) -> Result<(), ModelError> {
        let broken = || ModelError::Transport { message: "scripted".to_owned(), source: None };
        for (count, piece) in entry.pieces().into_iter().enumerate() {
            if entry.fail_after_chunks == Some(count) {
                return Err(broken());
            }
            match entry.delay_ms {
                0 => tokio::task::consume_budget().await,
                delay => self.clock.sleep(Duration::from_millis(delay)).await,
            }
            out.text(piece);
        }
        match entry.fail_after_chunks {
            Some(_) => Err(broken()),
            None => Ok(()),
        }
    }
}

fn calls(calls: &[ScriptCall], ordinal: u64) -> Vec<ToolCall> {
    let make = |(index, call): (usize, &ScriptCall)| ToolCall {
        call: call.id.clone().unwrap_or_else(|| format!("call_{ordinal}_{}", index + 1)).into(),
        name: call.name.as_str().into(),
        arguments: Arc::new(received(&call.arguments)),
    };
    calls.iter().enumerate().map(make).collect()
}

/// A raw string is what a provider would send: an object if it parses as one.
fn received(arguments: &Value) -> Value {
    match arguments {
        Value::String(raw) => {
            serde_json::from_str(raw).ok().filter(Value::is_object).unwrap_or_else(|| arguments.clone())
        }
        value => value.clone(),
    }
}

fn last_words(request: &Request) -> String {
    let said = request.messages.iter().rev().find_map(|message| match message {
        Message::User(content) => Some(content.text()),
        _ => None,
    });
    said.unwrap_or_default()
}

impl Model for Script {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.play(request, out))
    }
    fn name(&self) -> &str {
        "script"
    }
    fn summarises(&self) -> bool {
        self.agents.contains_key(crate::model::SUMMARY_AGENT)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("replies", &self.replies.len()).field("agents", &self.agents.keys()).finish()
    }
}
