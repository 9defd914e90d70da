//! Anthropic's Messages.

mod block;
mod body;
mod event;
mod hosted;
pub(crate) mod named;
mod reply;
mod schema;

use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::Value;
use turnbuckle::Reply;
use turnbuckle::message::Text;
use turnbuckle::model::{ModelError, Request, Sink};

use crate::client::{Client, Wire, sealed::Sealed};
use crate::endpoint::{Endpoint, Patience, SetupError};
use crate::generation::{Generation, generation};
use crate::key::Key;
use crate::ruler::Ruler;
use body::PendingReply;
use reply::Folding;

/// The base URL of Anthropic itself.
const BASE: &str = "https://api.anthropic.com";
const VERSION: &str = "2023-06-01";
/// How many tokens a reply may have if nobody says and the model is not in the table.
const MAX_TOKENS: u32 = 8192;
/// The most that is asked for without being told to.
const USUAL_MOST: u32 = 32_000;
/// How often a reply that its host paused is gone on with.
const MOST_PAUSES: usize = 10;
/// Whose parts these are.
pub(crate) const WIRE: &str = "anthropic";
/// The first models with a native way to an object.
const NATIVE_OBJECTS: Generation = (4, 1);
/// The first models that refuse a forced tool, and whose thoughts are bound to what stood before them.
const BOUND_THOUGHTS: Generation = (5, 1);
/// Lets a request say what is to become of a thought whose context has changed.
const BINDING_CONTROLS: &str = "thinking-binding-controls-2026-08-01";

/// How an object that must fit a schema is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectBy {
    /// `output_config.format`: what Anthropic itself offers for models since Claude Sonnet 4.5 and Opus 4.1. It takes a part of
    /// JSON Schema: bounds are left out and objects closed, and for a schema that cannot be said so there is a tool.
    Format,
    /// A tool that the model must call, and whose arguments are the object. Works everywhere but with Claude since 5.1,
    /// which refuses it.
    ForcedTool,
}

/// A model behind Anthropic's Messages: Anthropic itself, or whoever speaks the same (llama.cpp, gateways).
pub type Anthropic = Client<Messages>;

/// Anthropic's Messages, and what only they have.
#[derive(Clone, Debug)]
pub struct Messages {
    object_by: ObjectBy,
    server_tools: Vec<Value>,
    /// Whether the model's thoughts are bound to what stood before them.
    binds_thoughts: bool,
}

impl Client<Messages> {
    /// A model of Anthropic's.
    pub fn new(model: impl Into<Text>, key: Key) -> Result<Self, SetupError> {
        Self::at(BASE, model, Some(key))
    }

    /// A model at another address, which is what stands in front of `/v1/messages`.
    pub fn at(base: &str, model: impl Into<Text>, key: Option<Key>) -> Result<Self, SetupError> {
        let endpoint = endpoint(base)?;
        let endpoint = match key {
            Some(key) => endpoint.key(HeaderName::from_static("x-api-key"), "", key)?,
            None => endpoint,
        };
        Ok(Self::with(endpoint, model.into()))
    }

    /// A model at another address, with a token as gateways want it: `authorization: Bearer …`.
    pub fn with_token(base: &str, model: impl Into<Text>, token: Key) -> Result<Self, SetupError> {
        Ok(Self::with(endpoint(base)?.key(AUTHORIZATION, "Bearer ", token)?, model.into()))
    }

    fn with(endpoint: Endpoint, model: Text) -> Self {
        let generation = generation("claude", &model);
        let binds_thoughts = generation >= Some(BOUND_THOUGHTS);
        // A name without a number is newer than all that have one.
        let is_native = generation.is_none_or(|generation| generation >= NATIVE_OBJECTS);
        let native = binds_thoughts || endpoint.host() == "api.anthropic.com" && is_native;
        let object_by = if native { ObjectBy::Format } else { ObjectBy::ForcedTool };
        let endpoint = match binds_thoughts {
            true => endpoint.header("anthropic-beta", HeaderValue::from_static(BINDING_CONTROLS)),
            false => endpoint,
        };
        let wire = Messages { object_by, server_tools: Vec::new(), binds_thoughts };
        Self::over(wire, named::PROVIDER.prefix, model, endpoint, Ruler::default())
    }

    /// A tool that Anthropic runs itself, for example `{"type": "web_search_20250305", "name": "web_search"}`. What it did
    /// stands in the reply as parts that only Anthropic reads.
    pub fn server_tool(mut self, tool: Value) -> Self {
        self.wire.server_tools.push(tool);
        self
    }

    /// How objects are asked for, if not as the address and the model suggest.
    pub fn object_by(mut self, way: ObjectBy) -> Self {
        self.wire.object_by = way;
        self
    }

    /// How many tokens a reply may have: a request has to say so.
    fn room(&self) -> u32 {
        let usual = || self.prices.of(&self.model).and_then(|price| price.max_output);
        self.max_tokens.unwrap_or_else(|| usual().map_or(MAX_TOKENS, |most| most.min(USUAL_MOST)))
    }
}

impl Sealed for Messages {}

impl Wire for Messages {
    async fn answer(client: &Anthropic, request: &Request, out: &mut dyn Sink) -> Result<Reply, ModelError> {
        let asked = PendingReply::new(client, request);
        let mut folding = Folding::new(request, &asked, client.endpoint.the_key());
        for _ in 0..=MOST_PAUSES {
            let body = asked.body(&folding.so_far())?;
            let length = body.len();
            let events = client.endpoint.ask(body).await?;
            folding.begin();
            events.fold(&mut folding, out).await?;
            if !folding.is_paused() {
                let reply = folding.reply(out);
                client.ruler.learn(request, length, reply.usage.input);
                return Ok(reply);
            }
        }
        Err(ModelError::Protocol(format!("the reply was paused more than {MOST_PAUSES} times")))
    }
}

fn endpoint(base: &str) -> Result<Endpoint, SetupError> {
    // Both forms are in use; the official clients want it without.
    let base = base.trim().trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let endpoint = Endpoint::new(base, "v1/messages", Patience::default())?;
    Ok(endpoint.header("anthropic-version", HeaderValue::from_static(VERSION)))
}
