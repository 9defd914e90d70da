//! What each ready-made hook promises, one file a hook.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod kit;

#[cfg(feature = "agent_hooks")]
mod agent_hooks;
mod audit_log;
mod cache;
mod catalogue;
mod circuit_breaker;
mod concurrency;
#[cfg(feature = "critic")]
mod critic;
#[cfg(feature = "memory")]
mod erasing;
#[cfg(feature = "memory")]
mod memory;
mod monitor;
#[cfg(feature = "notify")]
mod notify;
mod options;
mod rate_limit;
#[cfg(feature = "redact")]
mod redact;
#[cfg(feature = "redact")]
mod redact_stream;
#[cfg(feature = "refine")]
mod refine;
mod shape;
#[cfg(feature = "suggest")]
mod suggest;
#[cfg(feature = "telemetry")]
mod telemetry;
mod timeout;
#[cfg(feature = "title")]
mod title;
#[cfg(feature = "tower")]
mod tower;
