//! Whether a summary of the oldest turns should be made, when a turn ends.

use super::active::{ActiveTurn, Interrupt};
use super::context::TurnContext;
use crate::clock::Timestamp;
use crate::context::plan::Retention;
use crate::context::window::Window;
use crate::cut::Factor;
use crate::event::TurnEnded;
use crate::model::SUMMARY_AGENT;
use crate::store::{Job, JobKind, Summary};

/// Contexts that may show fewer tokens of history have no summaries: there is no room for one that says something.
const LEAST_CAPACITY: u64 = 1_000;
/// No summary is due in a context that is emptier than this, in hundredths of what contexts may show.
const NEVER_BEFORE: u64 = 40;
/// A turn that takes so much alone is covered as soon as it has ended, in hundredths of what contexts may show.
const LARGE_TURN: u64 = 65;
/// How much of older turns stays beside a summary that is made early, in hundredths of what contexts may show.
const REST: u64 = 5;
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

/// The sizes that decide whether a summary is due, and of how much, in tokens.
///
/// A cut comes when a turn adds more than `free`. Then what is not covered must fit into `beside` together with that turn, or it is
/// left out without a summary.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// What contexts may show.
    capacity: u64,
    /// How much of that is still free.
    free: u64,
    /// What a cut leaves beside a summary of full size.
    beside: u64,
    /// What no summary covers, the turn that is about to end counted.
    uncovered: u64,
    /// That turn.
    open: u64,
    /// What stays of it when its steps are left out.
    open_words: u64,
    /// The largest of the last turns.
    largest: u64,
}

impl Sizes {
    /// What the next turn may add before it makes a cut. It may be larger than those before it, but nothing is kept free for one
    /// that leaves hardly any room beside it.
    fn next_turn(&self) -> u64 {
        (self.largest / 2 * 3).clamp(self.beside / 8, self.beside / 4 * 3)
    }

    /// Whether a summary is due. It is made as early as one that is made now holds until the context is full: then there is time for
    /// several tries. Where a cut leaves too little for that, it is made when the context is nearly full, and again if so much was
    /// added since that some of it would be left out without one.
    fn is_due(&self) -> bool {
        let rest = self.open + self.capacity / 100 * REST;
        let holds = self.free + self.next_turn() + rest <= self.beside;
        let largest = self.largest.max(self.beside / 4);
        let nearly_full = self.free < largest + largest.min(self.capacity / 10);
        let is_lost = |added: u64| self.uncovered + added + self.next_turn() > self.beside;
        holds && is_lost(self.free) || nearly_full && is_lost(0)
    }

    /// How much of the ended turns may stay beside the summary.
    fn rest(&self) -> u64 {
        let rest = self.beside.saturating_sub(self.free + self.next_turn() + self.open);
        rest.min(self.capacity / 100 * REST)
    }

    /// Whether the turn that is about to end must be covered, too. The next one mostly goes on with it, so it is not if it, or what
    /// is left of it without its steps, has room at the next cut.
    fn covers_open(&self) -> bool {
        self.open >= self.capacity / 100 * LARGE_TURN || self.open_words + self.next_turn() > self.beside
    }
}

/// `newest` is the newest summary.
fn due(active: &ActiveTurn, ended: &TurnEnded, end_seq: u64, newest: Option<&Summary>) -> Option<DueSummary> {
    let (ctx, window) = (active.ctx(), &active.state.window);
    let capacity = |factor| ctx.agent.history_capacity(&ctx.limits, factor);
    // Most turns end here: nothing has to be looked up.
    let is_far = window.tokens() < capacity(Factor::LARGEST) / 100 * NEVER_BEFORE;
    if is_far || !ended.outcome.joins_history() || ctx.conversation.is_sub_agent() || !ctx.agent.wants_summaries() {
        return None;
    }
    // The next cut is made where the factor of the last one says, and goes as far as what is known by then says.
    let known = ctx.services.calibrations.factor(ctx.agent.model_choice());
    let capacity = capacity(window.factor().unwrap_or(known));
    if capacity < LEAST_CAPACITY || window.tokens() < capacity / 100 * NEVER_BEFORE {
        return None;
    }
    let covered = newest.map_or(0, |newest| newest.last);
    let is_kept = |tool: &str| ctx.agent.tool_facts(tool).retention == Retention::Keep;
    let left = ctx.agent.history_target(&ctx.limits, known).min(capacity);
    let sizes = Sizes {
        capacity,
        free: capacity.saturating_sub(window.tokens()),
        beside: left.saturating_sub(ctx.summary_room(&ctx.limits, known).whole()),
        uncovered: window.uncovered(covered),
        open: window.open_tokens(),
        open_words: window.open_words(&is_kept),
        largest: window.largest_turn(),
    };
    if !sizes.is_due() {
        return None;
    }
    let last = match sizes.covers_open() {
        true => end_seq,
        false => window.worth_summarising(covered, sizes.rest())?,
    };
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
    let newest = active.newest_summary.clone();
    let Some(mut due_now) = due(active, ended, end_seq, newest.as_deref()) else { return Ok(NextSummary::None) };
    let ctx = active.ctx().clone();
    let jobs = ctx.store().jobs(&ctx.conversation).await?;
    if let Some(next) = asked_before(&jobs, &due_now, &active.state.window, ctx.clock().now()) {
        return Ok(next);
    }
    // One may have been made while the turn ran.
    let made = ctx.store().summaries(&ctx.conversation).await?.pop();
    if let Some(made) = made.filter(|made| made.last > due_now.covered) {
        match due(active, ended, end_seq, Some(&made)) {
            Some(due) => due_now = due,
            None => return Ok(NextSummary::None),
        }
    }
    Ok(summary_job(&ctx, &due_now))
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
fn summary_job(ctx: &TurnContext, due: &DueSummary) -> NextSummary {
    NextSummary::Job(Box::new(Job {
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
    }))
}
