//! Turns as text, for the model that makes a summary.

use std::sync::Arc;

use super::kept::fitting;
use crate::context::tokens;
use crate::event::{Event, EventKind, Executor};

/// How much of a call's arguments is written, in bytes.
const ARGUMENTS: usize = 400;
/// How much of the beginning and of the end of a result is written, in bytes.
const RESULT: (usize, usize) = (600, 200);
/// How much of a reply is written at most, in bytes. What users say is written whole: beside the summary there is room for a
/// part of it only.
const REPLY: usize = 8_000;
/// Stands before what is left of an event whose beginning is in the piece before.
const CONTINUED: &str = "(continued) ";

/// A part of a log as text.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub(super) text: String,
    /// How many turns begin in it.
    pub(super) turns: u32,
}

impl Transcript {
    pub(super) fn of(events: &[Arc<Event>]) -> Self {
        let mut whole = Self::default();
        for event in events {
            whole.add(event);
        }
        whole
    }

    fn add(&mut self, event: &Event) {
        self.begin(event);
        if let Some(line) = line(event) {
            self.push(&line);
        }
    }

    fn begin(&mut self, event: &Event) {
        if matches!(event.kind, EventKind::UserMessage { .. }) {
            self.turns += 1;
        }
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// A log as pieces of at most `most` tokens each, cut between events; never none. An event that is larger is cut itself, and goes
/// on in the next piece.
pub(super) fn transcripts(events: &[Arc<Event>], most: u64) -> Vec<Transcript> {
    let (mut pieces, mut piece, mut size) = (Vec::new(), Transcript::default(), 0);
    for event in events {
        let line = line(event);
        let mut added = line.as_ref().map_or(0, |line| tokens::of_text(line) + 1);
        if size + added > most && size > 0 {
            pieces.push(std::mem::take(&mut piece));
            size = 0;
        }
        piece.begin(event);
        let Some(mut line) = line else { continue };
        while added > most {
            let end = end_of_piece(&line, most);
            let rest = format!("{CONTINUED}{}", &line[end..]);
            // A piece in which not even the note has room.
            if rest.len() >= line.len() {
                break;
            }
            piece.push(&line[..end]);
            pieces.push(std::mem::take(&mut piece));
            line = rest;
            added = tokens::of_text(&line) + 1;
        }
        piece.push(&line);
        size += added;
    }
    if !piece.text.is_empty() || pieces.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// How much of a line fits, in bytes: up to the end of a word, so that no name and no number is cut in two.
fn end_of_piece(line: &str, most: u64) -> usize {
    let end = fitting(line, most.saturating_sub(1));
    match line[..end].rfind(char::is_whitespace) {
        Some(space) if space > end / 2 => line.ceil_char_boundary(space + 1),
        _ => end,
    }
}

fn line(event: &Event) -> Option<String> {
    Some(match &event.kind {
        EventKind::UserMessage { content, .. } => format!("user: {}", content.text()),
        EventKind::AssistantMessage { content, .. } => {
            let text = content.text();
            if text.trim().is_empty() {
                return None;
            }
            format!("assistant: {}", ends(&text, REPLY, 0))
        }
        EventKind::ToolCall { executor: Executor::Provider, .. } => return None,
        EventKind::ToolCall { name, arguments, .. } => {
            format!("call {name}: {}", ends(&arguments.to_string(), ARGUMENTS, 0))
        }
        EventKind::ToolResult { ok, content, .. } => {
            let failed = if *ok { "" } else { " (failed)" };
            format!("result{failed}: {}", ends(&content.text(), RESULT.0, RESULT.1))
        }
        EventKind::Injection { hook, content, .. } => {
            format!("note by {hook}: {}", ends(&content.text(), RESULT.0, 0))
        }
        EventKind::StopFeedback { refusals } => {
            let said: Vec<String> = refusals.iter().map(|one| format!("{}: {}", one.hook, one.feedback)).collect();
            format!("not done yet, said {}", ends(&said.join("; "), RESULT.0, 0))
        }
        EventKind::TurnEnded(ended) => match ended.reason() {
            Some(reason) => format!("turn {}: {reason}", ended.outcome),
            None => return None,
        },
        _ => return None,
    })
}

/// The beginning and the end of a text.
fn ends(text: &str, head: usize, tail: usize) -> String {
    if text.len() <= head + tail {
        return text.to_owned();
    }
    let begin = &text[..text.floor_char_boundary(head)];
    let end = &text[text.ceil_char_boundary(text.len() - tail)..];
    let missing = text.len() - begin.len() - end.len();
    format!("{begin} … [{missing} bytes] … {end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::scope::Author;

    fn said(seq: u64, text: &str) -> Arc<Event> {
        let kind = EventKind::UserMessage { content: text.into(), by: Author::User("ann".into()) };
        Arc::new(Event { seq, turn: format!("t_{seq}").as_str().into(), at: Timestamp::from_millis(0), kind })
    }

    #[test]
    fn what_a_user_said_is_written_whole_in_as_many_pieces_as_it_needs() {
        let words: Vec<String> = (0..5_000).map(|n| format!("w{n}")).collect();
        let events = [said(1, "hello"), said(2, &words.join(" ")), said(3, "and now?")];
        for most in [200, 1_000, 50_000] {
            let pieces = transcripts(&events, most);
            assert!(pieces.iter().all(|piece| tokens::of_text(&piece.text) <= most + 1), "{most}");
            assert_eq!(pieces.iter().map(|piece| piece.turns).sum::<u32>(), 3);
            let text: Vec<&str> = pieces.iter().map(|piece| piece.text.as_str()).collect();
            let text = text.concat().replace(CONTINUED, "");
            let found: Vec<&str> = text.split_whitespace().filter(|word| word.starts_with('w')).collect();
            assert_eq!(found, words, "{most}");
        }
        assert!(Transcript::of(&events).text.contains("w4999"));
        assert_eq!(transcripts(&[], 200).len(), 1);
    }
}
