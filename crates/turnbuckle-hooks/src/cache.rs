//! Cache: a request that was answered before gets the same answer again.
//!
//! # What it does
//!
//! Keeps complete replies in memory, by a digest of all that the model is sent: the model's name, the system prompt, the
//! messages, the tools, the schema. The same request again is answered from there, streamed in the same pieces, and costs
//! nothing. Stream transformers and `after_model` hooks see such a reply as they see any other.
//!
//! - Only a reply that came to its end is kept. A stream that was cancelled or failed never is, nor is a refusal or a
//!   reply that ran out of room.
//! - The least recently used goes first when there is no room. A reply larger than all the room is not kept.
//! - Time is the runtime's clock. An entry from the future (a clock went back) counts as too old.
//! - Two requests at the same moment both reach the model.
//! - It is kept in memory: each process has its own, and a restart begins with none.
//!
//! # Points
//!
//! `wrap_model_call`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `ttl` | `"1h"` | how long a reply is good for |
//! | `max_bytes` | 67,108,864 (64 MiB) | room for replies; at least 1,024 |
//! | `per_user` | `false` | whether users have caches of their own |
//!
//! # Example
//!
//! ```
//! use turnbuckle::hooks::Period;
//! use turnbuckle_hooks::{Cache, CacheOptions};
//!
//! let hook = Cache::new(CacheOptions { ttl: Period::secs(600), ..Default::default() })?;
//! assert!(Cache::new(CacheOptions { max_bytes: 10, ..Default::default() }).is_err());
//! # Ok::<(), turnbuckle::hooks::OptionError>(())
//! ```

mod digest;
mod shelf;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use turnbuckle::hook::{Hook, ModelNext};
use turnbuckle::hooks::{OptionError, Period, ReadyMade, Surroundings};
use turnbuckle::message::{StopReason, Usage};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::{Reply, Turn};

use self::shelf::{Kept, Piece, Shelf};
use crate::time;

/// What a person may set of a [`Cache`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheOptions {
    /// How long a reply is good for.
    pub ttl: Period,
    /// Room for replies, in bytes.
    pub max_bytes: usize,
    /// Whether users have caches of their own.
    pub per_user: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { ttl: Period::secs(3600), max_bytes: 64 << 20, per_user: false }
    }
}

const LEAST_BYTES: usize = 1024;

/// Answers what was answered before. The rules are at the top of its source file.
#[derive(Debug)]
pub struct Cache {
    ttl: Duration,
    per_user: bool,
    shelf: Mutex<Shelf>,
}

impl Cache {
    /// Checks the options.
    pub fn new(options: CacheOptions) -> Result<Self, OptionError> {
        let CacheOptions { ttl, max_bytes, per_user } = options;
        if max_bytes < LEAST_BYTES {
            return Err(OptionError::new("max_bytes", format!("must be at least {LEAST_BYTES}, and is {max_bytes}")));
        }
        Ok(Self { ttl: time::checked("ttl", ttl)?, per_user, shelf: Mutex::new(Shelf::new(max_bytes)) })
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(kept) = self.shelf().get(&key, clock.elapsed(), self.ttl) {
            return Ok(again(&kept, out));
        }
        let mut recorder = Recorder { out, pieces: Vec::new() };
        let reply = next.run(request, &mut recorder).await?;
        if matches!(reply.stop_reason, StopReason::End | StopReason::ToolCalls) {
            let kept = Kept { pieces: recorder.pieces, reply: reply.clone() };
            self.shelf().put(key, Arc::new(kept), clock.elapsed());
        }
        Ok(reply)
    }
}

/// Says it again, in the same pieces. Nothing was spent on it.
fn again(kept: &Kept, out: &mut dyn Sink) -> Reply {
    for piece in &kept.pieces {
        match piece {
            Piece::Text(text) => out.text(text),
            Piece::Thinking(text) => out.thinking(text),
        }
    }
    Reply { usage: Usage::default(), ..kept.reply.clone() }
}

/// Passes everything on and remembers it.
struct Recorder<'a> {
    out: &'a mut dyn Sink,
    pieces: Vec<Piece>,
}

impl Sink for Recorder<'_> {
    fn begin(&mut self, attempt: u32) {
        // What was said before belongs to an attempt that failed.
        self.pieces.clear();
        self.out.begin(attempt);
    }
    fn text(&mut self, text: &str) {
        self.pieces.push(Piece::Text(text.into()));
        self.out.text(text);
    }
    fn thinking(&mut self, text: &str) {
        self.pieces.push(Piece::Thinking(text.into()));
        self.out.thinking(text);
    }
}

impl ReadyMade for Cache {
    const USE: &'static str = "cache";
    const DOES: &'static str = "answers a request that was answered before, from memory";
    type Options = CacheOptions;

    fn from_options(options: CacheOptions, _: &Surroundings<'_>) -> Result<Self, OptionError> {
        Self::new(options)
    }
}
