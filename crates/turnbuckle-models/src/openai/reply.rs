//! What a server of chat completions says, folded into a reply as it comes.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::message::{Part, Reply, StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};

use super::WIRE;
use super::calls::Calls;
use super::chunk::{Chunk, Delta};
use super::details::Details;
use crate::arguments;
use crate::events::Fold;
use crate::failure::in_stream;
use crate::key::Key;
use crate::template::Template;
use crate::wire::{Complaint, parsed, text};

/// A reply under way.
pub(super) struct Folding<'a> {
    text: String,
    thinking: String,
    /// Up to where text and thinking were told.
    told: (usize, usize),
    /// Of chunks that say text.
    template: Template,
    details: Details,
    calls: Calls,
    finish: Option<String>,
    refused: bool,
    usage: Usage,
    over: bool,
    wants_object: bool,
    ordinal: u64,
    key: Option<&'a Key>,
}

impl<'a> Folding<'a> {
    pub(super) fn new(request: &Request, key: Option<&'a Key>) -> Self {
        Self {
            text: String::new(),
            thinking: String::new(),
            told: (0, 0),
            template: Template::default(),
            details: Details::default(),
            calls: Calls::default(),
            finish: None,
            refused: false,
            usage: Usage::default(),
            over: false,
            wants_object: request.schema.is_some(),
            ordinal: request.ordinal,
            key,
        }
    }

    fn add(&mut self, delta: Delta<'_>, out: &mut dyn Sink) {
        let thought = if delta.reasoning_content.is_empty() { &delta.reasoning } else { &delta.reasoning_content };
        if !thought.is_empty() {
            self.tell_text(out);
            self.thinking.push_str(thought);
        }
        for piece in delta.reasoning_details.into_iter().flatten() {
            self.details.add(piece);
        }
        for text in [&delta.content, &delta.refusal] {
            if !text.is_empty() {
                self.tell_thinking(out);
                self.text.push_str(text);
            }
        }
        self.refused |= !delta.refusal.is_empty();
        for call in delta.tool_calls.into_iter().flatten() {
            self.calls.take(call);
        }
    }

    fn tell_text(&mut self, out: &mut dyn Sink) {
        let told = std::mem::replace(&mut self.told.0, self.text.len());
        if told < self.text.len() {
            out.text(&self.text[told..]);
        }
    }

    fn tell_thinking(&mut self, out: &mut dyn Sink) {
        let told = std::mem::replace(&mut self.told.1, self.thinking.len());
        if told < self.thinking.len() {
            out.thinking(&self.thinking[told..]);
        }
    }

    pub(super) fn reply(self) -> Reply {
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            content.push(Part::Thinking { text: self.thinking.into(), signature: None });
        }
        if !self.details.is_empty() {
            let block = json!({ "reasoning_details": self.details.into_entries() });
            content.push(Part::Provider { provider: WIRE.into(), block: Arc::new(block) });
        }
        if !self.text.is_empty() {
            content.push(Part::text(self.text));
        }
        let cut = self.finish.as_deref() == Some("length");
        let calls = self.calls.finish(self.ordinal, if cut { arguments::cut } else { arguments::received });
        let object = self.wants_object.then(|| crate::wire::object(&content)).flatten();
        let stop_reason = match self.finish.as_deref() {
            Some("content_filter") => StopReason::Refusal,
            _ if self.refused => StopReason::Refusal,
            _ if cut => StopReason::Length,
            // Some say `stop` though they call.
            _ if !calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::End,
        };
        Reply { content: content.into(), calls, stop_reason, usage: self.usage, object, ..Reply::default() }
    }
}

impl Fold for Folding<'_> {
    fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError> {
        if let Some(text) = self.template.text(data) {
            self.tell_thinking(out);
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
            return Err(in_stream(&Complaint::read(&error).unwrap_or_default(), self.key));
        }
        if let Some(usage) = chunk.usage {
            self.usage = usage.into();
        }
        if let Some(choice) = chunk.choices {
            if !choice.finish_reason.is_empty() {
                self.finish = Some(choice.finish_reason.to_string());
            }
            if let Some(delta) = choice.delta {
                self.add(delta, out);
            }
        }
        Ok(())
    }

    fn tell(&mut self, out: &mut dyn Sink) {
        self.tell_thinking(out);
        self.tell_text(out);
    }

    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
