//! A turn that is over: whoever waits is told, and what it left to be done is done.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use super::House;
use super::cell::Cell;
use super::command::Command;
use super::driver::Sitting;
use super::observers::Watching;
use super::outcome::{Ended, Rest};
use crate::context::layout::{self, Beyond};
use crate::event::{Event, EventKind};
use crate::hook::Snapshot;
use crate::id::TurnId;
use crate::message::Reply;
use crate::store::{Batch, Hold, Job, JobDone, JobKind, LEASE, Lease, RENEW_EVERY, Standing, StoreError};
use crate::turn::{Aftermath, BackgroundDesk, CutToken, Flight, Frame, FrameParts, Meter, Spent, Stage, State};

impl Sitting {
    /// Takes the state back. `on_ended` hooks see the end before whoever waits; background hooks begin.
    pub(super) async fn land(
        &mut self,
        flight: Box<Flight>,
        done: Result<Stage, StoreError>,
    ) -> Result<(), StoreError> {
        let Flight { turn, state, beside, ended, released, jobs, taking, .. } = *flight;
        done?;
        // Letters that came to nothing, in a turn that wrote nothing behind them.
        self.read.extend(taking);
        if released {
            self.epoch = None;
        }
        self.state = Some(state);
        let Some(ended) = ended else {
            self.beside = Some(beside);
            return Ok(());
        };
        let (frame, reply) = (turn.frame, turn.seen.assistant_message.clone());
        let (conversation, agent) = (frame.conversation.clone(), frame.agent.shared_name().clone());
        let ended = Ended::new(conversation, frame.id.clone(), agent, frame.mode, ended, reply);
        let chains = frame.agent.chains();
        if chains.on_ended.is_empty() && chains.background.is_empty() {
            self.tell_ended(&frame.id, ended);
            return Ok(());
        }
        Box::pin(self.finish(frame, ended, jobs)).await
    }

    async fn finish(&mut self, frame: Arc<Frame>, ended: Ended, jobs: Vec<Job>) -> Result<(), StoreError> {
        let messages = self.state.as_ref().map(|state| layout::messages(&state.history, &Beyond::default()));
        let snapshot = snapshot(&frame, &ended, messages.unwrap_or_default());
        let after = Aftermath { frame, ended, snapshot };
        let (observers, aside): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.kind == JobKind::Ended);
        let told = self.renewing(after.attempt(observers)).await;
        let released = match (self.epoch.take(), &self.state) {
            (Some(epoch), Some(state)) => {
                let batch = Batch::new(&self.cell.id, epoch, state.seq);
                let turn = Some(&after.frame.id);
                let (standing, lease) = (Some(Standing::Idle), Lease::Release);
                let batch = Batch { turn, records: told.records, done: &told.done, standing, lease, ..batch };
                self.house.store.append(batch).await
            }
            _ => Ok(()),
        };
        let (turn, ended) = (after.frame.id.clone(), after.ended.clone());
        if !aside.is_empty() {
            work_aside(self.cell.clone(), self.house.clone(), after, aside);
        }
        // The turn is over and written, whatever becomes of the claim.
        self.tell_ended(&turn, ended);
        released
    }

    /// Keeps the claim while hooks run under it.
    async fn renewing<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.house.clock.sleep(RENEW_EVERY) => {}
            }
            if let Some(epoch) = self.epoch {
                // A claim that is lost is found out by the next write.
                let _ = self.house.store.renew(&self.cell.id, epoch, self.house.clock.now()).await;
            }
        }
    }

    fn tell_ended(&self, turn: &TurnId, ended: Ended) {
        self.cell.drop_scope(turn);
        self.cell.tell_rest(Some(turn), Ok(Rest::Ended(Box::new(ended))));
    }

    /// The first time that this process holds the conversation: jobs that another left are taken up.
    pub(super) fn sweep(&self) {
        let chains = self.cell.agent.chains();
        let can_do = !chains.on_ended.is_empty() || !chains.background.is_empty();
        if can_do
            && !self.house.bare
            && self.state.as_ref().is_some_and(|state| state.seq > 0)
            && self.cell.sweeps_first()
        {
            take_up_jobs(self.cell.clone(), self.house.clone());
        }
    }
}

/// Takes up the jobs of a conversation that are due, beside whatever else happens.
pub(super) fn take_up_jobs(cell: Arc<Cell>, house: Arc<House>) {
    let aside = house.clone();
    aside.begin_aside();
    tokio::spawn(async move {
        // A store that cannot be read now is asked again when the conversation is next taken up.
        if let Ok(mut jobs) = take_jobs(&cell, &house).await {
            while let Some(first) = jobs.first().cloned() {
                let (these, others) = jobs.into_iter().partition(|job: &Job| job.turn == first.turn);
                jobs = others;
                if let Ok(after) = read_back(&cell, &house, &first).await {
                    work(&cell, &house, after, these).await;
                }
            }
        }
        house.end_aside();
    });
}

/// Those that are due, but for what this process has done and not yet written.
async fn take_jobs(cell: &Cell, house: &House) -> Result<Vec<Job>, StoreError> {
    let (writer, from, lasts) = (&house.writer, house.clock.now(), cell.agent.time_for_jobs() + LEASE);
    let taken = house.store.take_jobs(&cell.id, Hold { writer, from, lasts }).await?;
    Ok(taken.into_iter().filter(|job| !cell.is_doing(job)).collect())
}

/// Background hooks run beside whatever comes next.
fn work_aside(cell: Arc<Cell>, house: Arc<House>, after: Aftermath, jobs: Vec<Job>) {
    house.begin_aside();
    tokio::spawn(async move {
        work(&cell, &house, after, jobs).await;
        house.end_aside();
    });
}

/// One try at each. Those that failed are taken up again, with whatever else is due then.
async fn work(cell: &Arc<Cell>, house: &Arc<House>, after: Aftermath, jobs: Vec<Job>) {
    let doing = Doing::of(cell, &jobs);
    let watching = Watching::of(cell, house);
    let mut yielded = after.attempt(jobs).await;
    drop(watching);
    let failed = std::mem::take(&mut yielded.failed);
    yielded.doing = Some(doing);
    if !yielded.records.is_empty() || !yielded.done.is_empty() {
        cell.command(house, Command::Notes(after.frame.id.clone(), Box::new(yielded)));
    }
    for job in &failed {
        // One whose failure cannot be stored is held a while and then due again.
        let _ = house.store.settle_job(&cell.id, job.clone(), JobDone::Kept).await;
    }
    let Some(due) = failed.iter().filter_map(|job| job.due).max() else { return };
    house.clock.sleep(due.since(house.clock.now())).await;
    take_up_jobs(cell.clone(), house.clone());
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
async fn read_back(cell: &Arc<Cell>, house: &Arc<House>, job: &Job) -> Result<Aftermath, StoreError> {
    let agent = cell.agent.clone();
    let room = agent.limits().room();
    let (mut log, mut enough): (Vec<Arc<Event>>, u64) = (Vec::new(), room);
    let begins = |log: &[Arc<Event>]| {
        log.iter().any(|event| event.turn == job.turn && matches!(event.kind, EventKind::UserMessage { .. }))
    };
    while !begins(&log) {
        let before = log.first().map_or(job.seq + 1, |first| first.seq);
        let mut older = house.store.tail(&cell.id, before, enough).await?;
        if older.is_empty() {
            break;
        }
        older.append(&mut log);
        (log, enough) = (older, enough.saturating_mul(2));
    }
    let mut state = State::new(room);
    log.iter().for_each(|event| state.apply(event));
    let ended = log.last().and_then(|event| match &event.kind {
        EventKind::TurnEnded(ended) if event.turn == job.turn => Some(ended.clone()),
        _ => None,
    });
    let Some(ended) = ended else {
        let doing = format!("reading back turn {} of conversation {}", job.turn, cell.id);
        return Err(StoreError::Failed { doing, source: "its end is not where the job says".into() });
    };
    let frame = Arc::new(Frame::new(FrameParts {
        conversation: cell.id.clone(),
        id: job.turn.clone(),
        scope: (house.scope_source)(&job.actor),
        limits: agent.limits().clone(),
        agent,
        parent: cell.parent.clone(),
        plane: cell.plane.clone(),
        house: house.clone(),
        cut: CutToken::new(),
        meter: Meter::new(0, Spent::default(), None),
        touched: Vec::new(),
    }));
    let name = frame.agent.shared_name().clone();
    let reply = last_words(&log, &job.turn);
    let ended = Ended::new(cell.id.clone(), job.turn.clone(), name, frame.mode, ended, reply);
    let messages = layout::messages(&state.history, &Beyond::default());
    let snapshot = snapshot(&frame, &ended, messages);
    Ok(Aftermath { frame, ended, snapshot })
}

fn last_words(log: &[Arc<Event>], turn: &TurnId) -> Option<Arc<Reply>> {
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

fn snapshot(frame: &Arc<Frame>, ended: &Ended, messages: Arc<Vec<crate::Message>>) -> Snapshot {
    Snapshot {
        conversation: frame.conversation.clone(),
        turn: frame.id.clone(),
        agent: frame.agent.shared_name().clone(),
        scope: frame.scope.clone(),
        at: frame.clock.now(),
        messages,
        reply: ended.reply.clone(),
        outcome: ended.outcome,
        desk: Arc::new(BackgroundDesk::new(frame.plane.clone())),
    }
}
