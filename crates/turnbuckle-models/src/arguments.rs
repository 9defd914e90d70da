//! The arguments of a tool call: text on the wire, which should be a JSON object and sometimes is not.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

/// Parses received arguments. Some servers send nothing for a tool without parameters: that is an empty object. Text that is not
/// a JSON object is kept as a string, and the runtime tells the model that its arguments are invalid.
pub(crate) fn received(text: &str) -> Arc<Value> {
    match text.trim().is_empty() {
        true => Arc::new(Value::Object(Map::new())),
        false => cut(text),
    }
}

/// Parses the arguments of the last call of a reply that was cut off at its length. No text means that the arguments had not
/// begun, so it is not an empty object: the call must not run without them.
pub(crate) fn cut(text: &str) -> Arc<Value> {
    // Why the text is not JSON does not matter: the runtime reports the text itself.
    let parsed = serde_json::from_str(text).ok().filter(Value::is_object);
    Arc::new(parsed.unwrap_or_else(|| Value::String(text.to_owned())))
}

/// Arguments as they are sent back: always an object, since providers refuse a history with anything else.
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
