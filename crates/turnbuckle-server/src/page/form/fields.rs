//! The fields of a form. Names are numbers: what a schema calls its properties may have characters that are not sent as they are.

use maud::{Markup, html};
use serde_json::Value;

use super::schema::{Asked, Choice, Field, Kind, asked};
use crate::page::card;
use crate::page::safe::{Shown, is_unsafe, visible_json};

/// A text that may be longer than this has a field of several lines.
const LONG_TEXT: u64 = 200;

/// The name of a field.
pub(super) fn name(number: usize) -> String {
    format!("f{number}")
}

/// The fields for an answer to a question with this schema. `prefix` makes their ids unique in the page.
pub(in crate::page) fn fields(schema: Option<&Value>, prefix: &str) -> Markup {
    match asked(schema) {
        Asked::One(only) => one(&only, 0, prefix),
        Asked::Json => html! {
            @let id = format!("{prefix}-json");
            label for=(id) { "Answer, as JSON" }
            textarea.mono id=(id) name="json" rows="4" required {}
            @if let Some(schema) = schema {
                details id=(format!("{prefix}-schema")) { summary { "What it must look like" } (card::json(schema)) }
            }
        },
        Asked::Fields(all) => html! {
            @for (number, field) in all.iter().enumerate() { (one(field, number, prefix)) }
        },
    }
}

/// What is filled in already.
enum Given {
    Nothing,
    Text(String),
    /// It has characters that are not seen, or that a field would change: it is shown and not filled in.
    Unseen(String),
}

impl Given {
    fn of(field: &Field<'_>) -> Self {
        let text = match field.default() {
            None | Some(Value::Null) => return Self::Nothing,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(all)) if matches!(field.kind, Kind::Lines(_)) => {
                let line = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
                let lines: Vec<String> = all.iter().map(line).collect();
                match lines.iter().any(|line| line.contains('\n')) {
                    true => return Self::Unseen(visible_json(&Value::Array(all.clone()))),
                    false => lines.join("\n"),
                }
            }
            Some(other) => other.to_string(),
        };
        match text.chars().any(|ch| is_unsafe(ch) && !matches!(ch, '\n' | '\t')) {
            true => Self::Unseen(visible_json(&text.into())),
            false => Self::Text(text),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Nothing | Self::Unseen(_) => None,
        }
    }
}

fn one(field: &Field<'_>, number: usize, prefix: &str) -> Markup {
    let (id, name, required) = (format!("{prefix}-f{number}"), name(number), field.is_required && !field.takes_null);
    let given = match field.kind {
        Kind::Choice(_) | Kind::Several(_) | Kind::Boolean => Given::Nothing,
        _ => Given::of(field),
    };
    let hints = hints(field, &given);
    let hint = format!("{id}-hint");
    let described = (!hints.is_empty()).then_some(hint.as_str());
    let is_default = |choice: &Choice| match field.default() {
        Some(Value::Array(all)) => all.contains(&choice.value),
        Some(value) => *value == choice.value,
        None => false,
    };
    let limit = |key: &str| field.limit(key).and_then(Value::as_u64);
    let is_long = field.key.is_none()
        || limit("maxLength").is_some_and(|most| most > LONG_TEXT)
        || given.text().is_some_and(|text| text.contains('\n'));
    html! {
        div.field {
            @match &field.kind {
                Kind::Boolean => {
                    label.check {
                        input type="checkbox" id=(id) name=(name) value="true"
                            checked[field.default() == Some(&Value::Bool(true))] aria-describedby=[described];
                        (Shown(field.title()))
                    }
                }
                Kind::Several(all) => {
                    fieldset aria-describedby=[described] {
                        legend { (Shown(field.title())) }
                        @for (at, choice) in all.iter().enumerate() {
                            label.check {
                                input type="checkbox" name=(name) value=(at) checked[is_default(choice)];
                                (Shown(&choice.title))
                            }
                        }
                    }
                }
                Kind::Choice(all) => {
                    (label(&id, field, required))
                    select id=(id) name=(name) required[required] aria-describedby=[described] {
                        // Nothing is chosen for somebody who has not chosen.
                        @if !required || !all.iter().any(is_default) { option value="" { "—" } }
                        @for (at, choice) in all.iter().enumerate() {
                            option value=(at) selected[is_default(choice)] { (Shown(&choice.title)) }
                        }
                    }
                }
                Kind::Number | Kind::Integer => {
                    (label(&id, field, required))
                    @let step = if matches!(field.kind, Kind::Integer) { "1" } else { "any" };
                    input type="number" id=(id) name=(name) step=(step) required[required]
                        min=[least(field)] max=[most(field)] value=[given.text()] aria-describedby=[described];
                }
                Kind::Lines(_) => {
                    (label(&id, field, required))
                    textarea id=(id) name=(name) rows="3" required[required] aria-describedby=[described] { "\n" (Shown(given.text().unwrap_or_default())) }
                }
                Kind::Text if is_long => {
                    (label(&id, field, required))
                    textarea id=(id) name=(name) rows="2" required[required] minlength=[limit("minLength")]
                        maxlength=[limit("maxLength")] aria-describedby=[described] { "\n" (Shown(given.text().unwrap_or_default())) }
                }
                Kind::Text => {
                    (label(&id, field, required))
                    input type=(input_type(field)) id=(id) name=(name) required[required] minlength=[limit("minLength")]
                        maxlength=[limit("maxLength")] value=[given.text()] aria-describedby=[described];
                }
            }
            @if !hints.is_empty() { p.hint id=(hint) { (Shown(&hints.join(" "))) } }
        }
    }
}

fn label(id: &str, field: &Field<'_>, required: bool) -> Markup {
    html! {
        label for=(id) { (Shown(field.title())) @if required && field.key.is_some() { " " span.soft { "(needed)" } } }
    }
}

/// The input of a text with a format, where browsers have one that gives just that format.
fn input_type(field: &Field<'_>) -> &'static str {
    match field.limit("format").and_then(Value::as_str) {
        Some("date") => "date",
        Some("email") => "email",
        Some("uri") => "url",
        _ => "text",
    }
}

/// The least number. Browsers count the steps of whole numbers from it, so it is whole, too.
fn least(field: &Field<'_>) -> Option<String> {
    let least = field.limit("minimum")?.as_f64()?;
    Some(if matches!(field.kind, Kind::Integer) { least.ceil() } else { least }.to_string())
}

fn most(field: &Field<'_>) -> Option<String> {
    let most = field.limit("maximum")?.as_f64()?;
    Some(if matches!(field.kind, Kind::Integer) { most.floor() } else { most }.to_string())
}

/// What there is to know about a field, in sentences.
fn hints(field: &Field<'_>, given: &Given) -> Vec<String> {
    let mut hints: Vec<String> = field.about_text("description").map(str::to_owned).into_iter().collect();
    let is_number = matches!(field.kind, Kind::Number | Kind::Integer);
    match (least(field), most(field)) {
        (Some(least), Some(most)) if is_number => hints.push(format!("From {least} to {most}.")),
        (Some(least), None) if is_number => hints.push(format!("At least {least}.")),
        (None, Some(most)) if is_number => hints.push(format!("At most {most}.")),
        _ => {}
    }
    if let (Kind::Text, Some(most)) = (&field.kind, field.limit("maxLength")) {
        hints.push(format!("At most {most} characters."));
    }
    if let (Kind::Text, "text", Some(format)) =
        (&field.kind, input_type(field), field.limit("format").and_then(Value::as_str))
    {
        hints.push(format!("In the format {format}."));
    }
    if let Kind::Lines(_) = field.kind {
        hints.push("One on each line.".to_owned());
    }
    if let Given::Unseen(json) = given {
        hints.push(format!("Proposed, as JSON: {json}"));
    }
    hints
}
