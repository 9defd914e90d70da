//! The arguments of a call, as the log has them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::message::Text;

/// Deeper values stay as they are: `serde_json` does not parse what is nested more than 128 times.
const DEPTH: u32 = 100;

/// The arguments of a call in a log: any JSON value, immutable and cheap to clone.
///
/// Those of a turn that runs here are a value, which tools and hooks share. Those that were read back from a store are JSON text,
/// which is parsed when somebody looks at it: as a value, an object of two numbers takes 700 bytes, and a conversation at rest
/// holds those of every call in its window.
#[derive(Clone)]
pub struct Arguments(Form);

#[derive(Clone)]
enum Form {
    Value(Arc<Value>),
    /// Written by `serde_json` from a value.
    Text(Text),
}

impl Arguments {
    /// The value: shared, or parsed for the caller.
    #[inline]
    pub fn value(&self) -> Arc<Value> {
        match &self.0 {
            Form::Value(value) => value.clone(),
            Form::Text(text) => Arc::new(parsed(text)),
        }
    }

    /// Looks at the value without sharing it.
    #[inline]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Value) -> T) -> T {
        match &self.0 {
            Form::Value(value) => look(value),
            Form::Text(text) => look(&parsed(text)),
        }
    }

    /// The same as text, which takes less memory.
    pub(crate) fn compact(&self) -> Self {
        match &self.0 {
            Form::Value(value) if is_shallow(value, DEPTH) => Self(Form::Text(value.to_string().into())),
            _ => self.clone(),
        }
    }

    /// Whether both are the same in memory.
    #[cfg(test)]
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Value(one), Form::Value(other)) => Arc::ptr_eq(one, other),
            (Form::Text(one), Form::Text(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// The text was written from a value of few levels, so it can be parsed.
#[inline(never)]
fn parsed(text: &Text) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.as_ref().into()))
}

fn is_shallow(value: &Value, levels: u32) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_shallow(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_shallow(field, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Value::Null.into()
    }
}

impl From<Arc<Value>> for Arguments {
    fn from(value: Arc<Value>) -> Self {
        Self(Form::Value(value))
    }
}
impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        Arc::new(value).into()
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Value(one), Form::Value(other)) => Arc::ptr_eq(one, other) || one == other,
            // Numbers that are the same can be written in two ways, so different texts say nothing.
            (Form::Text(one), Form::Text(other)) if one == other => true,
            _ => self.value() == other.value(),
        }
    }
}

impl PartialEq<Value> for Arguments {
    fn eq(&self, other: &Value) -> bool {
        self.look(|value| value == other)
    }
}

/// As JSON.
impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Value(value) => value.fmt(f),
            Form::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.value(), f)
    }
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Form::Value(value) => value.serialize(serializer),
            Form::Text(_) => self.value().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_says_what_the_value_says() {
        let awkward =
            json!({"b": [1, -2, 0.1, 1e300, u64::MAX, 3.0, -0.0], "a": {"": null}, "t": "\u{0}\"\\\u{2028}é😀"});
        for value in [awkward, json!({}), json!("not {json"), Value::Null] {
            let written = Arguments::from(value.clone());
            let compact = written.compact();
            assert!(matches!(compact.0, Form::Text(_)));
            assert_eq!(*compact.value(), value);
            assert_eq!(compact, written);
            assert_eq!(format!("{compact} {compact:?}"), format!("{written} {written:?}"));
            assert_eq!(serde_json::to_string(&compact).unwrap(), serde_json::to_string(&value).unwrap());
        }
        assert_ne!(Arguments::from(json!({"a": 1})).compact(), Arguments::from(json!({"a": 2})).compact());
    }

    #[test]
    fn a_value_that_could_not_be_parsed_again_is_not_made_text() {
        let deep = (0..DEPTH + 1).fold(json!(1), |inner, _| json!([inner]));
        let kept = Arguments::from(deep.clone()).compact();
        assert_eq!(*kept.value(), deep);
        assert!(matches!(kept.0, Form::Value(_)));
    }
}
