//! Promises of the provider clients, one file each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod anthropic_wire;
mod audited_fields;
mod breaking;
mod caching;
mod dropping;
mod failing;
mod kit;
mod oddities;
mod openai_wire;
mod peers_bugs;
mod planted_facts;
#[allow(dead_code, reason = "the tests of the core look at more of a conversation")]
#[path = "../../../turnbuckle/tests/it/random_conversations.rs"]
mod random_conversations;
mod retrying;
mod servers;
mod shaped;
mod stand_in;
mod valid_bodies;
