//! The turn under way: what the stages work on, and the only way into the log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use smallvec::SmallVec;

use super::abort::AbortCause;
use super::budget::Stopwatch;
use super::context::TurnContext;
use super::delivery;
use super::left::LeftTurn;
use super::make_room::RefusedRequest;
use super::prompt_cache::RequestMemory;
use super::redaction;
use super::reply_stream::ReplyStream;
use super::scratch::TrackedScratch;
use super::state::{Progress, Stage, State, Verdict};
use super::view::Turn;
use crate::BoxFuture;
use crate::agent::Agent;
use crate::audit::AuditWrite;
use crate::cache_break::{CacheBreak, SentRequest};
use crate::clock::Timestamp;
use crate::context::layout::ContextCache;
use crate::context::reserve::Candidate;
use crate::context::tokens;
use crate::cut::{Cut, steps};
use crate::event::{Cause, Event, EventKind, InjectionTarget, TurnEnded, Warning};
use crate::feed::{Level, LiveEvent};
use crate::hook::Lifecycle;
use crate::id::{CallId, ConversationId, ItemId, TurnId};
use crate::message::{Injection, Text};
use crate::output_schema::OutputSchema;
use crate::record::Record;
use crate::scope::Actor;
use crate::store::{
    Answer, Batch, ConversationStatus, Job, LEASE, Lease, Scratch, ScratchWrite, StandingApproval, StoreError, Summary,
};

/// Why a stage stopped before its end.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// It is decided how the turn ends.
    Settle(Box<Verdict>),
    /// The turn was cancelled or ran out of time.
    Abort(AbortCause),
    /// The log cannot be written.
    Store(StoreError),
}

impl From<Verdict> for Interrupt {
    fn from(verdict: Verdict) -> Self {
        Self::Settle(Box::new(verdict))
    }
}
impl From<AbortCause> for Interrupt {
    fn from(cause: AbortCause) -> Self {
        Self::Abort(cause)
    }
}
impl From<StoreError> for Interrupt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The turn under way. It is made by the driver from what is stored, for a new message and for a turn that a crash left
/// open alike; stages change it; the driver takes it apart when the turn ends or waits.
pub(crate) struct ActiveTurn {
    /// What hooks and tools see. Stages keep it current.
    pub(crate) turn: Turn,
    /// The fold of the log. Only [`append`](Self::append) changes it.
    pub(crate) state: Box<State>,
    /// The log as messages, kept from call to call and from turn to turn. Written by `build`.
    pub(crate) cache: ContextCache,
    /// What the turn needs to go on after a crash and is not history. Stages edit it; every write stores it if it
    /// changed.
    pub(crate) scratch: TrackedScratch,
    /// What was done since the last write. With `state` it decides the next stage.
    pub(crate) progress: Progress,
    /// Hook runs since the last write, which stores them.
    pub(crate) records: Vec<Record>,
    /// The reply that a model is giving. It survives an abort, so that `end` knows what viewers have seen.
    pub(crate) reply: Option<ReplyStream>,
    /// What `before_agent` hooks added for this turn. Made by `accept`, rendered by `build`.
    pub(crate) injected: Vec<Candidate>,
    /// Set by the driver if `on_conversation` hooks are due; taken by `accept`.
    pub(crate) lifecycle: Option<Lifecycle>,
    /// What the reply must look like. Read by `build` and `call`.
    pub(crate) schema: Option<OutputSchema>,
    /// Set by `accept`: the message is not kept in the log.
    pub(crate) erased: bool,
    /// Time at work, for `turn_timeout` and `turn_ended`.
    pub(crate) stopwatch: Stopwatch,
    /// The writer's claim on the conversation.
    pub(crate) epoch: u64,
    /// Whether a write has given the claim back.
    pub(crate) released: bool,
    /// Set by `end`, for those who wait.
    pub(crate) ended: Option<Arc<TurnEnded>>,
    /// A cut of the context that is not stored yet. Made by `build`; the next write stores it.
    pub(crate) cut: Option<Arc<Cut>>,
    /// The last request of the conversation that a model answered. Set from the claim, then by `call`.
    pub(crate) last_sent: Option<Arc<SentRequest>>,
    /// Whether it is not stored yet.
    pub(crate) sent_is_new: bool,
    /// Requests that did not begin like the ones before them. The next write stores them.
    pub(crate) breaks: Vec<CacheBreak>,
    /// What the next write adds to the audit.
    pub(crate) audit: Option<Box<AuditWrite>>,
    /// What else is known of the last requests. Kept from turn to turn, and lost with the process.
    pub(crate) memory: Box<RequestMemory>,
    /// The newest summary of the conversation, as of the claim. A cut may show it.
    pub(crate) newest_summary: Option<Arc<Summary>>,
    /// The provider said that the last request was too long. Set by `call`; `build` makes the context smaller than it would
    /// by estimate, once for each reply.
    pub(crate) refused: Option<RefusedRequest>,
    /// Whether the end of the turn asked for a summary. The driver has it made.
    pub(crate) summary_is_due: bool,
    /// What the turn left to be done. Set by `end`, done by the driver.
    pub(crate) jobs: Vec<Job>,
    /// Ids of inbox items that were acted on. The next write removes them.
    pub(crate) done_items: SmallVec<[ItemId; 1]>,
    /// Sub-agents that were cancelled because their call is over. The driver waits for them before it lets go of the
    /// conversation.
    pub(crate) stopping: Vec<BoxFuture<'static, ()>>,
    /// Why the turn is not carried on here, if it is not: then only answers, expiries and its cancellation are written.
    pub(crate) left: Option<LeftTurn>,
    /// Whether the write of the next answer gives the claim back. Set by the driver where nothing follows it.
    pub(crate) releases_with_answer: bool,
    /// The stage that viewers were told last.
    published: Option<Stage>,
}

/// One write that is being prepared: the events it adds, and what it does beside adding them.
pub(crate) struct Write {
    events: SmallVec<[Arc<Event>; 2]>,
    /// The turn that every event belongs to.
    turn: TurnId,
    /// The time that every event has.
    at: Timestamp,
    /// The seq of the last event, in the log or here.
    last_seq: u64,
    /// Removes the message that opened the turn from the inbox.
    pub(crate) take_message: bool,
    /// Deletes the scratch: the turn is over.
    pub(crate) delete_scratch: bool,
    /// The inbox item that the answer in it came in.
    pub(crate) answer: Option<ItemId>,
    /// The standing approval that begins with an answer in it.
    pub(crate) standing: Option<Box<StandingApproval>>,
    /// Work for the outbox.
    pub(crate) jobs: Vec<Job>,
    /// The conversation's status from now on, if it changes.
    pub(crate) status: Option<ConversationStatus>,
    /// Whether the claim is given back with this write.
    pub(crate) lease: Lease,
}

/// What [`ActiveTurn::restore`] brings back.
pub(crate) struct RestorePoint {
    records: Vec<Record>,
    answers: Vec<(CallId, Answer)>,
    answered_by: Vec<(CallId, Actor)>,
    effective: Option<Vec<(CallId, Arc<Value>)>>,
}

impl Write {
    /// Adds an event.
    #[inline]
    pub(crate) fn push(&mut self, kind: EventKind) {
        self.last_seq += 1;
        self.events.push(Arc::new(Event { seq: self.last_seq, turn: self.turn.clone(), at: self.at, kind }));
    }

    /// Whether it adds no event.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The seq of the last event.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }
}

impl Extend<EventKind> for Write {
    fn extend<I: IntoIterator<Item = EventKind>>(&mut self, kinds: I) {
        kinds.into_iter().for_each(|kind| self.push(kind));
    }
}

impl ActiveTurn {
    pub(crate) fn new(
        turn: Turn,
        (state, cache, memory): (Box<State>, ContextCache, Box<RequestMemory>),
        scratch: TrackedScratch,
        epoch: u64,
    ) -> Self {
        let worked = state.turn.as_ref().map_or(Duration::ZERO, |turn| turn.worked);
        let stopwatch = Stopwatch::started(scratch.active_after(worked), turn.ctx.clock().elapsed());
        Self {
            turn,
            state,
            cache,
            scratch,
            progress: Progress::default(),
            records: Vec::new(),
            reply: None,
            injected: Vec::new(),
            lifecycle: None,
            schema: None,
            erased: false,
            stopwatch,
            epoch,
            released: false,
            ended: None,
            cut: None,
            last_sent: None,
            sent_is_new: false,
            breaks: Vec::new(),
            audit: None,
            memory,
            newest_summary: None,
            refused: None,
            summary_is_due: false,
            jobs: Vec::new(),
            done_items: SmallVec::new(),
            stopping: Vec::new(),
            left: None,
            releases_with_answer: false,
            published: None,
        }
    }

    pub(crate) fn ctx(&self) -> &Arc<TurnContext> {
        &self.turn.ctx
    }

    /// Tells viewers which stage begins, once.
    pub(crate) fn enter(&mut self, stage: Stage) {
        if self.published != Some(stage) {
            self.published = Some(stage);
            self.ctx().publish(LiveEvent::StateChanged { state: stage.into() });
        }
    }

    /// Takes in how a stage went. A stage that stopped before its end has decided how the turn ends.
    pub(crate) fn absorb(&mut self, done: Result<(), Interrupt>) -> Result<(), StoreError> {
        match done {
            Ok(()) => Ok(()),
            Err(Interrupt::Settle(verdict)) => {
                self.settle(*verdict);
                Ok(())
            }
            Err(Interrupt::Abort(cause)) => {
                self.settle(cause.verdict());
                Ok(())
            }
            Err(Interrupt::Store(error)) => Err(error),
        }
    }

    /// Decides how the turn ends. The last verdict counts: a turn may be cancelled while it ends.
    pub(crate) fn settle(&mut self, verdict: Verdict) {
        self.progress.verdict = Some(verdict);
    }

    /// Adds a warning to `turn_ended` and tells viewers at once. It is kept in the scratch, so that a crash does not
    /// lose it.
    pub(crate) fn warn(&mut self, hook: Option<Text>, text: impl Into<Text>, cause: Cause) {
        let text = text.into();
        self.ctx().publish(LiveEvent::Notice { level: Level::Warning, text: text.clone(), hook: hook.clone() });
        self.scratch.edit().warnings.push(Warning { hook, text, cause: Some(cause) });
    }

    /// Like [`warn`](Self::warn), unless the turn was warned of the same before: it may be taken up several times.
    pub(crate) fn warn_once(&mut self, text: String, cause: Cause) {
        if !self.scratch.warnings.iter().any(|warning| *warning.text == *text) {
            self.warn(None, text, cause);
        }
    }

    /// A write with nothing in it. Add events, set what else it does, and [`append`](Self::append) it.
    pub(crate) fn new_write(&self) -> Write {
        Write {
            events: SmallVec::new(),
            turn: self.turn.ctx.id.clone(),
            at: self.turn.ctx.clock().now(),
            last_seq: self.state.seq,
            take_message: false,
            delete_scratch: false,
            answer: None,
            standing: None,
            jobs: Vec::new(),
            status: None,
            lease: Lease::Keep,
        }
    }

    /// Appends events, and does nothing else.
    pub(crate) fn write(
        &mut self,
        kinds: impl IntoIterator<Item = EventKind>,
    ) -> impl Future<Output = Result<(), StoreError>> {
        let mut write = self.new_write();
        write.extend(kinds);
        self.append(write)
    }

    /// The only way into the log: store, then apply, then publish. It is never raced against a cancellation.
    pub(crate) async fn append(&mut self, write: Write) -> Result<(), StoreError> {
        let Write { mut events, take_message, delete_scratch, answer, standing, mut jobs, status, lease, .. } = write;
        if self.scratch.effective.is_some() {
            redaction::redact(self, &mut events);
        }
        self.all_records();
        let scratch = match delete_scratch {
            true => ScratchWrite::Delete,
            false => {
                self.update_scratch(&events);
                match self.scratch.is_changed() {
                    true => ScratchWrite::Put(self.scratch.shared()),
                    false => ScratchWrite::Keep,
                }
            }
        };
        let ctx = &*self.turn.ctx;
        if take_message {
            self.done_items.push(ItemId::of_turn(&ctx.id));
        }
        let totals = events.split_last().and_then(|(last, before)| match &last.kind {
            EventKind::TurnEnded(ended) => {
                let first = self.state.turn.as_ref().map_or(self.state.window.len(), |turn| turn.first);
                Some(self.state.window.totals_after(ended, first, before))
            }
            _ => None,
        });
        let job_lease = match jobs.is_empty() {
            false if !ctx.agent.is_stand_in() => ctx.agent.time_for_jobs().saturating_add(LEASE),
            _ => Duration::ZERO,
        };
        let mut answered = Vec::new();
        let delivers = ctx.agent.delivers();
        if delivers {
            jobs.extend(delivery::jobs_for(ctx, &events));
            answered = delivery::reminders_of_answered(ctx, &events, self.state.turn_events());
        }
        // With the end of a turn, which is written anyway.
        let calibrations = if totals.is_some() { ctx.services.calibrations.unstored() } else { Vec::new() };
        let batch = Batch {
            conversation: &ctx.conversation,
            epoch: self.epoch,
            events: &events,
            expected_seq: self.state.seq,
            take: &self.done_items,
            scratch,
            answer: answer.as_ref(),
            standing: standing.as_deref(),
            records: std::mem::take(&mut self.records),
            turn: Some(&ctx.id),
            job_lease,
            jobs,
            done: &answered,
            totals,
            cut: self.cut.as_ref(),
            sent: self.last_sent.as_ref().filter(|_| self.sent_is_new),
            breaks: &self.breaks,
            audit: self.audit.as_deref(),
            calibrations: &calibrations,
            status,
            lease,
        };
        ctx.store().append(batch).await?;
        if !calibrations.is_empty() {
            ctx.services.calibrations.mark_stored(&calibrations);
        }
        self.done_items.clear();
        self.cut = None;
        self.sent_is_new = false;
        self.breaks.clear();
        self.audit = None;
        self.scratch.mark_stored();
        self.released |= lease == Lease::Release;
        self.progress.request_ready = false;
        for event in &events {
            self.state.apply(event);
        }
        self.turn.ctx.feed.publish_log(&events);
        if delivers {
            self.turn.ctx.host.take_up_jobs();
        }
        Ok(())
    }

    /// What a write that the store refuses would take away, and the turn goes on all the same.
    pub(crate) fn restore_point(&mut self) -> RestorePoint {
        let records = self.all_records().clone();
        let Scratch { answers, answered_by, effective, .. } = &*self.scratch;
        RestorePoint {
            records,
            answers: answers.clone(),
            answered_by: answered_by.clone(),
            effective: effective.clone(),
        }
    }

    /// Goes back to what was before a write that the store refused.
    pub(crate) fn restore(&mut self, before: RestorePoint) {
        let RestorePoint { records, answers, answered_by, effective } = before;
        let scratch = self.scratch.edit();
        (scratch.answers, scratch.answered_by, scratch.effective) = (answers, answered_by, effective);
        self.records = records;
    }

    /// Hook runs since the last write, those of wraps included.
    pub(crate) fn all_records(&mut self) -> &Vec<Record> {
        self.turn.ctx.take_records(&mut self.records);
        &self.records
    }

    /// Brings the scratch up to date with what the turn has used, as far as the log does not tell it.
    fn update_scratch(&mut self, events: &[Arc<Event>]) {
        let ctx = &*self.turn.ctx;
        let logged = self.state.turn.as_ref().map_or_else(Default::default, |turn| turn.used_after(events));
        let (used, sub_agents) = ctx.budget.used_unlike(&self.scratch.sub_agents);
        self.scratch.update(used, logged);
        if let Some(sub_agents) = sub_agents {
            self.scratch.edit().sub_agents = sub_agents;
        }
        if self.scratch.touched.len() != ctx.touched_count() {
            self.scratch.edit().touched = ctx.touched();
        }
        if self.scratch.is_changed() {
            let worked = self.state.turn.as_ref().map_or(Duration::ZERO, |turn| turn.worked);
            let scratch = self.scratch.edit();
            (scratch.active, scratch.worked) = (self.stopwatch.active(ctx.clock().elapsed()), worked);
        }
    }

    /// The sub-agent that this call started, and its conversation.
    pub(crate) fn sub_agent_of(&self, call: &CallId) -> Option<(ConversationId, Agent)> {
        let open = self.state.turn.as_ref()?.calls.get(call).filter(|open| open.started)?;
        let (agent, name) = (&self.ctx().agent, &open.call.name);
        let agent = match agent.tool(name) {
            Some(compiled) => compiled.tool.spec().sub_agent.clone()?,
            // An agent that stands in for another knows only the names.
            None => Agent::stand_in(name.clone(), agent.parts().sub_agent(name)?.clone()),
        };
        Some((self.ctx().conversation.child(call), agent))
    }

    /// Drops the answer to a call that has its result, or that asks again.
    pub(crate) fn forget_answer(&mut self, call: &CallId) {
        if self.scratch.answers.iter().any(|(answered, _)| answered == call) {
            let scratch = self.scratch.edit();
            scratch.answers.retain(|(answered, _)| answered != call);
            scratch.answered_by.retain(|(answered, _)| answered != call);
        }
    }

    /// Cancels what a sub-agent still does or waits for, because its call has a result.
    pub(crate) async fn cancel_sub_agent(&mut self, (id, agent): (ConversationId, Agent)) {
        let ctx = self.ctx().clone();
        let cause = ctx.abort.check().err().unwrap_or(AbortCause::TurnOver);
        self.stopping.extend(ctx.host.cancel_sub_agent(&ctx, id, agent, cause).await);
    }

    /// After a revival: what `before_agent` hooks added for this turn, from the scratch and from the log.
    pub(crate) fn restore_injections(&mut self) {
        let opening = self.scratch.injections.iter().map(|injection| (injection.clone(), false, None));
        let steering = self.scratch.steering.iter().map(|(seq, injection)| (injection.clone(), false, Some(*seq)));
        let notes = self.state.window.left_out();
        let logged = self.state.turn_events().iter().filter(|event| !steps::has_note_at(notes, event.seq));
        let durable = logged.filter_map(|event| match &event.kind {
            EventKind::Injection { hook, content, place: InjectionTarget::ThisTurn } => {
                let tokens = u32::try_from(tokens::of_content(content)).unwrap_or(u32::MAX);
                Some((Injection { hook: hook.clone(), content: content.clone(), tokens }, true, None))
            }
            _ => None,
        });
        let candidate = |(injection, durable, behind)| Candidate { injection, sheddable: None, durable, behind };
        self.injected = opening.chain(steering).chain(durable).map(candidate).collect();
        if !self.injected.is_empty() {
            self.show_injections();
        }
    }

    /// Shows hooks and tools what was injected into the turn so far.
    pub(crate) fn show_injections(&mut self) {
        self.turn.edit().injections = self.injected.iter().map(|candidate| candidate.injection.clone()).collect();
    }
}
