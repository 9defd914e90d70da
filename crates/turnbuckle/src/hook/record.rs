//! What a run of a hook leaves behind. Records are stored beside the log, keyed by turn.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Point;
use crate::BoxError;
use crate::id::CallId;
use crate::message::Text;

/// One run of one hook at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Where.
    pub point: Point,
    /// Who.
    pub hook: Text,
    /// The decision's name in lower case; `wrap` for a wrap, `failed` if it came to none.
    pub decision: Cow<'static, str>,
    /// How long it took; to some milliseconds for a hook that never awaited.
    pub took: Duration,
    /// Tokens it added to the context.
    pub tokens: u32,
    /// Tokens it wanted to add and could not, for lack of room.
    pub shed: u32,
    /// The call it ran for, at the tool points.
    pub call: Option<CallId>,
    /// What went wrong.
    pub failure: Option<String>,
}

impl Record {
    /// So many tokens found no room.
    pub(crate) fn sheds(&mut self, tokens: u32) {
        self.shed += tokens;
        self.tokens = self.tokens.saturating_sub(tokens);
    }
}

/// How a hook failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookFailure {
    /// It returned an error.
    #[error("{0}")]
    Error(#[source] BoxError),
    /// It panicked.
    #[error("it panicked: {0}")]
    Panicked(String),
    /// It took too long and was dropped.
    #[error("it took longer than {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
}

/// What a panic said.
pub(crate) fn panic_text(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast_ref::<&str>().copied().unwrap_or("no message").to_owned(),
    }
}
