//! Models over HTTP: [`Anthropic`] speaks Anthropic's Messages, [`OpenAi`] speaks the chat completions of OpenAI,
//! OpenRouter, vLLM, llama.cpp, Ollama and LM Studio.
//!
//! Both stream, keep thoughts and send them back with their signatures, take parallel tool calls, fill in usage with cache
//! reads and writes, and fail with a [`ModelError`](turnbuckle::model::ModelError) that says whether trying again may
//! help. Dropping the future closes the socket. Neither tries again by itself: that is what a hook is for.
//!
//! ```no_run
//! # async fn f() -> Result<(), turnbuckle::BoxError> {
//! use turnbuckle::Agent;
//! use turnbuckle_models::{Anthropic, Key};
//!
//! let model = Anthropic::new("claude-sonnet-5-5", Key::from_env("ANTHROPIC_API_KEY")?)?;
//! let agent = Agent::builder("writer", model).build()?;
//! println!("{}", agent.run("Write a haiku.").await?.text());
//! # Ok(()) }
//! ```
//!
//! [`open`] takes a name as the program does: `anthropic:MODEL`, `openai:MODEL`, `ollama:MODEL`, `openai@URL:MODEL`.

mod anthropic;
mod arguments;
mod client;
mod endpoint;
mod events;
mod failure;
mod generation;
mod key;
mod named;
mod openai;
mod positions;
mod prices;
mod probe;
mod ruler;
mod sse;
mod template;
mod wire;

pub use anthropic::{Anthropic, Messages, ObjectBy};
pub use client::{Client, Wire};
pub use endpoint::{Patience, SetupError};
pub use key::{Key, NoKey};
pub use named::{Environment, Name, NameError, Provider, first_found, open, providers};
pub use openai::{ChatCompletions, OpenAi};
pub use prices::{LongPrice, Price, Prices, PricesError};
pub use probe::{ProbeError, models_at};

/// The guide's code compiles.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/models.md")]
    struct Models;
}
