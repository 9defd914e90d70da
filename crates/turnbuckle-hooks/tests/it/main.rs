//! What each ready-made hook promises, one file a hook.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod kit;

mod audit_log;
mod cache;
mod circuit_breaker;
mod concurrency;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "notify")]
mod notify;
mod options;
mod rate_limit;
#[cfg(feature = "telemetry")]
mod telemetry;
mod timeout;
#[cfg(feature = "tower")]
mod tower;
