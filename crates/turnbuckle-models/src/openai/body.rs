//! The body of a request for chat completions.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Value, json};
use turnbuckle::message::{Message, Part, ToolCall};
use turnbuckle::model::{ModelError, Request};
use turnbuckle::tool::Definition;

use super::{OpenAi, WIRE};
use crate::arguments;
use crate::wire::{fields, written};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Value>,
    stream: bool,
    stream_options: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
}

/// Serializes a request.
pub(super) fn of(model: &OpenAi, request: &Request) -> Result<Vec<u8>, ModelError> {
    written(&with(model, request, Messages::of(model, request)), &model.options)
}

/// The body without messages.
pub(super) fn fields_of(model: &OpenAi, request: &Request) -> Result<Value, ModelError> {
    fields(&with(model, request, Messages::default()), &model.options)
}

fn with<'a>(model: &'a OpenAi, request: &Request, messages: Messages) -> Body<'a> {
    let tool = |tool: &Definition| {
        let (name, description, parameters) = (&tool.name, &tool.description, &*tool.parameters);
        json!({ "type": "function",
                "function": { "name": name, "description": description, "parameters": parameters } })
    };
    // OpenAI's prompt cache begins with the tools. Other servers may show a model tools that it must not call, so they are not
    // told of withheld ones.
    let withheld = if model.wire.is_original { request.withheld_tools() } else { &[] };
    let tools: Vec<Value> = request.tools().iter().chain(withheld).map(tool).collect();
    // Servers other than OpenAI's know only the older name of the limit.
    let (original, copy) = if model.wire.is_original { (model.max_tokens, None) } else { (None, model.max_tokens) };
    Body {
        model: &model.model,
        messages: messages.messages,
        stream: true,
        stream_options: json!({ "include_usage": true }),
        reasoning_effort: (model.wire.tools_or_reasoning && !tools.is_empty()).then_some("none"),
        tools,
        tool_choice: (request.tools().is_empty() && !withheld.is_empty()).then_some("none"),
        response_format: request.schema.as_ref().map(|schema| format(schema)),
        max_tokens: copy,
        max_completion_tokens: original,
    }
}

fn format(schema: &Value) -> Value {
    let strict = is_strict(schema);
    json!({ "type": "json_schema", "json_schema": { "name": "reply", "strict": strict, "schema": schema } })
}

/// Keywords that OpenAI refuses in a strict schema.
const NEVER_STRICT: &[&str] = &[
    "allOf",
    "contains",
    "default",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxLength",
    "maxProperties",
    "minLength",
    "minProperties",
    "not",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
    "uniqueItems",
];

/// Whether OpenAI accepts the schema as strict: every object requires all its properties and allows no others. It refuses a request
/// that asks for strictness with any other schema.
fn is_strict(schema: &Value) -> bool {
    let Some(fields) = schema.as_object() else { return true };
    if fields.keys().any(|key| NEVER_STRICT.contains(&key.as_str())) {
        return false;
    }
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        let required: HashSet<&str> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let closed = fields.get("additionalProperties") == Some(&Value::Bool(false));
        if !closed || properties.keys().any(|name| !required.contains(name.as_str())) {
            return false;
        }
        if !properties.values().all(is_strict) {
            return false;
        }
    } else if fields.get("type").and_then(Value::as_str) == Some("object") {
        return false;
    }
    let inner = ["items", "anyOf", "$defs", "definitions"];
    inner.iter().filter_map(|key| fields.get(*key)).all(|inner| match inner {
        Value::Array(schemas) => schemas.iter().all(is_strict),
        Value::Object(schemas) if !schemas.contains_key("type") => schemas.values().all(is_strict),
        schema => is_strict(schema),
    })
}

/// The messages of a request, in the form of chat completions.
#[derive(Default)]
struct Messages {
    messages: Vec<Value>,
    /// Images and files in tool results. A message of role `tool` has text only, so they follow in a message of the user once all
    /// results are written.
    attachments: Vec<Value>,
}

impl Messages {
    fn of(model: &OpenAi, request: &Request) -> Self {
        let mut written = Self::default();
        if !request.system.trim().is_empty() {
            written.messages.push(json!({ "role": "system", "content": *request.system }));
        }
        let opening = request.messages.iter().rposition(|message| matches!(message, Message::User(_))).unwrap_or(0);
        for (index, message) in request.messages.iter().enumerate() {
            if !matches!(message, Message::Result { .. }) {
                written.flush_attachments();
            }
            // Thinking is sent back with the calls of its own turn. Some servers refuse that of earlier turns, and none uses it.
            let with_thinking = index > opening && !model.wire.is_original;
            written.message(message, with_thinking);
        }
        written.flush_attachments();
        written
    }

    fn message(&mut self, message: &Message, with_thinking: bool) {
        match message {
            Message::Assistant { content, calls } => self.assistant(content.parts(), calls, with_thinking),
            Message::Result { call, ok, content, .. } => {
                let text = joined(content.parts());
                let text = if *ok { text } else { Cow::Owned(format!("Error: {text}")) };
                self.messages.push(json!({ "role": "tool", "tool_call_id": call.as_str(), "content": text }));
                self.attachments.extend(content.parts().iter().filter_map(attachment));
            }
            other => self.user(other.content().parts()),
        }
    }

    fn assistant(&mut self, parts: &[Part], calls: &[ToolCall], with_thinking: bool) {
        let text = joined(parts);
        if text.trim().is_empty() && calls.is_empty() {
            return;
        }
        let content = if text.is_empty() { Value::Null } else { Value::from(&*text) };
        let mut message = json!({ "role": "assistant", "content": content });
        if !calls.is_empty() {
            message["tool_calls"] = calls.iter().map(called).collect();
        }
        if with_thinking && !calls.is_empty() {
            let thinking: String = parts.iter().filter_map(unsigned_thinking).collect();
            if !thinking.is_empty() {
                message["reasoning_content"] = thinking.into();
            }
        }
        // Fields that a gateway wants back as they came, such as `reasoning_details`. OpenAI itself sends none.
        for part in parts {
            if let Part::Provider(own) = part
                && *own.provider == *WIRE
                && let (Some(fields), Some(message)) = (own.block.as_object(), message.as_object_mut())
            {
                message.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        self.messages.push(message);
    }

    /// Adds a message of the user. It is joined with one before it: the chat templates of some local models do not allow two in a row.
    fn user(&mut self, parts: &[Part]) {
        let text = joined(parts);
        let attachments: Vec<Value> = parts.iter().filter_map(attachment).collect();
        if text.trim().is_empty() && attachments.is_empty() {
            return;
        }
        if attachments.is_empty() {
            if let Some(last) = self.messages.last_mut()
                && last["role"] == "user"
                && let Value::String(before) = &mut last["content"]
            {
                before.push_str("\n\n");
                before.push_str(&text);
                return;
            }
            self.messages.push(json!({ "role": "user", "content": text }));
            return;
        }
        let text = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
        let content: Vec<Value> = text.into_iter().chain(attachments).collect();
        self.messages.push(json!({ "role": "user", "content": content }));
    }

    fn flush_attachments(&mut self) {
        if !self.attachments.is_empty() {
            let content = std::mem::take(&mut self.attachments);
            self.messages.push(json!({ "role": "user", "content": content }));
        }
    }
}

/// All text parts as one string: not every server takes a list of parts.
fn joined(parts: &[Part]) -> Cow<'_, str> {
    let mut texts = parts.iter().filter_map(Part::as_text).filter(|text| !text.is_empty());
    match (texts.next(), texts.next()) {
        (None, _) => Cow::Borrowed(""),
        (Some(only), None) => Cow::Borrowed(only),
        (Some(first), Some(second)) => {
            let all: Vec<&str> = [first, second].into_iter().chain(texts).collect();
            Cow::Owned(all.join("\n\n"))
        }
    }
}

/// Thinking with a signature is another provider's, and not sent.
fn unsigned_thinking(part: &Part) -> Option<&str> {
    match part {
        Part::Thinking(thought) if thought.signature.is_none() => Some(&thought.text),
        _ => None,
    }
}

fn attachment(part: &Part) -> Option<Value> {
    let inline = |media_type: &str, data: &str| format!("data:{media_type};base64,{data}");
    match part {
        Part::Image(image) => {
            let url = match &image.data {
                Some(data) => inline(&image.media_type, data),
                None => image.url.as_deref()?.to_owned(),
            };
            Some(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Part::File(file) => {
            let name = file.name.as_deref().unwrap_or("file");
            Some(match &file.data {
                Some(data) => {
                    let data = inline(&file.media_type, data);
                    json!({ "type": "file", "file": { "filename": name, "file_data": data } })
                }
                None => json!({ "type": "text", "text": format!("[{name}: {}]", file.url.as_deref()?) }),
            })
        }
        _ => None,
    }
}

fn called(call: &ToolCall) -> Value {
    let arguments = arguments::sent(&call.arguments).to_string();
    json!({ "id": call.call.as_str(), "type": "function", "function": { "name": *call.name, "arguments": arguments } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openais_newer_models_are_asked_not_to_reason_where_they_are_offered_tools() {
        let tool = Definition { name: "f".into(), description: "F.".into(), parameters: json!({}).into() };
        let offered = || Request::of("a", vec![Message::User("hi".into())], [tool.clone()]);
        let bare = || Request::of("a", vec![Message::User("hi".into())], []);
        let effort = |model: OpenAi, request: Request| -> Value {
            let body: Value = serde_json::from_slice(&of(&model, &request).unwrap()).unwrap();
            body["reasoning_effort"].clone()
        };
        let openai = |model: &str| OpenAi::new(model, crate::Key::new("k")).unwrap();
        for model in ["gpt-5.6", "gpt-5.6-luna", "gpt-6-sol", "gpt-6.1-terra"] {
            assert_eq!(effort(openai(model), offered()), "none", "{model}");
            assert_eq!(effort(openai(model), bare()), Value::Null, "{model} may reason without tools");
            let own = openai(model).option("reasoning_effort", "low".into());
            assert_eq!(effort(own, offered()), "low", "what the caller says wins");
        }
        for model in ["gpt-5.4", "gpt-5-mini", "gpt-4o", "o3"] {
            assert_eq!(effort(openai(model), offered()), Value::Null, "{model}");
        }
        let copy = OpenAi::at("http://127.0.0.1:1/v1", "gpt-6-sol", None).unwrap();
        assert_eq!(effort(copy, offered()), Value::Null, "copies know no such rule");
    }

    #[test]
    fn tools_that_are_withheld_are_defined_for_openai_and_may_not_be_called() {
        let tool = Definition { name: "f".into(), description: "F.".into(), parameters: json!({}).into() };
        let mut request = Request::of("a", vec![Message::User("hi".into())], [tool]);
        request.withhold_tools();
        let body = |model: &OpenAi| -> Value { serde_json::from_slice(&of(model, &request).unwrap()).unwrap() };
        let original = body(&OpenAi::new("gpt-4o", crate::Key::new("k")).unwrap());
        assert_eq!((original["tools"].as_array().map(Vec::len), &original["tool_choice"]), (Some(1), &json!("none")));
        let copy = body(&OpenAi::at("http://127.0.0.1:1/v1", "gpt-4o", None).unwrap());
        assert_eq!((&copy["tools"], &copy["tool_choice"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn strictness_is_asked_for_only_where_it_can_be_had() {
        let closed = json!({ "type": "object", "properties": { "a": { "type": "string" } },
                             "required": ["a"], "additionalProperties": false });
        assert!(is_strict(&closed));
        assert!(is_strict(&json!({ "type": "array", "items": closed })));
        let mut open = closed.clone();
        open["additionalProperties"] = true.into();
        assert!(!is_strict(&open));
        assert!(!is_strict(&json!({ "type": "array", "items": open })));
        let mut optional = closed.clone();
        optional["required"] = json!([]);
        assert!(!is_strict(&optional));
        assert!(!is_strict(&json!({ "$defs": { "x": open }, "anyOf": [closed] })));
        assert!(!is_strict(&json!({ "type": "object" })));
        let mut bounded = closed.clone();
        bounded["properties"]["a"]["minLength"] = 3.into();
        assert!(!is_strict(&bounded));
        assert!(!is_strict(&json!({ "oneOf": [closed] })));
        let named = json!({ "type": "object", "properties": { "not": { "type": "string" } },
                            "required": ["not"], "additionalProperties": false });
        assert!(is_strict(&named), "a property may be called like a keyword");
    }
}
