//! Promises of the SQLite store, one file each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod answering;
mod backups;
mod bad_files;
mod child;
mod conforming;
mod deleting;
mod dropping;
mod events;
mod forgetting;
mod identity;
mod killing;
mod kit;
mod lapsing;
mod locks;
mod long_logs;
mod looking;
mod migrating;
mod reopening;
mod sharing;
mod two_processes;
