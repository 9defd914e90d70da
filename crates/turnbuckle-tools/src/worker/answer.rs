//! What a worker may answer at each point. Unknown keys and decisions are refused.

use serde::Deserialize;
use serde_json::{Map, Value};
use turnbuckle::hook::Point;
use turnbuckle::message::{Reply, StopReason, Usage};
use turnbuckle::tool::Output;

use super::wire::{GivenCall, GivenContent, GivenMessage};

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum AgentAnswer {
    Continue {
        #[serde(default)]
        inject: Vec<GivenContent>,
        prompt: Option<GivenContent>,
    },
    Halt {
        reason: String,
    },
    Erase {
        reason: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ModelAnswer {
    Continue {
        #[serde(default)]
        inject: Vec<GivenContent>,
        messages: Option<Vec<GivenMessage>>,
    },
    Halt {
        reason: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ReplyAnswer {
    Continue {},
    Approve {},
    Ask { reason: String },
    Reject { reason: String },
    Regenerate { reason: String },
    Modify { text: String },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToolAnswer {
    Continue {},
    Rewrite {
        arguments: Map<String, Value>,
    },
    Deny {
        reason: String,
    },
    Answer {
        #[serde(default = "yes")]
        ok: bool,
        content: GivenContent,
    },
    Ask {
        reason: String,
    },
    Halt {
        reason: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ResultAnswer {
    Continue {},
    Modify { ok: Option<bool>, content: GivenContent },
    Halt { reason: String },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StopAnswer {
    Accept {},
    Advise { reason: String },
    Refuse { reason: String },
    Pause { reason: String },
    Prevent { reason: String },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum SettledAnswer {
    Continue {
        result: Option<Value>,
        #[serde(default)]
        inject: Vec<GivenContent>,
    },
    Halt {
        result: Option<Value>,
        #[serde(default)]
        inject: Vec<GivenContent>,
    },
}

/// At `on_conversation`.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum InjectAnswer {
    Continue {
        #[serde(default)]
        inject: Vec<GivenContent>,
    },
}

/// At `background`.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum BackgroundAnswer {
    Continue {
        #[serde(default)]
        notes: Vec<GivenContent>,
        suggest: Option<String>,
    },
}

/// At `before_compaction`.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum CompactionAnswer {
    Continue {
        #[serde(default)]
        keep: Vec<String>,
    },
    Skip {
        reason: String,
    },
}

/// Where there is nothing to decide.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum NoAnswer {
    Continue {},
}

/// At the stream: what it lets through of a batch.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum StreamAnswer {
    Pass {
        text: String,
        #[serde(default)]
        annotations: Map<String, Value>,
    },
}

/// Around a tool: its result.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum WrapToolAnswer {
    Result {
        #[serde(default = "yes")]
        ok: bool,
        content: GivenContent,
    },
}

/// Around a model call: its reply.
#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum WrapModelAnswer {
    /// The reply of the last `next`, as it was.
    Reply {},
    /// A reply of its own.
    Answer {
        content: GivenContent,
        #[serde(default)]
        calls: Vec<GivenCall>,
    },
}

/// What `next` of a model call may change.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextRequest {
    pub(super) system: Option<String>,
    pub(super) messages: Option<Vec<GivenMessage>>,
    /// The names of those that stay; none can be added.
    pub(super) tools: Option<Vec<String>>,
}

/// What `next` of a tool call may say: nothing, since the arguments are decided.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextTool {}

/// What is wrong with an answer at a point, if anything is.
pub(super) fn complaint(point: Point, answer: Value) -> Option<String> {
    fn read<A: serde::de::DeserializeOwned>(answer: Value) -> Option<String> {
        serde_json::from_value::<A>(answer).err().map(|error| error.to_string())
    }
    match point {
        Point::OnConversation => read::<InjectAnswer>(answer),
        Point::BeforeAgent => read::<AgentAnswer>(answer),
        Point::BeforeModel => read::<ModelAnswer>(answer),
        Point::WrapModelCall => read::<WrapModelAnswer>(answer),
        Point::Stream => read::<StreamAnswer>(answer),
        Point::AfterModel => read::<ReplyAnswer>(answer),
        Point::BeforeTool => read::<ToolAnswer>(answer),
        Point::WrapToolCall => read::<WrapToolAnswer>(answer),
        Point::AfterTool => read::<ResultAnswer>(answer),
        Point::OnStop => read::<StopAnswer>(answer),
        Point::AfterAgent => read::<SettledAnswer>(answer),
        Point::Background => read::<BackgroundAnswer>(answer),
        Point::BeforeCompaction => read::<CompactionAnswer>(answer),
        _ => read::<NoAnswer>(answer),
    }
}

fn yes() -> bool {
    true
}

pub(super) fn result(ok: bool, content: GivenContent) -> Output {
    if ok { Output::ok(content) } else { Output::error(content) }
}

/// A reply that no model gave.
pub(super) fn reply(content: GivenContent, calls: Vec<GivenCall>) -> Reply {
    let stop_reason = if calls.is_empty() { StopReason::End } else { StopReason::ToolCalls };
    let calls = calls.into_iter().map(Into::into).collect();
    Reply { content: content.into(), calls, stop_reason, usage: Usage::default(), ..Reply::default() }
}
