//! The outbox: what turns left to be done. One job is taken at a time, so that a hold is never longer than one hook may
//! work, and so that a try is counted for the job that was begun and for no other.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Runtime;
use super::cell::Cell;
use super::command::Command;
use super::landing::snapshot;
use super::observers::Watching;
use super::outcome::TurnReport;
use crate::clock::Timestamp;
use crate::context::layout::{self, Overlay};
use crate::event::{Event, EventKind};
use crate::id::TurnId;
use crate::message::Reply;
use crate::scope::Scope;
use crate::store::{InboxItem, InboxKind, Job, JobDisposition, JobLease, JobSelector, LEASE, StoreError};
use crate::turn::{
    AbortToken, Budget, JobResults, PostTurn, State, TurnContext, TurnContextParts, UsedBudget, after_failure, given_up,
};

/// Takes up the jobs of a conversation that are due, beside whatever else happens.
pub(super) fn take_up_jobs(cell: Arc<Cell>, runtime: Arc<Runtime>) {
    let aside = runtime.begin_aside();
    tokio::spawn(async move {
        take_up(&cell, &runtime).await;
        take_up_of_sub_agents(&cell, &runtime).await;
        drop(aside);
    });
}

/// Jobs that sub-agents left: nobody else comes to their conversations, which are over.
async fn take_up_of_sub_agents(cell: &Arc<Cell>, runtime: &Arc<Runtime>) {
    // What cannot be read now is read when the conversation is next taken up.
    for id in runtime.store.sub_agents_with_jobs(&cell.id).await.unwrap_or_default() {
        let jobs = runtime.store.jobs(&id).await.unwrap_or_default();
        let inside = jobs.iter().find_map(|job| cell.agent.sub_agent(&job.agent));
        if let Some(agent) = inside {
            let own = || Arc::new(Cell::new(id.clone(), agent.clone(), None, runtime.clock.clone()));
            take_up(&runtime.known_cell(&id).unwrap_or_else(own), runtime).await;
        }
    }
}

/// Background hooks of a turn that has just ended run beside whatever comes next.
pub(super) fn work_aside(cell: Arc<Cell>, runtime: Arc<Runtime>, after: PostTurn, jobs: Vec<Job>) {
    let aside = runtime.begin_aside();
    tokio::spawn(async move {
        if let Some(due) = work(&cell, &runtime, &after, jobs).await {
            runtime.clock.sleep(due.since(runtime.clock.now())).await;
            take_up(&cell, &runtime).await;
        }
        drop(aside);
    });
}

/// Round by round, until nothing is left that failed and may be tried again. One task at a time does this for a
/// conversation; another that comes along has it look once more.
async fn take_up(cell: &Arc<Cell>, runtime: &Arc<Runtime>) {
    let Some(mut work) = AtWork::begin(cell) else { return };
    loop {
        match take_all(cell, runtime).await {
            Some(due) => runtime.clock.sleep(due.since(runtime.clock.now())).await,
            None if work.goes_on() => {}
            None => return,
        }
    }
}

/// Held by the task that takes up a conversation's jobs; `None` once it has left them.
struct AtWork(Option<Arc<Cell>>);

impl AtWork {
    fn begin(cell: &Arc<Cell>) -> Option<Self> {
        cell.begin_jobs().then(|| Self(Some(cell.clone())))
    }

    fn goes_on(&mut self) -> bool {
        let on = self.0.as_ref().is_some_and(|cell| cell.jobs_go_on());
        if !on {
            self.0 = None;
        }
        on
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(cell) = &self.0 {
            cell.leave_jobs();
        }
    }
}

/// One try at each job that is due. When the last of those that failed may be tried again.
async fn take_all(cell: &Arc<Cell>, runtime: &Arc<Runtime>) -> Option<Timestamp> {
    let hooks = cell.agent.job_hooks();
    let (mut again, mut turn) = (None, None::<PostTurn>);
    // A store that cannot be read now is asked again when the conversation is next taken up.
    while let Ok(Some(job)) = take(cell, runtime, &hooks).await {
        // Done here, and not yet written.
        if cell.is_doing(&job) {
            continue;
        }
        if let Some(parked) = given_up(&job) {
            settle(cell, runtime, parked).await;
            continue;
        }
        let same = turn.take().filter(|turn| turn.ctx.id == job.turn);
        let read = match same {
            Some(after) => Ok(after),
            None => read_back(cell, runtime, &job).await,
        };
        let due = match read {
            Ok(after) => work(cell, runtime, turn.insert(after), vec![job]).await,
            Err(error) => settle(cell, runtime, after_failure(job, said_in_full(&error), runtime.clock.now())).await,
        };
        again = again.max(due);
    }
    again
}

async fn take(cell: &Cell, runtime: &Runtime, hooks: &[JobSelector]) -> Result<Option<Job>, StoreError> {
    let (writer, from, lasts) =
        (&runtime.writer, runtime.clock.now(), cell.agent.time_for_a_job().saturating_add(LEASE));
    runtime.store.take_job(&cell.id, hooks, JobLease { writer, from, lasts }).await
}

/// Stores how a try failed. When there may be another.
async fn settle(cell: &Cell, runtime: &Runtime, job: Job) -> Option<Timestamp> {
    let due = job.due;
    // One whose failure cannot be stored is held a while and then due again, and its try is counted.
    let _ = runtime.store.settle_job(&cell.id, job, JobDisposition::Keep).await;
    due
}

/// One try at each of these. When the last of those that failed may be tried again.
async fn work(cell: &Arc<Cell>, runtime: &Arc<Runtime>, after: &PostTurn, jobs: Vec<Job>) -> Option<Timestamp> {
    let doing = Doing::of(cell, &jobs);
    let watching = Watching::of(cell, runtime);
    let mut results = after.attempt(jobs).await;
    drop(watching);
    let mut again = None;
    for job in std::mem::take(&mut results.failed) {
        again = again.max(settle(cell, runtime, job).await);
    }
    results.doing = Some(doing);
    if !results.records.is_empty() || !results.done.is_empty() {
        note(cell, runtime, after.ctx.id.clone(), results).await;
    }
    again
}

/// What jobs came to is written by whoever has the conversation: here, or by letter.
async fn note(cell: &Arc<Cell>, runtime: &Arc<Runtime>, turn: TurnId, results: JobResults) {
    let (refused, back) = oneshot::channel();
    cell.command(runtime, Command::Notes(turn.clone(), Box::new(results), refused));
    let Ok(results) = back.await else { return };
    let JobResults { notes, records, done, doing: _doing, .. } = *results;
    let Some(from) = done.first().map(|job| job.actor.clone()) else { return };
    let kind = InboxKind::Notes { turn, notes, records, done: done.clone() };
    let item = InboxItem { id: runtime.ids.mint("l_"), from, at: runtime.clock.now(), kind };
    // What cannot be delivered is done again when the hold is over.
    if runtime.store.deliver(&cell.id, item).await.is_ok() {
        for job in done {
            let _ = runtime.store.settle_job(&cell.id, job, JobDisposition::Remove).await;
        }
        // Whoever had the conversation may have left it meanwhile.
        cell.command(runtime, Command::Wake);
    }
}

/// Jobs that this process works on, until what they came to is written: their hold may lapse before a long turn lets it.
pub(crate) struct Doing {
    cell: Arc<Cell>,
    jobs: Vec<Job>,
}

impl Doing {
    fn of(cell: &Arc<Cell>, jobs: &[Job]) -> Self {
        cell.do_jobs(jobs);
        Self { cell: cell.clone(), jobs: jobs.to_vec() }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        self.cell.did_jobs(&self.jobs);
    }
}

/// The turn of a job, as the log has it.
async fn read_back(cell: &Arc<Cell>, runtime: &Arc<Runtime>, job: &Job) -> Result<PostTurn, StoreError> {
    let log = log_of(cell, runtime, job).await?;
    let ended = log.last().and_then(|event| match &event.kind {
        EventKind::TurnEnded(ended) if event.turn == job.turn => Some(ended.clone()),
        _ => None,
    });
    let Some(ended) = ended else {
        let doing = format!("reading back turn {} of conversation {}", job.turn, cell.id);
        return Err(StoreError::Failed { doing, source: "its end is not where the job says".into() });
    };
    let mut state = State::new(cell.agent.room());
    log.iter().for_each(|event| state.apply(event));
    let ctx = context_after(cell, runtime, job.turn.clone(), (runtime.scope_source)(&job.actor));
    let name = ctx.agent.shared_name().clone();
    let reply = last_words(&log, &job.turn);
    let ended = TurnReport::new(cell.id.clone(), job.turn.clone(), name, ctx.mode, ended, reply);
    let messages = layout::messages(&state.history, &Overlay::default());
    let snapshot = snapshot(&ctx, &ended, messages);
    Ok(PostTurn { ctx, ended, snapshot })
}

/// Of a turn that is over, for hooks that work after it.
pub(super) fn context_after(cell: &Cell, runtime: &Arc<Runtime>, turn: TurnId, scope: Scope) -> Arc<TurnContext> {
    Arc::new(TurnContext::new(TurnContextParts {
        conversation: cell.id.clone(),
        id: turn,
        scope,
        limits: cell.agent.limits().clone(),
        agent: cell.agent.clone(),
        parent: cell.parent(),
        feed: cell.feed.clone(),
        runtime: runtime.clone(),
        abort: AbortToken::new(),
        budget: Budget::new(0, UsedBudget::default(), None),
        touched: Vec::new(),
    }))
}

/// The log up to the turn's end: as much as a window holds, and all of the turn. It begins behind the end of a turn before
/// it; its message does not tell, for that of an erased turn is not in the log.
async fn log_of(cell: &Cell, runtime: &Runtime, job: &Job) -> Result<Vec<Arc<Event>>, StoreError> {
    let (mut log, mut enough): (Vec<Arc<Event>>, u64) = (Vec::new(), cell.agent.room());
    let has_turn = |log: &[Arc<Event>]| {
        log.iter().any(|event| event.seq < job.seq && matches!(event.kind, EventKind::TurnEnded(_)))
    };
    while !has_turn(&log) {
        let before = log.first().map_or(job.seq.saturating_add(1), |first| first.seq);
        let mut older = runtime.store.tail(&cell.id, before, enough).await?;
        if older.is_empty() {
            break;
        }
        older.append(&mut log);
        (log, enough) = (older, enough.saturating_mul(2));
    }
    Ok(log)
}

/// What the model said last in this turn.
pub(super) fn last_words(log: &[Arc<Event>], turn: &TurnId) -> Option<Arc<Reply>> {
    let of_turn = log.iter().rev().filter(|event| event.turn == *turn);
    let mut said = of_turn.filter_map(|event| match &event.kind {
        EventKind::AssistantMessage { content, stop_reason, usage, object, .. } => Some(Reply {
            content: content.clone(),
            stop_reason: *stop_reason,
            usage: *usage,
            object: object.clone(),
            ..Reply::default()
        }),
        _ => None,
    });
    said.next().map(Arc::new)
}

/// An error with its causes: a parked job shows it to a person who has nothing else.
fn said_in_full(error: &StoreError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
