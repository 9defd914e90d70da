//! JSON on the wire, as both clients read and write it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use turnbuckle::Part;
use turnbuckle::model::ModelError;

use crate::failure::garbled;

/// A string. Servers send `null` or another type in its place; both count as empty, so that one odd field does not fail the whole
/// reply. Borrowed from the event where no character is escaped.
#[derive(Debug, Default)]
pub(crate) struct Str<'a>(Cow<'a, str>);

impl std::ops::Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrVisitor).map(Self)
    }
}

struct StrVisitor;

impl<'de> Visitor<'de> for StrVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Cow::Borrowed(""))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cow::Borrowed(""))
    }
}

/// Parses the JSON of an event. It is given as `&str`, so that serde_json does not check each string for being UTF-8.
pub(crate) fn parsed<'a, T: Deserialize<'a>>(event: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(event).map_err(garbled)
}

/// The data of an event as text.
pub(crate) fn text(event: &[u8]) -> Result<&str, ModelError> {
    std::str::from_utf8(event).map_err(garbled)
}

/// Reads a count of tokens. Some servers write it as a float. What is not a number counts as absent.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_u64().or_else(|| value.as_f64().map(|number| number as u64)))
}

/// The error message of a provider, from the body of a response or from the middle of a stream.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    pub(crate) kind: String,
    pub(crate) message: String,
    /// Some providers put the HTTP status here.
    pub(crate) code: Option<u16>,
    /// The request has more tokens than the model takes.
    pub(crate) too_long: Option<TooLong>,
}

/// What a provider says of a request with too many tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) limit: Option<u64>,
    pub(crate) size: Option<u64>,
}

impl TooLong {
    /// By the error's type, its code, or its words: providers and servers have no common form for it.
    fn read(error: &Value, message: &str) -> Option<Self> {
        let has =
            |key: &str, names: &[&str]| error.get(key).and_then(Value::as_str).is_some_and(|is| names.contains(&is));
        let by_name = has("code", &["context_length_exceeded", "string_above_max_length"])
            || has("type", &["exceed_context_size_error", "context_length_exceeded"]);
        let lower = message.to_ascii_lowercase();
        let by_words = [
            "prompt is too long",
            "input is too long",
            "maximum context length",
            "exceed context limit",
            "exceeds the context window",
            "exceeds the available context size",
            "exceed the available context size",
            "context window of this model",
            "context length exceeded",
        ];
        if !by_name && !by_words.iter().any(|words| lower.contains(words)) {
            return None;
        }
        let number = |key: &str| error.get(key).and_then(Value::as_u64);
        let (limit, size) = (number("n_ctx"), number("n_prompt_tokens"));
        let (said_limit, said_size) = Self::numbers(&lower);
        Some(Self { limit: limit.or(said_limit), size: size.or(said_size) })
    }

    /// The numbers in words like `210000 tokens > 200000 maximum`, `maximum context length is 4096 tokens. However, your messages
    /// resulted in 5000 tokens`: of two the smaller is the limit. One alone is taken for the limit.
    fn numbers(words: &str) -> (Option<u64>, Option<u64>) {
        let digits = |word: &str| word.chars().filter(|c| *c != ',').collect::<String>().parse::<u64>().ok();
        let is_part = |c: char| !c.is_ascii_digit() && c != ',';
        // What is smaller is no count of tokens that a model could have trouble with.
        let mut found: Vec<u64> = words.split(is_part).filter_map(digits).filter(|number| *number >= 256).collect();
        found.sort_unstable();
        found.dedup();
        match found.as_slice() {
            [] => (None, None),
            [limit] => (Some(*limit), None),
            [limit, size] => (Some(*limit), Some(*size)),
            // More than two: which is which cannot be told.
            _ => (None, None),
        }
    }
}

impl Complaint {
    /// Reads `{"error": {"type", "message", "code"}}` and its variants: the error may be a string, or not be wrapped in `error`.
    pub(crate) fn read(body: &Value) -> Option<Self> {
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        if let Some(message) = error.as_str() {
            return Some(Self { message: message.to_owned(), ..Self::default() });
        }
        let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
        let message = text("message").or_else(|| text("detail"))?;
        let code = error.get("code");
        let number = code.and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let kind = text("type").or_else(|| code.and_then(Value::as_str).map(str::to_owned)).unwrap_or_default();
        let too_long = TooLong::read(error, &message);
        Some(Self { kind, message, too_long, code: number.filter(|code| (400..600).contains(code)) })
    }

    /// The HTTP status that the error would have had before the stream began.
    pub(crate) fn status(&self) -> u16 {
        let by_kind = match self.kind.as_str() {
            "invalid_request_error" | "bad_request" => 400,
            "authentication_error" | "invalid_api_key" => 401,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            "rate_limit_error" | "rate_limit_exceeded" => 429,
            "timeout_error" => 504,
            "overloaded_error" => 529,
            _ => 500,
        };
        self.code.unwrap_or(by_kind)
    }
}

/// The JSON value that the text of a reply is. `None` if it is not JSON: the runtime then asks again.
pub(crate) fn object(content: &[Part]) -> Option<Arc<Value>> {
    let text: String = content.iter().filter_map(Part::as_text).collect();
    serde_json::from_str(&text).ok().map(Arc::new)
}

/// The body of a request without its messages and its system prompt, for the audit. Fields of `options` replace those of the body.
pub(crate) fn fields(body: &impl Serialize, options: &Map<String, Value>) -> Result<Value, ModelError> {
    let mut value = serde_json::to_value(body).map_err(unwritable)?;
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !["messages", "system"].contains(&name.as_str()));
        fields.extend(options.clone());
    }
    Ok(value)
}

fn unwritable(error: serde_json::Error) -> ModelError {
    ModelError::Protocol(format!("the request cannot be written: {error}"))
}

/// Serializes the body of a request. Fields of `options` replace those of the body.
pub(crate) fn written(body: &impl Serialize, options: &Map<String, Value>) -> Result<Vec<u8>, ModelError> {
    if options.is_empty() {
        return serde_json::to_vec(body).map_err(unwritable);
    }
    let mut value = serde_json::to_value(body).map_err(unwritable)?;
    if let Some(fields) = value.as_object_mut() {
        fields.extend(options.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    serde_json::to_vec(&value).map_err(unwritable)
}
