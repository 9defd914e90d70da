//! Events by the names that people choose them by: their `type` in JSON.

use turnbuckle::feed::{FeedItem, LiveEvent};

/// The events that may be chosen. Text deltas are not among them: there are too many.
pub(super) const NAMES: &[&str] = &[
    "user_message",
    "injection",
    "assistant_message",
    "tool_call",
    "tool_started",
    "tool_result",
    "suspension",
    "resolution",
    "stop_feedback",
    "turn_ended",
    "notice",
    "hook_finished",
    "attempt_discarded",
    "suggestion",
];

/// Those of them that are not in the log.
pub(super) const LIVE: &[&str] = &["notice", "hook_finished", "attempt_discarded", "suggestion"];

/// The type of an event, if it may be chosen.
pub(super) fn of(what: &FeedItem) -> Option<&'static str> {
    Some(match what {
        FeedItem::Log(event) => event.kind.name(),
        FeedItem::Live(live) => match live {
            LiveEvent::Notice { .. } => "notice",
            LiveEvent::HookFinished { .. } => "hook_finished",
            LiveEvent::AttemptDiscarded { .. } => "attempt_discarded",
            LiveEvent::Suggestion { .. } => "suggestion",
            _ => return None,
        },
    })
}
