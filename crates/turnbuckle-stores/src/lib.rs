//! Stores that outlive the process, each behind a feature: conversations in a database.
//!
//! The same contract as [`turnbuckle::store::Store`], put through the same promises
//! (`turnbuckle::testing::conformance`, with `turnbuckle`'s feature `testing`).

#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteError, SqliteStore};
