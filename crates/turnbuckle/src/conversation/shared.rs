//! One conversation in this process: what its callers and its driver share.
//!
//! A conversation at rest is data, not a task. An order that finds no driver makes one; an order that finds one is
//! queued for it. Both happen under one lock, so there is never a second driver and no order is lost between two.

mod guards;
mod steering;
mod turn_host;
mod viewing;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tracing::Instrument;

pub(crate) use self::guards::DriverGuard;
pub(super) use self::guards::ObservingGuard;
use self::steering::{Steering, TakenBack};
use super::driver::Driver;
use super::error::SendError;
pub(super) use super::loaded::Loaded;
use super::observers::Observers;
use super::order::{CancelOrder, DeleteOrder, MessageOrder, Order, Refusal, TakeBackOrder};
use super::outbox::JobsInFlight;
use super::runtime::Runtime;
use super::waiters::Waiters;
use crate::BoxFuture;
use crate::agent::Agent;
use crate::clock::Clock;
use crate::feed::{EventFeed, Level, LiveEvent};
use crate::id::{ConversationId, ItemId, TurnId};
use crate::scope::{Actor, Author};
use crate::turn::{AbortCause, AbortToken, TurnContext};

/// How many orders may wait for a driver.
const MAX_ORDERS: usize = 64;

/// One conversation in this process.
pub(crate) struct Conversation {
    pub(crate) id: ConversationId,
    pub(crate) agent: Agent,
    pub(crate) feed: Arc<EventFeed>,
    /// The runtime holds its conversations, so this must not hold the runtime.
    runtime: Weak<Runtime>,
    /// Never held across an await, and never while a channel of an order is closed (see [`Inner::rest`]).
    inner: Mutex<Inner>,
    /// Who waits for turns, and the scopes of those turns.
    pub(crate) waiters: Waiters,
    /// The jobs that this process has in hand.
    pub(crate) jobs: JobsInFlight,
    /// Wakes the running turn when an answer is queued while its tools run.
    order_arrived: AtomicWaker,
    /// Notified when the turn of an accepted message has started, or will not start.
    turn_started: Notify,
    /// How many tasks give events to observers. One whose observers are not wanted any more still gives them what is queued.
    observing: AtomicUsize,
    /// Notified when one of them is done.
    observed: Notify,
}

/// Everything here is protected by [`Conversation::inner`].
struct Inner {
    /// Who works on the conversation. Set to `Driving` by the caller who submits the first order, back to `Idle` by the driver.
    drive: DriveState,
    /// Orders for the driver, oldest first, at most [`MAX_ORDERS`]. Written by callers, read by the driver and, for
    /// answers, by the running turn.
    orders: VecDeque<Order>,
    /// The turn that the driver runs. Written by the driver; read by callers who cancel it or ask whether it is there.
    running: Option<TurnSlot>,
    /// Whether the driver carries the running turn on, which may take long, and does not only write answers to it. Written by
    /// the driver, read by callers who wait for the driver to go.
    carries_on: bool,
    /// The turn of a message that was accepted and has not started: its driver is still claiming the conversation, or
    /// finishes another turn first. Written by callers, moved to `running` by the driver.
    starting: Option<TurnSlot>,
    /// The turn of the parent agent that this conversation works for, if it is a sub-agent's. Written when the parent's tool
    /// asks for the conversation, anew each time the parent's turn goes on after a wait; read when a turn starts.
    parent: Option<Arc<TurnContext>>,
    /// The observers at work, as long as a driver holds them. Written by the driver that starts them, read by the next one
    /// and by a turn that waits for them.
    observers: Weak<Observers>,
    /// Whose conversation it is. Written by the first caller, who reads it from the store; read by every later one, to spare
    /// the store.
    owner: Option<Actor>,
    /// Whether the feed shows the log. Set by the first driver or viewer, who reads the log; read by later ones.
    shows_log: bool,
    /// Whether the `on_conversation` hooks were called in this process. Written and read by the driver when a turn starts.
    greeted: bool,
    /// Ids of inbox items other than answers that the running turn has acted on or that the driver keeps for it. The turn's
    /// last write removes them from the inbox; until then this keeps them from being taken in again.
    acknowledged: Vec<ItemId>,
    /// The same of answers. The write that acts on an answer removes it from the inbox.
    answers: Vec<ItemId>,
    /// Messages that were taken back, the last ones, and the turn that is about to begin. Written by callers and by the driver,
    /// each under the lock, so that a message is either taken back or has a turn.
    taken_back: TakenBack,
    /// Messages that steer the running turn. Written by callers and by the turn's look into the inbox, read by the turn. In a
    /// box: few conversations have any.
    steering: Option<Box<Steering>>,
    /// Whether nothing is to stay in memory once the conversation is at rest. Set when it is closed, reset by a new message,
    /// read by the runtime when the driver goes.
    leaving: bool,
    /// The turn that a person insists on carrying on here, and who. Written by callers, read by the driver.
    insisted: Option<(TurnId, Author)>,
    /// The turn of which was told that it is left. Written and read by maintenance.
    reported_left: Option<TurnId>,
    /// When it last came to rest, as a count: the smallest is evicted first. Written by the driver, read by the runtime.
    idle_since: u64,
}

/// Who works on the conversation.
enum DriveState {
    /// Nobody. What was loaded stays for the next driver; the store may be ahead of it.
    Idle(Option<Loaded>),
    /// A driver, which takes orders.
    Driving,
}

/// A turn that can be stopped.
pub(crate) struct TurnSlot {
    pub(crate) turn: TurnId,
    pub(crate) abort: AbortToken,
}

/// What became of an order.
pub(crate) enum Submitted {
    /// The driver has it, or it was refused and its sender told.
    Done,
    /// There was no driver: here is one, which has the order. It must be polled to its end.
    Drive(BoxFuture<'static, ()>),
    /// A turn runs or is about to; here is the message back.
    Busy(MessageOrder),
}

impl Inner {
    fn is_driving(&self) -> bool {
        matches!(self.drive, DriveState::Driving)
    }

    /// Stops the turn if it runs or is about to. False if it is not here.
    fn abort(&self, turn: &TurnId, cause: &AbortCause) -> bool {
        let slots = self.running.iter().chain(&self.starting);
        let found = slots.into_iter().find(|slot| slot.turn == *turn);
        found.map(|slot| slot.abort.abort(cause.clone())).is_some()
    }

    /// The driver goes. Returns orders that nobody took; only a driver that died leaves some. They must be dropped
    /// after the lock is released: dropping one closes its reply channel, and the task that is woken by that may lock this.
    #[must_use]
    fn rest(&mut self, loaded: Option<Loaded>) -> VecDeque<Order> {
        static RESTS: AtomicU64 = AtomicU64::new(0);
        self.drive = DriveState::Idle(loaded);
        self.idle_since = RESTS.fetch_add(1, Ordering::Relaxed);
        (self.running, self.starting, self.carries_on) = (None, None, false);
        std::mem::take(&mut self.orders)
    }
}

impl Conversation {
    pub(crate) fn new(
        id: ConversationId,
        agent: Agent,
        parent: Option<Arc<TurnContext>>,
        clock: Arc<dyn Clock>,
        runtime: Weak<Runtime>,
    ) -> Self {
        let feed = Arc::new(EventFeed::new(id.clone(), clock));
        let inner = Inner {
            drive: DriveState::Idle(None),
            orders: VecDeque::new(),
            running: None,
            carries_on: false,
            starting: None,
            parent,
            observers: Weak::new(),
            owner: None,
            shows_log: false,
            greeted: false,
            acknowledged: Vec::new(),
            answers: Vec::new(),
            taken_back: TakenBack::default(),
            steering: None,
            leaving: false,
            insisted: None,
            reported_left: None,
            idle_since: 0,
        };
        let (order_arrived, turn_started) = (AtomicWaker::new(), Notify::new());
        let (waiters, jobs) = (Waiters::default(), JobsInFlight::default());
        let (observing, observed) = (AtomicUsize::new(0), Notify::new());
        let inner = Mutex::new(inner);
        Self { id, agent, feed, runtime, inner, waiters, jobs, order_arrived, turn_started, observing, observed }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Orders.

    /// Hands an order in, from a caller of this process or from the inbox. This is the one way in for all of them.
    pub(crate) fn submit(self: &Arc<Self>, runtime: &Arc<Runtime>, order: Order) -> Submitted {
        let mut inner = self.lock();
        if order.item().is_some_and(|id| inner.has_item(id)) {
            drop(inner);
            // The running turn has acted on it. Only a caller who cancels still waits for a reply.
            if let Order::Cancel(CancelOrder { reply: Some(reply), .. }) = order {
                drop(reply.send(Ok(true)));
            }
            return Submitted::Done;
        }
        let order = match order {
            // A cancellation takes effect at once, whatever the turn is doing.
            Order::Cancel(CancelOrder { turn, cause, reply, item }) => {
                if inner.is_driving() && inner.abort(&turn, &cause) {
                    inner.acknowledged.extend(item);
                    drop(inner);
                    self.order_arrived.wake();
                    // The caller may have gone away; the turn is stopped all the same.
                    drop(reply.map(|reply| reply.send(Ok(true))));
                    return Submitted::Done;
                }
                Order::Cancel(CancelOrder { turn, cause, reply, item })
            }
            // The driver cannot be asked while it runs a turn. It looks at what was taken back before it begins another one.
            Order::TakeBack(TakeBackOrder { turn, reply }) if inner.is_driving() => {
                let taken = self.take_back(inner, &turn);
                // The caller may have gone away.
                drop(reply.send(Ok(taken)));
                return Submitted::Done;
            }
            Order::Message(message) if inner.is_driving() && (inner.running.is_some() || inner.starting.is_some()) => {
                return Submitted::Busy(message);
            }
            Order::Close(_, reply) | Order::Delete(DeleteOrder { reply, .. })
                if inner.is_driving() && (inner.running.is_some() || inner.starting.is_some()) =>
            {
                drop(inner);
                // The caller may have gone away.
                drop(reply.send(Err(SendError::Busy { id: self.id.clone(), pending: Vec::new() })));
                return Submitted::Done;
            }
            order => order,
        };
        if inner.is_driving() && inner.orders.len() >= MAX_ORDERS {
            drop(inner);
            order.refuse(&Refusal::Full(self.id.clone()));
            return Submitted::Done;
        }
        if let Order::Message(message) = &order {
            inner.starting = Some(TurnSlot { turn: message.turn.clone(), abort: self.new_token(&inner) });
            inner.leaving = false;
        }
        match std::mem::replace(&mut inner.drive, DriveState::Driving) {
            DriveState::Driving => {
                inner.keep_item(&order);
                inner.orders.push_back(order);
                drop(inner);
                self.order_arrived.wake();
                Submitted::Done
            }
            DriveState::Idle(loaded) => {
                drop(inner);
                let guard = DriverGuard { conversation: self.clone(), at_rest: false };
                let span = tracing::debug_span!("conversation", id = %self.id);
                Submitted::Drive(Box::pin(Driver::new(guard, runtime.clone(), loaded).run(order).instrument(span)))
            }
        }
    }

    /// Like [`submit`](Self::submit), for orders that nobody drives in their own task.
    pub(crate) fn submit_and_spawn(self: &Arc<Self>, runtime: &Arc<Runtime>, order: Order) {
        if let Submitted::Drive(driver) = self.submit(runtime, order) {
            tokio::spawn(driver);
        }
    }

    /// What a turn that starts now is stopped with: also when the parent's turn is.
    fn new_token(&self, inner: &Inner) -> AbortToken {
        inner.parent.as_ref().map_or_else(AbortToken::new, |parent| parent.abort.child())
    }

    /// An order about a turn that came while another turn ran: it must not wait for the end of the next one. Other orders
    /// begin with a look into the inbox, and wait for [`next_order_or_rest`](Self::next_order_or_rest).
    pub(crate) fn order_about_a_turn(&self) -> Option<Order> {
        let mut inner = self.lock();
        let about = |order: &Order| matches!(order, Order::Answer(_) | Order::Cancel(_) | Order::Resume(..));
        let place = inner.orders.iter().position(about)?;
        inner.orders.remove(place)
    }

    /// The next order for the driver, or `None`: then the driver is dismissed in the same step, and the next order makes
    /// a new one.
    pub(crate) fn next_order_or_rest(&self, loaded: &mut Option<Loaded>) -> Option<Order> {
        let mut inner = self.lock();
        if let Some(order) = inner.orders.pop_front() {
            return Some(order);
        }
        let left = inner.rest(loaded.take());
        drop(inner);
        drop(left);
        self.feed.rest();
        self.turn_started.notify_waiters();
        None
    }

    // Turns.

    /// A turn starts, or goes on. Returns the token that stops it: the one of its message, if that was accepted here.
    pub(crate) fn start_turn(&self, turn: &TurnId) -> AbortToken {
        let mut inner = self.lock();
        let slot = inner.starting.take_if(|slot| slot.turn == *turn);
        let abort = slot.map_or_else(|| self.new_token(&inner), |slot| slot.abort);
        inner.running = Some(TurnSlot { turn: turn.clone(), abort: abort.clone() });
        drop(inner);
        self.turn_started.notify_waiters();
        abort
    }

    /// The turn has ended or waits: there is nothing to stop any more.
    pub(crate) fn stop_turn(&self) {
        let mut inner = self.lock();
        (inner.running, inner.carries_on, inner.taken_back.beginning) = (None, false, None);
    }

    /// The running turn is carried on.
    pub(crate) fn carry_turn_on(&self) {
        self.lock().carries_on = true;
        self.turn_started.notify_waiters();
    }

    /// Ready when the driver has gone, or carries a turn on. A driver that goes has given its claim back and has looked into
    /// the inbox after that; one that carries a turn on looks into it every second. So whatever another process stores
    /// meanwhile is taken up, even if this process ends as soon as this is ready.
    pub(crate) async fn driver_gone(&self) {
        loop {
            let mut changed = std::pin::pin!(self.turn_started.notified());
            changed.as_mut().enable();
            {
                let inner = self.lock();
                if !inner.is_driving() || inner.carries_on {
                    return;
                }
            }
            changed.await;
        }
    }

    /// The message of this turn was refused.
    pub(crate) fn forget_starting(&self, turn: &TurnId) {
        self.lock().starting.take_if(|slot| slot.turn == *turn);
        self.turn_started.notify_waiters();
    }

    /// The turn that runs, or the one that is about to.
    pub(crate) fn current_turn(&self) -> Option<TurnId> {
        let inner = self.lock();
        inner.running.as_ref().or(inner.starting.as_ref()).map(|slot| slot.turn.clone())
    }

    /// Whether the feed shows what is asked now, if it was brought up to date before: a turn runs, or nobody works on the
    /// conversation. In between, a driver may be about to read what another process wrote.
    pub(crate) fn shows_what_is_asked(&self) -> bool {
        let inner = self.lock();
        inner.running.is_some() || !inner.is_driving()
    }

    pub(crate) fn running_turn(&self) -> Option<TurnId> {
        self.lock().running.as_ref().map(|slot| slot.turn.clone())
    }

    /// Stops the turn if it runs here or is about to.
    pub(crate) fn abort(&self, turn: &TurnId, cause: &AbortCause) -> bool {
        let aborted = self.lock().abort(turn, cause);
        if aborted {
            self.order_arrived.wake();
        }
        aborted
    }

    /// Waits until an accepted message has become a turn or was refused. Returns whether a turn runs.
    pub(crate) async fn wait_for_start(&self) -> bool {
        loop {
            let mut started = std::pin::pin!(self.turn_started.notified());
            started.as_mut().enable();
            let (starting, running) = {
                let inner = self.lock();
                (inner.starting.is_some(), inner.running.is_some())
            };
            if running || !starting {
                return running;
            }
            started.await;
        }
    }

    /// A person insists that this turn is carried on here although its agent has changed.
    pub(crate) fn insist(&self, turn: TurnId, by: Author) {
        self.lock().insisted = Some((turn, by));
    }

    /// Who insists that this turn is carried on.
    pub(crate) fn insisted_on(&self, turn: &TurnId) -> Option<Author> {
        self.lock().insisted.as_ref().filter(|(insisted, _)| insisted == turn).map(|(_, by)| by.clone())
    }

    /// True the first time for each turn: it is to be told that the turn is left.
    pub(crate) fn reports_left(&self, turn: &TurnId) -> bool {
        self.lock().reported_left.replace(turn.clone()).as_ref() != Some(turn)
    }

    // Observers.

    /// The observers at work, or new ones.
    pub(super) fn observers_or(&self, make: impl FnOnce() -> Arc<Observers>) -> Arc<Observers> {
        let mut inner = self.lock();
        if let Some(observers) = inner.observers.upgrade() {
            return observers;
        }
        let observers = make();
        inner.observers = Arc::downgrade(&observers);
        observers
    }

    /// Counts a task that gives events to observers, until the guard is dropped.
    pub(super) fn begin_observing(self: &Arc<Self>) -> ObservingGuard {
        self.observing.fetch_add(1, Ordering::Relaxed);
        ObservingGuard(self.clone())
    }

    /// Ready when the observers have been given everything that was queued for them. Called when nobody needs them any more.
    pub(crate) async fn observers_done(&self) {
        loop {
            let mut observed = std::pin::pin!(self.observed.notified());
            observed.as_mut().enable();
            if self.observing.load(Ordering::Acquire) == 0 {
                return;
            }
            observed.await;
        }
    }

    /// True the first time: the `on_conversation` hooks are due.
    pub(crate) fn greets_first_turn(&self) -> bool {
        !std::mem::replace(&mut self.lock().greeted, true)
    }

    // Who it belongs to, and how long it stays in memory.

    pub(crate) fn owner(&self) -> Option<Actor> {
        self.lock().owner.clone()
    }

    pub(crate) fn set_owner(&self, owner: Actor) {
        self.lock().owner = Some(owner);
    }

    pub(crate) fn parent(&self) -> Option<Arc<TurnContext>> {
        self.lock().parent.clone()
    }

    /// What the conversation does from now on is done for this turn of the parent agent.
    pub(crate) fn set_parent(&self, parent: &Arc<TurnContext>) {
        let before = self.lock().parent.replace(parent.clone());
        // Dropped after unlocking: it may be the last reference to the parent's turn.
        drop(before);
    }

    /// Nothing is to stay in memory once the conversation is at rest, unless someone speaks to it again.
    pub(crate) fn leave(&self) {
        self.lock().leaving = true;
    }

    /// The conversation is gone from the store: those who watch are told, and nothing of it stays in memory.
    pub(crate) fn was_deleted(&self, by: &Author) {
        let text = format!("the conversation was deleted by {by}").into();
        self.feed.publish_live(None, LiveEvent::Notice { level: Level::Warning, text, hook: None });
        let mut inner = self.lock();
        (inner.leaving, inner.owner, inner.insisted) = (true, None, None);
    }

    pub(crate) fn has_left(&self) -> bool {
        let inner = self.lock();
        inner.leaving && !inner.is_driving()
    }

    /// Whether nothing is lost if the runtime forgets the conversation. Called with the runtime's map locked, so that no
    /// new handle appears meanwhile.
    pub(crate) fn is_evictable(self: &Arc<Self>, keeps_scopes: bool) -> bool {
        let inner = self.lock();
        !inner.is_driving()
            && self.waiters.can_go(keeps_scopes)
            && Arc::strong_count(self) == 1
            && !self.feed.is_watched()
    }

    /// Makes what is loaded smaller, if the conversation has been at rest since then.
    pub(crate) fn pack(&self, since: u64) {
        let mut inner = self.lock();
        let idle = |inner: &Inner| inner.idle_since == since;
        let DriveState::Idle(loaded) = &mut inner.drive else { return };
        let Some(mut packed) = loaded.take() else { return };
        if !idle(&inner) {
            inner.drive = DriveState::Idle(Some(packed));
            return;
        }
        drop(inner);
        // A driver that begins meanwhile reads it back from the store.
        packed.pack(&self.feed);
        let mut inner = self.lock();
        if idle(&inner) && matches!(inner.drive, DriveState::Idle(None)) {
            inner.drive = DriveState::Idle(Some(packed));
        }
    }

    pub(crate) fn idle_since(&self) -> u64 {
        self.lock().idle_since
    }
}
