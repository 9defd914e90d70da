//! The program, run as people run it: real binary, real files, real signals. One file per promise.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows tests only by their attribute, not their helpers")]

mod cancelling;
mod chatting;
mod checking;
mod command_hooks;
mod configuration;
mod damaged;
mod demo;
mod docs;
mod events;
mod exit_codes;
mod gates;
mod hooks;
mod hostile_files;
mod hostile_text;
mod keeping;
mod killed;
mod logging;
mod looking;
mod messages;
mod model_servers;
mod output;
mod paths;
mod program;
mod programs;
mod providers;
mod races;
mod ready_made;
mod resolving;
mod schemas;
mod secrets;
mod services;
mod signals;
mod sub_agents;
mod surviving;
mod zombie;
