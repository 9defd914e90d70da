//! Forms made from a JSON schema, and the answers that they send. A schema that is more than a flat object is asked for as JSON.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::safe::{Name, Shown};

/// The most fields that a person is asked for one by one.
const MOST_FIELDS: usize = 30;

/// What a form sent: names and values, in order, as browsers send them.
pub type Sent = [(String, String)];

/// What is wrong with an answer, for the person who gave it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadAnswer {
    /// A field needs a value.
    #[error("{0} is needed")]
    Missing(String),
    /// A field takes only numbers.
    #[error("{0} is not a number")]
    NotANumber(String),
    /// A field takes only what its list has.
    #[error("{0} is none of the choices")]
    NotAChoice(String),
    /// What was typed as JSON is not JSON.
    #[error("that is not JSON")]
    NotJson(#[source] serde_json::Error),
    /// The form has neither an answer nor a decision.
    #[error("the form has no decision")]
    NoDecision,
}

/// How an answer is asked for.
enum Asked<'a> {
    Text,
    Json,
    Fields(Vec<Field<'a>>),
}

struct Field<'a> {
    key: &'a str,
    kind: Kind<'a>,
    is_required: bool,
    schema: &'a Value,
}

enum Kind<'a> {
    Text,
    Number,
    Integer,
    Boolean,
    Choice(Vec<(&'a str, &'a str)>),
    Several(Vec<(&'a str, &'a str)>),
}

fn asked<'a>(schema: Option<&'a Value>) -> Asked<'a> {
    let Some(schema) = schema else { return Asked::Text };
    if schema.get("type").and_then(Value::as_str) == Some("string") && schema.get("enum").is_none() {
        return Asked::Text;
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Asked::Json };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let field = |(key, schema): (&'a String, &'a Value)| {
        Some(Field { key, kind: kind(schema)?, is_required: required.contains(&key.as_str()), schema })
    };
    match properties.iter().map(field).collect::<Option<Vec<_>>>() {
        Some(fields) if fields.len() <= MOST_FIELDS => Asked::Fields(fields),
        _ => Asked::Json,
    }
}

fn kind(schema: &Value) -> Option<Kind<'_>> {
    let all = choices(schema);
    if !all.is_empty() {
        return Some(Kind::Choice(all));
    }
    match schema.get("type")?.as_str()? {
        "string" => Some(Kind::Text),
        "number" => Some(Kind::Number),
        "integer" => Some(Kind::Integer),
        "boolean" => Some(Kind::Boolean),
        "array" => Some(choices(schema.get("items")?)).filter(|all| !all.is_empty()).map(Kind::Several),
        _ => None,
    }
}

/// Values and what they are called.
fn choices(schema: &Value) -> Vec<(&str, &str)> {
    let list = ["enum", "oneOf", "anyOf"].into_iter().find_map(|key| schema.get(key)?.as_array());
    let titles = schema.get("enumNames").and_then(Value::as_array);
    let mut all: Vec<(&str, &str)> = Vec::new();
    for (at, one) in list.into_iter().flatten().enumerate() {
        let Some((value, title)) = choice(one) else { return Vec::new() };
        let named = titles.and_then(|titles| titles.get(at)?.as_str());
        all.push((value, named.unwrap_or(title)));
    }
    all
}

fn choice(one: &Value) -> Option<(&str, &str)> {
    let value = one.as_str().or_else(|| one.get("const")?.as_str())?;
    Some((value, one.get("title").and_then(Value::as_str).unwrap_or(value)))
}

/// The fields for an answer to a question with this schema. `prefix` makes their ids unique in the page.
pub(super) fn fields(schema: Option<&Value>, prefix: &str) -> Markup {
    let id = |key: usize| format!("{prefix}-f{key}");
    match asked(schema) {
        Asked::Text => html! {
            label for=(id(0)) { "Answer" }
            textarea id=(id(0)) name="text" rows="2" required {}
        },
        Asked::Json => html! {
            label for=(id(0)) { "Answer, as JSON" }
            textarea.mono id=(id(0)) name="json" rows="4" required {}
            @if let Some(schema) = schema {
                details id=(format!("{prefix}-schema")) { summary { "What it must look like" } (super::card::json(schema)) }
            }
        },
        Asked::Fields(all) => html! {
            @for (number, field) in all.iter().enumerate() { (one(field, &id(number))) }
        },
    }
}

fn one(field: &Field<'_>, id: &str) -> Markup {
    let text = |key: &str| field.schema.get(key).and_then(Value::as_str);
    let title = text("title").unwrap_or(field.key);
    let default = field.schema.get("default");
    let is_default = |value: &str| match default {
        Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(value)),
        Some(one) => one.as_str() == Some(value),
        None => false,
    };
    let (required, name) = (field.is_required, format!("a.{}", field.key));
    let given = default.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let hint = format!("{id}-hint");
    let about = text("description");
    let described = about.map(|_| hint.as_str());
    html! {
        div.field {
            @match &field.kind {
                Kind::Boolean => {
                    label.check {
                        input type="checkbox" id=(id) name=(Shown(&name)) value="true"
                            checked[default == Some(&Value::Bool(true))] aria-describedby=[described];
                        (Shown(title))
                    }
                }
                Kind::Several(all) => {
                    fieldset {
                        legend { (Shown(title)) }
                        @for (value, title) in all {
                            label.check {
                                input type="checkbox" name=(Shown(&name)) value=(Shown(value)) checked[is_default(value)];
                                (Shown(title))
                            }
                        }
                    }
                }
                Kind::Choice(all) => {
                    (label(id, title, required))
                    select id=(id) name=(Shown(&name)) required[required] aria-describedby=[described] {
                        @if !required { option value="" { "—" } }
                        @for (value, title) in all {
                            option value=(Shown(value)) selected[is_default(value)] { (Shown(title)) }
                        }
                    }
                }
                Kind::Number | Kind::Integer => {
                    (label(id, title, required))
                    @let step = if matches!(field.kind, Kind::Integer) { "1" } else { "any" };
                    input type="number" id=(id) name=(Shown(&name)) step=(step) required[required]
                        value=[given.as_deref().map(Shown)] aria-describedby=[described];
                }
                Kind::Text => {
                    (label(id, title, required))
                    input type="text" id=(id) name=(Shown(&name)) required[required]
                        value=[given.as_deref().map(Shown)] aria-describedby=[described];
                }
            }
            @if let Some(about) = about { p.hint id=(hint) { (Shown(about)) } }
        }
    }
}

fn label(id: &str, title: &str, required: bool) -> Markup {
    html! { label for=(id) { (Name(title)) @if required { " " span.soft { "(needed)" } } } }
}

/// The answer that a form made by `fields` sent. Whether it fits the schema in full is checked where the answer is stored.
pub(super) fn read(schema: Option<&Value>, sent: &Sent) -> Result<Value, BadAnswer> {
    let get = |name: &str| sent.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    match asked(schema) {
        Asked::Text => get("text")
            .filter(|text| !text.trim().is_empty())
            .map(|text| Value::String(text.to_owned()))
            .ok_or(BadAnswer::Missing("an answer".to_owned())),
        Asked::Json => parse(get("json").unwrap_or_default()),
        Asked::Fields(all) => {
            let mut answer = Map::new();
            for field in all {
                let name = format!("a.{}", field.key);
                let mut given = sent.iter().filter(|(key, _)| *key == name).map(|(_, value)| value.as_str());
                if let Some(value) = value(&field, &mut given)? {
                    answer.insert(field.key.to_owned(), value);
                } else if field.is_required {
                    return Err(BadAnswer::Missing(field.key.to_owned()));
                }
            }
            Ok(Value::Object(answer))
        }
    }
}

fn value(field: &Field<'_>, given: &mut dyn Iterator<Item = &str>) -> Result<Option<Value>, BadAnswer> {
    let key = || field.key.to_owned();
    let check = |all: &[(&str, &str)], text: &str| match all.iter().any(|(value, _)| *value == text) {
        true => Ok(Value::from(text)),
        false => Err(BadAnswer::NotAChoice(text.chars().take(80).collect())),
    };
    Ok(match &field.kind {
        // A box that is not ticked is not sent.
        Kind::Boolean => Some(Value::Bool(given.next().is_some())),
        Kind::Several(all) => Some(given.map(|text| check(all, text)).collect::<Result<Vec<_>, _>>()?.into()),
        Kind::Choice(all) => given.next().filter(|text| !text.is_empty()).map(|text| check(all, text)).transpose()?,
        Kind::Text => given.next().filter(|text| !text.is_empty() || field.is_required).map(Value::from),
        Kind::Integer => match given.next().filter(|text| !text.is_empty()) {
            Some(text) => Some(text.parse::<i64>().map(Value::from).map_err(|_| BadAnswer::NotANumber(key()))?),
            None => None,
        },
        Kind::Number => match given.next().filter(|text| !text.is_empty()) {
            Some(text) => {
                let number = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                Some(Value::Number(number.ok_or_else(|| BadAnswer::NotANumber(key()))?))
            }
            None => None,
        },
    })
}

/// JSON that a person typed.
pub(super) fn parse(text: &str) -> Result<Value, BadAnswer> {
    serde_json::from_str(text).map_err(BadAnswer::NotJson)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sent(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_form_sends_what_its_schema_asks_for() {
        let schema = json!({ "type": "object", "required": ["color", "age"], "properties": {
            "age": { "type": "integer" }, "color": { "enum": ["red", "blue"] }, "ok": { "type": "boolean" },
            "who": { "type": "string", "description": "a <b>name</b>" },
            "fish": { "type": "array", "items": { "anyOf": [{ "const": "f1", "title": "Tuna" }, { "const": "f2" }] } } } });
        let form = fields(Some(&schema), "q-1").0;
        assert!(form.contains("name=\"a.color\"") && form.contains("&lt;b&gt;name"), "{form}");
        let given = sent(&[("a.age", "4"), ("a.color", "red"), ("a.fish", "f2"), ("a.fish", "f1"), ("a.who", "")]);
        assert_eq!(
            read(Some(&schema), &given).unwrap(),
            json!({"age": 4, "color": "red", "fish": ["f2", "f1"], "ok": false})
        );
        let wrong = |pairs: &[(&str, &str)]| read(Some(&schema), &sent(pairs)).unwrap_err();
        assert!(matches!(wrong(&[("a.age", "x")]), BadAnswer::NotANumber(key) if key == "age"));
        assert!(matches!(wrong(&[("a.age", "1")]), BadAnswer::Missing(key) if key == "color"));
        assert!(
            matches!(wrong(&[("a.age", "1"), ("a.color", "green")]), BadAnswer::NotAChoice(text) if text == "green")
        );
    }

    #[test]
    fn what_is_no_flat_object_is_asked_for_as_text_or_json() {
        assert_eq!(read(None, &sent(&[("text", "blue")])).unwrap(), json!("blue"));
        let nested = json!({ "type": "object", "properties": { "a": { "type": "object" } } });
        assert!(fields(Some(&nested), "q").0.contains("name=\"json\""));
        assert_eq!(read(Some(&nested), &sent(&[("json", "{\"a\":{}}")])).unwrap(), json!({"a": {}}));
        assert!(matches!(read(Some(&nested), &sent(&[("json", "blue")])), Err(BadAnswer::NotJson(_))));
    }
}
