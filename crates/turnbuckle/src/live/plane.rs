//! The live plane of one conversation: viewers that keep up lose nothing, and nobody waits for the others.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use super::queue::{Queue, QueueReader};
use super::{ConversationState, Cursor, Live, Telling, Told};
use crate::clock::{Clock, Timestamp};
use crate::event::Event;
use crate::id::{CallId, ConversationId, TurnId};
use crate::projection::Projection;

/// What to do with a viewer that does not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is told `lagged` and takes a new snapshot.
    Lossy,
    /// The turn waits for it, to a deadline.
    Lossless,
}

/// How many events a lossy viewer may be behind.
const LOSSY_ROOM: usize = 1024;

/// One conversation's plane.
pub(crate) struct Plane {
    pub(crate) conversation: ConversationId,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    cursor: Cursor,
    /// Folded with every word told, so that a snapshot is exact at its cursor.
    view: Projection,
    /// Made at the first lossy subscription.
    lossy: Option<broadcast::Sender<Arc<Told>>>,
    lossless: Vec<Arc<Queue>>,
}

impl Plane {
    pub(crate) fn new(conversation: ConversationId, clock: Arc<dyn Clock>) -> Self {
        let inner = Inner { cursor: Cursor::default(), view: Projection::default(), lossy: None, lossless: Vec::new() };
        Self { conversation, clock, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
            // Another process wrote meanwhile: whoever watched here must take a new snapshot.
            self.tell_live(None, Live::Lagged { missed });
        }
    }

    pub(crate) fn tell_live(&self, turn: Option<&TurnId>, live: Live) {
        self.tell(turn.cloned(), self.clock.now(), Telling::Live(live));
    }

    pub(crate) fn tell_log(&self, event: &Arc<Event>) {
        self.tell(Some(event.turn.clone()), event.at, Telling::Log(event.clone()));
    }

    fn tell(&self, turn: Option<TurnId>, at: Timestamp, what: Telling) {
        let mut inner = self.lock();
        inner.cursor.position += 1;
        let told = Told { conversation: self.conversation.clone(), turn, cursor: inner.cursor, at, what };
        inner.view.apply(&told);
        let watched = inner.lossy.as_ref().is_some_and(|lossy| lossy.receiver_count() > 0);
        if !watched && inner.lossless.is_empty() {
            return;
        }
        let told = Arc::new(told);
        inner.lossless.retain(|queue| queue.push(&told));
        if let (true, Some(lossy)) = (watched, &inner.lossy) {
            // Nobody listening is fine: losing a live event loses nothing.
            let _ = lossy.send(told);
        }
    }

    pub(crate) fn snapshot(&self) -> Projection {
        self.lock().view.clone()
    }

    pub(crate) fn subscribe(&self, delivery: Delivery) -> Subscription {
        if delivery == Delivery::Lossless {
            return self.subscribe_lossless().0;
        }
        let mut inner = self.lock();
        let tail = Tail::Lossy(inner.lossy.get_or_insert_with(|| broadcast::channel(LOSSY_ROOM).0).subscribe());
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

    /// Of the last event in view.
    pub(crate) fn last_seq(&self) -> u64 {
        self.lock().view.events.last().map_or(0, |event| event.seq)
    }

    /// Whether the call waits for an answer.
    pub(crate) fn is_pending(&self, call: &CallId) -> bool {
        self.lock().view.pending.iter().any(|pending| pending.call == *call)
    }

    /// Whether anybody has a subscription.
    pub(crate) fn is_watched(&self) -> bool {
        let inner = self.lock();
        !inner.lossless.is_empty() || inner.lossy.as_ref().is_some_and(|lossy| lossy.receiver_count() > 0)
    }

    pub(crate) fn snapshot_state(&self) -> ConversationState {
        self.lock().view.state
    }

    pub(crate) fn has_lossless(&self) -> bool {
        !self.lock().lossless.is_empty()
    }

    /// Gives up on viewers that let the deadline pass.
    pub(crate) fn cut_off(&self, queues: &[Arc<Queue>]) {
        for queue in queues.iter().filter(|queue| !queue.has_caught_up()) {
            queue.close();
        }
        self.lock().lossless.retain(|queue| !queue.is_closed());
    }
}

enum Tail {
    Lossy(broadcast::Receiver<Arc<Told>>),
    Lossless(QueueReader),
}

/// Snapshot and tail: take the snapshot, apply what comes.
pub struct Subscription {
    /// The view at the moment of subscribing.
    pub snapshot: Projection,
    tail: Tail,
    conversation: ConversationId,
    /// Of the last word given out: where a viewer that lagged stands.
    last: Cursor,
}

impl Subscription {
    fn new(snapshot: Projection, tail: Tail, conversation: ConversationId) -> Self {
        Self { last: snapshot.cursor, snapshot, tail, conversation }
    }

    /// The next word, if it was told already.
    pub fn try_next(&mut self) -> Option<Arc<Told>> {
        let told = match &mut self.tail {
            Tail::Lossless(queue) => queue.try_next()?,
            Tail::Lossy(receiver) => match receiver.try_recv() {
                Ok(told) => told,
                Err(broadcast::error::TryRecvError::Lagged(missed)) => self.lagged(missed),
                Err(_) => return None,
            },
        };
        self.last = told.cursor;
        Some(told)
    }

    /// The next word told; `None` when the conversation is gone, or a lossless viewer let the deadline pass.
    pub async fn next(&mut self) -> Option<Arc<Told>> {
        let told = match &mut self.tail {
            Tail::Lossless(queue) => queue.next().await?,
            Tail::Lossy(receiver) => match receiver.recv().await {
                Ok(told) => told,
                Err(broadcast::error::RecvError::Lagged(missed)) => self.lagged(missed),
                Err(broadcast::error::RecvError::Closed) => return None,
            },
        };
        self.last = told.cursor;
        Some(told)
    }
}

impl Subscription {
    fn lagged(&self, missed: u64) -> Arc<Told> {
        Arc::new(Told {
            conversation: self.conversation.clone(),
            turn: None,
            cursor: self.last,
            at: Timestamp::default(),
            what: Telling::Live(Live::Lagged { missed }),
        })
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("conversation", &self.conversation).finish_non_exhaustive()
    }
}
