//! Tower: any `tower::Layer` around the model or the tools, with its state kept over calls.
//!
//! # What it does
//!
//! Puts a layer, once, around a service that runs the rest of the chain, and sends every call through it: tower's own
//! rate limit, concurrency limit, timeout, retry and load shedding work as they do around a web client. What the layer
//! keeps (tokens, permits, budgets) it keeps over all calls of the agent.
//!
//! - What a model says is streamed on while the layer still waits for its end. A layer that calls again begins a new
//!   attempt, and what the failed one said is taken back. A call can be cloned, so `tower::retry` can.
//! - A layer that fails a call itself (a timeout, an overload) makes it a broken connection for the runtime, which `retry`
//!   tries again; an error of the model comes through as it was.
//! - Calls wait in line for a layer that is not ready, first come, first served.
//! - Tower's layers sleep by tokio's timer, not by the runtime's clock: tests pause it with `tokio::time::pause`.
//!
//! From Rust only: a layer is code, and configuration has none.
//!
//! # Points
//!
//! `wrap_model_call` ([`around_models`]), `wrap_tool_call` ([`around_tools`])
//!
//! # Options
//!
//! None but the layer. Name it with [`HookExt::named`](turnbuckle::hook::HookExt::named) if there are several.
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use tower::ServiceBuilder;
//! use turnbuckle::{Agent, models::Script};
//! use turnbuckle_hooks::tower::{ModelCall, around_models};
//!
//! let layer = ServiceBuilder::new().map_request(|mut call: ModelCall| {
//!     call.request.system = "Be brief.".into();
//!     call
//! });
//! let agent = Agent::builder("a", Script::says(["Yes."])).hook(around_models(layer)).build()?;
//! assert_eq!(agent.run("Is it so?").await?.text(), "Yes.");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

mod models;
mod shared_sink;
mod tools;

use std::future::poll_fn;

use tokio::sync::Mutex;
use tower::Service;

pub use models::{AroundModels, ModelCall, ModelService, around_models};
pub use tools::{AroundTools, ToolService, ToolTask, around_tools};

/// A service that many calls share, though it may not be cloned.
///
/// Readiness belongs to one caller at a time: it is waited for and used up under a lock that callers queue for. The call
/// itself runs outside it.
struct Line<S>(Mutex<S>);

impl<S> Line<S> {
    fn new(service: S) -> Self {
        Self(Mutex::new(service))
    }

    async fn call<R>(&self, call: R) -> Result<S::Response, S::Error>
    where
        S: Service<R>,
    {
        let future = {
            let mut service = self.0.lock().await;
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(call)
        };
        future.await
    }
}
