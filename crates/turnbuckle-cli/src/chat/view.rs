//! What the user sees of a chat: events as lines and streamed text above, the line being typed below.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};

use super::draft::Draft;
use super::screen::{Footer, Screen};
use crate::output::Output;
use crate::show::{Fold, Layout, Line, Palette, Shown, Tone, clean, terminal_width};

/// Everything on the screen.
pub(super) struct View {
    pub(super) output: Output,
    pub(super) draft: Draft,
    /// Messages that were typed and whose turn has not begun.
    pub(super) sent: VecDeque<String>,
    fold: Fold,
    layout: Layout,
    screen: Screen,
    footer: (String, Tone),
    /// What was streamed of the present reply.
    streamed: String,
    thinking: bool,
}

impl View {
    pub(super) fn new(output: Output, tools: usize) -> Self {
        let palette = Palette::of(&io::stdout());
        Self {
            output,
            draft: Draft::default(),
            sent: VecDeque::new(),
            fold: Fold::new(tools),
            layout: Layout::new(palette, None).speaker("agent"),
            screen: Screen::new(palette),
            footer: (String::new(), Tone::Plain),
            streamed: String::new(),
            thinking: false,
        }
    }

    /// What happened before: the last words of both sides are shown again.
    pub(super) fn knows(&mut self, events: &[Arc<Event>]) {
        events.iter().for_each(|event| self.fold.knows(event));
        let last = |wanted: fn(&EventKind) -> Option<String>| events.iter().rev().find_map(|event| wanted(&event.kind));
        let asked = last(|kind| match kind {
            EventKind::UserMessage { content, .. } => Some(content.text()),
            _ => None,
        });
        let said = last(|kind| match kind {
            EventKind::AssistantMessage { content, .. } => Some(content.text()),
            _ => None,
        });
        for (label, text) in [("user", asked), ("agent", said)] {
            if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
                self.say(label, Tone::Dim, &text);
            }
        }
    }

    /// A line of its own.
    pub(super) fn say(&mut self, label: &'static str, tone: Tone, text: &str) {
        self.line(&Line { label, tone, text: clean(text) });
    }

    pub(super) fn line(&mut self, line: &Line) {
        self.measure();
        let text = self.layout.line(line);
        self.print(&text);
    }

    /// The footer's label changes.
    pub(super) fn footer(&mut self, label: String, tone: Tone) {
        if self.footer != (label.clone(), tone) {
            self.footer = (label, tone);
            self.print("");
        }
    }

    /// The line being typed changed.
    pub(super) fn redraw(&mut self) {
        self.print("");
    }

    /// Below the last word there is nothing any more.
    pub(super) fn remove_footer(&mut self) {
        let text = self.screen.erase() + &self.layout.end_text();
        self.output.out(text);
    }

    /// Shows what happened.
    pub(super) fn told(&mut self, told: &FeedEvent) {
        self.measure();
        let shown = self.fold.told(told);
        match &told.item {
            FeedItem::Log(event) => match &event.kind {
                EventKind::UserMessage { content, .. } => return self.accepted(&content.text()),
                EventKind::AssistantMessage { content, .. } => self.said(&content.text()),
                // It is asked in its own words.
                EventKind::Suspension { .. } => return,
                _ => {}
            },
            FeedItem::Live(LiveEvent::AttemptDiscarded { .. }) => self.streamed.clear(),
            FeedItem::Live(LiveEvent::StateChanged { .. }) => return,
            FeedItem::Live(_) => {}
        }
        for shown in shown {
            self.show(shown);
        }
        if let FeedItem::Log(event) = &told.item
            && let EventKind::TurnEnded(ended) = &event.kind
        {
            if let Some(result) = &ended.result {
                let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
                self.say("result", Tone::Plain, &text);
            }
            self.print("\n");
        }
    }

    /// What was typed stands there already, unless a hook rewrote it or another process sent it.
    fn accepted(&mut self, text: &str) {
        if self.sent.pop_front().as_deref() != Some(text) {
            self.say("user", Tone::Plain, text);
        }
    }

    /// A reply that was not streamed as it is now.
    fn said(&mut self, text: &str) {
        let streamed = std::mem::take(&mut self.streamed);
        let silence = self.layout.end_text();
        self.print(&silence);
        if streamed != text && !text.trim().is_empty() {
            self.say("agent", Tone::Plain, text);
        }
    }

    fn show(&mut self, shown: Shown) {
        let text = match shown {
            Shown::Line(line) if line.label == "end" && line.tone == Tone::Good => {
                self.layout.line(&Line { tone: Tone::Dim, ..line })
            }
            Shown::Line(line) => self.layout.line(&line),
            Shown::Text(piece) => {
                let silence = if std::mem::take(&mut self.thinking) { self.layout.end_text() } else { String::new() };
                self.streamed.push_str(&piece);
                silence + &self.layout.text(&piece, Tone::Plain)
            }
            Shown::Thinking(piece) => {
                self.thinking = true;
                self.layout.text(&piece, Tone::Dim)
            }
            Shown::EndOfText => self.layout.end_text(),
            Shown::Message(_) => return,
        };
        self.print(&text);
    }

    /// Two columns stay free, one of them for the space behind a word: a terminal that wraps by itself would move the footer.
    fn measure(&mut self) {
        self.layout.resize(Some(width() - 2));
    }

    fn print(&mut self, text: &str) {
        let footer = Footer { label: &self.footer.0, tone: self.footer.1, width: width() };
        let out = self.screen.print(text, &footer, &self.draft);
        self.output.out(out);
    }
}

fn width() -> usize {
    terminal_width(&io::stdout()).unwrap_or(80)
}
