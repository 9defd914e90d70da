//! What an event changes that no view has: the messages that wait, and how many questions wait for whom.

use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::projection::Projection;

use crate::waits::Waiting;
use crate::wire::{LiveQuestionChange, PendingView};

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

/// A live question that came or went. No event of the log says so.
#[derive(Clone, Copy)]
pub(super) enum QuestionChange<'a> {
    Came(&'a Waiting),
    Gone(&'a Waiting),
}

impl QuestionChange<'_> {
    /// What viewers are told: it is something that the call does meanwhile. `None` for a question that is stored.
    pub(super) fn told(self) -> Option<LiveEvent> {
        let (Self::Came(waiting) | Self::Gone(waiting)) = self;
        let call = waiting.live.as_ref()?.call.clone();
        let payload = match self {
            Self::Came(_) => serde_json::to_value(LiveQuestionChange::Asked(PendingView::of(waiting))),
            Self::Gone(_) => serde_json::to_value(LiveQuestionChange::Closed(waiting.pending.call.clone())),
        };
        match payload {
            Ok(payload) => Some(LiveEvent::ToolProgress { call, payload: payload.into() }),
            Err(error) => {
                tracing::error!(%error, "a live question could not be written as JSON");
                None
            }
        }
    }
}
