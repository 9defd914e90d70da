//! What conversations without a title are called: the first words that a person said in them, read once and remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use turnbuckle::conversation::SendError;
use turnbuckle::event::EventKind;
use turnbuckle::store::ConversationSummary;
use turnbuckle::{ConversationId, Conversations, Scope, Timestamp};

use crate::page::opening;

/// How many conversations are remembered. Beyond that all are forgotten, and read again when they are asked for. A search reads up to a
/// quarter of them.
const REMEMBERED: usize = 16_384;
/// How many events are looked at: before the first message there are at most a few.
const FIRST_EVENTS: usize = 8;

/// What is known of first words.
#[derive(Debug, Default)]
pub(crate) struct FirstWords {
    /// With the time at which the conversation was opened: after a deletion, another one can have the id.
    known: Mutex<HashMap<ConversationId, (Timestamp, Arc<str>)>>,
}

impl FirstWords {
    /// The first words of a conversation, for a viewer whose own it is: a list does not show what others said. `None` if it has a
    /// title, or nothing was said.
    pub(crate) async fn of(
        &self,
        conversations: &Conversations,
        summary: &ConversationSummary,
        viewer: &Scope,
    ) -> Result<Option<Arc<str>>, SendError> {
        if summary.title.is_some() || summary.seq == 0 || !viewer.actor().is_same_user(&summary.owner) {
            return Ok(None);
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&summary.id).cloned();
        if let Some((_, words)) = known.filter(|(opened, _)| *opened == summary.opened) {
            return Ok(Some(words));
        }
        let end = FIRST_EVENTS as u64 + 1;
        let first = conversations.history(&summary.id, Some(end), FIRST_EVENTS, &Scope::system()).await?;
        let said = first.items.iter().find_map(|event| match &event.kind {
            EventKind::UserMessage { content, .. } => Some(opening(&content.text())),
            _ => None,
        });
        let Some(words) = said.filter(|words| !words.is_empty()).map(Arc::<str>::from) else { return Ok(None) };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(summary.id.clone(), (summary.opened, words.clone()));
        Ok(Some(words))
    }
}
