//! The events of a stream. Only the fields that are used are declared; all others are skipped.

use serde::Deserialize;
use serde_json::Value;
use turnbuckle::message::Usage;

use crate::wire::{Str, count};

#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default)]
    pub(super) r#type: Str<'a>,
    #[serde(default)]
    pub(super) index: u64,
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(default)]
    pub(super) content_block: Option<Value>,
    #[serde(default)]
    pub(super) message: Option<Opening>,
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) r#type: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Str<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Str<'a>,
    #[serde(borrow, default)]
    pub(super) partial_json: Str<'a>,
    #[serde(default)]
    pub(super) citation: Option<Value>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_details: Option<StopDetails<'a>>,
}

/// The provider's explanation of a refusal.
#[derive(Deserialize)]
pub(super) struct StopDetails<'a> {
    #[serde(borrow, default)]
    pub(super) explanation: Str<'a>,
}

#[derive(Deserialize)]
pub(super) struct Opening {
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
}

/// Token counts up to now. A later event repeats only those that have changed.
#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct WireUsage {
    #[serde(default, deserialize_with = "count")]
    pub(super) input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) cache_creation_input_tokens: Option<u64>,
}

impl WireUsage {
    pub(super) fn update(&mut self, now: Self) {
        self.input_tokens = now.input_tokens.or(self.input_tokens);
        self.output_tokens = now.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = now.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = now.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
    }

    /// Anthropic's `input_tokens` leave out what was read from the cache or written to it. [`Usage::input`] is all of it.
    pub(super) fn total(&self) -> Usage {
        let cache_read = self.cache_read_input_tokens.unwrap_or_default();
        let cache_write = self.cache_creation_input_tokens.unwrap_or_default();
        let fresh = self.input_tokens.unwrap_or_default();
        let input = fresh.saturating_add(cache_read).saturating_add(cache_write);
        Usage { input, output: self.output_tokens.unwrap_or_default(), cache_read, cache_write }
    }
}
