//! How large a summary may become.

use super::tokens;

/// A part of what contexts may show, as a divisor, and of what a cut leaves. The smaller of both counts: where system prompt and tools
/// take much of a context, a cut leaves little to history, and a summary must not take most of that.
const TEXT: (u64, u64) = (10, 4);
const MESSAGES: (u64, u64) = (20, 8);
const KEPT: (u64, u64) = (40, 16);
/// The notes have this room at least, and this at most.
const LEAST_TEXT: u64 = 100;
const MOST_TEXT: u64 = 4_000;
/// What stands around all of that: what the parts are, their fences, and what is said of what is missing.
const AROUND: u64 = 200;

/// What there is room for in a summary, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SummaryRoom {
    /// For what the model writes.
    pub(crate) text: u64,
    /// For what users said.
    pub(crate) messages: u64,
    /// For what hooks want to keep.
    pub(crate) kept: u64,
}

impl SummaryRoom {
    /// The room in contexts that may show `capacity` tokens of history, and of which a cut leaves `target`.
    pub(crate) fn of(capacity: u64, target: u64) -> Self {
        let part = |(of_capacity, of_target): (u64, u64)| (capacity / of_capacity).min(target / of_target);
        Self { text: part(TEXT).clamp(LEAST_TEXT, MOST_TEXT), messages: part(MESSAGES), kept: part(KEPT) }
    }

    /// What a summary takes at most, as contexts show it.
    pub(crate) fn whole(&self) -> u64 {
        self.text + self.messages + self.kept + AROUND + tokens::FRAME
    }
}
