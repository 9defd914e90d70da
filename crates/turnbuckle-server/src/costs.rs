//! What conversations cost so far: added up from the ends of their turns, and remembered.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use turnbuckle::conversation::SendError;
use turnbuckle::event::EventKind;
use turnbuckle::store::ConversationSummary;
use turnbuckle::{ConversationId, Conversations, Scope};

/// How many conversations are remembered. Beyond that all are forgotten, and added up again when they are asked for.
const REMEMBERED: usize = 4_096;
/// How many events are read at once.
const AT_ONCE: usize = 512;

/// What is known of costs.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    known: Mutex<HashMap<ConversationId, Known>>,
}

/// The sum of all turns that ended up to an event.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    seq: u64,
    dollars: f64,
}

impl Costs {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the turns of a conversation cost; `None` if no price is known. Only what was written since the last time is read.
    pub(crate) async fn of(
        &self,
        conversations: &Conversations,
        summary: &ConversationSummary,
    ) -> Result<Option<f64>, SendError> {
        let mut known = self.lock().get(&summary.id).copied().unwrap_or_default();
        if known.seq > summary.seq {
            // Another conversation of this id.
            known = Known::default();
        }
        if known.seq < summary.seq {
            let (mut before, mut added) = (None, 0.0);
            'reading: loop {
                let page = conversations.history(&summary.id, before, AT_ONCE, &Scope::system()).await?;
                for event in page.items.iter().rev() {
                    if event.seq <= known.seq {
                        break 'reading;
                    }
                    // What came after the summary is counted the next time.
                    if let EventKind::TurnEnded(ended) = &event.kind
                        && event.seq <= summary.seq
                    {
                        added += ended.cost;
                    }
                }
                before = page.items.first().map(|event| event.seq);
                if !page.more || before.is_none() {
                    break;
                }
            }
            known = Known { seq: summary.seq, dollars: known.dollars + added };
            let mut all = self.lock();
            if all.len() >= REMEMBERED {
                all.clear();
            }
            all.insert(summary.id.clone(), known);
        }
        Ok((known.dollars > 0.0).then_some(known.dollars))
    }
}
