//! A conversation at rest or being driven.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::command::{Command, NewMessage};
use super::observers::Watching;
use super::outcome::{Rest, TurnError};
use super::{House, driver};
use crate::agent::Agent;
use crate::clock::{Boxed, Clock};
use crate::id::{ConversationId, TurnId};
use crate::live::Plane;
use crate::message::Text;
use crate::scope::{Actor, Scope};
use crate::store::{Job, StoreError};
use crate::turn::{Cut, CutToken, Frame, State};

/// What carries commands out, until nothing is left to do.
pub(crate) type Driver = Boxed<'static, ()>;

/// How many commands may wait for a driver.
const COMMANDS: usize = 64;

pub(crate) type Waiter = oneshot::Sender<Result<Rest, TurnError>>;

/// One conversation in this process.
pub(crate) struct Cell {
    pub(crate) id: ConversationId,
    pub(crate) agent: Agent,
    /// Of the turn whose tool this conversation is.
    pub(crate) parent: Option<Arc<Frame>>,
    pub(crate) plane: Arc<Plane>,
    inner: Mutex<Inner>,
    /// Wakes the turn whose tools run when a command arrives.
    arrived: AtomicWaker,
    /// Woken when a turn that was about to be has begun, or is none.
    begun: Notify,
}

struct Inner {
    seat: Seat,
    /// For the driver, at most [`COMMANDS`].
    commands: VecDeque<Command>,
    /// Cuts the turn under way; set while one flies.
    flying: Option<CutToken>,
    /// Whether a driver has a message whose turn has not begun.
    expecting: bool,
    /// Cuts the turn that a driver is about to begin.
    cut_next: Option<Cut>,
    /// Those who want to know when a turn rests; `None` means the open one.
    waiters: SmallVec<[(Option<TurnId>, Waiter); 1]>,
    /// Scopes of queued and open turns: the bag is not stored.
    scopes: SmallVec<[(TurnId, Scope); 1]>,
    /// Those who keep the observers at work.
    watching: Weak<Watching>,
    /// Whose conversation it is, once known.
    owner: Option<Actor>,
    /// Whether the view shows the log.
    shown: bool,
    /// Whether a turn of this process has met the conversation hooks.
    met: bool,
    /// Whether this process has looked for jobs that another left.
    swept: bool,
    /// When it last came to rest, counted.
    rested: u64,
    /// Jobs done or being done here whose end is not written.
    doing: Vec<Job>,
    /// Letters of other processes that the turn under way was told of and that are still in the inbox.
    heard: Vec<Text>,
}

/// A driver that panics or is dropped leaves the seat to the next one; the log stands.
pub(crate) struct SeatGuard {
    pub(crate) cell: Arc<Cell>,
    rested: bool,
}

impl SeatGuard {
    pub(crate) fn rested(mut self) {
        self.rested = true;
    }
}

impl Drop for SeatGuard {
    fn drop(&mut self) {
        if self.rested {
            return;
        }
        self.cell.vacate();
        let mut inner = self.cell.lock();
        let waiters = std::mem::take(&mut inner.waiters);
        drop(inner);
        drop(waiters);
    }
}

impl Inner {
    fn is_busy(&self) -> bool {
        matches!(self.seat, Seat::Driving) && (self.flying.is_some() || self.expecting)
    }

    /// What it gives back must be dropped without the lock: whoever gave a command is told by the drop, and a command may
    /// hold what looks into this cell. Only a driver that died leaves some.
    #[must_use]
    fn vacate(&mut self, state: Option<Box<State>>) -> VecDeque<Command> {
        static RESTS: AtomicU64 = AtomicU64::new(0);
        self.seat = Seat::Resting(state);
        self.rested = RESTS.fetch_add(1, Ordering::Relaxed);
        (self.flying, self.cut_next, self.expecting) = (None, None, false);
        std::mem::take(&mut self.commands)
    }
}

/// What became of a command.
pub(crate) enum Given {
    /// The driver has it.
    Sent,
    /// There was no driver: this one has it, and must be run.
    Driver(Driver),
    /// A turn is under way; here is the message back.
    Busy(NewMessage),
}

/// Who has the state.
enum Seat {
    /// Nobody works on it; what is remembered may be behind the store.
    Resting(Option<Box<State>>),
    /// A driver, which takes commands.
    Driving,
}

impl Cell {
    pub(crate) fn new(id: ConversationId, agent: Agent, parent: Option<Arc<Frame>>, clock: Arc<dyn Clock>) -> Self {
        let plane = Arc::new(Plane::new(id.clone(), clock));
        let inner = Inner {
            seat: Seat::Resting(None),
            commands: VecDeque::new(),
            flying: None,
            expecting: false,
            cut_next: None,
            waiters: SmallVec::new(),
            scopes: SmallVec::new(),
            watching: Weak::new(),
            owner: None,
            shown: false,
            met: false,
            swept: false,
            rested: 0,
            doing: Vec::new(),
            heard: Vec::new(),
        };
        Self { id, agent, parent, plane, inner: Mutex::new(inner), arrived: AtomicWaker::new(), begun: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a command to the driver, or starts one.
    pub(crate) fn command(self: &Arc<Self>, house: &Arc<House>, command: Command) {
        if let Given::Driver(driver) = self.give(house, command) {
            tokio::spawn(driver);
        }
    }

    /// Gives a command to the driver; if there is none, the caller gets one to run. A message that finds a turn under
    /// way, or about to be, comes back.
    pub(crate) fn give(self: &Arc<Self>, house: &Arc<House>, command: Command) -> Given {
        let mut inner = self.lock();
        let command = match command {
            Command::Message(message) if inner.is_busy() => return Given::Busy(message),
            command => command,
        };
        inner.expecting |= matches!(command, Command::Message(_));
        match std::mem::replace(&mut inner.seat, Seat::Driving) {
            Seat::Driving if inner.commands.len() >= COMMANDS => {
                drop(inner);
                command.fail(&Arc::new(StoreError::InUse { id: self.id.clone() }));
                Given::Sent
            }
            Seat::Driving => {
                inner.commands.push_back(command);
                drop(inner);
                self.arrived.wake();
                Given::Sent
            }
            Seat::Resting(state) => {
                drop(inner);
                let seat = SeatGuard { cell: self.clone(), rested: false };
                Given::Driver(Box::pin(driver::run(seat, house.clone(), state, command)))
            }
        }
    }

    /// Whether a turn is under way or about to be.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    /// Waits until the turn that is about to be has begun, or is none; says which.
    pub(crate) async fn flies(&self) -> bool {
        loop {
            let begun = self.begun.notified();
            let mut begun = std::pin::pin!(begun);
            begun.as_mut().enable();
            let (expecting, flying) = self.prospects();
            if !expecting {
                return flying;
            }
            begun.await;
        }
    }

    /// Whether a turn is about to be, and whether one is under way.
    fn prospects(&self) -> (bool, bool) {
        let inner = self.lock();
        (inner.expecting, inner.flying.is_some())
    }

    /// Cuts the turn under way, or the one that is about to be.
    pub(crate) fn cut(&self, cut: Cut) {
        let mut inner = self.lock();
        match &inner.flying {
            Some(token) => token.cut(cut),
            None => inner.cut_next = Some(cut),
        }
    }

    /// The next command that a turn can carry out while its tools run: an answer or a cancellation.
    pub(crate) fn poll_command(&self, cx: &mut Context<'_>) -> Poll<Command> {
        self.arrived.register(cx.waker());
        let mut inner = self.lock();
        let fits = |command: &Command| matches!(command, Command::Resolve(_) | Command::Cancel(..));
        let place = inner.commands.iter().position(fits);
        match place.and_then(|place| inner.commands.remove(place)) {
            Some(command) => Poll::Ready(command),
            None => Poll::Pending,
        }
    }

    /// Gives the seat back with the state, unless a command came in meanwhile.
    pub(crate) fn rest(&self, state: &mut Option<Box<State>>) -> Option<Command> {
        let mut inner = self.lock();
        let command = inner.commands.pop_front();
        if command.is_none() {
            let left = inner.vacate(state.take());
            drop(inner);
            drop(left);
            self.begun.notify_waiters();
        }
        command
    }

    /// A new turn begins or an old one goes on: what cuts it.
    pub(crate) fn begin(&self) -> CutToken {
        let cut = self.parent.as_ref().map_or_else(CutToken::new, |parent| parent.cut.child());
        let mut inner = self.lock();
        inner.flying = Some(cut.clone());
        inner.expecting = false;
        self.begun.notify_waiters();
        if let Some(why) = inner.cut_next.take() {
            cut.cut(why);
        }
        // A cancellation that came while the driver was on its way to this turn means this turn.
        while let Some(place) = inner.commands.iter().position(|command| matches!(command, Command::Cancel(..))) {
            if let Some(Command::Cancel(why, done)) = inner.commands.remove(place) {
                cut.cut(why);
                let _ = done.send(Ok(()));
            }
        }
        cut
    }

    /// The turn rests: nothing is there to be cut.
    pub(crate) fn landed(&self) {
        self.lock().flying = None;
    }

    /// The driver goes without its state: the next one reads the log.
    pub(crate) fn vacate(&self) {
        let left = self.lock().vacate(None);
        drop(left);
        self.begun.notify_waiters();
    }

    pub(crate) fn wait_for(&self, turn: &TurnId) -> oneshot::Receiver<Result<Rest, TurnError>> {
        let (sender, receiver) = oneshot::channel();
        self.lock().waiters.push((Some(turn.clone()), sender));
        receiver
    }

    pub(crate) fn add_waiter(&self, turn: Option<TurnId>, waiter: Waiter) {
        self.lock().waiters.push((turn, waiter));
    }

    /// Tells those who wait for this turn.
    pub(crate) fn tell_rest(&self, turn: Option<&TurnId>, rest: Result<Rest, TurnError>) {
        let mut inner = self.lock();
        let waits = |wanted: &Option<TurnId>| turn.is_none() || wanted.is_none() || wanted.as_ref() == turn;
        let all = std::mem::take(&mut inner.waiters);
        let mut told: SmallVec<[_; 1]> = SmallVec::new();
        for (wanted, waiter) in all {
            if waits(&wanted) {
                told.push(waiter);
            } else if !waiter.is_closed() {
                inner.waiters.push((wanted, waiter));
            }
        }
        drop(inner);
        let last = told.pop();
        // Whoever waited may have gone.
        for waiter in told {
            let _ = waiter.send(rest.clone());
        }
        if let Some(waiter) = last {
            let _ = waiter.send(rest);
        }
    }

    pub(crate) fn keep_scope(&self, turn: &TurnId, scope: Scope) {
        self.lock().scopes.push((turn.clone(), scope));
    }

    pub(crate) fn scope_of(&self, turn: &TurnId) -> Option<Scope> {
        self.lock().scopes.iter().find(|(of, _)| of == turn).map(|(_, scope)| scope.clone())
    }

    pub(crate) fn drop_scope(&self, turn: &TurnId) {
        self.lock().scopes.retain(|(of, _)| of != turn);
    }

    /// Brings the view up to what is stored, unless a driver does.
    pub(crate) async fn show_log(&self, house: &House) -> Result<(), StoreError> {
        if matches!(self.lock().seat, Seat::Driving) {
            return Ok(());
        }
        let shown = self.is_shown().then(|| self.plane.last_seq());
        let log = match shown {
            Some(last) => house.store.log(&self.id, last + 1, usize::MAX).await?,
            None => house.store.tail(&self.id, u64::MAX, self.agent.limits().room()).await?,
        };
        if matches!(self.lock().seat, Seat::Driving) {
            return Ok(());
        }
        match shown {
            None => self.show(0, &log),
            Some(_) => log
                .iter()
                .filter(|event| event.seq > self.plane.last_seq())
                .for_each(|event| self.plane.tell_log(event)),
        }
        Ok(())
    }

    /// Notes a letter that the turn under way is told of; false if it was noted before.
    pub(crate) fn hear(&self, letter: &Text) -> bool {
        let mut inner = self.lock();
        let new = !inner.heard.contains(letter);
        if new {
            inner.heard.push(letter.clone());
        }
        new
    }

    pub(crate) fn do_jobs(&self, jobs: &[Job]) {
        self.lock().doing.extend_from_slice(jobs);
    }

    pub(crate) fn did_jobs(&self, jobs: &[Job]) {
        self.lock().doing.retain(|doing| !jobs.iter().any(|job| job.is(doing)));
    }

    pub(crate) fn is_doing(&self, job: &Job) -> bool {
        self.lock().doing.iter().any(|doing| doing.is(job))
    }

    /// What cuts the turn under way.
    pub(crate) fn flying(&self) -> Option<CutToken> {
        self.lock().flying.clone()
    }

    /// Letters that the turn was told of.
    pub(crate) fn take_heard(&self) -> Vec<Text> {
        std::mem::take(&mut self.lock().heard)
    }

    /// Whether nothing is lost when the cell goes; asked while nobody can get hold of it.
    pub(crate) fn is_evictable(self: &Arc<Self>, keeps_scopes: bool) -> bool {
        let inner = self.lock();
        let at_rest =
            matches!(inner.seat, Seat::Resting(_)) && inner.waiters.iter().all(|(_, waiter)| waiter.is_closed());
        let bare = !keeps_scopes || inner.scopes.is_empty();
        at_rest && bare && Arc::strong_count(self) == 1 && !self.plane.is_watched()
    }

    /// Orders cells by when they came to rest.
    pub(crate) fn rested_at(&self) -> u64 {
        self.lock().rested
    }

    /// True once.
    pub(crate) fn sweeps_first(&self) -> bool {
        !std::mem::replace(&mut self.lock().swept, true)
    }

    pub(crate) fn show(&self, epoch: u64, log: &[Arc<crate::event::Event>]) {
        self.lock().shown = true;
        self.plane.begin_epoch(epoch, Some(log));
    }

    /// The one watch there is, or a new one.
    pub(super) fn watch(&self, make: impl FnOnce() -> Arc<Watching>) -> Arc<Watching> {
        let mut inner = self.lock();
        if let Some(watching) = inner.watching.upgrade() {
            return watching;
        }
        let watching = make();
        inner.watching = Arc::downgrade(&watching);
        watching
    }

    /// Ready when every observer has seen what was told so far.
    pub(crate) async fn observed(&self) {
        let watching = self.lock().watching.upgrade();
        if let Some(watching) = watching {
            watching.has_seen(self.plane.cursor()).await;
        }
    }

    pub(crate) fn owner(&self) -> Option<Actor> {
        self.lock().owner.clone()
    }

    pub(crate) fn owned_by(&self, owner: Actor) {
        self.lock().owner = Some(owner);
    }

    /// True once.
    pub(crate) fn meets_first_turn(&self) -> bool {
        !std::mem::replace(&mut self.lock().met, true)
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.lock().shown
    }
}
