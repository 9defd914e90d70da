//! MCP servers as they are met: real processes that answer, lie, die and stand still.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows tests only by their attribute, not their helpers")]

mod asking;
mod calling;
mod changing;
mod desk;
mod http;
mod logging_in;
mod real_mcp;
mod serving;
mod starting;
