//! Turnbuckle: an LLM-agent runtime built around one thing, the turn and the hooks on it.
//!
//! A user message goes in; hooks add, check and rewrite; the model streams; tools run; hooks judge the result and may
//! refuse to let the turn end; everything that happened stands in a log from which the conversation comes back to life.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use turnbuckle::hook::{OnStop, OnStopContext, stop};
//! use turnbuckle::{Agent, models::Script};
//!
//! let agent = Agent::builder("writer", Script::says(["It is done.", "It is done. Tests pass."]))
//!     .hook(stop("tests", |turn: OnStopContext| async move {
//!         let said = turn.assistant_message().map(|reply| reply.content.text()).unwrap_or_default();
//!         Ok(if said.contains("Tests pass") { OnStop::Accept } else { OnStop::Refuse("run the tests".into()) })
//!     }))
//!     .build()?;
//! assert_eq!(agent.run("write it").await?.text(), "It is done. Tests pass.");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```
//!
//! The guide in `docs/guide/` of the repository shows how to put an agent into a program: tools, hooks, stores, approvals,
//! subscribing, testing and deploying.
//!
//! Read the modules in this order: [`agent`] says what an agent is, [`conversation`] is the door, `turn` is the loop,
//! [`hook`] the contract, [`hooks`] the ready-made ones.

pub mod agent;
pub mod conversation;
pub mod turn;

pub mod hook;
pub mod hooks;

pub mod context;
mod digest;
mod output_schema;

pub mod model;
pub mod models;
pub mod tool;
pub mod tools;

pub mod store;
pub mod stores;
pub(crate) mod summary;

pub mod feed;
pub mod report;
pub mod sent;
pub mod trace;

// What everything above is made of.
pub mod access;
mod agent_parts;
pub mod audit;
mod cache_break;
pub mod call_map;
mod change;
pub mod clock;
mod cut;
pub mod event;
pub mod id;
pub mod json_schema;
pub mod limits;
pub mod message;
mod point;
mod record;
pub mod scope;

#[cfg(feature = "testing")]
pub mod testing;

pub use agent::{Agent, AgentBuilder, BuildError};
pub use clock::Timestamp;
pub use conversation::{Conversations, RunError, UserInput, WhileBusy};
pub use event::Outcome;
pub use feed::projection;
pub use id::{CallId, ConversationId, TurnId};
pub use json_schema::SchemaError;
pub use limits::{Limits, OnBudget};
pub use message::{Content, Message, Part, Reply, ToolCall};
pub use output_schema::OutputSchema;
pub use report::{TurnReport, TurnStatus};
pub use scope::{Actor, Scope};
pub use turn::Turn;

/// A boxed future: what the methods of a `dyn` contract return.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a hook or a tool fails with: any error, any text.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The guides' code runs as tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/crash-kit.md")]
    struct CrashKit;
}
