//! Forms made from a JSON schema, and the answers that they send. A schema that is more than a flat object, or one simple value, is
//! asked for as JSON.

mod fields;
mod schema;

use serde_json::{Map, Value};

use self::fields::name;
use self::schema::{Asked, Choice, Field, Kind, Scalar, asked};

pub(super) use self::fields::fields;

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

/// The answer that a form made by [`fields`] sent. Whether it fits the schema in full is checked where the answer is stored.
pub(super) fn read(schema: Option<&Value>, sent: &Sent) -> Result<Value, BadAnswer> {
    match asked(schema) {
        Asked::One(only) => Ok(answer_of(&only, 0, sent)?.unwrap_or(Value::Null)),
        Asked::Json => parse(sent.iter().find(|(key, _)| key == "json").map_or("", |(_, text)| text)),
        Asked::Fields(all) => {
            let mut answer = Map::new();
            for (number, field) in all.iter().enumerate() {
                if let (Some(key), Some(value)) = (field.key, answer_of(field, number, sent)?) {
                    answer.insert(key.to_owned(), value);
                }
            }
            Ok(Value::Object(answer))
        }
    }
}

/// What was answered in one field; `None` if nothing was, and nothing had to be.
fn answer_of(field: &Field<'_>, number: usize, sent: &Sent) -> Result<Option<Value>, BadAnswer> {
    let name = name(number);
    let mut given = sent.iter().filter(|(key, _)| *key == name).map(|(_, value)| value.as_str());
    match value(field, &mut given)? {
        None if field.is_required && field.takes_null => Ok(Some(Value::Null)),
        None if field.is_required => Err(BadAnswer::Missing(field.key.unwrap_or("an answer").to_owned())),
        value => Ok(value),
    }
}

fn value(field: &Field<'_>, given: &mut dyn Iterator<Item = &str>) -> Result<Option<Value>, BadAnswer> {
    let chosen = |all: &[Choice], text: &str| match text.parse::<usize>().ok().and_then(|at| all.get(at)) {
        Some(choice) => Ok(choice.value.clone()),
        None => Err(BadAnswer::NotAChoice(text.chars().take(80).collect())),
    };
    Ok(match &field.kind {
        // A box that is not ticked is not sent.
        Kind::Boolean => Some(Value::Bool(given.next().is_some())),
        Kind::Several(all) => Some(given.map(|text| chosen(all, text)).collect::<Result<Vec<_>, _>>()?.into()),
        Kind::Choice(all) => given.next().filter(|text| !text.is_empty()).map(|text| chosen(all, text)).transpose()?,
        Kind::Text => given.next().map(typed).filter(|text| is_text(field, text)).map(Value::from),
        Kind::Integer => number(field, given.next(), Scalar::Integer)?,
        Kind::Number => number(field, given.next(), Scalar::Number)?,
        Kind::Lines(each) => {
            let text = typed(given.next().unwrap_or_default());
            let lines = text.split('\n').filter(|line| !line.trim().is_empty());
            let all = lines.map(|line| scalar(field, line, *each)).collect::<Result<Vec<_>, _>>()?;
            (!all.is_empty() || field.is_required && !field.takes_null).then(|| all.into())
        }
    })
}

/// Browsers end the lines of a text with two characters.
fn typed(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Whether a text is an answer. An empty one is, where a property must be there; where the answer itself is asked for, it is none.
fn is_text(field: &Field<'_>, text: &str) -> bool {
    match field.key {
        None => !text.trim().is_empty(),
        Some(_) => !text.is_empty() || field.is_required && !field.takes_null,
    }
}

fn number(field: &Field<'_>, given: Option<&str>, each: Scalar) -> Result<Option<Value>, BadAnswer> {
    given.filter(|text| !text.is_empty()).map(|text| scalar(field, text, each)).transpose()
}

fn scalar(field: &Field<'_>, text: &str, each: Scalar) -> Result<Value, BadAnswer> {
    let wrong = || BadAnswer::NotANumber(field.key.unwrap_or("the answer").to_owned());
    match each {
        Scalar::Text => Ok(text.into()),
        Scalar::Integer => text.trim().parse::<i64>().map(Value::from).map_err(|_| wrong()),
        Scalar::Number => {
            let number = text.trim().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            number.map(Value::Number).ok_or_else(wrong)
        }
    }
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

    /// The fields and the answer to a schema.
    fn filled(schema: &Value, pairs: &[(&str, &str)]) -> (String, Result<Value, BadAnswer>) {
        (fields(Some(schema), "q").0, read(Some(schema), &sent(pairs)))
    }

    #[test]
    fn a_form_sends_what_its_schema_asks_for() {
        let schema = json!({ "type": "object", "required": ["color", "age"], "properties": {
            "age": { "type": "integer" }, "color": { "enum": ["red", "blue"] },
            "fish": { "type": "array", "items": { "anyOf": [{ "const": "f1", "title": "Tuna" }, { "const": "f2" }] } },
            "ok": { "type": "boolean" }, "who": { "type": "string", "description": "a <b>name</b>" } } });
        let form = fields(Some(&schema), "q-1").0;
        assert!(form.contains("id=\"q-1-f1\" name=\"f1\"") && form.contains("&lt;b&gt;name"), "{form}");
        let given = sent(&[("f0", "4"), ("f1", "0"), ("f2", "1"), ("f2", "0"), ("f4", "")]);
        assert_eq!(
            read(Some(&schema), &given).unwrap(),
            json!({"age": 4, "color": "red", "fish": ["f2", "f1"], "ok": false})
        );
        let wrong = |pairs: &[(&str, &str)]| read(Some(&schema), &sent(pairs)).unwrap_err();
        assert!(matches!(wrong(&[("f0", "x")]), BadAnswer::NotANumber(key) if key == "age"));
        assert!(matches!(wrong(&[("f0", "1")]), BadAnswer::Missing(key) if key == "color"));
        assert!(matches!(wrong(&[("f0", "1"), ("f1", "green")]), BadAnswer::NotAChoice(text) if text == "green"));
    }

    #[test]
    fn what_is_no_flat_object_is_asked_for_as_text_or_json() {
        assert_eq!(read(None, &sent(&[("f0", "blue")])).unwrap(), json!("blue"));
        assert!(matches!(read(None, &sent(&[("f0", " ")])), Err(BadAnswer::Missing(_))));
        let nested = json!({ "type": "object", "properties": { "a": { "type": "object" } } });
        assert!(fields(Some(&nested), "q").0.contains("name=\"json\""));
        assert_eq!(read(Some(&nested), &sent(&[("json", "{\"a\":{}}")])).unwrap(), json!({"a": {}}));
        assert!(matches!(read(Some(&nested), &sent(&[("json", "blue")])), Err(BadAnswer::NotJson(_))));
    }

    #[test]
    fn a_title_is_shown_whole_whatever_its_length() {
        let title =
            "Delete the backups of all customers of the last year, which cannot be undone, but NOT those of this month";
        for kind in ["string", "integer", "boolean"] {
            let schema = json!({ "type": "object", "properties": { "a": { "type": kind, "title": title } } });
            assert!(fields(Some(&schema), "q").0.contains(title), "{kind}");
        }
    }

    #[test]
    fn what_is_typed_for_a_property_with_a_hidden_character_reaches_it() {
        let schema = json!({ "type": "object", "properties": { "bad\u{202e}key": { "type": "string" },
            "list": { "enum": ["a\u{200b}", "a"] } } });
        let (form, answer) = filled(&schema, &[("f0", "typed"), ("f1", "0")]);
        assert!(form.contains("name=\"f0\"") && !form.contains('\u{202e}'), "{form}");
        assert_eq!(answer.unwrap(), json!({"bad\u{202e}key": "typed", "list": "a\u{200b}"}));
    }

    #[test]
    fn a_default_with_line_breaks_is_sent_as_it_is() {
        let schema =
            json!({ "type": "object", "properties": { "t": { "type": "string", "default": "line1\nline2" } } });
        let (form, answer) = filled(&schema, &[("f0", "line1\r\nline2")]);
        assert!(form.contains("<textarea") && form.contains(">\nline1\nline2</textarea>"), "{form}");
        assert_eq!(answer.unwrap(), json!({"t": "line1\nline2"}));
    }

    #[test]
    fn a_default_with_hidden_characters_is_shown_as_json_and_not_filled_in_changed() {
        let schema = json!({ "type": "object", "properties": { "t": { "type": "string", "default": "a\u{202e}b" } } });
        let form = fields(Some(&schema), "q").0;
        assert!(form.contains("Proposed, as JSON: &quot;a\\u202eb&quot;") && !form.contains(" value="), "{form}");
    }

    #[test]
    fn one_simple_value_is_asked_for_with_one_field() {
        let answer = |schema: Value, typed: &str| {
            let (form, answer) = filled(&schema, &[("f0", typed)]);
            assert!(!form.contains("as JSON"), "{form}");
            answer.unwrap()
        };
        assert_eq!(answer(json!({"enum": ["yes", "no"]}), "1"), json!("no"));
        assert_eq!(answer(json!({"enum": [1, 2, 3]}), "2"), json!(3));
        assert_eq!(answer(json!({"type": "boolean"}), "1"), json!(false));
        assert_eq!(answer(json!({"type": "integer"}), "7"), json!(7));
        assert_eq!(answer(json!({"type": "array", "items": {"type": "string"}}), "a\r\n\r\nb c"), json!(["a", "b c"]));
        let titled =
            json!({"type": "string", "oneOf": [{"const": "a", "title": "Alpha"}, {"const": "b", "title": "Beta"}]});
        assert!(fields(Some(&titled), "q").0.contains(">Beta</option>"));
        assert_eq!(answer(titled, "1"), json!("b"));
        // Somebody who has chosen nothing has not said yes.
        assert!(matches!(filled(&json!({"type": "boolean"}), &[]).1, Err(BadAnswer::Missing(_))));
    }

    #[test]
    fn nothing_is_an_answer_where_null_is_allowed() {
        let schema = json!({ "type": "object", "required": ["a", "b"], "properties": {
            "a": { "type": ["string", "null"] }, "b": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "c": { "type": ["boolean", "null"] } } });
        let answer = |pairs: &[(&str, &str)]| filled(&schema, pairs).1.unwrap();
        assert_eq!(answer(&[("f0", ""), ("f1", ""), ("f2", "")]), json!({"a": null, "b": null}));
        assert_eq!(answer(&[("f0", "x"), ("f1", "3"), ("f2", "0")]), json!({"a": "x", "b": 3, "c": true}));
    }

    #[test]
    fn limits_of_a_schema_are_those_of_its_fields() {
        let schema = json!({ "type": "object", "required": ["n"], "properties": {
            "d": { "type": "string", "format": "date" }, "n": { "type": "integer", "minimum": 0.5, "maximum": 5 },
            "s": { "type": "string", "maxLength": 3 } } });
        let form = fields(Some(&schema), "q").0;
        for part in ["type=\"date\"", "min=\"1\" max=\"5\"", "maxlength=\"3\"", "From 1 to 5.", "At most 3 characters."]
        {
            assert!(form.contains(part), "{part}: {form}");
        }
    }
}
