//! The event feed: log and live events in one order, and the view that people have of them.

mod event_feed;
mod held;
pub mod projection;
mod queue;
mod ring;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use event_feed::{Delivery, Subscription};
pub(crate) use event_feed::{EventFeed, Look};
pub(crate) use queue::Queue;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::cut::{Cut, LeftOutSteps};
use crate::event::Event;
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::point::Point;
use crate::record::{Decision, Record};
use crate::scope::Author;

/// The place of an event in the order of all log and live events of a conversation: `EPOCH-POSITION`. A new writer begins
/// a new epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// The writer's claim.
    pub epoch: u64,
    /// The position within the epoch, from 1.
    pub position: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.position)
    }
}

impl FromStr for Cursor {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (epoch, position) = text.split_once('-').ok_or("a cursor is EPOCH-POSITION")?;
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        Ok(Self { epoch: number(epoch)?, position: number(position)? })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// An event that is not in the log: losing one loses nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields say what they are; the table in the docs has the rest")]
#[non_exhaustive]
pub enum LiveEvent {
    /// The turn entered a stage, or the conversation came to rest.
    StateChanged { state: ConversationState },
    /// A message was taken up.
    TurnStarted { agent: Text, by: Author },
    /// A piece of the answer.
    TextDelta { attempt: u32, text: Text },
    /// A piece of thought.
    ThinkingDelta { attempt: u32, text: Text },
    /// What was told of this attempt is taken back.
    AttemptDiscarded {
        attempt: u32,
        by: Option<Author>,
        reason: Option<Text>,
        /// Whether a hook put another reply in its place, which follows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaced: bool,
    },
    /// A tool says how far it is; a string is its status line.
    ToolProgress { call: CallId, payload: Arc<Value> },
    /// A hook did not finish at once.
    HookStarted { hook: Text, point: Point },
    /// A hook says what it is doing.
    HookProgress { hook: Text, text: Text },
    /// A hook that was started, decided something, or failed.
    HookFinished {
        hook: Text,
        point: Point,
        decision: Decision,
        #[serde(default)]
        reason: Option<Text>,
        ms: f64,
        tokens: u32,
        error: Option<Text>,
    },
    /// A background hook began.
    BackgroundStarted { hook: Text },
    /// A background hook ended.
    BackgroundFinished { hook: Text, error: Option<Text> },
    /// A next prompt, proposed.
    Suggestion { text: Text },
    /// The context became too large, and older parts of it are not shown to the model any more. See
    /// [`Cut`](crate::context::Cut) for the fields.
    Compacted {
        made_at: u64,
        first: u64,
        turns: u32,
        results: u32,
        #[serde(default, skip_serializing_if = "is_zero")]
        calls: u32,
        #[serde(default, skip_serializing_if = "is_zero")]
        steps: u32,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_out: Vec<LeftOutSteps>,
        before: u64,
        after: u64,
        /// Messages that are left.
        messages: u64,
        reducers: Vec<Text>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<u32>,
    },
    /// Something a person should know.
    Notice { level: Level, text: Text, hook: Option<Text> },
    /// A lossy viewer missed so many events: take a new snapshot.
    Lagged { missed: u64 },
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl LiveEvent {
    /// Its `type` in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::StateChanged { .. } => "state_changed",
            Self::TurnStarted { .. } => "turn_started",
            Self::TextDelta { .. } => "text_delta",
            Self::ThinkingDelta { .. } => "thinking_delta",
            Self::AttemptDiscarded { .. } => "attempt_discarded",
            Self::ToolProgress { .. } => "tool_progress",
            Self::HookStarted { .. } => "hook_started",
            Self::HookProgress { .. } => "hook_progress",
            Self::HookFinished { .. } => "hook_finished",
            Self::BackgroundStarted { .. } => "background_started",
            Self::BackgroundFinished { .. } => "background_finished",
            Self::Suggestion { .. } => "suggestion",
            Self::Compacted { .. } => "compacted",
            Self::Notice { .. } => "notice",
            Self::Lagged { .. } => "lagged",
        }
    }

    pub(crate) fn compacted(cut: &Cut, messages: usize) -> Self {
        let Cut { made_at, first, turns, results, calls, steps, before, after, summary, .. } = *cut;
        let (messages, reducers, left_out) = (messages as u64, cut.reducers.clone(), cut.left_out.clone());
        Self::Compacted {
            made_at,
            first,
            turns,
            results,
            calls,
            steps,
            left_out,
            before,
            after,
            messages,
            reducers,
            summary,
        }
    }

    pub(crate) fn hook_finished(record: &Record) -> Self {
        Self::HookFinished {
            hook: record.hook.clone(),
            point: record.point,
            decision: record.decision,
            reason: record.reason.clone(),
            ms: record.took.as_micros() as f64 / 1000.0,
            tokens: record.tokens,
            error: record.failure.clone(),
        }
    }
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Good to know.
    Info,
    /// Should be looked at.
    Warning,
}

/// A conversation's state: its turn's stage, or `idle`, or `waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "named by the stages")]
pub enum ConversationState {
    #[default]
    Idle,
    Waiting,
    Accept,
    Build,
    Call,
    Dispatch,
    End,
}

/// One event of the feed: a log event or a live event. Cheap to clone: what is large in it is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedEvent {
    /// The conversation it belongs to.
    pub conversation: ConversationId,
    /// The turn it belongs to; none between turns.
    pub turn: Option<TurnId>,
    /// Its place in the order.
    pub cursor: Cursor,
    /// When it happened.
    pub at: Timestamp,
    /// The event itself.
    pub item: FeedItem,
}

impl FeedEvent {
    /// A log event as it is told to those who read it later: no writer has the epoch 0.
    pub fn read_back(conversation: &ConversationId, event: Arc<Event>) -> Self {
        Self {
            conversation: conversation.clone(),
            turn: Some(event.turn.clone()),
            cursor: Cursor { epoch: 0, position: event.seq },
            at: event.at,
            item: FeedItem::Log(event),
        }
    }
}

/// A log event or a live event.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedItem {
    /// It is in the log.
    Log(Arc<Event>),
    /// It is not in the log.
    Live(LiveEvent),
}

impl FeedItem {
    /// Its `type` in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Log(event) => event.kind.name(),
            Self::Live(live) => live.name(),
        }
    }
}

impl Serialize for FeedEvent {
    /// The JSON line of `run --json`, `show --json` and the server's stream.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Line<'a, T> {
            plane: &'static str,
            conversation: &'a ConversationId,
            turn: &'a Option<TurnId>,
            cursor: Cursor,
            at: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            seq: Option<u64>,
            #[serde(flatten)]
            what: &'a T,
        }
        let Self { conversation, turn, cursor, at, item } = self;
        let (cursor, at) = (*cursor, *at);
        match item {
            FeedItem::Log(event) => {
                let (seq, what) = (Some(event.seq), &event.kind);
                Line { plane: "log", conversation, turn, cursor, at, seq, what }.serialize(serializer)
            }
            FeedItem::Live(what) => {
                Line { plane: "live", conversation, turn, cursor, at, seq: None, what }.serialize(serializer)
            }
        }
    }
}
