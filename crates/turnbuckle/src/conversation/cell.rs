//! A conversation at rest or being driven: who has the seat, and what waits for whoever has it.

mod chores;
mod view;
mod waiting;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use self::chores::Jobs;
use self::waiting::KeptScope;
use super::command::{Command, NewMessage, Refused};
use super::observers::Watching;
use super::outcome::{TurnError, TurnStatus};
use super::{Runtime, driver};
use crate::BoxFuture;
use crate::agent::Agent;
use crate::clock::Clock;
use crate::feed::EventFeed;
use crate::id::{ConversationId, TurnId};
use crate::message::Text;
use crate::scope::Actor;
use crate::store::Job;
use crate::turn::{AbortCause, AbortToken, State, TurnContext};

/// What carries commands out, until nothing is left to do.
pub(crate) type Driver = BoxFuture<'static, ()>;

/// How many commands may wait for a driver.
const COMMANDS: usize = 64;

pub(crate) type Waiter = oneshot::Sender<Result<TurnStatus, TurnError>>;

/// One conversation in this process.
pub(crate) struct Cell {
    pub(crate) id: ConversationId,
    pub(crate) agent: Agent,
    pub(crate) feed: Arc<EventFeed>,
    inner: Mutex<Inner>,
    /// Wakes the turn whose tools run when a command arrives.
    arrived: AtomicWaker,
    /// Woken when a turn that was about to be has begun, or is none.
    begun: Notify,
}

struct Inner {
    seat: Seat,
    /// Of the turn whose tool this conversation is. Each time that turn goes on it has a new one.
    parent: Option<Arc<TurnContext>>,
    /// For the driver, at most [`COMMANDS`].
    commands: VecDeque<Command>,
    /// The turn under way, and what cuts it.
    flying: Option<(TurnId, AbortToken)>,
    /// The turn of a message that a driver has, until one begins.
    expecting: Option<TurnId>,
    /// Cuts a turn that a driver is about to begin.
    cut_next: Option<(TurnId, AbortCause)>,
    /// Those who want to know when a turn rests; `None` means the open one.
    waiters: SmallVec<[(Option<TurnId>, Waiter); 1]>,
    /// Scopes of queued and open turns: the bag is not stored.
    scopes: SmallVec<[KeptScope; 1]>,
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
    jobs: Jobs,
    /// Letters of other processes that the turn under way was told of and that are still in the inbox.
    heard: Vec<Text>,
    /// Whether nothing of it is to stay in memory once it rests.
    leaving: bool,
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
        self.cell.tell_all(&Err(TurnError::Gone));
    }
}

impl Inner {
    /// Whether a turn is under way or about to be.
    fn is_busy(&self) -> bool {
        matches!(self.seat, Seat::Driving) && (self.flying.is_some() || self.expecting.is_some())
    }

    /// Whether no further command may wait for the driver.
    fn is_full(&self) -> bool {
        matches!(self.seat, Seat::Driving) && self.commands.len() >= COMMANDS
    }

    /// What it gives back must be dropped without the lock: whoever gave a command is told by the drop, and a command may
    /// hold what looks into this cell. Only a driver that died leaves some.
    #[must_use]
    fn vacate(&mut self, state: Option<Box<State>>) -> VecDeque<Command> {
        static RESTS: AtomicU64 = AtomicU64::new(0);
        self.seat = Seat::Resting(state);
        self.rested = RESTS.fetch_add(1, Ordering::Relaxed);
        (self.flying, self.cut_next, self.expecting) = (None, None, None);
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
    pub(crate) fn new(
        id: ConversationId,
        agent: Agent,
        parent: Option<Arc<TurnContext>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let feed = Arc::new(EventFeed::new(id.clone(), clock));
        let inner = Inner {
            seat: Seat::Resting(None),
            parent,
            commands: VecDeque::new(),
            flying: None,
            expecting: None,
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
            jobs: Jobs::Left,
            heard: Vec::new(),
            leaving: false,
        };
        Self { id, agent, feed, inner: Mutex::new(inner), arrived: AtomicWaker::new(), begun: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a command to the driver, or starts one.
    pub(crate) fn command(self: &Arc<Self>, runtime: &Arc<Runtime>, command: Command) {
        if let Given::Driver(driver) = self.give(runtime, command) {
            tokio::spawn(driver);
        }
    }

    /// Gives a command to the driver; if there is none, the caller gets one to run. A message that finds a turn under
    /// way, or about to be, comes back.
    pub(crate) fn give(self: &Arc<Self>, runtime: &Arc<Runtime>, command: Command) -> Given {
        let mut inner = self.lock();
        let command = match command {
            Command::Message(message) if inner.is_busy() => return Given::Busy(message),
            command if inner.is_full() => {
                drop(inner);
                command.refuse(&Refused::Full(self.id.clone()));
                return Given::Sent;
            }
            command => command,
        };
        if let Command::Message(message) = &command {
            inner.expecting = Some(message.turn.clone());
            inner.leaving = false;
        }
        match std::mem::replace(&mut inner.seat, Seat::Driving) {
            Seat::Driving => {
                inner.commands.push_back(command);
                drop(inner);
                self.arrived.wake();
                Given::Sent
            }
            Seat::Resting(state) => {
                drop(inner);
                let seat = SeatGuard { cell: self.clone(), rested: false };
                Given::Driver(Box::pin(driver::run(seat, runtime.clone(), state, command)))
            }
        }
    }

    /// Waits until the turn that is about to be has begun, or another that was open, or is none; says whether one is under
    /// way.
    pub(crate) async fn flies(&self) -> bool {
        loop {
            let begun = self.begun.notified();
            let mut begun = std::pin::pin!(begun);
            begun.as_mut().enable();
            let (expecting, flying) = self.prospects();
            if flying || !expecting {
                return flying;
            }
            begun.await;
        }
    }

    /// Whether a turn is about to be, and whether one is under way.
    fn prospects(&self) -> (bool, bool) {
        let inner = self.lock();
        (inner.expecting.is_some(), inner.flying.is_some())
    }

    /// The turn under way, or the one that is about to be.
    pub(crate) fn turn_under_way(&self) -> Option<TurnId> {
        let inner = self.lock();
        inner.flying.as_ref().map(|(turn, _)| turn).or(inner.expecting.as_ref()).cloned()
    }

    /// Cuts this turn if it is under way or about to be. False if nobody here has it.
    pub(crate) fn abort(&self, turn: &TurnId, abort: AbortCause) -> bool {
        let mut inner = self.lock();
        match (&inner.flying, &inner.expecting) {
            (Some((flying, token)), _) if flying == turn => token.abort(abort),
            (_, Some(expected)) if expected == turn => inner.cut_next = Some((turn.clone(), abort)),
            _ => return false,
        }
        true
    }

    /// Notes the letter that says so: the end of the turn takes it. False if the turn is not under way.
    pub(crate) fn hear_of_cut(&self, turn: &TurnId, item: Text) -> bool {
        let mut inner = self.lock();
        let flies = inner.flying.as_ref().is_some_and(|(flying, _)| flying == turn);
        inner.heard.extend(flies.then_some(item));
        flies
    }

    /// Cuts this turn as soon as it begins.
    pub(crate) fn cut_when_begun(&self, turn: TurnId, abort: AbortCause) {
        self.lock().cut_next = Some((turn, abort));
    }

    /// The next command that a turn can carry out while its tools run: an answer or a cancellation.
    pub(crate) fn poll_command(&self, cx: &mut Context<'_>) -> Poll<Command> {
        self.arrived.register(cx.waker());
        let mut inner = self.lock();
        let fits = |command: &Command| matches!(command, Command::Resolve(_) | Command::Cancel(_));
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

    pub(crate) fn parent(&self) -> Option<Arc<TurnContext>> {
        self.lock().parent.clone()
    }

    /// What the conversation does from now on is done for this turn.
    pub(crate) fn work_for(&self, parent: &Arc<TurnContext>) {
        let before = self.lock().parent.replace(parent.clone());
        drop(before);
    }

    /// A new turn begins or an old one goes on: what cuts it.
    pub(crate) fn begin(&self, turn: &TurnId, parent: Option<&Arc<TurnContext>>) -> AbortToken {
        let abort = parent.map_or_else(AbortToken::new, |parent| parent.abort.child());
        let mut inner = self.lock();
        inner.flying = Some((turn.clone(), abort.clone()));
        // It may be one that a crash left: then the turn that is about to be, and what is to cut it, come after it.
        inner.expecting.take_if(|expected| expected == turn);
        self.begun.notify_waiters();
        if let Some((_, why)) = inner.cut_next.take_if(|(meant, _)| meant == turn) {
            abort.abort(why);
        }
        // Cancellations that came while the driver was on its way to this turn.
        let meant = |command: &Command| matches!(command, Command::Cancel(cancel) if cancel.turn == *turn);
        while let Some(place) = inner.commands.iter().position(meant) {
            if let Some(Command::Cancel(cancel)) = inner.commands.remove(place) {
                abort.abort(cancel.abort);
                inner.heard.extend(cancel.item);
                let _ = cancel.done.send(Ok(true));
            }
        }
        abort
    }

    /// The message was not taken: its turn will not be.
    pub(crate) fn expect_no_more(&self, turn: &TurnId) {
        self.lock().expecting.take_if(|expected| expected == turn);
        self.begun.notify_waiters();
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

    /// The turn under way.
    pub(crate) fn flying(&self) -> Option<TurnId> {
        self.lock().flying.as_ref().map(|(turn, _)| turn.clone())
    }

    /// Nothing of the conversation is to stay in memory once it rests, unless somebody speaks to it again.
    pub(crate) fn leave(&self) {
        self.lock().leaving = true;
    }

    /// Whether it is at rest and was left.
    pub(crate) fn is_left(&self) -> bool {
        let inner = self.lock();
        inner.leaving && matches!(inner.seat, Seat::Resting(_))
    }

    /// Whether nothing is lost when the cell goes; asked while nobody can get hold of it.
    pub(crate) fn is_evictable(self: &Arc<Self>, keeps_scopes: bool) -> bool {
        let inner = self.lock();
        let at_rest =
            matches!(inner.seat, Seat::Resting(_)) && inner.waiters.iter().all(|(_, waiter)| waiter.is_closed());
        let bare = !keeps_scopes || inner.scopes.is_empty();
        at_rest && bare && Arc::strong_count(self) == 1 && !self.feed.is_watched()
    }

    /// Orders cells by when they came to rest.
    pub(crate) fn rested_at(&self) -> u64 {
        self.lock().rested
    }

    pub(crate) fn owner(&self) -> Option<Actor> {
        self.lock().owner.clone()
    }

    pub(crate) fn owned_by(&self, owner: Actor) {
        self.lock().owner = Some(owner);
    }
}
