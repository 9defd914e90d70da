//! Ready-made hooks with dependencies of their own, a feature each, so that the runtime stays lean.
//!
//! Every hook is built from its options, which are checked then, and has the same shape: `Cache::new(CacheOptions { … })`
//! from Rust, `use = "cache"` in `turnbuckle.toml`. [`ReadyMade`](turnbuckle::hooks::ReadyMade) says how a program
//! builds one by its name.

#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod answer;
#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod around;
#[cfg(any(feature = "audit_log", feature = "notify"))]
mod aside;
#[cfg(feature = "audit_log")]
mod audit_log;
#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod auxiliary_model;
#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "circuit_breaker")]
mod circuit_breaker;
#[cfg(feature = "concurrency")]
mod concurrency;
#[cfg(feature = "critic")]
mod critic;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "monitor")]
mod monitor;
#[cfg(feature = "notify")]
mod notify;
#[cfg(feature = "rate_limit")]
mod rate_limit;
#[cfg(feature = "redact")]
mod redact;
#[cfg(feature = "refine")]
mod refine;
#[cfg(feature = "suggest")]
mod suggest;
#[cfg(feature = "telemetry")]
mod telemetry;
#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod time;
#[cfg(feature = "timeout")]
mod timeout;
#[cfg(feature = "tower")]
pub mod tower;

pub use around::{Around, Per};
#[cfg(feature = "audit_log")]
pub use audit_log::{AuditLog, AuditLogOptions};
#[cfg(feature = "cache")]
pub use cache::{Cache, CacheOptions};
#[cfg(feature = "circuit_breaker")]
pub use circuit_breaker::{CircuitBreaker, CircuitBreakerOptions};
#[cfg(feature = "concurrency")]
pub use concurrency::{Concurrency, ConcurrencyOptions};
#[cfg(feature = "critic")]
pub use critic::{Consensus, ConsensusOption, Critic, CriticOptions, CriticRules, Finally, Judge, JudgeOptions};
#[cfg(feature = "memory")]
pub use memory::{
    Dream, DreamOptions, Memories, Memory, MemoryError, Recall, RecallOptions, Remember, RememberOptions,
};
#[cfg(feature = "monitor")]
pub use monitor::{Course, Monitor, MonitorOptions};
#[cfg(feature = "notify")]
pub use notify::{Notify, NotifyOptions};
#[cfg(feature = "rate_limit")]
pub use rate_limit::{RateLimit, RateLimitOptions};
#[cfg(feature = "redact")]
pub use redact::{Redact, RedactAt, RedactBuilder, RedactError, RedactOptions, RedactPattern, Redactor, Strategy};
#[cfg(feature = "refine")]
pub use refine::{Refine, RefineOptions};
#[cfg(feature = "suggest")]
pub use suggest::{Suggest, SuggestOptions};
#[cfg(feature = "telemetry")]
pub use telemetry::{Telemetry, TelemetryOptions};
#[cfg(feature = "timeout")]
pub use timeout::{Timeout, TimeoutOptions};

/// The code in docs/hooks.md runs as a test.
#[cfg(all(doctest, feature = "redact"))]
#[doc = include_str!("../../../docs/hooks.md")]
struct HooksGuide;
