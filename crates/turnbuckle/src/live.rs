//! The live plane: both planes told in one order, to viewers that keep up and to those that do not.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use tokio::sync::{Notify, broadcast};

use crate::clock::{Clock, Timestamp};
use crate::event::Event;
use crate::hook::{Point, Record};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::projection::Projection;
use crate::scope::By;

/// Where in the order of both planes something was told: `EPOCH-POSITION`. A new writer begins a new epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Which writer.
    pub epoch: u64,
    /// Its how-manieth word.
    pub position: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.position)
    }
}

impl FromStr for Cursor {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (epoch, position) = text.split_once('-').ok_or("a cursor is EPOCH-POSITION")?;
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        Ok(Self { epoch: number(epoch)?, position: number(position)? })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// What is only told: losing one loses nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields say what they are; the table in the docs has the rest")]
#[non_exhaustive]
pub enum Live {
    /// The turn entered a stage, or the conversation came to rest.
    StateChanged { state: ConversationState },
    /// A message was taken up.
    TurnStarted { agent: Text, by: By },
    /// A piece of the answer.
    TextDelta { attempt: u32, text: Text },
    /// A piece of thought.
    ThinkingDelta { attempt: u32, text: Text },
    /// What was told of this attempt is taken back.
    AttemptDiscarded { attempt: u32, by: Option<By>, reason: Option<Text> },
    /// A tool says how far it is; a string is its status line.
    ToolProgress { call: CallId, payload: Value },
    /// A hook did not finish at once.
    HookStarted { hook: Text, point: Point },
    /// A hook says what it is doing.
    HookProgress { hook: Text, text: Text },
    /// A hook that was started, decided something, or failed.
    HookFinished { hook: Text, point: Point, decision: Text, ms: f64, tokens: u32, error: Option<Text> },
    /// A background hook began.
    BackgroundStarted { hook: Text },
    /// A background hook ended.
    BackgroundFinished { hook: Text, error: Option<Text> },
    /// A next prompt, proposed.
    Suggestion { text: Text },
    /// Something a person should know.
    Notice { level: Level, text: Text, hook: Option<Text> },
    /// A lossy viewer missed so many events: take a new snapshot.
    Lagged { missed: u64 },
}

impl Live {
    pub(crate) fn hook_finished(record: &Record) -> Self {
        Self::HookFinished {
            hook: record.hook.clone(),
            point: record.point,
            decision: (&*record.decision).into(),
            ms: record.took.as_micros() as f64 / 1000.0,
            tokens: record.tokens,
            error: record.failure.as_deref().map(Into::into),
        }
    }
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Good to know.
    Info,
    /// Should be looked at.
    Warning,
}

/// A conversation's state: its turn's stage, or `idle`, or `waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "named by the stages")]
pub enum ConversationState {
    #[default]
    Idle,
    Waiting,
    Accept,
    Build,
    Call,
    Dispatch,
    End,
}

/// One thing told, of either plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// In which conversation.
    pub conversation: ConversationId,
    /// Of which turn; none between turns.
    pub turn: Option<TurnId>,
    /// Where in the order.
    pub cursor: Cursor,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: Telling,
}

/// Which plane.
#[derive(Clone, Debug, PartialEq)]
pub enum Telling {
    /// It stands in the log.
    Log(Arc<Event>),
    /// It is only told.
    Live(Live),
}

impl Serialize for Told {
    /// The JSON line of `run --json`, `show --json` and the server's stream.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Line<'a, T> {
            plane: &'static str,
            conversation: &'a ConversationId,
            turn: &'a Option<TurnId>,
            cursor: Cursor,
            at: Timestamp,
            #[serde(skip_serializing_if = "Option::is_none")]
            seq: Option<u64>,
            #[serde(flatten)]
            what: &'a T,
        }
        let Self { conversation, turn, cursor, at, what } = self;
        let (cursor, at) = (*cursor, *at);
        match what {
            Telling::Log(event) => {
                let (seq, what) = (Some(event.seq), &event.kind);
                Line { plane: "log", conversation, turn, cursor, at, seq, what }.serialize(serializer)
            }
            Telling::Live(what) => {
                Line { plane: "live", conversation, turn, cursor, at, seq: None, what }.serialize(serializer)
            }
        }
    }
}

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
/// How many events a lossless viewer may be behind before the turn waits for it.
const LOSSLESS_ROOM: usize = 1024;
/// A lossless viewer further behind than this is cut off: one poll of a model may push many chunks, not this many.
const LOSSLESS_END: usize = 1 << 20;

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
        if let Some(log) = log {
            inner.view = Projection::of_log(log);
        }
        inner.view.cursor = inner.cursor;
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
        let mut inner = self.lock();
        let tail = match delivery {
            Delivery::Lossy => {
                Tail::Lossy(inner.lossy.get_or_insert_with(|| broadcast::channel(LOSSY_ROOM).0).subscribe())
            }
            Delivery::Lossless => {
                let queue = Arc::new(Queue::default());
                inner.lossless.push(queue.clone());
                Tail::Lossless(QueueReader(queue))
            }
        };
        Subscription { snapshot: inner.view.clone(), tail, conversation: self.conversation.clone() }
    }

    /// The lossless viewers that the turn should wait for.
    pub(crate) fn behind(&self) -> Vec<Arc<Queue>> {
        let inner = self.lock();
        inner.lossless.iter().filter(|queue| queue.len() > LOSSLESS_ROOM).cloned().collect()
    }

    /// Whether every lossless viewer has read everything.
    pub(crate) fn all_read(&self) -> bool {
        self.lock().lossless.iter().all(|queue| queue.is_closed() || queue.len() == 0)
    }

    pub(crate) fn snapshot_state(&self) -> ConversationState {
        self.lock().view.state
    }

    pub(crate) fn has_lossless(&self) -> bool {
        !self.lock().lossless.is_empty()
    }

    /// Gives up on viewers that let the deadline pass.
    pub(crate) fn cut_off(&self, queues: &[Arc<Queue>]) {
        for queue in queues {
            queue.close();
        }
        self.lock().lossless.retain(|queue| !queue.is_closed());
    }
}

/// What a lossless viewer has not read yet.
#[derive(Default)]
pub(crate) struct Queue {
    told: Mutex<(VecDeque<Arc<Told>>, bool)>,
    /// Woken when something was told or the queue was closed.
    filled: Notify,
    /// Woken when something was read.
    drained: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Arc<Told>>, bool)> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False once nobody reads any more.
    fn push(&self, told: &Arc<Told>) -> bool {
        let mut state = self.lock();
        if state.0.len() >= LOSSLESS_END {
            state.1 = true;
        }
        if !state.1 {
            state.0.push_back(told.clone());
        }
        let open = !state.1;
        drop(state);
        self.filled.notify_one();
        open
    }

    fn len(&self) -> usize {
        self.lock().0.len()
    }

    fn is_closed(&self) -> bool {
        self.lock().1
    }

    fn close(&self) {
        self.lock().1 = true;
        self.filled.notify_one();
        self.drained.notify_one();
    }

    /// Ready when the viewer has caught up half-way, or is gone.
    pub(crate) async fn caught_up(&self) {
        while !self.is_closed() && self.len() > LOSSLESS_ROOM / 2 {
            self.drained.notified().await;
        }
    }
}

/// The reading end; dropping it ends the subscription.
struct QueueReader(Arc<Queue>);

impl Drop for QueueReader {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl QueueReader {
    fn try_next(&mut self) -> Option<Arc<Told>> {
        let told = self.0.lock().0.pop_front()?;
        self.0.drained.notify_one();
        Some(told)
    }

    async fn next(&mut self) -> Option<Arc<Told>> {
        loop {
            {
                let mut state = self.0.lock();
                if let Some(told) = state.0.pop_front() {
                    drop(state);
                    self.0.drained.notify_one();
                    return Some(told);
                }
                if state.1 {
                    return None;
                }
            }
            self.0.filled.notified().await;
        }
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
}

impl Subscription {
    /// The next word, if it was told already.
    pub fn try_next(&mut self) -> Option<Arc<Told>> {
        match &mut self.tail {
            Tail::Lossless(queue) => queue.try_next(),
            Tail::Lossy(receiver) => receiver.try_recv().ok(),
        }
    }

    /// The next word told; `None` when the conversation is gone, or a lossless viewer let the deadline pass.
    pub async fn next(&mut self) -> Option<Arc<Told>> {
        match &mut self.tail {
            Tail::Lossless(queue) => queue.next().await,
            Tail::Lossy(receiver) => match receiver.recv().await {
                Ok(told) => Some(told),
                Err(broadcast::error::RecvError::Lagged(missed)) => Some(Arc::new(Told {
                    conversation: self.conversation.clone(),
                    turn: None,
                    cursor: Cursor::default(),
                    at: Timestamp::default(),
                    what: Telling::Live(Live::Lagged { missed }),
                })),
                Err(broadcast::error::RecvError::Closed) => None,
            },
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("conversation", &self.conversation).finish_non_exhaustive()
    }
}
