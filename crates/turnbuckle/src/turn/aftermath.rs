//! What is done when a turn is over: `on_ended` and background hooks, from the outbox, at least once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::seen::Frame;
use crate::conversation::Ended;
use crate::hook::run::Run;
use crate::hook::{HookEntry, HookFailure, Point, Record, Snapshot};
use crate::id::TurnId;
use crate::live::{Live, Plane};
use crate::message::{Content, Text};
use crate::store::{Job, JobDone, JobKind};

/// How often a background hook is tried before it is parked with its error.
const MOST_TRIES: u32 = 3;
/// The wait after the first failed try; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// What a background hook leaves, until it has returned well.
pub(crate) struct BackgroundDesk {
    plane: Arc<Plane>,
    notes: Mutex<Vec<Content>>,
}

impl BackgroundDesk {
    pub(crate) fn new(plane: Arc<Plane>) -> Self {
        Self { plane, notes: Mutex::default() }
    }
    pub(crate) fn leave(&self, content: Content) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(content);
    }
    pub(crate) fn tell(&self, turn: &TurnId, live: Live) {
        self.plane.tell_live(Some(turn), live);
    }
    fn take(&self) -> Vec<Content> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for BackgroundDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackgroundDesk")
    }
}

/// Runs the jobs of one kind that a turn left. Gives back what background hooks noted for the next turn.
pub(crate) async fn run_jobs(
    frame: &Arc<Frame>,
    kind: JobKind,
    ended: &Ended,
    snapshot: &Snapshot,
) -> (Vec<(Text, Content)>, Vec<Record>) {
    let (mut notes, mut records) = (Vec::new(), Vec::new());
    let chains = frame.agent.chains();
    let hooks = match kind {
        JobKind::Ended => &chains.on_ended,
        JobKind::Background => &chains.background,
    };
    for entry in hooks {
        let (turn, by) = (frame.id.clone(), frame.scope.by());
        let job = Job { turn, hook: entry.name.clone(), kind, by, tries: 0, error: None };
        let done = match kind {
            JobKind::Ended => observe_end(frame, entry, ended, &mut records).await.map(|()| Vec::new()),
            JobKind::Background => work_aside(frame, entry, snapshot, &mut records).await,
        };
        let settled = match &done {
            // An observer's failure is in its record; the hook is not run again.
            Err(_) if kind == JobKind::Ended => JobDone::Removed,
            Err(_) => JobDone::Kept,
            Ok(_) => JobDone::Removed,
        };
        let error = done.as_ref().err().map(ToString::to_string);
        let job = Job { tries: if error.is_some() { MOST_TRIES } else { 1 }, error, ..job };
        // A job that cannot be removed is done again: at least once is the promise.
        let _ = frame.house.store.settle_job(&frame.conversation, job, settled).await;
        notes.extend(done.unwrap_or_default().into_iter().map(|content| (entry.name.clone(), content)));
    }
    (notes, records)
}

async fn observe_end(
    frame: &Arc<Frame>,
    entry: &HookEntry,
    ended: &Ended,
    records: &mut Vec<Record>,
) -> Result<(), HookFailure> {
    let Some(hook) = entry.hook() else { return Ok(()) };
    let run = Run::new(frame, entry, Point::OnEnded).after_the_turn();
    let Ok(ran) = run.decide(hook.on_ended(ended)).await else { return Ok(()) };
    ran.recorded(frame, records)
}

/// With bounded retries; its notes count only when it has returned well.
async fn work_aside(
    frame: &Arc<Frame>,
    entry: &HookEntry,
    snapshot: &Snapshot,
    records: &mut Vec<Record>,
) -> Result<Vec<Content>, HookFailure> {
    let Some(hook) = entry.hook() else { return Ok(Vec::new()) };
    let mut wait = FIRST_WAIT;
    let mut tries = 0;
    loop {
        tries += 1;
        frame.tell(Live::BackgroundStarted { hook: entry.name.clone() });
        snapshot.desk.take();
        let run = Run::new(frame, entry, Point::Background).after_the_turn();
        let Ok(ran) = run.decide(hook.background(snapshot)).await else { return Ok(Vec::new()) };
        let result = ran.recorded(frame, records);
        let error = result.as_ref().err().map(|failure| failure.to_string().into());
        frame.tell(Live::BackgroundFinished { hook: entry.name.clone(), error });
        match result {
            Ok(()) => return Ok(snapshot.desk.take()),
            Err(failure) if tries >= MOST_TRIES => return Err(failure),
            Err(_) => frame.clock.sleep(wait).await,
        }
        wait *= 2;
    }
}
