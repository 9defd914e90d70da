//! Token counts, estimated with a margin: one token for every four bytes, begun ones counted.

use crate::event::{Event, EventKind};
use crate::message::{Content, Message, Part, ToolCall};
use crate::model::Definition;

/// What a picture or a document is taken to cost.
const ATTACHMENT: u64 = 1500;
/// What a message costs beyond its words.
const FRAME: u64 = 4;

/// Tokens of a text.
pub fn of_text(text: &str) -> u64 {
    text.len().div_ceil(4) as u64
}

/// Tokens of content.
pub fn of_content(content: &Content) -> u64 {
    of_content_by(content, &of_text)
}

fn of_content_by(content: &Content, of_text: &dyn Fn(&str) -> u64) -> u64 {
    let of_part = |part: &Part| match part {
        Part::Text { text } | Part::Thinking { text, .. } => of_text(text),
        Part::Image { .. } | Part::File { .. } => ATTACHMENT,
        Part::Provider { block, .. } => of_json(block),
    };
    content.parts().iter().map(of_part).sum()
}

fn of_call(call: &ToolCall) -> u64 {
    of_text(&call.name) + of_json(&call.arguments) + FRAME
}

/// Tokens of a tool as a model is told of it.
pub fn of_definition(tool: &Definition) -> u64 {
    of_text(&tool.name) + of_text(&tool.description) + of_json(&tool.parameters) + FRAME
}

/// Tokens of a tool definition, its texts counted by `of_text`.
pub fn of_definition_by(tool: &Definition, of_text: &dyn Fn(&str) -> u64) -> u64 {
    of_text(&tool.name) + of_text(&tool.description) + of_text(&tool.parameters.to_string()) + FRAME
}

/// Tokens of a JSON value, without writing it out.
pub(crate) fn of_json(value: &serde_json::Value) -> u64 {
    fn bytes(value: &serde_json::Value) -> usize {
        use serde_json::Value::{Array, Bool, Null, Number, Object, String};
        match value {
            Null | Bool(_) | Number(_) => 5,
            String(text) => text.len() + 2,
            Array(items) => items.iter().map(|item| bytes(item) + 1).sum::<usize>() + 2,
            Object(fields) => fields.iter().map(|(key, item)| key.len() + bytes(item) + 4).sum::<usize>() + 2,
        }
    }
    bytes(value).div_ceil(4) as u64
}

/// Tokens of a message.
pub fn of_message(message: &Message) -> u64 {
    of_message_by(message, &of_text)
}

fn of_message_by(message: &Message, of_text: &dyn Fn(&str) -> u64) -> u64 {
    let calls = match message {
        Message::Assistant { calls, .. } => calls.iter().map(of_call).sum(),
        _ => 0,
    };
    of_content_by(message.content(), of_text) + calls + FRAME
}

/// Tokens of messages.
pub fn of_messages(messages: &[Message]) -> u64 {
    messages.iter().map(of_message).sum()
}

/// Tokens of messages, their texts counted by `of_text`.
pub fn of_messages_by(messages: &[Message], of_text: &dyn Fn(&str) -> u64) -> u64 {
    messages.iter().map(|message| of_message_by(message, of_text)).sum()
}

/// Tokens of what an event adds to later contexts.
pub fn of_event(event: &Event) -> u64 {
    match &event.kind {
        EventKind::UserMessage { content, .. } | EventKind::Injection { content, .. } => of_content(content) + FRAME,
        EventKind::AssistantMessage { content, .. } | EventKind::ToolResult { content, .. } => {
            of_content(content) + FRAME
        }
        EventKind::ToolCall { name, arguments, .. } => of_text(name) + of_json(arguments) + FRAME,
        EventKind::StopFeedback { refusals } => {
            // With the words that say who refused.
            refusals.iter().map(|refusal| of_text(&refusal.feedback) + of_text(&refusal.hook) + 2 * FRAME).sum()
        }
        _ => 0,
    }
}
