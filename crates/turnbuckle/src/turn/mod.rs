//! The turn, top to bottom: accept → build → call → dispatch → end.
//!
//! `drive` is the whole loop: ask `next` for the stage, run it, look again. A stage is an async function over the
//! `ActiveTurn`. It changes the state by writing events, and it never calls another stage.

// The loop and what it looks at.
mod active;
mod state;

// The stages, in order.
mod accept;
mod build;
mod call;
mod dispatch;
mod due_summary;
mod end;

// What stages use.
pub(crate) mod answer;
mod audit;
mod call_ids;
mod changes;
mod decide;
mod delivery;
mod inject;
mod last_answer;
mod make_room;
mod perform;
mod pipe;
mod prompt_cache;
mod redaction;
mod reply_stream;
mod steer;

// What goes with a turn.
mod abort;
mod ask;
mod budget;
mod calibrations;
mod context;
mod host;
mod left;
mod post_turn;
mod scratch;
mod start;
mod tool_trace;
mod view;

pub(crate) use abort::{AbortCause, AbortToken};
pub(crate) use active::{ActiveTurn, Interrupt};
pub(crate) use answer::{AnsweredCall, Taken};
pub(crate) use audit::AuditMemory;
pub(crate) use budget::{Attempt, Budget};
pub(crate) use calibrations::Calibrations;
pub(crate) use changes::note_injected;
pub(crate) use context::{NewTurn, SentAttempt, Services, TurnContext};
pub(crate) use host::{AnswerError, AnswerOrder, AnswerOrigin, RecordedAnswer, TurnHost, Waiter};
pub(crate) use inject::cost_of;
pub(crate) use post_turn::{JobResults, NoteBuffer, PostTurn, after_failure, given_up, max_tries};
pub(crate) use prompt_cache::RequestMemory;
pub(crate) use start::{StoredTurn, start};
pub(crate) use state::{Progress, Stage, State, Verdict, next};

pub use host::{RefusedMessage, TurnError};
pub(crate) use left::ChangedAgentPolicy;
pub use left::{LeftReason, LeftTurn, OnChangedAgent, OtherAgents};
pub(crate) use view::OwnAnswer;
pub use view::Turn;

use crate::store::StoreError;

/// Carries the turn on until it ends or must wait. Only a store that fails stops it earlier.
pub(crate) async fn drive(active: &mut ActiveTurn) -> Result<Stage, StoreError> {
    let greeted = accept::greet(active).await;
    active.absorb(greeted)?;
    loop {
        let stage = next(&active.state, &active.progress);
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
