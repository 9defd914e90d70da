//! Whether a server of chat completions is there, and which models it has.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;

use crate::endpoint::{Patience, SetupError, client};
use crate::failure::start_of;

/// How many names are told.
const MOST: usize = 1000;

/// A server that did not say which models it has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// It cannot be asked.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Nobody answers.
    #[error("nobody answers")]
    Silent,
    /// Somebody answers, with something else.
    #[error("it answers with status {0}, not with a list of models")]
    Other(u16),
}

/// The models that the server at `base` (mostly ending in `/v1`) offers, within `patience`. No key is sent.
pub async fn models_at(base: &str, patience: Duration) -> Result<Vec<String>, ProbeError> {
    let address = format!("{}/models", base.trim().trim_end_matches('/'));
    let url = Url::parse(&address).map_err(|_| SetupError::BaseUrl)?;
    let client = client(&url, Patience { connect: patience, ..Patience::default() })?;
    let ask = async {
        let response = client.get(url).send().await.map_err(|_| ProbeError::Silent)?;
        let status = response.status();
        let body: Value = serde_json::from_slice(&start_of(response).await).unwrap_or_default();
        match body.get("data").and_then(Value::as_array) {
            Some(models) if status.is_success() => {
                let names = models.iter().filter_map(|model| model.get("id")?.as_str());
                Ok(names.take(MOST).map(str::to_owned).collect())
            }
            _ => Err(ProbeError::Other(status.as_u16())),
        }
    };
    tokio::time::timeout(patience, ask).await.unwrap_or(Err(ProbeError::Silent))
}
