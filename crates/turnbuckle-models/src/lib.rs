//! Models over HTTP. [`Anthropic`] speaks Anthropic's Messages API; [`OpenAi`] speaks chat completions, the API of OpenAI,
//! OpenRouter, vLLM, llama.cpp, Ollama and LM Studio.
//!
//! Both stream, keep thinking and send it back with its signatures, take parallel tool calls, report usage with cache reads and
//! writes, and fail with a [`ModelError`](turnbuckle::model::ModelError) that says whether to try again. Dropping the future
//! closes the socket. Neither client retries: that is for a hook, which knows what viewers have been shown.
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
//! [`open`] takes a model's name as the program does: `anthropic:MODEL`, `openai:MODEL`, `ollama:MODEL`, `openai@URL:MODEL`.
//! [`providers`] lists the forms.

mod address;
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
mod options;
mod positions;
mod prices;
mod probe;
mod sse;
mod template;
mod tokenizer;
mod wire;

pub use address::without_password;
pub use anthropic::{Anthropic, Messages, ObjectBy};
pub use client::{Client, Wire};
pub use endpoint::{SetupError, Timeouts};
pub use key::{Key, NoKey};
pub use named::{Environment, Name, NameError, Provider, first_found, open, open_with, providers, window_source};
pub use openai::{ChatCompletions, OpenAi};
pub use options::{Effort, ModelOptions, RefusedOption};
pub use prices::{LongPrice, Price, Prices, PricesError};
pub use probe::{ProbeError, models_at, window_at};

/// Compiles the code of the guide.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/models.md")]
    struct Models;
}
