//! Calls that wait for a person: `turnbuckle answer`, `pending` and `approvals`, and what `resolve` shares with them.

mod approvals;
mod given;
mod pending;
mod record;
mod standing;

pub(crate) use approvals::approvals;
pub(crate) use given::{GivenAnswer, Like};
pub(crate) use pending::pending;
pub(crate) use record::{RecordedLine, answer, who_else_must};
pub(crate) use standing::agree_on_standing;

use std::time::Duration;

use turnbuckle::conversation::{LeftReason, ResolveError};
use turnbuckle::store::{Store as _, StoreError};
use turnbuckle::{ConversationId, Scope};

use crate::Stopped;
use crate::args::Common;
use crate::inspect::{OpenTurn, failed, open_turn};
use crate::problem::{Problem, with_causes};
use crate::run::{ResolveHints, how_to_find, who_acts};
use crate::show::{clean, quoted};
use crate::without_agent::WithoutAgent;

/// How often, and how far apart, it is looked whether a turn rests.
const LOOKS: usize = 25;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An answer was not taken, and what to do about it. If the call was answered before and nobody has taken its turn up since,
/// that is the command that does. `command` is the one that was given.
pub(crate) async fn refusal_at(
    desk: &WithoutAgent,
    error: &ResolveError,
    id: &ConversationId,
    (command, common): (&str, &Common),
) -> Result<Problem, Stopped> {
    let problem = refusal(error, id, (command, &common.same_store()), &desk.scope);
    if !matches!(error, ResolveError::Stale { .. }) || !comes_to_rest(desk, id).await.map_err(failed)? {
        return Ok(problem);
    }
    let Some(begun) = desk.store.scratch(id).await.map_err(failed)? else { return Ok(problem) };
    let hints = ResolveHints::for_turn_of(id.clone(), common, desk, Some(&begun)).await.map_err(failed)?;
    let hint = clean(&format!("nothing was run: {}", hints.carried_on_by(&begun.agent)));
    Ok(Problem::error(with_causes(error)).hint(hint))
}

/// Whether the turn is open and nobody carries it on. This process itself may hold it for a moment longer.
async fn comes_to_rest(desk: &WithoutAgent, id: &ConversationId) -> Result<bool, StoreError> {
    for _ in 0..LOOKS {
        match open_turn(desk, id).await? {
            Some(OpenTurn::Rests) => return Ok(true),
            Some(OpenTurn::Held) => tokio::time::sleep(LOOK_EVERY).await,
            None => return Ok(false),
        }
    }
    Ok(false)
}

/// An answer of this actor was not taken, and what to do about it. `options` lead to the same store.
pub(crate) fn refusal(
    error: &ResolveError,
    id: &ConversationId,
    (command, options): (&str, &str),
    scope: &Scope,
) -> Problem {
    let hint = match error {
        ResolveError::Stale { .. } => format!("`turnbuckle show {id}{options}` says what it waits for, if it does"),
        ResolveError::Unfit { .. } => {
            format!(
                "`turnbuckle show {id}{options}` has what is asked, `turnbuckle {command} --help` the kinds of answers"
            )
        }
        ResolveError::NotFound { .. } => how_to_find(options),
        ResolveError::Forbidden { .. } => who_acts(scope),
        ResolveError::Changed { call, left } => {
            let (for_whom, insist) = match &left.reason {
                LeftReason::OtherProject { project } => (
                    format!("its agent, which carries the turn on in {}", quoted(project)),
                    "`--accept-changes` carries the turn on here: it works in this folder then",
                ),
                _ => (
                    "an agent that lacks nothing".to_owned(),
                    "`--accept-changes` carries the turn on here without what is missing",
                ),
            };
            let call = quoted(call.as_str());
            format!(
                "nothing was written: `turnbuckle answer {id} {call}{options}` and the same answer records it for \
                 {for_whom}, and {insist}"
            )
        }
        ResolveError::TooLong { .. } => "put it into a file, and answer with its path".to_owned(),
        ResolveError::Full { .. } => "nothing was answered: try again in a moment".to_owned(),
        _ => format!("nothing was answered: try again; `turnbuckle show {id}{options}` says where it stands"),
    };
    Problem::error(with_causes(error)).hint(hint)
}
