//! What a worker is told: the turn, the context of a model call, calls and results, as JSON.

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use turnbuckle::hook::{Lifecycle, ToolTrace};
use turnbuckle::message::{Content, Message, Part, ToolCall};
use turnbuckle::model::Request;
use turnbuckle::tool::Output;
use turnbuckle::{CallId, Turn};

/// What every request of a turn has under `turn`. Written straight into the line: a worker is asked often.
pub(super) struct TurnView<'a>(&'a Turn);

pub(super) fn turn(turn: &Turn) -> TurnView<'_> {
    TurnView(turn)
}

impl Serialize for TurnView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(turn) = self;
        let mut fields = serializer.serialize_struct("Turn", 10)?;
        fields.serialize_field("conversation", turn.conversation().as_str())?;
        fields.serialize_field("id", turn.id().as_str())?;
        fields.serialize_field("agent", turn.agent().name())?;
        fields.serialize_field("parent_agent", &turn.parent_agent())?;
        fields.serialize_field("permission_mode", turn.permission_mode().name())?;
        fields.serialize_field("actor", &turn.scope().by())?;
        fields.serialize_field("user_message", turn.user_message())?;
        fields.serialize_field("stop_active", &turn.stop_active())?;
        fields.serialize_field("touched", &turn.touched())?;
        fields.serialize_field("budget", &turn.remaining_budget())?;
        fields.end()
    }
}

/// What is sent at `before_tool` and `after_tool`.
#[derive(Serialize)]
pub(super) struct ToolParams<'a> {
    pub(super) turn: TurnView<'a>,
    pub(super) call: CallView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<OutputView<'a>>,
}

/// A call, with its own arguments or with those that a hook gave it.
#[derive(Serialize)]
pub(super) struct CallView<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a Value,
}

#[derive(Serialize)]
pub(super) struct OutputView<'a> {
    pub(super) ok: bool,
    pub(super) content: &'a Content,
}

pub(super) fn call(call: &ToolCall) -> Value {
    json!({"id": call.call.as_str(), "name": call.name, "arguments": call.arguments})
}

pub(super) fn output(output: &Output) -> Value {
    json!({"ok": output.ok, "content": output.content})
}

pub(super) fn request(request: &Request) -> Value {
    json!({
        "system": request.system,
        "messages": messages(&request.messages),
        "tools": request.tools().iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
    })
}

pub(super) fn messages(messages: &[Message]) -> Value {
    messages.iter().map(message).collect()
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(content) => json!({"role": "user", "content": content}),
        Message::Note(content) => json!({"role": "note", "content": content}),
        Message::Assistant { content, calls } => {
            json!({"role": "assistant", "content": content, "calls": calls.iter().map(call).collect::<Vec<_>>()})
        }
        Message::Result { call, name, ok, content } => {
            json!({"role": "result", "call": call.as_str(), "name": name, "ok": ok, "content": content})
        }
        // A kind of message that this version of the protocol has no word for.
        other => json!({"role": "other", "content": other.content()}),
    }
}

pub(super) fn trace(trace: &[ToolTrace]) -> Value {
    let one = |one: &ToolTrace| json!({"call": one.call.as_str(), "name": one.name, "arguments": one.arguments, "ok": one.ok, "content": one.content});
    trace.iter().map(one).collect()
}

pub(super) fn lifecycle(lifecycle: Lifecycle) -> &'static str {
    match lifecycle {
        Lifecycle::Started => "started",
        Lifecycle::Revived => "revived",
        Lifecycle::Ended => "ended",
        _ => "other",
    }
}

/// Content as a worker writes it: a string, or a list of parts.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "content must be a string or a list of parts")]
pub(super) enum GivenContent {
    Text(String),
    Parts(Vec<Part>),
}

impl From<GivenContent> for Content {
    fn from(given: GivenContent) -> Self {
        match given {
            GivenContent::Text(text) => text.into(),
            GivenContent::Parts(parts) => parts.into(),
        }
    }
}

/// A message as a worker writes it.
#[derive(Debug, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum GivenMessage {
    User {
        content: GivenContent,
    },
    Note {
        content: GivenContent,
    },
    Assistant {
        content: GivenContent,
        #[serde(default)]
        calls: Vec<GivenCall>,
    },
    Result {
        call: CallId,
        name: String,
        ok: bool,
        content: GivenContent,
    },
}

impl From<GivenMessage> for Message {
    fn from(given: GivenMessage) -> Self {
        match given {
            GivenMessage::User { content } => Self::User(content.into()),
            GivenMessage::Note { content } => Self::Note(content.into()),
            GivenMessage::Assistant { content, calls } => {
                Self::Assistant { content: content.into(), calls: calls.into_iter().map(Into::into).collect() }
            }
            GivenMessage::Result { call, name, ok, content } => {
                Self::Result { call, name: name.into(), ok, content: content.into() }
            }
        }
    }
}

/// A call as a worker writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenCall {
    id: CallId,
    name: String,
    arguments: Map<String, Value>,
}

impl From<GivenCall> for ToolCall {
    fn from(GivenCall { id, name, arguments }: GivenCall) -> Self {
        Self { call: id, name: name.into(), arguments: Value::Object(arguments).into() }
    }
}
