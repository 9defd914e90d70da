//! Asks a server of chat completions which models it has.

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
    let address = format!("{}/models", base.trim().trim_end_matches('/'));
    let url = Url::parse(&address).map_err(|_| SetupError::BaseUrl)?;
    let client = client(&url, Timeouts { connect: timeout, ..Timeouts::default() })?;
    let ask = async {
        let response = client.get(url).send().await.map_err(|error| ProbeError::NoResponse(error.without_url()))?;
        let status = response.status();
        // A body that is not JSON is no list of models, and is reported as such below.
        let body: Value = serde_json::from_slice(&start_of(response).await).unwrap_or_default();
        match body.get("data").and_then(Value::as_array) {
            Some(models) if status.is_success() => {
                let names = models.iter().filter_map(|model| model.get("id")?.as_str());
                Ok(names.take(MOST).map(str::to_owned).collect())
            }
            _ => Err(ProbeError::Other(status.as_u16())),
        }
    };
    tokio::time::timeout(timeout, ask).await.unwrap_or(Err(ProbeError::TimedOut))
}
