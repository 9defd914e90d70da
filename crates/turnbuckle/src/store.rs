//! The store contract: one trait, one conformance suite, many implementations.
//!
//! A store keeps a conversation's log, what stands beside it, its inbox and its outbox. Writing needs a claim, and the
//! store itself refuses a write under an old epoch or at a wrong seq: a zombie writer runs into it.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::Limits;
use crate::clock::{Boxed, Timestamp};
use crate::event::{Event, Warning};
use crate::hook::Record;
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::{Content, Reply, Text};
use crate::scope::{Actor, By};
use crate::turn::Spent;

/// How long a claim holds without being renewed.
pub const LEASE: Duration = Duration::from_secs(15);
/// How often a writer at work renews its claim.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);

/// What a store answers, at once or later: a store that has the answer needs no allocation to give it.
pub enum Stored<'a, T> {
    /// It is there.
    Now(Ready<Result<T, StoreError>>),
    /// It will be.
    Later(Boxed<'a, Result<T, StoreError>>),
}

impl<'a, T> Stored<'a, T> {
    /// The answer is there.
    pub fn now(answer: Result<T, StoreError>) -> Self {
        Self::Now(ready(answer))
    }

    /// The answer will be there.
    pub fn later(answer: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl<T> Future for Stored<'_, T> {
    type Output = Result<T, StoreError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(answer) => Pin::new(answer).poll(cx),
            Self::Later(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> std::fmt::Debug for Stored<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Stored::Now",
            Self::Later(_) => "Stored::Later",
        })
    }
}

/// Where conversations live. Every method is one atomic step.
pub trait Store: Send + Sync + 'static {
    /// The conversation's owner. Makes the conversation, owned by `owner`, if there is none.
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor) -> Stored<'a, Actor>;

    /// The conversation's owner; `None` if there is no such conversation.
    fn owner<'a>(&'a self, id: &'a ConversationId) -> Stored<'a, Option<Actor>>;

    /// Puts a message into the inbox. Once this returned, the message survives.
    fn deliver<'a>(&'a self, id: &'a ConversationId, message: InboxMessage) -> Stored<'a, ()>;

    /// Makes `writer` the one writer; [`StoreError::InUse`] while another's lease holds.
    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> Stored<'a, Claim>;

    /// Keeps a claim for another [`LEASE`].
    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> Stored<'a, ()>;

    /// Writes all of a batch or nothing. Refused under an old epoch or at a wrong seq.
    fn append<'a>(&'a self, batch: Batch<'a>) -> Stored<'a, ()>;

    /// The log from `from` on, oldest first.
    fn log<'a>(&'a self, id: &'a ConversationId, from: u64) -> Stored<'a, Vec<Arc<Event>>>;

    /// What hooks did in a turn, in the order in which they finished.
    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> Stored<'a, Vec<Record>>;

    /// Work that a turn left to be done, oldest first.
    fn jobs<'a>(&'a self, id: &'a ConversationId) -> Stored<'a, Vec<Job>>;

    /// Removes a job that is done, or stores how it failed.
    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDone) -> Stored<'a, ()>;

    /// All conversations, the newest first.
    fn list<'a>(&'a self) -> Stored<'a, Vec<ConversationId>>;

    /// Whether what is written outlives the process.
    fn is_durable(&self) -> bool;
}

/// The right to write, and what the writer needs to go on.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Grows with every claim of the conversation.
    pub epoch: u64,
    /// The last event's; 0 for an empty log.
    pub seq: u64,
    /// Messages not yet taken up, oldest first.
    pub inbox: Vec<InboxMessage>,
    /// Of the turn that is open.
    pub beside: Option<Beside>,
}

/// A message before hooks have seen it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboxMessage {
    /// The turn it will open.
    pub turn: TurnId,
    /// What was said.
    pub content: Content,
    /// Who said it.
    pub actor: Actor,
    /// When.
    pub at: Timestamp,
}

/// What a turn needs to go on and is not history. Deleted with `turn_ended`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Whose.
    pub turn: TurnId,
    /// Who sent the message, roles included.
    pub actor: Actor,
    /// The agent that took the message up.
    pub agent: Text,
    /// Of its configuration.
    pub digest: Text,
    /// The limits in force: a later configuration does not change a turn under way.
    pub limits: Limits,
    /// What `before_agent` hooks added for this turn only.
    pub injections: Vec<TransientInjection>,
    /// Attempts at the present reply that were discarded.
    pub regeneration: Option<Regeneration>,
    /// A reply that a person must approve.
    pub asked: Option<Asked>,
    /// Calls of the present reply that a hook or a person approved with it.
    pub approved: Option<By>,
    /// Answers that are not results yet.
    pub answers: Vec<(CallId, Answer)>,
    /// Files that tools touched in this turn.
    pub touched: Vec<String>,
    /// Time at work so far.
    pub active: Duration,
    /// Model calls, tokens and money so far.
    pub spent: Spent,
    /// What stop hooks left to be said when the turn ends after a pause: advice by hook, and warnings.
    pub advice: Vec<(Text, Content)>,
    /// See `advice`.
    pub warnings: Vec<Warning>,
}

/// An injection for one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransientInjection {
    /// Its author.
    pub hook: Text,
    /// What it added.
    pub content: Content,
    /// Estimated.
    pub tokens: u32,
}

/// Why the present reply is being made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regeneration {
    /// How often it was asked for, by all hooks together.
    pub count: u32,
    /// Attempts made before this one.
    pub attempts: u32,
    /// The reply that was discarded last.
    pub discarded: Content,
    /// What was wrong with it.
    pub feedback: Text,
    /// Who said so.
    pub hook: Text,
}

/// A whole reply that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The minted call.
    pub call: CallId,
    /// Which attempt it was.
    pub attempt: u32,
    /// As it was let through.
    pub reply: Reply,
    /// Whether people saw it.
    pub told: bool,
}

/// What a person or a client says to a suspended call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// It may run.
    Approve,
    /// It may not.
    Deny(Option<Text>),
    /// The result.
    Result(serde_json::Value),
    /// There is no result, and why.
    Error(Text),
}

/// One atomic write.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Whose log.
    pub conversation: &'a ConversationId,
    /// The writer's claim.
    pub epoch: u64,
    /// New events; the first has the seq after the last.
    pub events: &'a [Arc<Event>],
    /// The last event's seq before these.
    pub expected_seq: u64,
    /// The inbox message that these events take up.
    pub take: Option<&'a TurnId>,
    /// What becomes of what stands beside the log.
    pub beside: BesideWrite<'a>,
    /// Hook runs since the last write; `turn` is the one they are of.
    pub records: Vec<Record>,
    /// The turn that writes; none between turns.
    pub turn: Option<&'a TurnId>,
    /// Work for later.
    pub jobs: Vec<Job>,
    /// Whether the writer goes on.
    pub lease: Lease,
}

/// What becomes of what stands beside the log.
#[derive(Clone, Copy, Debug)]
pub enum BesideWrite<'a> {
    /// Nothing.
    Keep,
    /// It is replaced.
    Put(&'a Beside),
    /// It goes.
    Delete,
}

/// Whether a writer goes on after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It does.
    Keep,
    /// It gives its claim back in the same step.
    Release,
}

/// Work that a turn leaves: written with `turn_ended`, done at least once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Of which turn: with the hook and the kind the key of the job.
    pub turn: TurnId,
    /// Which hook.
    pub hook: Text,
    /// At which point.
    pub kind: JobKind,
    /// Who sent the message.
    pub by: By,
    /// How often it was tried.
    pub tries: u32,
    /// How it failed last.
    pub error: Option<String>,
}

/// What a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// A hook's `on_ended`.
    Ended,
    /// A hook's `background`.
    Background,
}

/// How a try at a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobDone {
    /// The job goes.
    Removed,
    /// The job stays, with its tries and its error.
    Kept,
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another writer holds the conversation.
    #[error("conversation {id} is in use by another writer")]
    InUse {
        /// Which.
        id: ConversationId,
    },
    /// The writer's claim is no longer the newest.
    #[error("conversation {id} was taken over: epoch {epoch} is not the newest")]
    Fenced {
        /// Which.
        id: ConversationId,
        /// The old claim.
        epoch: u64,
    },
    /// The log is longer or shorter than the writer thinks.
    #[error("the log of conversation {id} ends at {actual}, not at {expected}")]
    WrongSeq {
        /// Which.
        id: ConversationId,
        /// Where the writer thinks it ends.
        expected: u64,
        /// Where it does.
        actual: u64,
    },
    /// There is no such conversation.
    #[error("there is no conversation {id}")]
    NotFound {
        /// Which.
        id: ConversationId,
    },
    /// The medium failed.
    #[error("the store failed while {doing}")]
    Failed {
        /// What it was doing.
        doing: String,
        /// The cause.
        #[source]
        source: crate::Failure,
    },
}
