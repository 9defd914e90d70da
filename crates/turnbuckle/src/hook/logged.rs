//! What `on_logged` is given.

use crate::clock::Timestamp;
use crate::feed::FeedEvent;
use crate::message::Text;

/// A log event on its way to a hook, from the outbox.
#[derive(Clone, Debug)]
pub struct LoggedContext {
    pub(crate) event: FeedEvent,
    pub(crate) seq: u64,
    pub(crate) agent: Text,
    pub(crate) reminder: Option<u8>,
    pub(crate) tries: u32,
    pub(crate) now: Timestamp,
}

impl LoggedContext {
    /// The event, with its conversation and turn. Its cursor is that of `show --json`: no writer has the epoch 0.
    pub fn event(&self) -> &FeedEvent {
        &self.event
    }
    /// The agent's name.
    pub fn agent(&self) -> &str {
        &self.agent
    }
    /// For a reminder: how many percent of the question's time have passed.
    pub fn reminder(&self) -> Option<u8> {
        self.reminder
    }
    /// Which try this is, from 1.
    pub fn tries(&self) -> u32 {
        self.tries
    }
    /// When this try began.
    pub fn now(&self) -> Timestamp {
        self.now
    }
    /// The same for every try, in every process, and different for everything else: by it a receiver knows a repetition.
    pub fn key(&self) -> String {
        let turn = self.event.turn.as_ref().map_or("", |turn| turn.as_str());
        let reminder = self.reminder.map(|percent| format!("_{percent}")).unwrap_or_default();
        format!("{}_{turn}_{}{reminder}", self.event.conversation, self.seq)
    }
}
