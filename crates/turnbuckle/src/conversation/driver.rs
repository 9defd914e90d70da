//! The driver: claims a conversation, carries out orders, runs its turns until they end or wait, and goes away.

mod deleting;
mod notes;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use smallvec::SmallVec;
use tracing::Instrument;

use super::error::SendError;
use super::input::WhileBusy;
use super::observers::Observers;
use super::order::{CancelOrder, MessageOrder, Order, Refusal, TakeBackOrder};
use super::outbox;
use super::read_back::revive;
use super::runtime::Runtime;
use super::shared::{Conversation, DriverGuard, Loaded};
use super::supervise::supervise;
use crate::agent::Agent;
use crate::context::layout::{self, ContextCache, Overlay};
use crate::event::EventKind;
use crate::feed::ConversationState;
use crate::feed::projection::Pending;
use crate::hook::Lifecycle;
use crate::id::{CallId, ItemId, TurnId};
use crate::report::{ReportOf, TurnReport, TurnStatus, last_reply};
use crate::scope::Actor;
use crate::store::{
    Batch, ConversationStatus, InboxFilter, InboxItem, InboxKind, Job, JobKind, Lease, RENEW_EVERY, Scratch,
    SentRequest, StoreError, Summary,
};
use crate::turn::{
    AbortCause, ActiveTurn, AnswerError, AnswerOrder, AnswerOrigin, LeftTurn, NewTurn, OnChangedAgent, PostTurn,
    Progress, Stage, State, StoredTurn, Taken, TurnError, answer, next, start,
};

/// One driver. At most one exists for a conversation in this process; the store's claim keeps other processes out.
pub(crate) struct Driver {
    guard: DriverGuard,
    conversation: Arc<Conversation>,
    runtime: Arc<Runtime>,
    /// What is known of the conversation. `None` until the first claim.
    loaded: Option<Loaded>,
    /// The claim's epoch, while the claim is held.
    epoch: Option<u64>,
    /// Messages that wait for a turn of their own, oldest first, as of the claim.
    inbox: SmallVec<[InboxItem; 1]>,
    /// Orders that other processes stored, as of the claim.
    stored: VecDeque<Order>,
    /// The scratch of the open turn, as of the claim or of the last time that it waited here.
    scratch: Option<Arc<Scratch>>,
    /// The last request that a model answered, as of the claim or of the last turn.
    last_sent: Option<Arc<SentRequest>>,
    /// The newest summary of the conversation, as of the claim.
    newest_summary: Option<Arc<Summary>>,
    /// Ids of inbox items that came to nothing. The next write removes them.
    done_items: SmallVec<[ItemId; 1]>,
    /// Answers for the open turn. They are checked and written when it is started.
    answers: VecDeque<AnswerOrder>,
    /// A cancellation for a turn that does not run: it is stopped as soon as it is started.
    cancel: Option<(TurnId, AbortCause)>,
    /// The turn whose answers are only written down here: it is not carried on before the next order.
    record_only: Option<TurnId>,
    /// Whether someone waits for the open turn: then it is carried on, whoever else only wants an answer written down.
    is_waited_for: bool,
    /// Keeps the observers at work.
    observers: Option<Arc<Observers>>,
    /// Whether the conversation was deleted here: there is nothing to read or write any more.
    deleted: bool,
}

impl Driver {
    pub(super) fn new(guard: DriverGuard, runtime: Arc<Runtime>, loaded: Option<Loaded>) -> Self {
        Self {
            conversation: guard.conversation.clone(),
            guard,
            runtime,
            loaded,
            epoch: None,
            inbox: SmallVec::new(),
            stored: VecDeque::new(),
            scratch: None,
            last_sent: None,
            newest_summary: None,
            done_items: SmallVec::new(),
            answers: VecDeque::new(),
            cancel: None,
            record_only: None,
            is_waited_for: false,
            observers: None,
            deleted: false,
        }
    }

    /// Carries out the order it was made for, and orders that come meanwhile, until none is left.
    pub(super) async fn run(mut self, first: Order) {
        let mut order = Some(first);
        while let Some(current) = order {
            if let Err(error) = self.carry_out(current).await {
                self.give_up(error);
                break;
            }
            order = self.next_order().await;
        }
        let Self { guard, conversation, runtime, .. } = self;
        guard.at_rest();
        runtime.forget(&conversation);
        runtime.resting.add(conversation);
        runtime.evict();
    }

    /// One order, and every turn that can run after it.
    async fn carry_out(&mut self, order: Order) -> Result<(), StoreError> {
        if let Err(error) = self.claim().await {
            order.refuse(&Refusal::Store(error.clone()));
            return Err(error);
        }
        if matches!(order, Order::Answer(_)) {
            // Stored answers came before this one.
            while let Some(stored) = self.stored.pop_front() {
                self.handle(stored).await?;
            }
        }
        self.handle(order).await?;
        loop {
            // Orders that came during a turn are carried out before the next one: an answer to a turn that is over must not
            // wait for the end of the one behind it.
            while let Some(order) = self.stored.pop_front().or_else(|| self.conversation.order_about_a_turn()) {
                self.handle(order).await?;
            }
            if !self.can_run_turn() {
                break;
            }
            if self.epoch.is_none() {
                // A turn has given the claim back. What other processes stored meanwhile comes before the next turn.
                self.claim().await?;
                continue;
            }
            self.run_turn().await?;
        }
        self.release().await
    }

    /// The next order of this process or, if there is none, a look at what other processes stored. Without either the
    /// driver is dismissed: `None`.
    async fn next_order(&mut self) -> Option<Order> {
        if self.has_stored_work().await {
            return Some(Order::Wake);
        }
        // Told last: a caller may end the process as soon as it hears that the turn waits.
        match (self.stage(), self.open_turn()) {
            (Stage::Waiting, Some(turn)) => {
                self.conversation.waiters.tell(&turn, Ok(TurnStatus::Waiting(self.pending())));
            }
            (_, Some(turn)) => {
                if let Some(left) = self.left() {
                    tracing::info!(conversation = %self.conversation.id, %turn, %left, "a turn is left");
                    self.conversation.waiters.tell(&turn, Err(TurnError::Left(left)));
                }
            }
            (_, None) => {}
        }
        (self.record_only, self.is_waited_for) = (None, false);
        let state = match self.stage() {
            Stage::Waiting => ConversationState::Waiting,
            _ => ConversationState::Idle,
        };
        self.conversation.feed.enter(state);
        self.observers = None;
        self.conversation.next_order_or_rest(&mut self.loaded)
    }

    /// Whether another process has stored something that can be taken up now. Asked after the claim was given back:
    /// a process that stored something before that found the conversation claimed, and relies on this look.
    async fn has_stored_work(&self) -> bool {
        if !self.runtime.services.store.is_durable() || self.conversation.id.is_sub_agent() || self.deleted {
            return false;
        }
        // A message behind a turn that waits, or that is not carried on here, must wait as well.
        let waits = self.stage() == Stage::Waiting || !self.carries_on();
        let which = if waits { InboxFilter::Control } else { InboxFilter::All };
        match self.runtime.services.store.inbox(&self.conversation.id, which).await {
            Ok(items) => !items.is_empty(),
            Err(error) => {
                // What is stored stays due: the next command, or maintenance, takes it up.
                tracing::warn!(conversation = %self.conversation.id, %error, "the inbox could not be read");
                false
            }
        }
    }

    /// The store failed. Everyone who waits is told, and what was loaded is dropped. The log stands.
    fn give_up(&mut self, error: StoreError) {
        tracing::warn!(conversation = %self.conversation.id, error = &error as &dyn std::error::Error, "the driver gives up");
        let why = match &error {
            // Messages that were queued here are in the inbox of the process that has the conversation.
            StoreError::InUse { .. } => TurnError::Remote,
            error => TurnError::Store(error.clone()),
        };
        self.conversation.waiters.tell_all(&why);
        let refusal = Refusal::Store(error);
        for order in std::mem::take(&mut self.answers).into_iter().map(Order::Answer) {
            order.refuse(&refusal);
        }
        while let Some(order) = self.conversation.next_order_or_rest(&mut None) {
            order.refuse(&refusal);
        }
    }

    // What the conversation is doing.

    fn state(&self) -> Option<&State> {
        self.loaded.as_ref().map(|loaded| &*loaded.state)
    }

    fn stage(&self) -> Stage {
        self.state().map_or(Stage::Idle, |state| next(state, &Progress::default()))
    }

    /// The turn that is open, or the one that the next message opens.
    fn open_turn(&self) -> Option<TurnId> {
        let open = self.state().and_then(|state| state.turn.as_ref()).map(|turn| turn.id.clone());
        open.or_else(|| self.inbox.first()?.opens())
    }

    fn pending(&self) -> Vec<Pending> {
        self.conversation.feed.all_pending()
    }

    fn pending_calls(&self) -> Vec<CallId> {
        self.pending().into_iter().map(|pending| pending.call).collect()
    }

    /// Whether a turn can run now. Orders that no open turn can take are refused on the way.
    fn can_run_turn(&mut self) -> bool {
        match self.stage() {
            Stage::Idle => {
                for order in std::mem::take(&mut self.answers) {
                    self.done_items.extend(order.refuse(AnswerError::NotAsked));
                }
                !self.inbox.is_empty() && (self.cancel.is_some() || self.left().is_none())
            }
            Stage::Waiting => self.has_order_for_turn() || self.has_expired_question(),
            _ => self.has_order_for_turn() || self.has_expired_question() || self.carries_on(),
        }
    }

    /// Whether there is an answer or a cancellation for the turn that is open.
    fn has_order_for_turn(&self) -> bool {
        !self.answers.is_empty() || self.cancel.is_some()
    }

    /// Whether the open turn is carried on here, beyond writing down answers to it.
    fn carries_on(&self) -> bool {
        self.left().is_none() && !self.open_turn().is_some_and(|turn| self.only_records(&turn))
    }

    /// Whether answers to this turn are written down and nothing more is done for it here.
    fn only_records(&self, turn: &TurnId) -> bool {
        self.record_only.as_ref() == Some(turn) && !self.is_waited_for
    }

    /// Why the turn that is open, or that the next message opens, is not carried on here; `None` if it is.
    fn left(&self) -> Option<LeftTurn> {
        // A sub-agent's turn goes on with its parent's, which was asked.
        if self.conversation.id.is_sub_agent() {
            return None;
        }
        let (agent, open) = (&self.conversation.agent, self.state().and_then(|state| state.turn.as_ref()));
        let left = match open {
            Some(open) => {
                let scratch = self.scratch.as_ref().filter(|scratch| scratch.turn == open.id)?;
                LeftTurn::of_scratch(scratch, agent, &self.runtime.services.project)?
            }
            None => LeftTurn::of_message(self.inbox.first()?, agent)?,
        };
        let insisted = || self.conversation.insisted_on(&left.turn).is_some();
        let policy = || (self.runtime.services.on_changed_agent)(&left) == OnChangedAgent::CarryOn;
        (!left.can_insist() || !(insisted() || policy())).then_some(left)
    }

    fn has_expired_question(&self) -> bool {
        let now = self.runtime.services.clock.now();
        let turn = self.state().and_then(|state| state.turn.as_ref());
        turn.is_some_and(|turn| turn.open_questions().any(|question| question.expires <= now))
    }

    // Orders.

    /// Carries out one order. Every order comes through here, except that a running turn takes answers itself while its
    /// tools run, and that a cancellation stops a running turn at once.
    async fn handle(&mut self, order: Order) -> Result<(), StoreError> {
        match order {
            Order::Message(message) => self.accept_message(message).await,
            Order::Answer(order) => {
                self.take_answer(order);
                Ok(())
            }
            Order::Cancel(order) => {
                self.cancel_turn(order);
                Ok(())
            }
            Order::JobResults(order) => Box::pin(self.write_job_results(order)).await,
            Order::Resume(reply, waiter) => {
                let open = self.open_turn();
                // A turn that waits is what it is, whoever carries it on later.
                let left = if self.stage() == Stage::Waiting { None } else { self.left() };
                if let (Some(turn), None) = (&open, &left) {
                    self.conversation.waiters.add(turn, waiter);
                    self.is_waited_for = true;
                }
                drop(reply.send(left.map_or(Ok(open), |left| Err(self.left_error(left)))));
                Ok(())
            }
            Order::TakeBack(TakeBackOrder { turn, reply }) => {
                let waits = |item: &InboxItem| item.opens().as_ref() == Some(&turn);
                let taken = self.state().and_then(|state| state.turn.as_ref()).is_none_or(|open| open.id != turn)
                    && self.inbox.iter().any(waits);
                if taken {
                    self.inbox.retain(|item| !waits(item));
                    self.done_items.push(ItemId::of_turn(&turn));
                    self.conversation.waiters.finish(&turn, Err(TurnError::TakenBack));
                }
                // The caller may have gone away.
                drop(reply.send(Ok(taken)));
                Ok(())
            }
            Order::Close(scope, reply) => {
                let (closed, done) = match self.stage() {
                    Stage::Idle if self.inbox.is_empty() => match Box::pin(self.close(scope)).await {
                        Ok(closed) => (closed, Ok(())),
                        Err(error) => (Err(SendError::Store(error.clone())), Err(error)),
                    },
                    _ => {
                        let (id, pending) = (self.conversation.id.clone(), self.pending_calls());
                        (Err(SendError::Busy { id, pending }), Ok(()))
                    }
                };
                // The caller may have gone away.
                drop(reply.send(closed));
                done
            }
            Order::Record => {
                self.record_only = self.open_turn();
                Ok(())
            }
            Order::Delete(order) => Box::pin(self.delete(order)).await,
            Order::Wake => Ok(()),
        }
    }

    fn left_error(&self, left: LeftTurn) -> SendError {
        SendError::Left { id: self.conversation.id.clone(), left }
    }

    /// Keeps an answer for the open turn. It is refused at once if its sender expects this agent to carry the turn on, and
    /// the agent has changed: an approval must not be used up by an agent that lacks the tool.
    fn take_answer(&mut self, order: AnswerOrder) {
        let is_local = matches!(order.origin, AnswerOrigin::Local { .. });
        match self.left().filter(|left| left.can_insist() && is_local && !order.record_only) {
            Some(left) => self.done_items.extend(order.refuse(AnswerError::Left(left))),
            None => {
                // Also if its sender wants the turn carried on: that begins when the answer is written. One that is refused
                // sets nothing going.
                if is_local {
                    self.record_only = self.open_turn();
                }
                self.answers.push_back(order);
            }
        }
    }

    /// Stores a message, unless a turn waits and the sender does not want to queue behind it, or the open turn is left.
    async fn accept_message(&mut self, message: MessageOrder) -> Result<(), StoreError> {
        if message.while_busy != WhileBusy::Interrupt
            && self.stage() != Stage::Waiting
            && let Some(left) = self.left()
        {
            self.conversation.forget_starting(&message.turn);
            // The sender may have gone away.
            drop(message.accepted.send(Err(self.left_error(left))));
            return Ok(());
        }
        if self.stage() == Stage::Waiting && message.while_busy == WhileBusy::Reject {
            let pending = self.pending_calls();
            self.conversation.forget_starting(&message.turn);
            message.refuse_busy(&self.conversation.id, pending);
            return Ok(());
        }
        let MessageOrder { turn, input, scope, while_busy, accepted, waiter } = message;
        let services = &self.runtime.services;
        let item = input.item(&turn, &self.conversation.agent, &scope, services.clock.now());
        let steered = || self.open_turn().filter(|_| while_busy == WhileBusy::Steer);
        let item = item.steering(steered());
        if let Err(error) = services.store.deliver(&self.conversation.id, item.clone()).await {
            self.conversation.forget_starting(&turn);
            drop(accepted.send(Err(error.into())));
            return Ok(());
        }
        if let (WhileBusy::Interrupt, Some(state)) = (while_busy, self.state())
            && let Some(open) = &state.turn
        {
            self.cancel = Some((open.id.clone(), AbortCause::Cancelled(scope.by())));
        }
        self.is_waited_for = true;
        if item.steers().is_some() {
            // No turn starts for it, unless the one that it steers ends first.
            self.conversation.forget_starting(&turn);
        }
        self.inbox.push(item);
        self.conversation.waiters.add(&turn, waiter);
        self.conversation.waiters.keep_scope(&turn, scope);
        // The sender may have gone away: the message is stored, and its turn runs.
        drop(accepted.send(Ok(())));
        Ok(())
    }

    /// Cancels the open turn, or the one that the next message opens. Both are stopped when they are started.
    fn cancel_turn(&mut self, order: CancelOrder) {
        let CancelOrder { turn, cause, item, reply } = order;
        let is_open = self.open_turn().as_ref() == Some(&turn);
        if is_open {
            self.cancel = Some((turn, cause));
        }
        self.done_items.extend(item);
        // The caller may have gone away.
        drop(reply.map(|reply| reply.send(Ok(is_open))));
    }

    // The claim.

    /// Makes this process the writer, and reads what it needs to go on. Does nothing while the claim is held.
    async fn claim(&mut self) -> Result<(), StoreError> {
        if self.epoch.is_some() {
            return Ok(());
        }
        let services = self.runtime.services.clone();
        let id = self.conversation.id.clone();
        self.conversation.waiters.inbox_is_read();
        let claim = services.store.claim(&id, &self.runtime.writer, services.clock.now()).await?;
        if services.calibrations.is_unloaded() {
            match services.store.calibrations().await {
                Ok(stored) => services.calibrations.load(stored),
                // Estimates are used as they are, and the next claim asks again.
                Err(error) => tracing::warn!(%error, "what was learned about estimates could not be read"),
            }
        }
        tracing::debug!(conversation = %id, epoch = claim.epoch, seq = claim.seq, "claimed");
        let current = self.state().is_some_and(|state| state.seq == claim.seq);
        if current && self.conversation.shows_log() {
            self.conversation.begin_epoch(claim.epoch, None);
        } else {
            let (state, log) = revive(&*services.store, &id, &self.conversation.agent, &claim).await?;
            self.conversation.begin_epoch(claim.epoch, Some(&log));
            self.loaded = Some(Loaded { state, cache: ContextCache::default(), memory: Box::default() });
        }
        (self.epoch, self.scratch) = (Some(claim.epoch), claim.scratch);
        (self.last_sent, self.newest_summary) = (claim.sent, claim.newest_summary);
        self.inbox.clear();
        self.stored.clear();
        let mut answers = Vec::new();
        for item in claim.inbox {
            match item.kind {
                InboxKind::Message { .. }
                    if item.opens().is_some_and(|turn| self.conversation.was_taken_back(&turn)) =>
                {
                    self.done_items.push(item.id);
                }
                InboxKind::Message { .. } => self.inbox.push(item),
                _ => {
                    answers.extend(item.answers().map(|_| item.id.clone()));
                    self.stored.extend(Order::stored(item));
                }
            }
        }
        self.conversation.inbox_was_read(answers);
        self.tell_of_turns_elsewhere();
        self.look_for_jobs();
        Ok(())
    }

    /// Tells those who wait for turns that another process took up or ended, as far as the log tells how they ended.
    fn tell_of_turns_elsewhere(&self) {
        let Some(state) = self.state() else { return };
        let starting = self.conversation.current_turn();
        let is_known = |turn: &TurnId| {
            let open = state.turn.as_ref().is_some_and(|open| open.id == *turn);
            open || starting.as_ref() == Some(turn) || self.inbox.iter().any(|item| item.id.as_str() == turn.as_str())
        };
        for turn in self.conversation.waiters.elsewhere(is_known) {
            let events = state.window.events();
            let ended = events.iter().rev().find_map(|event| match &event.kind {
                EventKind::TurnEnded(ended) if event.turn == turn => Some(ended.clone()),
                _ => None,
            });
            let status = ended.map(|ended| {
                let actor = self.conversation.owner().unwrap_or(Actor::System);
                let report = TurnReport::new(self.report_of(turn.clone(), actor), &ended, last_reply(events, &turn));
                TurnStatus::Ended(Box::new(report))
            });
            self.conversation.waiters.finish(&turn, status.ok_or(TurnError::Remote));
        }
    }

    fn report_of(&self, turn: TurnId, actor: Actor) -> ReportOf {
        ReportOf {
            conversation: self.conversation.id.clone(),
            turn,
            agent: self.conversation.agent.shared_name().clone(),
            actor,
            permission_mode: self.runtime.services.permission_mode,
        }
    }

    /// The first time that this process claims an existing conversation: jobs that another process left are taken up.
    fn look_for_jobs(&self) {
        let is_old = self.state().is_some_and(|state| state.seq > 0);
        let services = &self.runtime.services;
        if services.background_hooks
            && is_old
            && self.conversation.agent.does_jobs()
            && self.conversation.jobs.looks_first()
        {
            outbox::take_up_jobs(self.conversation.clone(), self.runtime.clone());
        }
    }

    /// Gives the claim back, and says what the conversation is doing.
    async fn release(&mut self) -> Result<(), StoreError> {
        if !self.done_items.is_empty() {
            self.claim().await?;
        }
        let (Some(epoch), Some(loaded)) = (self.epoch.take(), &self.loaded) else { return Ok(()) };
        let turn = loaded.state.turn.as_ref();
        let first_expiry = turn.and_then(|turn| turn.open_questions().map(|question| question.expires).min());
        let status = match (turn, first_expiry) {
            (None, _) => ConversationStatus::Idle,
            (Some(_), Some(until)) => ConversationStatus::Waiting { until },
            (Some(_), None) => ConversationStatus::Running,
        };
        let batch = Batch::new(&self.conversation.id, epoch, loaded.state.seq);
        let batch = Batch { take: &self.done_items, status: Some(status), lease: Lease::Release, ..batch };
        self.runtime.services.store.append(batch).await?;
        self.done_items.clear();
        Ok(())
    }

    /// Runs `work` and keeps the claim meanwhile.
    async fn renewing<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let services = &self.runtime.services;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = services.clock.sleep(RENEW_EVERY) => {}
            }
            if let Some(epoch) = self.epoch
                && let Err(error) = services.store.renew(&self.conversation.id, epoch, services.clock.now()).await
            {
                // If the claim is lost, the next write is refused.
                tracing::warn!(conversation = %self.conversation.id, epoch, %error, "the claim could not be renewed");
            }
        }
    }

    // Turns.

    /// Runs the open turn, or the turn of the next message, until it ends or waits.
    async fn run_turn(&mut self) -> Result<(), StoreError> {
        let Some(mut active) = self.start_turn() else { return Ok(()) };
        if active.left.is_none() {
            if self.observers.is_none() {
                self.observers = Observers::of(&self.conversation, &self.runtime);
            }
            if let Some(observers) = &self.observers {
                observers.follow(active.ctx());
            }
        }
        let span = tracing::debug_span!("turn", id = %active.ctx().id, agent = %active.ctx().agent_name());
        let done = self.drive(&mut active).instrument(span).await;
        // If the claim was lost, another process carries the turn on, and with it sub-agents: those must not be cancelled from
        // here.
        if done.is_ok() {
            // Nothing more is done in the name of this turn by what it started.
            active.ctx().abort.abort(AbortCause::TurnOver);
        }
        self.conversation.stop_turn();
        for stopping in std::mem::take(&mut active.stopping) {
            self.renewing(stopping).await;
        }
        self.finish_turn(active, done).await
    }

    async fn drive(&mut self, active: &mut ActiveTurn) -> Result<Stage, StoreError> {
        if let Some((_, cause)) = self.cancel.take_if(|(turn, _)| *turn == active.ctx().id) {
            active.ctx().abort.abort(cause);
        }
        match active.ctx().abort.check() {
            Err(cause) => {
                // Those in the inbox count all the same: the end of the turn takes them up from there.
                self.answers.retain(|order| order.item().is_none());
                active.settle(cause.verdict());
            }
            Ok(()) => {
                // Answers first: one that was given in time counts, however late it is taken up.
                let (turn, mut orders) = (active.ctx().id.clone(), std::mem::take(&mut self.answers));
                let mut was_to_go_on = false;
                while let Some(order) = orders.pop_front() {
                    let carries_on = order.carries_on() && active.left.is_none();
                    let only_records = !carries_on && (active.left.is_some() || self.only_records(&turn));
                    // Whoever hears that the answer is recorded can rely on the conversation being free again.
                    active.releases_with_answer = only_records && orders.is_empty();
                    // In a box, like what follows: few turns are answered, and the driver's future is moved for each.
                    let taken = Box::pin(answer::take(active, order)).await?;
                    self.is_waited_for |= carries_on && taken == Taken::Written;
                    was_to_go_on |= carries_on;
                }
                if !active.released && answer::has_expired(active) && Box::pin(answer::expire(active)).await? {
                    // An answer that came too late is refused. The turn goes on without it, where it would have with it.
                    self.is_waited_for |= was_to_go_on;
                }
                if active.left.is_some() || self.only_records(&turn) {
                    return Ok(next(&active.state, &active.progress));
                }
            }
        }
        self.conversation.carry_turn_on();
        supervise(active, &self.conversation, &self.runtime).await
    }

    /// Makes the open turn, or that of the next message, ready to run. `None` if there is neither.
    fn start_turn(&mut self) -> Option<Box<ActiveTurn>> {
        let epoch = self.epoch?;
        let (turn, left) = (self.open_turn()?, self.left());
        if !self.conversation.begin_turn(&turn) {
            self.inbox.retain(|item| item.opens().as_ref() != Some(&turn));
            self.done_items.push(ItemId::of_turn(&turn));
            return None;
        }
        let Loaded { state, cache, memory } = self.loaded.take()?;
        let place = self.inbox.iter().position(|item| item.id.as_str() == turn.as_str());
        let greets = left.is_none() && self.conversation.greets_first_turn();
        let lifecycle = greets.then_some(if state.seq == 0 { Lifecycle::Started } else { Lifecycle::Revived });
        // Hooks and tools of this agent have no part in a turn of another one.
        let agent = match (&left, &self.scratch) {
            (Some(left), Some(scratch)) => {
                Agent::stand_in(left.agent.clone(), scratch.parts.clone().unwrap_or_default())
            }
            (Some(left), None) => Agent::stand_in(left.agent.clone(), Arc::default()),
            (None, _) => self.conversation.agent.clone(),
        };
        let insisted = self.conversation.insisted_on(&turn);
        let stored = StoredTurn {
            left,
            insisted,
            message: place.map(|index| self.inbox.remove(index)),
            scratch: self.scratch.take().filter(|scratch| scratch.turn == turn),
            state,
            cache,
            epoch,
            last_sent: self.last_sent.clone(),
            memory,
            newest_summary: self.newest_summary.clone(),
        };
        let scope = self.conversation.waiters.scope_of(&turn);
        let steering: Vec<InboxItem> = self.inbox.iter().filter(|item| item.steers() == Some(&turn)).cloned().collect();
        let active = start(stored, lifecycle, |actor| NewTurn {
            conversation: self.conversation.id.clone(),
            scope: scope.unwrap_or_else(|| (self.runtime.scope_source)(actor)),
            agent,
            parent: self.conversation.parent(),
            services: self.runtime.services.clone(),
            feed: self.conversation.feed.clone(),
            host: self.conversation.clone(),
            abort: self.conversation.start_turn(&turn),
            id: turn,
        });
        for item in steering {
            self.conversation.steer(item);
        }
        Some(active)
    }

    /// Takes the turn apart. If it is over, `on_ended` hooks see its end before those who wait for it, and background
    /// hooks begin.
    async fn finish_turn(
        &mut self,
        active: Box<ActiveTurn>,
        done: Result<Stage, StoreError>,
    ) -> Result<(), StoreError> {
        let ActiveTurn { turn, state, cache, mut memory, last_sent, scratch, ended, .. } = *active;
        let ActiveTurn { released, jobs, done_items, summary_is_due, .. } = *active;
        done?;
        self.last_sent = last_sent;
        memory.measure.rest();
        // Inbox items that came to nothing, in a turn that wrote nothing behind them.
        self.done_items.extend(done_items);
        if released {
            self.epoch = None;
        }
        let Some(ended) = ended else {
            self.loaded = Some(Loaded { state, cache, memory });
            self.scratch = Some(scratch.into_inner());
            return Ok(());
        };
        if summary_is_due && self.runtime.services.background_hooks {
            outbox::take_up_own_jobs(self.conversation.clone(), self.runtime.clone());
        }
        let ctx = turn.ctx.clone();
        let report_of = self.report_of(ctx.id.clone(), ctx.scope.actor().clone());
        let report = TurnReport::new(report_of, &ended, turn.view.assistant_message.clone());
        if jobs.is_empty() {
            self.loaded = Some(Loaded { state, cache, memory });
            self.conversation.waiters.finish(&ctx.id, Ok(TurnStatus::Ended(Box::new(report))));
            return Ok(());
        }
        let overlay = Overlay { summary: state.window.summary(), ..Overlay::default() };
        let messages = layout::messages(state.window.events(), &overlay);
        self.loaded = Some(Loaded { state, cache, memory });
        let background = outbox::background_context(&ctx, &report, messages);
        Box::pin(self.run_jobs(PostTurn { ctx, report, background }, jobs)).await
    }

    async fn run_jobs(&mut self, post: PostTurn, jobs: Vec<Job>) -> Result<(), StoreError> {
        let (on_ended, background): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.kind == JobKind::Ended);
        let results = self.renewing(post.attempt(on_ended)).await;
        let released = match (self.epoch.take(), &self.loaded) {
            (Some(epoch), Some(loaded)) => {
                let batch = Batch::new(&self.conversation.id, epoch, loaded.state.seq);
                let (status, lease) = (Some(ConversationStatus::Idle), Lease::Release);
                let turn = Some(&post.ctx.id);
                let batch = Batch { turn, records: results.records, done: &results.done, status, lease, ..batch };
                self.runtime.services.store.append(batch).await
            }
            _ => Ok(()),
        };
        let (turn, report) = (post.ctx.id.clone(), post.report.clone());
        if !background.is_empty() {
            outbox::run_in_background(self.conversation.clone(), self.runtime.clone(), post, background);
        }
        // The turn is over and written, whatever becomes of the claim.
        self.conversation.waiters.finish(&turn, Ok(TurnStatus::Ended(Box::new(report))));
        released
    }
}
