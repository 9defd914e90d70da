//! What a running turn asks of its conversation.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::super::order::Refusal;
use super::super::outbox;
use super::{Conversation, Order};
use crate::BoxFuture;
use crate::agent::Agent;
use crate::id::{ConversationId, ItemId, TurnId};
use crate::scope::Author;
use crate::store::{InboxFilter, InboxItem, StoreError};
use crate::turn::{AbortCause, AnswerOrder, RefusedMessage, TurnContext, TurnError, TurnHost, Waiter};

impl TurnHost for Conversation {
    fn poll_answer(&self, cx: &mut Context<'_>) -> Poll<AnswerOrder> {
        self.order_arrived.register(cx.waker());
        let mut inner = self.lock();
        let answer = inner.orders.iter().position(|order| matches!(order, Order::Answer(_)));
        match answer.and_then(|place| inner.orders.remove(place)) {
            Some(Order::Answer(order)) => Poll::Ready(order),
            _ => Poll::Pending,
        }
    }

    fn take_after_stored(&self, order: AnswerOrder) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let here = self.runtime.upgrade().and_then(|runtime| Some((runtime.resident(&self.id)?, runtime)));
            // Without them the process is about to end; dropping the order tells its sender.
            let Some((conversation, runtime)) = here else { return };
            match runtime.services.store.inbox(&self.id, InboxFilter::Control).await {
                Ok(items) => {
                    // One that came from the inbox itself is in it, and so is brought in its turn.
                    if let Some(item) = order.item() {
                        self.lock().answers.retain(|id| id != item);
                    }
                    let stored = items.into_iter().filter(|item| item.answers() == Some(&order.call));
                    for first in stored.filter_map(Order::stored) {
                        conversation.submit_and_spawn(&runtime, first);
                    }
                    if order.item().is_none() {
                        conversation.submit_and_spawn(&runtime, Order::Answer(order));
                    }
                }
                Err(error) => Order::Answer(order).refuse(&Refusal::Store(error)),
            }
        })
    }

    fn stored_answers(&self) -> BoxFuture<'_, Result<Vec<AnswerOrder>, StoreError>> {
        Box::pin(async move {
            // Without it the process is about to end, and the turn is not written any more.
            let Some(runtime) = self.runtime.upgrade() else { return Ok(Vec::new()) };
            let items = runtime.services.store.inbox(&self.id, InboxFilter::Control).await?;
            self.keep_answers(items.iter().filter(|item| item.answers().is_some()));
            let stored = items.into_iter().filter_map(Order::stored);
            Ok(stored.filter_map(|order| if let Order::Answer(order) = order { Some(order) } else { None }).collect())
        })
    }

    fn add_waiter(&self, turn: &TurnId, waiter: Waiter) {
        self.waiters.add(turn, waiter);
    }

    fn next_steering(&self, turn: &TurnId) -> Option<InboxItem> {
        self.lock().next_steering(turn)
    }

    fn defer_steering(&self, turn: &TurnId, message: ItemId, by: Author) {
        self.lock().defer_steering(turn, message, by);
    }

    fn steered(&self, message: &TurnId, turn: &TurnId) {
        self.waiters.join(message, turn);
    }

    fn refuse_steering(&self, message: &TurnId, why: RefusedMessage) {
        self.waiters.finish(message, Err(TurnError::Refused(Box::new(why))));
    }

    fn take_acknowledged(&self) -> Vec<ItemId> {
        std::mem::take(&mut self.lock().acknowledged)
    }

    fn take_up_jobs(&self) {
        if let Some(runtime) = self.runtime.upgrade()
            && let Some(conversation) = runtime.resident(&self.id)
        {
            outbox::take_up_own_jobs(conversation, runtime);
        }
    }

    fn observers_caught_up(&self) -> BoxFuture<'_, ()> {
        let observers = self.lock().observers.upgrade();
        Box::pin(async move {
            if let Some(observers) = observers {
                observers.caught_up(self.feed.cursor()).await;
            }
        })
    }

    fn cancel_sub_agent<'a>(
        &'a self,
        parent: &'a Arc<TurnContext>,
        id: ConversationId,
        agent: Agent,
        cause: AbortCause,
    ) -> BoxFuture<'a, Option<BoxFuture<'static, ()>>> {
        Box::pin(async move {
            let conversations = self.runtime.upgrade()?.sub_agent(parent, agent);
            conversations.cancel_for_parent(&id, cause).await
        })
    }

    fn runtime(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let runtime: Arc<dyn Any + Send + Sync> = self.runtime.upgrade()?;
        Some(runtime)
    }
}
