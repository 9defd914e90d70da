//! MCP servers as tools of an agent.
//!
//! An [`McpServer`] is a program, or an address, that offers tools. It is started when one of its tools is called for the first time, and again, with
//! growing pauses, when it has died. What it offered when a person accepted it is its [`Listing`]: the model is told that, and never what the server
//! says later. A tool whose definition has changed since is not called, and the change is reported.
//!
//! What comes back from a server is foreign text: it is cut to a size and fenced. Annotations such as `readOnlyHint` are what a server says about
//! itself. They count only where the configuration says so ([`Hints`]).
//!
//! In the other direction, a [`ConversationServer`] offers conversations to MCP clients.
//!
//! ```no_run
//! # async fn example() -> Result<(), turnbuckle::BoxError> {
//! use turnbuckle::{Agent, models::Script};
//! use turnbuckle_mcp::{McpServer, ServerOptions};
//!
//! let server = McpServer::new(ServerOptions::program("time", ["mcp-server-time"], "."));
//! // Shown to a person and kept; a later process gives it to `pinned` instead of listing again.
//! let listing = server.list().await?;
//! let mut agent = Agent::builder("clock", Script::says(["It is noon."]));
//! for tool in server.pinned(listing).tools() {
//!     agent = agent.shared_tool(tool);
//! }
//! let agent = agent.build()?;
//! # Ok(())
//! # }
//! ```

mod client;
mod connection;
mod elicitation;
mod http_client;
mod listing;
mod oauth;
mod options;
mod result;
mod serve;
mod serve_http;
mod server;
mod tool;
mod transport;

pub use connection::McpError;
pub use elicitation::{Elicitation, ElicitationAnswer, Person};
pub use listing::{Change, ListedTool, Listing};
pub use oauth::login;
pub use options::{Endpoint, Hints, ServerOptions};
pub use serve::{Approvals, ConversationServer, NewIds};
pub use serve_http::HttpConversationServer;
pub use server::McpServer;
