//! A rig for scripted turns: counting ids, a paused clock, everything told kept.

use std::sync::{Arc, Mutex, PoisonError};

use super::clock::PausedClock;
use crate::BoxFuture;
use crate::agent::Agent;
use crate::conversation::{Conversations, ConversationsBuilder, SendError, TurnHandle, TurnReport, TurnStatus};
use crate::event::Event;
use crate::feed::{Delivery, FeedEvent, Subscription};
use crate::id::{ConversationId, CountingIds};
use crate::message::{Content, Reply};
use crate::model::{Model, ModelError, Request, Sink};
use crate::scope::Scope;
use crate::store::Store;
use crate::stores::MemoryStore;
use crate::trace::trace_told;

/// A model that remembers what it was asked.
#[derive(Clone)]
pub struct Recorder {
    model: Arc<dyn Model>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Recorder {
    /// Remembers what `model` is asked.
    pub fn of(model: impl Model) -> Self {
        Self { model: Arc::new(model), requests: Arc::default() }
    }

    /// In order.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for Recorder {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        self.model.stream(request, out)
    }
    fn name(&self) -> &str {
        self.model.name()
    }
    fn summarises(&self) -> bool {
        self.model.summarises()
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("requests", &self.requests().len()).finish_non_exhaustive()
    }
}

/// One conversation, `c_1`, with exact time and ids. Everything told is kept.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use turnbuckle::{Agent, models::Script, testing::Rig};
/// let mut rig = Rig::new(Agent::builder("a", Script::says(["Hello!"])).build().unwrap());
/// assert_eq!(rig.trace("hi").await, "accept    \"hi\"\nbuild     1 message, 0 tools\ncall      \"Hello!\"\nend       completed\n");
/// # });
/// ```
#[derive(Debug)]
pub struct Rig {
    /// The door.
    pub conversations: Conversations,
    /// Its clock.
    pub clock: PausedClock,
    /// The conversation.
    pub id: ConversationId,
    told: Vec<FeedEvent>,
    tail: Option<Subscription>,
}

impl Rig {
    /// On a store of its own.
    pub fn new(agent: Agent) -> Self {
        Self::on(agent, MemoryStore::default())
    }

    /// On this store.
    pub fn on(agent: Agent, store: impl Store) -> Self {
        Self::with(agent, store, |builder| builder)
    }

    /// With other settings.
    pub fn with(
        agent: Agent,
        store: impl Store,
        change: impl FnOnce(ConversationsBuilder) -> ConversationsBuilder,
    ) -> Self {
        let clock = PausedClock::default();
        let builder = Conversations::builder(agent, store).clock(Arc::new(clock.clone()));
        let conversations = change(builder.ids(Arc::new(CountingIds::default()))).build();
        Self { conversations, clock, id: "c_1".into(), told: Vec::new(), tail: None }
    }

    /// Listens from now on.
    pub async fn listen(&mut self) -> Result<(), SendError> {
        if self.tail.is_none() {
            self.tail = Some(self.conversations.subscribe(&self.id, Delivery::Lossless, Scope::local()).await?);
        }
        Ok(())
    }

    /// Sends a message and listens.
    pub async fn send(&mut self, message: impl Into<Content>) -> Result<TurnHandle, SendError> {
        self.listen().await?;
        self.conversations.send(&self.id, message, Scope::local()).await
    }

    /// Sends a message and waits until its turn rests.
    pub async fn run(&mut self, message: impl Into<Content>) -> Result<TurnStatus, crate::RunError> {
        let handle = self.send(message).await?;
        self.follow(handle).await
    }

    /// Waits until a turn rests, keeping what is told.
    pub async fn follow(&mut self, handle: TurnHandle) -> Result<TurnStatus, crate::RunError> {
        let mut rest = std::pin::pin!(handle.wait());
        let rest = loop {
            let Some(tail) = &mut self.tail else { break rest.await };
            tokio::select! {
                biased;
                Some(told) = tail.next() => self.told.push(told),
                rest = &mut rest => break rest,
            }
        };
        self.settle().await;
        Ok(rest?)
    }

    /// Lets the driver go to rest and keeps what it still tells.
    pub async fn settle(&mut self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let Some(tail) = &mut self.tail else { return };
            while let Some(told) = tail.try_next() {
                self.told.push(told);
            }
        }
    }

    /// Sends a message, waits until its turn is over; panics are the test's.
    pub async fn ended(&mut self, message: impl Into<Content>) -> Option<TurnReport> {
        match self.run(message).await {
            Ok(TurnStatus::Ended(ended)) => Some(*ended),
            _ => None,
        }
    }

    /// Sends a message and gives back everything told, as text.
    pub async fn trace(&mut self, message: impl Into<Content>) -> String {
        let from = self.told.len();
        match self.run(message).await {
            Ok(_) => trace_told(&self.told[from..], self.conversations.agent().tools().len()),
            Err(error) => format!("error     {error}\n"),
        }
    }

    /// Everything told so far.
    pub fn told(&self) -> &[FeedEvent] {
        &self.told
    }

    /// The log.
    pub async fn log(&self) -> Result<Vec<Arc<Event>>, SendError> {
        self.conversations.log(&self.id, Scope::local()).await
    }
}
