//! What an event changes that no view has: the messages that wait, and how many questions wait for whom.

use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::projection::Projection;

/// Whether more or less waits for an answer behind an event than before it.
pub(super) fn changes_questions(event: &FeedEvent, before: &Projection) -> bool {
    match &event.item {
        FeedItem::Log(logged) => match logged.kind {
            EventKind::Suspension { .. } | EventKind::Resolution { .. } => true,
            EventKind::TurnEnded(_) => before.pending.iter().next().is_some(),
            _ => false,
        },
        FeedItem::Live(_) => false,
    }
}

/// Whether a message that waited may wait no longer.
pub(super) fn takes_from_queue(event: &FeedEvent) -> bool {
    match &event.item {
        FeedItem::Log(logged) => matches!(logged.kind, EventKind::UserMessage { .. } | EventKind::TurnEnded(_)),
        FeedItem::Live(live) => matches!(live, LiveEvent::TurnStarted { .. }),
    }
}
