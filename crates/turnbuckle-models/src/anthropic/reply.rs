//! What Anthropic says, folded into a reply as it comes.

use serde_json::Value;
use turnbuckle::ToolCall;
use turnbuckle::message::{Part, Reply, StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};

use super::block::{Block, Lane, whole_input};
use super::body::{OBJECT_TOOL, PendingReply};
use super::event::{Delta, Event, TEXT_DELTA, WireUsage};
use super::hosted::hosted;
use crate::arguments;
use crate::events::Fold;
use crate::failure::in_stream;
use crate::key::Key;
use crate::positions::Positions;
use crate::template::Template;
use crate::wire::{Complaint, object, parsed, text};

/// A reply under way.
pub(super) struct Folding<'a> {
    blocks: Vec<Block>,
    /// The block of each index of the present answer. A paused reply goes on in another answer, whose indexes begin anew.
    positions: Positions<u64>,
    /// The block that says something, and up to where that was told.
    told: (usize, usize),
    /// Of events that say text, and which block theirs is.
    template: Template,
    repeated: u64,
    stop: Option<String>,
    /// What the provider says about a refusal.
    why: String,
    usage: WireUsage,
    /// Of the answers before the last pause.
    spent: Usage,
    over: bool,
    wants_object: bool,
    forced: bool,
    ordinal: u64,
    key: Option<&'a Key>,
}

impl<'a> Folding<'a> {
    pub(super) fn new(request: &Request, asked: &PendingReply<'_>, key: Option<&'a Key>) -> Self {
        Self {
            blocks: Vec::new(),
            positions: Positions::default(),
            told: (0, 0),
            template: Template::default(),
            repeated: 0,
            stop: None,
            why: String::new(),
            usage: WireUsage::default(),
            spent: Usage::default(),
            over: false,
            wants_object: request.schema.is_some(),
            forced: asked.wants_tool(),
            ordinal: request.ordinal,
            key,
        }
    }

    /// An answer begins: the first, or what comes after a pause.
    pub(super) fn begin(&mut self) {
        self.positions.clear();
        self.spent += std::mem::take(&mut self.usage).total();
        (self.stop, self.over) = (None, false);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.stop.as_deref() == Some("pause_turn")
    }

    fn start(&mut self, index: u64, block: Value, out: &mut dyn Sink) {
        if !block.is_object() {
            return;
        }
        self.tell(out);
        self.told = (self.blocks.len(), 0);
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let started = match block.get("type").and_then(Value::as_str) {
            Some("text") => Block::Text { text: text("text"), citations: Vec::new() },
            Some("thinking") => Block::Thinking { text: text("thinking"), signature: text("signature") },
            Some("tool_use") if self.forced && text("name") == OBJECT_TOOL => {
                Block::Object { json: whole_input(&block).map(|input| input.to_string()).unwrap_or_default() }
            }
            Some("tool_use") => {
                let whole = whole_input(&block).cloned();
                Block::Call { id: text("id"), name: text("name"), json: String::new(), whole }
            }
            _ => Block::Sealed { block, json: String::new() },
        };
        self.positions.set(index, self.blocks.len());
        self.blocks.push(started);
    }

    /// The block of this number; what another one said is told first.
    fn turn_to(&mut self, index: u64, out: &mut dyn Sink) -> Option<&mut Block> {
        let at = self.positions.get(index)?;
        if self.told.0 != at {
            self.tell(out);
            self.told = (at, self.blocks[at].said().map_or(0, |(_, said)| said.len()));
        }
        Some(&mut self.blocks[at])
    }

    fn add(&mut self, index: u64, delta: Delta<'_>, out: &mut dyn Sink) {
        let Some(block) = self.turn_to(index, out) else { return };
        match (block, &*delta.r#type) {
            (Block::Text { text, .. }, TEXT_DELTA) => text.push_str(&delta.text),
            (Block::Text { citations, .. }, "citations_delta") => citations.extend(delta.citation),
            (Block::Thinking { text, .. }, "thinking_delta") => text.push_str(&delta.thinking),
            (Block::Thinking { signature, .. }, "signature_delta") => signature.push_str(&delta.signature),
            (Block::Call { json, .. } | Block::Sealed { json, .. } | Block::Object { json }, "input_json_delta") => {
                json.push_str(&delta.partial_json);
            }
            _ => {}
        }
    }

    /// Where an object is forced, what is said around it is not the answer. Only if none came is it told after all: then it is
    /// for the runtime to find that it does not fit.
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

    /// What a paused reply holds: sent back, so that it is gone on with.
    pub(super) fn so_far(&self) -> Vec<Part> {
        self.blocks.iter().flat_map(Block::parts).collect()
    }

    pub(super) fn reply(mut self, out: &mut dyn Sink) -> Reply {
        if self.forced {
            self.settle_object(out);
        }
        let is_silent = |block: &Block| !matches!(block, Block::Text { text, .. } if !text.is_empty());
        if self.stop.as_deref() == Some("refusal") && !self.why.is_empty() && self.blocks.iter().all(is_silent) {
            out.text(&self.why);
            let said = Block::Text { text: std::mem::take(&mut self.why), citations: Vec::new() };
            self.blocks.push(said);
        }
        let content: Vec<Part> = self.so_far();
        let ordinal = self.ordinal;
        let cut = matches!(self.stop.as_deref(), Some("max_tokens" | "model_context_window_exceeded"));
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
        let stop_reason = match self.stop.as_deref() {
            Some("refusal") => StopReason::Refusal,
            _ if cut => StopReason::Length,
            _ if !calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::End,
        };
        let mut usage = self.spent;
        usage += self.usage.total();
        let hosted = hosted(&content);
        Reply { content: content.into(), calls, hosted, stop_reason, usage, object }
    }
}

impl Fold for Folding<'_> {
    /// One event. Kinds that are not known are skipped: there will be new ones.
    fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError> {
        if let Some(text) = self.template.text(data) {
            if let Some(Block::Text { text: said, .. }) = self.turn_to(self.repeated, out) {
                said.push_str(text);
            }
            return Ok(());
        }
        // Gateways that know the other wire better end with its last word.
        if data.trim_ascii() == b"[DONE]" {
            self.over = true;
            return Ok(());
        }
        let data = text(data)?;
        let event: Event<'_> = parsed(data)?;
        match &*event.r#type {
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    if &*delta.r#type == TEXT_DELTA && self.template.learn(data, &delta.text) {
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
                    self.stop = Some(delta.stop_reason.to_string());
                    self.why = delta.stop_details.map(|details| details.explanation.to_string()).unwrap_or_default();
                }
            }
            "message_stop" => {
                self.over = true;
                self.stop.get_or_insert_with(|| "end_turn".to_owned());
            }
            // Gateways that know the other wire better leave the type out.
            kind if kind == "error" || kind.is_empty() && event.error.is_some() => {
                let complaint = event.error.as_ref().and_then(Complaint::read).unwrap_or_default();
                return Err(in_stream(&complaint, self.key));
            }
            _ => {}
        }
        Ok(())
    }

    fn tell(&mut self, out: &mut dyn Sink) {
        let (at, told) = self.told;
        let Some((lane, said)) = self.blocks.get(at).and_then(Block::said) else { return };
        self.told.1 = said.len();
        match (lane, &said[told..]) {
            (_, "") => {}
            (Lane::Thinking, more) => out.thinking(more),
            (Lane::Text, more) if !self.forced || matches!(self.blocks[at], Block::Object { .. }) => out.text(more),
            (Lane::Text, _) => {}
        }
    }

    fn is_whole(&self) -> bool {
        self.stop.is_some()
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
                let mut folding = Folding::new(&request, &PendingReply::new(&model, &request), None);
                let mut take = |event: Value| folding.take(event.to_string().as_bytes(), &mut Deaf).unwrap();
                for index in 0..n {
                    let block = json!({ "type": "text", "text": "" });
                    take(json!({ "type": "content_block_start", "index": index, "content_block": block }));
                }
                for index in 0..n {
                    let delta = json!({ "type": "text_delta", "text": "a\n" });
                    take(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
                }
                assert_eq!(folding.so_far().len(), n);
            },
        );
    }
}
