//! The points of a turn, by name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where in a turn a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u16)]
#[non_exhaustive]
pub enum Point {
    /// A conversation started, was revived, or ended.
    OnConversation,
    /// Once a turn, on the incoming message.
    BeforeAgent,
    /// Before each model call.
    BeforeModel,
    /// Around each model call.
    WrapModelCall,
    /// On each chunk.
    Stream,
    /// A reply is complete.
    AfterModel,
    /// Before each tool call.
    BeforeTool,
    /// Around each tool.
    WrapToolCall,
    /// On each result.
    AfterTool,
    /// The model says it is done.
    OnStop,
    /// The turn is settled.
    AfterAgent,
    /// After a completed turn, aside.
    Background,
    /// Every turn, whatever the outcome.
    OnEnded,
    /// Every event of both planes.
    OnEvent,
}

impl Point {
    /// All, in the order of a turn.
    pub const ALL: [Self; 14] = [
        Self::OnConversation,
        Self::BeforeAgent,
        Self::BeforeModel,
        Self::WrapModelCall,
        Self::Stream,
        Self::AfterModel,
        Self::BeforeTool,
        Self::WrapToolCall,
        Self::AfterTool,
        Self::OnStop,
        Self::AfterAgent,
        Self::Background,
        Self::OnEnded,
        Self::OnEvent,
    ];

    /// As in records, events and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnConversation => "on_conversation",
            Self::BeforeAgent => "before_agent",
            Self::BeforeModel => "before_model",
            Self::WrapModelCall => "wrap_model_call",
            Self::Stream => "stream",
            Self::AfterModel => "after_model",
            Self::BeforeTool => "before_tool",
            Self::WrapToolCall => "wrap_tool_call",
            Self::AfterTool => "after_tool",
            Self::OnStop => "on_stop",
            Self::AfterAgent => "after_agent",
            Self::Background => "background",
            Self::OnEnded => "on_ended",
            Self::OnEvent => "on_event",
        }
    }

    /// What a hook's own failure means here unless it says otherwise.
    pub fn default_on_failure(self) -> super::OnFailure {
        use super::OnFailure::{Block, Ignore};
        match self {
            Self::BeforeAgent | Self::BeforeModel | Self::AfterModel | Self::BeforeTool | Self::AfterTool => Block,
            Self::WrapModelCall | Self::WrapToolCall | Self::Stream => Block,
            Self::OnConversation | Self::OnStop | Self::AfterAgent => Ignore,
            Self::Background | Self::OnEnded | Self::OnEvent => Ignore,
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of points.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Points(u16);

impl Points {
    /// With this one, if `on`.
    pub(crate) fn set(self, point: Point, on: bool) -> Self {
        if on { Self(self.0 | 1 << point as u16) } else { self }
    }

    /// Those that both hold.
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether it holds the point.
    pub fn contains(self, point: Point) -> bool {
        self.0 & 1 << point as u16 != 0
    }

    /// In the order of a turn.
    pub fn iter(self) -> impl Iterator<Item = Point> {
        Point::ALL.into_iter().filter(move |point| self.contains(*point))
    }
}

impl FromIterator<Point> for Points {
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> Self {
        points.into_iter().fold(Self::default(), |set, point| set.set(point, true))
    }
}

impl fmt::Debug for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
