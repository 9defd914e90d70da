//! Anthropic's Messages.

mod block;
mod body;
mod event;
mod hosted;
mod reply;

use std::fmt;
use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use turnbuckle::clock::Clock;
use turnbuckle::message::{Text, Usage};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{Boxed, Reply};

use crate::endpoint::{Endpoint, Patience, SetupError};
use crate::key::Key;
use crate::prices::Prices;
use crate::ruler::Ruler;
use body::Asked;
use reply::Folding;

/// Where Anthropic itself is.
pub(crate) const BASE: &str = "https://api.anthropic.com";
const VERSION: &str = "2023-06-01";
/// How many tokens a reply may have if nobody says and the model is not in the table.
const MAX_TOKENS: u32 = 8192;
/// The most that is asked for without being told to.
const USUAL_MOST: u32 = 32_000;
/// How often a reply that its host paused is gone on with.
const MOST_PAUSES: usize = 10;
/// Whose parts these are.
pub(crate) const WIRE: &str = "anthropic";

/// How an object that must fit a schema is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectBy {
    /// `output_config.format`: what Anthropic itself offers for models since Claude Sonnet 4.5 and Opus 4.1.
    Format,
    /// A tool that the model must call, and whose arguments are the object: works everywhere.
    ForcedTool,
}

/// A model behind Anthropic's Messages: Anthropic itself, or whoever speaks the same (llama.cpp, gateways).
#[derive(Clone)]
pub struct Anthropic {
    name: Text,
    model: Text,
    endpoint: Endpoint,
    max_tokens: u32,
    object_by: ObjectBy,
    server_tools: Vec<Value>,
    options: Map<String, Value>,
    prices: Arc<Prices>,
    ruler: Arc<Ruler>,
}

impl Anthropic {
    /// A model of Anthropic's.
    pub fn new(model: impl Into<Text>, key: Key) -> Result<Self, SetupError> {
        Self::at(BASE, model, Some(key))
    }

    /// A model at another address, which is what stands in front of `/v1/messages`.
    pub fn at(base: &str, model: impl Into<Text>, key: Option<Key>) -> Result<Self, SetupError> {
        let endpoint = endpoint(base, Patience::default())?;
        let endpoint = match key {
            Some(key) => endpoint.key(HeaderName::from_static("x-api-key"), "", key)?,
            None => endpoint,
        };
        Ok(Self::with(endpoint, model.into()))
    }

    /// A model at another address, with a token as gateways want it: `authorization: Bearer …`.
    pub fn with_token(base: &str, model: impl Into<Text>, token: Key) -> Result<Self, SetupError> {
        let endpoint = endpoint(base, Patience::default())?.key(AUTHORIZATION, "Bearer ", token)?;
        Ok(Self::with(endpoint, model.into()))
    }

    fn with(endpoint: Endpoint, model: Text) -> Self {
        let prices = Prices::builtin();
        let most = prices.of(&model).and_then(|price| price.max_output);
        let native = endpoint.host() == "api.anthropic.com" && !is_older(&model);
        Self {
            name: format!("anthropic:{model}").into(),
            max_tokens: most.map_or(MAX_TOKENS, |most| most.min(USUAL_MOST)),
            object_by: if native { ObjectBy::Format } else { ObjectBy::ForcedTool },
            server_tools: Vec::new(),
            options: Map::new(),
            prices,
            ruler: Arc::default(),
            model,
            endpoint,
        }
    }

    /// How many tokens a reply may have.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// A tool that Anthropic runs itself, for example `{"type": "web_search_20250305", "name": "web_search"}`. What it did
    /// stands in the reply as parts that only Anthropic reads.
    pub fn server_tool(mut self, tool: Value) -> Self {
        self.server_tools.push(tool);
        self
    }

    /// Any other field of the request: `thinking`, `temperature`, `metadata`. It wins over what stands there by itself.
    pub fn option(mut self, name: &str, value: Value) -> Self {
        self.options.insert(name.to_owned(), value);
        self
    }

    /// How objects are asked for, if not as the address and the model suggest.
    pub fn object_by(mut self, way: ObjectBy) -> Self {
        self.object_by = way;
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
        let asked = Asked { model: self, request };
        let mut folding = Folding::new(request, self.object_by, self.endpoint.the_key());
        for _ in 0..=MOST_PAUSES {
            let body = asked.body(&folding.so_far())?;
            let length = body.len();
            let mut events = self.endpoint.ask(body).await?;
            folding.begin();
            while !folding.is_over() && folding.advance(&mut events).await? {
                folding.take(events.data(), out)?;
            }
            folding.must_be_whole(&events)?;
            events.close().await;
            if !folding.is_paused() {
                let reply = folding.reply();
                self.ruler.learn(request, length, reply.usage.input);
                return Ok(reply);
            }
        }
        Err(ModelError::Protocol(format!("the reply was paused more than {MOST_PAUSES} times")))
    }
}

fn endpoint(base: &str, patience: Patience) -> Result<Endpoint, SetupError> {
    // Both forms are in use; the official clients want it without.
    let base = base.trim().trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let endpoint = Endpoint::new(base, "v1/messages", patience)?;
    Ok(endpoint.header("anthropic-version", HeaderValue::from_static(VERSION)))
}

/// Models that have no native way to an object.
fn is_older(model: &str) -> bool {
    let exact = ["claude-sonnet-4-0", "claude-opus-4-0", "claude-sonnet-4-20250514", "claude-opus-4-20250514"];
    model.starts_with("claude-3") || model.starts_with("claude-2") || exact.contains(&model)
}

impl Model for Anthropic {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> Boxed<'a, Result<Reply, ModelError>> {
        Box::pin(self.answer(request, out))
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        self.prices.of(&self.model).map(|price| price.cost(usage))
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        self.ruler.count(text)
    }
}

impl fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anthropic")
            .field("model", &self.model)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
