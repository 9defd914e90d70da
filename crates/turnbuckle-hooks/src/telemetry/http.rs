//! How OTLP reaches the collector: ureq, on the SDK's own threads.

use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use turnbuckle::hooks::OptionError;

/// How long one export may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer of a collector that is read, in bytes.
const LONGEST_ANSWER: u64 = 64 * 1024;

/// Checks that the endpoint is an HTTP address.
pub(super) fn check(endpoint: &str) -> Result<(), OptionError> {
    let parsed: ureq::http::Uri =
        endpoint.parse().map_err(|error| OptionError::new("endpoint", "is no address").because(error))?;
    match (parsed.scheme_str(), parsed.host()) {
        (Some("http" | "https"), Some(_)) => Ok(()),
        _ => Err(OptionError::new("endpoint", "must begin with http:// or https:// and name a host")),
    }
}

/// A blocking HTTP client: the SDK calls it from threads of its own.
#[derive(Debug)]
pub(super) struct Client(ureq::Agent);

impl Default for Client {
    fn default() -> Self {
        let config =
            ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).max_redirects(0).http_status_as_error(false);
        Self(config.build().into())
    }
}

impl Client {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.0.run(request.map(|body| body.to_vec()))?;
        let (head, mut body) = answer.into_parts();
        let body = body.with_config().limit(LONGEST_ANSWER).read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }
}

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(ready(self.send(request)))
    }
}
