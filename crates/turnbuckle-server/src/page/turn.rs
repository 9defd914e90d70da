//! A turn: what took how long on one time axis, what hooks decided, and the table of hooks per point.

use std::sync::Arc;

use maud::{Markup, html};
use turnbuckle::event::{Event, EventKind};
use turnbuckle::hook::{Change, Decision, Edit, Edited, Point, Record};
use turnbuckle::message::Content;
use turnbuckle::{ConversationId, TurnId};

use super::changes::added;
use super::hook_line::{self, HookLine};
use super::layout::{self, Viewer};
use super::safe::{Name, Shown, segment};
use super::spans::{Span, What, spans};
use super::{card, code, words};

/// The most rows of the picture: a turn of thousands of calls is not read in bars.
const MOST: usize = 200;

/// What is known of a turn.
#[derive(Clone, Debug)]
pub struct TurnPage<'a> {
    /// The conversation.
    pub conversation: &'a ConversationId,
    /// What the conversation is called, if it has a title.
    pub title: Option<&'a str>,
    /// The turn.
    pub turn: &'a TurnId,
    /// The events of this turn alone, in order.
    pub events: &'a [Arc<Event>],
    /// What its hooks left, in order.
    pub records: &'a [Record],
    /// The hooks of the agent that this server serves, point by point.
    pub hooks: &'a [HookLine],
}

/// The page of a turn.
pub fn turn(viewer: &Viewer, page: &TurnPage<'_>) -> Markup {
    let spans = spans(page.events, page.records);
    let path = format!("/page/c/{}", segment(page.conversation.as_str()));
    let is_over = page.events.iter().any(|event| matches!(event.kind, EventKind::TurnEnded(_)));
    let main = html! {
        div.turn data-refresh=[(!is_over).then_some(layout::REFRESH_SECONDS)] {
            header.head {
                h1 { "One turn" }
                p.soft {
                    "of " a href=(path) { (Shown(page.title.unwrap_or(page.conversation.as_str()))) } ", "
                    code { (Name(page.turn.as_str())) }
                }
            }
            (summary(page.events))
            section { h2 { "Where the time went" } (waterfall(&spans)) (without_bars(page.events, &spans)) }
            section { h2 { "What hooks did" } (records(page)) }
            section { h2 { "Hooks at each point" } (hook_line::table(page.hooks, page.records)) }
        }
    };
    layout::page(viewer, "Turn", "", &main)
}

fn summary(events: &[Arc<Event>]) -> Markup {
    let ended = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended),
        _ => None,
    });
    html! {
        @match ended {
            None => { p.soft { "This turn is not over." } }
            Some(ended) => {
                dl.tiles {
                    div { dt { "Outcome" } dd { (ended.outcome) } }
                    div { dt { "Time at work" } dd { (words::milliseconds(ended.ms as f64)) } }
                    div { dt { "Model calls" } dd { (ended.model_calls) } }
                    div { dt { "Tokens" } dd { (ended.usage.total()) } @if ended.usage.total() > 0 { dd.more { (ended.usage.input) " in, " (ended.usage.output) " out, " (ended.usage.cache_read) " from the cache" } } }
                    div { dt { "Cost" } dd { @if ended.cost > 0.0 { (words::dollars(ended.cost)) } @else { "not known" } } }
                }
                @if let Some(reason) = ended.reason() { p.warn { (Shown(reason)) } }
                @for warning in ended.warnings() { p.warn { @if let Some(hook) = &warning.hook { strong { (Name(hook)) } ": " } (Shown(&warning.text)) } }
            }
        }
    }
}

/// A bar for each span. Time in which the turn waited for someone takes little room.
fn waterfall(spans: &[Span<'_>]) -> Markup {
    let axis = Axis::of(spans);
    html! {
        @if spans.is_empty() { p.soft { "Nothing took time." } } @else {
            (legend(spans))
            ol.waterfall {
                li.ticks aria-hidden="true" {
                    span.name {}
                    span.scale { @for quarter in 0..=4 { span { (words::milliseconds(axis.length * f64::from(quarter) / 4.0)) } } }
                    span.took {}
                }
                @for span in spans.iter().take(MOST) { (row(&axis, span)) }
            }
        }
        @if spans.len() > MOST { p.soft { "… " (spans.len() - MOST) " more" } }
    }
}

fn row(axis: &Axis, span: &Span<'_>) -> Markup {
    let (class, what) = class_of(span.what);
    html! {
        li class=(class) {
            span.name {
                @if !what.is_empty() { span.soft { (what) } " " }
                @match span.record {
                    // To its record, which says the rest.
                    Some((number, record)) => { a href=(format!("#r-{number}")) { (Name(span.name)) } " " span.soft { (record.point.name()) } }
                    None => { (Name(span.name)) }
                }
            }
            (bar(axis, span))
            span.took {
                @if span.what == What::Discarded { "discarded in this time" }
                @else if span.what != What::Refused { (words::milliseconds(span.ms)) }
                @if let Some((usage, cost)) = span.usage {
                    @if usage.total() > 0 { " · " (usage.input) "→" (usage.output) }
                    @if cost > 0.0 { " · " (words::dollars(cost)) }
                }
                @if let Some((_, record)) = span.record { " " (decision(record.decision)) }
            }
        }
    }
}

/// How a bar looks, and what stands before its name.
fn class_of(what: What) -> (&'static str, &'static str) {
    match what {
        What::Stage => ("stage", ""),
        What::Model => ("model", "model"),
        What::Discarded => ("discarded", "discarded"),
        What::Tool => ("tool", "tool"),
        What::Wait => ("wait", "waited"),
        What::Refused => ("refused", "stop"),
        What::Hook => ("hook", "hook"),
    }
}

fn legend(spans: &[Span<'_>]) -> Markup {
    let kinds = [
        (What::Model, "model call"),
        (What::Discarded, "discarded reply"),
        (What::Tool, "tool"),
        (What::Hook, "hook"),
        (What::Wait, "waited for somebody, drawn short"),
        (What::Refused, "stop refused"),
    ];
    html! {
        p.legend.soft {
            @for (what, text) in kinds.into_iter().filter(|(what, _)| spans.iter().any(|span| span.what == *what)) {
                span class=(class_of(what).0) {
                    svg.key viewBox="0 0 10 10" aria-hidden="true" { rect.fill x="0" y="0" width="10" height="10" {} }
                    (text)
                }
            }
        }
    }
}

/// Replies that have no bar because no reply came behind them.
fn without_bars(events: &[Arc<Event>], spans: &[Span<'_>]) -> Markup {
    let calls = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended.model_calls as usize),
        _ => None,
    });
    let bars = spans.iter().filter(|span| matches!(span.what, What::Model | What::Discarded)).count();
    let missing = calls.unwrap_or_default().saturating_sub(bars);
    html! {
        @if missing > 0 {
            p.soft { (words::count(missing, "model call")) " more: of a reply that did not come or was not let through, the log has no time." }
        }
    }
}

fn bar(axis: &Axis, span: &Span<'_>) -> Markup {
    let from = axis.place(span.from).min(LENGTH - LEAST);
    let width = (axis.place(span.from + span.ms) - from).max(LEAST);
    // Attributes of SVG, since a style attribute would need a weaker policy.
    html! {
        svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect.track x="0" y="0" width="1000" height="10" {}
            @for tick in ["250", "500", "750"] { rect.tick x=(tick) y="0" width="1" height="10" {} }
            rect.fill x=(format!("{from:.1}")) y="0" width=(format!("{width:.1}")) height="10" {}
        }
    }
}

/// How long a bar can be, and how short: what took next to no time is still seen.
const LENGTH: f64 = 1_000.0;
const LEAST: f64 = 8.0;

/// Maps moments of the turn to places from 0 to 1000.
struct Axis {
    waits: Vec<(f64, f64)>,
    length: f64,
}

impl Axis {
    fn of(spans: &[Span<'_>]) -> Self {
        let mut waits: Vec<(f64, f64)> =
            spans.iter().filter(|span| span.what == What::Wait).map(|span| (span.from, span.from + span.ms)).collect();
        waits.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut axis = Self { waits, length: 1.0 };
        axis.length = spans.iter().map(|span| axis.worked(span.from + span.ms)).fold(1.0, f64::max);
        axis
    }

    /// The time at work before a moment.
    fn worked(&self, at: f64) -> f64 {
        let (mut waited, mut until) = (0.0, 0.0_f64);
        for (from, to) in &self.waits {
            let (from, to) = (from.max(until), to.min(at));
            if to > from {
                waited += to - from;
                until = to;
            }
        }
        at - waited
    }

    fn place(&self, at: f64) -> f64 {
        (self.worked(at) / self.length * LENGTH).clamp(0.0, LENGTH)
    }
}

fn decision(decision: Decision) -> Markup {
    let class = match decision {
        Decision::Continue | Decision::Accept | Decision::Wrap | Decision::Approve => "quiet",
        Decision::Failed
        | Decision::Halt
        | Decision::Reject
        | Decision::Deny
        | Decision::Refuse
        | Decision::Prevent => "bad",
        _ => "mild",
    };
    html! { span class={ "decision " (class) } { (decision.name()) } }
}

/// What each hook decided, and what it changed, behind a click.
fn records(page: &TurnPage<'_>) -> Markup {
    let added = added(page.events, page.records);
    html! {
        @if page.records.is_empty() { p.soft { "No hook ran, or its records are gone." } }
        @for (number, (record, added)) in page.records.iter().zip(&added).enumerate() {
            @let (id, title, more) = (format!("r-{number}"), record_title(record), record_more(page.events, record, added));
            @if more.0.is_empty() { div.record id=(id) tabindex="-1" { p { (title) } } }
            @else { details.fold.record id=(id) { summary { (title) } (more) } }
        }
    }
}

fn record_title(record: &Record) -> Markup {
    html! {
        strong { (Name(&record.hook)) } " " span.soft { (record.point.name()) } " " (decision(record.decision))
        span.soft.meta {
            (words::milliseconds(record.took.as_secs_f64() * 1_000.0))
            @if record.tokens > 0 { " · " (record.tokens) " tokens added" }
            @if record.shed > 0 { " · " (record.shed) " tokens shed" }
        }
    }
}

/// What there is to say of a record beyond its title; nothing if that is all.
fn record_more(events: &[Arc<Event>], record: &Record, added: &[&Content]) -> Markup {
    html! {
        @if let Some(reason) = &record.reason { (words::verbatim(reason)) }
        @if let Some(failure) = &record.failure { p.warn { (Shown(failure)) } }
        @if let Some(outcome) = &record.outcome { p { "Its program ended: " (Name(outcome)) } }
        @match &record.change {
            Some(change) => { (changed(change)) }
            // Of a turn before records had it.
            None => {
                @for content in added { p.soft { "It added:" } (code::block("", &content.text())) }
                @if record.tokens > 0 && added.is_empty() {
                    p.soft { "It added " (record.tokens) " tokens to the context of this turn. Its record does not have the text." }
                }
                (changes(events, record))
            }
        }
    }
}

/// What a hook added, and what it put in the place of something else.
fn changed(change: &Change) -> Markup {
    html! {
        @for added in &change.injected {
            p.soft { @if added.left_out { "There was no room for what it wanted to add " } @else { "It added " } (added.lasts.name()) ":" }
            (code::block("", &added.text))
        }
        @if let Some(edit) = &change.edit { (edited(edit)) }
    }
}

/// What was and what became of it: as one diff where lines stay the same, else as two blocks.
fn edited(edit: &Edit) -> Markup {
    let block = |text: &str| match (edit.of, serde_json::from_str(text)) {
        (Edited::Arguments, Ok(value)) => card::arguments(&value),
        _ => code::block("", text),
    };
    let is_diff = |before: &str, after: &str| {
        edit.of != Edited::Arguments
            && before.lines().count() > 1
            && before.lines().any(|line| after.lines().any(|other| other == line))
    };
    html! {
        p.soft { "It changed the " (edit.of.name()) @if let Some(what) = &edit.what { ": " (Shown(what)) } "." }
        @match (&edit.before, &edit.after) {
            (Some(before), Some(after)) if is_diff(before, after) => { (code::replaced(before, after)) }
            (before, after) => {
                @if let Some(before) = before { p.soft { "Before:" } (block(before)) }
                @if let Some(after) = after { p.soft { @if before.is_some() || edit.hidden { "After:" } @else { "It gave:" } } (block(after)) }
            }
        }
        @if edit.hidden { p.soft { "Not all of it is kept: the hook hides what it takes out, or the reply was taken back." } }
    }
}

fn changes(events: &[Arc<Event>], record: &Record) -> Markup {
    let asked = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolCall { call, arguments, .. } if Some(call) == record.call.as_ref() => Some(arguments),
        _ => None,
    });
    let ran = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::ToolStarted { call, arguments, .. } if Some(call) == record.call.as_ref() => Some(arguments),
        _ => None,
    });
    let result = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) if record.point == Point::AfterAgent => ended.result(),
        _ => None,
    });
    html! {
        @if let (Decision::Rewrite, Some(asked), Some(ran)) = (record.decision, asked, ran) {
            p.soft { "The model asked for:" } (card::arguments(&asked.value()))
            p.soft { "It ran with:" } (card::arguments(&ran.value()))
        }
        @if let Some(result) = result { p.soft { "The result shown:" } (card::json(result)) }
    }
}
