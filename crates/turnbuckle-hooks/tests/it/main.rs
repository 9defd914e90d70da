//! What each ready-made hook promises, one file a hook.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod kit;

mod cache;
mod circuit_breaker;
mod concurrency;
mod options;
mod rate_limit;
mod timeout;
