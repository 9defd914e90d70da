//! Tools and hooks at work: one row each while they run, one line when they are done.

use std::time::Instant;

use serde_json::Value;
use turnbuckle::CallId;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::message::Text;
use turnbuckle_tools::PLAN_TOOL;

use anstyle::{AnsiColor, Style};

use super::super::styled::{Row, coloured, wrap};
use super::{View, labelled};
use crate::show::{self, Tone};

/// The most rows of tools, of hooks and of the plan.
const MOST: usize = 6;
/// The most rows of a diff in a result.
const MOST_DIFF: usize = 40;
/// The most lines of a failed call that are shown: those at its end.
const MOST_FAILED: usize = 6;

#[derive(Debug)]
struct Card {
    call: CallId,
    tool: Text,
    title: String,
    /// Set when it runs.
    since: Option<Instant>,
    progress: String,
}

/// What is at work.
#[derive(Debug, Default)]
pub(super) struct Cards {
    tools: Vec<Card>,
    /// Names, and what each is doing.
    hooks: Vec<(Text, String)>,
    plan: Vec<(String, bool)>,
    /// Calls that are shown otherwise.
    hidden: Vec<CallId>,
    /// Diffs that questions showed whole, until the results of their calls.
    asked: Vec<(CallId, String)>,
}

impl Cards {
    /// What happened before: the plan is still of interest, and calls that are open.
    pub(super) fn knows(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ToolCall { .. } => self.saw(event),
            EventKind::ToolResult { call, .. } => {
                self.hides(call);
                self.take(call);
            }
            EventKind::TurnEnded(_) => self.clear(),
            _ => {}
        }
    }

    pub(super) fn saw(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ToolCall { call, name, arguments, .. } => {
                if **name == *PLAN_TOOL
                    && let Some(plan) = plan_of(&arguments.value())
                {
                    self.plan = plan;
                    self.hidden.push(call.clone());
                    return;
                }
                let title = show::called(name, &arguments.value());
                let (call, tool) = (call.clone(), name.clone());
                self.tools.push(Card { call, tool, title, since: None, progress: String::new() });
            }
            EventKind::ToolStarted { call, arguments, .. } => {
                if let Some(card) = self.tools.iter_mut().find(|card| card.call == *call) {
                    // A hook or an approver may have put others in the place of the model's.
                    card.title = show::called(&card.tool, &arguments.value());
                    card.since.get_or_insert_with(Instant::now);
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, call: &CallId) -> Option<Card> {
        let place = self.tools.iter().position(|card| card.call == *call)?;
        Some(self.tools.remove(place))
    }

    /// Whether the result of this call needs no line.
    fn hides(&mut self, call: &CallId) -> bool {
        let known = self.hidden.len();
        self.hidden.retain(|hidden| hidden != call);
        self.hidden.len() < known
    }

    /// Whether a question showed this diff of the call.
    fn was_asked(&mut self, call: &CallId, diff: &str) -> bool {
        let Some(place) = self.asked.iter().position(|(asked, _)| asked == call) else { return false };
        self.asked.remove(place).1.trim_end() == diff.trim_end()
    }

    pub(super) fn progress(&mut self, call: &CallId, text: &str) {
        if let Some(card) = self.tools.iter_mut().find(|card| card.call == *call) {
            text.trim_end().lines().last().unwrap_or_default().clone_into(&mut card.progress);
        }
    }

    pub(super) fn hook_started(&mut self, hook: &Text, point: &str) {
        self.hook_finished(hook);
        self.hooks.push((hook.clone(), format!("runs at {point}")));
    }

    pub(super) fn hook_progress(&mut self, hook: &Text, text: &str) {
        self.hook_finished(hook);
        self.hooks.push((hook.clone(), text.to_owned()));
    }

    pub(super) fn hook_finished(&mut self, hook: &Text) {
        self.hooks.retain(|(name, _)| name != hook);
    }

    /// The turn is over.
    pub(super) fn clear(&mut self) {
        self.tools.clear();
        self.hooks.clear();
        self.hidden.clear();
        self.asked.clear();
        if self.plan.iter().all(|(_, done)| *done) {
            self.plan.clear();
        }
    }

    pub(super) fn running_hooks(&self) -> usize {
        self.hooks.len()
    }

    /// Whether something moves by itself.
    pub(super) fn is_busy(&self) -> bool {
        self.tools.iter().any(|card| card.since.is_some())
    }

    pub(super) fn rows(&self, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for card in self.tools.iter().take(MOST) {
            let mut row = Row::of(&card.title, coloured(AnsiColor::Cyan));
            if let Some(since) = card.since {
                let seconds = since.elapsed().as_secs();
                let time = if seconds > 0 { format!(" {seconds} s") } else { String::new() };
                row.push(&format!(" …{time} {}", card.progress), Style::new().dimmed());
            }
            rows.extend(labelled("tool", vec![row], false));
        }
        if self.tools.len() > MOST {
            rows.extend(labelled("", vec![Row::dim(&format!("… {} more tools", self.tools.len() - MOST))], true));
        }
        for (hook, doing) in self.hooks.iter().take(MOST) {
            rows.extend(labelled("hook", vec![Row::dim(&format!("{hook}: {doing}"))], false));
        }
        let done = self.plan.iter().filter(|(_, done)| *done).count();
        // What is done is counted, what is next is shown.
        let open = self.plan.iter().filter(|(_, done)| !done).take(MOST);
        let mut plan: Vec<Row> = open.map(|(text, _)| Row::plain(&format!("☐ {text}"))).collect();
        if !plan.is_empty() {
            plan.push(Row::dim(&format!("{done} of {} done", self.plan.len())));
        }
        rows.extend(labelled("plan", plan, false));
        rows.into_iter().map(|row| row.cut(width)).collect()
    }
}

fn plan_of(arguments: &Value) -> Option<Vec<(String, bool)>> {
    let items = arguments.get("items")?.as_array()?;
    items.iter().map(|item| Some((item.get("text")?.as_str()?.to_owned(), item.get("done")?.as_bool()?))).collect()
}

/// How many lines a diff adds and removes.
fn counted(diff: &str) -> String {
    let is_header = |line: &&str| line.starts_with("--- ") || line.starts_with("+++ ");
    let count = |sign: char| diff.lines().filter(|line| line.starts_with(sign) && !is_header(line)).count();
    format!("+{} −{}", count('+'), count('-'))
}

impl View {
    /// A question showed the whole diff of this call: its result need not show the same again.
    pub(in super::super) fn showed_diff(&mut self, call: &CallId, diff: &str) {
        self.cards.asked.retain(|(asked, _)| asked != call);
        self.cards.asked.push((call.clone(), diff.to_owned()));
    }

    /// The result of a call: a line, and the diff that it has, unless the question had the same.
    pub(super) fn result(&mut self, event: &Event) {
        let EventKind::ToolResult { call, ok, content } = &event.kind else { return };
        let hidden = self.cards.hides(call);
        if hidden && *ok {
            return;
        }
        let card = self.cards.take(call);
        let title = card.as_ref().map_or_else(|| call.to_string(), |card| card.title.clone());
        let time = card.and_then(|card| card.since).map(|since| since.elapsed().as_secs()).filter(|time| *time > 1);
        let time = time.map(|seconds| format!(" ({seconds} s)")).unwrap_or_default();
        let text = content.text();
        let (said, diff) = split_diff(&text);
        let was_asked = diff.is_some_and(|diff| self.cards.was_asked(call, diff));
        let palette = self.screen.palette();
        let mut row = match ok {
            true => Row::of("✓ ", palette.style(Tone::Good)),
            false => Row::of("✗ ", palette.style(Tone::Bad)),
        };
        row.push(&title, palette.style(Tone::Tool));
        row.push(&time, Style::new().dimmed());
        // Why a call failed stands at the end of what it said.
        let (before, end) = match *ok || said.lines().count() < 2 {
            true => (0, Vec::new()),
            false => show::last_lines(said, MOST_FAILED),
        };
        let said = match (end.is_empty(), before) {
            (true, _) => show::result(said),
            (false, 0) => String::new(),
            (false, before) => format!("… {} before", show::count(before, "line")),
        };
        if !said.is_empty() {
            row.push(&format!(" {said}"), if *ok { Style::new().dimmed() } else { palette.style(Tone::Bad) });
        }
        if let Some(diff) = diff.filter(|_| was_asked) {
            row.push(&format!(" {}", counted(diff)), Style::new().dimmed());
        }
        let rows = wrap(&row, self.text_width(), 2);
        self.put(labelled("tool", rows, false));
        if !end.is_empty() {
            self.rows(end.iter().map(|line| Row::dim(line)).collect());
        }
        if let Some(diff) = diff.filter(|_| !was_asked) {
            let total = diff.lines().count();
            match total > MOST_DIFF {
                true => {
                    let beginning: Vec<&str> = diff.lines().take(MOST_DIFF).collect();
                    self.diff(&format!("{}\n… {} more lines", beginning.join("\n"), total - MOST_DIFF));
                }
                false => self.diff(diff),
            }
        }
    }
}

/// What a result says, and the diff behind it.
fn split_diff(text: &str) -> (&str, Option<&str>) {
    match text.find("\n--- ").filter(|at| text[*at..].contains("\n+++ ")) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}
