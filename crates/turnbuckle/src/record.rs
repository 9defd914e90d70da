//! What a run of a hook leaves behind. Records are stored with the log, keyed by turn.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BoxError;
use crate::change::Change;
use crate::id::CallId;
use crate::message::Text;
use crate::point::Point;

/// The longest reason or failure in a record, in bytes.
const MAX_TEXT: usize = 4 << 10;

/// One run of one hook at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The point it ran at.
    pub point: Point,
    /// The hook's name.
    pub hook: Text,
    /// What it decided.
    pub decision: Decision,
    /// How long it took; to some milliseconds for a hook that never awaited.
    pub took: Duration,
    /// Tokens it added to the context.
    pub tokens: u32,
    /// Tokens it wanted to add and that did not fit into the reserve.
    pub shed: u32,
    /// The call it ran for, at the tool points.
    pub call: Option<CallId>,
    /// What went wrong, if it failed: at most 4 KiB of it.
    pub failure: Option<Text>,
    /// Why it decided so, in the hook's own words: the reason of a halt, a denial, a regeneration, a refusal. At most 4 KiB of
    /// it; what the model reads of it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// How a program that the hook ran ended, by a name that the hook documents: `ok`, `timeout`. Only records that a hook adds
    /// itself have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Text>,
    /// The digest of what it was given. Only an audit has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Text>,
    /// What it changed; `None` if nothing, and of what a hook adds itself. In a box: most runs of hooks change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Box<Change>>,
}

impl Record {
    /// A record with nothing but a decision; the other fields can be set.
    pub fn new(point: Point, hook: Text, decision: Decision, took: Duration) -> Self {
        let (call, failure, reason, outcome, input) = (None, None, None, None, None);
        Self { point, hook, decision, took, tokens: 0, shed: 0, call, failure, reason, outcome, input, change: None }
    }

    /// A text for a record, cut to a length that a log and a viewer can take for every run of a hook.
    pub(crate) fn cut(text: Text) -> Text {
        if text.len() <= MAX_TEXT {
            return text;
        }
        let end = text.floor_char_boundary(MAX_TEXT);
        format!("{}… ({} bytes in all)", &text[..end], text.len()).into()
    }

    /// Counts tokens that did not fit into the reserve.
    pub(crate) fn shed(&mut self, tokens: u32) {
        self.shed += tokens;
        self.tokens = self.tokens.saturating_sub(tokens);
    }
}

macro_rules! decisions {
    ($($(#[$doc:meta])* $Decision:ident = $name:literal,)+) => {
        /// What a hook decided, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Decision {
            $($(#[$doc])* #[serde(rename = $name)] $Decision,)+
        }

        impl Decision {
            /// The name in lower case, as records and events have it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$Decision => $name,)+ }
            }
        }
    };
}

decisions! {
    /// No objection.
    Continue = "continue",
    /// The turn, or the rest of the chain, ends here.
    Halt = "halt",
    /// The turn ends here and the message is not kept.
    Erase = "erase",
    /// The calls of a reply need no further approval.
    Approve = "approve",
    /// A person decides.
    Ask = "ask",
    /// The reply is rejected.
    Reject = "reject",
    /// The reply or the result was changed.
    Modify = "modify",
    /// Another reply is asked for.
    Regenerate = "regenerate",
    /// The arguments were changed.
    Rewrite = "rewrite",
    /// The call does not run.
    Deny = "deny",
    /// The hook gave the result.
    Answer = "answer",
    /// The turn may end.
    Accept = "accept",
    /// The turn may end; the next turn's model reads something.
    Advise = "advise",
    /// The turn may not end yet.
    Refuse = "refuse",
    /// A person decides whether the turn may end.
    Pause = "pause",
    /// The turn ends halted.
    Prevent = "prevent",
    /// No summary is made.
    Skip = "skip",
    /// A wrap ran.
    Wrap = "wrap",
    /// The hook failed and decided nothing.
    Failed = "failed",
    /// The turn was cancelled while the hook ran.
    Cancelled = "cancelled",
}

impl Decision {
    /// Whether the hook just let things pass: viewers are not told of that.
    pub(crate) fn is_quiet(self) -> bool {
        matches!(self, Self::Continue | Self::Accept)
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How a hook failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HookFailure {
    /// It returned an error.
    Error(Arc<dyn std::error::Error + Send + Sync>),
    /// It panicked.
    Panicked(String),
    /// It took too long and was dropped.
    TimedOut(Duration),
}

impl HookFailure {
    /// Whether it blocks whatever `on_failure` says: its error is, or comes from, a [`MustBlock`] or a [`Mismatched`].
    pub fn must_block(&self) -> bool {
        self.comes_from::<MustBlock>() || self.is_mismatch()
    }

    /// Whether the hook is not what its configuration says: its error is, or comes from, a [`Mismatched`].
    pub fn is_mismatch(&self) -> bool {
        self.comes_from::<Mismatched>()
    }

    fn comes_from<E: std::error::Error + 'static>(&self) -> bool {
        let first: Option<&(dyn std::error::Error + 'static)> = match self {
            Self::Error(error) => Some(&**error),
            _ => None,
        };
        std::iter::successors(first, |error| error.source()).any(|error| error.is::<E>())
    }
}

/// An error of a hook that blocks even where its failures are ignored: for a hook that was kept from judging, as opposed to one
/// that is broken. A program whose files changed since they were accepted is such a hook.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct MustBlock(
    /// Why it could not judge.
    pub BoxError,
);

/// An error of a hook that turns out not to be what its configuration says: a worker with hooks at other points, for instance. It blocks
/// as [`MustBlock`] does, since a guard may be missing.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Mismatched(
    /// What does not match.
    pub BoxError,
);

/// An error of a wrap around a tool that is the wrap's own, and not the tool's: it follows the hook's `on_failure` instead of becoming
/// the result of the call. Around a model call [`ModelError::Hook`](crate::model::ModelError::Hook) with the hook's own name is
/// the same.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WrapFailure(
    /// What went wrong.
    pub BoxError,
);

impl std::fmt::Display for HookFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panicked(message) => write!(f, "it panicked: {message}"),
            Self::TimedOut(limit) => write!(f, "it took longer than {}", humantime::format_duration(*limit)),
        }
    }
}

/// Written by hand, because a derived `source` would give the `Arc` instead of the error in it.
impl std::error::Error for HookFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Error(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<BoxError> for HookFailure {
    fn from(error: BoxError) -> Self {
        Self::Error(error.into())
    }
}

/// The message of a panic.
pub(crate) fn panic_text(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast_ref::<&str>().copied().unwrap_or("no message").to_owned(),
    }
}
