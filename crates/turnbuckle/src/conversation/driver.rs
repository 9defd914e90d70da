//! The driver: claims a conversation, carries out commands, drives its turns to rest, and gives the seat back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::cell::{Cell, Command, NewMessage, Notes, SeatGuard};
use super::observers::Watching;
use super::outcome::{Ended, Rest, TurnError};
use super::pace::paced;
use super::{House, WhileBusy};
use crate::context::layout::{self, Beyond};
use crate::event::{Event, EventKind, Place};
use crate::hook::{Meeting, Moment, Record, Snapshot};
use crate::id::{CallId, TurnId};
use crate::live::{ConversationState, Live};
use crate::projection::Pending;
use crate::scope::Scope;
use crate::store::{Batch, Beside, BesideWrite, InboxMessage, JobKind, Lease, StoreError};
use crate::turn::{BackgroundDesk, Cut, Flight, Frame, Resolve, Stage, State, next, resolve, run_jobs};

/// From the first command until nothing is left to do.
pub(super) async fn run(seat: SeatGuard, house: Arc<House>, state: Option<Box<State>>, first: Command) {
    let mut sitting = Sitting {
        cell: seat.cell.clone(),
        house,
        state,
        inbox: SmallVec::new(),
        beside: None,
        epoch: None,
        resolve: None,
        cut: None,
        watching: None,
    };
    let mut command = first;
    loop {
        if let Err(error) = sitting.carry_out(command).await {
            sitting.give_up(error);
            return seat.rested();
        }
        let Some(more) = sitting.rest() else { return seat.rested() };
        command = more;
    }
}

/// One stay at the seat.
pub(super) struct Sitting {
    pub(super) cell: Arc<Cell>,
    pub(super) house: Arc<House>,
    pub(super) state: Option<Box<State>>,
    pub(super) inbox: SmallVec<[InboxMessage; 1]>,
    pub(super) beside: Option<Beside>,
    /// The claim, while it is held.
    epoch: Option<u64>,
    /// What the next flight begins with.
    resolve: Option<Resolve>,
    cut: Option<Cut>,
    /// Keeps the observers at work.
    watching: Option<Arc<Watching>>,
}

impl Sitting {
    async fn carry_out(&mut self, command: Command) -> Result<(), StoreError> {
        if let Err(error) = self.claim().await {
            let error = Arc::new(error);
            command.fail(&error);
            return Err(StoreError::Failed {
                doing: "claiming the conversation".into(),
                source: Box::new(Shared(error)),
            });
        }
        self.obey(command).await?;
        while self.has_work() {
            self.fly().await?;
        }
        self.release(None, Vec::new()).await
    }

    async fn claim(&mut self) -> Result<(), StoreError> {
        if self.epoch.is_some() {
            return Ok(());
        }
        let claim = self.house.store.claim(&self.cell.id, &self.house.writer, self.house.clock.now()).await?;
        let current = self.state.as_ref().is_some_and(|state| state.seq == claim.seq);
        if !current || !self.cell.is_shown() {
            let log = match claim.seq {
                0 => Vec::new(),
                _ => self.house.store.log(&self.cell.id, 1).await?,
            };
            let mut state = State::new(self.cell.agent.limits().room());
            log.iter().for_each(|event| state.apply(event));
            self.state = Some(Box::new(state));
            self.cell.show(claim.epoch, &log);
        } else {
            self.cell.plane.begin_epoch(claim.epoch, None);
        }
        (self.epoch, self.beside) = (Some(claim.epoch), claim.beside);
        self.inbox.clear();
        self.inbox.extend(claim.inbox);
        Ok(())
    }

    fn stage(&self) -> Stage {
        self.state.as_ref().map_or(Stage::Idle, |state| next(state))
    }

    async fn obey(&mut self, command: Command) -> Result<(), StoreError> {
        match command {
            Command::Message(message) => return self.take(message).await,
            Command::Resolve(resolve) if self.stage() == Stage::Idle => {
                let (call, why) = (resolve.call, "no turn is open".into());
                let _ = resolve.done.send(Err(super::ResolveError::Stale { call, why }));
            }
            Command::Resolve(resolve) => self.resolve = Some(resolve),
            Command::Cancel(cut) => self.cut = Some(cut),
            Command::Resume(found, waiter) => {
                let open = self.state.as_ref().and_then(|state| state.turn.as_ref()).map(|turn| turn.id.clone());
                let open = open.or_else(|| self.inbox.first().map(|message| message.turn.clone()));
                if let Some(turn) = &open {
                    self.cell.add_waiter(Some(turn.clone()), waiter);
                }
                let _ = found.send(Ok(open));
            }
            Command::Notes(notes) => return self.note(notes).await,
            Command::Wake => {}
            Command::Close(_, done) if self.stage() != Stage::Idle => {
                let pending = self.pending().into_iter().map(|pending| pending.call).collect();
                let _ = done.send(Err(super::SendError::Busy { id: self.cell.id.clone(), pending }));
            }
            Command::Close(scope, done) => {
                self.end_conversation(scope).await?;
                let _ = done.send(Ok(()));
            }
        }
        Ok(())
    }

    /// Stores a message, by what the caller wants if a turn waits.
    async fn take(&mut self, message: NewMessage) -> Result<(), StoreError> {
        let NewMessage { turn, content, scope, while_busy, done } = message;
        if self.stage() == Stage::Waiting {
            match while_busy {
                WhileBusy::Reject => {
                    let pending = self.pending().into_iter().map(|pending| pending.call).collect::<Vec<CallId>>();
                    NewMessage { turn, content, scope, while_busy, done }.refuse(&self.cell.id, pending);
                    return Ok(());
                }
                WhileBusy::Queue => {}
                WhileBusy::Interrupt => self.cut = Some(Cut::Cancelled(scope.by())),
            }
        }
        let (actor, at) = (scope.actor().clone(), self.house.clock.now());
        let message = InboxMessage { turn: turn.clone(), content, actor, at };
        if let Err(error) = self.house.store.deliver(&self.cell.id, message.clone()).await {
            let _ = done.send(Err(super::SendError::Store(error)));
            return Ok(());
        }
        self.inbox.push(message);
        self.cell.keep_scope(&turn, scope);
        // The sender may have gone: the message is stored, and its turn runs.
        let _ = done.send(Ok(()));
        Ok(())
    }

    fn pending(&self) -> Vec<Pending> {
        self.cell.plane.snapshot().pending
    }

    fn has_work(&mut self) -> bool {
        match self.stage() {
            Stage::Idle => {
                self.cut = None;
                !self.inbox.is_empty()
            }
            Stage::Waiting if self.resolve.is_none() && self.cut.is_none() => {
                let open = self.state.as_ref().and_then(|state| state.turn.as_ref()).map(|turn| turn.id.clone());
                self.cell.tell_rest(open.as_ref(), Ok(Rest::Waiting(self.pending())));
                false
            }
            _ => true,
        }
    }

    /// One turn, until it is over or waits.
    async fn fly(&mut self) -> Result<(), StoreError> {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.claim().await?;
                return Ok(());
            }
        };
        let Some(mut flight) = self.take_off(epoch) else { return Ok(()) };
        if self.watching.is_none() {
            self.watching = Watching::of(&self.cell, &self.house);
        }
        let mut answered = Ok(());
        if let Some(cut) = self.cut.take() {
            flight.settle(cut.verdict());
        } else if let Some(resolve) = self.resolve.take() {
            answered = resolve::answer(&mut flight, resolve).await;
        }
        let done = match answered {
            Ok(()) => paced(&mut flight).await,
            Err(error) => Err(error),
        };
        self.cell.landed();
        match self.land(*flight, done) {
            Ok(Some(landed)) if landed.leaves_work() => Box::pin(self.finish(landed)).await,
            Ok(Some(landed)) => {
                self.tell_ended(landed);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes the state back. A turn that is over is still to be told.
    fn land(&mut self, flight: Flight, done: Result<Stage, StoreError>) -> Result<Option<Landed>, StoreError> {
        let Flight { turn, state, beside, ended, released, .. } = flight;
        done?;
        if released {
            self.epoch = None;
        }
        self.state = Some(state);
        let Some(ended) = ended else {
            self.beside = Some(beside);
            return Ok(None);
        };
        let frame = turn.frame.clone();
        let (conversation, agent) = (frame.conversation.clone(), frame.agent.shared_name().clone());
        let ended =
            Ended::new(conversation, frame.id.clone(), agent, frame.mode, ended, turn.assistant_message().cloned());
        Ok(Some(Landed { frame, ended }))
    }

    /// `on_ended` hooks see the end before whoever waits; background hooks begin.
    async fn finish(&mut self, landed: Landed) -> Result<(), StoreError> {
        let Landed { frame, ended } = &landed;
        let messages = self.state.as_ref().map(|state| layout::messages(&state.history, &Beyond::default()));
        let snapshot = Snapshot {
            conversation: frame.conversation.clone(),
            turn: frame.id.clone(),
            agent: frame.agent.shared_name().clone(),
            scope: frame.scope.clone(),
            at: self.house.clock.now(),
            messages: messages.unwrap_or_default(),
            reply: ended.reply.clone(),
            outcome: ended.outcome,
            desk: Arc::new(BackgroundDesk::new(frame.plane.clone())),
        };
        let (_, records) = run_jobs(frame, JobKind::Ended, ended, &snapshot).await;
        let released = self.release(Some(&frame.id), records).await;
        if ended.is_completed() && !frame.agent.chains().background.is_empty() && !self.house.bare {
            work_aside(self.cell.clone(), self.house.clone(), frame.clone(), ended.clone(), snapshot);
        }
        // The turn is over and written, whatever becomes of the claim.
        self.tell_ended(landed);
        released
    }

    fn tell_ended(&self, landed: Landed) {
        let Landed { frame, ended } = landed;
        self.cell.drop_scope(&frame.id);
        self.cell.tell_rest(Some(&frame.id), Ok(Rest::Ended(Box::new(ended))));
    }

    /// Gives the claim back.
    async fn release(&mut self, turn: Option<&TurnId>, records: Vec<Record>) -> Result<(), StoreError> {
        let (Some(epoch), Some(state)) = (self.epoch.take(), &self.state) else { return Ok(()) };
        write(&self.cell, &self.house, epoch, state.seq, &[], (turn, records), Lease::Release).await
    }

    /// What background hooks noted becomes history, for the turn that comes next.
    async fn note(&mut self, notes: Notes) -> Result<(), StoreError> {
        let Notes { turn, contents, records } = notes;
        let (Some(epoch), Some(mut state)) = (self.epoch, self.state.take()) else { return Ok(()) };
        let at = self.house.clock.now();
        let stamp = |((hook, content), seq)| {
            let kind = EventKind::Injection { hook, content, place: Place::NextTurn };
            Arc::new(Event { seq, turn: turn.clone(), at, kind })
        };
        let events: Vec<_> = contents.into_iter().zip(state.seq + 1..).map(stamp).collect();
        let records = (Some(&turn), records);
        let written = write(&self.cell, &self.house, epoch, state.seq, &events, records, Lease::Keep).await;
        if written.is_ok() {
            for event in &events {
                state.apply(event);
                self.cell.plane.tell_log(event);
            }
        }
        self.state = Some(state);
        written
    }

    /// `on_conversation` with `Ended`; what it injects stands in the turn that may follow.
    async fn end_conversation(&mut self, scope: Scope) -> Result<(), StoreError> {
        let agent = self.cell.agent.clone();
        let mut contents = Vec::new();
        for entry in &agent.chains().on_conversation {
            let Some(hook) = entry.hook() else { continue };
            let (conversation, scope) = (self.cell.id.clone(), scope.clone());
            let mut meeting = Meeting { conversation, scope, moment: Moment::Ended, injected: Vec::new() };
            let told = super::observers::within(self.house.clock.as_ref(), entry, hook.on_conversation(&mut meeting));
            if told.await.is_ok() {
                contents.extend(meeting.injected.into_iter().map(|content| (entry.name.clone(), content)));
            }
        }
        if contents.is_empty() {
            return Ok(());
        }
        self.note(Notes { turn: "".into(), contents, records: Vec::new() }).await
    }

    /// Nothing more to do here, unless a command came in meanwhile.
    fn rest(&mut self) -> Option<Command> {
        let state = match self.stage() {
            Stage::Waiting => ConversationState::Waiting,
            _ => ConversationState::Idle,
        };
        if self.cell.plane.snapshot_state() != state {
            self.cell.plane.tell_live(None, Live::StateChanged { state });
        }
        self.watching = None;
        self.cell.rest(&mut self.state)
    }

    /// The store failed: whoever waits is told, and what was remembered is dropped. The log stands.
    fn give_up(self, error: StoreError) {
        let error = Arc::new(error);
        self.cell.tell_rest(None, Err(TurnError::Store(error.clone())));
        while let Some(command) = self.cell.rest(&mut None) {
            command.fail(&error);
        }
    }
}

/// A turn that is over and not yet told.
struct Landed {
    frame: Arc<Frame>,
    ended: Ended,
}

impl Landed {
    fn leaves_work(&self) -> bool {
        let chains = self.frame.agent.chains();
        !chains.on_ended.is_empty() || !chains.background.is_empty()
    }
}

/// A store error that several are told.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shared(Arc<StoreError>);

/// Background hooks run beside whatever comes next.
fn work_aside(cell: Arc<Cell>, house: Arc<House>, frame: Arc<Frame>, ended: Ended, snapshot: Snapshot) {
    house.aside.send_modify(|count| *count += 1);
    tokio::spawn(async move {
        let watching = Watching::of(&cell, &house);
        let (contents, records) = run_jobs(&frame, JobKind::Background, &ended, &snapshot).await;
        drop(watching);
        let turn = frame.id.clone();
        cell.command(&house, Command::Notes(Notes { turn, contents, records }));
        house.aside.send_modify(|count| *count -= 1);
    });
}

/// Writes outside a turn.
async fn write(
    cell: &Cell,
    house: &House,
    epoch: u64,
    expected_seq: u64,
    events: &[Arc<Event>],
    (turn, records): (Option<&TurnId>, Vec<Record>),
    lease: Lease,
) -> Result<(), StoreError> {
    let (take, beside, jobs) = (None, BesideWrite::Keep, Vec::new());
    let conversation = &cell.id;
    let batch = Batch { conversation, epoch, events, expected_seq, take, beside, turn, records, jobs, lease };
    house.store.append(batch).await
}
