//! A question of an MCP server: asked field by field, and sent when the person has seen what is sent.
//!
//! The server waits meanwhile, and gets nothing that the person did not confirm: a line that was meant for the model must not reach it.

use serde_json::{Map, Value};
use turnbuckle_mcp::{Elicitation, ElicitationAnswer};

use super::super::notify::Waiting;
use super::Session;
use crate::mcp::Asked;
use crate::show::{Line, Tone, clean, name};

/// The most fields that a person is asked for.
const MOST_FIELDS: usize = 20;

/// What is being asked, and what was answered so far.
pub(super) struct Elicited {
    asked: Asked,
    fields: Vec<Field>,
    given: Map<String, Value>,
    /// The field that the next line is for. Behind the last one it is whether to send.
    at: usize,
}

/// A property of the answer.
struct Field {
    key: String,
    kind: Kind,
    is_required: bool,
    /// What Enter alone gives.
    default: Option<Value>,
    /// What the server says about it.
    about: String,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Text,
    Number,
    Boolean,
    /// One of these.
    Choice(Vec<Choice>),
    /// Any of these, separated by commas.
    Several(Vec<Choice>),
}

/// One of a list.
#[derive(Debug, PartialEq)]
struct Choice {
    value: String,
    /// What it is called, if it has another name.
    title: Option<String>,
}

impl Choice {
    fn all(schema: &Value) -> Vec<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let named = |one: &Value| {
            let value = text(one).or_else(|| text(one.get("const")?))?;
            Some(Self { value, title: one.get("title").and_then(text) })
        };
        let list = ["enum", "oneOf", "anyOf"].into_iter().find_map(|key| schema.get(key)?.as_array());
        let mut all: Vec<Self> = list.into_iter().flatten().filter_map(named).collect();
        let titles = schema.get("enumNames").and_then(Value::as_array).into_iter().flatten();
        for (one, title) in all.iter_mut().zip(titles) {
            one.title = one.title.take().or_else(|| text(title));
        }
        all
    }

    fn shown(&self) -> String {
        match &self.title {
            Some(title) if *title != self.value => format!("{} ({})", name(&self.value), name(title)),
            _ => name(&self.value),
        }
    }

    /// The one that is meant, by its value or its title.
    fn meant<'a>(choices: &'a [Self], word: &str) -> Option<&'a str> {
        let by_value = choices.iter().find(|choice| choice.value == word);
        let meant = by_value.or_else(|| choices.iter().find(|choice| choice.title.as_deref() == Some(word)));
        meant.map(|choice| choice.value.as_str())
    }
}

impl Field {
    fn all(schema: &Value) -> Vec<Self> {
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let properties = schema.get("properties").and_then(Value::as_object);
        let field = |(key, of): (&String, &Value)| {
            let text = |at: &str| of.get(at).and_then(Value::as_str).map(str::to_owned);
            Self {
                key: key.clone(),
                kind: Kind::of(of),
                is_required: required.iter().any(|name| name == key),
                default: of.get("default").filter(|default| !default.is_null()).cloned(),
                about: text("description").or_else(|| text("title")).unwrap_or_default(),
            }
        };
        properties.into_iter().flatten().map(field).take(MOST_FIELDS).collect()
    }

    fn shown(&self) -> String {
        let kind = match &self.kind {
            Kind::Text => "text".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::Boolean => "y or n".to_owned(),
            Kind::Choice(choices) => choices.iter().map(Choice::shown).collect::<Vec<_>>().join(" | "),
            Kind::Several(choices) => {
                let choices: Vec<String> = choices.iter().map(Choice::shown).collect();
                format!("any of {}, with commas between them", choices.join(" | "))
            }
        };
        let optional = match &self.default {
            Some(default) => format!(", Enter alone: {}", clean(&default.to_string())),
            None if self.is_required => String::new(),
            None => ", may be left out".to_owned(),
        };
        format!("{} ({kind}{optional}) {}", name(&self.key), clean(&self.about))
    }
}

impl Kind {
    fn of(schema: &Value) -> Self {
        let choices = Choice::all(schema);
        match schema.get("type").and_then(Value::as_str) {
            Some("array") => Self::Several(schema.get("items").map(Choice::all).unwrap_or_default()),
            _ if !choices.is_empty() => Self::Choice(choices),
            Some("number" | "integer") => Self::Number,
            Some("boolean") => Self::Boolean,
            _ => Self::Text,
        }
    }

    /// The value that a line gives, or what is wrong with it.
    fn read(&self, line: &str) -> Result<Value, String> {
        match self {
            Self::Text => Ok(line.into()),
            Self::Number => match serde_json::from_str::<Value>(line) {
                Ok(value @ Value::Number(_)) => Ok(value),
                _ => Err("that is no number".to_owned()),
            },
            Self::Boolean => match line {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("y or n".to_owned()),
            },
            Self::Choice(choices) => {
                Choice::meant(choices, line).map(Value::from).ok_or_else(|| "that is none of them".to_owned())
            }
            Self::Several(choices) => {
                let words = line.split(',').map(str::trim).filter(|word| !word.is_empty());
                // A list without choices is one of texts.
                let meant = words.map(|word| match choices.is_empty() {
                    true => Ok(Value::from(word)),
                    false => {
                        let wrong = || format!("{} is none of them", name(word));
                        Choice::meant(choices, word).map(Value::from).ok_or_else(wrong)
                    }
                });
                meant.collect::<Result<Vec<Value>, String>>().map(Value::Array)
            }
        }
    }
}

impl Elicited {
    pub(super) fn label(&self) -> String {
        match self.fields.get(self.at) {
            Some(field) => format!("{} › ", name(&field.key)),
            None => "send it? y or n › ".to_owned(),
        }
    }

    fn server(&self) -> String {
        name(&self.asked.question.server)
    }
}

/// Ready when nobody waits for the answer any more.
pub(super) async fn withdrawn(elicited: &mut Option<Elicited>) {
    match elicited {
        Some(elicited) => elicited.asked.answer.closed().await,
        None => std::future::pending().await,
    }
}

impl Session {
    /// A server asks.
    pub(super) fn elicit(&mut self, asked: Asked) {
        let Elicitation { server, message, schema, .. } = &asked.question;
        let text = format!("the MCP server {} asks you: {}", name(server), clean(message));
        self.view.asked(&Line { label: "ask", tone: Tone::Hook, text });
        let fields = Field::all(schema);
        self.view.draft.set_aside();
        self.elicited = Some(Elicited { asked, fields, given: Map::new(), at: 0 });
        self.show_field();
        self.view.ring(Waiting::ForAnswer);
    }

    /// What the next line is for.
    fn show_field(&mut self) {
        let Some(elicited) = &self.elicited else { return };
        let text = match elicited.fields.get(elicited.at) {
            Some(field) => field.shown(),
            None => {
                let given = Value::Object(elicited.given.clone()).to_string();
                format!("{} would get {}", elicited.server(), clean(&given))
            }
        };
        self.view.asked(&Line { label: "", tone: Tone::Plain, text });
    }

    /// A line that answers it.
    pub(super) fn answer_elicited(&mut self, line: &str) {
        let Some(mut elicited) = self.elicited.take() else { return };
        let line = line.trim();
        let wrong = match elicited.fields.get(elicited.at) {
            Some(field) if line.is_empty() && field.default.is_some() => {
                elicited.given.extend(field.default.clone().map(|default| (field.key.clone(), default)));
                None
            }
            Some(field) if line.is_empty() && !field.is_required => None,
            Some(field) if line.is_empty() => Some(format!("{} is needed; Esc declines", name(&field.key))),
            Some(field) => match field.kind.read(line) {
                Ok(value) => {
                    elicited.given.insert(field.key.clone(), value);
                    None
                }
                Err(wrong) => Some(wrong),
            },
            None if line == "y" || line == "yes" => {
                let given = Value::Object(std::mem::take(&mut elicited.given));
                return self.end_elicited(elicited, ElicitationAnswer::Accepted(given), "sent to");
            }
            None if line == "n" || line == "no" => {
                return self.end_elicited(elicited, ElicitationAnswer::Declined, "declined to answer");
            }
            None => Some("y sends it, n declines".to_owned()),
        };
        elicited.at += usize::from(wrong.is_none());
        self.elicited = Some(elicited);
        match wrong {
            Some(wrong) => self.view.say("", Tone::Hook, &wrong),
            None => self.show_field(),
        }
    }

    /// Esc: nothing is sent. False if nothing was asked.
    pub(super) fn decline_elicited(&mut self) -> bool {
        let Some(elicited) = self.elicited.take() else { return false };
        self.end_elicited(elicited, ElicitationAnswer::Declined, "declined to answer");
        true
    }

    fn end_elicited(&mut self, elicited: Elicited, answer: ElicitationAnswer, what: &str) {
        self.view.say("", Tone::Dim, &format!("{what} the MCP server {}", elicited.server()));
        // A server that did not wait is told nothing.
        let _ = elicited.asked.answer.send(answer);
        self.view.draft.take_up();
    }

    /// The call is over, or its time.
    pub(super) fn elicitation_withdrawn(&mut self) {
        let Some(elicited) = self.elicited.take() else { return };
        self.view.say("", Tone::Dim, &format!("the MCP server {} no longer waits for an answer", elicited.server()));
        self.view.draft.take_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_become_what_the_schema_asks_for() {
        let schema = json!({ "type": "object", "required": ["color"], "properties": {
            "age": { "type": "integer" }, "color": { "type": "string", "enum": ["red", "blue"] },
            "ok": { "type": "boolean" }, "who": { "type": "string" } } });
        let fields = Field::all(&schema);
        let read = |at: usize, line: &str| fields[at].kind.read(line);
        assert_eq!((read(0, "4"), read(0, "four").is_err()), (Ok(json!(4)), true));
        assert_eq!((read(1, "red"), read(1, "green").is_err()), (Ok(json!("red")), true));
        assert_eq!((read(2, "n"), read(3, "4")), (Ok(json!(false)), Ok(json!("4"))));
        assert_eq!(fields.iter().map(|field| field.is_required).collect::<Vec<_>>(), [false, true, false, false]);
    }
    #[test]
    fn lists_have_titles_and_several_of_them_can_be_chosen() {
        let titled = json!([{ "const": "f1", "title": "Tuna" }, { "const": "f2", "title": "Cod" }]);
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "array", "items": { "anyOf": titled }, "default": ["f1"] },
            "b": { "type": "string", "enum": ["p1", "p2"], "enumNames": ["Cats", "Dogs"] },
            "c": { "type": "array", "items": { "type": "string", "enum": ["x", "y"] } },
            "d": { "type": "string", "oneOf": titled } } });
        let fields = Field::all(&schema);
        let read = |at: usize, line: &str| fields[at].kind.read(line);
        assert_eq!(read(0, "f2, Tuna"), Ok(json!(["f2", "f1"])));
        assert!(fields[0].shown().contains("f1 (Tuna)") && fields[0].shown().contains("Enter alone: [\"f1\"]"));
        assert_eq!((read(1, "Dogs"), read(1, "p1")), (Ok(json!("p2")), Ok(json!("p1"))));
        assert_eq!((read(2, "y"), read(2, "y,z").is_err()), (Ok(json!(["y"])), true));
        assert_eq!((read(3, "Cod"), read(3, "cod").is_err()), (Ok(json!("f2")), true));
    }
}
