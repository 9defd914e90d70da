//! What both clients have in common: the model, its endpoint, and the settings of the caller.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde_json::{Map, Value};
use turnbuckle::clock::Clock;
use turnbuckle::message::{Text, Usage};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{BoxFuture, Reply};

use crate::endpoint::{Endpoint, Timeouts};
use crate::options::{Effort, ModelOptions};
use crate::prices::{Price, Prices};
use crate::tokenizer::Tokenizer;

/// A model over HTTP. [`Anthropic`](crate::Anthropic) and [`OpenAi`](crate::OpenAi) are this type with one wire each.
#[derive(Clone)]
pub struct Client<W> {
    pub(crate) name: Text,
    pub(crate) model: Text,
    pub(crate) endpoint: Endpoint,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) options: Map<String, Value>,
    pub(crate) prices: Arc<Prices>,
    /// Whether the model costs nothing, whatever the prices say.
    pub(crate) free: bool,
    pub(crate) tokenizer: Tokenizer,
    /// How many tokens the model takes, if the caller knows better than the table of prices.
    pub(crate) window: Option<u64>,
    /// What was chosen with [`ModelOptions`].
    pub(crate) effort: Option<Effort>,
    pub(crate) wire: W,
}

/// An API that models are spoken to with. Implemented by [`Messages`](crate::Messages) and
/// [`ChatCompletions`](crate::ChatCompletions) only.
pub trait Wire: sealed::Sealed + Send + Sync + Sized + 'static {
    /// The body of a request, without its messages and its system prompt.
    #[doc(hidden)]
    fn fields(client: &Client<Self>, request: &Request) -> Result<Value, ModelError>;

    /// Sends the request, pushes the pieces of the reply into `out` as they come, and returns the whole reply.
    #[doc(hidden)]
    fn answer<'a>(
        client: &'a Client<Self>,
        request: &'a Request,
        out: &'a mut dyn Sink,
    ) -> impl Future<Output = Result<Reply, ModelError>> + Send + 'a;

    /// The client with what the options are called on this wire.
    #[doc(hidden)]
    fn with_options(client: Client<Self>, options: &ModelOptions) -> Client<Self>;
}

pub(crate) mod sealed {
    /// Keeps [`Wire`](super::Wire) from being implemented elsewhere: what a wire needs of a client is not public.
    pub trait Sealed {}
}

impl<W> Client<W> {
    /// `prefix` is the provider's, as in the names of its models.
    pub(crate) fn over(wire: W, prefix: &str, model: Text, endpoint: Endpoint, tokenizer: Tokenizer) -> Self {
        Self {
            name: format!("{prefix}:{model}").into(),
            model,
            endpoint,
            max_tokens: None,
            options: Map::new(),
            prices: Prices::builtin(),
            free: false,
            tokenizer,
            window: None,
            effort: None,
            wire,
        }
    }

    /// Limits a reply to this many tokens.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Says how many tokens the model takes in one request, reply included: what its server was started with, for instance.
    #[must_use]
    pub fn with_context_window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Sets a field of the request body: `thinking`, `temperature`, `reasoning_effort`, `metadata`. It replaces the value that
    /// the client would send.
    #[must_use]
    pub fn option(mut self, name: &str, value: Value) -> Self {
        self.options.insert(name.to_owned(), value);
        self
    }

    /// Sets a field if there is a value for it.
    pub(crate) fn option_if(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.option(name, value.into()),
            None => self,
        }
    }

    /// Sets how long the server may be silent. `connect` has no effect here: it is fixed when the client is made.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.endpoint.timeouts = timeouts;
        self
    }

    /// Replaces the built-in prices.
    #[must_use]
    pub fn prices(mut self, prices: Arc<Prices>) -> Self {
        self.prices = prices;
        self
    }

    /// Replaces the system's clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.endpoint.clock = clock;
        self
    }
}

impl<W: Wire> Model for Client<W> {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(W::answer(self, request, out))
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        let price = if self.free { Some(&Price::FREE) } else { self.prices.of(&self.model) };
        price.map(|price| price.cost(usage))
    }
    fn context_window(&self) -> Option<u64> {
        self.window.or_else(|| self.prices.of(&self.model)?.context)
    }
    fn effort(&self) -> Option<&str> {
        self.effort.map(Effort::name)
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        self.tokenizer.count(text)
    }
    fn body_fields(&self, request: &Request) -> Option<Value> {
        // What cannot be written is not sent either: the call fails, with its reason.
        W::fields(self, request).ok()
    }
}

impl<W> fmt::Debug for Client<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
