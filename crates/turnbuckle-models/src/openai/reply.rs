//! Puts a reply together from the chunks of a chat completion.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::message::{Part, ProviderBlock, Reply, StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};

use super::WIRE;
use super::calls::Calls;
use super::chunk::{Chunk, Delta};
use super::details::Details;
use crate::arguments;
use crate::events::Fold;
use crate::failure::in_stream;
use crate::key::Secrets;
use crate::template::Template;
use crate::wire::{Complaint, parsed, text};

/// A reply that is being received.
pub(super) struct Folding<'a> {
    text: String,
    thinking: String,
    /// How much of the text was pushed.
    flushed_text: usize,
    /// How much of the thinking was pushed.
    flushed_thinking: usize,
    /// Recognizes chunks that differ from an earlier one in their text only.
    template: Template,
    details: Details,
    calls: Calls,
    /// Why the model stopped. Without it a reply is not complete.
    finish_reason: Option<String>,
    /// Whether some of the text is a refusal.
    refused: bool,
    usage: Usage,
    over: bool,
    wants_object: bool,
    /// The number of the request in its conversation, for the ids of calls that have none.
    ordinal: u64,
    /// Removed from error messages.
    secrets: &'a Secrets,
}

impl<'a> Folding<'a> {
    pub(super) fn new(request: &Request, secrets: &'a Secrets) -> Self {
        Self {
            text: String::new(),
            thinking: String::new(),
            flushed_text: 0,
            flushed_thinking: 0,
            template: Template::default(),
            details: Details::default(),
            calls: Calls::default(),
            finish_reason: None,
            refused: false,
            usage: Usage::default(),
            over: false,
            wants_object: request.schema.is_some(),
            ordinal: request.ordinal,
            secrets,
        }
    }

    fn add(&mut self, delta: Delta<'_>, out: &mut dyn Sink) {
        let thought = if delta.reasoning_content.is_empty() { &delta.reasoning } else { &delta.reasoning_content };
        if !thought.is_empty() {
            self.flush_text(out);
            self.thinking.push_str(thought);
        }
        for piece in delta.reasoning_details.into_iter().flatten() {
            self.details.add(piece);
        }
        for text in [&delta.content, &delta.refusal] {
            if !text.is_empty() {
                self.flush_thinking(out);
                self.text.push_str(text);
            }
        }
        self.refused |= !delta.refusal.is_empty();
        for call in delta.tool_calls.into_iter().flatten() {
            self.calls.take(call);
        }
    }

    fn flush_text(&mut self, out: &mut dyn Sink) {
        let flushed = std::mem::replace(&mut self.flushed_text, self.text.len());
        if flushed < self.text.len() {
            out.text(&self.text[flushed..]);
        }
    }

    fn flush_thinking(&mut self, out: &mut dyn Sink) {
        let flushed = std::mem::replace(&mut self.flushed_thinking, self.thinking.len());
        if flushed < self.thinking.len() {
            out.thinking(&self.thinking[flushed..]);
        }
    }

    pub(super) fn reply(self) -> Reply {
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            content.push(Part::thinking(self.thinking));
        }
        if !self.details.is_empty() {
            let block = json!({ "reasoning_details": self.details.into_entries() });
            content.push(ProviderBlock { provider: WIRE.into(), block: Arc::new(block) }.into());
        }
        if !self.text.is_empty() {
            content.push(Part::text(self.text));
        }
        let cut = self.finish_reason.as_deref() == Some("length");
        let calls = self.calls.finish(self.ordinal, if cut { arguments::cut } else { arguments::received });
        let object = self.wants_object.then(|| crate::wire::object(&content)).flatten();
        let stop_reason = match self.finish_reason.as_deref() {
            Some("content_filter") => StopReason::Refusal,
            _ if self.refused => StopReason::Refusal,
            _ if cut => StopReason::Length,
            // Some servers say `stop` although there are calls.
            _ if !calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::End,
        };
        Reply { content: content.into(), calls, stop_reason, usage: self.usage, object, ..Reply::default() }
    }
}

impl Fold for Folding<'_> {
    fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError> {
        if let Some(text) = self.template.text(data) {
            self.flush_thinking(out);
            self.text.push_str(text);
            return Ok(());
        }
        if data.trim_ascii() == b"[DONE]" {
            self.over = true;
            return Ok(());
        }
        let data = text(data)?;
        let chunk: Chunk<'_> = parsed(data)?;
        if let Some(text) = chunk.only_text() {
            self.template.learn(data, text);
        }
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(in_stream(&Complaint::read(&error).unwrap_or_default(), self.secrets));
        }
        if let Some(usage) = chunk.usage {
            self.usage = usage.into();
        }
        if let Some(choice) = chunk.choices {
            if !choice.finish_reason.is_empty() {
                self.finish_reason = Some(choice.finish_reason.to_string());
            }
            if let Some(delta) = choice.delta {
                self.add(delta, out);
            }
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut dyn Sink) {
        self.flush_thinking(out);
        self.flush_text(out);
    }

    fn is_complete(&self) -> bool {
        self.finish_reason.is_some()
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
