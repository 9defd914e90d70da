//! What is recorded when a request does not begin like the one before it: the provider's prompt cache covers the part that is
//! the same, and the rest is read anew.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::TurnId;
use crate::message::Text;
use crate::point::Point;

/// A segment of a request, in the order in which providers cache it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// The tools that are offered.
    Tools,
    /// The system prompt.
    System,
    /// The summary in the place of older turns.
    Summary,
    /// Earlier turns.
    History,
    /// The message that opened the turn.
    UserMessage,
    /// What hooks added to it for this turn.
    TurnInjections,
    /// The calls and results of this turn, and messages that steered it.
    Calls,
    /// What hooks added for this call, and a reply that was sent back. The next call does not have it, so its change is no
    /// break.
    CallInjections,
}

impl Segment {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Tools,
        Self::System,
        Self::Summary,
        Self::History,
        Self::UserMessage,
        Self::TurnInjections,
        Self::Calls,
        Self::CallInjections,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::System => "system prompt",
            Self::Summary => "summary",
            Self::History => "history",
            Self::UserMessage => "user message",
            Self::TurnInjections => "turn's injections",
            Self::Calls => "calls and results",
            Self::CallInjections => "call's injections",
        }
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a segment of a request ends. Stored as a list of numbers, because it is stored with every reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u32, u32)", into = "(u64, u64, u64, u32, u32)")]
pub struct SegmentMark {
    /// Of everything before it in the request, as far as tools, system prompt or messages go: those three are hashed apart.
    pub hash: u64,
    /// Bytes of text before it in the request.
    pub bytes: u64,
    /// Estimated tokens before it in the request.
    pub tokens: u64,
    /// How many messages are before it.
    pub messages: u32,
    /// How many pieces of the last of them: its parts and its calls.
    pub pieces: u32,
}

impl From<(u64, u64, u64, u32, u32)> for SegmentMark {
    fn from((hash, bytes, tokens, messages, pieces): (u64, u64, u64, u32, u32)) -> Self {
        Self { hash, bytes, tokens, messages, pieces }
    }
}

impl From<SegmentMark> for (u64, u64, u64, u32, u32) {
    fn from(mark: SegmentMark) -> Self {
        (mark.hash, mark.bytes, mark.tokens, mark.messages, mark.pieces)
    }
}

/// What the next request is compared with. The last one of each conversation is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentRequest {
    /// The turn it belongs to.
    pub turn: TurnId,
    /// The seq of the last event when it was made.
    pub made_at: u64,
    /// When the reply came.
    pub at: Timestamp,
    /// The model that replied.
    pub model: Text,
    /// The ends of its segments, in the order of [`Segment::ALL`].
    pub ends: [SegmentMark; 8],
    /// The hook that changed it, after it was assembled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<(Text, Point)>,
    /// Hooks whose additions leave with the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injected_by: Vec<Text>,
    /// Tokens that the provider has in its cache since then, as it reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// How often the cache broke for the same reason, turn after turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
}

/// Breaks with the same culprit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// Whose doing they are, as [`BreakCause::culprit`] says.
    pub culprit: Text,
    /// How many, with no turn in between that had none.
    pub count: u32,
    /// The turn of the last one.
    pub turn: TurnId,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl SentRequest {
    /// Estimated tokens of one segment.
    pub fn tokens_of(&self, segment: Segment) -> u64 {
        let place = segment as usize;
        let before = place.checked_sub(1).map_or(0, |before| self.ends[before].tokens);
        self.ends[place].tokens.saturating_sub(before)
    }
}

/// A request whose beginning was not that of the one before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheBreak {
    /// The turn whose model call it was.
    pub turn: TurnId,
    /// The seq of the last event when the request was made: the reply is the next one behind it.
    pub made_at: u64,
    /// The segment with the first change, as the request before had it.
    pub segment: Segment,
    /// The first byte that changed, counted over the texts of the request: tools, system prompt, messages.
    pub byte: u64,
    /// Whether that is the very byte. Otherwise it is where the segment begins: the text that was sent before is not stored.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub exact: bool,
    /// Tokens before that byte: the provider can read them from its cache.
    pub kept: u64,
    /// Tokens behind it that were sent again and had to be read anew.
    pub lost: u64,
    /// What that cost at list prices, in dollars; 0 if prices are not known.
    #[serde(default)]
    pub cost: f64,
    /// Tokens that the provider says it read from its cache.
    #[serde(default)]
    pub read: u64,
    /// Tokens of the request, as the provider counted them; 0 if it did not say.
    #[serde(default)]
    pub input: u64,
    /// Tokens that the provider had in its cache after the call before, as it reported then.
    #[serde(default)]
    pub cached: u64,
    /// Who or what moved the byte.
    pub cause: BreakCause,
    /// Tokens of tools and system prompt before and now, if they changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<FixedTokens>,
}

fn yes() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

/// Estimated tokens of what is the same in every request of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedTokens {
    /// Of the tools, before.
    pub tools_before: u64,
    /// Of the system prompt, before.
    pub system_before: u64,
    /// Of the tools, now.
    pub tools: u64,
    /// Of the system prompt, now.
    pub system: u64,
}

/// Who or what changed the beginning of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum BreakCause {
    /// Another model was asked. Each has a cache of its own.
    Model {
        /// The one before.
        from: Text,
        /// The one now.
        to: Text,
    },
    /// A setting of the agent has changed: `tools`, `system`, or `schema` for a turn that asks for an object.
    Setting {
        /// Its name.
        setting: Text,
    },
    /// A hook changed the request, or had changed the one before.
    Hook {
        /// Its name.
        hook: Text,
        /// Where it did.
        point: Point,
    },
    /// Reducers made the context smaller.
    Reducers {
        /// Their names.
        reducers: Vec<Text>,
    },
    /// What hooks had added for the turn before left with that turn.
    TurnOver {
        /// Their names.
        hooks: Vec<Text>,
    },
    /// The turn before was halted or rejected, and adds nothing to later contexts.
    TurnDiscarded,
    /// Nothing changed, and the provider read less from its cache than it had: it may have expired.
    Provider {
        /// Seconds since the reply before.
        idle: u64,
    },
    /// It cannot be told.
    Unknown,
}

impl BreakCause {
    /// Whose doing it is, in a word: a hook's name, a setting's, the reducers'.
    pub fn culprit(&self) -> Text {
        match self {
            Self::Model { .. } => "model".into(),
            Self::Setting { setting } => setting.clone(),
            Self::Hook { hook, .. } => hook.clone(),
            Self::Reducers { reducers } => reducers.join(", ").into(),
            Self::TurnOver { hooks } => hooks.join(", ").into(),
            Self::TurnDiscarded => "a turn that was not kept".into(),
            Self::Provider { .. } => "the provider".into(),
            Self::Unknown => "unknown".into(),
        }
    }

    /// Whether it is worth a warning if it happens turn after turn. What leaves with its turn costs only the turn before.
    pub(crate) fn is_worth_a_warning(&self) -> bool {
        !matches!(self, Self::TurnOver { .. } | Self::TurnDiscarded | Self::Provider { .. })
    }

    fn words(&self) -> String {
        match self {
            Self::Model { from, to } => format!("{to} was asked instead of {from}"),
            Self::Setting { setting } if &**setting == "schema" => {
                "the turn asks for an object, so no tools are offered, or the one before did".to_owned()
            }
            Self::Setting { setting } => format!("the {setting} setting of the agent has changed"),
            Self::Hook { hook, point } => format!("hook {hook} changed it at {point}"),
            Self::Reducers { reducers } if reducers.is_empty() => "the context was made smaller".to_owned(),
            Self::Reducers { reducers } => format!("{} made the context smaller", reducers.join(", ")),
            Self::TurnOver { hooks } => {
                format!("what {} had added for the turn before left with that turn", hooks.join(", "))
            }
            Self::TurnDiscarded => "the turn before was halted or rejected, and left the history".to_owned(),
            Self::Provider { idle } => {
                format!(
                    "nothing had changed, {} after the last call; the provider's cache may have expired",
                    time(*idle)
                )
            }
            Self::Unknown => "what changed it is not known".to_owned(),
        }
    }
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

impl CacheBreak {
    /// What happened, for people: `system prompt, byte 1204: hook clock changed it at wrap_model_call; 3100 tokens read anew, $0.0084`.
    pub fn summary(&self) -> String {
        let from = if self.exact { "byte" } else { "at or behind byte" };
        let cost = if self.cost > 0.0 { format!(", ${:.4} at list prices", self.cost) } else { String::new() };
        let says = self.comparison().map(|says| format!("; {says}")).unwrap_or_default();
        format!(
            "{}, {from} {}: {}; {} tokens read anew{cost}{says}",
            self.segment,
            self.byte,
            self.cause.words(),
            self.lost
        )
    }

    /// How it compares with what the provider reports; `None` if it reports nothing about a cache.
    pub fn comparison(&self) -> Option<String> {
        if self.input == 0 || (self.read == 0 && self.cached == 0) {
            return None;
        }
        if matches!(self.cause, BreakCause::Provider { .. }) {
            return Some(format!("the provider read {} of {} cached tokens", self.read, self.cached));
        }
        // An estimate is off by some percent, and providers cache in blocks.
        let most = self.kept + self.kept / 5 + 1024;
        Some(match self.read > most {
            true => format!("but the provider says that it read {} tokens from its cache", self.read),
            false => format!("the provider read {} tokens from its cache", self.read),
        })
    }
}
