//! Promises of the runtime, one file each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod at_rest;
mod attempts;
mod bad_input;
mod build_errors;
mod cancel;
mod expiry;
mod failure;
mod firing;
mod fold;
mod hooks_critic;
mod hooks_fallback;
mod hooks_gates;
mod hooks_guard;
mod hooks_input;
mod hooks_redact;
mod hooks_refine;
mod hooks_results;
mod hooks_retry;
mod injection;
mod kit;
mod letters;
mod live;
mod meddled;
mod outbox;
mod provider_parts;
mod races;
mod redact_stream;
mod revival;
mod stopping;
mod stores;
mod sub_agents;
mod suspension;
mod tidy;
mod tools;
mod turn;
