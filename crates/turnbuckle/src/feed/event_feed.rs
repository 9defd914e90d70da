//! The event feed of one conversation. Viewers that keep up lose nothing. A lossy viewer that does not is told so; for a
//! lossless one the turn waits, to a deadline.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::task::coop::poll_proceed;

use super::queue::{Queue, QueueReader};
use super::ring::{FIRST_ROOM, Read, Ring};
use super::{ConversationState, Cursor, FeedEvent, FeedItem, LiveEvent};
use crate::clock::{Clock, Timestamp};
use crate::event::Event;
use crate::feed::projection::{Pending, Projection};
use crate::id::{CallId, ConversationId, TurnId};

/// What to do with a viewer that does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is told `lagged` and takes a new snapshot.
    Lossy,
    /// The turn waits for it, to a deadline.
    Lossless,
}

/// Log and live events of one conversation, in one order, for everyone who watches it.
pub(crate) struct EventFeed {
    pub(crate) conversation: ConversationId,
    clock: Arc<dyn Clock>,
    /// Shared with lossy viewers, who find it closed when the feed is gone.
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    cursor: Cursor,
    /// Every published event is folded in here under the same lock, so that a snapshot is exact at its cursor.
    view: Projection,
    lossy: Ring,
    lossless: Vec<Arc<Queue>>,
    /// Nothing will be published any more.
    closed: bool,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn next_cursor(&mut self) -> Cursor {
        self.cursor.position += 1;
        self.cursor
    }

    /// Queues that were closed stay in the list until the next event; nobody reads them.
    fn is_watched(&self) -> bool {
        self.lossy.is_watched() || self.lossless.iter().any(|queue| !queue.is_closed())
    }

    /// In place, like what it calls: an event is large, and each call of a function would copy it once more.
    #[inline(always)]
    fn send(&mut self, event: FeedEvent) {
        if !self.lossless.is_empty() {
            self.lossless.retain(|queue| queue.push(&event));
        }
        if self.lossy.is_watched() {
            self.lossy.push(event);
        }
    }

    /// Publishes one event of the log.
    fn publish_log(&mut self, conversation: &ConversationId, event: &Arc<Event>) {
        let cursor = self.next_cursor();
        self.view.apply_new_event(cursor, event);
        // Without a viewer the event is not made.
        if self.is_watched() {
            let (conversation, turn, at) = (conversation.clone(), Some(event.turn.clone()), event.at);
            self.send(FeedEvent { conversation, turn, cursor, at, item: FeedItem::Log(event.clone()) });
        }
    }
}

/// Unlocks, then wakes the viewers that wait: a woken viewer locks this at once.
fn release(mut inner: MutexGuard<'_, Inner>) {
    if !inner.lossy.has_sleepers() {
        return;
    }
    let sleepers = inner.lossy.sleepers();
    drop(inner);
    for sleeper in sleepers {
        sleeper.wake();
    }
}

impl EventFeed {
    pub(crate) fn new(conversation: ConversationId, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner {
            cursor: Cursor::default(),
            view: Projection::default(),
            lossy: Ring::default(),
            lossless: Vec::new(),
            closed: false,
        };
        Self { conversation, clock, inner: Arc::new(Mutex::new(inner)) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// A new writer: positions count from 1 again. `log` is what a viewer sees first.
    pub(crate) fn begin_epoch(&self, epoch: u64, log: Option<&[Arc<Event>]>) {
        let mut inner = self.lock();
        inner.cursor = Cursor { epoch, position: 0 };
        let mut missed = 0;
        if let Some(log) = log {
            let last = |events: &[Arc<Event>]| events.last().map_or(0, |event| event.seq);
            missed = last(log).saturating_sub(last(&inner.view.events));
            inner.view = Projection::of_log(log);
        }
        inner.view.cursor = inner.cursor;
        drop(inner);
        if missed > 0 && self.is_watched() {
            // Another process wrote meanwhile: viewers here must take a new snapshot.
            self.publish_live(None, LiveEvent::Lagged { missed });
        }
    }

    pub(crate) fn publish_live(&self, turn: Option<&TurnId>, live: LiveEvent) {
        let mut inner = self.lock();
        let cursor = inner.next_cursor();
        inner.view.apply_new_live(cursor, &live);
        if inner.is_watched() {
            let (conversation, turn, at) = (self.conversation.clone(), turn.cloned(), self.clock.now());
            inner.send(FeedEvent { conversation, turn, cursor, at, item: FeedItem::Live(live) });
            release(inner);
        }
    }

    /// Publishes those of these events that were not published yet.
    pub(crate) fn catch_up(&self, events: &[Arc<Event>]) {
        let mut inner = self.lock();
        let last = inner.view.events.last().map_or(0, |event| event.seq);
        for event in events.iter().filter(|event| event.seq > last) {
            inner.publish_log(&self.conversation, event);
        }
        release(inner);
    }

    /// Publishes what one write added, under one lock.
    pub(crate) fn publish_log(&self, events: &[Arc<Event>]) {
        let mut inner = self.lock();
        for event in events {
            inner.publish_log(&self.conversation, event);
        }
        release(inner);
    }

    pub(crate) fn snapshot(&self) -> Projection {
        self.lock().view.clone()
    }

    pub(crate) fn subscribe(&self, delivery: Delivery) -> Subscription {
        if delivery == Delivery::Lossless {
            return self.subscribe_lossless().0;
        }
        let mut inner = self.lock();
        let place = inner.lossy.join();
        let tail =
            Tail::Lossy(RingReader { inner: self.inner.clone(), place, taken: VecDeque::with_capacity(FIRST_ROOM) });
        Subscription::new(inner.view.clone(), tail, self.conversation.clone())
    }

    /// With the queue, whose closing ends the subscription once it is read.
    pub(crate) fn subscribe_lossless(&self) -> (Subscription, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        let mut inner = self.lock();
        inner.lossless.push(queue.clone());
        let tail = Tail::Lossless(QueueReader::of(queue.clone()));
        (Subscription::new(inner.view.clone(), tail, self.conversation.clone()), queue)
    }

    /// The lossless viewers that the turn should wait for.
    pub(crate) fn behind(&self) -> Vec<Arc<Queue>> {
        let inner = self.lock();
        inner.lossless.iter().filter(|queue| queue.is_behind()).cloned().collect()
    }

    /// The cursor of the last published event.
    pub(crate) fn cursor(&self) -> Cursor {
        self.lock().cursor
    }

    /// The seq of the last log event in view.
    pub(crate) fn last_seq(&self) -> u64 {
        self.lock().view.events.last().map_or(0, |event| event.seq)
    }

    /// Whether the call waits for an answer.
    pub(crate) fn is_pending(&self, call: &CallId) -> bool {
        self.lock().view.pending.contains(call)
    }

    /// What is asked under this call, if it waits for an answer.
    pub(crate) fn pending(&self, call: &CallId) -> Option<Pending> {
        self.lock().view.pending.get(call).cloned()
    }

    /// Whether anybody has a subscription.
    pub(crate) fn is_watched(&self) -> bool {
        self.lock().is_watched()
    }

    /// Publishes the state the conversation is in, unless that was published last.
    pub(crate) fn enter(&self, state: ConversationState) {
        if self.lock().view.state != state {
            self.publish_live(None, LiveEvent::StateChanged { state });
        }
    }

    /// Gives up on viewers that let the deadline pass.
    pub(crate) fn cut_off(&self, queues: &[Arc<Queue>]) {
        for queue in queues.iter().filter(|queue| !queue.has_caught_up()) {
            queue.close();
        }
        self.lock().lossless.retain(|queue| !queue.is_closed());
    }
}

impl Drop for EventFeed {
    fn drop(&mut self) {
        let mut inner = self.lock();
        inner.closed = true;
        let lossless = std::mem::take(&mut inner.lossless);
        release(inner);
        // What is in a queue can still be read; then the subscription ends.
        for queue in lossless {
            queue.close();
        }
    }
}

/// The place of one lossy viewer; dropping it ends the subscription.
struct RingReader {
    inner: Arc<Mutex<Inner>>,
    place: usize,
    /// Taken and not given out yet.
    taken: VecDeque<FeedEvent>,
}

impl RingReader {
    /// Takes events over from the ring. Called when those taken before were given out.
    fn try_take(&mut self) -> Read {
        lock(&self.inner).lossy.read(self.place, &mut self.taken)
    }

    /// Like [`try_take`](Self::try_take), and waits if there is nothing. [`Read::Nothing`] when the feed is gone.
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        // A viewer that always finds something lets others run, too.
        let budget = ready!(poll_proceed(cx));
        let mut inner = lock(&self.inner);
        let read = inner.lossy.read(self.place, &mut self.taken);
        if let Read::Nothing = read
            && !inner.closed
        {
            let before = inner.lossy.sleep(self.place, cx.waker());
            drop(inner);
            drop(before);
            return Poll::Pending;
        }
        budget.made_progress();
        Poll::Ready(read)
    }
}

impl Drop for RingReader {
    fn drop(&mut self) {
        let waker = lock(&self.inner).lossy.leave(self.place);
        // Dropped after unlocking: the last waker of a task drops the task, which may hold another subscription.
        drop(waker);
    }
}

enum Tail {
    Lossy(RingReader),
    Lossless(QueueReader),
}

/// Snapshot and tail: take the snapshot, apply what comes.
pub struct Subscription {
    /// The view at the moment of subscribing.
    pub snapshot: Projection,
    tail: Tail,
    conversation: ConversationId,
    /// The cursor of the last event given out: where a viewer that lagged stands.
    last: Cursor,
}

impl Subscription {
    fn new(snapshot: Projection, tail: Tail, conversation: ConversationId) -> Self {
        Self { last: snapshot.cursor, snapshot, tail, conversation }
    }

    /// The next event, if it was published already.
    pub fn try_next(&mut self) -> Option<FeedEvent> {
        let event = match &mut self.tail {
            Tail::Lossless(queue) => queue.try_next()?,
            Tail::Lossy(reader) => match reader.taken.pop_front() {
                Some(event) => event,
                None => match reader.try_take() {
                    Read::Taken => reader.taken.pop_front()?,
                    Read::Lagged(missed) => self.lagged(missed),
                    Read::Nothing => return None,
                },
            },
        };
        self.last = event.cursor;
        Some(event)
    }

    /// The next event; `None` when the conversation is gone, or when a lossless viewer let the deadline pass. A
    /// subscription is also a [`Stream`] of these.
    pub async fn next(&mut self) -> Option<FeedEvent> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<FeedEvent>> {
        // Most events were taken over before, and are handed on without a further copy.
        if let Tail::Lossy(reader) = &mut self.tail
            && let Some(event) = reader.taken.front()
        {
            self.last = event.cursor;
            return Poll::Ready(reader.taken.pop_front());
        }
        let event = match &mut self.tail {
            Tail::Lossless(queue) => ready!(queue.poll_next(cx)),
            Tail::Lossy(reader) => match ready!(reader.poll_take(cx)) {
                Read::Taken => reader.taken.pop_front(),
                Read::Lagged(missed) => Some(self.lagged(missed)),
                Read::Nothing => None,
            },
        };
        if let Some(event) = &event {
            self.last = event.cursor;
        }
        Poll::Ready(event)
    }
}

/// The tail as a stream, for adapters such as `StreamExt::filter` and servers that send events on.
impl Stream for Subscription {
    type Item = FeedEvent;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_event(cx)
    }
}

impl Subscription {
    fn lagged(&self, missed: u64) -> FeedEvent {
        FeedEvent {
            conversation: self.conversation.clone(),
            turn: None,
            cursor: self.last,
            at: Timestamp::default(),
            item: FeedItem::Live(LiveEvent::Lagged { missed }),
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("conversation", &self.conversation).finish_non_exhaustive()
    }
}
