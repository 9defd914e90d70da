//! A tool call's arguments: text on the wire, JSON inside, and whatever a model makes of them.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// As received. Nothing at all is what a tool without parameters is sent by some servers; what is no JSON object stays a
/// string, so that the runtime can tell the model.
pub(crate) fn received(text: &str) -> Arc<Value> {
    match text.trim().is_empty() {
        true => Arc::new(Value::Object(Map::new())),
        false => cut(text),
    }
}

/// As received by a reply that reached its length: there nothing at all is no arguments yet.
pub(crate) fn cut(text: &str) -> Arc<Value> {
    let parsed = serde_json::from_str(text).ok().filter(Value::is_object);
    Arc::new(parsed.unwrap_or_else(|| Value::String(text.to_owned())))
}

/// As sent back: always an object, since providers refuse a history with anything else.
pub(crate) fn sent(arguments: &Value) -> Cow<'_, Value> {
    match arguments {
        Value::Object(_) => Cow::Borrowed(arguments),
        other => Cow::Owned(json!({ "invalid_arguments": other })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_an_empty_object_and_nonsense_stays_what_it_was() {
        assert_eq!(*received(""), json!({}));
        assert_eq!(*received(" \n"), json!({}));
        assert_eq!(*received("{\"a\":1}"), json!({ "a": 1 }));
        assert_eq!(*received("{\"a\":"), json!("{\"a\":"));
        assert_eq!(*received("[1]"), json!("[1]"));
        assert_eq!((&*cut(""), &*cut("{\"a\":1}")), (&json!(""), &json!({ "a": 1 })));
        assert_eq!(*sent(&json!("{\"a\":")), json!({ "invalid_arguments": "{\"a\":" }));
    }
}
