//! The points of a turn, from one table.
//!
//! Adding a point means: a row in `with_points!`, a method with its default on the [`Hook`](crate::hook::Hook) trait,
//! and the stage that runs it. Everything else (names, sets of points, chains, the object-safe trait, the detection of
//! implemented points) is made from the table.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Calls `$callback!` with every point, in the order of a turn: documentation, variant, method, default failure policy,
/// and what the method is given and returns. Points marked `special` have a signature of their own.
macro_rules! with_points {
    ($callback:ident) => {
        $callback! {
            /// A conversation started, was revived, or ended.
            OnConversation, on_conversation, Ignore, (mut context: OnConversationContext) -> ();
            /// Once a turn, on the incoming message.
            BeforeAgent, before_agent, Block, (mut turn: BeforeAgentContext) -> BeforeAgent;
            /// Before each model call.
            BeforeModel, before_model, Block, (mut turn: BeforeModelContext) -> BeforeModel;
            /// Around each model call.
            WrapModelCall, wrap_model_call, Block, special;
            /// On each chunk of a reply.
            Stream, stream, Block, special;
            /// A reply is complete.
            AfterModel, after_model, Block, (ref turn: Turn, ref reply: Arc<Reply>) -> AfterModel;
            /// Before each tool call.
            BeforeTool, before_tool, Block, (ref turn: Turn, ref call: ToolCall) -> BeforeTool;
            /// Around each tool.
            WrapToolCall, wrap_tool_call, Block, special;
            /// On each result.
            AfterTool, after_tool, Block, (ref turn: Turn, ref call: ToolCall, ref output: Output) -> AfterTool;
            /// The model says it is done.
            OnStop, on_stop, Ignore, (ref turn: OnStopContext) -> OnStop;
            /// The turn is settled.
            AfterAgent, after_agent, Ignore, (mut turn: AfterAgentContext) -> AfterAgent;
            /// After a completed turn, in the background.
            Background, background, Ignore, (ref context: BackgroundContext) -> ();
            /// A summary of the oldest turns is about to be made, between turns.
            BeforeCompaction, before_compaction, Block, (mut context: BeforeCompactionContext) -> BeforeCompaction;
            /// Every turn, whatever the outcome.
            OnEnded, on_ended, Ignore, (ref report: TurnReport) -> ();
            /// Log events of chosen types, from the outbox.
            OnLogged, on_logged, Ignore, (ref context: LoggedContext) -> ();
            /// Every log and live event.
            OnEvent, on_event, Ignore, (ref event: FeedEvent) -> ();
        }
    };
}
pub(crate) use with_points;

/// What a hook's own failure (error, panic, timeout) means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The turn fails, or the call ends with an error result; the hook is named.
    Block,
    /// The turn goes on as if the hook were not there; the record has the failure.
    Ignore,
}

macro_rules! define_points {
    ($($(#[$doc:meta])* $Point:ident, $name:ident, $policy:ident, $(special)? $(($($signature:tt)*) -> $decision:ty)?;)+) => {
        /// Where in a turn a hook runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Point {
            $($(#[$doc])* $Point,)+
        }

        impl Point {
            /// All points, in the order of a turn.
            pub const ALL: [Self; [$(Self::$Point),+].len()] = [$(Self::$Point),+];

            /// The name used in records, events and configuration.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Point => stringify!($name),)+
                }
            }

            /// What a hook's own failure means here unless the hook says otherwise.
            pub fn default_on_failure(self) -> OnFailure {
                match self {
                    $(Self::$Point => OnFailure::$policy,)+
                }
            }
        }
    };
}
with_points!(define_points);

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of points.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Points(u32);

impl Points {
    /// This set with `point` added if `on`.
    pub(crate) fn set(self, point: Point, on: bool) -> Self {
        if on { Self(self.0 | 1 << point as u32) } else { self }
    }

    /// The points that are in both sets.
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether `point` is in the set.
    pub fn contains(self, point: Point) -> bool {
        self.0 & 1 << point as u32 != 0
    }

    /// The points of the set, in the order of a turn.
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
