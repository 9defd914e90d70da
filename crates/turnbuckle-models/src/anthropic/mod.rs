//! Anthropic's Messages API.

mod block;
mod body;
mod event;
mod hosted;
pub(crate) mod named;
mod reply;
mod schema;

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::{Value, json};
use turnbuckle::Reply;
use turnbuckle::message::Text;
use turnbuckle::model::{ModelError, Request, Sink};

use crate::client::{Client, Wire, sealed::Sealed};
use crate::endpoint::{Endpoint, SetupError, Timeouts};
use crate::generation::{Generation, generation};
use crate::key::Key;
use crate::options::ModelOptions;
use crate::tokenizer::Tokenizer;
use body::PendingReply;
use reply::Folding;

/// The base URL of Anthropic itself.
const BASE: &str = "https://api.anthropic.com";
const VERSION: &str = "2023-06-01";
/// The limit of a reply's tokens for a model that is not in the table of prices.
const MAX_TOKENS: u32 = 8192;
/// The highest limit that is sent unless the caller sets one.
const USUAL_MOST: u32 = 32_000;
/// How often a reply that the provider paused is continued.
const MOST_PAUSES: usize = 10;
/// Marks parts of a message that only this API reads. Stored in logs.
pub(crate) const WIRE: &str = "anthropic";
/// From this generation on `output_config.format` is available.
const NATIVE_OBJECTS: Generation = (4, 1);
/// From this generation on a forced tool is refused, and thinking is bound to the context before it.
pub(crate) const BOUND_THINKING: Generation = (5, 1);
/// The beta header that lets a request say what becomes of thinking whose context has changed.
const BINDING_CONTROLS: &str = "thinking-binding-controls-2026-08-01";

/// How a model is asked for an object that fits a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectBy {
    /// `output_config.format`, which Anthropic offers for models since Claude Sonnet 4.5 and Opus 4.1. It accepts a part of JSON
    /// Schema: bounds are left out, and objects are closed. A schema that cannot be reduced so far is sent as a tool instead.
    Format,
    /// A tool that the model must call, and whose arguments are the object. Works with every server of this API, except for
    /// Claude since 5.1, which refuses forced tools.
    ForcedTool,
}

/// A model behind the Messages API: at Anthropic, or at another server of that API (llama.cpp, gateways).
pub type Anthropic = Client<Messages>;

/// The Messages API, and the settings that only it has.
#[derive(Clone, Debug)]
pub struct Messages {
    object_by: ObjectBy,
    server_tools: Vec<Value>,
    /// Whether the model's thinking is bound to the context before it.
    binds_thinking: bool,
}

impl Client<Messages> {
    /// A model of Anthropic.
    pub fn new(model: impl Into<Text>, key: Key) -> Result<Self, SetupError> {
        Self::at(BASE, model, Some(key))
    }

    /// A model at another server. `base` is the part of the URL before `/v1/messages`. The key is sent as `x-api-key`.
    pub fn at(base: &str, model: impl Into<Text>, key: Option<Key>) -> Result<Self, SetupError> {
        let endpoint = endpoint(base)?;
        let endpoint = match key {
            Some(key) => endpoint.key(HeaderName::from_static("x-api-key"), "", key)?,
            None => endpoint,
        };
        Ok(Self::with(endpoint, model.into()))
    }

    /// A model at another server, with a token that is sent as gateways want it: `authorization: Bearer …`.
    pub fn with_token(base: &str, model: impl Into<Text>, token: Key) -> Result<Self, SetupError> {
        Ok(Self::with(endpoint(base)?.key(AUTHORIZATION, "Bearer ", token)?, model.into()))
    }

    fn with(endpoint: Endpoint, model: Text) -> Self {
        let generation = generation("claude", &model);
        let binds_thinking = generation >= Some(BOUND_THINKING);
        // A name without a number is taken for a newer model than all that have one.
        let is_native = generation.is_none_or(|generation| generation >= NATIVE_OBJECTS);
        let native = binds_thinking || endpoint.host() == "api.anthropic.com" && is_native;
        let object_by = if native { ObjectBy::Format } else { ObjectBy::ForcedTool };
        let endpoint = match binds_thinking {
            true => endpoint.header("anthropic-beta", HeaderValue::from_static(BINDING_CONTROLS)),
            false => endpoint,
        };
        let wire = Messages { object_by, server_tools: Vec::new(), binds_thinking };
        Self::over(wire, named::PROVIDER.prefix, model, endpoint, Tokenizer::Unknown)
    }

    /// Adds a tool that Anthropic runs itself, for example `{"type": "web_search_20250305", "name": "web_search"}`. What it did is
    /// in the reply as parts of type `provider`, which are sent back unchanged.
    #[must_use]
    pub fn server_tool(mut self, tool: Value) -> Self {
        self.wire.server_tools.push(tool);
        self
    }

    /// Sets how objects are asked for. By default that follows from the server and the model.
    #[must_use]
    pub fn object_by(mut self, way: ObjectBy) -> Self {
        self.wire.object_by = way;
        self
    }

    /// The limit of a reply's tokens, which every request of this API must have.
    fn token_limit(&self) -> u32 {
        let usual = || self.prices.of(&self.model).and_then(|price| price.max_output);
        self.max_tokens.unwrap_or_else(|| usual().map_or(MAX_TOKENS, |most| most.min(USUAL_MOST)))
    }
}

impl Sealed for Messages {}

impl Wire for Messages {
    async fn answer(client: &Anthropic, request: &Request, out: &mut dyn Sink) -> Result<Reply, ModelError> {
        let asked = PendingReply::new(client, request);
        let mut folding = Folding::new(request, &asked, client.endpoint.secrets());
        for _ in 0..=MOST_PAUSES {
            let body = asked.body(&folding.parts_so_far())?;
            let events = client.endpoint.ask(body).await?;
            folding.begin();
            events.fold(&mut folding, out).await?;
            if !folding.is_paused() {
                return Ok(folding.reply(out));
            }
        }
        Err(ModelError::Protocol(format!("the reply was paused more than {MOST_PAUSES} times")))
    }

    fn fields(client: &Anthropic, request: &Request) -> Result<Value, ModelError> {
        PendingReply::new(client, request).fields()
    }

    fn with_options(mut client: Anthropic, options: &ModelOptions) -> Anthropic {
        client.effort = options.effort;
        client.wire.server_tools.extend(options.provider_tools.iter().cloned());
        let thinking = options.thinking.map(|tokens| match tokens {
            0 => json!({ "type": "disabled" }),
            tokens => json!({ "type": "enabled", "budget_tokens": tokens }),
        });
        let stop = (!options.stop.is_empty()).then(|| options.stop.clone());
        client
            .option_if("temperature", options.temperature)
            .option_if("top_p", options.top_p)
            .option_if("stop_sequences", stop)
            .option_if("thinking", thinking)
    }
}

fn endpoint(base: &str) -> Result<Endpoint, SetupError> {
    // Base URLs with and without `/v1` are in use. Anthropic's own clients take it without.
    let base = base.trim().trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let endpoint = Endpoint::new(base, "v1/messages", Timeouts::default())?;
    Ok(endpoint.header("anthropic-version", HeaderValue::from_static(VERSION)))
}
