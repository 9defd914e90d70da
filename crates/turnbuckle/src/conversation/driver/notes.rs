//! What is written outside a turn: what jobs came to, and what the hooks say that are called when a conversation is closed.

use std::sync::Arc;

use super::super::close::call_close_hooks;
use super::super::error::SendError;
use super::super::order::JobResultsOrder;
use super::super::outbox;
use super::Driver;
use crate::event::{Event, EventKind, InjectionTarget};
use crate::hook::Point;
use crate::id::{ItemId, TurnId};
use crate::scope::Scope;
use crate::store::{Batch, StoreError};
use crate::turn::JobResults;

impl Driver {
    /// Writes what jobs came to: their notes are for the turn that comes next, and the jobs go in the same write.
    pub(super) async fn write_job_results(&mut self, order: JobResultsOrder) -> Result<(), StoreError> {
        let JobResultsOrder { turn, results, item, written } = order;
        self.write_notes(&turn, results, item).await?;
        // The task that did the jobs waits for this; for a stored order there is none.
        if let Some(written) = written {
            let _ = written.send(());
        }
        Ok(())
    }

    /// Appends notes and records outside a turn.
    async fn write_notes(
        &mut self,
        turn: &TurnId,
        results: JobResults,
        item: Option<ItemId>,
    ) -> Result<(), StoreError> {
        let JobResults { notes, records, done, failed: _ } = results;
        self.claim().await?;
        let (Some(epoch), Some(loaded)) = (self.epoch, &mut self.loaded) else { return Ok(()) };
        let at = self.runtime.services.clock.now();
        let stamp = |((hook, content), seq)| {
            let kind = EventKind::Injection { hook, content, place: InjectionTarget::NextTurn };
            Arc::new(Event { seq, turn: turn.clone(), at, kind })
        };
        let events: Vec<_> = notes.into_iter().zip(loaded.state.seq + 1..).map(stamp).collect();
        self.done_items.extend(item);
        let batch = Batch::new(&self.conversation.id, epoch, loaded.state.seq);
        let batch = Batch { events: &events, take: &self.done_items, records, turn: Some(turn), done: &done, ..batch };
        self.runtime.services.store.append(batch).await?;
        self.done_items.clear();
        for event in &events {
            loaded.state.apply(event);
        }
        self.conversation.feed.publish_log(&events);
        Ok(())
    }

    /// Ends the conversation: `on_conversation` hooks are called, under a claim that is kept. A hook that fails and whose
    /// failure blocks keeps the conversation open.
    pub(super) async fn close(&mut self, scope: Scope) -> Result<Result<(), SendError>, StoreError> {
        if !self.conversation.agent.hooks_at(Point::OnConversation).is_empty() {
            let ctx = outbox::context_after(&self.conversation, &self.runtime, self.last_turn().await?, scope);
            let (results, closed) = self.renewing(call_close_hooks(&ctx)).await;
            self.write_notes(&ctx.id, results, None).await?;
            if closed.is_err() {
                return Ok(closed);
            }
        }
        self.conversation.leave();
        Ok(Ok(()))
    }

    /// The turn that what hooks do now is recorded with: the last one, or a new id if there was none.
    async fn last_turn(&self) -> Result<TurnId, StoreError> {
        let last = self.runtime.services.store.tail(&self.conversation.id, u64::MAX, 1).await?;
        Ok(last.last().map_or_else(|| self.runtime.services.ids.mint("t_").into(), |event| event.turn.clone()))
    }
}
