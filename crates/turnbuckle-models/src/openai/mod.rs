//! OpenAI's chat completions, as OpenAI and everybody who copied them speak them.

mod body;
mod calls;
mod reply;

use std::fmt;
use std::sync::Arc;

use reqwest::header::AUTHORIZATION;
use serde_json::{Map, Value};
use turnbuckle::clock::Clock;
use turnbuckle::message::{Text, Usage};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{Boxed, Reply};

use crate::endpoint::{Endpoint, Patience, SetupError};
use crate::key::Key;
use crate::prices::{Price, Prices};
use crate::ruler::Ruler;
use reply::Folding;

/// Where OpenAI itself is.
pub(crate) const BASE: &str = "https://api.openai.com/v1";
/// Whose parts these are.
pub(crate) const WIRE: &str = "openai";

/// A model behind chat completions.
#[derive(Clone)]
pub struct OpenAi {
    name: Text,
    model: Text,
    endpoint: Endpoint,
    /// OpenAI itself takes no field that it does not know, and names some in its own way.
    is_original: bool,
    max_tokens: Option<u32>,
    options: Map<String, Value>,
    prices: Arc<Prices>,
    free: bool,
    ruler: Arc<Ruler>,
}

impl OpenAi {
    /// A model of OpenAI's.
    pub fn new(model: impl Into<Text>, key: Key) -> Result<Self, SetupError> {
        Self::at(BASE, model, Some(key))
    }

    /// A model at another address, which is what stands in front of `/chat/completions` and mostly ends in `/v1`.
    pub fn at(base: &str, model: impl Into<Text>, key: Option<Key>) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new(base, "chat/completions", Patience::default())?;
        let endpoint = match key {
            Some(key) => endpoint.key(AUTHORIZATION, "Bearer ", key)?,
            None => endpoint,
        };
        let model = model.into();
        let is_original = endpoint.host() == "api.openai.com";
        Ok(Self {
            name: format!("openai:{model}").into(),
            ruler: Arc::new(Ruler::for_openai(&model)),
            model,
            endpoint,
            is_original,
            max_tokens: None,
            options: Map::new(),
            prices: Prices::builtin(),
            free: false,
        })
    }

    /// A model of Ollama's, at `host` (for example `http://127.0.0.1:11434`). It costs nothing.
    pub fn ollama(host: &str, model: impl Into<Text>) -> Result<Self, SetupError> {
        let base = format!("{}/v1", host.trim().trim_end_matches('/'));
        let mut ollama = Self::at(&base, model, None)?;
        (ollama.name, ollama.free) = (format!("ollama:{}", ollama.model).into(), true);
        Ok(ollama)
    }

    /// How many tokens a reply may have.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Any other field of the request: `temperature`, `reasoning_effort`, `provider`. It wins over what stands there by
    /// itself.
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

    async fn answer(&self, request: &Request, out: &mut dyn Sink) -> Result<Reply, ModelError> {
        let body = body::of(self, request)?;
        let length = body.len();
        let mut events = self.endpoint.ask(body).await?;
        let mut folding = Folding::new(request, self.endpoint.the_key());
        while !folding.is_over() && folding.advance(&mut events).await? {
            folding.take(events.data(), out)?;
        }
        folding.must_be_whole(&events)?;
        events.close().await;
        let reply = folding.reply();
        self.ruler.learn(request, length, reply.usage.input);
        Ok(reply)
    }
}

impl Model for OpenAi {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> Boxed<'a, Result<Reply, ModelError>> {
        Box::pin(self.answer(request, out))
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        if self.free {
            return Some(Price::FREE.cost(usage));
        }
        self.prices.of(&self.model).map(|price| price.cost(usage))
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        self.ruler.count(text)
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi").field("model", &self.model).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
