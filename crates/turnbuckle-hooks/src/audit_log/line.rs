//! Which events are decisions, and what is written of one.

use serde_json::{Value, json};
use turnbuckle::Timestamp;
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};

/// Whether an event is written: all log events, and the live events about what hooks decided or reported.
pub(super) fn is_decision(what: &FeedItem) -> bool {
    match what {
        FeedItem::Log(_) => true,
        FeedItem::Live(live) => matches!(
            live,
            LiveEvent::HookFinished { .. }
                | LiveEvent::AttemptDiscarded { .. }
                | LiveEvent::Notice { .. }
                | LiveEvent::Compacted { .. }
                | LiveEvent::BackgroundFinished { .. }
        ),
    }
}

/// Fields that may contain text of a user, a model or a tool. `reason` and `why` stay: they explain decisions.
const SAID: &[&str] = &["content", "arguments", "object", "annotations", "result", "feedback", "question", "schema"];

/// The line of an event: its JSON and a newline.
pub(super) fn of(told: &FeedEvent, content: bool) -> Vec<u8> {
    let mut value = serde_json::to_value(told).unwrap_or_else(|_| json!({"type": "unwritable", "at": told.at}));
    if !content {
        strip(&mut value);
    }
    ended(value)
}

/// A line that says how many events were lost before this moment.
pub(super) fn of_loss(count: u64, at: Timestamp) -> Vec<u8> {
    ended(json!({"type": "lost", "count": count, "at": at}))
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !SAID.contains(&key.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn ended(value: Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}
