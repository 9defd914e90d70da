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

use super::held::HeldView;
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
    held: HeldView,
    lossy: Ring,
    lossless: Vec<Arc<Queue>>,
    /// How many [`Look`]s there are. No event is forgotten meanwhile.
    looks: usize,
    /// Whether there was one since the conversation came to rest. Who looks once often looks again soon, so that what was read
    /// for it is kept until the next rest.
    looked_at: bool,
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

    fn join_lossless(&mut self) -> (Tail, Arc<Queue>) {
        let queue = Arc::new(Queue::default());
        self.lossless.push(queue.clone());
        (Tail::Lossless(QueueReader::of(queue.clone())), queue)
    }

    /// Publishes one event of the log.
    fn publish_log(&mut self, conversation: &ConversationId, event: &Arc<Event>) {
        let cursor = self.next_cursor();
        self.held.add(cursor, event);
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
            held: HeldView::default(),
            lossy: Ring::default(),
            lossless: Vec::new(),
            looks: 0,
            looked_at: false,
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
            let held = HeldView::of_log(log);
            missed = held.last_seq().saturating_sub(inner.held.last_seq());
            inner.held = held;
        }
        inner.held.view.cursor = inner.cursor;
        drop(inner);
        if missed > 0 && self.is_watched() {
            // Another process wrote meanwhile: viewers here must take a new snapshot.
            self.publish_live(None, LiveEvent::Lagged { missed });
        }
    }

    pub(crate) fn publish_live(&self, turn: Option<&TurnId>, live: LiveEvent) {
        let mut inner = self.lock();
        let cursor = inner.next_cursor();
        inner.held.view.apply_new_live(cursor, &live);
        if inner.is_watched() {
            let (conversation, turn, at) = (self.conversation.clone(), turn.cloned(), self.clock.now());
            inner.send(FeedEvent { conversation, turn, cursor, at, item: FeedItem::Live(live) });
            release(inner);
        }
    }

    /// Publishes those of these events that were not published yet.
    pub(crate) fn catch_up(&self, events: &[Arc<Event>]) {
        let mut inner = self.lock();
        let last = inner.held.last_seq();
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

    /// As long as this is held, what it gives can show every event.
    pub(crate) fn look(&self) -> Look<'_> {
        let mut inner = self.lock();
        (inner.looks, inner.looked_at) = (inner.looks + 1, true);
        Look(self)
    }

    /// What is published from now on, without what was before. With the queue, whose closing ends the subscription once it is
    /// read.
    pub(crate) fn follow(&self) -> (Subscription, Arc<Queue>) {
        let mut inner = self.lock();
        let (tail, queue) = inner.join_lossless();
        let view = Projection { cursor: inner.held.view.cursor, ..Projection::default() };
        (Subscription::new(view, tail, self.conversation.clone()), queue)
    }

    /// The conversation came to rest. If nobody watches or looks, events that are held nowhere else in this process are
    /// forgotten: they are stored, and read again for who wants to see them.
    pub(crate) fn rest(&self) {
        let mut inner = self.lock();
        let was_looked_at = std::mem::take(&mut inner.looked_at);
        if inner.looks == 0 && !was_looked_at && !inner.is_watched() {
            inner.held.forget_unshared();
        }
    }

    /// Holds what `pack` leaves of the events of the log, unless somebody watches or has looked.
    pub(crate) fn repack(&self, pack: impl FnOnce(Vec<Arc<Event>>) -> Vec<Arc<Event>>) {
        let mut inner = self.lock();
        if inner.looks == 0 && !inner.looked_at && !inner.is_watched() {
            inner.held.repack(pack);
        }
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
        self.lock().held.last_seq()
    }

    /// Whether the call waits for an answer.
    pub(crate) fn is_pending(&self, call: &CallId) -> bool {
        self.lock().held.view.pending.contains(call)
    }

    /// What is asked under this call, if it waits for an answer.
    pub(crate) fn pending(&self, call: &CallId) -> Option<Pending> {
        self.lock().held.view.pending.get(call).cloned()
    }

    /// Everything that is asked.
    pub(crate) fn all_pending(&self) -> Vec<Pending> {
        self.lock().held.view.pending.values().cloned().collect()
    }

    /// Whether anybody has a subscription.
    pub(crate) fn is_watched(&self) -> bool {
        self.lock().is_watched()
    }

    /// Publishes the state the conversation is in, unless that was published last.
    pub(crate) fn enter(&self, state: ConversationState) {
        if self.lock().held.view.state != state {
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

/// Someone looks at the feed: no event is forgotten meanwhile. What was forgotten before is [read](Self::forgotten) and
/// [given back](Self::take_back) first; then all of the log is there that the feed shows, at any time.
pub(crate) struct Look<'a>(&'a EventFeed);

impl Look<'_> {
    /// From which event on how many must be read of the store.
    pub(crate) fn forgotten(&self) -> Option<(u64, usize)> {
        self.0.lock().held.forgotten()
    }

    /// These events were read.
    pub(crate) fn take_back(&self, read: &[Arc<Event>]) {
        self.0.lock().held.take_back(read);
    }

    pub(crate) fn snapshot(&self) -> Projection {
        self.0.lock().held.view.clone()
    }

    pub(crate) fn subscribe(&self, delivery: Delivery) -> Subscription {
        let mut inner = self.0.lock();
        let tail = match delivery {
            Delivery::Lossless => inner.join_lossless().0,
            Delivery::Lossy => {
                let (place, taken) = (inner.lossy.join(), VecDeque::with_capacity(FIRST_ROOM));
                Tail::Lossy(RingReader { inner: self.0.inner.clone(), place, taken })
            }
        };
        Subscription::new(inner.held.view.clone(), tail, self.0.conversation.clone())
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.lock().looks -= 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventKind, InjectionTarget};

    /// Twenty events that nothing but the feed holds.
    fn publish(feed: &EventFeed) {
        let first = feed.last_seq() + 1;
        let event = |seq| {
            let (hook, content, place) = ("h".into(), "c".into(), InjectionTarget::NextTurn);
            let kind = EventKind::Injection { hook, content, place };
            Arc::new(Event { seq, turn: "t".into(), at: Timestamp::default(), kind })
        };
        feed.publish_log(&(first..first + 20).map(event).collect::<Vec<_>>());
    }

    fn forgotten_at_rest(feed: &EventFeed) -> Option<(u64, usize)> {
        feed.rest();
        feed.lock().held.forgotten()
    }

    #[test]
    fn nothing_is_forgotten_while_somebody_looks_or_watches_or_has_just_looked() {
        let feed = EventFeed::new("c".into(), Arc::new(crate::clock::SystemClock::default()));
        publish(&feed);
        let look = feed.look();
        assert_eq!([forgotten_at_rest(&feed), forgotten_at_rest(&feed)], [None, None]);
        for delivery in [Delivery::Lossy, Delivery::Lossless] {
            let viewer = look.subscribe(delivery);
            assert_eq!(viewer.snapshot.events.len(), 20);
            assert_eq!([forgotten_at_rest(&feed), forgotten_at_rest(&feed)], [None, None]);
        }
        drop(look);
        drop(feed.look());
        assert_eq!(forgotten_at_rest(&feed), None);
        assert_eq!(forgotten_at_rest(&feed), Some((1, 20)));
        publish(&feed);
        assert_eq!(feed.lock().held.forgotten(), Some((1, 20)), "what is published later is there");
        assert_eq!(forgotten_at_rest(&feed), Some((1, 40)));
        assert_eq!((feed.last_seq(), feed.cursor().position), (40, 40));
    }

    #[test]
    fn who_follows_is_told_what_is_published_later_and_nothing_else() {
        let feed = EventFeed::new("c".into(), Arc::new(crate::clock::SystemClock::default()));
        publish(&feed);
        let (mut told, _queue) = feed.follow();
        assert!(told.snapshot.events.is_empty() && told.try_next().is_none());
        publish(&feed);
        let positions: Vec<u64> = std::iter::from_fn(|| told.try_next()).map(|event| event.cursor.position).collect();
        assert_eq!(positions, (21..=40).collect::<Vec<_>>());
    }
}
