//! Numbers, times and states in words.

use std::time::Duration;

use maud::{Markup, html};
use turnbuckle::Timestamp;
use turnbuckle::feed::ConversationState;

use super::safe::Shown;

/// The most characters of first words.
const OPENING: usize = 60;

/// A moment: hour and minute in the page, the rest when pointed at. The script shows it in the reader's own time.
pub(super) fn time(at: Timestamp) -> Markup {
    let stamp = at.to_string();
    html! { time.soft datetime=(stamp) title=(stamp) { (stamp.get(11..16).unwrap_or_default()) } }
}

/// How long ago something was, or how long it is until then.
pub(super) fn age(at: Timestamp, now: Timestamp) -> Markup {
    let stamp = at.to_string();
    let words = match at > now {
        true => format!("in {}", rough(at.since(now))),
        false => format!("{} ago", rough(now.since(at))),
    };
    html! { time datetime=(stamp) title=(stamp) data-age { (words) } }
}

fn rough(time: Duration) -> String {
    match time.as_secs() {
        0..90 => format!("{} s", time.as_secs()),
        90..5_400 => format!("{} min", (time.as_secs() + 30) / 60),
        5_400..129_600 => format!("{} h", (time.as_secs() + 1_800) / 3_600),
        seconds => format!("{} d", (seconds + 43_200) / 86_400),
    }
}

/// What a hook said, as it said it: in the words of a compiler, spaces and signs mean something.
pub(super) fn verbatim(text: &str) -> Markup {
    let text = text.trim_matches('\n');
    html! {
        @if text.contains('\n') { pre.verbatim { (Shown(text)) } }
        @else { p.verbatim { (Shown(text)) } }
    }
}

/// The first words of a text, on one line.
pub(crate) fn opening(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() > OPENING {
            // A first word without an end is cut.
            line.extend(word.chars().take(if line.is_empty() { OPENING } else { 0 }));
            return line.trim_end().to_owned() + "…";
        }
        line.push_str(word);
        line.push(' ');
    }
    line.trim_end().to_owned()
}

pub(super) fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 60_000.0 => format!("{:.1} s", ms / 1_000.0),
        ms if ms < 3_600_000.0 => format!("{:.0} min", ms / 60_000.0),
        ms => format!("{:.1} h", ms / 3_600_000.0),
    }
}

pub(super) fn bytes(count: usize) -> String {
    match count {
        0..1_024 => format!("{count} bytes"),
        1_024..1_048_576 => format!("{:.1} KB", count as f64 / 1_024.0),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}

pub(super) fn dollars(cost: f64) -> String {
    if cost >= 1.0 { format!("${cost:.2}") } else { format!("${cost:.4}") }
}

pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What a conversation is doing.
pub(super) fn state(state: ConversationState) -> &'static str {
    match state {
        ConversationState::Idle => "Ready",
        ConversationState::Waiting => "Waiting for an answer",
        ConversationState::Accept => "Taking up the message",
        ConversationState::Build => "Preparing the model call",
        ConversationState::Call => "The model answers",
        ConversationState::Dispatch => "Tools run",
        ConversationState::End => "Hooks judge the answer",
    }
}
