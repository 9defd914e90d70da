//! How the program ends, as other programs read it.

use std::process::ExitCode;

use turnbuckle::Outcome;

/// An exit code with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The turn completed, also with an overruled stop.
    Completed = 0,
    /// Failed, stale, busy, not found, store error.
    Failed = 1,
    /// Bad usage, configuration, or an empty message.
    Usage = 2,
    /// A hook halted the turn or rejected every reply.
    Stopped = 3,
    /// Someone must answer first.
    Waiting = 4,
    /// A limit of the turn was reached.
    Exhausted = 5,
    /// The turn was cancelled by a signal, and its end is in the log.
    Cancelled = 130,
}

impl From<Outcome> for Exit {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Halted | Outcome::Rejected => Self::Stopped,
            Outcome::Exhausted => Self::Exhausted,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Failed => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
