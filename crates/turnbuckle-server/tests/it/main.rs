//! The promises of the server, one file each. All of the API goes over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod client;
mod connections;
mod errors;
mod links;
mod live_questions;
mod messages;
mod metrics;
mod openapi;
mod page;
mod page_hooks;
mod page_hostile;
mod page_pictures;
mod page_reasons;
mod page_routes;
mod page_story;
mod routes;
mod streams;
mod tls;
mod who;
