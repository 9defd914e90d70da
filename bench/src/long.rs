//! Logs of any length without running their turns: one turn is run, and its events are written again and again.

use std::sync::Arc;

use turnbuckle::context::tokens;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::store::{Batch, Lease, Store, Totals};
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, CallId, ConversationId, Conversations, Scope, Timestamp, TurnId};

use crate::BoxError;

/// A turn to be repeated.
#[derive(Clone, Debug)]
pub struct Template {
    events: Vec<Arc<Event>>,
}

/// What was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Events of the log.
    pub events: u64,
}

impl Template {
    /// One turn of `agent`, with a message of so many bytes.
    pub async fn of(agent: &Agent, bytes: usize) -> Result<Self, BoxError> {
        let conversations = Conversations::builder(agent.clone(), MemoryStore::default()).build();
        let id = ConversationId::from("c");
        conversations.turn(&id, "lorem ipsum ".repeat(bytes / 12), Scope::local()).await?;
        Ok(Self { events: conversations.log(&id, Scope::local()).await? })
    }

    /// How many events it has.
    #[allow(clippy::len_without_is_empty, reason = "a turn has events")]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Fills the log of a new conversation with whole turns, at least so many events.
    pub async fn fill(&self, store: &dyn Store, id: &ConversationId, events: usize) -> Result<Written, BoxError> {
        let now = Timestamp::from_millis(1_769_860_800_000);
        store.open(id, Scope::local().actor(), now).await?;
        let claim = store.claim(id, &"bench".into(), now).await?;
        let (mut log, mut totals) = (Vec::with_capacity(events + self.events.len()), Totals::default());
        while log.len() < events {
            let turn = TurnId::from(format!("t_{}", log.len()));
            for event in &self.events {
                totals.tokens += tokens::of_event(event);
                if let EventKind::TurnEnded(ended) = &event.kind {
                    totals.model_calls += u64::from(ended.model_calls);
                }
                let mut event = Event { seq: log.len() as u64 + 1, turn: turn.clone(), ..(**event).clone() };
                rename(&mut event.kind, &turn);
                log.push(Arc::new(event));
            }
        }
        let batch = Batch::new(id, claim.epoch, 0);
        store.append(Batch { events: &log, totals: Some(totals), lease: Lease::Release, ..batch }).await?;
        Ok(Written { events: log.len() as u64 })
    }
}

/// Call ids are unique in a conversation.
fn rename(kind: &mut EventKind, turn: &TurnId) {
    match kind {
        EventKind::ToolCall { call, .. } | EventKind::ToolStarted { call, .. } | EventKind::ToolResult { call, .. } => {
            *call = CallId::from(format!("{call}_{turn}"));
        }
        _ => {}
    }
}
