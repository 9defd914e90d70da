//! Calls that wait for a person: `turnbuckle answer`, `pending` and `approvals`, and what `resolve` shares with them.

mod approvals;
mod given;
mod pending;
mod record;
mod standing;

pub(crate) use approvals::approvals;
pub(crate) use given::GivenAnswer;
pub(crate) use pending::pending;
pub(crate) use record::answer;
pub(crate) use standing::NewStanding;

use turnbuckle::ConversationId;
use turnbuckle::conversation::ResolveError;

use crate::problem::{Problem, with_causes};
use crate::run::{WHO_ACTS, how_to_find};
use crate::show::quoted;

/// An answer was not taken, and what to do about it. `options` lead to the same store.
pub(crate) fn refusal(error: &ResolveError, id: &ConversationId, options: &str) -> Problem {
    let hint = match error {
        ResolveError::Stale { .. } => format!("`turnbuckle show {id}{options}` says what it waits for, if it does"),
        ResolveError::Unfit { .. } => "`turnbuckle answer --help` has the kinds of answers".to_owned(),
        ResolveError::NotFound { .. } => how_to_find(options),
        ResolveError::Forbidden { .. } => WHO_ACTS.to_owned(),
        ResolveError::Changed { call, .. } => format!(
            "nothing was written: `turnbuckle answer {id} {}{options}` and the same answer records it for an agent that \
             lacks nothing, and `--accept-changes` carries the turn on here without",
            quoted(call.as_str())
        ),
        ResolveError::TooLong { .. } => "put it into a file, and answer with its path".to_owned(),
        ResolveError::Full { .. } => "nothing was answered: try again in a moment".to_owned(),
        _ => format!("nothing was answered: try again; `turnbuckle show {id}{options}` says where it stands"),
    };
    Problem::error(with_causes(error)).hint(hint)
}
