//! The log: what happened, in order. Events are the truth; everything else is told or derived.

mod approvals;
mod arguments;
mod ended;
mod extras;
mod question;
mod sharing;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::approvals::Approvals;
pub use self::arguments::Arguments;
pub use self::ended::{EndDetails, TurnEnded, Warning};
pub use self::extras::ReplyExtras;
pub use self::question::{Evidence, Question, Resolved, StandingBasis};
pub(crate) use self::sharing::share_repeated;
use crate::access::AnswerRule;
use crate::clock::Timestamp;
pub use crate::digest::CallDigest;
use crate::id::{CallId, TurnId};
use crate::message::{Content, StopReason, Text, Usage};
use crate::point::Point;
use crate::scope::Author;

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

/// What happened. What is large and rare in it stands in a box: every event of a conversation in memory has room for the largest
/// kind.
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
        /// The tokens of this attempt.
        usage: Usage,
        /// Dollars that this attempt cost, if the model's prices are known.
        #[serde(default, skip_serializing_if = "is_nothing")]
        cost: f64,
        /// What few replies have: an object, annotations. See [`ReplyExtras::boxed`].
        #[serde(flatten, with = "extras::fields")]
        extras: Option<Box<ReplyExtras>>,
        /// The model that answered, by the name people chose it by.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Text>,
    },
    /// The model asked for a tool.
    ToolCall {
        /// The call's id.
        call: CallId,
        /// The tool's name.
        name: Text,
        /// As the model gave them.
        arguments: Arguments,
        /// Who runs the tool.
        executor: Executor,
    },
    /// A server tool is about to have its effect.
    ToolStarted {
        /// The call's id.
        call: CallId,
        /// The arguments it runs with.
        arguments: Arguments,
        /// The digest of tool, effective arguments and conversation.
        digest: CallDigest,
        /// Whose approvals let it run, if it needed any.
        #[serde(flatten, with = "approvals::fields")]
        approvals: Option<Box<Approvals>>,
    },
    /// The one result of a call.
    ToolResult {
        /// The call's id.
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
        question: Box<Question>,
        /// When the question lapses.
        expires: Timestamp,
        /// Who may answer, if the agent that asks has a rule for it.
        #[serde(default, rename = "answer_by", skip_serializing_if = "Option::is_none")]
        rule: Option<Arc<AnswerRule>>,
    },
    /// A suspended call was answered.
    Resolution {
        /// The call's id.
        call: CallId,
        /// The answer.
        decision: Resolved,
        /// Who gave it.
        by: Author,
        /// The reason that was given.
        reason: Option<Text>,
        /// What the answer was about, and how it came.
        #[serde(flatten)]
        evidence: Box<Evidence>,
    },
    /// Stop hooks refused to let the turn end.
    StopFeedback {
        /// Every refusal, in registration order.
        refusals: Vec<Refusal>,
    },
    /// The turn is over.
    TurnEnded(Arc<TurnEnded>),
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

    /// The call that a person or a client answers with this event, so that no further answer can be given. What the system
    /// resolves by itself, because nobody answered in time or the turn is over, is no answer.
    pub fn answers(&self) -> Option<&CallId> {
        match self {
            Self::Resolution { evidence, .. } if evidence.open || evidence.standing.is_some() => None,
            Self::Resolution { call, decision: Resolved::Approved | Resolved::Denied | Resolved::Answered, .. } => {
                Some(call)
            }
            _ => None,
        }
    }

    /// The id of the standing approval that was used in the place of an answer.
    pub fn uses_standing(&self) -> Option<&Text> {
        match self {
            Self::Resolution { evidence, .. } => evidence.standing.as_ref(),
            _ => None,
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

/// Who runs a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// Your code, in this process.
    Server,
    /// A person: the answer is the result.
    Human,
    /// A browser or an editor; its result is not trusted.
    Client,
    /// The model's host, before the reply came.
    Provider,
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
    /// It was cancelled.
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

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_nothing(cost: &f64) -> bool {
    *cost <= 0.0
}

/// Why a turn ended as it did, or what a warning is about, for programs: the text beside it is for people and may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// A hook failed (error, panic, timeout), and its failure blocks. In a warning: it failed and was ignored.
    HookFailed {
        /// The hook's name.
        hook: Text,
        /// Where it failed.
        point: Point,
    },
    /// A hook failed with [`MustBlock`](crate::hook::MustBlock): it blocks whatever its `on_failure` says. Its program changed
    /// since it was accepted, for instance.
    HookMustBlock {
        /// The hook's name.
        hook: Text,
        /// Where it failed.
        point: Point,
    },
    /// A hook failed with [`Mismatched`](crate::hook::Mismatched): it is not what its configuration says, and blocks whatever its
    /// `on_failure` says.
    HookMismatched {
        /// The hook's name.
        hook: Text,
        /// Where it failed.
        point: Point,
    },
    /// A hook ended the turn on purpose.
    HookDecided {
        /// The hook's name.
        hook: Text,
        /// Where it decided so.
        point: Point,
    },
    /// Hooks added more than the injection reserve allows.
    InjectionOverflow {
        /// The hook that crossed the line.
        hook: Text,
        /// What hooks added together, in tokens.
        size: u64,
        /// The reserve, in tokens.
        reserve: u64,
    },
    /// What the next model call needs does not fit into the context.
    ContextTooLarge {
        /// What it would hold, in tokens.
        size: u64,
        /// What `context_tokens` allows.
        limit: u64,
    },
    /// A limit of the turn was reached.
    Limit {
        /// The limit's name in the configuration.
        limit: Text,
    },
    /// The model did not answer.
    Model {
        /// The HTTP status, if there was one.
        status: Option<u16>,
        /// In which way it failed.
        error: ModelErrorKind,
    },
    /// The reply was sent back as often as allowed, and the last one did not pass either.
    Regenerations {
        /// The hook that asked last.
        hook: Text,
        /// How many regenerations were allowed.
        limit: u32,
    },
    /// The reply does not fit the schema that was asked for.
    SchemaMismatch,
    /// A person did not approve the reply.
    NotApproved,
    /// Nobody answered in time.
    Expired,
    /// A refused stop was overruled, because it was refused as often as allowed or because nothing changed.
    Overruled {
        /// The hook that refused.
        hook: Text,
    },
    /// The model refused to answer.
    Refusal,
    /// The reply was cut off at the length a reply may have.
    Truncated,
    /// The call that a sub-agent worked for is over.
    CallOver,
    /// The agent has changed since the turn began.
    AgentChanged,
    /// The context was made smaller twice, and nothing was said or done in between.
    RepeatedCompaction,
    /// The provider's prompt cache broke again and again for the same reason.
    CacheBreaks {
        /// The hook, the setting or the reducers that broke it.
        culprit: Text,
    },
}

/// In which way a model call failed: the kinds of [`ModelError`](crate::model::ModelError).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// The provider answered with a status that is not success.
    Status,
    /// The request has more tokens than the model takes.
    TooLong,
    /// The connection failed or broke off.
    Transport,
    /// Nothing came for too long.
    Stalled,
    /// What came back cannot be understood.
    Protocol,
    /// The model's code panicked.
    Panicked,
    /// A script has no reply left for this call.
    ScriptExhausted,
    /// A hook around the call failed.
    Hook,
    /// A hook around the call did not let it through.
    NotAsked,
    /// One or several models were asked, and none answered.
    ModelsFailed,
    /// A model failed after text of it was shown, so the models behind it were not asked.
    TextShown,
    /// The turn allows no further call.
    Exhausted,
    /// The turn was cancelled.
    Cancelled,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conversation in memory has hundreds of events, and each has room for the largest kind.
    #[test]
    fn an_event_takes_little_room() {
        assert!(size_of::<Event>() <= 136, "{}", size_of::<Event>());
    }
}
