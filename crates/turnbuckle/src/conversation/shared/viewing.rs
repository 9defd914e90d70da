//! What viewers of a conversation see: the feed, brought up to what is stored.

use std::sync::Arc;

use super::super::read_back::end_of_log;
use super::super::runtime::Runtime;
use super::Conversation;
use crate::event::{Event, share_repeated};
use crate::feed::Look;
use crate::store::StoreError;

impl Conversation {
    /// Brings the feed up to what is stored, unless a driver does that.
    pub(crate) async fn show_log(&self, runtime: &Runtime) -> Result<(), StoreError> {
        {
            let inner = self.lock();
            if inner.is_driving() && inner.shows_log {
                return Ok(());
            }
        }
        let store = &runtime.services.store;
        let log = match self.shows_log() {
            true => store.log(&self.id, self.feed.last_seq() + 1, usize::MAX).await?,
            false => end_of_log(&**store, &self.id, self.agent.read_ahead()).await?,
        };
        // Checked again under the lock: a driver that has claimed the conversation meanwhile shows newer events than these.
        let mut inner = self.lock();
        match (inner.is_driving(), inner.shows_log) {
            (true, true) => {}
            (false, true) => self.feed.catch_up(&log),
            (_, false) => {
                inner.shows_log = true;
                self.feed.begin_epoch(0, Some(&log));
            }
        }
        Ok(())
    }

    /// Brings the feed up to what is stored, and lets the caller see it. What the feed forgot is read again. It does not matter
    /// what is published meanwhile: what was forgotten is older, and does not change.
    pub(crate) async fn look(&self, runtime: &Runtime) -> Result<Look<'_>, StoreError> {
        let look = self.feed.look();
        self.show_log(runtime).await?;
        if let Some((from, most)) = look.forgotten() {
            let mut read = runtime.services.store.log(&self.id, from, most).await?;
            share_repeated(&mut read);
            look.take_back(&read);
        }
        Ok(look)
    }

    pub(crate) fn shows_log(&self) -> bool {
        self.lock().shows_log
    }

    /// A driver has claimed the conversation: from now on the feed shows what the driver writes. `log` replaces what the
    /// feed showed before, if that is not current. Under one lock, so that `show_log` sees all of it or nothing.
    pub(crate) fn begin_epoch(&self, epoch: u64, log: Option<&[Arc<Event>]>) {
        let mut inner = self.lock();
        inner.shows_log = true;
        self.feed.begin_epoch(epoch, log);
    }
}
