//! Ready-made hooks with dependencies of their own, and hooks that ask another model: a feature each, so that the
//! runtime stays lean. Each has a module of its own, whose page says what the hook does, at which points it runs, and
//! which options it has.
//!
//! | module and feature | what the hook does |
//! |---|---|
//! | `redact` | takes secrets and personal data out of text |
//! | `critic` | has other models judge a reply before it is shown |
//! | `refine` | drafts, has the draft criticised, improves it, and keeps the best |
//! | `suggest` | proposes next prompts when a turn is over |
//! | `title` | gives a conversation its title when its first turn is over |
//! | `cache` | answers a request that was answered before, from memory |
//! | `rate_limit` | spreads model or tool calls over time |
//! | `concurrency` | limits how many model or tool calls run at once |
//! | `timeout` | stops a model or tool call that takes too long |
//! | `circuit_breaker` | stops calling a model or tool that keeps failing, for a while |
//! | `monitor` | watches errors, latency, cost and refusals, and adapts when they are too high |
//! | `audit_log` | writes who decided what to a file, one JSON line each |
//! | `memory` (not default) | `remember`, `recall` and `dream`: what is known about a user, over conversations |
//! | `notify` (not default) | posts chosen events to a webhook, signed |
//! | `telemetry` (not default) | sends OpenTelemetry spans and metrics of every turn |
//! | `tower` (not default) | any `tower::Layer` around the model or the tools |
//!
//! The feature `all` turns all of them on. Default are those that cost little to build: they need nothing, a small crate,
//! or crates that `turnbuckle` itself depends on.
//!
//! Every hook is built from its options, which are checked then: `Cache::new(CacheOptions { … })` in Rust,
//! `use = "cache"` in `turnbuckle.toml`. [`ConfigHook`](turnbuckle::hooks::ConfigHook) says how a program builds a hook by
//! its name.

#[cfg(feature = "agent_hooks")]
pub mod agent_hooks;
#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod answer;
#[cfg(feature = "audit_log")]
pub mod audit_log;
#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod auxiliary_model;
#[cfg(feature = "cache")]
pub mod cache;
#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod call_filter;
#[cfg(feature = "circuit_breaker")]
pub mod circuit_breaker;
#[cfg(feature = "concurrency")]
pub mod concurrency;
#[cfg(feature = "critic")]
pub mod critic;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "monitor")]
pub mod monitor;
#[cfg(feature = "notify")]
pub mod notify;
#[cfg(feature = "rate_limit")]
pub mod rate_limit;
#[cfg(feature = "redact")]
pub mod redact;
#[cfg(feature = "refine")]
pub mod refine;
#[cfg(feature = "suggest")]
pub mod suggest;
#[cfg(feature = "telemetry")]
pub mod telemetry;
#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "shared by hooks whose features may be off"))]
mod time;
#[cfg(feature = "timeout")]
pub mod timeout;
#[cfg(feature = "title")]
pub mod title;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(any(feature = "audit_log", feature = "notify"))]
mod worker;

#[cfg(feature = "agent_hooks")]
pub use crate::agent_hooks::AgentHooks;
#[cfg(feature = "audit_log")]
pub use audit_log::AuditLog;
#[cfg(feature = "cache")]
pub use cache::Cache;
pub use call_filter::LimitPer;
#[cfg(feature = "circuit_breaker")]
pub use circuit_breaker::CircuitBreaker;
#[cfg(feature = "concurrency")]
pub use concurrency::Concurrency;
#[cfg(feature = "critic")]
pub use critic::Critic;
#[cfg(feature = "memory")]
pub use memory::{dream::Dream, recall::Recall, remember::Remember};
#[cfg(feature = "monitor")]
pub use monitor::Monitor;
#[cfg(feature = "notify")]
pub use notify::Notify;
#[cfg(feature = "rate_limit")]
pub use rate_limit::RateLimit;
#[cfg(feature = "redact")]
pub use redact::Redact;
#[cfg(feature = "refine")]
pub use refine::Refine;
#[cfg(feature = "suggest")]
pub use suggest::Suggest;
#[cfg(feature = "telemetry")]
pub use telemetry::Telemetry;
#[cfg(feature = "timeout")]
pub use timeout::Timeout;
#[cfg(feature = "title")]
pub use title::Title;

/// The code in docs/hooks.md runs as a test.
#[cfg(all(doctest, feature = "redact"))]
#[doc = include_str!("../../../docs/hooks.md")]
struct HooksGuide;
