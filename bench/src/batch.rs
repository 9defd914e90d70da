//! Turns in bulk: conversations with their viewers are made first, then only the turns are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinHandle;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::id::CountingIds;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::PausedClock;
use turnbuckle::{Agent, ConversationId, Conversations, Scope, TurnStatus};

use crate::BoxError;

/// What every message says.
pub const MESSAGE: &str = "What is 2 + 3?";

/// Where time and ids come from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The machine's clock, ids that no other process gives.
    System,
    /// A clock that stands still and ids that count, so that every run takes the same steps.
    Exact,
}

/// Who watches each conversation.
#[derive(Clone, Copy, Debug)]
pub enum Viewers {
    /// Nobody.
    None,
    /// So many that may miss something.
    Lossy(usize),
    /// So many that the turn waits for.
    Lossless(usize),
}

/// Conversations that are ready for a turn.
pub struct Batch {
    conversations: Conversations,
    ids: Vec<ConversationId>,
    message: String,
    readers: Vec<(Arc<Count>, JoinHandle<()>)>,
}

/// Written by a viewer's task, read when all is over.
#[derive(Default)]
struct Count {
    events: AtomicU64,
    turns: AtomicU64,
    missed: AtomicU64,
}

/// What a viewer saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Events of both planes.
    pub events: u64,
    /// Turns that ended.
    pub turns: u64,
    /// Events it was told that it missed.
    pub missed: u64,
}

impl Batch {
    /// `count` new conversations of `agent` in a memory store, each with its viewers; every viewer is a task that reads.
    pub async fn new(agent: &Agent, count: usize, viewers: Viewers, source: Source) -> Result<Self, BoxError> {
        let ids = (0..count).map(|number| format!("c_{number}").into()).collect();
        Self::of(agent, MemoryStore::default(), ids, viewers, source).await
    }

    /// Conversations of `agent` that are in `store` already, or are made by their first turn.
    pub async fn of(
        agent: &Agent,
        store: MemoryStore,
        ids: Vec<ConversationId>,
        viewers: Viewers,
        source: Source,
    ) -> Result<Self, BoxError> {
        let builder = Conversations::builder(agent.clone(), store);
        let conversations = match source {
            Source::System => builder.build(),
            Source::Exact => {
                builder.clock(Arc::new(PausedClock::default())).ids(Arc::new(CountingIds::default())).build()
            }
        };
        let mut readers = Vec::new();
        let (each, delivery) = match viewers {
            Viewers::None => (0, Delivery::Lossy),
            Viewers::Lossy(each) => (each, Delivery::Lossy),
            Viewers::Lossless(each) => (each, Delivery::Lossless),
        };
        for id in &ids {
            for _ in 0..each {
                let tail = conversations.subscribe(id, delivery, Scope::local()).await?;
                let count = Arc::new(Count::default());
                readers.push((count.clone(), tokio::spawn(read(tail, count))));
            }
        }
        let batch = Self { conversations, ids, message: MESSAGE.to_owned(), readers };
        batch.settle().await;
        Ok(batch)
    }

    /// The same with another message in each turn.
    pub fn saying(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// One turn in each conversation, read to the end by its viewers.
    pub async fn fresh_turns(&self) -> Result<(), BoxError> {
        for id in &self.ids {
            self.turn(id).await?;
        }
        self.settle().await;
        Ok(())
    }

    /// So many turns in the first conversation, one after the other.
    pub async fn next_turns(&self, count: usize) -> Result<(), BoxError> {
        let id = self.ids.first().ok_or("there is no conversation")?;
        for _ in 0..count {
            self.turn(id).await?;
        }
        self.settle().await;
        Ok(())
    }

    async fn turn(&self, id: &ConversationId) -> Result<(), BoxError> {
        match self.conversations.turn(id, self.message.as_str(), Scope::local()).await? {
            TurnStatus::Ended(ended) if ended.is_completed() => Ok(()),
            other => Err(format!("the turn did not complete: {other:?}").into()),
        }
    }

    /// Lets viewers read what they were told. Between two yields the runtime polls some sixty tasks, and a task reads a
    /// hundred events at a time.
    async fn settle(&self) {
        for _ in 0..3 + self.readers.len() / 4 {
            tokio::task::yield_now().await;
        }
    }

    /// How many records the hooks of the last turn of the first conversation left.
    pub async fn records(&self) -> Result<usize, BoxError> {
        let id = self.ids.first().ok_or("there is no conversation")?;
        let log = self.conversations.log(id, Scope::local()).await?;
        let ended = log.iter().rev().find(|event| matches!(event.kind, EventKind::TurnEnded(_)));
        let turn = &ended.ok_or("no turn has ended")?.turn;
        Ok(self.conversations.records(id, turn, Scope::local()).await?.len())
    }

    /// Closes the conversations and gives back what each viewer saw.
    pub fn finish(self) -> Vec<Seen> {
        let seen = |(count, reader): (Arc<Count>, JoinHandle<()>)| {
            reader.abort();
            let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
            Seen { events: read(&count.events), turns: read(&count.turns), missed: read(&count.missed) }
        };
        self.readers.into_iter().map(seen).collect()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("conversations", &self.ids.len()).finish_non_exhaustive()
    }
}

async fn read(mut tail: turnbuckle::feed::Subscription, count: Arc<Count>) {
    let add = |number: &AtomicU64, more: u64| number.store(number.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    while let Some(told) = tail.next().await {
        match &told.item {
            FeedItem::Live(LiveEvent::Lagged { missed }) => add(&count.missed, *missed),
            FeedItem::Log(event) => {
                add(&count.events, 1);
                add(&count.turns, u64::from(matches!(event.kind, EventKind::TurnEnded(_))));
            }
            FeedItem::Live(_) => add(&count.events, 1),
        }
    }
}
