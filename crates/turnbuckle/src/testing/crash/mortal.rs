//! A store as a mortal process sees it: every call of it is a boundary, and the dead get no answer.

use std::collections::HashMap;
use std::sync::Arc;

use super::life::{BoundaryKind, Life};
use crate::clock::Timestamp;
use crate::event::Event;
use crate::hook::Record;
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::scope::{Actor, Author};
use crate::store::{
    Act, AuditLimits, AuditWrite, AuditedCall, Batch, CacheBreak, Calibration, Claim, ConversationSummary, Cut,
    Deletion, Hold, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector, KeyedMessage, Lease,
    PurgeLimits, Purged, Scratch, SentRequest, StandingApproval, Store, StoreFuture, Summary, Tombstone,
};

/// `store`, for one life.
pub(super) struct Mortal<S> {
    pub(super) store: S,
    pub(super) life: Arc<Life>,
}

impl<S: Store> Mortal<S> {
    /// Asks the store, between two boundaries.
    fn ask<'a, T: Send + 'a>(
        &'a self,
        what: &'static str,
        id: Option<&'a ConversationId>,
        ask: impl FnOnce() -> StoreFuture<'a, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        StoreFuture::later(async move {
            let place = id.map(inside).unwrap_or_default();
            self.life.pass(BoundaryKind::Store, format!("before {what}{place}")).await;
            self.life.take_time().await;
            let answer = ask().await;
            self.life.pass(BoundaryKind::Store, format!("after {what}{place}")).await;
            answer
        })
    }
}

/// Where, if it is not the main conversation.
pub(super) fn inside(id: &ConversationId) -> String {
    if id.is_sub_agent() { format!(" in {id}") } else { String::new() }
}

/// What a write is about.
fn content(batch: &Batch<'_>) -> String {
    let told = |event: &Arc<Event>| {
        let json = serde_json::to_value(&event.kind).unwrap_or_default();
        let word = |key: &str| json.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let (kind, call) = (word("type").unwrap_or_default(), word("call"));
        call.map_or_else(|| kind.clone(), |call| format!("{kind} {call}"))
    };
    let events: Vec<String> = batch.events.iter().map(told).collect();
    match (events.is_empty(), batch.lease) {
        (false, _) => events.join(", "),
        (true, Lease::Release) => "the claim is given back".to_owned(),
        (true, Lease::Keep) => "no event".to_owned(),
    }
}

impl<S: Store> Store for Mortal<S> {
    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let number = self.life.count(BoundaryKind::Append) / 2 + 1;
            let name = format!("append {number} ({}){}", content(&batch), inside(batch.conversation));
            self.life.pass(BoundaryKind::Append, format!("before {name} is written")).await;
            self.life.take_time().await;
            let written = self.store.append(batch).await;
            self.life.pass(BoundaryKind::Append, format!("after {name} was written")).await;
            written
        })
    }
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        self.ask("open", Some(id), move || self.store.open(id, owner, now))
    }
    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        self.ask("owner", Some(id), move || self.store.owner(id))
    }
    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        self.ask("deliver", Some(id), move || self.store.deliver(id, item))
    }
    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        self.ask("letters", Some(id), move || self.store.inbox(id, which))
    }
    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        self.ask("claim", Some(id), move || self.store.claim(id, writer, now))
    }
    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        self.ask("renew", Some(id), move || self.store.renew(id, epoch, now))
    }
    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.ask("log", Some(id), move || self.store.log(id, from, most))
    }
    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.ask("tail", Some(id), move || self.store.tail(id, before, tokens))
    }
    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool> {
        self.ask("has_call", Some(id), move || self.store.has_call(id, call))
    }
    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>> {
        self.ask("beside", Some(id), move || self.store.scratch(id))
    }
    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        self.ask("records", Some(id), move || self.store.records(id, turn))
    }
    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>> {
        self.ask("cuts", Some(id), move || self.store.cuts(id))
    }
    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        self.ask("sent", Some(id), move || self.store.sent(id))
    }
    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>> {
        self.ask("cache_breaks", Some(id), move || self.store.cache_breaks(id))
    }
    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>> {
        self.ask("audited_calls", Some(id), move || self.store.audited_calls(id))
    }
    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>> {
        self.ask("audit_contents", Some(id), move || self.store.audit_contents(id))
    }
    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        self.ask("add_audited", Some(id), move || self.store.add_audited(id, audit))
    }
    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        self.ask("expire_audit", None, move || self.store.expire_audit(limits, now))
    }
    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        self.ask("summaries", Some(id), move || self.store.summaries(id))
    }
    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        self.ask("add_summary", Some(id), move || self.store.add_summary(id, summary, job))
    }
    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>> {
        self.ask("keyed_message", Some(id), move || self.store.keyed_message(id, user, key, now))
    }
    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>> {
        self.ask("title", Some(id), move || self.store.title(id))
    }
    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()> {
        self.ask("set_title", Some(id), move || self.store.set_title(id, title))
    }
    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        self.ask("calibrations", None, move || self.store.calibrations())
    }
    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        self.ask("jobs", Some(id), move || self.store.jobs(id))
    }
    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        self.ask("take_job", Some(id), move || self.store.take_job(id, hooks, lease))
    }
    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        self.ask("settle_job", Some(id), move || self.store.settle_job(id, job, done))
    }
    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.ask("due", None, move || self.store.due(now, after, most))
    }
    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        self.ask("sub_agents_with_jobs", Some(id), move || self.store.sub_agents_with_jobs(id))
    }
    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        self.ask("list", None, move || self.store.list())
    }
    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        self.ask("standing", None, move || self.store.standing())
    }
    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        self.ask("revoke_standing", None, move || self.store.revoke_standing(id))
    }
    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()> {
        self.ask("delete", Some(deletion.conversation), move || self.store.delete(deletion))
    }
    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>> {
        self.ask("tombstone", Some(id), move || self.store.tombstone(id))
    }
    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        self.ask("unfinished_deletions", None, move || self.store.unfinished_deletions())
    }
    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()> {
        self.ask("note_erased", Some(id), move || self.store.note_erased(id, name))
    }
    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged> {
        self.ask("purge", None, move || self.store.purge(limits))
    }
    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool> {
        self.ask("place_hold", Some(id), move || self.store.place_hold(id, hold))
    }
    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        self.ask("lift_hold", Some(id), move || self.store.lift_hold(id, by, now))
    }
    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        self.ask("unused_since", None, move || self.store.unused_since(before, after, most))
    }
    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        self.ask("record_act", None, move || self.store.record_act(act))
    }
    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        self.ask("acts", None, move || self.store.acts(most))
    }
    /// It outlives the process that dies here.
    fn is_durable(&self) -> bool {
        true
    }
}
