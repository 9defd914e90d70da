//! Events by the names that people choose them by: their `type` in JSON.

use turnbuckle::live::{Live, Telling};

/// What may be chosen. Pieces of text are not: there are too many.
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

/// The event's name, if it may be chosen.
pub(super) fn of(what: &Telling) -> Option<&'static str> {
    Some(match what {
        Telling::Log(event) => event.kind.name(),
        Telling::Live(live) => match live {
            Live::Notice { .. } => "notice",
            Live::HookFinished { .. } => "hook_finished",
            Live::AttemptDiscarded { .. } => "attempt_discarded",
            Live::Suggestion { .. } => "suggestion",
            _ => return None,
        },
    })
}
