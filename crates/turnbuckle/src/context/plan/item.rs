//! Results and calls in a plan, and what tools say about them.

use std::sync::Arc;

use crate::context::tokens;
use crate::cut::{Recovery, Stub};
use crate::event::{Event, EventKind};
use crate::message::{Content, Text};

/// Which results of a tool may be shortened when a context becomes too large. It does not say that they are: as long as there
/// is room, all of them stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Those of the last so many turns stay, the open one counted. They are shortened all the same, the oldest first, if a
    /// recent turn would have to be left out otherwise, or the open turn would fail; but not before the model has read them.
    Turns(u32),
    /// The last so many stay, with the same exception.
    Last(u32),
    /// All of them stay, until the turn they belong to is left out. One that takes more than a quarter of the context by
    /// itself is shortened to its beginning and its end if the open turn would fail otherwise.
    Keep,
}

impl Default for Retention {
    /// The results of the open turn and of the one before it stay.
    fn default() -> Self {
        Self::Turns(2)
    }
}

/// What a plan must know about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToolFacts {
    pub(crate) retention: Retention,
    pub(crate) recovery: Recovery,
}

/// What a [`PlannedItem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// The result of a call.
    Result,
    /// A call: its arguments can be shortened. Small ones are not in a plan, because nothing could be saved.
    Call,
}

/// A result or a call in a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlannedItem {
    /// Which of the two.
    pub kind: ItemKind,
    /// The place of its turn in [`Plan::turns`].
    pub turn: usize,
    /// The tool's name.
    pub tool: Text,
    /// What the tool says about its results. It holds for the arguments of its calls as well.
    pub retention: Retention,
    /// What contexts show of it, in tokens.
    pub tokens: u64,
    /// Whether the model has answered since the result came, or since it made the call.
    pub was_read: bool,
    /// The place of its step, if it belongs to the open turn.
    pub(super) step: Option<usize>,
    pub(super) event: Arc<Event>,
    /// How it is shown, if not whole.
    pub(super) stub: Option<Stub>,
    pub(super) recovery: Recovery,
    pub(super) is_changed: bool,
}

impl PlannedItem {
    /// Whether nothing but a note is shown in the place of a result.
    pub fn is_stub(&self) -> bool {
        self.kind == ItemKind::Result && self.stub.is_some_and(|stub| stub.head == 0 && stub.tail == 0)
    }

    pub(super) fn content(&self) -> Option<&Content> {
        match &self.event.kind {
            EventKind::ToolResult { content, .. } => Some(content),
            _ => None,
        }
    }

    /// Shows it shortened by this stub, if that saves anything. Returns how many tokens it saves.
    pub(super) fn shorten(&mut self, stub: Stub) -> Option<u64> {
        // What was left out before is not there any more, so a stub never grows. One that stays as it is would be made of the note
        // that an earlier one has left, and not of what is in the log.
        let shrinks = |before: Stub| {
            stub.head <= before.head && stub.tail <= before.tail && (stub.head, stub.tail) != (before.head, before.tail)
        };
        if !self.stub.is_none_or(shrinks) {
            return None;
        }
        let event = stub.shorten(&self.event, &self.tool)?;
        let tokens = tokens::of_event(&event);
        if tokens >= self.tokens {
            return None;
        }
        let saved = self.tokens - tokens;
        (self.stub, self.event, self.tokens, self.is_changed) = (Some(stub), event, tokens, true);
        Some(saved)
    }
}
