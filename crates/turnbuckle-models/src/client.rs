//! What both clients are: the name of a model, where it lives, and what its caller may set.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde_json::{Map, Value};
use turnbuckle::clock::Clock;
use turnbuckle::message::{Text, Usage};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{BoxFuture, Reply};

use crate::endpoint::{Endpoint, Patience};
use crate::prices::{Price, Prices};
use crate::ruler::Ruler;

/// A model over HTTP: [`Anthropic`](crate::Anthropic) and [`OpenAi`](crate::OpenAi) are one over each wire.
#[derive(Clone)]
pub struct Client<W> {
    pub(crate) name: Text,
    pub(crate) model: Text,
    pub(crate) endpoint: Endpoint,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) options: Map<String, Value>,
    pub(crate) prices: Arc<Prices>,
    pub(crate) free: bool,
    pub(crate) ruler: Arc<Ruler>,
    pub(crate) wire: W,
}

/// How a model is spoken to. Only the wires of this crate are one: [`Messages`](crate::Messages) and
/// [`ChatCompletions`](crate::ChatCompletions).
pub trait Wire: sealed::Sealed + Send + Sync + Sized + 'static {
    /// Asks, pushes what comes, and gives back the whole of it.
    #[doc(hidden)]
    fn answer<'a>(
        client: &'a Client<Self>,
        request: &'a Request,
        out: &'a mut dyn Sink,
    ) -> impl Future<Output = Result<Reply, ModelError>> + Send + 'a;
}

pub(crate) mod sealed {
    /// Others cannot write a wire: what one needs of a client is not public.
    pub trait Sealed {}
}

impl<W> Client<W> {
    /// `kind` stands before the model's name in ours.
    pub(crate) fn over(wire: W, kind: &str, model: Text, endpoint: Endpoint, ruler: Ruler) -> Self {
        Self {
            name: format!("{kind}:{model}").into(),
            model,
            endpoint,
            max_tokens: None,
            options: Map::new(),
            prices: Prices::builtin(),
            free: false,
            ruler: Arc::new(ruler),
            wire,
        }
    }

    /// How many tokens a reply may have.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Any other field of the request: `thinking`, `temperature`, `reasoning_effort`, `metadata`. It wins over what stands
    /// there by itself.
    pub fn option(mut self, name: &str, value: Value) -> Self {
        self.options.insert(name.to_owned(), value);
        self
    }

    /// How long it may be silent. (The time to connect is fixed when the client is made.)
    pub fn patience(mut self, patience: Patience) -> Self {
        self.endpoint.patience = patience;
        self
    }

    /// With other prices than those that come along.
    pub fn prices(mut self, prices: Arc<Prices>) -> Self {
        self.prices = prices;
        self
    }

    /// With another source of time.
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
    fn count_tokens(&self, text: &str) -> Option<u64> {
        self.ruler.count(text)
    }
}

impl<W> fmt::Debug for Client<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.name).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
