//! A tool call as a card: what it was asked, how far it is, who let it run, what came of it.

use maud::{Markup, html};
use serde_json::Value;
use turnbuckle::event::{Approvals, Event, EventKind, Evidence, Executor, Resolved};
use turnbuckle::message::{Content, Part};
use turnbuckle::scope::Author;
use turnbuckle::trace::in_order;

use super::items::Call;
use super::question::{self, Forms};
use super::safe::{Name, Shown};
use super::view::View;
use super::{code, markdown, words};

/// How much of a result is shown, in bytes. What the model read is whole, and the API has it.
pub(super) const MOST_RESULT: usize = 64 * 1024;
/// The most characters of the line that says what a call is about.
const MOST_TITLE: usize = 120;

/// A call of the conversation.
pub(super) fn card(view: &View, call: &Call<'_>, forms: Forms<'_>) -> Markup {
    let id = call.element();
    let running = view.projection().in_flight_tools.get(call.id);
    let pending = view.projection().pending.get(call.id);
    let (state, said) = match (&call.result, running, pending) {
        (Some((true, _)), ..) => ("ok", "done"),
        (Some((false, _)), ..) => ("bad", "failed"),
        (None, _, Some(_)) => ("ask", "waits for an answer"),
        (None, Some(_), None) => ("run", "running"),
        (None, None, None) => ("none", "not run"),
    };
    let tool = call.tool();
    html! {
        article.card id=(id) data-in="log" data-state=(state) data-announce[pending.is_some()] {
            header {
                span.dot aria-hidden="true" {}
                h3 { @match tool { Some(tool) => { (Name(tool)) } None => { "Question" } } }
                @if let Some(about) = call.arguments.and_then(|arguments| about(&arguments.value())) { span.about { (Shown(&about)) } }
                span.badge { (said) }
            }
            @if let (Some(arguments), None) = (call.arguments, pending) {
                details.fold id=(format!("{id}-args")) {
                    summary { "Arguments" @if call.executor == Some(Executor::Client) { " (run by a client)" } }
                    (self::arguments(&arguments.value()))
                }
            }
            @if let Some(changed) = call.changed_arguments() {
                details.fold id=(format!("{id}-ran")) { summary { "Ran with other arguments" } (self::arguments(&changed.value())) }
            }
            @if let Some(pending) = pending { (question::question(pending, &id, forms)) }
            @for event in &call.resolutions { (resolution(event)) }
            @if let Some(Approvals { last: Some(by), rule: Some(rule), .. }) = call.approvals() {
                p.soft { "Ran without a question by the rule " code { (Name(rule)) } " of " (author(by)) }
            }
            @if let Some(progress) = running.and_then(|running| running.progress.as_deref()) {
                p.progress { (Shown(&one_line(progress))) }
            }
            @if let Some((ok, content)) = call.result { (result(&id, ok, content)) }
        }
    }
}

fn one_line(progress: &Value) -> String {
    let text = progress.as_str().map_or_else(|| progress.to_string(), str::to_owned);
    text.trim_end().lines().last().unwrap_or_default().chars().take(300).collect()
}

fn result(id: &str, ok: bool, content: &Content) -> Markup {
    let text = content.text();
    let shown = &text[..text.floor_char_boundary(MOST_RESULT)];
    let (said, diff) = code::split_diff(shown);
    let said = said.trim();
    let is_short = said.lines().count() <= 2 && said.len() <= 240;
    html! {
        @if is_short {
            @if !said.is_empty() { p.result.bad[!ok] { (Shown(said)) } }
        } @else {
            details.fold id=(format!("{id}-result")) open[!ok] {
                summary { "Result " span.soft { "(" (words::bytes(text.len())) ")" } }
                (code::block("", said))
            }
        }
        @if let Some(diff) = diff { (code::diff(diff)) }
        @if shown.len() < text.len() { p.soft { "… " (words::bytes(text.len() - shown.len())) " more, not shown here" } }
        (other_parts(content))
    }
}

/// Pictures and files are named and not loaded.
pub(super) fn other_parts(content: &Content) -> Markup {
    html! {
        @for part in content.parts() {
            @match part {
                Part::Image(image) => { (attachment("picture", &image.media_type, None, image.url.as_deref())) }
                Part::File(file) => { (attachment("file", &file.media_type, file.name.as_deref(), file.url.as_deref())) }
                _ => {}
            }
        }
    }
}

fn attachment(what: &str, media_type: &str, name: Option<&str>, url: Option<&str>) -> Markup {
    html! {
        p.attachment {
            (what) " "
            @if let Some(name) = name { strong { (Name(name)) } " " }
            span.soft { (Name(media_type)) }
            @if let Some(url) = url.filter(|url| markdown::is_harmless(url)) {
                " " a href=(Shown(url)) rel="noopener noreferrer nofollow" target="_blank" { "open" }
            }
        }
    }
}

fn resolution(event: &Event) -> Markup {
    let EventKind::Resolution { decision, by, reason, evidence, .. } = &event.kind else { return html! {} };
    let what = match decision {
        Resolved::Approved => "Approved by ",
        Resolved::Denied => "Denied by ",
        Resolved::Answered => "Answered by ",
        Resolved::Expired => "Nobody answered in time: ",
        Resolved::Cancelled => "No longer asked: ",
    };
    html! {
        p.resolved {
            (what) (author(by)) (how(evidence)) " " (words::time(event.at))
            @if let Some(reason) = reason { q { (Shown(reason)) } }
        }
        @if let Some(edited) = &evidence.arguments {
            div.edited { p.soft { "With these arguments in the place of those shown:" } (arguments(edited)) }
        }
    }
}

fn how(evidence: &Evidence) -> Markup {
    html! {
        @if let Some(via) = &evidence.via { " via " (Name(via)) }
        @if let Some(standing) = &evidence.standing { ", by the standing approval " code { (Name(standing)) } }
        @if evidence.open { " (more approvals are needed)" }
    }
}

/// Who did it.
pub(super) fn author(by: &Author) -> Markup {
    html! {
        @match by {
            Author::User(id) => { strong { (Name(id)) } }
            Author::Hook(name) => { "the hook " strong { (Name(name)) } }
            Author::System(_) => { (Name(&by.to_string())) }
        }
    }
}

/// What a call is about in a line: the argument that a person looks for first.
fn about(arguments: &Value) -> Option<String> {
    let fields = arguments.as_object()?;
    let (_, first) = in_order(fields).into_iter().find(|(_, value)| !value.is_object() && !value.is_array())?;
    let text = first.as_str().map_or_else(|| first.to_string(), str::to_owned);
    let line: String = text.lines().next().unwrap_or_default().chars().take(MOST_TITLE).collect();
    Some(line)
}

/// Arguments as a person reads them: a field each, changes of files as differences, text as text.
pub(super) fn arguments(arguments: &Value) -> Markup {
    let Value::Object(fields) = arguments else { return json(arguments) };
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let language = text("path").and_then(|path| path.rsplit_once('.')).map_or("", |(_, end)| end);
    let is_change = text("old").is_some() && text("new").is_some();
    html! {
        dl.args {
            @for (key, value) in in_order(fields) {
                @if !(is_change && (key == "old" || key == "new")) {
                    dt { (Name(key)) }
                    dd {
                        @match value {
                            Value::String(patch) if key == "patch" => { (code::diff(patch)) }
                            Value::String(text) if text.contains('\n') => { (code::block(if key == "content" { language } else { "" }, text)) }
                            Value::String(text) => { code { (Shown(text)) } }
                            Value::Array(edits) if key == "edits" => { (self::edits(edits)) }
                            Value::Object(_) | Value::Array(_) => { (json(value)) }
                            other => { code { (Shown(&other.to_string())) } }
                        }
                    }
                }
            }
            @if let (Some(old), Some(new)) = (text("old"), text("new")) {
                dt { "change" }
                dd { (code::replaced(old, new)) }
            }
        }
    }
}

fn edits(edits: &[Value]) -> Markup {
    html! {
        @for edit in edits {
            @match (edit.get("old").and_then(Value::as_str), edit.get("new").and_then(Value::as_str)) {
                (Some(old), Some(new)) => {
                    (code::replaced(old, new))
                    @if edit.get("all").and_then(Value::as_bool) == Some(true) { p.soft { "everywhere in the file" } }
                }
                _ => { (json(edit)) }
            }
        }
    }
}

/// JSON to read.
pub(super) fn json(value: &Value) -> Markup {
    // A value in memory can always be written.
    code::block("json", &serde_json::to_string_pretty(value).unwrap_or_default())
}
