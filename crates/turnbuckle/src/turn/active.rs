//! A turn in flight: what the stages work on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::abort::AbortCause;
use super::budget::Stopwatch;
use super::reply_stream::ReplyStream;
use super::state::{Stage, State, Verdict};
use super::view::{Turn, TurnContext};
use crate::agent::Agent;
use crate::context::reserve::Candidate;
use crate::context::tokens;
use crate::conversation::{Cell, Conversations, TurnHandle};
use crate::event::{Event, EventKind, InjectionTarget, TurnEnded, Warning};
use crate::feed::LiveEvent;
use crate::hook::{Injection, Lifecycle, Record};
use crate::id::{CallId, ConversationId};
use crate::message::Text;
use crate::output_schema::OutputSchema;
use crate::store::{Batch, ConversationStatus, Job, LEASE, Lease, Scratch, ScratchWrite, StoreError};

/// Why a stage stopped before its end.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// The turn's end is decided.
    Settle(Box<Verdict>),
    /// Cancelled, or out of time.
    AbortCause(AbortCause),
    /// The log cannot be written.
    Store(StoreError),
}

impl From<Verdict> for Interrupt {
    fn from(verdict: Verdict) -> Self {
        Self::Settle(Box::new(verdict))
    }
}
impl From<AbortCause> for Interrupt {
    fn from(abort: AbortCause) -> Self {
        Self::AbortCause(abort)
    }
}
impl From<StoreError> for Interrupt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A turn in flight. Each field says who writes and who reads it.
pub(crate) struct ActiveTurn {
    /// What hooks and tools see; stages keep it current.
    pub(crate) turn: Turn,
    /// Changed by [`write`](Self::write) only, but for marks that are not history.
    pub(crate) state: Box<State>,
    /// Changed by stages, stored by the next write that says so.
    pub(crate) scratch: Scratch,
    /// Since the last write.
    pub(crate) records: Vec<Record>,
    /// The reply under way; survives a cut, so that `end` knows what was told.
    pub(crate) reply_stream: Option<ReplyStream>,
    /// What `before_agent` added for this turn only: made by `accept`, read by `build`.
    pub(crate) injected: Vec<Candidate>,
    /// Whether a conversation hook is due, and why: read by `accept`.
    pub(crate) moment: Option<Lifecycle>,
    /// What the reply must look like: read by `build` and `call`.
    pub(crate) shape: Option<OutputSchema>,
    /// Set by `accept`: the message is not kept.
    pub(crate) erased: bool,
    pub(crate) stopwatch: Stopwatch,
    /// The writer's claim.
    pub(crate) epoch: u64,
    /// Whether a write gave it back.
    pub(crate) released: bool,
    /// Where commands for this conversation come in.
    pub(crate) cell: Arc<Cell>,
    /// Set by `end`, for whoever waits.
    pub(crate) ended: Option<TurnEnded>,
    /// What the turn left to be done: set by `end`, for whoever does it.
    pub(crate) jobs: Vec<Job>,
    /// Letters of other processes that were obeyed: the next write takes them out of the inbox.
    pub(crate) taking: SmallVec<[Text; 1]>,
    /// Sub-agents whose calls were over before they were: the turn rests when they do.
    pub(crate) called_off: Vec<TurnHandle>,
    /// The stage last told.
    entered: Option<Stage>,
}

/// What a write does beside adding events.
pub(crate) struct With {
    pub(crate) take_message: bool,
    pub(crate) scratch: Keeping,
    pub(crate) jobs: Vec<Job>,
    pub(crate) standing: Option<ConversationStatus>,
    pub(crate) lease: Lease,
}

/// What becomes of what stands beside the log.
pub(crate) enum Keeping {
    AsItIs,
    Present,
    Nothing,
}

impl With {
    pub(crate) const NOTHING: Self =
        Self { take_message: false, scratch: Keeping::AsItIs, jobs: Vec::new(), standing: None, lease: Lease::Keep };
    /// What the flight holds beside the log is stored.
    pub(crate) const BESIDE: Self =
        Self { take_message: false, scratch: Keeping::Present, jobs: Vec::new(), standing: None, lease: Lease::Keep };
}

impl ActiveTurn {
    pub(crate) fn new(turn: Turn, state: Box<State>, scratch: Scratch, epoch: u64, cell: Arc<Cell>) -> Self {
        let stopwatch = Stopwatch::started(scratch.active, turn.ctx.clock.elapsed());
        Self {
            turn,
            state,
            scratch,
            records: Vec::new(),
            reply_stream: None,
            injected: Vec::new(),
            moment: None,
            shape: None,
            erased: false,
            stopwatch,
            epoch,
            released: false,
            cell,
            ended: None,
            jobs: Vec::new(),
            taking: SmallVec::new(),
            called_off: Vec::new(),
            entered: None,
        }
    }

    pub(crate) fn ctx(&self) -> &Arc<TurnContext> {
        &self.turn.ctx
    }

    /// The agent, in a clone that does not borrow the flight.
    pub(crate) fn agent(&self) -> Agent {
        self.turn.ctx.agent.clone()
    }

    pub(crate) fn enter(&mut self, stage: Stage) {
        if self.entered != Some(stage) {
            self.entered = Some(stage);
            self.ctx().publish(LiveEvent::StateChanged { state: stage.into() });
        }
    }

    /// A stage that stopped before its end may have decided how the turn ends.
    pub(crate) fn absorb(&mut self, done: Result<(), Interrupt>) -> Result<(), StoreError> {
        match done {
            Ok(()) => {}
            Err(Interrupt::Settle(verdict)) => self.settle(*verdict),
            Err(Interrupt::AbortCause(abort)) => self.settle(abort.verdict()),
            Err(Interrupt::Store(error)) => return Err(error),
        }
        Ok(())
    }

    /// Decides how the turn ends. A later word counts: a turn may be cut short while it ends.
    pub(crate) fn settle(&mut self, verdict: Verdict) {
        if let Some(turn) = &mut self.state.turn {
            turn.verdict = Some(verdict);
        }
    }

    /// Something for `turn_ended` to say. Kept beside the log: a crash must not silence it.
    pub(crate) fn warn(&mut self, hook: Option<Text>, text: impl Into<Text>) {
        let text = text.into();
        self.ctx().publish(LiveEvent::Notice {
            level: crate::feed::Level::Warning,
            text: text.clone(),
            hook: hook.clone(),
        });
        self.scratch.warnings.push(Warning { hook, text });
    }

    /// Appends events. They are applied and told when they are written, and not before.
    pub(crate) fn write(
        &mut self,
        kinds: impl IntoIterator<Item = EventKind>,
        with: With,
    ) -> impl Future<Output = Result<(), StoreError>> {
        let (ctx, at) = (&self.turn.ctx, self.turn.ctx.clock.now());
        let stamp = |(kind, seq)| Arc::new(Event { seq, turn: ctx.id.clone(), at, kind });
        let events = kinds.into_iter().zip(self.state.seq + 1..).map(stamp).collect();
        self.append(events, with)
    }

    /// Apart from [`write`](Self::write), so that it is compiled once and not for every kind of list.
    async fn append(&mut self, events: SmallVec<[Arc<Event>; 4]>, with: With) -> Result<(), StoreError> {
        let Self { turn, state, scratch, records, taking, .. } = self;
        let (ctx, expected_seq) = (&*turn.ctx, state.seq);
        if let Keeping::Present = with.scratch {
            scratch.active = self.stopwatch.active(ctx.clock.elapsed());
            scratch.touched = ctx.touched();
            scratch.spent = ctx.budget.spent();
        }
        ctx.move_records(records);
        let mut take = std::mem::take(taking);
        if with.take_message {
            take.push(ctx.id.shared());
        }
        let totals = events.split_last().and_then(|(last, before)| match &last.kind {
            EventKind::TurnEnded(ended) => Some(state.totals_after(ended, before)),
            _ => None,
        });
        let batch = Batch {
            conversation: &ctx.conversation,
            epoch: self.epoch,
            events: &events,
            expected_seq,
            take: &take,
            scratch: match with.scratch {
                Keeping::AsItIs => ScratchWrite::Keep,
                Keeping::Present => ScratchWrite::Put(scratch),
                Keeping::Nothing => ScratchWrite::Delete,
            },
            records: std::mem::take(records),
            turn: Some(&ctx.id),
            hold: if with.jobs.is_empty() { Duration::ZERO } else { ctx.agent.time_for_jobs().saturating_add(LEASE) },
            jobs: with.jobs,
            done: &[],
            totals,
            standing: with.standing,
            lease: with.lease,
        };
        let released = batch.lease == Lease::Release;
        ctx.runtime.store.append(batch).await?;
        self.released |= released;
        for event in &events {
            state.apply(event);
        }
        ctx.feed.publish_all(&events);
        Ok(())
    }

    /// The sub-agent that this call started, and its conversation.
    pub(crate) fn sub_agent_of(&self, call: &CallId) -> Option<(ConversationId, Agent)> {
        let open = self.state.turn.as_ref()?.calls.iter().find(|open| open.started && open.call.call == *call)?;
        let inside = self.ctx().agent.tool(&open.call.name)?.tool.agent()?;
        Some((self.ctx().conversation.child(call), inside.clone()))
    }

    /// Its call has a result: what the sub-agent still does or waits for is cancelled.
    pub(crate) async fn call_off(&mut self, (id, agent): (ConversationId, Agent)) {
        let ctx = self.ctx();
        let abort = ctx.abort.check().err().unwrap_or(AbortCause::Over);
        let handle = Conversations::inside(ctx, agent).call_off(&id, abort).await;
        self.called_off.extend(handle);
    }

    /// After a revival: what `before_agent` added for this turn.
    pub(crate) fn remember_injections(&mut self) {
        let again = |kept: &Injection| Candidate {
            injection: Injection { hook: kept.hook.clone(), content: kept.content.clone(), tokens: kept.tokens },
            sheddable: None,
            durable: false,
        };
        self.injected = self.scratch.injections.iter().map(again).collect();
        let first = self.state.turn.as_ref().map_or(0, |turn| turn.first);
        let durable = self.state.history[first..].iter().filter_map(|event| match &event.kind {
            EventKind::Injection { hook, content, place: InjectionTarget::ThisTurn } => Some(Candidate {
                injection: Injection {
                    hook: hook.clone(),
                    content: content.clone(),
                    tokens: u32::try_from(tokens::of_content(content)).unwrap_or(u32::MAX),
                },
                sheddable: None,
                durable: true,
            }),
            _ => None,
        });
        self.injected.extend(durable);
        self.turn.change().injections = self.injected.iter().map(|candidate| candidate.injection.clone()).collect();
    }
}
