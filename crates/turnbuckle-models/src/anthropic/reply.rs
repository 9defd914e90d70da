//! Puts a reply together from the events of a stream.

use serde_json::Value;
use turnbuckle::ToolCall;
use turnbuckle::message::{Part, Reply, StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};

use super::block::{Block, Channel, whole_input};
use super::body::{OBJECT_TOOL, PendingReply};
use super::event::{Delta, Event, WireUsage};
use super::hosted::hosted;
use crate::arguments;
use crate::events::Fold;
use crate::failure::in_stream;
use crate::key::Secrets;
use crate::positions::Positions;
use crate::template::Template;
use crate::wire::{Complaint, object, parsed, text};

/// A reply that is being received. If the provider pauses it, it spans several responses.
pub(super) struct Folding<'a> {
    blocks: Vec<Block>,
    /// The block of each index of the present answer. A paused reply goes on in another answer, whose indexes begin anew.
    positions: Positions<u64>,
    /// The block that received text last, and how much of its text was pushed.
    flushed: (usize, usize),
    /// Recognizes events that differ from an earlier one in their text only; `repeated` is the index of their block.
    template: Template,
    repeated: u64,
    /// Why the model stopped. Without it a reply is not complete.
    stop_reason: Option<String>,
    /// The provider's explanation of a refusal.
    explanation: String,
    /// The usage of the present response.
    usage: WireUsage,
    /// The usage of the responses before the last pause.
    earlier_usage: Usage,
    over: bool,
    wants_object: bool,
    /// Whether the object comes as the arguments of a tool. Text around it is then not pushed.
    object_by_tool: bool,
    /// The number of the request in its conversation, for the ids of calls that have none.
    ordinal: u64,
    /// Removed from error messages.
    secrets: &'a Secrets,
}

impl<'a> Folding<'a> {
    pub(super) fn new(request: &Request, asked: &PendingReply<'_>, secrets: &'a Secrets) -> Self {
        Self {
            blocks: Vec::new(),
            positions: Positions::default(),
            flushed: (0, 0),
            template: Template::default(),
            repeated: 0,
            stop_reason: None,
            explanation: String::new(),
            usage: WireUsage::default(),
            earlier_usage: Usage::default(),
            over: false,
            wants_object: request.schema.is_some(),
            object_by_tool: asked.wants_tool(),
            ordinal: request.ordinal,
            secrets,
        }
    }

    /// A response begins: the first one, or the next one after a pause.
    pub(super) fn begin(&mut self) {
        self.positions.clear();
        self.earlier_usage += std::mem::take(&mut self.usage).total();
        (self.stop_reason, self.over) = (None, false);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.stop_reason.as_deref() == Some("pause_turn")
    }

    fn start(&mut self, index: u64, block: Value, out: &mut dyn Sink) {
        if !block.is_object() {
            return;
        }
        self.flush(out);
        self.flushed = (self.blocks.len(), 0);
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let started = match block.get("type").and_then(Value::as_str) {
            Some("text") => Block::Text { text: text("text"), citations: Vec::new() },
            Some("thinking") => Block::Thinking { text: text("thinking"), signature: text("signature") },
            Some("tool_use") if self.object_by_tool && text("name") == OBJECT_TOOL => {
                Block::Object { json: whole_input(&block).map(|input| input.to_string()).unwrap_or_default() }
            }
            Some("tool_use") => {
                let whole = whole_input(&block).cloned();
                Block::Call { id: text("id"), name: text("name"), json: String::new(), whole }
            }
            _ => Block::Opaque { block, json: String::new() },
        };
        self.positions.set(index, self.blocks.len());
        self.blocks.push(started);
    }

    /// The block with this index, which receives text next. The text of another block is pushed first, so that text and thinking keep
    /// their order.
    fn switch_to(&mut self, index: u64, out: &mut dyn Sink) -> Option<&mut Block> {
        let at = self.positions.get(index)?;
        if self.flushed.0 != at {
            self.flush(out);
            self.flushed = (at, self.blocks[at].visible().map_or(0, |(_, text)| text.len()));
        }
        Some(&mut self.blocks[at])
    }

    fn add(&mut self, index: u64, delta: Delta<'_>, out: &mut dyn Sink) {
        let Some(block) = self.switch_to(index, out) else { return };
        match (block, &*delta.r#type) {
            (Block::Text { text, .. }, "text_delta") => text.push_str(&delta.text),
            (Block::Text { citations, .. }, "citations_delta") => citations.extend(delta.citation),
            (Block::Thinking { text, .. }, "thinking_delta") => text.push_str(&delta.thinking),
            (Block::Thinking { signature, .. }, "signature_delta") => signature.push_str(&delta.signature),
            (Block::Call { json, .. } | Block::Opaque { json, .. } | Block::Object { json }, "input_json_delta") => {
                json.push_str(&delta.partial_json);
            }
            _ => {}
        }
    }

    /// Where the object comes by a tool, the text around it is not part of the answer and is dropped. If no object came, the text is
    /// pushed after all: the runtime finds that it does not fit the schema, and asks again.
    fn settle_object(&mut self, out: &mut dyn Sink) {
        let Some(object) = self.blocks.iter().position(|block| matches!(block, Block::Object { .. })) else {
            for block in &self.blocks {
                if let Block::Text { text, .. } = block {
                    out.text(text);
                }
            }
            return;
        };
        let mut at = 0;
        self.blocks.retain(|block| {
            at += 1;
            at == object + 1 || !matches!(block, Block::Text { .. } | Block::Object { .. })
        });
    }

    /// The parts that were received. Those of a paused reply are sent back, so that the provider continues it.
    pub(super) fn parts_so_far(&self) -> Vec<Part> {
        self.blocks.iter().flat_map(Block::parts).collect()
    }

    pub(super) fn reply(mut self, out: &mut dyn Sink) -> Reply {
        if self.object_by_tool {
            self.settle_object(out);
        }
        let is_silent = |block: &Block| !matches!(block, Block::Text { text, .. } if !text.is_empty());
        if self.stop_reason.as_deref() == Some("refusal")
            && !self.explanation.is_empty()
            && self.blocks.iter().all(is_silent)
        {
            out.text(&self.explanation);
            let said = Block::Text { text: std::mem::take(&mut self.explanation), citations: Vec::new() };
            self.blocks.push(said);
        }
        let content: Vec<Part> = self.parts_so_far();
        let ordinal = self.ordinal;
        let cut = matches!(self.stop_reason.as_deref(), Some("max_tokens" | "model_context_window_exceeded"));
        let last = self.blocks.len().saturating_sub(1);
        let calls: Vec<ToolCall> = self
            .blocks
            .iter_mut()
            .enumerate()
            .filter_map(|(at, block)| block.call(if cut && at == last { arguments::cut } else { arguments::received }))
            .enumerate()
            .map(|(index, (id, name, arguments))| ToolCall {
                call: if id.is_empty() { format!("call_{ordinal}_{}", index + 1) } else { id }.into(),
                name: name.into(),
                arguments,
            })
            .collect();
        let object = self.wants_object.then(|| object(&content)).flatten();
        let stop_reason = match self.stop_reason.as_deref() {
            Some("refusal") => StopReason::Refusal,
            _ if cut => StopReason::Length,
            _ if !calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::End,
        };
        let mut usage = self.earlier_usage;
        usage += self.usage.total();
        let hosted = hosted(&content);
        Reply { content: content.into(), calls, hosted, stop_reason, usage, object, ..Reply::default() }
    }
}

impl Fold for Folding<'_> {
    /// Unknown types of events are skipped: the API says that there will be new ones.
    fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError> {
        if let Some(text) = self.template.text(data) {
            if let Some(Block::Text { text: said, .. }) = self.switch_to(self.repeated, out) {
                said.push_str(text);
            }
            return Ok(());
        }
        // Some gateways end the stream as chat completions do.
        if data.trim_ascii() == b"[DONE]" {
            self.over = true;
            return Ok(());
        }
        let data = text(data)?;
        let event: Event<'_> = parsed(data)?;
        match &*event.r#type {
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    if &*delta.r#type == "text_delta" && self.template.learn(data, &delta.text) {
                        self.repeated = event.index;
                    }
                    self.add(event.index, delta, out);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.start(event.index, block, out);
                }
            }
            "message_start" => {
                if let Some(usage) = event.message.and_then(|message| message.usage) {
                    self.usage.update(usage);
                }
            }
            "message_delta" => {
                if let Some(usage) = event.usage {
                    self.usage.update(usage);
                }
                if let Some(delta) = event.delta.filter(|delta| !delta.stop_reason.is_empty()) {
                    self.stop_reason = Some(delta.stop_reason.to_string());
                    self.explanation =
                        delta.stop_details.map(|details| details.explanation.to_string()).unwrap_or_default();
                }
            }
            "message_stop" => {
                self.over = true;
                self.stop_reason.get_or_insert_with(|| "end_turn".to_owned());
            }
            // Some gateways send an error without a type, as chat completions do.
            kind if kind == "error" || kind.is_empty() && event.error.is_some() => {
                let complaint = event.error.as_ref().and_then(Complaint::read).unwrap_or_default();
                return Err(in_stream(&complaint, self.secrets));
            }
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut dyn Sink) {
        let (at, flushed) = self.flushed;
        let Some((channel, text)) = self.blocks.get(at).and_then(Block::visible) else { return };
        self.flushed.1 = text.len();
        match (channel, &text[flushed..]) {
            (_, "") => {}
            (Channel::Thinking, more) => out.thinking(more),
            (Channel::Text, more) if !self.object_by_tool || matches!(self.blocks[at], Block::Object { .. }) => {
                out.text(more)
            }
            (Channel::Text, _) => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.stop_reason.is_some()
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::positions::comparisons;
    use serde_json::json;

    /// Hears nothing.
    struct Deaf;

    impl Sink for Deaf {
        fn text(&mut self, _: &str) {}
        fn thinking(&mut self, _: &str) {}
    }

    #[test]
    fn a_piece_costs_the_same_however_many_blocks_there_are() {
        let model = crate::Anthropic::at("http://127.0.0.1:1", "claude-test", None).unwrap();
        let request = Request::of("a", Vec::new(), []);
        comparisons::assert_linear(
            |n| n,
            |n| {
                let secrets = Secrets::default();
                let mut folding = Folding::new(&request, &PendingReply::new(&model, &request), &secrets);
                let mut take = |event: Value| folding.take(event.to_string().as_bytes(), &mut Deaf).unwrap();
                for index in 0..n {
                    let block = json!({ "type": "text", "text": "" });
                    take(json!({ "type": "content_block_start", "index": index, "content_block": block }));
                }
                for index in 0..n {
                    let delta = json!({ "type": "text_delta", "text": "a\n" });
                    take(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
                }
                assert_eq!(folding.parts_so_far().len(), n);
            },
        );
    }
}
