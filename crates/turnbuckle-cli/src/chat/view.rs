//! What the user sees of a chat: what happened above, and the live part below: the reply, tools and hooks at work, what is
//! queued, the line being typed, and the status.

mod asked;
mod cards;
mod live;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnbuckle::TurnId;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::hook::Decision;
use turnbuckle::message::Content;

use self::cards::Cards;
use super::draft::Draft;
use super::markdown;
use super::notify::{Notifier, Waiting};
use super::reply::{Reply, labelled};
use super::screen::Screen;
use super::status::Status;
use super::styled::{Row, fold, wrap};
use crate::output::Output;
use crate::show::{Fold, INDENT, Line, Palette, Shown, Tone};

/// The shortest time between two drawings; a key is shown at once.
const FRAME: Duration = Duration::from_millis(16);
/// How long a discarded attempt stays on the screen, struck out.
const STRUCK: Duration = Duration::from_millis(700);
/// The most lines of a message that are shown again.
const MOST_OF_A_MESSAGE: usize = 20;
/// The most rows below a reply: with more of them it ends where it is.
const MOST_BELOW: usize = 12;
/// Rows below a question: what keys do, the line being typed, the status, and one that stays free.
const BELOW_A_QUESTION: usize = 4;
/// Lines are no wider than this: longer ones are hard to read.
const WIDEST: usize = 110;

/// A message that waits for its turn.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) text: String,
    pub(super) content: Content,
    /// Whether it was sent while a turn ran: then it is shown as queued until its own turn begins.
    pub(super) is_queued: bool,
    /// The turn that it opens, once it is stored.
    pub(super) turn: Option<TurnId>,
}

/// A message for the turn that runs, which is not part of it yet.
#[derive(Clone, Debug)]
pub(super) struct Steering {
    pub(super) text: String,
    /// Its id, once it is stored: that of the turn which it opens if it comes too late.
    pub(super) id: Option<TurnId>,
}

/// Everything on the screen.
pub(super) struct View {
    pub(super) output: Output,
    pub(super) draft: Draft,
    /// Messages that were typed and whose turn has not begun.
    pub(super) sent: VecDeque<Sent>,
    /// Messages that were typed for the turn that runs and are not part of it yet.
    pub(super) steering: VecDeque<Steering>,
    pub(super) status: Status,
    /// Lines between what happens and what is typed: keys for a question, completions.
    pub(super) hint: Vec<Row>,
    fold: Fold,
    screen: Screen,
    /// What stands before the line being typed.
    label: (String, Tone),
    reply: Option<Reply>,
    /// What was streamed of the last reply, if a line came between before it was complete.
    ended_early: Option<String>,
    /// A discarded attempt that is still shown, and until when.
    struck: Option<(Vec<Row>, Instant)>,
    /// What the model thinks at the moment.
    thinking: String,
    /// What it thought last.
    thought: String,
    cards: Cards,
    /// What goes up above the live part with the next drawing.
    above: Vec<Row>,
    /// Lines that came while a reply, or a discarded attempt, is in the live part. They stay below it until it is known what
    /// becomes of it: what has gone up cannot be taken back.
    below: Vec<Row>,
    changed: bool,
    drawn: Option<Instant>,
    notifier: Notifier,
}

impl View {
    pub(super) fn new(output: Output, tools: usize, draft: Draft, status: Status) -> Self {
        Self {
            output,
            draft,
            sent: VecDeque::new(),
            steering: VecDeque::new(),
            status,
            hint: Vec::new(),
            fold: Fold::new(tools),
            screen: Screen::new(Palette::of(&io::stdout())),
            label: (String::new(), Tone::Plain),
            reply: None,
            ended_early: None,
            struck: None,
            thinking: String::new(),
            thought: String::new(),
            cards: Cards::default(),
            above: Vec::new(),
            below: Vec::new(),
            changed: true,
            drawn: None,
            notifier: Notifier::of_environment(),
        }
    }

    /// What happened before: the last words of both sides are shown again.
    pub(super) fn knows(&mut self, events: &[Arc<Event>]) {
        for event in events {
            self.fold.knows(event);
            self.status.saw(event);
            self.cards.knows(event);
        }
        let last = |wanted: fn(&EventKind) -> Option<String>| events.iter().rev().find_map(|event| wanted(&event.kind));
        let asked = last(|kind| match kind {
            EventKind::UserMessage { content, .. } => Some(content.text()),
            _ => None,
        });
        let said = last(|kind| match kind {
            EventKind::AssistantMessage { content, .. } => Some(content.text()),
            _ => None,
        });
        if let Some(text) = asked.filter(|text| !text.trim().is_empty()) {
            self.user_said("user", &text);
        }
        if let Some(text) = said.filter(|text| !text.trim().is_empty()) {
            self.markdown("agent", &text);
        }
    }

    // What is shown above.

    /// A line of its own.
    pub(super) fn say(&mut self, label: &'static str, tone: Tone, text: &str) {
        self.line(&Line { label, tone, text: text.to_owned() });
    }

    pub(super) fn line(&mut self, line: &Line) {
        let style = self.screen.palette().style(line.tone);
        let room = self.text_width();
        let rows = line.text.split('\n').flat_map(|text| wrap(&Row::of(text, style), room, 0)).collect();
        self.put(labelled(line.label, rows, line.label.is_empty()));
    }

    /// A text in Markdown.
    pub(super) fn markdown(&mut self, label: &str, text: &str) {
        let rows = markdown::rows(text, self.text_width());
        self.put(labelled(label, rows, false));
    }

    /// Rows above the live part, or below the reply that is in it.
    fn put(&mut self, rows: Vec<Row>) {
        self.changed = true;
        let stands_there = self.reply.is_some() || self.struck.is_some();
        if stands_there && self.below.len() + rows.len() <= MOST_BELOW {
            return self.below.extend(rows);
        }
        self.struck = None;
        self.end_reply();
        self.above.extend(rows);
    }

    fn end_reply(&mut self) {
        if let Some(reply) = self.reply.take() {
            let streamed = self.ended_early.take().unwrap_or_default() + reply.text();
            self.ended_early = Some(streamed);
            self.above.extend(reply.finish());
        }
        self.lift_below();
        self.end_thought();
    }

    /// What stood below a reply goes up behind it.
    fn lift_below(&mut self) {
        if self.struck.is_none() {
            self.above.append(&mut self.below);
        }
    }

    /// What the model thought is one line; Ctrl-O shows all of it.
    fn end_thought(&mut self) {
        let thought = std::mem::take(&mut self.thinking);
        if thought.trim().is_empty() {
            return;
        }
        let words = thought.split_whitespace().count();
        let how = format!(" ({words} words, Ctrl-O shows them)");
        let room = self.text_width().saturating_sub(how.len()).min(60);
        let beginning = thought.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut row = Row::dim(&beginning).cut(room);
        row.append(Row::dim(&how));
        let rows = vec![row.cut(self.text_width())];
        self.above.extend(labelled("thought", rows, false));
        self.thought = thought;
        self.changed = true;
    }

    /// Rows as they are, beside the column for labels.
    pub(super) fn rows(&mut self, rows: Vec<Row>) {
        let room = self.text_width();
        let rows = rows.iter().flat_map(|row| fold(row, room)).collect();
        self.put(labelled("", rows, true));
    }

    /// A queued message is edited again.
    pub(super) fn take_back(&mut self, text: &str) {
        let typed = self.draft.text();
        let text = if typed.trim().is_empty() { text.to_owned() } else { format!("{text}\n{typed}") };
        if !self.draft.is_aside() {
            self.draft.replace(&text);
        }
        self.changed = true;
    }

    /// Shows what was folded.
    pub(super) fn unfold(&mut self) {
        let thought = if self.thinking.trim().is_empty() { self.thought.clone() } else { self.thinking.clone() };
        match thought.trim().is_empty() {
            true => self.say("", Tone::Dim, "nothing is folded"),
            false => self.say("thought", Tone::Dim, thought.trim()),
        }
    }

    /// What the person said. Of a long text the beginning is shown.
    pub(super) fn user_said(&mut self, label: &'static str, text: &str) {
        let total = text.lines().count();
        let more = if total > MOST_OF_A_MESSAGE {
            format!("\n… {} more lines", total - MOST_OF_A_MESSAGE)
        } else {
            String::new()
        };
        let beginning: Vec<&str> = text.lines().take(MOST_OF_A_MESSAGE).collect();
        self.say(label, Tone::Plain, &(beginning.join("\n") + &more));
    }

    // What happens.

    /// Shows what happened.
    pub(super) fn told(&mut self, told: &FeedEvent) {
        self.changed = true;
        let shown = self.fold.told(told);
        match &told.item {
            FeedItem::Log(event) => self.logged(event, shown),
            FeedItem::Live(live) => self.live(live, shown),
        }
    }

    fn logged(&mut self, event: &Event, shown: Vec<Shown>) {
        self.status.saw(event);
        match &event.kind {
            EventKind::UserMessage { content, .. } => self.accepted(&content.text()),
            EventKind::AssistantMessage { content, .. } => self.said(&content.text()),
            // It is asked in its own words.
            EventKind::Suspension { .. } => {}
            EventKind::ToolCall { .. } | EventKind::ToolStarted { .. } => {
                self.end_reply();
                self.cards.saw(event);
            }
            EventKind::ToolResult { .. } => {
                self.cards.saw(event);
                self.result(event);
            }
            EventKind::TurnEnded(ended) => {
                self.cards.clear();
                self.end_reply();
                self.show_lines(shown);
                if let Some(result) = ended.result() {
                    let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
                    self.say("result", Tone::Plain, &text);
                }
                self.put(vec![Row::default()]);
            }
            _ => self.show_lines(shown),
        }
    }

    fn live(&mut self, live: &LiveEvent, shown: Vec<Shown>) {
        match live {
            LiveEvent::TextDelta { text, .. } => {
                self.end_thought();
                if self.struck.take().is_some() {
                    self.lift_below();
                }
                let room = self.text_width();
                self.reply.get_or_insert_with(|| Reply::new(room)).push(text);
            }
            LiveEvent::ThinkingDelta { text, .. } => self.thinking.push_str(text),
            LiveEvent::AttemptDiscarded { .. } => self.discard(shown),
            LiveEvent::StateChanged { .. } => {}
            LiveEvent::ToolProgress { call, .. } => {
                for shown in shown {
                    if let Shown::Line(line) = shown {
                        self.cards.progress(call, &line.text);
                    }
                }
            }
            LiveEvent::HookStarted { hook, point } => self.cards.hook_started(hook, &point.to_string()),
            LiveEvent::HookProgress { hook, text } => self.cards.hook_progress(hook, text),
            LiveEvent::HookFinished { hook, decision, error, .. } => {
                self.cards.hook_finished(hook);
                let objects = error.is_some() || !matches!(decision, Decision::Continue | Decision::Accept);
                self.show_lines(if objects { shown } else { dimmed(shown) });
            }
            // Its end is a line.
            LiveEvent::BackgroundStarted { .. } => {}
            _ => self.show_lines(shown),
        }
    }

    /// An attempt is taken back: it is struck out and then removed, as far as it is on the screen.
    fn discard(&mut self, shown: Vec<Shown>) {
        self.thinking.clear();
        self.ended_early = None;
        let reply = self.reply.take();
        let mut scrolled_away = false;
        if let Some(reply) = reply {
            scrolled_away = reply.has_scrolled_away();
            self.struck = Some((reply.struck(), Instant::now() + STRUCK));
        }
        for shown in shown {
            if let Shown::Line(mut line) = shown {
                if scrolled_away {
                    line.text.push_str("; the beginning of it still stands above");
                }
                self.line(&line);
            }
        }
    }

    fn show_lines(&mut self, shown: Vec<Shown>) {
        for shown in shown {
            match shown {
                Shown::Line(line) if line.label == "end" && line.tone == Tone::Good => {
                    self.line(&Line { tone: Tone::Dim, ..line });
                }
                Shown::Line(line) => self.line(&line),
                Shown::EndOfText => self.end_reply(),
                Shown::Text(_) | Shown::Thinking(_) | Shown::Message(_) => {}
            }
        }
    }

    /// What was typed stands there already, unless it was queued, a hook rewrote it, or another process sent it.
    fn accepted(&mut self, text: &str) {
        if let Some(place) = self.steering.iter().position(|steering| steering.text == text) {
            self.steering.remove(place);
            return self.user_said("steer", text);
        }
        match self.sent.pop_front() {
            Some(sent) if sent.text == text && !sent.is_queued => {}
            Some(_) | None => self.user_said("user", text),
        }
    }

    /// A reply is complete. If it is not what was streamed, it is shown as it is now.
    fn said(&mut self, text: &str) {
        let early = self.ended_early.take().unwrap_or_default();
        match self.reply.take() {
            // Also if lines came between: then all of it is on the screen.
            Some(reply) if early.clone() + reply.text() == text => {
                self.above.extend(reply.finish());
                self.lift_below();
                self.changed = true;
            }
            None if !early.is_empty() && early == text => self.end_thought(),
            _ if text.trim().is_empty() => self.end_thought(),
            _ => {
                self.end_thought();
                self.struck = None;
                self.lift_below();
                self.markdown("agent", text);
            }
        }
    }

    // Drawing.

    /// The label of the line being typed changes.
    pub(super) fn footer(&mut self, label: String, tone: Tone) {
        if self.label != (label.clone(), tone) {
            self.label = (label, tone);
            self.changed = true;
        }
    }

    /// The line being typed changed: it is drawn at once.
    pub(super) fn redraw(&mut self) {
        self.changed = true;
        self.draw();
    }

    /// When to draw next, if something changed or moves.
    pub(super) fn next_frame(&self) -> Option<Instant> {
        let soon = self.drawn.map_or_else(Instant::now, |drawn| drawn + FRAME);
        let moving = self.cards.is_busy().then(|| Instant::now() + Duration::from_millis(250));
        let struck = self.struck.as_ref().map(|(_, until)| *until);
        match self.changed {
            true => Some(soon),
            false => {
                let second = self.status.next_second(Instant::now());
                moving.into_iter().chain(struck).chain(second).min()
            }
        }
    }

    /// Draws everything.
    pub(super) fn draw(&mut self) {
        let (width, height) = size();
        if self.struck.take_if(|(_, until)| *until <= Instant::now()).is_some() {
            self.lift_below();
        }
        if let Some(reply) = &mut self.reply {
            reply.resize(text_width(width));
        }
        let live = self.live_part(width, height);
        let above = std::mem::take(&mut self.above);
        let out = self.screen.draw(&above, &live, width);
        if !out.is_empty() {
            self.output.out(out);
        }
        (self.changed, self.drawn) = (false, Some(Instant::now()));
    }

    /// Below the last word there is nothing any more.
    pub(super) fn remove_footer(&mut self) {
        self.struck = None;
        self.end_reply();
        let width = size().0;
        let mut out = self.screen.erase(width);
        for row in std::mem::take(&mut self.above) {
            out.push_str(&row.paint(self.screen.palette()));
            out.push('\n');
        }
        self.output.out(out);
    }

    /// Someone is waited for.
    pub(super) fn ring(&self, waiting: Waiting) {
        let sequence = self.notifier.sequence(waiting);
        if !sequence.is_empty() {
            self.output.out(sequence);
        }
    }

    /// The terminal has got the focus, or lost it.
    pub(super) fn focus(&mut self, is_focused: bool) {
        self.notifier.focus(is_focused);
    }

    pub(super) fn text_width(&self) -> usize {
        text_width(size().0)
    }
}

/// The columns beside the label, in a terminal of this width. The last column stays free: some terminals begin a new line in it.
pub(super) fn text_width(width: usize) -> usize {
    width.min(WIDEST).saturating_sub(INDENT + 1).max(1)
}

/// The same, for those who look for it.
fn dimmed(shown: Vec<Shown>) -> Vec<Shown> {
    let dim = |shown| match shown {
        Shown::Line(line) => Shown::Line(Line { tone: Tone::Dim, ..line }),
        other => other,
    };
    shown.into_iter().map(dim).collect()
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    let size = terminal_size::terminal_size_of(io::stdout());
    let (terminal_size::Width(width), terminal_size::Height(height)) =
        size.unwrap_or((terminal_size::Width(80), terminal_size::Height(24)));
    (usize::from(width).max(20), usize::from(height).max(6))
}
