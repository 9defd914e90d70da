//! Promises of the runtime, one file each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod attempts;
mod bad_input;
mod build_errors;
mod cancel;
mod crash_kit;
mod crash_walk;
mod failure;
mod firing;
mod fold;
mod injection;
mod kit;
mod live;
mod meddled;
mod races;
mod redact_stream;
mod stopping;
mod stores;
mod sub_agents;
mod suspension;
mod tidy;
mod tools;
mod turn;
