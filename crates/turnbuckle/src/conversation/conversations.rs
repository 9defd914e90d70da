//! The public API by conversation id: send, answer, cancel, look, and keep things going.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::builder::ConversationsBuilder;
use super::error::{Cancelled, RunError, SendError, TurnHandle};
use super::inline::Inline;
use super::input::{UserInput, WhileBusy};
use super::order::{CancelOrder, MessageOrder, Order, TakeBackOrder};
use super::outbox;
use super::read_back::open_turn;
use super::runtime::{Runtime, TakenUp};
use super::shared::{Conversation, Submitted};
use super::waiters::Storing;
use crate::BoxFuture;
use crate::access::{AccessTo, Action};
use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::context::tokens;
use crate::event::{Event, EventKind};
use crate::feed::projection::Projection;
use crate::feed::{Delivery, Level, LiveEvent, Subscription};
use crate::id::{ConversationId, ItemId, TurnId};
use crate::message::Text;
use crate::record::Record;
use crate::report::{ReportOf, TurnReport, TurnStatus, last_reply};
use crate::scope::{Actor, Scope};
use crate::store::{
    Act, ActKind, ConversationSummary, Cut, InboxFilter, InboxItem, InboxKind, Job, KeyedMessage, MessageKey, Store,
    StoreError, Summary,
};
use crate::stores::MemoryStore;
use crate::turn::{AbortCause, LeftTurn, OnChangedAgent, OtherAgents, TurnContext, TurnError};

/// How often [`Conversations::run_maintenance`] looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How many looks may fail in a row.
const MAX_FAILED_LOOKS: u32 = 12;
/// How many conversations one look takes up at most.
const MAX_TAKEN_UP: usize = 64;

/// Conversations of one agent in one store.
///
/// Of a sub-agent's conversation, `PARENT/CALL`, [`log`](Self::log), [`records`](Self::records) and [`jobs`](Self::jobs)
/// can be read. For everything else it does not exist: answers and cancellations go to its parent, which shows what it
/// does.
#[derive(Clone)]
pub struct Conversations {
    pub(super) runtime: Arc<Runtime>,
    pub(super) agent: Agent,
    /// The turn whose tool these conversations are, if the agent is a sub-agent.
    pub(super) parent: Option<Arc<TurnContext>>,
}

impl Conversations {
    /// Conversations of `agent` in `store`.
    pub fn builder(agent: Agent, store: impl Store) -> ConversationsBuilder {
        ConversationsBuilder::new(agent, Arc::new(store))
    }

    /// Conversations of any agents in `store`, for those who look, answer, cancel and delete: no turn is carried on, and
    /// nothing can be sent.
    pub fn without_agent(store: impl Store) -> ConversationsBuilder {
        ConversationsBuilder::new(Agent::nobody(), Arc::new(store))
    }

    /// Conversations that are forgotten with the process.
    pub fn in_memory(agent: Agent) -> Self {
        Self::builder(agent, MemoryStore::default()).build()
    }

    /// Whether conversations outlive the process.
    pub fn is_durable(&self) -> bool {
        self.store().is_durable()
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    // Messages.

    /// Runs one turn of a new conversation. Returns how it ended, whatever the outcome; [`RunError::Waiting`] if it waits
    /// for an answer.
    pub async fn run(&self, message: impl Into<UserInput>, scope: Scope) -> Result<TurnReport, RunError> {
        let id = ConversationId::from(self.runtime.services.ids.mint("c_"));
        match self.turn(&id, message, scope).await? {
            TurnStatus::Ended(report) => Ok(*report),
            TurnStatus::Waiting(pending) => Err(RunError::Waiting { conversation: id, pending }),
        }
    }

    /// Sends a message and carries its turn on in the caller's task until it ends or waits. If this is dropped before,
    /// the turn goes on in a task of its own: going away is not cancelling.
    pub async fn turn(
        &self,
        id: &ConversationId,
        message: impl Into<UserInput>,
        scope: Scope,
    ) -> Result<TurnStatus, RunError> {
        let (conversation, input) = (self.open(id, &scope, Action::Say).await?, message.into());
        self.check_agent(&conversation, &input, &scope).await?;
        let (order, accepted, status) = self.message(input, scope, WhileBusy::Reject)?;
        let mut inline = match conversation.submit(&self.runtime, Order::Message(order)) {
            Submitted::Busy(_) => return Err(SendError::Busy { id: id.clone(), pending: Vec::new() }.into()),
            Submitted::Drive(driver) => Inline::new(Some(driver)),
            Submitted::Done => Inline::new(None),
        };
        inline.until(accepted).await.map_err(|_| SendError::Gone)?.map_err(SendError::or_busy)?;
        Ok(inline.until(status).await.unwrap_or(Err(TurnError::Gone))?)
    }

    /// Sends a message; it is stored before this returns. Refused while a turn runs or waits.
    pub async fn send(
        &self,
        id: &ConversationId,
        message: impl Into<UserInput>,
        scope: Scope,
    ) -> Result<TurnHandle, SendError> {
        self.send_while(id, message, scope, WhileBusy::Reject).await
    }

    /// Sends a message, and says what to do if a turn runs.
    pub async fn send_while(
        &self,
        id: &ConversationId,
        message: impl Into<UserInput>,
        scope: Scope,
        while_busy: WhileBusy,
    ) -> Result<TurnHandle, SendError> {
        let input = message.into();
        let conversation = self.open(id, &scope, Action::Say).await?;
        if while_busy == WhileBusy::Interrupt {
            self.check(id, &scope, Action::Cancel).await?;
        }
        // Looked for before anything else: while the first one's turn runs, the second one is not refused as busy.
        self.check_key(id, &input, &scope).await?;
        self.check_agent(&conversation, &input, &scope).await?;
        let sent = self.send_new(id, &conversation, input.clone(), scope.clone(), while_busy).await;
        match sent {
            Err(SendError::Busy { .. }) if input.key().is_some() => {
                // The first one may have been stored just now.
                self.check_key(id, &input, &scope).await?;
                sent
            }
            Err(SendError::Store(StoreError::SentBefore { sent, .. })) => Err(sent_before(&input, sent)),
            sent => sent,
        }
    }

    /// The turn of the same message, if it was sent under its key before: it can be asked before anything else that sending needs.
    pub async fn sent_before(
        &self,
        id: &ConversationId,
        input: &UserInput,
        scope: &Scope,
    ) -> Result<Option<TurnId>, SendError> {
        self.check(id, scope, Action::Say).await?;
        match self.check_key(id, input, scope).await {
            Ok(()) => Ok(None),
            Err(SendError::SentBefore { turn }) => Ok(Some(turn)),
            Err(error) => Err(error),
        }
    }

    /// Refuses a message in a conversation of another agent, where that is refused and its sender does not insist.
    async fn check_agent(
        &self,
        conversation: &Conversation,
        input: &UserInput,
        scope: &Scope,
    ) -> Result<(), SendError> {
        let id = &conversation.id;
        if conversation.running_turn().is_some() {
            return Ok(());
        }
        let Some(agent) = self.refused_for(id).await? else { return Ok(()) };
        if !input.accepts_agent() || scope.user_id().is_none() {
            return Err(SendError::OtherAgent { id: id.clone(), agent });
        }
        tracing::info!(conversation = %id, %agent, by = %scope.by(), "a person insists that another agent goes on");
        let act = Act::new(ActKind::Insisted, id.as_str(), scope.by(), self.runtime.services.clock.now());
        Ok(self.store().record_act(act).await?)
    }

    /// The agent whose conversation this is, if messages are refused for that.
    async fn refused_for(&self, id: &ConversationId) -> Result<Option<Text>, StoreError> {
        match self.runtime.services.other_agents {
            OtherAgents::Refuse if !id.is_sub_agent() => self.agent_before(id).await,
            _ => Ok(None),
        }
    }

    /// The agent of the last turn, if that is over and the agent is another one than this.
    async fn agent_before(&self, id: &ConversationId) -> Result<Option<Text>, StoreError> {
        // Whose an open turn is, and who carries it on, is judged elsewhere.
        if self.store().scratch(id).await?.is_some() {
            return Ok(None);
        }
        let (mut before, mut tokens) = (u64::MAX, 1);
        loop {
            let events = self.store().tail(id, before, tokens).await?;
            let ended = events.iter().rev().find_map(|event| match &event.kind {
                EventKind::TurnEnded(ended) => Some(ended.agent.clone()),
                _ => None,
            });
            if let Some(agent) = ended {
                return Ok(agent.filter(|agent| **agent != *self.agent.name()));
            }
            // Background hooks may have written behind the end of the turn.
            let Some(first) = events.first() else { return Ok(None) };
            (before, tokens) = (first.seq, tokens.saturating_mul(16));
        }
    }

    /// Refuses a message that was sent under its key before.
    async fn check_key(&self, id: &ConversationId, input: &UserInput, scope: &Scope) -> Result<(), SendError> {
        let (Some(MessageKey { key, .. }), Some(user)) = (input.key(), scope.user_id()) else { return Ok(()) };
        match self.store().keyed_message(id, user, &key, self.runtime.services.clock.now()).await? {
            Some(sent) => Err(sent_before(input, sent)),
            None => Ok(()),
        }
    }

    async fn send_new(
        &self,
        id: &ConversationId,
        conversation: &Arc<Conversation>,
        input: UserInput,
        scope: Scope,
        while_busy: WhileBusy,
    ) -> Result<TurnHandle, SendError> {
        let sender = scope.clone();
        let (mut order, accepted, status) = self.message(input.clone(), scope, while_busy)?;
        let turn = order.turn.clone();
        loop {
            order = match conversation.submit(&self.runtime, Order::Message(order)) {
                Submitted::Busy(order) => order,
                Submitted::Drive(driver) => break drop(tokio::spawn(driver)),
                Submitted::Done => break,
            };
            if while_busy == WhileBusy::Reject {
                return Err(SendError::Busy { id: id.clone(), pending: Vec::new() });
            }
            // A message that was accepted before this one must be stored before it.
            if conversation.wait_for_start().await {
                self.store_beside_driver(conversation, order).await?;
                return Ok(TurnHandle::new(turn, status));
            }
        }
        match accepted.await {
            Ok(Ok(())) => Ok(TurnHandle::new(turn, status)),
            Ok(Err(SendError::Store(StoreError::InUse { .. }))) if while_busy != WhileBusy::Reject => {
                let (this, id) = (self.clone(), id.clone());
                let sent = async move { this.store_for_owner(&id, turn, input, sender, while_busy).await };
                // In a task of its own: once the message is stored, an interruption must follow.
                tokio::spawn(sent).await.unwrap_or(Err(SendError::Gone))
            }
            Ok(Err(error)) => Err(error.or_busy()),
            Err(_) => Err(SendError::Gone),
        }
    }

    fn message(
        &self,
        input: UserInput,
        scope: Scope,
        while_busy: WhileBusy,
    ) -> Result<(MessageOrder, Accepted, Status), SendError> {
        if self.agent.is_stand_in() {
            return Err(SendError::NoAgent);
        }
        if input.content.is_blank() {
            return Err(SendError::Empty);
        }
        let (limit, fixed) = (self.agent.limits().context_tokens, self.agent.fixed_tokens());
        let factor = self.runtime.services.calibrations.factor(self.agent.model_choice());
        // The smallest context that it can be sent in has system prompt and tools beside it. If these are too large by themselves,
        // no message is at fault: the turn says so.
        let fixed = if factor.with_margin(fixed) > limit { 0 } else { fixed };
        let size = factor.with_margin(tokens::of_content(&input.content) + fixed);
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        let turn = TurnId::from(self.runtime.services.ids.mint("t_"));
        let (accepted, on_accepted) = oneshot::channel();
        let (waiter, status) = oneshot::channel();
        Ok((MessageOrder { turn, input, scope, while_busy, accepted, waiter }, on_accepted, status))
    }

    /// A turn runs here: the message is put into the inbox beside the driver, which takes it up when the turn is over.
    /// This happens in a task of its own, so that all of it is done even if the sender goes away.
    async fn store_beside_driver(
        &self,
        conversation: &Arc<Conversation>,
        order: MessageOrder,
    ) -> Result<(), SendError> {
        let MessageOrder { turn, input, scope, while_busy, waiter, .. } = order;
        let (item, by) = (input.item(&turn, &self.agent, &scope, self.runtime.services.clock.now()), scope.by());
        // Which turn to interrupt or steer is decided now: once the message is stored another one, even its own, may run.
        let running = conversation.running_turn();
        let item = item.steering(running.clone().filter(|_| while_busy == WhileBusy::Steer));
        if item.steers().is_some() && !conversation.has_room_to_steer() {
            return Err(SendError::Full { id: conversation.id.clone() });
        }
        let interrupted = running.filter(|_| while_busy == WhileBusy::Interrupt);
        let (conversation, runtime) = (conversation.clone(), self.runtime.clone());
        let storing = Storing::new(&conversation, &turn, scope, waiter);
        let sent = tokio::spawn(async move {
            runtime.services.store.deliver(&conversation.id, item.clone()).await?;
            storing.stored();
            conversation.steer(item);
            if let Some(turn) = interrupted {
                conversation.abort(&turn, &AbortCause::Cancelled(by));
            }
            conversation.submit_and_spawn(&runtime, Order::Wake);
            Ok(())
        });
        sent.await.unwrap_or(Err(SendError::Gone))
    }

    /// Another process has the conversation: the message is put into the inbox for it.
    async fn store_for_owner(
        &self,
        id: &ConversationId,
        turn: TurnId,
        input: UserInput,
        scope: Scope,
        while_busy: WhileBusy,
    ) -> Result<TurnHandle, SendError> {
        let open = open_turn(self.store(), id).await?;
        let item = input.item(&turn, &self.agent, &scope, self.runtime.services.clock.now());
        let item = item.steering(open.clone().filter(|_| while_busy == WhileBusy::Steer));
        self.store().deliver(id, item).await?;
        if let (WhileBusy::Interrupt, Some(turn)) = (while_busy, open) {
            self.deliver(id, InboxKind::Cancel { turn }, &scope).await?;
        }
        // The owner may have left meanwhile: then it is taken up here.
        self.conversation(id).submit_and_spawn(&self.runtime, Order::Wake);
        Ok(TurnHandle::remote(turn))
    }

    /// Takes back a message that was sent from here and whose turn has not begun: one that is queued, or that is to steer the
    /// turn that runs. False if its turn has begun, or it was not sent by this actor through this process. The message is gone
    /// for good when the turn that runs ends or waits; a crash before that brings it back.
    pub async fn take_back(&self, id: &ConversationId, turn: &TurnId, scope: Scope) -> Result<bool, SendError> {
        let conversation = self.existing(id, &scope, Action::Say).await?;
        if conversation.waiters.scope_of(turn).is_none_or(|sent| sent.by() != scope.by()) {
            return Ok(false);
        }
        let (reply, on_reply) = oneshot::channel();
        let order = Order::TakeBack(TakeBackOrder { turn: turn.clone(), reply });
        conversation.submit_and_spawn(&self.runtime, order);
        on_reply.await.map_err(|_| SendError::Gone)?.map_err(SendError::or_busy)
    }

    // Cancellations, and turns that a crash left. Answers are in `answering.rs`.

    /// Cancels the turn under way, from whatever stage, at once, and says who does. The order is stored before this
    /// returns, where the store is durable, so that a turn which a crash revives stays cancelled. If another process has
    /// the conversation, it finds the order in the inbox.
    pub async fn cancel(&self, id: &ConversationId, scope: Scope) -> Result<Cancelled, SendError> {
        let conversation = self.existing(id, &scope, Action::Cancel).await?;
        let turn = match conversation.current_turn() {
            Some(turn) => turn,
            None => match open_turn(self.store(), id).await? {
                Some(turn) => turn,
                None => return Ok(Cancelled::NotRunning),
            },
        };
        let cause = AbortCause::Cancelled(scope.by());
        let here = conversation.abort(&turn, &cause);
        let item = match self.is_durable() && !id.is_sub_agent() {
            true => Some(self.deliver(id, InboxKind::Cancel { turn: turn.clone() }, &scope).await?),
            false => None,
        };
        if here {
            if item.is_some_and(|item| !conversation.acknowledge(&turn, item)) {
                // The turn was over before the order was stored: someone must take it out of the inbox again.
                conversation.submit_and_spawn(&self.runtime, Order::Wake);
            }
            return Ok(Cancelled::Local { turn });
        }
        let is_stored = item.is_some();
        let (reply, on_reply) = oneshot::channel();
        let order = CancelOrder { turn: turn.clone(), cause, item, reply: Some(reply) };
        conversation.submit_and_spawn(&self.runtime, Order::Cancel(order));
        match on_reply.await.map_err(|_| SendError::Gone)? {
            Ok(true) => Ok(Cancelled::Local { turn }),
            Ok(false) => Ok(Cancelled::NotRunning),
            // The process that has the conversation finds the stored order.
            Err(SendError::Store(StoreError::InUse { .. }) | SendError::Full { .. }) if is_stored => {
                Ok(Cancelled::Remote { turn })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the actor may do this with the conversation. It is [`SendError::NotFound`] for someone who may not even read
    /// it, and [`SendError::Forbidden`] for someone who may read it and not do this. A sub-agent's conversation is judged
    /// like the one that it works for. Whether a certain question may be answered, its own rule decides.
    pub async fn may(&self, id: &ConversationId, action: Action, scope: &Scope) -> Result<(), SendError> {
        self.check(id, scope, action).await
    }

    /// Why the open turn is not carried on here, if it is not: it is of another agent, or its agent has changed. Nothing is
    /// claimed or written.
    pub async fn left_turn(&self, id: &ConversationId, scope: Scope) -> Result<Option<LeftTurn>, SendError> {
        self.check(id, &scope, Action::Read).await?;
        Ok(self.stored_left_turn(id).await?)
    }

    /// The agent that the conversation is with, if it is another one than this and
    /// [takes no messages](super::ConversationsBuilder::other_agents) for that reason. Nothing is claimed or written.
    pub async fn other_agent(&self, id: &ConversationId, scope: &Scope) -> Result<Option<Text>, SendError> {
        self.check(id, scope, Action::Read).await?;
        Ok(self.refused_for(id).await?)
    }

    /// Insists that the open turn is carried on here although its agent has changed since it began. Returns what it is
    /// carried on without; `None` if the turn needs no insisting. A turn of another agent stays left, whoever insists:
    /// [`SendError::Left`]. The end of the turn says who insisted.
    ///
    /// Nothing is done yet: [`resume`](Self::resume) or [`resolve`](Self::resolve) carries the turn on.
    pub async fn accept_changes(&self, id: &ConversationId, scope: Scope) -> Result<Option<LeftTurn>, SendError> {
        let conversation = self.existing(id, &scope, Action::Say).await?;
        match self.stored_left_turn(id).await? {
            // A person, never the program itself: for that there is `on_changed_agent`.
            Some(left) if left.can_insist() && scope.user_id().is_some() => {
                tracing::info!(conversation = %id, turn = %left.turn, by = %scope.by(), %left, "a person insists");
                let act = Act::new(ActKind::Insisted, id.as_str(), scope.by(), self.runtime.services.clock.now());
                self.store().record_act(act).await?;
                conversation.insist(left.turn.clone(), scope.by());
                Ok(Some(left))
            }
            Some(left) => Err(SendError::Left { id: id.clone(), left }),
            None => Ok(None),
        }
    }

    async fn stored_left_turn(&self, id: &ConversationId) -> Result<Option<LeftTurn>, StoreError> {
        if let Some(scratch) = self.store().scratch(id).await? {
            return Ok(LeftTurn::of_scratch(&scratch, &self.agent, &self.runtime.services.project));
        }
        let waiting = self.store().inbox(id, InboxFilter::All).await?;
        let message = waiting.iter().find(|item| item.opens().is_some());
        Ok(message.and_then(|item| LeftTurn::of_message(item, &self.agent)))
    }

    /// Finishes a turn that a crash left open; `None` if there is none, [`SendError::Left`] if this agent must not.
    pub async fn resume(&self, id: &ConversationId, scope: Scope) -> Result<Option<TurnHandle>, SendError> {
        let conversation = self.existing(id, &scope, Action::Say).await?;
        self.resume_turn(&conversation).await
    }

    pub(super) async fn resume_turn(&self, conversation: &Arc<Conversation>) -> Result<Option<TurnHandle>, SendError> {
        let (reply, on_reply) = oneshot::channel();
        let (waiter, status) = oneshot::channel();
        conversation.submit_and_spawn(&self.runtime, Order::Resume(reply, waiter));
        let open = on_reply.await.map_err(|_| SendError::Gone)??;
        Ok(open.map(|turn| TurnHandle::new(turn, status)))
    }

    /// Ends a conversation in which no turn is open: `on_conversation` hooks are called, and nothing of it stays in
    /// memory. A hook that fails and whose failure blocks keeps it open: [`SendError::Hook`].
    pub async fn close(&self, id: &ConversationId, scope: Scope) -> Result<(), SendError> {
        let conversation = self.existing(id, &scope, Action::Say).await?;
        let (reply, on_reply) = oneshot::channel();
        conversation.submit_and_spawn(&self.runtime, Order::Close(scope, reply));
        on_reply.await.map_err(|_| SendError::Gone)??;
        // If its driver still works, it lets go of the conversation when it is done.
        self.runtime.forget(&conversation);
        Ok(())
    }

    /// Puts an order into the inbox, for whichever process has the conversation. Returns the item's id.
    pub(super) async fn deliver(
        &self,
        id: &ConversationId,
        kind: InboxKind,
        scope: &Scope,
    ) -> Result<ItemId, StoreError> {
        let services = &self.runtime.services;
        let (item, at) = (ItemId::from(services.ids.mint("l_")), services.clock.now());
        let stored = InboxItem { id: item.clone(), from: scope.actor().clone(), at, kind };
        services.store.deliver(id, stored).await?;
        tracing::debug!(conversation = %id, %item, "stored an order");
        Ok(item)
    }

    // Reading: nothing here writes to a log.

    /// Subscribes to log and live events: a snapshot, and everything that happens after it.
    pub async fn subscribe(
        &self,
        id: &ConversationId,
        delivery: Delivery,
        scope: Scope,
    ) -> Result<Subscription, SendError> {
        let conversation = self.open(id, &scope, Action::Read).await?;
        if let Some(owner) = conversation.owner() {
            self.note_read(id, &owner, &scope).await?;
        }
        Ok(conversation.look(&self.runtime).await?.subscribe(delivery))
    }

    /// What a person sees now.
    pub async fn snapshot(&self, id: &ConversationId, scope: Scope) -> Result<Projection, SendError> {
        self.check_reachable(id)?;
        self.begin_reading(id, &scope).await?;
        let conversation = self.conversation(id);
        Ok(conversation.look(&self.runtime).await?.snapshot())
    }

    /// The conversations that the actor may read, the newest first. Those of sub-agents are part of their parents'.
    pub async fn list(&self, scope: Scope) -> Result<Vec<ConversationSummary>, StoreError> {
        let mut listed = self.store().list().await?;
        listed.retain(|one| self.lists(one, &scope));
        Ok(listed)
    }

    /// The whole log, oldest first.
    pub async fn log(&self, id: &ConversationId, scope: Scope) -> Result<Vec<Arc<Event>>, SendError> {
        self.begin_reading(id, &scope).await?;
        Ok(self.store().log(id, 1, usize::MAX).await?)
    }

    /// What each hook did in a turn.
    pub async fn records(&self, id: &ConversationId, turn: &TurnId, scope: Scope) -> Result<Vec<Record>, SendError> {
        self.begin_reading(id, &scope).await?;
        Ok(self.store().records(id, turn).await?)
    }

    /// Where contexts of a conversation were cut because they had become too large, oldest first.
    pub async fn cuts(&self, id: &ConversationId, scope: Scope) -> Result<Vec<Cut>, SendError> {
        self.begin_reading(id, &scope).await?;
        Ok(self.store().cuts(id).await?)
    }

    /// The summaries that were made of the oldest turns, oldest first. [`Cut::summary`] says which one contexts show.
    pub async fn summaries(&self, id: &ConversationId, scope: Scope) -> Result<Vec<Arc<Summary>>, SendError> {
        self.begin_reading(id, &scope).await?;
        Ok(self.store().summaries(id).await?)
    }

    /// What turns left to be done and is not done yet, oldest first. Parked jobs stay here with their error.
    pub async fn jobs(&self, id: &ConversationId, scope: Scope) -> Result<Vec<Job>, SendError> {
        self.begin_reading(id, &scope).await?;
        Ok(self.store().jobs(id).await?)
    }

    // Maintenance.

    /// Takes up what is due in the whole store and nobody works on: turns that a crash left, stored orders, questions
    /// that expired, jobs. Returns how many conversations it found; the work goes on in the background. At most 64 are
    /// taken up at once, and the next call goes on behind them, so that conversations which stay due, whatever is done,
    /// do not keep others waiting.
    pub async fn recover_due(&self) -> Result<usize, StoreError> {
        let due_from = || self.runtime.due_from.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, last) = (self.runtime.services.clock.now(), due_from().clone());
        let mut due = self.store().due(now, last.as_ref(), MAX_TAKEN_UP).await?;
        if let (Some(last), true) = (&last, due.len() < MAX_TAKEN_UP) {
            let from_the_start = self.store().due(now, None, MAX_TAKEN_UP - due.len()).await?;
            due.extend(from_the_start.into_iter().take_while(|id| id <= last));
        }
        *due_from() = due.last().filter(|_| due.len() == MAX_TAKEN_UP).cloned();
        let mut taken_up = 0;
        for id in &due {
            let conversation = self.conversation(id);
            if self.runtime.services.background_hooks {
                outbox::take_up_jobs(conversation.clone(), self.runtime.clone());
            }
            if self.has_work_on(id, now).await? {
                tracing::debug!(conversation = %id, "taking up a due conversation");
                if let Some(tell) = &self.runtime.on_taken_up
                    && let Some(scratch) = self.store().scratch(id).await?
                    && LeftTurn::of_scratch(&scratch, &self.agent, &self.runtime.services.project).is_none()
                {
                    let is_other = scratch.model != *self.agent.model_choice();
                    let model_before = is_other.then(|| scratch.model.clone());
                    tell(&TakenUp { conversation: id.clone(), turn: scratch.turn, model_before });
                }
                conversation.submit_and_spawn(&self.runtime, Order::Wake);
                taken_up += 1;
            }
        }
        Ok(taken_up)
    }

    /// Whether there is something to do in a due conversation beside its jobs. Of a turn that is left only orders and expired
    /// questions are taken care of here. It is found out without a claim, which would keep the right agent out meanwhile.
    async fn has_work_on(&self, id: &ConversationId, now: Timestamp) -> Result<bool, StoreError> {
        let Some(left) = self.stored_left_turn(id).await? else { return Ok(true) };
        let may_go_on = || {
            let insisted = self.runtime.resident(id).and_then(|conversation| conversation.insisted_on(&left.turn));
            let policy = &self.runtime.services.on_changed_agent;
            left.can_insist() && (insisted.is_some() || policy(&left) == OnChangedAgent::CarryOn)
        };
        if may_go_on() || !self.store().inbox(id, InboxFilter::Control).await?.is_empty() {
            return Ok(true);
        }
        let conversation = self.conversation(id);
        conversation.show_log(&self.runtime).await?;
        let expired = conversation.feed.all_pending().iter().any(|pending| pending.expires <= now);
        if !expired {
            self.report_left(&conversation, &left);
        }
        Ok(expired)
    }

    /// Tells of a turn that is left: in the program's log, and those who watch the conversation. Once for each turn.
    fn report_left(&self, conversation: &Conversation, left: &LeftTurn) {
        if conversation.reports_left(&left.turn) {
            tracing::warn!(conversation = %conversation.id, turn = %left.turn, %left, "a turn is left");
            let text = format!("the turn is left: {left}").into();
            conversation
                .feed
                .publish_live(Some(&left.turn), LiveEvent::Notice { level: Level::Warning, text, hook: None });
        }
    }

    /// Calls [`recover_due`](Self::recover_due) again and again, until it is dropped or the store has failed for a minute.
    /// Deletions that were not complete are finished, and conversations that were kept long enough are deleted.
    /// Programs that stay run it in a task of its own.
    pub async fn run_maintenance(&self) -> StoreError {
        let (mut failures, mut retention_due) = (0, self.runtime.services.clock.now());
        loop {
            self.maintain_deletions(&mut retention_due).await;
            match self.recover_due().await {
                Ok(_) => failures = 0,
                Err(error) if failures >= MAX_FAILED_LOOKS => return error,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "the store could not be searched for due conversations");
                }
            }
            self.runtime.services.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// How many conversations this process has in memory, at rest or not.
    pub fn resident_count(&self) -> usize {
        self.runtime.resident_count()
    }

    /// How many conversations this process works on now: a turn runs, or an answer or another order is carried out. A turn that
    /// waits for someone is not counted.
    pub fn running_count(&self) -> usize {
        self.runtime.driven_count()
    }

    /// Whether this process makes summaries of old turns: its agent shows them, and background work is not switched off.
    pub fn makes_summaries(&self) -> bool {
        self.agent.wants_summaries() && self.runtime.services.background_hooks
    }

    /// Waits for background hooks and summaries, at most this long. What is left stays in the outbox.
    pub async fn drain(&self, most: Duration) {
        let mut tasks = self.runtime.tasks.subscribe();
        tokio::select! {
            biased;
            _ = tasks.wait_for(|count| *count == 0) => {}
            () = self.runtime.services.clock.sleep(most) => {}
        }
    }

    // Sub-agents.

    /// Nothing of a sub-agent's conversation stays in memory once it is over.
    pub(crate) fn forget(&self, id: &ConversationId) {
        let conversation = self.conversation(id);
        conversation.leave();
        self.runtime.forget(&conversation);
    }

    /// The parent's call is over: the sub-agent's turn is cancelled, whether it runs or waits. Returns a future that is
    /// ready when it has stopped; `None` if no turn is open.
    pub(super) async fn cancel_for_parent(
        &self,
        id: &ConversationId,
        cause: AbortCause,
    ) -> Option<BoxFuture<'static, ()>> {
        let running = self.runtime.resident(id).and_then(|conversation| conversation.current_turn());
        let turn = match running {
            Some(turn) => turn,
            None => match open_turn(self.store(), id).await {
                Ok(turn) => turn?,
                Err(error) => {
                    // Nobody takes it up any more; it stays open in the store.
                    tracing::warn!(conversation = %id, %error, "a sub-agent's turn could not be cancelled");
                    return None;
                }
            },
        };
        let conversation = self.conversation(id);
        let (waiter, stopped) = oneshot::channel();
        conversation.waiters.add(&turn, waiter);
        conversation.leave();
        let order = CancelOrder { turn, cause, item: None, reply: None };
        conversation.submit_and_spawn(&self.runtime, Order::Cancel(order));
        // However it stopped is not the parent's to say.
        Some(Box::pin(async move { drop(stopped.await) }))
    }

    /// How the only turn of a sub-agent's conversation ended, if it did. Notes may stand behind its end.
    pub(crate) async fn ended(&self, id: &ConversationId, actor: &Actor) -> Result<Option<TurnReport>, StoreError> {
        let log = self.store().log(id, 1, usize::MAX).await?;
        let end = log.iter().rev().find_map(|event| match &event.kind {
            EventKind::TurnEnded(ended) => Some((event.turn.clone(), ended.clone())),
            _ => None,
        });
        let Some((turn, ended)) = end else { return Ok(None) };
        let reply = last_reply(&log, &turn);
        let of = ReportOf {
            conversation: id.clone(),
            turn,
            agent: self.agent.shared_name().clone(),
            actor: actor.clone(),
            permission_mode: self.runtime.services.permission_mode,
        };
        Ok(Some(TurnReport::new(of, &ended, reply)))
    }

    // Access.

    pub(super) fn store(&self) -> &dyn Store {
        &*self.runtime.services.store
    }

    pub(super) fn conversation(&self, id: &ConversationId) -> Arc<Conversation> {
        self.runtime.conversation(id, &self.agent, self.parent.as_ref())
    }

    /// The conversation; it is made if there is none, and belongs to the actor then.
    async fn open(&self, id: &ConversationId, scope: &Scope, action: Action) -> Result<Arc<Conversation>, SendError> {
        self.check_reachable(id)?;
        let conversation = self.conversation(id);
        match conversation.owner() {
            Some(owner) => self.judge(id, &owner, scope, action)?,
            None => {
                let owner = match self.store().open(id, scope.actor(), self.runtime.services.clock.now()).await {
                    // As with a conversation of another: that there was one, and when it went, is not for everyone.
                    Err(StoreError::Deleted { id, .. })
                        if self.parent.is_none() && !self.was_deleted_by(&id, scope).await? =>
                    {
                        return Err(SendError::NotFound { id });
                    }
                    owner => owner?,
                };
                self.judge(id, &owner, scope, action)?;
                conversation.set_owner(owner);
            }
        }
        Ok(conversation)
    }

    /// Like `open`, for a conversation that must exist.
    async fn existing(
        &self,
        id: &ConversationId,
        scope: &Scope,
        action: Action,
    ) -> Result<Arc<Conversation>, SendError> {
        self.check_reachable(id)?;
        self.check(id, scope, action).await?;
        Ok(self.conversation(id))
    }

    /// From outside, a sub-agent's conversation can only be read: only the call that started it knows its agent, and
    /// whose cancellation and budget it is under.
    pub(super) fn check_reachable(&self, id: &ConversationId) -> Result<(), SendError> {
        match self.parent.is_none() && id.is_sub_agent() {
            true => Err(SendError::NotFound { id: id.clone() }),
            false => Ok(()),
        }
    }

    /// Whether the actor may do this with a conversation that exists.
    pub(super) async fn check(&self, id: &ConversationId, scope: &Scope, action: Action) -> Result<(), SendError> {
        match self.owner_of(id).await? {
            Some(owner) => self.judge(id, &owner, scope, action),
            None => Err(SendError::NotFound { id: id.clone() }),
        }
    }

    /// Checks that the actor may read a conversation, and records it if it is another's. Everything here that reads does
    /// this by itself; a program calls it that reads the store on its own.
    pub async fn begin_reading(&self, id: &ConversationId, scope: &Scope) -> Result<(), SendError> {
        let Some(owner) = self.owner_of(id).await? else { return Err(SendError::NotFound { id: id.clone() }) };
        self.judge(id, &owner, scope, Action::Read)?;
        Ok(self.note_read(id, &owner, scope).await?)
    }

    /// Who owns the conversation. A sub-agent's belongs to the owner of the one that it works for, whoever asked for it.
    pub(super) async fn owner_of(&self, id: &ConversationId) -> Result<Option<Actor>, StoreError> {
        let owner = self.store().owner(id).await?;
        match (owner, id.root()) {
            (Some(_), Some(root)) => self.store().owner(&root).await,
            (owner, _) => Ok(owner),
        }
    }

    /// To someone who may not read a conversation it does not exist. Someone who may read it is told who could do this.
    pub(super) fn judge(
        &self,
        id: &ConversationId,
        owner: &Actor,
        scope: &Scope,
        action: Action,
    ) -> Result<(), SendError> {
        let root = id.root();
        let (access, to) = (&self.runtime.services.access, AccessTo::new(root.as_ref().unwrap_or(id), owner));
        match scope.actor() {
            // What a sub-agent does is asked for by its parent's turn.
            _ if self.parent.is_some() => Ok(()),
            Actor::System => Ok(()),
            actor if access.may(actor, to, action) => Ok(()),
            actor if access.may(actor, to, Action::Read) => {
                Err(SendError::Forbidden { id: id.clone(), action, who: access.who(action).into() })
            }
            _ => Err(SendError::NotFound { id: id.clone() }),
        }
    }
}

fn sent_before(input: &UserInput, sent: KeyedMessage) -> SendError {
    match input.key().is_some_and(|key| key.digest == sent.digest) {
        true => SendError::SentBefore { turn: sent.turn },
        false => SendError::KeyReused,
    }
}

type Accepted = oneshot::Receiver<Result<(), SendError>>;
type Status = oneshot::Receiver<Result<TurnStatus, TurnError>>;

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations").field("agent", &self.agent).finish_non_exhaustive()
    }
}
