//! Where the time of a turn went: a bar for each model call and tool, and a line for each time that the turn waited for someone.

use std::sync::Arc;

use serde::Serialize;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::{CallId, Timestamp};

use crate::show::{INDENT, clean, columns, name};

/// How wide names are, and bars at most.
const NAMES: usize = 24;
const WIDEST_BAR: usize = 60;
/// An end that took longer than this many milliseconds has a bar.
const END: u64 = 20;
/// The most lines: a turn of hundreds of calls is not read in bars.
const MOST: usize = 60;

/// What took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Model,
    Tool,
    /// Someone had to answer.
    Wait,
    /// Hooks at the end: a stop that they refused, or the end itself.
    Stop,
}

/// Something with a beginning and an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Span {
    pub(super) what: What,
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<CallId>,
    /// Since the turn began.
    pub(super) from_ms: u64,
    pub(super) ms: u64,
}

/// What took time in a turn, in the order in which it began. A model call begins where the event before its reply stands, so the
/// hooks around it are part of it.
pub(super) fn spans(events: &[Arc<Event>]) -> Vec<Span> {
    let Some(first) = events.first() else { return Vec::new() };
    let since = |at: Timestamp| u64::try_from(at.since(first.at).as_millis()).unwrap_or(u64::MAX);
    let (mut spans, mut open): (Vec<Span>, Vec<(CallId, u64)>) = (Vec::new(), Vec::new());
    let mut names: Vec<(CallId, String)> = Vec::new();
    let (mut before, mut calls) = (0, 0);
    for event in events {
        let now = since(event.at);
        let mut end = |what: What, call: &CallId, title: String| {
            if let Some(place) = open.iter().position(|(of, _)| of == call) {
                let (call, from_ms) = open.remove(place);
                spans.push(Span { what, name: title, call: Some(call), from_ms, ms: now.saturating_sub(from_ms) });
            }
        };
        let named = |call: &CallId| {
            let known = names.iter().rev().find(|(of, _)| of == call).map(|(_, tool)| tool.clone());
            known.unwrap_or_else(|| call.to_string())
        };
        match &event.kind {
            EventKind::AssistantMessage { .. } => {
                calls += 1;
                let ms = now.saturating_sub(before);
                spans.push(Span {
                    what: What::Model,
                    name: format!("model call {calls}"),
                    call: None,
                    from_ms: before,
                    ms,
                });
            }
            EventKind::ToolCall { call, name, .. } => names.push((call.clone(), name.to_string())),
            EventKind::ToolStarted { call, .. } | EventKind::Suspension { call, .. } => open.push((call.clone(), now)),
            EventKind::ToolResult { call, .. } => end(What::Tool, call, named(call)),
            EventKind::Resolution { call, evidence, .. } if !evidence.open => end(What::Wait, call, named(call)),
            EventKind::StopFeedback { .. } => {
                let ms = now.saturating_sub(before);
                spans.push(Span { what: What::Stop, name: "stop refused".to_owned(), call: None, from_ms: before, ms });
            }
            // Most ends take no time worth a line.
            EventKind::TurnEnded(_) if now > before + END => {
                let ms = now.saturating_sub(before);
                spans.push(Span { what: What::Stop, name: "end".to_owned(), call: None, from_ms: before, ms });
            }
            _ => {}
        }
        before = now;
    }
    spans.sort_by_key(|span| span.from_ms);
    spans
}

/// Bars in at most `width` columns. Time in which the turn waited is left out of the scale.
pub(super) fn bars(spans: &[Span], width: usize) -> String {
    let waits: Vec<(u64, u64)> = spans
        .iter()
        .filter(|span| span.what == What::Wait)
        .map(|span| (span.from_ms, span.from_ms + span.ms))
        .collect();
    let worked = |at: u64| at.saturating_sub(waited_before(&waits, at));
    let end = spans.iter().map(|span| worked(span.from_ms + span.ms)).max().unwrap_or_default().max(1);
    let room = width.saturating_sub(INDENT + NAMES + 10).clamp(8, WIDEST_BAR);
    let cell = |at: u64| usize::try_from(at.saturating_mul(room as u64) / end).unwrap_or(room).min(room);
    let mut text = String::new();
    for (span, label) in spans.iter().take(MOST).zip(std::iter::once("time").chain(std::iter::repeat(""))) {
        let (title, took) = (padded(&name(&clean(&span.name))), duration(span.ms));
        let line = match span.what {
            What::Wait => format!("{label:<INDENT$}{title}waited {took}"),
            What::Model | What::Tool | What::Stop => {
                let from = cell(worked(span.from_ms)).min(room - 1);
                let length = cell(worked(span.from_ms + span.ms)).saturating_sub(from).max(1);
                let mark = match span.what {
                    What::Model => "█",
                    What::Tool => "▒",
                    What::Stop | What::Wait => "░",
                };
                let bar = mark.repeat(length);
                let rest = " ".repeat(room - from - length);
                format!("{label:<INDENT$}{title}{}{bar}{rest} {took:>8}", " ".repeat(from))
            }
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if spans.len() > MOST {
        text.push_str(&format!("{}… {} more\n", " ".repeat(INDENT), spans.len() - MOST));
    }
    text
}

/// How much of the time before `at` was waiting. Waits may overlap.
fn waited_before(waits: &[(u64, u64)], at: u64) -> u64 {
    let (mut total, mut until) = (0, 0);
    for (from, to) in waits {
        let (from, to) = ((*from).max(until), (*to).min(at));
        if to > from {
            total += to - from;
            until = to;
        }
    }
    total
}

fn padded(text: &str) -> String {
    let (mut cut, mut used) = (String::new(), 0);
    for ch in text.chars() {
        if used + columns(ch) >= NAMES - 1 {
            cut.push('…');
            used += 1;
            break;
        }
        cut.push(ch);
        used += columns(ch);
    }
    cut + &" ".repeat(NAMES - used)
}

fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        60_000..3_600_000 => format!("{} min", ms / 60_000),
        _ => format!("{:.1} h", ms as f64 / 3_600_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(what: What, name: &str, from_ms: u64, ms: u64) -> Span {
        Span { what, name: name.to_owned(), call: None, from_ms, ms }
    }

    #[test]
    fn bars_stand_where_their_time_was_and_waiting_takes_no_room() {
        let hour = 3_600_000;
        let spans = [
            span(What::Model, "model call 1", 0, 500),
            span(What::Wait, "edit_file", 500, hour),
            span(What::Tool, "edit_file", 500 + hour, 500),
        ];
        let expected = "\
time      model call 1            ██████         500 ms
          edit_file               waited 1.0 h
          edit_file                     ▒▒▒▒▒▒   500 ms
";
        assert_eq!(bars(&spans, INDENT + NAMES + 10 + 12), expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_a_short_call_is_seen() {
        let long = "日本語".repeat(20);
        let spans = [span(What::Model, &long, 0, 1_000_000), span(What::Tool, "x", 1_000_000, 0)];
        for width in [40, 60, 80, 200] {
            let text = bars(&spans, width);
            let widest = text.lines().map(|line| line.chars().map(columns).sum::<usize>()).max();
            assert!(widest.unwrap() <= width.max(INDENT + NAMES + 8 + 10), "{width}\n{text}");
            assert!(text.lines().nth(1).unwrap().contains('▒'));
        }
    }
}
