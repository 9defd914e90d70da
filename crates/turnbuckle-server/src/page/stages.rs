//! The stages of a turn, as its log tells them: a stage ends with the event that it writes.

use std::sync::Arc;

use turnbuckle::Timestamp;
use turnbuckle::event::{Event, EventKind};

/// The stage in which the model is called.
pub(super) const CALL: &str = "build, call";
/// The stage in which tools run.
pub(super) const DISPATCH: &str = "dispatch";
/// The stage in which hooks judge whether the turn may end.
pub(super) const END: &str = "end";

/// A stage with its beginning and its end, in milliseconds since the turn began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// The stages, in order. `since` says when something was. What `build` took is not told apart from the call behind it.
pub(super) fn stages(events: &[Arc<Event>], since: impl Fn(Timestamp) -> f64) -> Vec<Stage> {
    let (mut stages, mut from): (Vec<Stage>, f64) = (Vec::new(), 0.0);
    let mut is_accepted = false;
    for event in events {
        let now = since(event.at);
        let name = match &event.kind {
            EventKind::UserMessage { .. } if !is_accepted => {
                is_accepted = true;
                "accept"
            }
            EventKind::AssistantMessage { .. } => CALL,
            EventKind::ToolCall { .. }
            | EventKind::ToolStarted { .. }
            | EventKind::ToolResult { .. }
            | EventKind::Suspension { .. }
            | EventKind::Resolution { .. } => DISPATCH,
            EventKind::StopFeedback { .. } | EventKind::TurnEnded(_) => END,
            // A message that steers, and context that is added, stand within a stage.
            _ => continue,
        };
        match stages.last_mut().filter(|last| last.name == DISPATCH && name == DISPATCH) {
            Some(last) => last.to = now,
            None => stages.push(Stage { name, from, to: now }),
        }
        from = now;
    }
    stages
}
