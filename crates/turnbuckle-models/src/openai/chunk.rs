//! The chunks of a chat completion. Only the fields that are used are declared; all others are skipped.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use turnbuckle::message::Usage;

use super::calls::CallDelta;
use crate::wire::{Str, count};

#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "first")]
    pub(super) choices: Option<Choice<'a>>,
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

impl Chunk<'_> {
    /// Its text, if it says that and nothing else.
    pub(super) fn only_text(&self) -> Option<&str> {
        let (None, None, Some(Choice { delta: Some(delta), finish_reason, .. })) =
            (&self.usage, &self.error, &self.choices)
        else {
            return None;
        };
        let others = [finish_reason, &delta.refusal, &delta.reasoning_content, &delta.reasoning];
        let is_only = delta.reasoning_details.is_none() && delta.tool_calls.is_none();
        (is_only && others.iter().all(|other| other.is_empty())).then_some(&*delta.content)
    }
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
}

/// The choice with index 0: no request asks for more than one. Read without a list, since nearly every chunk has exactly one.
fn first<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Choice<'a>>, D::Error> {
    deserializer.deserialize_any(FirstVisitor)
}

struct FirstVisitor;

impl<'de> Visitor<'de> for FirstVisitor {
    type Value = Option<Choice<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("choices")
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut choices: A) -> Result<Self::Value, A::Error> {
        let mut first = None;
        while let Some(choice) = choices.next_element::<Choice<'de>>()? {
            if first.is_none() && choice.index.unwrap_or(0) == 0 {
                first = Some(choice);
            }
        }
        Ok(first)
    }
}

#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) content: Str<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Str<'a>,
    /// Thinking, as DeepSeek, llama.cpp and vLLM send it.
    #[serde(borrow, default)]
    pub(super) reasoning_content: Str<'a>,
    /// Thinking, as OpenRouter and Ollama send it.
    #[serde(borrow, default)]
    pub(super) reasoning: Str<'a>,
    /// OpenRouter's record of the thinking, which must be sent back as it came.
    #[serde(default)]
    pub(super) reasoning_details: Option<Vec<Value>>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct WireUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
    /// DeepSeek's count of cached tokens.
    #[serde(default, deserialize_with = "count")]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Details {
    #[serde(default, deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
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
