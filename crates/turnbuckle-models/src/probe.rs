//! Asks a server of chat completions which models it has, and how many tokens one takes.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;

use crate::endpoint::{SetupError, Timeouts, client};
use crate::failure::start_of;

/// How many names are returned at most.
const MOST: usize = 1000;

/// Why a server did not list its models.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The request cannot be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// There is no connection, or no response.
    #[error("nobody answers")]
    NoResponse(#[source] reqwest::Error),
    /// The response did not come in time.
    #[error("nobody answers")]
    TimedOut,
    /// The response is not a list of models. Holds its status.
    #[error("it answers with status {0}, not with a list of models")]
    Other(u16),
}

/// The models that the server at `base` (which mostly ends in `/v1`) offers. Fails if they are not there within `timeout`. No key
/// is sent.
pub async fn models_at(base: &str, timeout: Duration) -> Result<Vec<String>, ProbeError> {
    let ask = async {
        let (status, body) = get(&format!("{}/models", trimmed(base)), timeout).await?;
        match body.get("data").and_then(Value::as_array) {
            Some(models) if (200..300).contains(&status) => {
                let names = models.iter().filter_map(|model| model.get("id")?.as_str());
                Ok(names.take(MOST).map(str::to_owned).collect())
            }
            _ => Err(ProbeError::Other(status)),
        }
    };
    tokio::time::timeout(timeout, ask).await.unwrap_or(Err(ProbeError::TimedOut))
}

/// How many tokens `model` takes at the server at `base`, if the server says so: vLLM, OpenRouter and others in their list of
/// models, llama.cpp in `/props`, Ollama for a model that is loaded. `None` if it says nothing within `timeout`. No key is sent.
pub async fn window_at(base: &str, model: &str, timeout: Duration) -> Option<u64> {
    let base = trimmed(base);
    let root = base.strip_suffix("/v1").unwrap_or(base);
    let ask = async {
        let (_, list) = get(&format!("{base}/models"), timeout).await.ok()?;
        let listed = list.get("data").and_then(Value::as_array).into_iter().flatten();
        let listed = listed.take(MOST).find(|one| one.get("id").and_then(Value::as_str) == Some(model));
        if let Some(window) = listed.and_then(window_in) {
            return Some(window);
        }
        // What the server was started with, which may be less than what the model was trained with.
        if let Ok((200, props)) = get(&format!("{root}/props"), timeout).await
            && let Some(window) = props.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64)
        {
            return Some(window);
        }
        let (_, loaded) = get(&format!("{root}/api/ps"), timeout).await.ok()?;
        let mut loaded = loaded.get("models")?.as_array()?.iter();
        loaded.find(|one| one.get("name").and_then(Value::as_str) == Some(model))?.get("context_length")?.as_u64()
    };
    let window = tokio::time::timeout(timeout, ask).await.ok().flatten();
    window.filter(|window| *window >= LEAST_WINDOW)
}

/// A server that says less means something else.
const LEAST_WINDOW: u64 = 256;

fn window_in(model: &Value) -> Option<u64> {
    let names = ["max_model_len", "context_length", "context_window", "loaded_context_length", "max_context_length"];
    names.iter().find_map(|name| model.get(name)?.as_u64()).or_else(|| model.pointer("/meta/n_ctx")?.as_u64())
}

fn trimmed(base: &str) -> &str {
    base.trim().trim_end_matches('/')
}

/// The status and the body of what is at this address. A body that is not JSON is `null`.
async fn get(address: &str, timeout: Duration) -> Result<(u16, Value), ProbeError> {
    let url = Url::parse(address).map_err(|_| SetupError::BaseUrl)?;
    let client = client(&url, Timeouts { connect: timeout, ..Timeouts::default() })?;
    let response = client.get(url).send().await.map_err(|error| ProbeError::NoResponse(error.without_url()))?;
    let status = response.status().as_u16();
    Ok((status, serde_json::from_slice(&start_of(response).await).unwrap_or_default()))
}
