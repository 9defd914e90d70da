//! Promises of the runtime, one file each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod smoke;
mod tidy;
