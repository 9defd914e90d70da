//! What is done after a turn: `on_ended` and background hooks, from the outbox, at least once.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::changes::note_injected;
use super::context::TurnContext;
use crate::change::InjectionSpan;
use crate::clock::Timestamp;
use crate::feed::{EventFeed, LiveEvent};
use crate::hook::call::HookCaller;
use crate::hook::{BackgroundContext, HookEntry, HookFailure, Point, Record};
use crate::id::TurnId;
use crate::message::{Content, Text};
use crate::report::TurnReport;
use crate::store::{Job, JobKind};

/// How often a job is tried before it is parked with its error. A receiver of messages may be down for some minutes.
pub(crate) fn max_tries(kind: JobKind) -> u32 {
    match kind {
        JobKind::Ended | JobKind::Background | JobKind::Summary => 3,
        JobKind::Logged => 8,
    }
}

/// The wait after the first failed try, and how many times as long it is after each further one.
fn waits(kind: JobKind) -> (Duration, u32) {
    match kind {
        JobKind::Ended | JobKind::Background => (Duration::from_secs(1), 2),
        JobKind::Logged => (Duration::from_secs(5), 2),
        // Nobody waits for a summary, and a provider that is down or has a limit of calls is so for minutes.
        JobKind::Summary => (Duration::from_secs(30), 8),
    }
}

/// What a background hook leaves. It counts only when the hook has returned well.
pub(crate) struct NoteBuffer {
    feed: Arc<EventFeed>,
    notes: Mutex<Vec<Content>>,
}

impl NoteBuffer {
    pub(crate) fn new(feed: Arc<EventFeed>) -> Self {
        Self { feed, notes: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Content>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, content: Content) {
        self.lock().push(content);
    }

    pub(crate) fn publish(&self, turn: &TurnId, live: LiveEvent) {
        self.feed.publish_live(Some(turn), live);
    }

    fn take(&self) -> Vec<Content> {
        std::mem::take(&mut *self.lock())
    }
}

impl std::fmt::Debug for NoteBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoteBuffer")
    }
}

/// A turn that is over, as its jobs see it: just ended, or read back from the log.
pub(crate) struct PostTurn {
    pub(crate) ctx: Arc<TurnContext>,
    pub(crate) report: TurnReport,
    pub(crate) background: BackgroundContext,
}

/// What jobs came to.
#[derive(Default)]
pub(crate) struct JobResults {
    /// What background hooks left for the next turn, by hook.
    pub(crate) notes: Vec<(Text, Content)>,
    pub(crate) records: Vec<Record>,
    /// Jobs that need not be tried again.
    pub(crate) done: Vec<Job>,
    /// Jobs that failed, with their error. They are due again or parked.
    pub(crate) failed: Vec<Job>,
}

impl PostTurn {
    /// Tries each job once, in order.
    pub(crate) async fn attempt(&self, jobs: Vec<Job>) -> JobResults {
        let mut results = JobResults::default();
        for job in jobs {
            match self.run(&job, &mut results.records).await {
                Ok(notes) => {
                    results.notes.extend(notes.into_iter().map(|content| (job.hook.clone(), content)));
                    results.done.push(job);
                }
                // An observer is not called again; its failure is in its record.
                Err(_) if job.kind == JobKind::Ended => results.done.push(job),
                Err(failure) => {
                    results.failed.push(after_failure(
                        job,
                        failure.to_string(),
                        self.ctx.clock().now(),
                        Duration::ZERO,
                    ));
                }
            }
        }
        results
    }

    async fn run(&self, job: &Job, records: &mut Vec<Record>) -> Result<Vec<Content>, HookFailure> {
        let point = match job.kind {
            JobKind::Ended => Point::OnEnded,
            JobKind::Background => Point::Background,
            // They do not wait for the end of their turn; the outbox runs them by itself.
            JobKind::Logged | JobKind::Summary => return Ok(Vec::new()),
        };
        let hooks = self.ctx.agent.hooks_at(point);
        match hooks.iter().find(|entry| entry.name == job.hook) {
            Some(entry) if job.kind == JobKind::Ended => self.on_ended(entry, records).await.map(|()| Vec::new()),
            Some(entry) => self.background(entry, records).await,
            None => Err(crate::BoxError::from("the agent has no such hook any more").into()),
        }
    }

    async fn on_ended(&self, entry: &HookEntry, records: &mut Vec<Record>) -> Result<(), HookFailure> {
        let Some(hook) = entry.hook() else { return Ok(()) };
        let mut caller = HookCaller::new(&self.ctx, Point::OnEnded).after_turn();
        // Nothing stops a hook after its turn, so this always has a result.
        let Ok(run) = caller.run(entry, pin!(hook.on_ended(&self.report))).await else { return Ok(()) };
        caller.record(&entry.name, run, records)
    }

    async fn background(&self, entry: &HookEntry, records: &mut Vec<Record>) -> Result<Vec<Content>, HookFailure> {
        let Some(hook) = entry.hook() else { return Ok(Vec::new()) };
        self.ctx.publish(LiveEvent::BackgroundStarted { hook: entry.name.clone() });
        // What a try before this one left behind, and failed, does not count.
        drop(self.background.notes.take());
        let mut caller = HookCaller::new(&self.ctx, Point::Background).after_turn();
        let Ok(run) = caller.run(entry, pin!(hook.background(&self.background))).await else { return Ok(Vec::new()) };
        let result = caller.record(&entry.name, run, records);
        let error = result.as_ref().err().map(|failure| failure.to_string().into());
        self.ctx.publish(LiveEvent::BackgroundFinished { hook: entry.name.clone(), error });
        result?;
        let notes = self.background.notes.take();
        for content in &notes {
            note_injected(&self.ctx, records, &entry.name, content, InjectionSpan::NextTurn);
        }
        Ok(notes)
    }
}

/// A job whose try failed: due again after a wait that grows, and that is not shorter than `at_least`. After the last try it is
/// parked with its error.
pub(crate) fn after_failure(mut job: Job, error: String, now: Timestamp, at_least: Duration) -> Job {
    job.error = Some(error);
    let (first, times) = waits(job.kind);
    let wait = first.saturating_mul(times.saturating_pow(job.tries.saturating_sub(1).min(16)));
    job.due = (job.tries < max_tries(job.kind)).then(|| now.after(wait.max(at_least)));
    job
}

/// A job that was begun as often as allowed and never came to an end: its process ended each time, and the job may be
/// why. It is parked, and says so.
pub(crate) fn given_up(job: &Job) -> Option<Job> {
    let most = max_tries(job.kind);
    if job.tries <= most {
        return None;
    }
    let mut error = format!("it was begun {most} times, and the process ended before it did");
    if let Some(before) = &job.error {
        error = format!("{error}; it had failed before: {before}");
    }
    Some(Job { tries: most, error: Some(error), due: None, ..job.clone() })
}
