//! What the tools and the command hooks promise, with real files and real processes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what the tests share is not marked as a test")]

mod claude;
mod claude_events;
mod claude_files;
mod claude_kinds;
mod claude_patches;
mod claude_protocol;
mod command_answers;
mod command_input;
mod command_processes;
mod confinement;
mod desk;
mod editing;
mod fetch;
mod http_hooks;
mod lint;
mod listing;
mod patching;
mod paths;
mod reading;
mod searching;
mod shell;
mod worker;
mod worker_failures;
mod worker_hostile;
mod worker_points;
mod worker_sdks;
mod worker_streams;
mod writing;
