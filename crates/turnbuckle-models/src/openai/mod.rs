//! Chat completions, as OpenAI and the many servers with the same API speak them.

mod body;
mod calls;
mod chunk;
mod details;
pub(crate) mod named;
pub(crate) mod ollama;
mod reply;

use reqwest::header::AUTHORIZATION;
use serde_json::Value;
use turnbuckle::Reply;
use turnbuckle::message::Text;
use turnbuckle::model::{ModelError, Request, Sink};

use crate::client::{Client, Wire, sealed::Sealed};
use crate::endpoint::{Endpoint, SetupError, Timeouts};
use crate::generation::{Generation, generation};
use crate::key::Key;
use crate::options::{Effort, ModelOptions};
use crate::tokenizer::Tokenizer;
use reply::Folding;

/// The base URL of OpenAI itself.
const BASE: &str = "https://api.openai.com/v1";
/// Marks parts of a message that only this API reads. Stored in logs.
pub(crate) const WIRE: &str = "openai";
/// From this generation on OpenAI refuses tools over chat completions to a model that reasons.
const TOOLS_OR_REASONING: Generation = (5, 6);

/// A model behind chat completions.
pub type OpenAi = Client<ChatCompletions>;

/// The chat completions API, and what differs between the servers of it.
#[derive(Clone, Debug)]
pub struct ChatCompletions {
    /// Whether the server is OpenAI's own. It refuses unknown fields, and has another name for some.
    is_original: bool,
    /// Whether the model refuses tools while it reasons.
    tools_or_reasoning: bool,
}

impl Client<ChatCompletions> {
    /// A model of OpenAI.
    pub fn new(model: impl Into<Text>, key: Key) -> Result<Self, SetupError> {
        Self::at(BASE, model, Some(key))
    }

    /// A model at another server. `base` is the part of the URL before `/chat/completions`, and mostly ends in `/v1`.
    pub fn at(base: &str, model: impl Into<Text>, key: Option<Key>) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new(base, "chat/completions", Timeouts::default())?;
        let endpoint = match key {
            Some(key) => endpoint.key(AUTHORIZATION, "Bearer ", key)?,
            None => endpoint,
        };
        let model = model.into();
        let is_original = endpoint.host() == "api.openai.com";
        let tools_or_reasoning = is_original && generation("gpt", &model) >= Some(TOOLS_OR_REASONING);
        let tokenizer = Tokenizer::for_openai(&model);
        Ok(Self::over(
            ChatCompletions { is_original, tools_or_reasoning },
            named::OPENAI.prefix,
            model,
            endpoint,
            tokenizer,
        ))
    }

    /// A model of Ollama at `host`, for example `http://127.0.0.1:11434`. It costs nothing.
    pub fn ollama(host: &str, model: impl Into<Text>) -> Result<Self, SetupError> {
        let base = format!("{}/v1", host.trim().trim_end_matches('/'));
        let mut client = Self::at(&base, model, None)?;
        (client.name, client.free) = (format!("{}:{}", ollama::OLLAMA.prefix, client.model).into(), true);
        Ok(client)
    }
}

impl Sealed for ChatCompletions {}

impl Wire for ChatCompletions {
    async fn answer(client: &OpenAi, request: &Request, out: &mut dyn Sink) -> Result<Reply, ModelError> {
        let events = client.endpoint.ask(body::of(client, request)?).await?;
        let mut folding = Folding::new(request, client.endpoint.secrets());
        events.fold(&mut folding, out).await?;
        Ok(folding.reply())
    }

    fn fields(client: &OpenAi, request: &Request) -> Result<Value, ModelError> {
        body::fields_of(client, request)
    }

    fn with_options(mut client: OpenAi, options: &ModelOptions) -> OpenAi {
        client.effort = options.effort;
        let stop = (!options.stop.is_empty()).then(|| options.stop.clone());
        client
            .option_if("temperature", options.temperature)
            .option_if("top_p", options.top_p)
            .option_if("stop", stop)
            .option_if("reasoning_effort", options.effort.map(Effort::name))
    }
}
