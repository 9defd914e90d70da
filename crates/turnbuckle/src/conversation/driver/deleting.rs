//! How the driver deletes its conversation.

use std::time::Duration;

use super::Driver;
use crate::conversation::error::SendError;
use crate::conversation::order::DeleteOrder;
use crate::store::{Deletion, StoreError};
use crate::turn::Stage;

/// How long a deletion waits for observers that are still at work.
const OBSERVERS_TIME: Duration = Duration::from_secs(10);

impl Driver {
    /// Deletes the conversation under the claim, unless a turn is open or about to be. Nothing of it stays in memory.
    pub(super) async fn delete(&mut self, order: DeleteOrder) -> Result<(), StoreError> {
        let DeleteOrder { by, left, reply } = order;
        let id = self.conversation.id.clone();
        let (Stage::Idle, true, Some(epoch)) = (self.stage(), self.inbox.is_empty(), self.epoch) else {
            // The caller may have gone away, here and below.
            drop(reply.send(Err(SendError::Busy { id, pending: self.pending_calls() })));
            return Ok(());
        };
        let services = self.runtime.services.clone();
        // What observers of this process are still to be told they write before the conversation goes, not after it.
        self.observers = None;
        let observed = async {
            tokio::select! {
                biased;
                () = self.conversation.observers_done() => {}
                () = services.clock.sleep(OBSERVERS_TIME) => {}
            }
        };
        self.renewing(observed).await;
        let at = services.clock.now();
        let deletion = Deletion { conversation: &id, epoch, by: &by, at, left: &left };
        if let Err(error) = services.store.delete(deletion).await {
            drop(reply.send(Err(SendError::from(error).or_busy())));
            return Ok(());
        }
        tracing::info!(conversation = %id, %by, "deleted");
        (self.epoch, self.loaded, self.scratch, self.deleted) = (None, None, None, true);
        self.done_items.clear();
        self.stored.clear();
        self.conversation.was_deleted(&by);
        drop(reply.send(Ok(())));
        Ok(())
    }
}
