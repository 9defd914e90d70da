//! What the model was sent, call by call, rebuilt from the log, its cuts and its summaries.
//!
//! The rebuilt messages are those that were sent, except for what is not stored: what hooks added for one turn or one call, what
//! they edited, and attempts that were discarded.
//!
//! A log is gone through once. What is known of a call are numbers; its messages are made for those who ask for them, so that a
//! long conversation needs no more memory than its log.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::context::layout::{self, ContextCache, Overlay};
use crate::context::tokens;
use crate::cut::{Cut, steps};
use crate::event::{Event, EventKind, Executor, InjectionTarget};
use crate::id::{CallId, TurnId};
use crate::message::{Message, Text, Usage};
use crate::summary::Summary;

/// A model call whose reply is in the log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SentCall {
    /// The turn it belongs to.
    pub turn: TurnId,
    /// Which call of the turn, from 1.
    pub number: usize,
    /// The seq of the reply.
    pub reply: u64,
    /// How many messages it was sent.
    pub messages: usize,
    /// Estimated tokens of the messages, corrected by the factor of the last cut.
    pub tokens: u64,
    /// Of these: of the summary.
    pub summary_tokens: u64,
    /// Of these: of the turn that the call belongs to.
    pub turn_tokens: u64,
    /// Of these: of the message that opened the turn.
    pub message_tokens: u64,
    /// Of these: of what hooks added to the turn and to the log.
    pub durable_tokens: u64,
    /// How many ended turns are shown.
    pub turns: usize,
    /// The summary at the front.
    pub summary: Option<Arc<Summary>>,
    /// The cuts that were made for this call.
    pub cuts: Vec<Arc<Cut>>,
    /// The last cut, made for this call or for an earlier one.
    pub last_cut: Option<Arc<Cut>>,
    /// The model that replied.
    pub model: Option<Text>,
    /// What the provider reported.
    pub usage: Usage,
    /// What it cost, in dollars; 0 if that is not known.
    pub cost: f64,
    /// Where the text is that was looked for.
    pub found: Found,
}

/// Where a text is in what a call was sent: in a message, or in the arguments of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// In events of the turn that the call belongs to.
    pub in_turn: bool,
    /// In events of other turns, or in the summary.
    pub in_history: bool,
}

impl Found {
    /// Whether it was sent at all.
    pub fn is_sent(self) -> bool {
        self.in_turn || self.in_history
    }
}

/// Whether a JSON value has this text: in one of its strings or names as they are, or in the value as compact JSON, where line
/// ends, quotes and backslashes are escaped.
pub fn json_contains(value: &Value, text: &str) -> bool {
    has_string(value, text) || value.to_string().contains(text)
}

fn has_string(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(items) => items.iter().any(|item| has_string(item, text)),
        Value::Object(fields) => fields.iter().any(|(name, item)| name.contains(text) || has_string(item, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether this text is in what contexts show of an event.
pub fn event_contains(event: &Event, text: &str) -> bool {
    match &event.kind {
        EventKind::UserMessage { content, .. }
        | EventKind::AssistantMessage { content, .. }
        | EventKind::ToolResult { content, .. }
        | EventKind::Injection { content, .. } => content.text().contains(text),
        EventKind::ToolCall { arguments, .. } => arguments.look(|value| json_contains(value, text)),
        EventKind::StopFeedback { refusals } => refusals.iter().any(|refusal| refusal.feedback.contains(text)),
        _ => false,
    }
}

/// What is stored of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The log.
    pub log: &'a [Arc<Event>],
    /// Its cuts, the oldest first.
    pub cuts: &'a [Cut],
    /// Its summaries.
    pub summaries: &'a [Arc<Summary>],
}

/// What each model call of a log was sent, oldest first, and in which of them `text` was. Returns the cuts that were made for calls
/// without a reply: their turns ended before.
pub fn each_call(
    stored: Stored<'_>,
    text: Option<&str>,
    visit: &mut dyn FnMut(SentCall, &SentWindow<'_>),
) -> Vec<Arc<Cut>> {
    let mut window = Rebuilt { wanted: text, ..Rebuilt::default() };
    let mut cuts = stored.cuts.iter().peekable();
    let mut without_reply = Vec::new();
    for event in stored.log {
        let is_over = matches!(event.kind, EventKind::TurnEnded(_));
        if is_over || matches!(event.kind, EventKind::AssistantMessage { .. }) {
            let mut made = Vec::new();
            while let Some(cut) = cuts.next_if(|cut| cut.made_at < event.seq) {
                let cut = Arc::new(cut.clone());
                window.cut(&cut, stored.summaries);
                made.push(cut);
            }
            if is_over {
                without_reply.append(&mut made);
            }
            if let EventKind::AssistantMessage { usage, cost, model, .. } = &event.kind {
                let mut call = window.call(event);
                (call.cuts, call.usage, call.cost, call.model) = (made, *usage, *cost, model.clone());
                visit(call, &SentWindow { rebuilt: &window });
            }
        }
        window.add(event);
    }
    // Those of a turn that is under way.
    without_reply.extend(cuts.map(|cut| Arc::new(cut.clone())));
    without_reply
}

/// How many messages contexts show behind the end of a log, the results that have not come yet left out.
pub fn messages_shown(stored: Stored<'_>) -> usize {
    let (mut window, mut cuts) = (Rebuilt::default(), stored.cuts.iter().peekable());
    for event in stored.log {
        while let Some(cut) = cuts.next_if(|cut| cut.made_at < event.seq) {
            window.cut(&Arc::new(cut.clone()), stored.summaries);
        }
        window.add(event);
    }
    for cut in cuts {
        window.cut(&Arc::new(cut.clone()), stored.summaries);
    }
    let mut open = HashSet::new();
    for event in &window.events {
        match &event.kind {
            EventKind::ToolCall { executor: Executor::Provider, .. } => {}
            EventKind::ToolCall { call, .. } => {
                open.insert(call);
            }
            EventKind::ToolResult { call, .. } => {
                open.remove(call);
            }
            _ => {}
        }
    }
    // The layout has a result for every call.
    layout::messages(&window.events, &window.overlay()).len().saturating_sub(open.len())
}

/// What contexts show at a call.
#[derive(Debug)]
pub struct SentWindow<'a> {
    rebuilt: &'a Rebuilt<'a>,
}

impl SentWindow<'_> {
    /// The messages.
    pub fn messages(&self) -> Arc<Vec<Message>> {
        layout::messages(&self.rebuilt.events, &self.rebuilt.overlay())
    }

    /// The first and the last seq of each gapless part of the log that the messages show, oldest first.
    pub fn events(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let notes = self.rebuilt.cut.as_ref().map_or(&[][..], |cut| &cut.left_out);
        let shown = self.rebuilt.events.iter().map(|event| event.seq).filter(|seq| !steps::has_note_at(notes, *seq));
        for seq in shown {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == seq => *last = seq,
                _ => ranges.push((seq, seq)),
            }
        }
        ranges
    }
}

/// What the events of a turn in the window come to.
#[derive(Clone, Copy, Debug, Default)]
struct OfTurn {
    tokens: u64,
    /// How many of them have the text that is looked for.
    found: usize,
}

/// What is known of a turn, whatever is shown of it.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    message: Option<u64>,
    durable: u64,
    replies: usize,
}

/// The part of a log that contexts show.
#[derive(Debug, Default)]
struct Rebuilt<'a> {
    wanted: Option<&'a str>,
    events: Vec<Arc<Event>>,
    /// Those of them that belong to ended turns.
    ended: usize,
    /// How many turns of these have ended.
    turns: usize,
    /// What the events come to, in all and for each turn.
    all: OfTurn,
    by_turn: HashMap<TurnId, OfTurn>,
    told: HashMap<TurnId, Told>,
    /// The tools of calls.
    tools: HashMap<CallId, Text>,
    cut: Option<Arc<Cut>>,
    summary: Option<Arc<Summary>>,
    /// Tokens of it, and whether it has the text that is looked for.
    of_summary: (u64, bool),
    cache: ContextCache,
}

impl Rebuilt<'_> {
    fn overlay(&self) -> Overlay<'_> {
        Overlay { summary: self.summary.as_ref(), ..Overlay::default() }
    }

    fn add(&mut self, event: &Arc<Event>) {
        if !self.told.contains_key(&event.turn) {
            self.told.insert(event.turn.clone(), Told::default());
        }
        if let Some(told) = self.told.get_mut(&event.turn) {
            match &event.kind {
                EventKind::UserMessage { .. } => {
                    told.message.get_or_insert_with(|| tokens::of_event(event));
                }
                EventKind::Injection { content, .. } => told.durable += tokens::of_content(content),
                EventKind::AssistantMessage { .. } => told.replies += 1,
                _ => {}
            }
        }
        if let EventKind::ToolCall { call, name, .. } = &event.kind {
            self.tools.insert(call.clone(), name.clone());
        }
        match &event.kind {
            EventKind::TurnEnded(ended) if !ended.outcome.joins_history() => {
                let stays =
                    |kind: &EventKind| matches!(kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. });
                self.events.retain(|one| one.turn != event.turn || stays(&one.kind));
                self.recount();
            }
            _ => {
                self.events.push(event.clone());
                self.count(event);
            }
        }
        if matches!(event.kind, EventKind::TurnEnded(_)) {
            self.ended = self.events.len();
        }
    }

    fn count(&mut self, event: &Arc<Event>) {
        let found = self.wanted.is_some_and(|wanted| event_contains(event, wanted));
        let tokens = tokens::of_event(event);
        if tokens > 0 || found {
            let of_turn = self.by_turn.entry(event.turn.clone()).or_default();
            for sum in [of_turn, &mut self.all] {
                sum.tokens += tokens;
                sum.found += usize::from(found);
            }
        }
        self.turns += usize::from(matches!(event.kind, EventKind::TurnEnded(_)));
    }

    /// Adds everything up anew, after events were replaced or left out.
    fn recount(&mut self) {
        (self.all, self.turns, self.cache) = (OfTurn::default(), 0, ContextCache::default());
        self.by_turn.clear();
        let events = std::mem::take(&mut self.events);
        for event in &events {
            self.count(event);
        }
        self.events = events;
    }

    fn cut(&mut self, cut: &Arc<Cut>, summaries: &[Arc<Summary>]) {
        let gone = self.events.partition_point(|event| event.seq < cut.first);
        self.events.drain(..gone);
        self.ended = self.ended.saturating_sub(gone);
        let last_ended = self.ended.checked_sub(1).map_or(0, |place| self.events[place].seq);
        let earlier = self.cut.as_ref().map_or(&[][..], |earlier| &earlier.left_out);
        steps::take_out(&mut self.events, &cut.left_out, earlier);
        self.ended = self.events.partition_point(|event| event.seq <= last_ended);
        for event in &mut self.events {
            let Ok(at) = cut.stubs.binary_search_by_key(&event.seq, |stub| stub.seq) else { continue };
            let (EventKind::ToolResult { call, .. } | EventKind::ToolCall { call, .. }) = &event.kind else { continue };
            // Cuts repeat the stubs of earlier ones, and those are in place.
            let earlier = self.cut.as_ref().and_then(|earlier| {
                let place = earlier.stubs.binary_search_by_key(&event.seq, |stub| stub.seq).ok()?;
                earlier.stubs.get(place)
            });
            if earlier == Some(&cut.stubs[at]) {
                continue;
            }
            let tool = self.tools.get(call).cloned().unwrap_or_else(|| "the tool".into());
            if let Some(shortened) = cut.stubs[at].shorten(event, &tool) {
                *event = shortened;
            }
        }
        self.summary = cut.summary.and_then(|version| summaries.iter().find(|one| one.version == version).cloned());
        self.of_summary = self.summary.as_ref().map_or((0, false), |one| {
            let found = self.wanted.is_some_and(|wanted| one.shown.contains(wanted));
            (tokens::of_message(&layout::summary_message(one)), found)
        });
        self.cut = Some(cut.clone());
        self.recount();
    }

    fn call(&mut self, reply: &Event) -> SentCall {
        let overlay = Overlay { summary: self.summary.as_ref(), ..Overlay::default() };
        let messages = self.cache.show(&self.events, self.ended, &overlay).0.len();
        let factor = self.cut.as_ref().map(|cut| cut.factor).unwrap_or_default();
        let own = self.by_turn.get(&reply.turn).copied().unwrap_or_default();
        let told = self.told.get(&reply.turn).copied().unwrap_or_default();
        let (summary, in_summary) = self.of_summary;
        SentCall {
            turn: reply.turn.clone(),
            number: told.replies + 1,
            reply: reply.seq,
            messages,
            tokens: factor.apply(summary + self.all.tokens),
            summary_tokens: factor.apply(summary),
            turn_tokens: factor.apply(own.tokens),
            message_tokens: factor.apply(told.message.unwrap_or(0)),
            durable_tokens: factor.apply(told.durable),
            turns: self.turns,
            summary: self.summary.clone(),
            cuts: Vec::new(),
            last_cut: self.cut.clone(),
            model: None,
            usage: Usage::default(),
            cost: 0.0,
            found: Found { in_turn: own.found > 0, in_history: in_summary || self.all.found > own.found },
        }
    }
}
