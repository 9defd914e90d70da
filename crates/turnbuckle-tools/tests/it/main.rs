//! What the tools and the command hooks promise, with real files and real processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what the tests share is not marked as a test")]

mod claude;
mod command_answers;
mod command_input;
mod command_processes;
mod confinement;
mod desk;
mod editing;
mod lint;
mod listing;
mod patching;
mod paths;
mod reading;
mod searching;
mod shell;
mod worker;
mod worker_failures;
mod worker_sdks;
mod writing;
