//! What `run` shows while the turn runs: events as JSON, or lines on stderr and the answer on stdout.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use turnbuckle::TurnReport;
use turnbuckle::event::{Cause, Event, EventKind, Warning};
use turnbuckle::feed::{FeedEvent, FeedItem, Level, LiveEvent};
use turnbuckle::hook::Point;
use turnbuckle::message::Text;
use turnbuckle::scope::Author;
use turnbuckle::store::JobKind;

use super::watch::DisplayOptions;
use crate::output::Output;
use crate::problem::Problem;
use crate::show::{Fold, Layout, Line, Palette, Shown, Tone, brief, clean, few_lines, json_line, terminal_width};

/// One of three ways to look at a turn.
pub(super) enum View {
    /// Every event on stdout.
    Json,
    /// The answer, and what went wrong without ending the turn, told or not yet.
    Quiet(Troubles),
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
            return Self::Quiet(Troubles::default());
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
            Self::Quiet(known) => troubles(told).into_iter().for_each(|trouble| known.note(trouble)),
            Self::Lines(lines) => {
                for shown in lines.fold.told(told) {
                    lines.show(shown, output);
                }
            }
        }
    }

    /// What went wrong and was not shown yet, without the failure of the hook that ended the turn: it is reported as the
    /// turn's error.
    pub(super) fn troubles(&mut self, blamed: Option<&Author>) -> Vec<Problem> {
        let Self::Quiet(known) = self else { return Vec::new() };
        let mut problems = Vec::new();
        for trouble in known.0.iter_mut().filter(|trouble| !trouble.is_told) {
            trouble.is_told = true;
            if !trouble.is_failure_of(blamed) {
                problems.push(Problem::warning(trouble.words()));
            }
        }
        problems
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

/// What went wrong without ending the turn, the first first. What goes wrong again and again stands there once.
#[derive(Default)]
pub(super) struct Troubles(Vec<Trouble>);

impl Troubles {
    /// Notes one. What was a notice first is said by the end of the turn as well, which knows more of it.
    fn note(&mut self, trouble: Trouble) {
        let Self(all) = self;
        if let TroubleKind::Ignored(point) = trouble.kind
            && all.iter().any(|known| known.hook == trouble.hook && known.kind == TroubleKind::Failed(point))
        {
            // How it failed is told; that it was ignored, too, is no second trouble.
            all.retain(|known| !known.is_same(&trouble));
            return;
        }
        match all.iter_mut().find(|known| known.is_same(&trouble)) {
            Some(known) => known.kind = trouble.kind,
            None => all.push(trouble),
        }
    }
}

/// Something that a person should know although the turn went on.
struct Trouble {
    /// Whose it is; `None` if it is of the turn itself.
    hook: Option<Text>,
    text: Text,
    kind: TroubleKind,
    is_told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TroubleKind {
    /// A hook failed there.
    Failed(Point),
    /// A hook failed there, says the end of the turn.
    Ignored(Point),
    /// A hook's refusal did not count.
    Overruled,
    /// No summary was made.
    NoSummary,
    /// Anything else.
    Warning,
}

impl Trouble {
    fn is_same(&self, other: &Self) -> bool {
        (&self.hook, &self.text) == (&other.hook, &other.text)
    }

    /// Whether it is that the hook failed which ended the turn.
    fn is_failure_of(&self, blamed: Option<&Author>) -> bool {
        let failed = matches!(self.kind, TroubleKind::Failed(_) | TroubleKind::Ignored(_));
        failed && matches!((blamed, &self.hook), (Some(Author::Hook(blamed)), Some(hook)) if blamed == hook)
    }

    fn words(&self) -> String {
        match (&self.hook, &self.kind) {
            (Some(hook), TroubleKind::Failed(point)) => format!("hook {hook} failed at {point}: {}", brief(&self.text)),
            (Some(hook), TroubleKind::Overruled) => format!("hook {hook} was {}", few_lines(&self.text)),
            (_, TroubleKind::NoSummary) => format!("the summary of the oldest turns failed: {}", brief(&self.text)),
            (Some(hook), TroubleKind::Warning | TroubleKind::Ignored(_)) => {
                format!("{hook}: {}", few_lines(&self.text))
            }
            (None, _) => few_lines(&self.text),
        }
    }
}

/// What went wrong: a hook failed or was overruled, or the runtime warns. That a failure was ignored is told with the failure.
fn troubles(told: &FeedEvent) -> Vec<Trouble> {
    let (hook, text, kind) = match &told.item {
        FeedItem::Live(LiveEvent::HookFinished { hook, point, error: Some(error), .. }) => {
            (Some(hook.clone()), error, TroubleKind::Failed(*point))
        }
        // A hook that works in the background says how it ended like any other.
        FeedItem::Live(LiveEvent::BackgroundFinished { hook, error: Some(error) })
            if **hook == *JobKind::Summary.name() =>
        {
            (None, error, TroubleKind::NoSummary)
        }
        FeedItem::Live(LiveEvent::Notice { level: Level::Warning, text, hook }) => {
            (hook.clone(), text, TroubleKind::Warning)
        }
        FeedItem::Log(event) => return event_troubles(event),
        FeedItem::Live(_) => return Vec::new(),
    };
    vec![Trouble { hook, text: text.clone(), kind, is_told: false }]
}

/// The warnings of a turn's end: another process may have begun it, and then nothing else tells of them here.
fn event_troubles(event: &Event) -> Vec<Trouble> {
    let EventKind::TurnEnded(ended) = &event.kind else { return Vec::new() };
    let trouble = |warning: &Warning| {
        let (hook, kind) = match &warning.cause {
            Some(Cause::Overruled { hook }) => (Some(hook.clone()), TroubleKind::Overruled),
            Some(Cause::HookFailed { hook, point }) => (Some(hook.clone()), TroubleKind::Ignored(*point)),
            _ => (warning.hook.clone(), TroubleKind::Warning),
        };
        Trouble { hook, text: warning.text.clone(), kind, is_told: false }
    };
    ended.warnings().iter().map(trouble).collect()
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
