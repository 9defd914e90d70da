//! Where things stand in a context, for the provider's prompt cache:
//! `system · history │ user message · turn's injections │ this turn's calls and results │ this call's injections`.

use std::sync::Arc;

use crate::event::{Event, EventKind, Outcome, Place};
use crate::id::{CallId, TurnId};
use crate::message::{Content, Message, Part, Text, ToolCall};
use crate::model::{SegmentEnd, Segments};
use crate::store::Regeneration;

/// What the next turn's model sees of a turn that somebody stopped.
const INTERRUPTED: &str = "[interrupted]";

/// What stands in a context and not in the log.
#[derive(Default)]
pub(crate) struct Beyond<'a> {
    /// The open turn, and what hooks added to it for this turn only.
    pub(crate) turn: Option<(&'a TurnId, &'a [Part])>,
    /// The discarded reply and the feedback on it, at the tail.
    pub(crate) regeneration: Option<&'a Regeneration>,
}

/// The messages that a log makes.
pub(crate) fn messages(log: &[Arc<Event>], beyond: &Beyond<'_>) -> Vec<Message> {
    laid_out(log, beyond).0
}

/// The messages that a log makes, and where their segments end.
pub(crate) fn laid_out(log: &[Arc<Event>], beyond: &Beyond<'_>) -> (Vec<Message>, Segments) {
    let mut page = Page { messages: Vec::with_capacity(log.len()), ..Page::default() };
    for event in log {
        page.write(event, beyond);
    }
    page.finish_results();
    let segments = page.segments();
    if let Some(again) = beyond.regeneration {
        page.messages.push(Message::Assistant { content: again.discarded.clone(), calls: Vec::new() });
        let text = format!("[this reply was sent back by {}] {}", again.hook, again.feedback);
        page.messages.push(Message::Note(text.into()));
    }
    (page.messages, segments)
}

/// Adds content at the very tail.
pub(crate) fn add_at_tail(messages: &mut Vec<Message>, parts: &[Part]) {
    match messages.last_mut() {
        Some(Message::User(content)) => *content = content.followed_by(parts),
        _ => messages.push(Message::Note(parts.iter().cloned().collect())),
    }
}

type OpenResult = (CallId, Text, Option<(bool, Content)>);

#[derive(Default)]
struct Page {
    messages: Vec<Message>,
    /// Injections for the turn after the one they were made in.
    for_next: Vec<Part>,
    /// Calls of the last reply, in order, with their results.
    results: Vec<OpenResult>,
    /// Where the message that opened the present turn stands.
    opening: Option<usize>,
}

impl Page {
    fn write(&mut self, event: &Event, beyond: &Beyond<'_>) {
        match &event.kind {
            EventKind::UserMessage { content, .. } => {
                self.finish_results();
                let mine = beyond.turn.filter(|(turn, _)| **turn == event.turn).map(|(_, parts)| parts);
                if mine.is_some() {
                    self.opening = Some(self.messages.len());
                }
                self.user(content, mine.unwrap_or_default());
            }
            EventKind::Injection { content, place: Place::NextTurn, .. } => {
                self.for_next.extend_from_slice(content.parts());
            }
            EventKind::Injection { content, .. } => add_at_tail(&mut self.messages, content.parts()),
            EventKind::AssistantMessage { content, .. } => {
                self.finish_results();
                self.messages.push(Message::Assistant { content: content.clone(), calls: Vec::new() });
            }
            EventKind::ToolCall { call, name, arguments, .. } => self.call(call, name, arguments),
            EventKind::ToolResult { call, ok, content } => {
                if let Some(open) = self.results.iter_mut().find(|open| open.0 == *call) {
                    open.2 = Some((*ok, content.clone()));
                }
            }
            EventKind::StopFeedback { refusals } => {
                self.finish_results();
                let lines = refusals
                    .iter()
                    .map(|refusal| Part::text(format!("[not done yet, says {}] {}\n", refusal.hook, refusal.feedback)));
                self.messages.push(Message::Note(lines.collect()));
            }
            EventKind::TurnEnded(ended) => {
                self.finish_results();
                if ended.outcome == Outcome::Cancelled {
                    self.messages.push(Message::Note(INTERRUPTED.into()));
                }
            }
            EventKind::ToolStarted { .. } | EventKind::Suspension { .. } | EventKind::Resolution { .. } => {}
        }
    }

    fn segments(&self) -> Segments {
        let opening = self.opening.unwrap_or(self.messages.len());
        Segments {
            history: SegmentEnd::behind(&self.messages[..opening]),
            opening: SegmentEnd::behind(&self.messages[..self.messages.len().min(opening + 1)]),
            calls: SegmentEnd::behind(&self.messages),
        }
    }

    fn user(&mut self, content: &Content, injected: &[Part]) {
        let parts = std::mem::take(&mut self.for_next);
        let content = match (parts.is_empty(), injected.is_empty()) {
            (true, true) => content.clone(),
            _ => content.parts().iter().cloned().chain(parts).chain(injected.iter().cloned()).collect(),
        };
        self.messages.push(Message::User(content));
    }

    fn call(&mut self, call: &CallId, name: &Text, arguments: &Arc<serde_json::Value>) {
        if let Some(Message::Assistant { calls, .. }) = self.messages.last_mut() {
            calls.push(ToolCall { call: call.clone(), name: name.clone(), arguments: arguments.clone() });
            self.results.push((call.clone(), name.clone(), None));
        }
    }

    /// Results stand in call order, however they came.
    fn finish_results(&mut self) {
        for (call, name, result) in self.results.drain(..) {
            let (ok, content) = result.unwrap_or_else(|| (false, "[no result]".into()));
            self.messages.push(Message::Result { call, name, ok, content });
        }
    }
}
