//! The store contract: one trait, one conformance suite, many implementations.
//!
//! A store keeps a conversation's log, the scratch of its open turn, its inbox and its outbox. Writing needs a claim, and
//! the store itself refuses a write under an old epoch or at a wrong seq, so a writer that was thought dead cannot write.

mod answer;
mod calibration;
mod deletion;
mod error;
mod inbox;
mod job;
mod layer;
mod list_part;
mod message_key;
mod private_file;
mod scratch;
mod side;
mod standing;
mod tally;
mod title;

use std::collections::HashMap;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use answer::{Answer, GivenAnswer};
pub use calibration::Calibration;
pub use deletion::{Act, ActKind, Deletion, Hold, PurgeLimits, Purged, STORE_FILES, Tombstone};
pub use error::StoreError;
pub use inbox::{InboxFilter, InboxItem, InboxKind};
pub use job::{Job, JobDisposition, JobKind, JobLease, JobSelector, PartialSummary};
pub use layer::{StoreCall, StoreLayer};
pub use list_part::ListPart;
pub use message_key::{KeyedMessage, MessageKey};
pub use private_file::{PrivateFile, PrivateFileError};
pub use scratch::{ApprovedReply, PendingReply, Regeneration, Scratch};
pub use side::SideStore;
pub(crate) use standing::StandingRequest;
pub use standing::{ArgumentMatch, MustBe, NotLikeShown, StandingApproval};
pub use tally::{AnswerTally, StaleAnswer};
pub(crate) use title::plain_title;

use crate::BoxFuture;
pub use crate::audit::{AuditLimits, AuditWrite, AuditedCall, CallPurpose};
pub use crate::cache_break::{BreakCause, CacheBreak, SentRequest};
use crate::clock::Timestamp;
pub use crate::cut::{Cut, CutCause, Factor, LeftOutSteps, Recovery, Stub};
use crate::event::{Event, EventKind, Resolved};
use crate::id::{CallId, ConversationId, ItemId, TurnId};
pub use crate::limits::UsedBudget;
use crate::message::Text;
use crate::record::Record;
use crate::scope::{Actor, Author};
pub use crate::summary::{KeptMessage, Summary};

/// How long a claim holds without being renewed.
pub const LEASE: Duration = Duration::from_secs(15);
/// How often a writer at work renews its claim.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How many messages an inbox holds, and how many items of other kinds. They are counted separately, so that a flood of
/// messages does not keep a cancellation out.
pub const MAX_INBOX: usize = 1_000;

/// What a store's methods return. A store that has the answer at once needs no allocation to give it.
pub enum StoreFuture<'a, T> {
    /// It is there.
    Now(Ready<Result<T, StoreError>>),
    /// It will be.
    Later(BoxFuture<'a, Result<T, StoreError>>),
}

impl<'a, T> StoreFuture<'a, T> {
    /// The answer is there.
    pub fn now(answer: Result<T, StoreError>) -> Self {
        Self::Now(ready(answer))
    }

    /// The answer will be there.
    pub fn later(answer: impl Future<Output = Result<T, StoreError>> + Send + 'a) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl<T> Future for StoreFuture<'_, T> {
    type Output = Result<T, StoreError>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(answer) => Pin::new(answer).poll(cx),
            Self::Later(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> std::fmt::Debug for StoreFuture<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "StoreFuture::Now",
            Self::Later(_) => "StoreFuture::Later",
        })
    }
}

/// Where conversations live. Every method is one atomic step.
pub trait Store: Send + Sync + 'static {
    /// The conversation's owner. Makes the conversation, owned by `owner`, if there is none. An id that was deleted cannot be
    /// used again: [`StoreError::Deleted`], for a sub-agent's conversation below it, too.
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor>;

    /// The conversation's owner; `None` if there is no such conversation.
    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>>;

    /// Puts an item into the inbox. Once this has returned, it survives. It is refused with [`StoreError::Full`] if
    /// [`MAX_INBOX`] items of its kind, those that open a turn or the others, wait already.
    ///
    /// A message with a key ([`InboxItem::key`]) is refused with [`StoreError::SentBefore`] if its sender used the key in this
    /// conversation within the last day. Otherwise the key is stored in the same step. It is forgotten with the conversation.
    ///
    /// An answer is checked in the same step, by [`AnswerTally`]: [`StoreError::NotAsked`] if the log has no open question under
    /// its call id, or one that had expired when the answer was given; [`StoreError::AlreadyAnswered`] if the approvals in the
    /// log and the answers in the inbox settle the question, or the same user has approved it; [`StoreError::ArgumentsChanged`]
    /// if it is about other arguments than those asked about. So what is stored counts, and the first stored answer wins.
    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()>;

    /// What a user sent under this key, if that is not longer ago than a day.
    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>>;

    /// Inbox items that no write has taken up, oldest first: all of them, or only orders, which a running turn reads again
    /// and again.
    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>>;

    /// Makes `writer` the one writer; [`StoreError::InUse`] while another's lease holds.
    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim>;

    /// Keeps a claim for another [`LEASE`].
    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()>;

    /// Writes all of a batch or nothing. Refused under an old epoch or at a wrong seq.
    ///
    /// Answers to a call are written in the order in which they were stored, whether or not they leave the question open. A
    /// batch that answers a call or ends its question, also with the end of its turn ([`Batch::follows_answers_to`]), is refused
    /// with [`StoreError::AlreadyAnswered`] if the inbox has an answer to it that was stored before and that the batch does not
    /// take up: before [`Batch::answer`] or, for an answer that was never in the inbox and for the end of a question, at all. So
    /// it is if [`Batch::answer`] is not in the inbox any more: each stored answer counts once.
    ///
    /// An event that names a standing approval ([`EventKind::uses_standing`](crate::event::EventKind::uses_standing)) is a use
    /// of it: it is counted in the same step. The batch is refused with [`StoreError::StandingEnded`] if the approval was
    /// revoked or used up, or had expired at the time of the event.
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()>;

    /// The log from `from` on, oldest first, at most `most` events.
    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>>;

    /// The end of the log before `before`, oldest first: read backwards, until the events hold `tokens` together. The
    /// event that fills the measure is among them.
    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>>;

    /// Whether a tool call or a suspension of this id is anywhere in the log.
    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool>;

    /// The scratch of the open turn, for readers that do not claim the conversation.
    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>>;

    /// What hooks did in a turn, in the order in which they finished.
    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>>;

    /// Where contexts were cut, oldest first.
    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>>;

    /// The last request that a model answered, for readers that do not claim the conversation.
    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>>;

    /// Requests that did not begin like the ones before them, oldest first.
    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>>;

    /// What models were sent, oldest first.
    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>>;

    /// What [`audited_calls`](Self::audited_calls) refer to, by digest.
    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>>;

    /// Adds to the audit of a conversation what was sent outside of its turns. It needs no claim: the log stays as it is.
    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()>;

    /// Removes what is beyond the limits from the audit of all conversations, the oldest calls first. Returns how many calls went.
    /// Every write that adds to an audit does the same.
    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64>;

    /// The summaries of a conversation, oldest first.
    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>>;

    /// Adds a summary and removes the job that made it, in one step. It needs no claim: the log stays as it is, and a turn under
    /// way does not look. Refused with [`StoreError::Fenced`] if there is a summary of this version, or a newer one, already:
    /// another process was quicker.
    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()>;

    /// What the conversation is called, if it has a title.
    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>>;

    /// Gives the conversation a title, in the place of the one it had. It needs no claim: the log stays as it is. A title goes
    /// with its conversation when that is deleted.
    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()>;

    /// What was learned about the estimates of tokens, for each model that it is known of, in no order.
    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>>;

    /// Work that turns left to be done, oldest first; parked jobs too.
    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>>;

    /// The oldest job that is due, that nobody holds, and that one of `hooks` does. From now on the caller holds it, and
    /// it has one try more: it is counted before it is begun, so that one that takes its process down is counted, too.
    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>>;

    /// Removes a job that is done, or stores how it failed. One that is gone stays gone.
    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()>;

    /// Conversations in which something is to be done and no writer is at work, at most `most`: a turn that a crash left, an
    /// inbox item, a question that expired, a job. They come in the order of their ids, and only those behind `after`, so
    /// that a caller who goes on behind the last one reaches all of them, even if some stay due. Conversations of sub-agents
    /// are never due: their parents take care of them, and their jobs make the main agent's conversation due.
    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>>;

    /// Conversations of sub-agents below this one in which jobs are left that are not parked.
    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>>;

    /// All conversations, the newest first.
    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>>;

    /// Some of [`list`](Self::list), in the same order. A store overrides this if it need not read all of them for it.
    fn list_part<'a>(&'a self, part: ListPart<'a>) -> StoreFuture<'a, Vec<ConversationSummary>> {
        StoreFuture::later(async move { Ok(part.of(self.list().await?)) })
    }

    /// All standing approvals, the oldest first; also those that have expired or are used up, until they are revoked.
    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>>;

    /// Removes a standing approval. False if there is none of this id.
    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool>;

    /// Removes a conversation and those of its sub-agents: log, scratch, inbox, records and jobs, and the standing approvals
    /// that were made from it. Leaves a [`Tombstone`] and an [`Act`] ([`Act::deletion`]). From now on every method that is given the id and needs
    /// the conversation fails with [`StoreError::Deleted`], so a writer that does not know of it cannot bring it back.
    ///
    /// Refused under an old epoch, with [`StoreError::Held`] if it is on hold, and with [`StoreError::InUse`] while a process
    /// works on a job of it or of its sub-agents.
    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()>;

    /// What stays of a conversation that was deleted; `None` if none of this id was.
    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>>;

    /// Deletions of which something is left to be erased, the oldest first.
    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>>;

    /// Removes a name from [`Tombstone::left`]. One that is not there is no error.
    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()>;

    /// Cleans the store's own files of what was deleted: logs, journals and unused space, too.
    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged>;

    /// Puts a conversation on hold: it cannot be deleted until it is released. Leaves an [`Act`]. False if it was on hold
    /// already; that hold stays as it is.
    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool>;

    /// Ends a hold, and leaves an [`Act`]. False if there was none.
    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool>;

    /// Conversations of main agents in which nothing was written since `before`, no turn is open, and that are not on hold: at
    /// most `most`, in the order of their ids, and only those behind `after`.
    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>>;

    /// Records an act.
    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()>;

    /// The newest acts, at most `most`, the newest first.
    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>>;

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
    /// Of the log.
    pub totals: Totals,
    /// The last one.
    pub cut: Option<Arc<Cut>>,
    /// The last request that a model answered.
    pub sent: Option<Arc<SentRequest>>,
    /// The summary that the last cut shows.
    pub summary: Option<Arc<Summary>>,
    /// The newest summary, which may be another one.
    pub newest_summary: Option<Arc<Summary>>,
    /// Not yet taken up, oldest first.
    pub inbox: Vec<InboxItem>,
    /// Of the turn that is open.
    pub scratch: Option<Arc<Scratch>>,
}

/// What the ended turns of a log come to, so that nobody has to read them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Attempts that reached a model.
    pub model_calls: u64,
    /// Estimated tokens of the turns that joined history.
    pub tokens: u64,
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
    /// Ids of the inbox items that this write takes up: they are removed.
    pub take: &'a [ItemId],
    /// What becomes of what stands beside the log.
    pub scratch: ScratchWrite<'a>,
    /// The inbox item that the answer of this write came in, one of `take`; `None` if it was given in the writer's process.
    pub answer: Option<&'a ItemId>,
    /// The standing approval that begins with an answer of this write.
    pub standing: Option<&'a StandingApproval>,
    /// Hook runs since the last write; `turn` is the one they are of.
    pub records: Vec<Record>,
    /// The turn that writes; none between turns.
    pub turn: Option<&'a TurnId>,
    /// Work for later. The writer keeps it to itself for `job_lease`, as by [`Store::take_job`]; its try is counted already.
    pub jobs: Vec<Job>,
    /// See `jobs`.
    pub job_lease: Duration,
    /// Jobs that are done: they go with this write.
    pub done: &'a [Job],
    /// With the end of a turn.
    pub totals: Option<Totals>,
    /// If a context was cut since the last write.
    pub cut: Option<&'a Arc<Cut>>,
    /// If a model answered a request since the last write: it replaces the one that is stored.
    pub sent: Option<&'a Arc<SentRequest>>,
    /// Requests since the last write that did not begin like the ones before them.
    pub breaks: &'a [CacheBreak],
    /// What models were sent since the last write, if that is recorded.
    pub audit: Option<&'a AuditWrite>,
    /// What was learned about the estimates of tokens, if that changed: it replaces what is stored for the same models. It
    /// belongs to no conversation.
    pub calibrations: &'a [Calibration],
    /// Where the conversation stands after this write; `None`: where it stood.
    pub status: Option<ConversationStatus>,
    /// Whether the writer goes on.
    pub lease: Lease,
}

impl<'a> Batch<'a> {
    /// A batch that changes nothing.
    pub fn new(conversation: &'a ConversationId, epoch: u64, expected_seq: u64) -> Self {
        Self {
            conversation,
            epoch,
            events: &[],
            expected_seq,
            take: &[],
            scratch: ScratchWrite::Keep,
            answer: None,
            standing: None,
            records: Vec::new(),
            turn: None,
            jobs: Vec::new(),
            job_lease: Duration::ZERO,
            done: &[],
            totals: None,
            cut: None,
            sent: None,
            breaks: &[],
            audit: None,
            calibrations: &[],
            status: None,
            lease: Lease::Keep,
        }
    }

    /// The calls whose questions this write answers, if only in part, or ends, because nobody answered in time or the turn is
    /// over. Answers to them that were stored before must be in the log first. Not among them are questions in whose place a
    /// standing approval is used, and pauses that end because another one was denied: with that the turn goes on.
    pub fn follows_answers_to(&self) -> impl Iterator<Item = &'a CallId> + use<'a> {
        let events = self.events;
        let ends_turn = events.last().is_some_and(|event| matches!(event.kind, EventKind::TurnEnded(_)));
        events.iter().filter_map(move |event| match &event.kind {
            EventKind::Resolution { evidence, .. } if evidence.standing.is_some() => None,
            EventKind::Resolution { decision: Resolved::Cancelled, .. } if !ends_turn => None,
            EventKind::Resolution { call, .. } => Some(call),
            _ => None,
        })
    }
}

/// What becomes of what stands beside the log.
#[derive(Clone, Copy, Debug)]
pub enum ScratchWrite<'a> {
    /// It stays as it is.
    Keep,
    /// It is replaced. Shared: a store that keeps it in memory need not copy it.
    Put(&'a Arc<Scratch>),
    /// It goes.
    Delete,
}

/// What a conversation is doing, as far as other processes must know to decide whether to take it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConversationStatus {
    /// No turn is open.
    #[default]
    Idle,
    /// A turn is open that needs no answer: without a writer it is due at once.
    Running,
    /// A turn waits for an answer, and is due when the first question lapses.
    Waiting {
        /// When that is.
        until: Timestamp,
    },
}

/// A conversation in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSummary {
    /// The conversation.
    pub id: ConversationId,
    /// Who owns it.
    pub owner: Actor,
    /// When it was opened.
    pub opened: Timestamp,
    /// When it was last written to.
    pub written: Timestamp,
    /// Of the last event.
    pub seq: u64,
    /// What it is doing.
    pub status: ConversationStatus,
    /// Until when a writer's claim lasts; `None` if there is none, or if its process is known to be gone.
    pub claimed_until: Option<Timestamp>,
    /// Whether it must not be deleted.
    pub hold: Option<Hold>,
    /// What it is called, if it has a title.
    pub title: Option<Text>,
}

/// Whether a writer goes on after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It does.
    Keep,
    /// It gives its claim back in the same step.
    Release,
}
