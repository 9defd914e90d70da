//! Looking at conversations: nothing here writes to a log.

use std::sync::Arc;

use super::Conversations;
use super::outcome::SendError;
use crate::event::Event;
use crate::feed::{Delivery, Subscription};
use crate::hook::Record;
use crate::id::{ConversationId, TurnId};
use crate::projection::Projection;
use crate::scope::Scope;
use crate::store::Job;

impl Conversations {
    /// Snapshot and tail of both planes.
    pub async fn subscribe(
        &self,
        id: &ConversationId,
        delivery: Delivery,
        scope: Scope,
    ) -> Result<Subscription, SendError> {
        self.open(id, &scope).await?;
        let cell = self.cell(id);
        cell.show_log(&self.runtime).await?;
        Ok(cell.feed.subscribe(delivery))
    }

    /// What a person sees now.
    pub async fn snapshot(&self, id: &ConversationId, scope: Scope) -> Result<Projection, SendError> {
        self.owned(id, &scope).await?;
        let cell = self.cell(id);
        cell.show_log(&self.runtime).await?;
        Ok(cell.feed.snapshot())
    }

    /// The log, oldest first: all of it.
    pub async fn log(&self, id: &ConversationId, scope: Scope) -> Result<Vec<Arc<Event>>, SendError> {
        self.readable(id, &scope).await?;
        Ok(self.runtime.store.log(id, 1, usize::MAX).await?)
    }

    /// What each hook did in a turn.
    pub async fn records(&self, id: &ConversationId, turn: &TurnId, scope: Scope) -> Result<Vec<Record>, SendError> {
        self.readable(id, &scope).await?;
        Ok(self.runtime.store.records(id, turn).await?)
    }

    /// What turns left to be done and is not done yet, oldest first. Parked jobs stay here with their error.
    pub async fn jobs(&self, id: &ConversationId, scope: Scope) -> Result<Vec<Job>, SendError> {
        self.readable(id, &scope).await?;
        Ok(self.runtime.store.jobs(id).await?)
    }
}
