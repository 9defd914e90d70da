//! What a server of chat completions says, folded into a reply as it comes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use turnbuckle::message::{Part, Reply, StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};

use super::WIRE;
use super::calls::{CallDelta, Calls};
use crate::events::{Events, GRACE};
use crate::failure::{cut_off, garbled, in_stream};
use crate::key::Key;
use crate::wire::{Complaint, Str};

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Str<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Str<'a>,
    #[serde(borrow, default)]
    refusal: Str<'a>,
    /// DeepSeek, llama.cpp, vLLM.
    #[serde(borrow, default)]
    reasoning_content: Str<'a>,
    /// OpenRouter, Ollama.
    #[serde(borrow, default)]
    reasoning: Str<'a>,
    /// OpenRouter: what must go back as it came.
    #[serde(default)]
    reasoning_details: Option<Vec<Value>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    /// DeepSeek.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_write_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        let details = usage.prompt_tokens_details.unwrap_or_default();
        Self {
            input: usage.prompt_tokens.unwrap_or_default(),
            output: usage.completion_tokens.unwrap_or_default(),
            cache_read: details.cached_tokens.or(usage.prompt_cache_hit_tokens).unwrap_or_default(),
            cache_write: details.cache_write_tokens.unwrap_or_default(),
        }
    }
}

/// A reply under way.
pub(super) struct Folding<'a> {
    text: String,
    thinking: String,
    /// What OpenRouter sealed, piece by piece.
    sealed: Vec<Value>,
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
            sealed: Vec::new(),
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

    /// Goes on to the next event. Once the reply has said why it ends, only its usage can follow: then nothing that happens to
    /// the connection matters.
    pub(super) async fn advance(&self, events: &mut Events) -> Result<bool, ModelError> {
        if self.finish.is_some() {
            return Ok(events.advance_within(GRACE).await.unwrap_or(false));
        }
        events.advance().await
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// The stream is over, with or without `[DONE]`; if the reply did not say why it ends, it was cut off.
    pub(super) fn must_be_whole(&self, events: &Events) -> Result<(), ModelError> {
        match self.finish {
            Some(_) => Ok(()),
            None if events.is_empty() => Err(cut_off("the answer is empty")),
            None => Err(cut_off("the answer broke off before its end")),
        }
    }

    pub(super) fn take(&mut self, data: &[u8], out: &mut dyn Sink) -> Result<(), ModelError> {
        if data.trim_ascii() == b"[DONE]" {
            self.over = true;
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(garbled)?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(in_stream(&Complaint::read(&error).unwrap_or_default(), self.key));
        }
        if let Some(usage) = chunk.usage {
            self.usage = usage.into();
        }
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
            if !choice.finish_reason.is_empty() {
                self.finish = Some(choice.finish_reason.to_string());
            }
            if let Some(delta) = choice.delta {
                self.add(delta, out);
            }
        }
        Ok(())
    }

    fn add(&mut self, delta: Delta<'_>, out: &mut dyn Sink) {
        let thought = if delta.reasoning_content.is_empty() { &delta.reasoning } else { &delta.reasoning_content };
        if !thought.is_empty() {
            out.thinking(thought);
            self.thinking.push_str(thought);
        }
        self.sealed.extend(delta.reasoning_details.into_iter().flatten());
        for text in [&delta.content, &delta.refusal] {
            if !text.is_empty() {
                out.text(text);
                self.text.push_str(text);
            }
        }
        self.refused |= !delta.refusal.is_empty();
        for call in delta.tool_calls.into_iter().flatten() {
            self.calls.take(call);
        }
    }

    pub(super) fn reply(self) -> Reply {
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            content.push(Part::Thinking { text: self.thinking.into(), signature: None });
        }
        if !self.sealed.is_empty() {
            let block = json!({ "reasoning_details": merged(self.sealed) });
            content.push(Part::Provider { provider: WIRE.into(), block: Arc::new(block) });
        }
        if !self.text.is_empty() {
            content.push(Part::text(self.text));
        }
        let calls = self.calls.finish(self.ordinal);
        let object = self.wants_object.then(|| crate::wire::object(&content)).flatten();
        let stop_reason = match self.finish.as_deref() {
            Some("content_filter") => StopReason::Refusal,
            _ if self.refused => StopReason::Refusal,
            Some("length") => StopReason::Length,
            // Some say `stop` though they call.
            _ if !calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::End,
        };
        Reply { content: content.into(), calls, stop_reason, usage: self.usage, object, ..Reply::default() }
    }
}

/// Pieces with the same index are one entry, whose texts follow each other.
fn merged(pieces: Vec<Value>) -> Vec<Value> {
    let mut whole: Vec<Value> = Vec::new();
    for piece in pieces {
        let same = |other: &&mut Value| {
            piece["index"].is_number() && other["index"] == piece["index"] && other["type"] == piece["type"]
        };
        let Some(entry) = whole.iter_mut().rev().find(same) else {
            whole.push(piece);
            continue;
        };
        let (Some(entry), Value::Object(piece)) = (entry.as_object_mut(), piece) else { continue };
        for (name, value) in piece {
            match (entry.get_mut(&name), value) {
                (Some(Value::String(text)), Value::String(more)) if ["text", "summary", "data"].contains(&&*name) => {
                    text.push_str(&more);
                }
                (_, Value::Null) => {}
                (_, value) => {
                    entry.insert(name, value);
                }
            }
        }
    }
    whole
}
