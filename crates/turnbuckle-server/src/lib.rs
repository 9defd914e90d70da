//! Conversations over HTTP: the API, live events, and a page for people.
//!
//! A [`Server`] is given [`Conversations`](turnbuckle::Conversations) and knows no provider, no database and no configuration file.
//!
//! ```no_run
//! use turnbuckle::{Agent, Conversations, models::Script};
//! use turnbuckle_server::{Server, Token, Tokens};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder("greeter", Script::says(["hello"])).build()?;
//! let tokens = Tokens::new([Token::of_text(&std::env::var("TOKEN")?, "ann").role("manager")]);
//! let server = Server::builder(Conversations::in_memory(agent)).tokens(tokens).build()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7878").await?;
//! server.serve(listener, std::future::pending()).await?;
//! # Ok(()) }
//! ```
//!
//! Read in this order: `server` is what is built, `serve` accepts connections, over `tls` or not, and shuts down, `connection` has the deadlines of one, `caller` finds out who asks, with
//! `tokens` and `limits`, `page_caller` and `session` the same for the page, `link` for links that answer a call, `live_questions` for what is asked while a call runs, `routes` has the handlers, `mount` those of the program, `hub` and `events` the live feed,
//! `wire` every JSON shape and `rejection` every error, `metrics` what operators watch. [`page`] renders what people see.

mod caller;
mod connection;
mod costs;
mod events;
mod extract;
mod first_words;
mod hub;
mod keys;
mod limits;
mod link;
mod live_questions;
mod metrics;
mod mount;
mod observe;
pub mod page;
mod page_caller;
mod rejection;
mod routes;
mod serve;
mod server;
mod session;
mod tls;
mod tokens;
mod waiting_counts;
mod waits;
mod wire;

pub use keys::{Keys, KeysError};
pub use limits::ServerLimits;
pub use link::{AnswerLinks, LinkError};
pub use live_questions::{LiveAnswer, LiveQuestion, LiveQuestions};
pub use metrics::{MeasuredStore, Metrics};
pub use serve::ServeError;
pub use server::{ClientIds, Server, ServerBuilder};
pub use tls::{Certificate, CertificateError};
pub use tokens::{BadDigest, Token, Tokens};
