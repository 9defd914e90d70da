//! `why --json`: each call as one JSON object, or where a text was.

use serde_json::{Map, Value, json};
use turnbuckle::context::Segment;
use turnbuckle::sent::event_contains;

use super::super::unprintable;
use super::data::{Call, Conversation};
use super::search::{Presence, Search};
use crate::Stopped;
use crate::show::json_line;

/// What a call was sent, and what had been left out. Tokens are estimates but for those in `usage`.
pub(super) fn call(call: &Call) -> Result<String, Stopped> {
    let sent = &call.sent;
    let segments: Map<String, Value> =
        Segment::ALL.into_iter().map(|segment| (segment.to_string(), call.segments[segment as usize].into())).collect();
    let summary = sent.summary.as_ref().map(|summary| {
        json!({ "version": summary.version, "turns": summary.turns, "model": summary.model, "tokens": sent.summary_tokens })
    });
    let cuts: Vec<_> = sent.cuts.iter().map(|cut| &**cut).collect();
    let line = json!({
        "turn": sent.turn, "call": sent.number, "reply": sent.reply, "model": sent.model,
        "messages": sent.messages, "events": call.events, "tokens": call.tokens(), "segments": segments,
        "earlier_turns": sent.turns, "summary": summary, "injected": injected(call), "cuts": cuts, "last_cut": sent.last_cut.as_deref(),
        "cache_breaks": call.breaks, "usage": sent.usage, "cost": sent.cost, "audited": call.audited.is_some(),
    });
    json_line(&line).map_err(unprintable)
}

/// What hooks added for the turn or the call, as far as it is stored.
pub(in crate::inspect) fn injected(call: &Call) -> Value {
    let injected = call.injected.iter().zip(&call.added);
    injected
        .map(|((hook, point, tokens), texts)| json!({ "hook": hook, "point": point, "tokens": tokens, "texts": texts }))
        .collect()
}

/// The events that have a text, and for each call whether it was sent.
pub(super) fn found(conversation: &Conversation, wanted: &str) -> Result<String, Stopped> {
    let events = conversation.log.iter().filter(|event| event_contains(event, wanted));
    let events = events.map(|event| json!({ "event": event.seq, "type": event.kind.name(), "turn": event.turn }));
    let mut search = Search::new(conversation, wanted);
    let calls = conversation.calls.iter().map(|call| {
        let presence = search.presence(call);
        let words = match presence {
            Presence::Sent => "sent",
            Presence::NotSent => "not_sent",
            Presence::Redacted
            | Presence::MayBeRedacted
            | Presence::Removed
            | Presence::NotRecorded
            | Presence::MayBeAdded => "unknown",
        };
        let mut line = json!({ "turn": call.sent.turn, "call": call.sent.number, "presence": words });
        if let Some((reason, _)) = presence.unknown() {
            line["reason"] = reason.into();
        }
        line
    });
    events.chain(calls).map(|line| json_line(&line).map_err(unprintable)).collect()
}
