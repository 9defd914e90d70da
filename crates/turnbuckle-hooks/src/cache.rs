//! Cache: a request that was answered before gets the same answer again.
//!
//! # What it does
//!
//! Keeps complete replies in memory, by a digest of everything that the model is sent: the model's name, the system
//! prompt, the messages, the tools, the schema. The same request is then answered from memory, streamed in the same
//! chunks, and costs nothing. Stream transformers and `after_model` hooks see such a reply as they see any other.
//!
//! - Only complete replies are kept: no stream that was cancelled or failed, no refusal, no reply that was cut off at its
//!   longest length.
//! - When `max_bytes` is reached, the least recently used reply is dropped. A reply larger than `max_bytes` is not kept.
//! - Time is the runtime's clock. An entry from the future (the clock went back) counts as expired.
//! - Two equal requests at the same moment both reach the model.
//! - Each process has its own cache, and a restart begins with an empty one.
//!
//! # Points
//!
//! `wrap_model_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `ttl` | `"1h"` | how long a cached reply may be used |
//! | `max_bytes` | 67,108,864 (64 MiB) | the memory for replies; at least 1,024 |
//! | `per_user` | `false` | whether each user has a cache of their own |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::HumanDuration;
//! use turnbuckle_hooks::cache::{Cache, CacheOptions};
//!
//! let hook = Cache::new(CacheOptions { ttl: HumanDuration::secs(600), ..Default::default() })?;
//! assert!(Cache::new(CacheOptions { max_bytes: 10, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod digest;
mod lru;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use turnbuckle::hook::{Hook, ModelNext};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, HumanDuration, OptionError};
use turnbuckle::message::{StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::{Reply, Turn};

use self::lru::{CachedReply, Chunk, Lru};
use crate::time;

/// The options of [`Cache`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheOptions {
    /// How long a cached reply may be used.
    pub ttl: HumanDuration,
    /// The memory for replies, in bytes.
    pub max_bytes: usize,
    /// Whether each user has a cache of their own.
    pub per_user: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { ttl: HumanDuration::secs(3600), max_bytes: 64 << 20, per_user: false }
    }
}

const LEAST_BYTES: usize = 1024;

/// Answers requests that were answered before from memory. See the [module](self) for rules and options.
#[derive(Debug)]
pub struct Cache {
    ttl: Duration,
    per_user: bool,
    replies: Mutex<Lru>,
}

impl Cache {
    /// Checks the options.
    pub fn new(options: CacheOptions) -> Result<Self, OptionError> {
        let CacheOptions { ttl, max_bytes, per_user } = options;
        if max_bytes < LEAST_BYTES {
            return Err(OptionError::new("max_bytes", format!("must be at least {LEAST_BYTES}, and is {max_bytes}")));
        }
        Ok(Self { ttl: time::checked("ttl", ttl)?, per_user, replies: Mutex::new(Lru::new(max_bytes)) })
    }

    fn replies(&self) -> MutexGuard<'_, Lru> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Cache {
    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let user = self.per_user.then(|| turn.scope().by());
        let Some(key) = digest::of(next.model().name(), user.as_ref(), request) else {
            return next.run(request, out).await;
        };
        let clock = turn.clock();
        if let Some(cached) = self.replies().get(&key, clock.elapsed(), self.ttl) {
            return Ok(replay(&cached, out));
        }
        let mut recorder = Recorder { out, chunks: Vec::new() };
        let reply = next.run(request, &mut recorder).await?;
        if matches!(reply.stop_reason, StopReason::End | StopReason::ToolCalls) {
            let cached = CachedReply { chunks: recorder.chunks, reply: reply.clone() };
            self.replies().put(key, Arc::new(cached), clock.elapsed());
        }
        Ok(reply)
    }
}

/// Streams a cached reply in its original chunks. Its usage is zero: no tokens were spent.
fn replay(cached: &CachedReply, out: &mut dyn Sink) -> Reply {
    for chunk in &cached.chunks {
        match chunk {
            Chunk::Text(text) => out.text(text),
            Chunk::Thinking(text) => out.thinking(text),
        }
    }
    Reply { usage: Usage::default(), ..cached.reply.clone() }
}

/// Forwards everything and keeps a copy of the chunks.
struct Recorder<'a> {
    out: &'a mut dyn Sink,
    chunks: Vec<Chunk>,
}

impl Sink for Recorder<'_> {
    fn begin(&mut self, attempt: u32) {
        // Earlier chunks belong to an attempt that failed.
        self.chunks.clear();
        self.out.begin(attempt);
    }
    fn text(&mut self, text: &str) {
        self.chunks.push(Chunk::Text(text.into()));
        self.out.text(text);
    }
    fn thinking(&mut self, text: &str) {
        self.chunks.push(Chunk::Thinking(text.into()));
        self.out.thinking(text);
    }
}

impl ConfigHook for Cache {
    const NAME: &'static str = "cache";
    const SUMMARY: &'static str = "answers a request that was answered before, from memory";
    type Options = CacheOptions;

    fn from_options(options: CacheOptions, _: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
