//! What Anthropic says, folded into a reply as it comes.

use serde_json::Value;
use turnbuckle::ToolCall;
use turnbuckle::message::{Part, Reply, StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};

use super::ObjectBy;
use super::block::{Block, whole_input};
use super::body::OBJECT_TOOL;
use super::event::{Delta, Event, WireUsage};
use super::hosted::hosted;
use crate::events::{Events, GRACE};
use crate::failure::{cut_off, garbled, in_stream};
use crate::key::Key;
use crate::wire::{Complaint, object};

/// A reply under way.
pub(super) struct Folding<'a> {
    blocks: Vec<(u64, Block)>,
    /// How many blocks came before the last pause.
    paused_at: usize,
    stop: Option<String>,
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
    pub(super) fn new(request: &Request, object_by: ObjectBy, key: Option<&'a Key>) -> Self {
        let wants_object = request.schema.is_some();
        Self {
            blocks: Vec::new(),
            paused_at: 0,
            stop: None,
            usage: WireUsage::default(),
            spent: Usage::default(),
            over: false,
            wants_object,
            forced: wants_object && object_by == ObjectBy::ForcedTool,
            ordinal: request.ordinal,
            key,
        }
    }

    /// An answer begins: the first, or what comes after a pause.
    pub(super) fn begin(&mut self) {
        self.paused_at = self.blocks.len();
        self.spent += std::mem::take(&mut self.usage).total();
        (self.stop, self.over) = (None, false);
    }

    /// Goes on to the next event. Once the reply is whole nothing that happens to the connection matters.
    pub(super) async fn advance(&self, events: &mut Events) -> Result<bool, ModelError> {
        if self.stop.is_some() {
            return Ok(events.advance_within(GRACE).await.unwrap_or(false));
        }
        events.advance().await
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn is_paused(&self) -> bool {
        self.stop.as_deref() == Some("pause_turn")
    }

    /// The stream is over; if the reply is not, it was cut off.
    pub(super) fn must_be_whole(&self, events: &Events) -> Result<(), ModelError> {
        match self.stop {
            Some(_) => Ok(()),
            None if events.is_empty() => Err(cut_off("the answer is empty")),
            None => Err(cut_off("the answer broke off before its end")),
        }
    }

    /// One event. Kinds that are not known are skipped: there will be new ones.
    pub(super) fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError> {
        // Gateways that know the other wire better end with its last word.
        if data.trim_ascii() == b"[DONE]" {
            self.over = true;
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_slice(data).map_err(garbled)?;
        match &*event.r#type {
            "content_block_delta" => {
                if let Some(delta) = event.delta {
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
                if let Some(reason) = event.delta.map(|delta| delta.stop_reason).filter(|reason| !reason.is_empty()) {
                    self.stop = Some(reason.to_string());
                }
            }
            "message_stop" => {
                self.over = true;
                self.stop.get_or_insert_with(|| "end_turn".to_owned());
            }
            "error" => {
                let complaint = event.error.as_ref().and_then(Complaint::read).unwrap_or_default();
                return Err(in_stream(&complaint, self.key));
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, index: u64, block: Value, out: &mut dyn Sink) {
        if !block.is_object() {
            return;
        }
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let started = match block.get("type").and_then(Value::as_str) {
            Some("text") => {
                let text = text("text");
                out.text(&text);
                Block::Text { text, citations: Vec::new() }
            }
            Some("thinking") => {
                let (text, signature) = (text("thinking"), text("signature"));
                out.thinking(&text);
                Block::Thinking { text, signature }
            }
            Some("tool_use") if self.forced && text("name") == OBJECT_TOOL => {
                let json = whole_input(&block).map(|input| input.to_string()).unwrap_or_default();
                out.text(&json);
                Block::Object { json }
            }
            Some("tool_use") => {
                let whole = whole_input(&block).cloned();
                Block::Call { id: text("id"), name: text("name"), json: String::new(), whole }
            }
            _ => Block::Sealed { block, json: String::new() },
        };
        self.blocks.push((index, started));
    }

    fn add(&mut self, index: u64, delta: Delta<'_>, out: &mut dyn Sink) {
        let blocks = &mut self.blocks[self.paused_at..];
        let Some((_, block)) = blocks.iter_mut().rev().find(|(at, _)| *at == index) else { return };
        match (block, &*delta.r#type) {
            (Block::Text { text, .. }, "text_delta") => {
                out.text(&delta.text);
                text.push_str(&delta.text);
            }
            (Block::Text { citations, .. }, "citations_delta") => citations.extend(delta.citation),
            (Block::Thinking { text, .. }, "thinking_delta") => {
                out.thinking(&delta.thinking);
                text.push_str(&delta.thinking);
            }
            (Block::Thinking { signature, .. }, "signature_delta") => signature.push_str(&delta.signature),
            (Block::Object { json }, "input_json_delta") => {
                out.text(&delta.partial_json);
                json.push_str(&delta.partial_json);
            }
            (Block::Call { json, .. } | Block::Sealed { json, .. }, "input_json_delta") => {
                json.push_str(&delta.partial_json);
            }
            _ => {}
        }
    }

    /// What a paused reply holds: sent back, so that it is gone on with.
    pub(super) fn so_far(&self) -> Vec<Part> {
        self.blocks.iter().flat_map(|(_, block)| block.parts()).collect()
    }

    pub(super) fn reply(mut self) -> Reply {
        let content: Vec<Part> = self.so_far();
        let ordinal = self.ordinal;
        let calls: Vec<ToolCall> = self
            .blocks
            .iter_mut()
            .filter_map(|(_, block)| block.call())
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
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            _ if !calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::End,
        };
        let mut usage = self.spent;
        usage += self.usage.total();
        let hosted = hosted(&content);
        Reply { content: content.into(), calls, hosted, stop_reason, usage, object }
    }
}
