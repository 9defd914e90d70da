//! The turn, top to bottom: accept → build → call → dispatch → end.
//!
//! `drive` is the whole loop: ask [`next`] for the stage, run it, look again. A stage is an async function over the
//! `ActiveTurn`; it changes the state by writing events, and it never calls another stage.

mod abort;
pub(crate) mod accept;
mod active;
mod ask;
mod budget;
mod build;
mod call;
mod decide;
mod dispatch;
mod end;
mod perform;
mod post_turn;
mod reply_stream;
pub(crate) mod resolve;
mod state;
mod view;

pub(crate) use abort::{AbortCause, AbortToken};
pub(crate) use active::{ActiveTurn, Interrupt};
pub(crate) use budget::Budget;
pub(crate) use build::look_back;
pub(crate) use call::MODIFIED;
#[cfg(feature = "testing")]
pub(crate) use decide::AGAIN;
pub(crate) use post_turn::{JobResults, NoteBuffer, PostTurn, after_failure, given_up};
pub(crate) use resolve::Resolve;
pub(crate) use view::{TurnContext, TurnContextParts};

pub use budget::{RemainingBudget, UsedBudget};
pub use state::{OpenTurn, Stage, State, Verdict, next};
pub use view::{PermissionMode, Turn};

use crate::store::StoreError;

/// Carries the turn on until it ends or must wait. Only a store that fails stops it earlier.
pub(crate) async fn drive(active: &mut ActiveTurn) -> Result<Stage, StoreError> {
    let met = accept::meet(active).await;
    active.absorb(met)?;
    loop {
        let stage = next(&active.state);
        active.enter(stage);
        let done = match stage {
            Stage::Accept => accept::run(active).await,
            Stage::Build => build::run(active).await,
            Stage::Call => call::run(active).await,
            Stage::Dispatch => dispatch::run(active).await,
            Stage::End => end::run(active).await,
            Stage::Waiting | Stage::Idle => return Ok(stage),
        };
        active.absorb(done)?;
    }
}
