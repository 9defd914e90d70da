//! Whether a summary of the oldest turns should be made, when a turn ends.

use super::active::{ActiveTurn, Interrupt};
use super::context::TurnContext;
use crate::clock::Timestamp;
use crate::context::window::Window;
use crate::cut::Factor;
use crate::event::TurnEnded;
use crate::model::SUMMARY_AGENT;
use crate::store::{Job, JobKind};

/// From how much of what contexts may show on a summary is made, what the last one covers left out: in hundredths. It is to be
/// there before the context is full.
const SUMMARISE_FROM: u64 = 65;
/// How much of it stays beside the summary, in hundredths, not counted the turn that has just ended. At the next cut, when the rest
/// has been added, the summary and what it does not cover come to less than the 60 % that a cut leaves, if that turn was small. If
/// it was large, its steps go first, and if it alone asks for a summary, the summary covers it, too.
const SUMMARISE_TO: u64 = 5;
/// How much must have been said behind the part that a summary could not be made of, in hundredths, before it is tried again with
/// a larger part.
const SUMMARISE_AGAIN: u64 = 20;

/// A summary that should be made before contexts become too large.
struct DueSummary {
    /// The seq of the last event that it is to cover.
    last: u64,
    /// The seq of the first event that contexts show.
    begins: u64,
    /// The seq of the last event that the newest summary covers, as far as this turn knows.
    covered: u64,
    /// Tokens behind the part of a job that was given up which make another try worth it.
    more: u64,
}

fn due(active: &ActiveTurn, ended: &TurnEnded, end_seq: u64) -> Option<DueSummary> {
    let (ctx, window) = (active.ctx(), &active.state.window);
    let is_far = |factor| window.tokens() < ctx.agent.history_capacity(&ctx.limits, factor) / 100 * SUMMARISE_FROM;
    // Most turns end here: nothing has to be looked up.
    if is_far(Factor::LARGEST) || !ended.outcome.joins_history() || ctx.conversation.is_sub_agent() {
        return None;
    }
    if !ctx.agent.wants_summaries() {
        return None;
    }
    let known = || ctx.services.calibrations.factor(ctx.agent.model_choice());
    let capacity = ctx.agent.history_capacity(&ctx.limits, window.factor().unwrap_or_else(known));
    let covered = active.newest_summary.as_ref().map_or(0, |newest| newest.last);
    if window.uncovered(covered) < capacity / 100 * SUMMARISE_FROM {
        return None;
    }
    let (rest, most) = (capacity / 100 * SUMMARISE_TO, capacity / 100 * SUMMARISE_FROM);
    let last = window.worth_summarising(covered, (rest, most), end_seq)?;
    let begins = window.events().first().map_or(0, |event| event.seq);
    Some(DueSummary { last, begins, covered, more: capacity / 100 * SUMMARISE_AGAIN })
}

/// What is done about a summary that should be made.
pub(super) enum NextSummary {
    None,
    /// A job that failed may be tried again.
    Retry,
    /// A new job.
    Job(Box<Job>),
}

/// What is to be done at the end of a turn, whose last event has the seq `end_seq`.
pub(super) async fn next(active: &mut ActiveTurn, ended: &TurnEnded, end_seq: u64) -> Result<NextSummary, Interrupt> {
    let Some(due) = due(active, ended, end_seq) else { return Ok(NextSummary::None) };
    let ctx = active.ctx().clone();
    let jobs = ctx.store().jobs(&ctx.conversation).await?;
    match asked_before(&jobs, &due, &active.state.window, ctx.clock().now()) {
        Some(next) => Ok(next),
        None => summary_job(&ctx, due).await,
    }
}

/// What follows from the jobs that were asked for before: one that failed three times is not asked for again before so much was
/// said that the next summary covers a larger part, or before the window has moved on. `None` if nothing does.
fn asked_before(jobs: &[Job], due: &DueSummary, window: &Window, now: Timestamp) -> Option<NextSummary> {
    let asked = jobs.iter().rfind(|job| job.kind == JobKind::Summary && job.seq >= due.begins)?;
    match asked.due {
        Some(at) if at <= now => Some(NextSummary::Retry),
        Some(_) => Some(NextSummary::None),
        None => (window.uncovered(asked.seq) < due.more).then_some(NextSummary::None),
    }
}

/// The job that makes it.
async fn summary_job(ctx: &TurnContext, due: DueSummary) -> Result<NextSummary, Interrupt> {
    // One may have been made while the turn ran. The next turn knows of it.
    let made = ctx.store().summaries(&ctx.conversation).await?;
    if made.last().is_some_and(|newest| newest.last > due.covered) {
        return Ok(NextSummary::None);
    }
    Ok(NextSummary::Job(Box::new(Job {
        turn: ctx.id.clone(),
        seq: due.last,
        agent: ctx.agent_name().clone(),
        hook: SUMMARY_AGENT.into(),
        used: None,
        kind: JobKind::Summary,
        actor: ctx.scope.actor().clone(),
        // Whoever takes it up first counts its tries.
        tries: 0,
        error: None,
        due: Some(ctx.clock().now()),
        reminder: None,
        spent: None,
        partial: None,
    })))
}
