//! What `run` shows while the turn runs: events as JSON, or lines on stderr and the answer on stdout.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use turnbuckle::TurnReport;
use turnbuckle::event::{Cause, Event, EventKind, Warning};
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::message::Text;
use turnbuckle::scope::Author;

use super::watch::DisplayOptions;
use crate::output::Output;
use crate::problem::Problem;
use crate::show::{Fold, Layout, Line, Palette, Shown, Tone, brief, clean, json_line, terminal_width};

/// One of three ways to look at a turn.
pub(super) enum View {
    /// Every event on stdout.
    Json,
    /// The answer, and what went wrong: the hooks that failed, and how.
    Quiet(Vec<(Text, String)>),
    /// Progress and the answer.
    Lines(Box<Lines>),
}

pub(super) struct Lines {
    fold: Fold,
    layout: Layout,
    palette: Palette,
    /// Whether a person watches stdout: then the answer is streamed.
    streams: bool,
    /// What of the present reply stands on stdout already.
    streamed: String,
    /// The reply is over; the next piece begins another.
    over: bool,
    /// Which stream is in the middle of a line.
    middle: Option<Stream>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

impl View {
    pub(super) fn new(display: DisplayOptions, tools: usize) -> Self {
        if display.json {
            return Self::Json;
        }
        if display.quiet {
            return Self::Quiet(Vec::new());
        }
        let palette = Palette::of(&io::stderr());
        Self::Lines(Box::new(Lines {
            fold: Fold::new(tools),
            layout: Layout::new(palette, terminal_width(&io::stderr())),
            palette,
            streams: io::stdout().is_terminal() && !display.in_one_piece,
            streamed: String::new(),
            over: false,
            middle: None,
        }))
    }

    /// What happened in the conversation before.
    pub(super) fn knows(&mut self, events: &[Arc<Event>]) {
        if let Self::Lines(lines) = self {
            events.iter().for_each(|event| lines.fold.knows(event));
        }
    }

    /// How many messages contexts have by now.
    pub(super) fn has_messages(&mut self, messages: usize) {
        if let Self::Lines(lines) = self {
            lines.fold.has_messages(messages);
        }
    }

    pub(super) fn told(&mut self, told: &FeedEvent, output: &Output) {
        match self {
            Self::Json => match json_line(told) {
                Ok(line) => output.out(line),
                // Events are made of strings, numbers and such: there is none that JSON cannot say.
                Err(error) => output.err(format!("error: an event cannot be printed: {error}\n")),
            },
            // One that fails again and again is told once.
            Self::Quiet(failures) => {
                for trouble in troubles(told) {
                    if !failures.contains(&trouble) {
                        failures.push(trouble);
                    }
                }
            }
            Self::Lines(lines) => {
                for shown in lines.fold.told(told) {
                    lines.show(shown, output);
                }
            }
        }
    }

    /// Failures of hooks that were not shown, without that of the hook that ended the turn: it is reported as the turn's
    /// error.
    pub(super) fn failures(&mut self, blamed: Option<&Author>) -> Vec<Problem> {
        let Self::Quiet(failures) = self else { return Vec::new() };
        let unseen = std::mem::take(failures).into_iter();
        let others = unseen.filter(|(hook, _)| !matches!(blamed, Some(Author::Hook(blamed)) if blamed == hook));
        others.map(|(hook, why)| Problem::warning(format!("hook {hook} {why}"))).collect()
    }

    /// The final answer, unless it stands there already.
    pub(super) fn answer(&mut self, ended: &TurnReport, output: &Output) {
        let text = ended.text();
        let nothing = text.is_empty() && !ended.is_completed();
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        match self {
            Self::Json => {}
            _ if nothing => {}
            Self::Lines(lines) if lines.streams => {
                lines.end_line(output);
                if lines.streamed != text {
                    output.out(clean(&text) + newline);
                }
            }
            Self::Quiet(_) if io::stdout().is_terminal() => output.out(clean(&text) + newline),
            Self::Quiet(_) | Self::Lines(_) => output.out(text + newline),
        }
    }
}

/// What went wrong with hooks: one failed, or was overruled. That a failure was ignored is told with the failure.
fn troubles(told: &FeedEvent) -> Vec<(Text, String)> {
    match &told.item {
        FeedItem::Live(LiveEvent::HookFinished { hook, point, error: Some(error), .. }) => {
            vec![(hook.clone(), format!("failed at {point}: {}", brief(error)))]
        }
        FeedItem::Log(event) => match &event.kind {
            EventKind::TurnEnded(ended) => {
                let overruled = |warning: &Warning| match &warning.cause {
                    Some(Cause::Overruled { hook }) => Some((hook.clone(), format!("was {}", warning.text))),
                    _ => None,
                };
                ended.warnings().iter().filter_map(overruled).collect()
            }
            _ => Vec::new(),
        },
        FeedItem::Live(_) => Vec::new(),
    }
}

impl Lines {
    fn show(&mut self, shown: Shown, output: &Output) {
        match shown {
            Shown::Line(line) => self.line(&line, output),
            Shown::Text(text) if self.streams => {
                if std::mem::take(&mut self.over) {
                    self.streamed.clear();
                }
                self.in_line(Stream::Out, &text, output);
                output.out(clean(&text));
                self.streamed.push_str(&text);
            }
            Shown::Thinking(text) if self.streams => {
                self.in_line(Stream::Err, &text, output);
                output.err(self.palette.paint(Tone::Dim, &clean(&text)));
            }
            Shown::Message(text) if !self.streams => {
                let line = Line { label: "call", tone: Tone::Plain, text };
                self.line(&line, output);
            }
            Shown::EndOfText => {
                self.over = true;
                self.end_line(output);
            }
            Shown::Text(_) | Shown::Thinking(_) | Shown::Message(_) => {}
        }
    }

    fn line(&mut self, line: &Line, output: &Output) {
        self.end_line(output);
        output.err(self.layout.line(line));
    }

    /// Writing `text` to `stream` next.
    fn in_line(&mut self, stream: Stream, text: &str, output: &Output) {
        if self.middle.is_some_and(|middle| middle != stream) {
            self.end_line(output);
        }
        self.middle = (!text.ends_with('\n')).then_some(stream);
    }

    fn end_line(&mut self, output: &Output) {
        match self.middle.take() {
            Some(Stream::Out) => output.out("\n"),
            Some(Stream::Err) => output.err("\n"),
            None => {}
        }
    }
}
