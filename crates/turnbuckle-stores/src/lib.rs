//! Stores that outlive the process, each behind a feature: conversations in a database.
//!
//! Each implements [`turnbuckle::store::Store`] and is tested with the conformance suite of that contract
//! (`turnbuckle::testing::conformance`, behind the feature `testing` of `turnbuckle`).

#[cfg(feature = "sqlite")]
mod format;
#[cfg(feature = "sqlite")]
mod json;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "sqlite")]
pub use sqlite::{DatabaseId, FailedJobs, SqliteError, SqliteStore};
