//! `why --find TEXT`: in which calls a text was sent, and what took it out.

use std::fmt::Write as _;

use serde_json::Value;
use turnbuckle::sent::{event_contains, json_contains};

use super::data::{Call, Conversation};
use super::search::{Presence, Search};

pub(super) fn find(conversation: &Conversation, wanted: &str) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for event in conversation.log.iter().filter(|event| event_contains(event, wanted)) {
        let _ = writeln!(text, "log       event {}, {} in turn {}", event.seq, event.kind.name(), event.turn);
    }
    if text.is_empty() {
        let _ = writeln!(text, "log       no event has this text");
    }
    for summary in conversation.summaries.iter().filter(|summary| summary.shown.contains(wanted)) {
        let _ = writeln!(text, "summary   version {} has it", summary.version);
    }
    let mut search = Search::new(conversation, wanted);
    let calls: Vec<(Presence, &Call)> = conversation.calls.iter().map(|call| (search.presence(call), call)).collect();
    let mut before: Option<&Call> = None;
    for run in calls.chunk_by(|one, other| one.0 == other.0) {
        let (Some((presence, first)), Some((_, last))) = (run.first(), run.last()) else { continue };
        let taken_out = || before.map(|before| taken_out(conversation, before, first, wanted));
        let range = if run.len() == 1 { first.name() } else { format!("{} to {}", first.name(), last.name()) };
        let (what, why) = match presence {
            Presence::Sent => ("sent in", None),
            Presence::NotSent => ("not in", taken_out()),
            Presence::MayBeRedacted => {
                let caution = presence.unknown().map(|(_, why)| why.to_owned());
                let why: Vec<String> = taken_out().into_iter().chain(caution).collect();
                ("not found", Some(why.join("\n          ")))
            }
            Presence::Redacted | Presence::Removed | Presence::NotRecorded | Presence::MayBeAdded => {
                ("unknown", presence.unknown().map(|(_, why)| why.to_owned()))
            }
        };
        let calls = if run.len() == 1 { "call" } else { "calls" };
        let _ = writeln!(text, "{what:<9} {range} ({} {calls})", run.len());
        if let Some(why) = why {
            let _ = writeln!(text, "          {why}");
        }
        // Nothing takes out what is not there.
        before = Some(*last).filter(|_| !matches!(presence, Presence::NotSent | Presence::MayBeRedacted));
    }
    if calls.is_empty() {
        let _ = writeln!(text, "no model call has a reply in the log");
    }
    for attempt in conversation.attempts.iter().filter(|one| search.is_in(&one.audited)) {
        let _ = writeln!(text, "sent in   {}: {}", attempt.name(), attempt.fate());
    }
    for (place, call) in conversation.summary_calls.iter().enumerate() {
        if search.is_in(call) {
            let version = call.summary.unwrap_or_default();
            let _ = writeln!(text, "sent in   summary.{}, to make version {version} of the summary", place + 1);
        }
    }
    if let Some(not_known) = conversation.not_known(conversation.calls.iter()) {
        let _ = writeln!(text, "not known: {not_known}");
    }
    text
}

/// What took a text out that was in the call before this one.
fn taken_out(conversation: &Conversation, before: &Call, call: &Call, wanted: &str) -> String {
    if !before.sent.found.is_sent() {
        return not_of_the_log(conversation, before, call, wanted);
    }
    let turn = &before.sent.turn;
    let outcome = conversation.end_of(turn).map(|ended| ended.outcome);
    let is_of_turn = turn != &call.sent.turn && !before.sent.found.in_history;
    if let Some(outcome) = outcome.filter(|outcome| is_of_turn && !outcome.joins_history()) {
        return format!("turn {turn} ended {outcome}, and such a turn adds nothing to later contexts");
    }
    if let Some(cut) = call.sent.cuts.last().filter(|_| !call.sent.found.is_sent()) {
        return format!("taken out by the cut before {}: {}", call.name(), cut.summary());
    }
    let hook = call.breaks.iter().map(|found| found.summary()).next();
    hook.map_or_else(
        || "what took it out is not known".to_owned(),
        |found| format!("the request changed in the {found}"),
    )
}

/// What took a text out that no event and no summary had: a cut cannot have done it.
fn not_of_the_log(conversation: &Conversation, before: &Call, call: &Call, wanted: &str) -> String {
    let body = |call: &Call| call.audited.as_ref().map(|audited| audited.request(&conversation.contents).body);
    let request = body(before).unwrap_or_default();
    for (part, name) in [("system", "the system prompt"), ("tools", "the tools"), ("schema", "the schema")] {
        if json_contains(&request[part], wanted) {
            return format!("it was in {name}, which changed before {}", call.name());
        }
    }
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |message: &Value| json_contains(message, wanted);
    for (place, note) in messages.iter().enumerate().filter(|(_, message)| message["role"] == "note") {
        let Some(by) = note["content"][0]["text"].as_str().and_then(sent_back_by) else { continue };
        if has(note) {
            return format!("it was what {by} said of a reply that it sent back: only the next attempt is told");
        }
        if place.checked_sub(1).is_some_and(|reply| has(&messages[reply])) {
            return format!("it was in a reply that {by} sent back: only the next attempt is shown that");
        }
    }
    let hooks: Vec<&str> = before.injected.iter().map(|(hook, _, _)| &**hook).collect();
    let whose = if hooks.is_empty() { "it".to_owned() } else { format!("what {}", hooks.join(", ")) };
    let added = if hooks.is_empty() { "was added" } else { "had added" };
    match before.sent.turn == call.sent.turn {
        true => format!("{whose} {added} for one call only"),
        false => {
            format!("turn {} is over, and {whose} {added} for that turn or one of its calls only", before.sent.turn)
        }
    }
}

/// The hook that sent a reply back, if this is the note about it.
fn sent_back_by(note: &str) -> Option<&str> {
    Some(note.strip_prefix("[this reply was sent back by ")?.split_once(']')?.0)
}
