//! What is done when a turn is over: `on_ended` and background hooks, from the outbox, at least once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::view::TurnContext;
use crate::clock::Timestamp;
use crate::conversation::{Doing, TurnReport};
use crate::feed::{EventFeed, LiveEvent};
use crate::hook::run::Run;
use crate::hook::{BackgroundContext, HookEntry, HookFailure, Point, Record};
use crate::id::TurnId;
use crate::message::{Content, Text};
use crate::store::{Job, JobKind};

/// How often a background hook is tried before it is parked with its error.
const MOST_TRIES: u32 = 3;
/// The wait after the first failed try; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// What a background hook leaves, until it has returned well.
pub(crate) struct NoteBuffer {
    feed: Arc<EventFeed>,
    notes: Mutex<Vec<Content>>,
}

impl NoteBuffer {
    pub(crate) fn new(feed: Arc<EventFeed>) -> Self {
        Self { feed, notes: Mutex::default() }
    }
    pub(crate) fn leave(&self, content: Content) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(content);
    }
    pub(crate) fn publish(&self, turn: &TurnId, live: LiveEvent) {
        self.feed.publish_live(Some(turn), live);
    }
    fn take(&self) -> Vec<Content> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for NoteBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackgroundDesk")
    }
}

/// A turn that is over, as its jobs see it: just ended, or read back from the log.
pub(crate) struct PostTurn {
    pub(crate) ctx: Arc<TurnContext>,
    pub(crate) ended: TurnReport,
    pub(crate) snapshot: BackgroundContext,
}

/// What came of some jobs.
#[derive(Default)]
pub(crate) struct JobResults {
    /// What background hooks left for the next turn.
    pub(crate) notes: Vec<(Text, Content)>,
    pub(crate) records: Vec<Record>,
    /// They need not be tried again.
    pub(crate) done: Vec<Job>,
    /// They failed, with the error, and are due again or parked.
    pub(crate) failed: Vec<Job>,
    /// Held until all of this is written.
    pub(crate) doing: Option<Doing>,
}

impl PostTurn {
    /// One try at each job, in order.
    pub(crate) async fn attempt(&self, jobs: Vec<Job>) -> JobResults {
        let mut all = JobResults::default();
        for job in jobs {
            match self.run(&job, &mut all.records).await {
                Ok(notes) => {
                    all.notes.extend(notes.into_iter().map(|content| (job.hook.clone(), content)));
                    all.done.push(job);
                }
                // An observer's failure is in its record; it is not told again.
                Err(_) if job.kind == JobKind::Ended => all.done.push(job),
                Err(failure) => all.failed.push(after_failure(job, failure.to_string(), self.ctx.clock.now())),
            }
        }
        all
    }

    async fn run(&self, job: &Job, records: &mut Vec<Record>) -> Result<Vec<Content>, HookFailure> {
        let chains = self.ctx.agent.chains();
        let hooks = match job.kind {
            JobKind::Ended => &chains.on_ended,
            JobKind::Background => &chains.background,
        };
        match hooks.iter().find(|entry| entry.name == job.hook) {
            Some(entry) if job.kind == JobKind::Ended => self.observe_end(entry, records).await.map(|()| Vec::new()),
            Some(entry) => self.work(entry, records).await,
            None => Err(HookFailure::Error("the agent has no such hook any more".into())),
        }
    }

    async fn observe_end(&self, entry: &HookEntry, records: &mut Vec<Record>) -> Result<(), HookFailure> {
        let Some(hook) = entry.hook() else { return Ok(()) };
        let run = Run::new(&self.ctx, entry, Point::OnEnded).after_the_turn();
        let Ok(finished) = run.decide(hook.on_ended(&self.ended)).await else { return Ok(()) };
        finished.recorded(&self.ctx, records)
    }

    /// Its notes count only when it has returned well.
    async fn work(&self, entry: &HookEntry, records: &mut Vec<Record>) -> Result<Vec<Content>, HookFailure> {
        let Some(hook) = entry.hook() else { return Ok(Vec::new()) };
        self.ctx.publish(LiveEvent::BackgroundStarted { hook: entry.name.clone() });
        self.snapshot.desk.take();
        let run = Run::new(&self.ctx, entry, Point::Background).after_the_turn();
        let Ok(finished) = run.decide(hook.background(&self.snapshot)).await else { return Ok(Vec::new()) };
        let result = finished.recorded(&self.ctx, records);
        let error = result.as_ref().err().map(|failure| failure.to_string().into());
        self.ctx.publish(LiveEvent::BackgroundFinished { hook: entry.name.clone(), error });
        result.map(|()| self.snapshot.desk.take())
    }
}

/// A job whose try failed: due again after a while that doubles; after the last try it is parked with its error.
pub(crate) fn after_failure(mut job: Job, error: String, now: Timestamp) -> Job {
    job.error = Some(error);
    let wait = FIRST_WAIT * 2_u32.saturating_pow(job.tries.saturating_sub(1).min(16));
    job.due = (job.tries < MOST_TRIES).then(|| now.after(wait));
    job
}

/// A job that was begun as often as it may and of which nothing was heard: its process ended each time, and the job may
/// well be why. It is parked, and says so.
pub(crate) fn given_up(job: &Job) -> Option<Job> {
    if job.tries <= MOST_TRIES {
        return None;
    }
    let mut error = format!("it was begun {MOST_TRIES} times, and the process ended before it did");
    if let Some(before) = &job.error {
        error = format!("{error}; it had failed before: {before}");
    }
    Some(Job { tries: MOST_TRIES, error: Some(error), due: None, ..job.clone() })
}
