//! Messages, calls and results as AGENT-HOOKS has them, and back.

use serde_json::{Value, json};
use turnbuckle::hook::AfterTool;
use turnbuckle::message::{Content, Message, Part, Reply, StopReason, ToolCall};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, CallId};

/// A string if it is all text, else its parts.
pub(super) fn content(content: &Content) -> Value {
    match content.parts().iter().all(|part| part.as_text().is_some()) {
        true => Value::String(content.text()),
        false => serde_json::to_value(content).unwrap_or_default(),
    }
}

pub(super) fn content_of(value: &Value) -> Result<Content, BoxError> {
    match value {
        Value::String(text) => Ok(text.as_str().into()),
        parts => Ok(serde_json::from_value::<Vec<Part>>(parts.clone())?.into()),
    }
}

fn call(call: &ToolCall) -> Value {
    json!({"id": call.call.as_str(), "name": call.name, "args": call.arguments})
}

fn call_of(value: &Value) -> Result<ToolCall, BoxError> {
    let text = |key: &str| value[key].as_str().ok_or_else(|| format!("a transform left a tool call without {key}"));
    Ok(ToolCall {
        call: CallId::from(text("id")?),
        name: text("name")?.into(),
        arguments: value["args"].clone().into(),
    })
}

fn calls_of(value: &Value) -> Result<Vec<ToolCall>, BoxError> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(call_of).collect()
}

pub(super) fn message(message: &Message) -> Value {
    match message {
        Message::User(said) => json!({"role": "user", "content": content(said)}),
        Message::Assistant { content: said, calls } => {
            json!({"role": "assistant", "content": content(said), "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
        }
        Message::Result { call, name, ok, content: said } => json!({
            "role": "tool", "content": content(said), "tool_call_id": call.as_str(), "name": name, "is_error": !ok,
        }),
        // A note, or a kind of message that the contract has no word for.
        other => json!({"role": "note", "content": content(other.content())}),
    }
}

pub(super) fn message_of(value: &Value) -> Result<Message, BoxError> {
    let said = content_of(&value["content"])?;
    Ok(match value["role"].as_str() {
        Some("user") => Message::User(said),
        Some("note" | "system") => Message::Note(said),
        Some("assistant") => Message::Assistant { content: said, calls: calls_of(&value["tool_calls"])? },
        Some("tool") => {
            let text =
                |key: &str| value[key].as_str().ok_or_else(|| format!("a transform left a result without {key}"));
            let ok = !value["is_error"].as_bool().unwrap_or(false);
            Message::Result { call: CallId::from(text("tool_call_id")?), name: text("name")?.into(), ok, content: said }
        }
        _ => return Err("a transform left a message whose role is unknown".into()),
    })
}

pub(super) fn response(reply: &Reply) -> Value {
    let text = reply.content.text();
    let finish = match reply.stop_reason {
        _ if !reply.calls.is_empty() => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refusal => "refusal",
        _ => "stop",
    };
    let said = if text.is_empty() && !reply.calls.is_empty() { Value::Null } else { Value::String(text) };
    json!({"content": said, "tool_calls": reply.calls.iter().map(call).collect::<Vec<_>>(), "finish_reason": finish})
}

/// The reply with what a transform left of it.
pub(super) fn with_response(reply: &Reply, response: &Value) -> Result<Reply, BoxError> {
    let text = match &response["content"] {
        Value::Null => "",
        Value::String(text) => text,
        _ => return Err("a transform left no text to say".into()),
    };
    Ok(Reply { calls: calls_of(&response["tool_calls"])?, ..with_text(reply, text) })
}

/// The reply with another text, in the place of the first.
pub(super) fn with_text(reply: &Reply, text: &str) -> Reply {
    let parts = reply.content.parts();
    let at = parts.iter().position(|part| part.as_text().is_some()).unwrap_or(parts.len());
    let others = |parts: &[Part]| parts.iter().filter(|part| part.as_text().is_none()).cloned().collect::<Vec<_>>();
    let mut content = others(&parts[..at]);
    content.push(Part::text(text));
    content.extend(others(&parts[at..]));
    Reply { content: Content::from(content), object: None, ..reply.clone() }
}

/// A result that is an object or a list in JSON is one for interceptors, too.
pub(super) fn result(output: &Output) -> Value {
    match content(&output.content) {
        Value::String(text) => match serde_json::from_str::<Value>(&text) {
            Ok(value) if value.is_object() || value.is_array() => value,
            _ => Value::String(text),
        },
        parts => parts,
    }
}

/// The result that a transform left.
pub(super) fn modified(output: &Output, decided: &Value) -> Result<AfterTool, BoxError> {
    let is_parts = output.content.parts().iter().any(|part| part.as_text().is_none());
    let said = match decided {
        Value::String(text) => Content::from(text.as_str()),
        parts if is_parts => content_of(parts)?,
        value => Content::from(value.to_string()),
    };
    Ok(AfterTool::Modify(if output.ok { Output::ok(said) } else { Output::error(said) }))
}
