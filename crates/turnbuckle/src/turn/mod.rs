//! The turn, top to bottom: accept → build → call → dispatch → end.
//!
//! `drive` is the whole loop: ask [`next`] for the stage, run it, look again. A stage is an async function over the
//! `Flight`; it changes the state by writing events, and it never calls another stage.

pub(crate) mod accept;
mod aftermath;
mod build;
mod call;
mod cut;
mod decide;
mod dispatch;
mod end;
mod flight;
mod meter;
mod outlet;
mod perform;
pub(crate) mod resolve;
mod seen;
mod state;

pub(crate) use aftermath::{Aftermath, BackgroundDesk, Yield, after_failure, given_up};
pub(crate) use build::look_back;
pub(crate) use call::MODIFIED;
pub(crate) use cut::{Cut, CutToken};
#[cfg(feature = "testing")]
pub(crate) use decide::AGAIN;
pub(crate) use flight::{Flight, Interrupt};
pub(crate) use meter::Meter;
pub(crate) use resolve::Resolve;
pub(crate) use seen::{Frame, FrameParts};

pub use meter::{Left, Spent};
pub use seen::{PermissionMode, Turn};
pub use state::{OpenTurn, Stage, State, Verdict, next};

use crate::store::StoreError;

/// Carries the turn on until it ends or must wait. Only a store that fails stops it earlier.
pub(crate) async fn drive(flight: &mut Flight) -> Result<Stage, StoreError> {
    let met = accept::meet(flight).await;
    flight.heed(met)?;
    loop {
        let stage = next(&flight.state);
        flight.enter(stage);
        let done = match stage {
            Stage::Accept => accept::run(flight).await,
            Stage::Build => build::run(flight).await,
            Stage::Call => call::run(flight).await,
            Stage::Dispatch => dispatch::run(flight).await,
            Stage::End => end::run(flight).await,
            Stage::Waiting | Stage::Idle => return Ok(stage),
        };
        flight.heed(done)?;
    }
}
