//! The log: what happened, in order. Events are the truth; everything else is told or derived.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::id::{CallId, TurnId};
use crate::message::{Content, StopReason, Text, Usage};
use crate::scope::Author;
use crate::tool::Executor;

/// The format of everything stored. Older ones are migrated, never discarded.
pub const FORMAT: u32 = 1;

/// One entry of a conversation's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Gapless per conversation, from 1.
    pub seq: u64,
    /// The turn it belongs to.
    pub turn: TurnId,
    /// When it was appended.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The message that opened the turn, as the hooks left it.
    UserMessage {
        /// What was said.
        content: Content,
        /// Who said it.
        by: Author,
    },
    /// Content that a hook added for good.
    Injection {
        /// Its author.
        hook: Text,
        /// What it added.
        content: Content,
        /// Which turn it stands in.
        #[serde(rename = "for")]
        place: InjectionTarget,
    },
    /// A reply that was let through.
    AssistantMessage {
        /// Which attempt at this reply it was, from 1.
        attempt: u32,
        /// What the model said.
        content: Content,
        /// Why it stopped.
        stop_reason: StopReason,
        /// What this attempt cost.
        usage: Usage,
        /// The object, when a schema was asked for.
        object: Option<Arc<Value>>,
        /// What stream transformers put beside it: citations, for instance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        annotations: Option<Arc<Value>>,
    },
    /// The model asked for a tool.
    ToolCall {
        /// Which call.
        call: CallId,
        /// The tool's name.
        name: Text,
        /// As the model gave them.
        arguments: Arc<Value>,
        /// Who runs it.
        executor: Executor,
    },
    /// A server tool is about to have its effect.
    ToolStarted {
        /// Which call.
        call: CallId,
        /// The arguments it runs with.
        arguments: Arc<Value>,
        /// Of tool, effective arguments and conversation.
        digest: Text,
        /// Whose approval let it run.
        approved_by: Option<Author>,
    },
    /// The one result of a call.
    ToolResult {
        /// Which call.
        call: CallId,
        /// Whether the tool did what it was asked.
        ok: bool,
        /// What the model reads.
        content: Content,
    },
    /// A call waits for an answer.
    Suspension {
        /// Which call; minted where no tool call is meant.
        call: CallId,
        /// What is asked.
        #[serde(flatten)]
        question: Question,
        /// When the question lapses.
        expires: Timestamp,
    },
    /// A suspended call was answered.
    Resolution {
        /// Which call.
        call: CallId,
        /// The answer.
        decision: Resolved,
        /// Who gave it.
        by: Author,
        /// Why.
        reason: Option<Text>,
    },
    /// Stop hooks refused to let the turn end.
    StopFeedback {
        /// Every refusal, in registration order.
        refusals: Vec<Refusal>,
    },
    /// The turn is over.
    TurnEnded(TurnEnded),
}

impl EventKind {
    /// Its `type` in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UserMessage { .. } => "user_message",
            Self::Injection { .. } => "injection",
            Self::AssistantMessage { .. } => "assistant_message",
            Self::ToolCall { .. } => "tool_call",
            Self::ToolStarted { .. } => "tool_started",
            Self::ToolResult { .. } => "tool_result",
            Self::Suspension { .. } => "suspension",
            Self::Resolution { .. } => "resolution",
            Self::StopFeedback { .. } => "stop_feedback",
            Self::TurnEnded(_) => "turn_ended",
        }
    }

    /// The id that it brings into the conversation: of a tool call, or of a question.
    pub fn names_call(&self) -> Option<&CallId> {
        match self {
            Self::ToolCall { call, .. } | Self::Suspension { call, .. } => Some(call),
            _ => None,
        }
    }
}

/// Which turn a durable injection stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectionTarget {
    /// The turn under way.
    ThisTurn,
    /// The one after it.
    NextTurn,
}

/// One refused stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which hook refused.
    pub hook: Text,
    /// What the model must do about it.
    pub feedback: Text,
}

/// What a suspension asks, and of whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "prompt", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// May this run? For a whole reply `tool` is null and `arguments` hold the reply.
    Approval {
        /// The tool.
        tool: Option<Text>,
        /// The arguments it would run with.
        arguments: Arc<Value>,
        /// What an approval is bound to.
        digest: Text,
        /// Why it is asked.
        why: Option<Text>,
    },
    /// A person's answer is the result.
    Elicitation {
        /// What the person is asked.
        question: Text,
        /// What the answer must look like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Arc<Value>>,
    },
    /// A browser or an editor runs it.
    ClientExec {
        /// The tool.
        tool: Text,
        /// The arguments to run it with.
        arguments: Arc<Value>,
    },
    /// A stop hook wants a person to look. Approve ends the turn, deny refuses the stop.
    Pause {
        /// Which hook.
        hook: Text,
        /// Why.
        reason: Text,
    },
}

/// How a suspension ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolved {
    /// Yes.
    Approved,
    /// No.
    Denied,
    /// With a result.
    Answered,
    /// Nobody answered in time.
    Expired,
    /// The turn was cancelled.
    Cancelled,
}

/// How a turn came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The model answered and nobody objected for good.
    Completed,
    /// A hook ended it.
    Halted,
    /// A guard would not let any reply through.
    Rejected,
    /// A limit of the turn was reached.
    Exhausted,
    /// Somebody stopped it.
    Cancelled,
    /// The runtime, the model or a blocking hook could not go on.
    Failed,
}

impl Outcome {
    /// Whether later turns' models see this turn.
    pub fn joins_history(self) -> bool {
        !matches!(self, Self::Halted | Self::Rejected)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Halted => "halted",
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        })
    }
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEnded {
    /// How it came out.
    pub outcome: Outcome,
    /// Why, if not plainly completed.
    pub reason: Option<Text>,
    /// Who ended it, if not the model.
    pub by: Option<Author>,
    /// The result shown, if an `after_agent` hook changed it.
    pub result: Option<Arc<Value>>,
    /// What went wrong without ending the turn.
    pub warnings: Vec<Warning>,
    /// Attempts that reached a model.
    pub model_calls: u32,
    /// Over all attempts.
    pub usage: Usage,
    /// Dollars, over all attempts of models with a known price.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub cost: f64,
    /// Time the turn was at work, waiting left out.
    pub ms: u64,
}

fn is_nothing(cost: &f64) -> bool {
    *cost <= 0.0
}

/// Something that people should know about a turn that went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The hook it is about.
    pub hook: Option<Text>,
    /// What happened.
    pub text: Text,
}
