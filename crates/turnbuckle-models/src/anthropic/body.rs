//! The body of a request to the Messages API.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};
use turnbuckle::message::{File, Image, Message, Part, ToolCall};
use turnbuckle::model::{ModelError, Request};

use super::schema::narrowed;
use super::{Anthropic, ObjectBy, WIRE};
use crate::arguments;
use crate::wire::{fields, written};

/// The name of the tool whose arguments are the object.
pub(super) const OBJECT_TOOL: &str = "reply_with_object";

/// A request for a reply. It is sent again, with what came so far, when the provider pauses the reply.
pub(super) struct PendingReply<'a> {
    model: &'a Anthropic,
    request: &'a Request,
    object: Option<Object<'a>>,
}

/// How the object is asked for.
enum Object<'a> {
    /// By `output_config.format`, with the reduced schema.
    Format(Value),
    /// By a tool whose parameters are the schema.
    Tool(&'a Value),
}

impl<'a> PendingReply<'a> {
    pub(super) fn new(model: &'a Anthropic, request: &'a Request) -> Self {
        let by = |schema: &'a Value| match model.wire.object_by {
            ObjectBy::Format => narrowed(schema).map_or(Object::Tool(schema), Object::Format),
            ObjectBy::ForcedTool => Object::Tool(schema),
        };
        Self { model, request, object: request.schema.as_deref().map(by) }
    }

    /// Whether the object comes as the arguments of a tool.
    pub(super) fn wants_tool(&self) -> bool {
        matches!(self.object, Some(Object::Tool(_)))
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Cow<'a, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Block<'a> {
    Known(Box<Known<'a>>),
    /// A block of the provider's own, sent back as it came.
    Opaque(Cow<'a, Value>),
}

/// Any block that this client makes. Each type of block has a few of these fields.
#[derive(Default, Serialize)]
struct Known<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    citations: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Cow<'a, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Vec<Block<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Value>,
}

impl PendingReply<'_> {
    /// Serializes the request. `so_far` is the content of a reply that was paused.
    pub(super) fn body(&self, so_far: &[Part]) -> Result<Vec<u8>, ModelError> {
        let mut messages = Messages::of(self.request);
        messages.parts("assistant", so_far);
        written(&self.with(messages), &self.model.options)
    }

    /// The body without messages and system prompt.
    pub(super) fn fields(&self) -> Result<Value, ModelError> {
        fields(&self.with(Messages::default()), &self.model.options)
    }

    fn with<'a>(&'a self, messages: Messages<'a>) -> Body<'a> {
        let (model, request) = (self.model, self.request);
        let mut system = Vec::new();
        if !request.system.trim().is_empty() {
            system.push(Block::text(&request.system));
        }
        let mut tools: Vec<Cow<'_, Value>> = model.wire.server_tools.iter().map(Cow::Borrowed).collect();
        // Anthropic refuses a context with calls of tools that are not defined, so withheld ones are defined as well.
        tools.extend(request.tools().iter().chain(request.withheld_tools()).map(|tool| {
            let parameters = &*tool.parameters;
            Cow::Owned(json!({ "name": tool.name, "description": tool.description, "input_schema": parameters }))
        }));
        // The cache covers everything up to a mark. Tools come first and the system prompt second, so one mark covers both.
        match (system.last_mut(), tools.last_mut()) {
            (Some(last), _) => last.mark(),
            (None, Some(last)) => last.to_mut()["cache_control"] = ephemeral(),
            (None, None) => {}
        }
        let withholds = request.tools().is_empty() && !request.withheld_tools().is_empty();
        let (mut tool_choice, mut output_config) = (withholds.then(|| json!({ "type": "none" })), None);
        match &self.object {
            Some(Object::Format(schema)) => {
                output_config = Some(json!({ "format": { "type": "json_schema", "schema": schema } }));
            }
            Some(Object::Tool(schema)) => {
                let description = "Answers with an object. Answer by calling it exactly once, and in no other way.";
                let tool = json!({ "name": OBJECT_TOOL, "description": description, "input_schema": **schema });
                tools.push(Cow::Owned(tool));
                // Models with bound thinking refuse a forced tool. If they do not call it, the runtime asks again.
                tool_choice = Some(match model.wire.binds_thinking {
                    true => json!({ "type": "auto" }),
                    false => json!({ "type": "tool", "name": OBJECT_TOOL }),
                });
            }
            None => {}
        }
        if let Some(effort) = model.effort {
            output_config.get_or_insert_with(|| json!({}))["effort"] = effort.name().into();
        }
        Body {
            model: &model.model,
            max_tokens: model.token_limit(),
            stream: true,
            system,
            messages: messages.list,
            tools,
            tool_choice,
            output_config,
            thinking: model.wire.binds_thinking.then(tolerant_thinking),
        }
    }
}

/// The `thinking` field for models whose thinking is bound to the context before it. Contexts change: what a hook added to one call
/// is gone in the next, and the oldest turns are left out. `drop_block` makes the provider leave such thinking out; otherwise it
/// would refuse every further call.
///
/// These models also report what they do between calls as thinking, whose text is left out by default. `summarized` shows it:
/// viewers would otherwise see nothing for minutes.
fn tolerant_thinking() -> Value {
    let binding = json!({ "prefix_mismatch_behavior": "drop_block" });
    json!({ "type": "adaptive", "display": "summarized", "block_binding": binding })
}

/// The mark up to which the provider caches a request.
fn ephemeral() -> Value {
    json!({ "type": "ephemeral" })
}

/// The messages of a request. Roles alternate: messages of one role that follow each other are joined.
#[derive(Default)]
struct Messages<'a> {
    list: Vec<WireMessage<'a>>,
}

impl<'a> Messages<'a> {
    fn of(request: &'a Request) -> Self {
        let mut written = Self::default();
        let segments = request.segments();
        let ends = [segments.history, segments.opening, segments.calls];
        for (index, message) in request.messages.iter().enumerate() {
            let ends: Vec<usize> = ends.iter().filter(|end| end.messages == index + 1).map(|end| end.parts).collect();
            written.message(message, &ends);
        }
        written
    }

    /// `ends` are the numbers of parts of this message behind which a segment of the context ends.
    fn message(&mut self, message: &'a Message, ends: &[usize]) {
        match message {
            Message::Assistant { content, calls } => {
                self.parts("assistant", content.parts());
                self.blocks("assistant", calls.iter().map(called));
            }
            Message::Result { call, ok, content, .. } => {
                let blocks = blocks_of(content.parts());
                let result = Known {
                    r#type: "tool_result",
                    tool_use_id: Some(wire_id(call.as_str())),
                    content: (!blocks.is_empty()).then_some(blocks),
                    is_error: (!ok).then_some(true),
                    ..Known::default()
                };
                self.blocks("user", [result.into()]);
            }
            other => {
                let parts = other.content().parts();
                let mut from = 0;
                for end in ends.iter().copied().filter(|end| *end < parts.len()) {
                    self.parts("user", &parts[from..end.max(from)]);
                    self.mark();
                    from = end.max(from);
                }
                self.parts("user", &parts[from..]);
            }
        }
        let whole = |end: &usize| *end >= message.content().parts().len();
        if ends.iter().any(whole) || (!ends.is_empty() && !matches!(message, Message::User(_) | Message::Note(_))) {
            self.mark();
        }
    }

    fn parts(&mut self, role: &'static str, parts: &'a [Part]) {
        let blocks = blocks_of(parts);
        self.blocks(role, blocks);
    }

    fn blocks(&mut self, role: &'static str, blocks: impl IntoIterator<Item = Block<'a>>) {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            return;
        }
        match self.list.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            _ => self.list.push(WireMessage { role, content: blocks.collect() }),
        }
    }

    /// Marks the end of a segment for the cache, at the last block that can have a mark. What is before it will be sent again.
    fn mark(&mut self) {
        let blocks = self.list.iter_mut().rev().flat_map(|message| message.content.iter_mut().rev());
        if let Some(block) = blocks.into_iter().find_map(|block| block.markable()) {
            block.cache_control = Some(ephemeral());
        }
    }
}

fn blocks_of(parts: &[Part]) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            // The provider refuses blank text.
            Part::Text { text } if text.trim().is_empty() => {}
            Part::Text { text } => blocks.push(Block::text(text)),
            // The provider refuses a thought without a signature.
            Part::Thinking(thought) => blocks.extend(thought.signature.as_deref().map(|signature| {
                let thinking = Some(&*thought.text);
                Known { r#type: "thinking", thinking, signature: Some(signature), ..Known::default() }.into()
            })),
            Part::Image(image) => {
                let Image { media_type, data, url } = &**image;
                let source = source(media_type, data.as_deref(), url.as_deref());
                blocks.push(Known { r#type: "image", source, ..Known::default() }.into());
            }
            Part::File(file) => {
                let File { media_type, name, data, url } = &**file;
                let source = source(media_type, data.as_deref(), url.as_deref());
                let title = name.as_deref();
                blocks.push(Known { r#type: "document", source, title, ..Known::default() }.into());
            }
            Part::Provider(own) if *own.provider == *WIRE => match citations(&own.block) {
                Some(citations) => {
                    if let Some(Block::Known(text)) = blocks.last_mut().filter(|last| last.is_text()) {
                        text.citations = Some(citations);
                    }
                }
                None => blocks.push(Block::Opaque(Cow::Borrowed(&own.block))),
            },
            // Blocks of another provider mean nothing here.
            _ => {}
        }
    }
    blocks
}

/// Citations are kept in a part of their own behind the text that they belong to, so that a text part is only text. Here they are
/// joined again.
pub(super) const CITATIONS: &str = "citations";

fn citations(block: &Value) -> Option<&Value> {
    (block.get("type")?.as_str()? == CITATIONS).then(|| block.get(CITATIONS))?
}

fn source(media_type: &str, data: Option<&str>, url: Option<&str>) -> Option<Value> {
    match (data, url) {
        (Some(data), _) => Some(json!({ "type": "base64", "media_type": media_type, "data": data })),
        (None, Some(url)) => Some(json!({ "type": "url", "url": url })),
        (None, None) => None,
    }
}

fn called(call: &ToolCall) -> Block<'_> {
    Known {
        r#type: "tool_use",
        id: Some(wire_id(call.call.as_str())),
        name: Some(&call.name),
        input: Some(arguments::sent(&call.arguments)),
        ..Known::default()
    }
    .into()
}

/// An id with the characters that Anthropic accepts. Ids that the runtime made unique contain a `~`.
fn wire_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

impl<'a> Block<'a> {
    fn text(text: &'a str) -> Self {
        Known { r#type: "text", text: Some(text), ..Known::default() }.into()
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::Known(known) if known.r#type == "text")
    }

    /// The block, if it can have a mark: thinking and opaque blocks cannot.
    fn markable(&mut self) -> Option<&mut Known<'a>> {
        match self {
            Self::Known(known) if known.r#type != "thinking" => Some(known),
            _ => None,
        }
    }

    fn mark(&mut self) {
        if let Some(known) = self.markable() {
            known.cache_control = Some(ephemeral());
        }
    }
}

impl<'a> From<Known<'a>> for Block<'a> {
    fn from(known: Known<'a>) -> Self {
        Self::Known(Box::new(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle::tool::Definition;

    #[test]
    fn tools_that_are_withheld_are_defined_and_may_not_be_called() {
        let tool =
            Definition { name: "f".into(), description: "F.".into(), parameters: json!({"type": "object"}).into() };
        let mut request = Request::of("a", vec![Message::User("hi".into())], [tool]);
        let model = Anthropic::new("claude-sonnet-4-5", crate::Key::new("k")).unwrap();
        let body = |request: &Request| -> Value {
            serde_json::from_slice(&PendingReply::new(&model, request).body(&[]).unwrap()).unwrap()
        };
        assert_eq!(body(&request)["tool_choice"], Value::Null);
        let before = body(&request)["tools"].clone();
        request.withhold_tools();
        let last = body(&request);
        assert_eq!((&last["tools"], &last["tool_choice"]["type"]), (&before, &json!("none")));
    }
}
