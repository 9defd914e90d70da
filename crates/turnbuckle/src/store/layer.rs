//! A store around another one: it changes what it is there for and passes the rest on.

use std::collections::HashMap;
use std::sync::Arc;

use super::{
    Act, AuditLimits, AuditWrite, AuditedCall, Batch, CacheBreak, Calibration, Claim, ConversationSummary, Cut,
    Deletion, Hold, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector, KeyedMessage, ListPart,
    PurgeLimits, Purged, Scratch, SentRequest, StandingApproval, Store, StoreFuture, Summary, Tombstone,
};
use crate::clock::Timestamp;
use crate::event::Event;
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::record::Record;
use crate::scope::{Actor, Author};

/// A call of a store, as [`StoreLayer::around`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoreCall<'a> {
    /// The method of [`Store`].
    pub method: &'static str,
    /// The conversation that it is about, if it is about one.
    pub conversation: Option<&'a ConversationId>,
}

impl<'a> StoreCall<'a> {
    fn new(method: &'static str, conversation: Option<&'a ConversationId>) -> Self {
        Self { method, conversation }
    }
}

/// A store around another one, to measure, delay, refuse or record what is asked of it. Whatever implements this is a [`Store`].
/// Every method passes its call to [`inner`](Self::inner), through [`around`](Self::around): a layer that treats all calls alike
/// overrides `around`, any other one the methods that it changes. Methods that a later version adds to the contract are passed
/// on as well.
///
/// Both traits have these methods. Where both are in scope, `layer.log(…)` could mean either and does not compile: write
/// `Store::log(&layer, …)`, which is what everybody else calls.
///
/// ```
/// use turnbuckle::id::ConversationId;
/// use turnbuckle::store::{Batch, Store, StoreError, StoreFuture, StoreLayer};
///
/// /// Nothing is written to a store that is only looked at.
/// struct ReadOnly<S>(S);
///
/// impl<S: Store> StoreLayer for ReadOnly<S> {
///     type Inner = S;
///     fn inner(&self) -> &S {
///         &self.0
///     }
///     fn append<'a>(&'a self, _: Batch<'a>) -> StoreFuture<'a, ()> {
///         StoreFuture::now(Err(StoreError::failed("writing", "the store is only looked at")))
///     }
/// }
/// ```
pub trait StoreLayer: Send + Sync + 'static {
    /// The store that calls are passed on to.
    type Inner: Store + ?Sized;

    /// The store that calls are passed on to.
    fn inner(&self) -> &Self::Inner;

    /// Passes a call on, which happens when `ask` is called: at once, later, or not at all.
    fn around<'a, T: Send + 'a>(
        &'a self,
        _call: StoreCall<'a>,
        ask: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        ask()
    }

    /// See [`Store::open`].
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        self.around(StoreCall::new("open", Some(id)), move || self.inner().open(id, owner, now))
    }

    /// See [`Store::owner`].
    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        self.around(StoreCall::new("owner", Some(id)), move || self.inner().owner(id))
    }

    /// See [`Store::deliver`].
    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("deliver", Some(id)), move || self.inner().deliver(id, item))
    }

    /// See [`Store::keyed_message`].
    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>> {
        self.around(StoreCall::new("keyed_message", Some(id)), move || self.inner().keyed_message(id, user, key, now))
    }

    /// See [`Store::inbox`].
    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        self.around(StoreCall::new("inbox", Some(id)), move || self.inner().inbox(id, which))
    }

    /// See [`Store::claim`].
    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        self.around(StoreCall::new("claim", Some(id)), move || self.inner().claim(id, writer, now))
    }

    /// See [`Store::renew`].
    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("renew", Some(id)), move || self.inner().renew(id, epoch, now))
    }

    /// See [`Store::append`].
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("append", Some(batch.conversation)), move || self.inner().append(batch))
    }

    /// See [`Store::log`].
    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.around(StoreCall::new("log", Some(id)), move || self.inner().log(id, from, most))
    }

    /// See [`Store::tail`].
    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.around(StoreCall::new("tail", Some(id)), move || self.inner().tail(id, before, tokens))
    }

    /// See [`Store::has_call`].
    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool> {
        self.around(StoreCall::new("has_call", Some(id)), move || self.inner().has_call(id, call))
    }

    /// See [`Store::scratch`].
    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>> {
        self.around(StoreCall::new("scratch", Some(id)), move || self.inner().scratch(id))
    }

    /// See [`Store::records`].
    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        self.around(StoreCall::new("records", Some(id)), move || self.inner().records(id, turn))
    }

    /// See [`Store::cuts`].
    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>> {
        self.around(StoreCall::new("cuts", Some(id)), move || self.inner().cuts(id))
    }

    /// See [`Store::sent`].
    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        self.around(StoreCall::new("sent", Some(id)), move || self.inner().sent(id))
    }

    /// See [`Store::cache_breaks`].
    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>> {
        self.around(StoreCall::new("cache_breaks", Some(id)), move || self.inner().cache_breaks(id))
    }

    /// See [`Store::audited_calls`].
    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>> {
        self.around(StoreCall::new("audited_calls", Some(id)), move || self.inner().audited_calls(id))
    }

    /// See [`Store::audit_contents`].
    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>> {
        self.around(StoreCall::new("audit_contents", Some(id)), move || self.inner().audit_contents(id))
    }

    /// See [`Store::add_audited`].
    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("add_audited", Some(id)), move || self.inner().add_audited(id, audit))
    }

    /// See [`Store::expire_audit`].
    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        self.around(StoreCall::new("expire_audit", None), move || self.inner().expire_audit(limits, now))
    }

    /// See [`Store::summaries`].
    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        self.around(StoreCall::new("summaries", Some(id)), move || self.inner().summaries(id))
    }

    /// See [`Store::add_summary`].
    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("add_summary", Some(id)), move || self.inner().add_summary(id, summary, job))
    }

    /// See [`Store::title`].
    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>> {
        self.around(StoreCall::new("title", Some(id)), move || self.inner().title(id))
    }

    /// See [`Store::set_title`].
    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("set_title", Some(id)), move || self.inner().set_title(id, title))
    }

    /// See [`Store::calibrations`].
    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        self.around(StoreCall::new("calibrations", None), move || self.inner().calibrations())
    }

    /// See [`Store::jobs`].
    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        self.around(StoreCall::new("jobs", Some(id)), move || self.inner().jobs(id))
    }

    /// See [`Store::take_job`].
    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        self.around(StoreCall::new("take_job", Some(id)), move || self.inner().take_job(id, hooks, lease))
    }

    /// See [`Store::settle_job`].
    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("settle_job", Some(id)), move || self.inner().settle_job(id, job, done))
    }

    /// See [`Store::due`].
    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.around(StoreCall::new("due", None), move || self.inner().due(now, after, most))
    }

    /// See [`Store::sub_agents_with_jobs`].
    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        self.around(StoreCall::new("sub_agents_with_jobs", Some(id)), move || self.inner().sub_agents_with_jobs(id))
    }

    /// See [`Store::list`].
    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        self.around(StoreCall::new("list", None), move || self.inner().list())
    }

    /// See [`Store::list_part`].
    fn list_part<'a>(&'a self, part: ListPart<'a>) -> StoreFuture<'a, Vec<ConversationSummary>> {
        self.around(StoreCall::new("list_part", None), move || self.inner().list_part(part))
    }

    /// See [`Store::standing`].
    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        self.around(StoreCall::new("standing", None), move || self.inner().standing())
    }

    /// See [`Store::revoke_standing`].
    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        self.around(StoreCall::new("revoke_standing", None), move || self.inner().revoke_standing(id))
    }

    /// See [`Store::delete`].
    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("delete", Some(deletion.conversation)), move || self.inner().delete(deletion))
    }

    /// See [`Store::tombstone`].
    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>> {
        self.around(StoreCall::new("tombstone", Some(id)), move || self.inner().tombstone(id))
    }

    /// See [`Store::unfinished_deletions`].
    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        self.around(StoreCall::new("unfinished_deletions", None), move || self.inner().unfinished_deletions())
    }

    /// See [`Store::note_erased`].
    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("note_erased", Some(id)), move || self.inner().note_erased(id, name))
    }

    /// See [`Store::purge`].
    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged> {
        self.around(StoreCall::new("purge", None), move || self.inner().purge(limits))
    }

    /// See [`Store::place_hold`].
    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool> {
        self.around(StoreCall::new("place_hold", Some(id)), move || self.inner().place_hold(id, hold))
    }

    /// See [`Store::lift_hold`].
    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        self.around(StoreCall::new("lift_hold", Some(id)), move || self.inner().lift_hold(id, by, now))
    }

    /// See [`Store::unused_since`].
    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.around(StoreCall::new("unused_since", None), move || self.inner().unused_since(before, after, most))
    }

    /// See [`Store::record_act`].
    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        self.around(StoreCall::new("record_act", None), move || self.inner().record_act(act))
    }

    /// See [`Store::acts`].
    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        self.around(StoreCall::new("acts", None), move || self.inner().acts(most))
    }

    /// See [`Store::is_durable`].
    fn is_durable(&self) -> bool {
        self.inner().is_durable()
    }
}

impl<L: StoreLayer> Store for L {
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        StoreLayer::open(self, id, owner, now)
    }
    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        StoreLayer::owner(self, id)
    }
    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        StoreLayer::deliver(self, id, item)
    }
    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>> {
        StoreLayer::keyed_message(self, id, user, key, now)
    }
    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        StoreLayer::inbox(self, id, which)
    }
    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        StoreLayer::claim(self, id, writer, now)
    }
    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        StoreLayer::renew(self, id, epoch, now)
    }
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        StoreLayer::append(self, batch)
    }
    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        StoreLayer::log(self, id, from, most)
    }
    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        StoreLayer::tail(self, id, before, tokens)
    }
    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool> {
        StoreLayer::has_call(self, id, call)
    }
    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>> {
        StoreLayer::scratch(self, id)
    }
    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        StoreLayer::records(self, id, turn)
    }
    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>> {
        StoreLayer::cuts(self, id)
    }
    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        StoreLayer::sent(self, id)
    }
    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>> {
        StoreLayer::cache_breaks(self, id)
    }
    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>> {
        StoreLayer::audited_calls(self, id)
    }
    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>> {
        StoreLayer::audit_contents(self, id)
    }
    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        StoreLayer::add_audited(self, id, audit)
    }
    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        StoreLayer::expire_audit(self, limits, now)
    }
    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        StoreLayer::summaries(self, id)
    }
    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        StoreLayer::add_summary(self, id, summary, job)
    }
    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>> {
        StoreLayer::title(self, id)
    }
    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()> {
        StoreLayer::set_title(self, id, title)
    }
    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        StoreLayer::calibrations(self)
    }
    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        StoreLayer::jobs(self, id)
    }
    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        StoreLayer::take_job(self, id, hooks, lease)
    }
    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        StoreLayer::settle_job(self, id, job, done)
    }
    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        StoreLayer::due(self, now, after, most)
    }
    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        StoreLayer::sub_agents_with_jobs(self, id)
    }
    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        StoreLayer::list(self)
    }
    fn list_part<'a>(&'a self, part: ListPart<'a>) -> StoreFuture<'a, Vec<ConversationSummary>> {
        StoreLayer::list_part(self, part)
    }
    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        StoreLayer::standing(self)
    }
    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        StoreLayer::revoke_standing(self, id)
    }
    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()> {
        StoreLayer::delete(self, deletion)
    }
    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>> {
        StoreLayer::tombstone(self, id)
    }
    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        StoreLayer::unfinished_deletions(self)
    }
    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()> {
        StoreLayer::note_erased(self, id, name)
    }
    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged> {
        StoreLayer::purge(self, limits)
    }
    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool> {
        StoreLayer::place_hold(self, id, hold)
    }
    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        StoreLayer::lift_hold(self, id, by, now)
    }
    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        StoreLayer::unused_since(self, before, after, most)
    }
    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        StoreLayer::record_act(self, act)
    }
    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        StoreLayer::acts(self, most)
    }
    fn is_durable(&self) -> bool {
        StoreLayer::is_durable(self)
    }
}
