//! The outbox: what turns left to be done. One job is taken at a time, so that a lease is never longer than one hook may
//! work, and so that a try is counted for the job that was begun and for no other.

mod delivery;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use tracing::Instrument;

use super::error::with_causes;
use super::observers::Observers;
use super::order::{JobResultsOrder, Order};
use super::read_back::log_of_job;
use super::runtime::Runtime;
use super::shared::Conversation;
use super::summaries;
use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::context::layout::{self, Overlay};
use crate::event::EventKind;
use crate::hook::BackgroundContext;
use crate::id::TurnId;
use crate::message::{Message, Text};
use crate::report::{ReportOf, TurnReport, last_reply};
use crate::scope::{Actor, Scope};
use crate::store::{
    InboxItem, InboxKind, Job, JobDisposition, JobKind, JobLease, JobSelector, LEASE, StoreError, Totals,
};
use crate::turn::{
    AbortToken, Budget, JobResults, NewTurn, NoteBuffer, PostTurn, State, TurnContext, after_failure, given_up,
};

/// The jobs of one conversation that this process has in hand.
#[derive(Default)]
pub(crate) struct JobsInFlight {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Jobs that are done or being done here and whose results are not written yet. The store's lease on a job may expire
    /// during a long turn; this prevents a second run here.
    unwritten: Vec<Job>,
    runner: Runner,
    /// Whether this process has looked for jobs that another process left.
    looked: bool,
}

/// Whether a task takes up the conversation's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Runner {
    #[default]
    Idle,
    Running,
    /// Running, and asked to look once more when it is done.
    AskedAgain,
}

impl JobsInFlight {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True the first time it is asked.
    pub(super) fn looks_first(&self) -> bool {
        !std::mem::replace(&mut self.lock().looked, true)
    }

    fn contains(&self, job: &Job) -> bool {
        self.lock().unwritten.iter().any(|unwritten| unwritten.same_job(job))
    }
}

/// Takes up the due jobs of a conversation, and of its sub-agents, in the background.
pub(super) fn take_up_jobs(conversation: Arc<Conversation>, runtime: Arc<Runtime>) {
    let guard = runtime.begin_task();
    let span = tracing::debug_span!("jobs", conversation = %conversation.id);
    let work = async move {
        take_up(&conversation, &runtime).await;
        take_up_of_sub_agents(&conversation, &runtime).await;
        drop(guard);
    };
    tokio::spawn(work.instrument(span));
}

/// Takes up the due jobs of a conversation in the background, those of its sub-agents left out.
pub(super) fn take_up_own_jobs(conversation: Arc<Conversation>, runtime: Arc<Runtime>) {
    let guard = runtime.begin_task();
    let span = tracing::debug_span!("jobs", conversation = %conversation.id);
    let work = async move {
        take_up(&conversation, &runtime).await;
        drop(guard);
    };
    tokio::spawn(work.instrument(span));
}

/// Jobs that sub-agents left. Their conversations are over, so nothing else comes to them.
async fn take_up_of_sub_agents(conversation: &Arc<Conversation>, runtime: &Arc<Runtime>) {
    let store = &runtime.services.store;
    let found = match store.sub_agents_with_jobs(&conversation.id).await {
        Ok(found) => found,
        // They are looked for again when the conversation is next taken up.
        Err(error) => {
            return tracing::warn!(conversation = %conversation.id, %error, "sub-agents' jobs could not be read");
        }
    };
    for id in found {
        let jobs = match store.jobs(&id).await {
            Ok(jobs) => jobs,
            Err(error) => {
                tracing::warn!(conversation = %id, %error, "a sub-agent's jobs could not be read");
                continue;
            }
        };
        if let Some(agent) = jobs.iter().find_map(|job| conversation.agent.sub_agent(&job.agent)) {
            let detached = || Arc::new(runtime.detached(&id, agent, None));
            take_up(&runtime.resident(&id).unwrap_or_else(detached), runtime).await;
        }
    }
}

/// Runs the background hooks of a turn that has just ended, beside whatever comes next.
pub(super) fn run_in_background(
    conversation: Arc<Conversation>,
    runtime: Arc<Runtime>,
    post: PostTurn,
    jobs: Vec<Job>,
) {
    let guard = runtime.begin_task();
    let span = tracing::debug_span!("jobs", conversation = %conversation.id);
    let work = async move {
        if let Some(due) = attempt(&conversation, &runtime, &post, jobs).await {
            let clock = &runtime.services.clock;
            clock.sleep(due.since(clock.now())).await;
            take_up(&conversation, &runtime).await;
        }
        drop(guard);
    };
    tokio::spawn(work.instrument(span));
}

/// Round by round, until no job is left that failed and may be tried again. One task at a time does this for a
/// conversation; another that comes along makes it look once more.
async fn take_up(conversation: &Arc<Conversation>, runtime: &Arc<Runtime>) {
    let Some(mut runner) = RunnerGuard::start(conversation) else { return };
    let clock = &runtime.services.clock;
    loop {
        match take_all(conversation, runtime).await {
            Some(due) => clock.sleep(due.since(clock.now())).await,
            None if runner.goes_on() => {}
            None => return,
        }
    }
}

/// Held by the task that takes up a conversation's jobs; empty once it was dismissed.
struct RunnerGuard(Option<Arc<Conversation>>);

impl RunnerGuard {
    /// `None` if there is such a task; it is asked to look once more.
    fn start(conversation: &Arc<Conversation>) -> Option<Self> {
        let mut inner = conversation.jobs.lock();
        let free = inner.runner == Runner::Idle;
        inner.runner = if free { Runner::Running } else { Runner::AskedAgain };
        free.then(|| Self(Some(conversation.clone())))
    }

    /// Whether it was asked to look once more. If not, it is dismissed in the same step.
    fn goes_on(&mut self) -> bool {
        let Some(conversation) = &self.0 else { return false };
        let mut inner = conversation.jobs.lock();
        let again = inner.runner == Runner::AskedAgain;
        inner.runner = if again { Runner::Running } else { Runner::Idle };
        drop(inner);
        if !again {
            self.0 = None;
        }
        again
    }
}

impl Drop for RunnerGuard {
    fn drop(&mut self) {
        if let Some(conversation) = &self.0 {
            conversation.jobs.lock().runner = Runner::Idle;
        }
    }
}

/// Tries each due job once. Returns when the last of those that failed may be tried again.
async fn take_all(conversation: &Arc<Conversation>, runtime: &Arc<Runtime>) -> Option<Timestamp> {
    let mut selectors = conversation.agent.job_selectors();
    if !runtime.services.background_hooks {
        selectors.retain(|selector| selector.kind == JobKind::Logged);
    }
    let (mut again, mut last) = (None, None::<PostTurn>);
    loop {
        let job = match take(conversation, runtime, &selectors).await {
            Ok(Some(job)) => job,
            Ok(None) => return again,
            Err(error) => {
                // Jobs stay due; they are taken up with the conversation, or by maintenance.
                tracing::warn!(conversation = %conversation.id, %error, "a job could not be taken");
                return again;
            }
        };
        tracing::debug!(conversation = %conversation.id, turn = %job.turn, hook = %job.hook, tries = job.tries, "took a job");
        // Done here, and its result is not written yet.
        if conversation.jobs.contains(&job) {
            continue;
        }
        if let Some(parked) = given_up(&job) {
            delivery::tell_of_failure(conversation, &parked);
            settle(conversation, runtime, parked).await;
            continue;
        }
        if job.kind == JobKind::Summary {
            // Another try is left to whoever takes the conversation up then.
            summaries::make(conversation, runtime, job).await;
            continue;
        }
        if job.kind == JobKind::Logged {
            // Another try is left to maintenance: a process that would only wait for it can end.
            delivery::deliver(conversation, runtime, job).await;
            continue;
        }
        let post = match last.take().filter(|post| post.ctx.id == job.turn) {
            Some(post) => Ok(post),
            None => read_back(conversation, runtime, &job).await,
        };
        let due = match post {
            Ok(post) => attempt(conversation, runtime, last.insert(post), vec![job]).await,
            Err(error) => {
                let now = runtime.services.clock.now();
                settle(conversation, runtime, after_failure(job, with_causes(&error), now, Duration::ZERO)).await
            }
        };
        again = again.max(due);
    }
}

async fn take(
    conversation: &Conversation,
    runtime: &Runtime,
    selectors: &[JobSelector],
) -> Result<Option<Job>, StoreError> {
    let services = &runtime.services;
    let lasts = conversation.agent.time_for_a_job().saturating_add(LEASE);
    let lease = JobLease { writer: &runtime.writer, from: services.clock.now(), lasts };
    services.store.take_job(&conversation.id, selectors, lease).await
}

/// Stores how a try failed. Returns when there may be another.
pub(super) async fn settle(conversation: &Conversation, runtime: &Runtime, job: Job) -> Option<Timestamp> {
    let (due, id) = (job.due, &conversation.id);
    match due {
        Some(_) => {
            tracing::info!(conversation = %id, hook = %job.hook, error = job.error, "a job failed and is tried again")
        }
        None => tracing::warn!(conversation = %id, hook = %job.hook, error = job.error, "a job is parked"),
    }
    if let Err(error) = runtime.services.store.settle_job(id, job, JobDisposition::Keep).await {
        // The lease runs out and the job is due again; its try was counted when it was taken.
        tracing::warn!(conversation = %id, %error, "the failure of a job could not be stored");
    }
    due
}

/// Tries each of these jobs once. Returns when the last of those that failed may be tried again.
async fn attempt(
    conversation: &Arc<Conversation>,
    runtime: &Arc<Runtime>,
    post: &PostTurn,
    jobs: Vec<Job>,
) -> Option<Timestamp> {
    let unwritten = UnwrittenJobs::new(conversation, &jobs);
    let observers = Observers::of(conversation, runtime);
    let mut results = post.attempt(jobs).await;
    drop(observers);
    let mut again = None;
    for job in std::mem::take(&mut results.failed) {
        again = again.max(settle(conversation, runtime, job).await);
    }
    if let Some(from) = results.done.first().map(|job| job.actor.clone()) {
        write_results(conversation, runtime, (post.ctx.id.clone(), from), results).await;
    }
    drop(unwritten);
    again
}

/// What jobs of this turn, left by this actor, came to is written by the process that has the conversation: here by an order, elsewhere
/// through the inbox.
pub(super) async fn write_results(
    conversation: &Arc<Conversation>,
    runtime: &Arc<Runtime>,
    (turn, from): (TurnId, Actor),
    results: JobResults,
) {
    let JobResults { notes, records, done, failed: _ } = results;
    let (written, on_written) = oneshot::channel();
    let copy = JobResults { notes: notes.clone(), records: records.clone(), done: done.clone(), failed: Vec::new() };
    let order = JobResultsOrder { turn: turn.clone(), results: copy, item: None, written: Some(written) };
    conversation.submit_and_spawn(runtime, Order::JobResults(order));
    if on_written.await.is_ok() {
        return;
    }
    let services = &runtime.services;
    let kind = InboxKind::JobResults { turn, notes, records, done: done.clone() };
    let item = InboxItem { id: services.ids.mint("l_").into(), from, at: services.clock.now(), kind };
    if let Err(error) = services.store.deliver(&conversation.id, item).await {
        // The jobs are done again when their lease is over.
        return tracing::warn!(conversation = %conversation.id, %error, "the results of jobs could not be stored");
    }
    for job in done {
        if let Err(error) = services.store.settle_job(&conversation.id, job, JobDisposition::Remove).await {
            tracing::warn!(conversation = %conversation.id, %error, "a job that is done could not be removed");
        }
    }
    // The process that had the conversation may have left it meanwhile.
    conversation.submit_and_spawn(runtime, Order::Wake);
}

/// Jobs that this process works on, until what they came to is written.
pub(super) struct UnwrittenJobs {
    conversation: Arc<Conversation>,
    jobs: Vec<Job>,
}

impl UnwrittenJobs {
    pub(super) fn new(conversation: &Arc<Conversation>, jobs: &[Job]) -> Self {
        conversation.jobs.lock().unwritten.extend_from_slice(jobs);
        Self { conversation: conversation.clone(), jobs: jobs.to_vec() }
    }
}

impl Drop for UnwrittenJobs {
    fn drop(&mut self) {
        let is_ours = |unwritten: &Job| self.jobs.iter().any(|job| job.same_job(unwritten));
        self.conversation.jobs.lock().unwritten.retain(|unwritten| !is_ours(unwritten));
    }
}

/// The turn of a job, as the log has it.
async fn read_back(
    conversation: &Arc<Conversation>,
    runtime: &Arc<Runtime>,
    job: &Job,
) -> Result<PostTurn, StoreError> {
    let agent = &conversation.agent;
    let store = &*runtime.services.store;
    let cuts = store.cuts(&conversation.id).await?;
    let cut = cuts.into_iter().rfind(|cut| cut.made_at <= job.seq).map(Arc::new);
    let log = log_of_job(store, &conversation.id, agent, job, cut.as_ref()).await?;
    let ended = log.last().and_then(|event| match &event.kind {
        EventKind::TurnEnded(ended) if event.turn == job.turn => Some(ended.clone()),
        _ => None,
    });
    let Some(ended) = ended else {
        let doing = format!("reading back turn {} of conversation {}", job.turn, conversation.id);
        return Err(StoreError::failed(doing, "its end is not where the job says"));
    };
    let capacity = agent.window_capacity();
    let summary = match cut.as_ref().and_then(|cut| cut.summary) {
        Some(version) => store.summaries(&conversation.id).await?.into_iter().find(|one| one.version == version),
        None => None,
    };
    let from_cut = cut.and_then(|cut| State::revive(capacity, Totals::default(), Some((&cut, summary.as_ref())), &log));
    let state = from_cut.unwrap_or_else(|| {
        let mut state = Box::new(State::new(capacity));
        log.iter().for_each(|event| state.apply(event));
        state
    });
    let ctx = context_after(conversation, runtime, job.turn.clone(), (runtime.scope_source)(&job.actor));
    let of = ReportOf {
        conversation: conversation.id.clone(),
        turn: job.turn.clone(),
        agent: agent_of(job, agent).clone(),
        actor: job.actor.clone(),
        permission_mode: runtime.services.permission_mode,
    };
    let report = TurnReport::new(of, &ended, last_reply(&log, &job.turn));
    let overlay = Overlay { summary: state.window.summary(), ..Overlay::default() };
    let messages = layout::messages(state.window.events(), &overlay);
    let background = background_context(&ctx, &report, messages);
    Ok(PostTurn { ctx, report, background })
}

/// The agent whose turn it was. Another one that has the same hook may do the job. Jobs of older versions do not name it.
fn agent_of<'a>(job: &'a Job, here: &'a Agent) -> &'a Text {
    if job.agent.is_empty() { here.shared_name() } else { &job.agent }
}

/// The context of a turn that is over, for hooks that run after it.
pub(super) fn context_after(
    conversation: &Arc<Conversation>,
    runtime: &Arc<Runtime>,
    turn: TurnId,
    scope: Scope,
) -> Arc<TurnContext> {
    let new = NewTurn {
        conversation: conversation.id.clone(),
        id: turn,
        scope,
        agent: conversation.agent.clone(),
        parent: conversation.parent(),
        services: runtime.services.clone(),
        feed: conversation.feed.clone(),
        host: conversation.clone(),
        abort: AbortToken::new(),
    };
    let limits = conversation.agent.limits().clone();
    let budget = Budget::new(conversation.id.clone(), 0, Default::default(), Vec::new(), None);
    TurnContext::new(new, limits, budget, Vec::new())
}

/// What background hooks see of their turn.
pub(super) fn background_context(
    ctx: &Arc<TurnContext>,
    report: &TurnReport,
    messages: Arc<Vec<Message>>,
) -> BackgroundContext {
    BackgroundContext {
        conversation: ctx.conversation.clone(),
        turn: ctx.id.clone(),
        agent: ctx.agent_name().clone(),
        scope: ctx.scope.clone(),
        at: ctx.clock().now(),
        messages,
        reply: report.reply.clone(),
        outcome: report.outcome,
        notes: Arc::new(NoteBuffer::new(ctx.feed.clone())),
        ctx: ctx.clone(),
    }
}
