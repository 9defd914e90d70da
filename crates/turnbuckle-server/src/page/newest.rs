//! How much of a conversation its page shows at once.

use std::sync::Arc;

use turnbuckle::event::{Event, EventKind};
use turnbuckle::message::{Content, Part};

use super::card::MOST_RESULT;

/// How many bytes of text a page begins with: that many are loaded, compressed, in a moment by a phone.
const MOST_AT_ONCE: usize = 192 * 1024;
/// What an event takes beside its text.
const BESIDE: usize = 512;

/// The newest events that a page begins with: whole turns, the last one whatever its size, and all of the turn that is open, because what it
/// asks may stand at its beginning. A page that is fetched again keeps what it had, from the event `since` on.
pub(super) fn newest(events: &[Arc<Event>], since: Option<u64>) -> &[Arc<Event>] {
    let ends = |event: &Arc<Event>| matches!(event.kind, EventKind::TurnEnded(_));
    let open = events.iter().rposition(ends).map_or(0, |end| end + 1);
    let (mut from, mut bytes) = (events.len(), 0);
    for (place, event) in events.iter().enumerate().rev() {
        bytes += size(event);
        if bytes > MOST_AT_ONCE && from < events.len() && from <= open {
            break;
        }
        if place == 0 || events.get(place - 1).is_none_or(|before| before.turn != event.turn) {
            from = place;
        }
    }
    let kept = since.map_or(from, |since| events.partition_point(|event| event.seq < since));
    events.get(from.min(kept)..).unwrap_or_default()
}

/// About how much of an event is shown.
fn size(event: &Event) -> usize {
    let of = |content: &Content| -> usize {
        let texts = content.parts().iter().map(|part| match part {
            Part::Text { text } => text.len(),
            Part::Thinking(thought) => thought.text.len(),
            _ => 0,
        });
        texts.sum()
    };
    BESIDE
        + match &event.kind {
            EventKind::UserMessage { content, .. }
            | EventKind::AssistantMessage { content, .. }
            | EventKind::Injection { content, .. } => of(content),
            EventKind::ToolResult { content, .. } => of(content).min(MOST_RESULT),
            EventKind::ToolCall { arguments, .. } => arguments.value().to_string().len(),
            _ => 0,
        }
}
