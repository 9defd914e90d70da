//! The lines of a worker, read strictly: what is misread might pass what it meant to stop.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnbuckle::hook::Point;

use crate::json_text;

/// The version of the protocol that is spoken here.
pub(super) const PROTOCOL: u32 = 1;
/// The most hooks of one worker.
const MOST_HOOKS: usize = 256;
/// The longest text of progress or of an error, in characters.
const LONGEST_TEXT: usize = 2000;

/// The code of an error by which a wrap passes on that `next` failed.
pub(super) const NEXT_FAILED: i64 = -32001;

/// The id of a request that the worker made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Id {
    Number(u64),
    Text(String),
}

/// The error of a JSON-RPC answer.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RpcError {
    #[serde(default)]
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
}

impl RpcError {
    /// The runtime does not do what the worker asks.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { code: -32000, message: message.into() }
    }

    /// The rest of the chain failed. A wrap that does not handle it answers with the same code.
    pub(super) fn next_failed(message: impl Into<String>) -> Self {
        Self { code: NEXT_FAILED, message: message.into() }
    }

    pub(super) fn answer_to(&self, id: &Id) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": self.code, "message": self.message}})
    }
}

/// A call of a hook.
#[derive(Serialize)]
pub(super) struct Request<'a, P> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: P,
}

impl<'a, P: Serialize> Request<'a, P> {
    pub(super) fn new(id: u64, method: &'a str, params: P) -> Self {
        Self { jsonrpc: "2.0", id, method, params }
    }
}

/// One line of a worker.
#[derive(Debug)]
pub(super) enum Message {
    Answer { id: u64, result: Result<Value, RpcError> },
    Progress { call: u64, text: String },
    Next { id: Id, call: u64, params: Value },
}

#[derive(Deserialize)]
struct Line {
    jsonrpc: String,
    id: Option<Id>,
    method: Option<String>,
    params: Option<Value>,
    result: Option<Value>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgressParams {
    call: u64,
    text: String,
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// A program's stdout, line by line.
    Stdout,
    /// The body of a service's answer.
    Body,
}

impl Message {
    /// The error says what is wrong, as the rest of a sentence.
    pub(super) fn read(text: &[u8], from: Source) -> Result<Self, String> {
        let line: Line = json_text::read(text).map_err(|error| match from {
            Source::Stdout => format!("a line on stdout that is no message ({error}); logs belong on stderr"),
            Source::Body if text.is_empty() => "nothing".to_owned(),
            Source::Body => format!("a body that is no message ({error})"),
        })?;
        if line.jsonrpc != "2.0" {
            return Err("a message whose `jsonrpc` is not \"2.0\"".to_owned());
        }
        match line {
            Line { method: None, id: Some(Id::Number(id)), result: Some(result), error: None, .. } => {
                Ok(Self::Answer { id, result: Ok(result) })
            }
            Line { method: None, id: Some(Id::Number(id)), result: None, error: Some(error), .. } => {
                Ok(Self::Answer { id, result: Err(RpcError { message: cut(error.message), ..error }) })
            }
            Line { method: Some(method), id: None, params: Some(params), result: None, error: None, .. }
                if method == "progress" =>
            {
                let params: ProgressParams =
                    serde_json::from_value(params).map_err(|error| format!("`progress` with {error}"))?;
                Ok(Self::Progress { call: params.call, text: params.text })
            }
            Line {
                method: Some(method), id: Some(id), params: Some(mut params), result: None, error: None, ..
            } if method == "next" => {
                let call = params.as_object_mut().and_then(|params| params.remove("call"));
                let call = call.as_ref().and_then(Value::as_u64).ok_or("`next` without the id of its call")?;
                Ok(Self::Next { id, call, params })
            }
            Line { method: Some(method), .. } => Err(format!("a message {:?} that there is not", cut(method))),
            _ => Err("a message that is neither an answer with an object nor a request".to_owned()),
        }
    }
}

/// At most [`LONGEST_TEXT`] characters.
pub(super) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A worker's answer to `initialize`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Handshake {
    protocol: u32,
    /// In the order in which they are called.
    pub(super) hooks: Vec<Served>,
}

/// One hook of a worker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Served {
    /// What the worker calls it.
    pub(super) name: String,
    /// Where it runs.
    pub(super) point: Point,
    /// At tool points: only for tools whose name matches one of these globs. Empty: for all.
    #[serde(default)]
    tools: Vec<String>,
}

impl Served {
    /// The hook of a service, for all tools: what it is for is said by the configuration.
    pub(super) fn of_service(name: String, point: Point) -> Self {
        Self { name, point, tools: Vec::new() }
    }

    pub(super) fn minds(&self, tool: Option<&str>) -> bool {
        let matches = |tool| self.tools.iter().any(|glob| wildmatch::WildMatch::new(glob).matches(tool));
        self.tools.is_empty() || tool.is_none_or(matches)
    }
}

impl Handshake {
    /// Of a worker that has not said anything yet.
    pub(super) fn read(answer: Value) -> Result<Self, String> {
        let handshake: Self = serde_json::from_value(answer).map_err(|error| format!("its answer has {error}"))?;
        if handshake.protocol != PROTOCOL {
            return Err(format!("it speaks protocol {}, and {PROTOCOL} is spoken here", handshake.protocol));
        }
        if handshake.hooks.len() > MOST_HOOKS {
            return Err(format!("it has {} hooks; {MOST_HOOKS} are the most", handshake.hooks.len()));
        }
        for (index, hook) in handshake.hooks.iter().enumerate() {
            if hook.name.is_empty() || hook.name.chars().count() > 64 || hook.name.chars().any(char::is_control) {
                return Err("the name of a hook must be 1 to 64 characters that can be shown".to_owned());
            }
            if handshake.hooks[..index].iter().any(|other| other.name == hook.name && other.point == hook.point) {
                return Err(format!("there are two hooks {:?} at {}", hook.name, hook.point));
            }
            let at_tools = matches!(hook.point, Point::BeforeTool | Point::WrapToolCall | Point::AfterTool);
            if !at_tools && !hook.tools.is_empty() {
                return Err(format!("{:?} at {} names tools; only tool points have them", hook.name, hook.point));
            }
        }
        Ok(handshake)
    }
}
