//! Where things stand in a context, for the provider's prompt cache:
//! `system · history │ user message · turn's injections │ this turn's calls and results │ this call's injections`.

use std::sync::Arc;

use super::prefix::{MeasuredMessages, PrefixMeasure};
use crate::cache_break::SegmentMark;
use crate::call_map::CallMap;
use crate::cut::LeftOutSteps;
use crate::cut::steps::has_note_at;
use crate::event::{Event, EventKind, Executor, InjectionTarget, Outcome};
use crate::id::{CallId, TurnId};
use crate::message::{Content, Message, Part, Text, ToolCall};
use crate::model::{Request, SegmentEnd, Segments};
use crate::store::Regeneration;
use crate::summary::Summary;

/// What the next turn's model sees of a turn that was cancelled.
const INTERRUPTED: &str = "[interrupted]";

/// Messages that a new cache has room for.
const INITIAL_CAPACITY: usize = 8;

/// What stands in a context and not in the log.
#[derive(Default)]
pub(crate) struct Overlay<'a> {
    /// The open turn, and what hooks added to it for this turn only.
    pub(crate) turn: Option<(&'a TurnId, &'a [Part])>,
    /// What hooks added behind messages that steered the open turn, each part with the seq of its message.
    pub(crate) steering: &'a [(u64, Part)],
    /// The discarded reply and the feedback on it, at the tail.
    pub(crate) regeneration: Option<&'a Regeneration>,
    /// What stands before the history, in the place of older turns.
    pub(crate) summary: Option<&'a Arc<Summary>>,
    /// Steps that are left out, with a note in their place.
    pub(crate) left_out: &'a [LeftOutSteps],
}

/// A summary as contexts have it: nobody's words in the conversation, so a note.
pub(crate) fn summary_message(summary: &Summary) -> Message {
    Message::Note(Part::text(&*summary.shown).into())
}

/// The messages that a log makes.
pub(crate) fn messages(log: &[Arc<Event>], overlay: &Overlay<'_>) -> Arc<Vec<Message>> {
    ContextCache::default().show(log, 0, overlay).0
}

/// Adds content at the very tail.
pub(crate) fn add_at_tail(messages: &mut Vec<Message>, parts: &[Part]) {
    match messages.last_mut() {
        Some(Message::User(content)) => *content = content.followed_by(parts),
        _ => messages.push(Message::Note(parts.iter().cloned().collect())),
    }
}

/// A call whose result may not have come yet: the tool's name, and whether it went well and what it said.
type OpenResult = (Text, Option<(bool, Content)>);

/// A log as messages, kept from call to call: the messages of ended turns stay, only the open turn is written anew.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContextCache {
    /// Shared with the request that was made of it; written in place once that is gone.
    messages: Arc<Vec<Message>>,
    /// The part of `messages` that ended turns made.
    ended: CachedPrefix,
    /// Injections for the turn after the one they were made in.
    for_next: Vec<Part>,
}

/// How much of the log the cached messages cover.
#[derive(Clone, Copy, Debug, Default)]
struct CachedPrefix {
    /// The seq of the first event. A context that begins elsewhere cannot use the cache.
    first_seq: u64,
    events: usize,
    messages: usize,
    /// The version of the summary at the front; 0: there is none.
    summary: u32,
}

impl ContextCache {
    /// The messages of `log`, whose open turn begins at `open`, and where their segments end. Between two calls the part
    /// before `open` may lose turns at its front or grow at its end; it does not change otherwise.
    pub(crate) fn show(
        &mut self,
        log: &[Arc<Event>],
        open: usize,
        overlay: &Overlay<'_>,
    ) -> (Arc<Vec<Message>>, Segments) {
        let first_seq = log.first().map_or(0, |first| first.seq);
        let summary = overlay.summary.map_or(0, |summary| summary.version);
        if self.ended.first_seq != first_seq || self.ended.summary != summary {
            self.ended = CachedPrefix { summary, ..CachedPrefix::default() };
            self.for_next.clear();
        }
        let messages = Arc::make_mut(&mut self.messages);
        messages.truncate(self.ended.messages);
        if let (0, Some(summary)) = (self.ended.messages, overlay.summary) {
            messages.push(summary_message(summary));
        }
        messages.reserve(INITIAL_CAPACITY.max(log.len() - self.ended.events));
        let for_next = std::mem::take(&mut self.for_next);
        let mut writer = ContextWriter {
            messages,
            for_next,
            results: CallMap::default(),
            after_results: Vec::new(),
            opening: None,
            noted: None,
        };
        for event in &log[self.ended.events..open] {
            writer.write(event, &Overlay::default());
        }
        self.ended = CachedPrefix { first_seq, events: open, messages: writer.messages.len(), summary };
        self.for_next.clone_from(&writer.for_next);
        for event in &log[open..] {
            writer.write(event, overlay);
        }
        writer.finish_results();
        let mut segments = writer.segments();
        if overlay.summary.is_some() {
            segments.summary = SegmentEnd::behind(&writer.messages[..1]);
        }
        if let Some(again) = overlay.regeneration {
            writer.messages.push(Message::Assistant { content: again.discarded.clone(), calls: Vec::new() });
            let text = format!("[this reply was sent back by {}] {}", again.hook, again.feedback);
            writer.messages.push(Message::Note(text.into()));
        }
        (self.messages.clone(), segments)
    }

    /// Measures the messages of a request: tokens, bytes and hashes of its segments. Unless a hook edited them, only those that
    /// were not there at the call before, and the open turn, are looked at; `kept` has the others.
    pub(crate) fn measure(
        &self,
        kept: &mut PrefixMeasure,
        request: &Request,
        is_edited: bool,
        last: Option<&[SegmentMark; 8]>,
    ) -> MeasuredMessages {
        kept.follow(self.ended.first_seq, self.ended.summary);
        kept.measure(&request.messages, &request.segments(), self.ended.messages, is_edited, last)
    }

    /// The messages as they were shown last.
    pub(crate) fn messages(&self) -> &Arc<Vec<Message>> {
        &self.messages
    }
}

/// Writes messages, event by event.
struct ContextWriter<'p> {
    messages: &'p mut Vec<Message>,
    for_next: Vec<Part>,
    /// Calls of the last reply, in order, with their results.
    results: CallMap<OpenResult>,
    /// Injected while results were outstanding. They are written after the results, because providers want each result
    /// right behind its call.
    after_results: Vec<Part>,
    /// Where the message that opened the present turn stands, and how many of its parts hooks did not add for this turn.
    opening: Option<(usize, usize)>,
    /// How many parts that message has before a note about steps of the turn, which is no injection of a hook.
    noted: Option<usize>,
}

impl ContextWriter<'_> {
    fn write(&mut self, event: &Event, overlay: &Overlay<'_>) {
        match &event.kind {
            EventKind::UserMessage { content, .. } => {
                self.finish_results();
                let mine = overlay.turn.filter(|(turn, _)| **turn == event.turn).map(|(_, parts)| parts);
                match (mine, self.opening) {
                    (Some(_), Some(_)) => {
                        let behind = overlay.steering.iter().filter(|(seq, _)| *seq == event.seq);
                        let parts: Vec<Part> = behind.map(|(_, part)| part.clone()).collect();
                        self.user(content, &parts);
                    }
                    (mine, _) => {
                        let own = content.parts().len() + self.for_next.len();
                        self.opening = mine.map(|_| (self.messages.len(), own));
                        self.user(content, mine.unwrap_or_default());
                    }
                }
            }
            EventKind::Injection { content, place: InjectionTarget::NextTurn, .. } => {
                self.for_next.extend_from_slice(content.parts());
            }
            EventKind::Injection { content, .. } if !self.results.is_empty() => {
                self.after_results.extend_from_slice(content.parts());
            }
            EventKind::Injection { content, .. } => {
                if let (Some((opening, _)), true) = (self.opening, has_note_at(overlay.left_out, event.seq)) {
                    let before = self.messages.get(opening).filter(|_| opening + 1 == self.messages.len());
                    self.noted = before.map(|message| message.content().parts().len());
                }
                add_at_tail(self.messages, content.parts());
            }
            EventKind::AssistantMessage { content, .. } => {
                self.finish_results();
                self.messages.push(Message::Assistant { content: content.clone(), calls: Vec::new() });
            }
            // Its provider reads of it in the reply's own parts.
            EventKind::ToolCall { executor: Executor::Provider, .. } => {}
            EventKind::ToolCall { call, name, arguments, .. } => self.call(call, name, arguments.value()),
            EventKind::ToolResult { call, ok, content } => {
                if let Some(open) = self.results.get_mut(call) {
                    open.1 = Some((*ok, content.clone()));
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
        let (opening, own) = self.opening.unwrap_or((self.messages.len(), 0));
        let behind = SegmentEnd::behind(&self.messages[..self.messages.len().min(opening + 1)]);
        Segments {
            summary: SegmentEnd::default(),
            history: SegmentEnd::behind(&self.messages[..opening]),
            message: if self.opening.is_some() { SegmentEnd { parts: own, ..behind } } else { behind },
            opening: SegmentEnd { parts: self.noted.unwrap_or(behind.parts), ..behind },
            calls: SegmentEnd::behind(self.messages),
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

    fn call(&mut self, call: &CallId, name: &Text, arguments: Arc<serde_json::Value>) {
        if let Some(Message::Assistant { calls, .. }) = self.messages.last_mut() {
            calls.push(ToolCall { call: call.clone(), name: name.clone(), arguments });
            self.results.insert(call.clone(), (name.clone(), None));
        }
    }

    /// Results stand in call order, however they came.
    fn finish_results(&mut self) {
        for (call, (name, result)) in self.results.drain() {
            let (ok, content) = result.unwrap_or_else(|| (false, "[no result]".into()));
            self.messages.push(Message::Result { call, name, ok, content });
        }
        if !self.after_results.is_empty() {
            add_at_tail(self.messages, &std::mem::take(&mut self.after_results));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tokens;
    use crate::event::TurnEnded;
    use crate::message::{StopReason, Usage};
    use crate::scope::Author;

    fn said(text: &str) -> EventKind {
        let (stop_reason, usage) = (StopReason::End, Usage::default());
        let content = text.into();
        EventKind::AssistantMessage { attempt: 1, content, stop_reason, usage, extras: None, cost: 0.0, model: None }
    }

    fn ended(outcome: Outcome) -> EventKind {
        let usage = Usage::default();
        EventKind::TurnEnded(Arc::new(TurnEnded {
            outcome,
            details: None,
            model_calls: 2,
            usage,
            cost: 0.0,
            ms: 0,
            agent: None,
        }))
    }

    /// A turn with a call, a note for the next one, and an end that later models see.
    fn turn(number: usize) -> Vec<EventKind> {
        let call: CallId = format!("call_{number}").into();
        vec![
            EventKind::UserMessage { content: format!("question {number}").into(), by: Author::User("ann".into()) },
            EventKind::Injection { hook: "h".into(), content: "durable".into(), place: InjectionTarget::ThisTurn },
            said("let me see"),
            EventKind::ToolCall {
                call: call.clone(),
                name: "look".into(),
                arguments: Default::default(),
                executor: Executor::Server,
            },
            EventKind::ToolResult { call, ok: true, content: "seen".into() },
            said("done"),
            EventKind::Injection { hook: "h".into(), content: "for later".into(), place: InjectionTarget::NextTurn },
            ended(if number.is_multiple_of(2) { Outcome::Completed } else { Outcome::Cancelled }),
        ]
    }

    #[test]
    fn a_cache_kept_from_call_to_call_gives_what_a_new_one_would() {
        let (mut cache, mut log) = (ContextCache::default(), Vec::new());
        let (mut last, mut measure) = (None, PrefixMeasure::default());
        for number in 1..=4 {
            let (id, open) = (TurnId::from(format!("t_{number}")), log.len());
            let injected = [Part::text("transient")];
            let overlay = Overlay { turn: Some((&id, &injected)), ..Overlay::default() };
            for kind in turn(number) {
                let seq = log.len() as u64 + 1;
                log.push(Arc::new(Event { seq, turn: id.clone(), at: Default::default(), kind }));
                let (kept, segments) = cache.show(&log, open, &overlay);
                let (anew, segments_anew) = ContextCache::default().show(&log, 0, &overlay);
                assert_eq!((&kept, segments), (&anew, segments_anew));
                let request = |messages: &Arc<Vec<Message>>| {
                    let mut request = Request::new("a".into(), "".into(), messages.clone(), Arc::new([]));
                    request.segments = segments;
                    request
                };
                let measured = cache.measure(&mut measure, &request(&kept), false, last.as_ref());
                let whole = cache.measure(&mut PrefixMeasure::default(), &request(&anew), true, last.as_ref());
                assert_eq!(measured, whole);
                assert_eq!(measured.total().tokens, tokens::of_messages(&anew));
                measure.note_sent();
                last = Some(measured.with_fixed(Default::default(), Default::default()));
            }
        }
    }
}
