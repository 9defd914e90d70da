//! A service that is asked by POST: one JSON-RPC request a post, its answer in the response.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::Value;
use sha2::Sha256;
use turnbuckle::clock::{Clock as _, SystemClock};
use turnbuckle::hook::{Point, Points};

use super::error::WorkerError;
use super::message::{Message, Request, RpcError, Served, Source};
use crate::http::{LONGEST_ANSWER, PostError, Poster};

/// A service with the hook that it has, at each of its points.
#[derive(Debug)]
pub(crate) struct Service {
    pub(super) hooks: Vec<Served>,
    endpoint: Arc<Endpoint>,
}

impl Service {
    /// `name` is what the hook is called in requests.
    pub(crate) fn new(name: &str, points: Points, endpoint: Arc<Endpoint>) -> Self {
        let hooks = points.iter().map(|point| Served::of_service(name.to_owned(), point)).collect();
        Self { hooks, endpoint }
    }

    /// Posts one request. The outer error is that of the service, the inner one its answer.
    pub(super) async fn ask(
        &self,
        point: Point,
        params: impl Serialize + Send,
    ) -> Result<Result<Value, RpcError>, WorkerError> {
        self.endpoint.ask(point, params).await
    }
}

/// Where a service is, and the key that posts are signed with.
pub(crate) struct Endpoint {
    poster: Poster,
    key: Hmac<Sha256>,
    /// How long one answer may take. The hook's own time limit cuts it off as well.
    limit: Duration,
    last: AtomicU64,
    /// Makes the ids of this process different from those of others.
    prefix: String,
}

/// Why a secret cannot be a key, as the rest of a sentence about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadSecret(&'static str);

impl Endpoint {
    pub(crate) fn new(poster: Poster, secret: &str, limit: Duration) -> Result<Self, BadSecret> {
        let prefix = format!("{}-{}", std::process::id(), SystemClock::default().now().as_millis());
        Ok(Self { poster, key: key(secret)?, limit, last: AtomicU64::new(0), prefix })
    }

    async fn ask(&self, point: Point, params: impl Serialize + Send) -> Result<Result<Value, RpcError>, WorkerError> {
        let wrong = |why: String| WorkerError::Service { host: self.poster.host(), why };
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let body = serde_json::to_vec(&Request::new(number, point.name(), params))
            .map_err(|error| WorkerError::Unwritable { why: error.to_string() })?;
        let headers = self.headers(number, &body).ok_or_else(|| wrong("cannot be signed for".to_owned()))?;
        let posted = self.poster.post(headers, body, self.limit).await;
        let posted = posted.map_err(|error| match error {
            PostError::NoAnswer { why, .. } => wrong(format!("did not answer: {why}")),
            PostError::Late { limit, .. } => wrong(format!("did not answer within {limit:?}")),
            PostError::TooLong { .. } => wrong(format!("answered with more than {LONGEST_ANSWER} bytes")),
            error => wrong(error.to_string()),
        })?;
        if posted.status != 200 {
            return Err(wrong(format!("answered with status {}", posted.status)));
        }
        match Message::read(&posted.body, Source::Body) {
            Ok(Message::Answer { id, result }) if id == number => Ok(result),
            Ok(_) => Err(wrong("answered something else than this request".to_owned())),
            Err(why) => Err(wrong(format!("answered with {why}"))),
        }
    }

    /// As the Standard Webhooks have them: an id, the time, and the signature of both with the body.
    fn headers(&self, number: u64, body: &[u8]) -> Option<HeaderMap> {
        let id = format!("{}-{number}", self.prefix);
        let timestamp = (SystemClock::default().now().as_millis() / 1000).to_string();
        let mut mac = self.key.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        let signature = format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()));
        let header = |name: &'static str, value: String| {
            Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
        };
        let all = [
            header("webhook-id", id)?,
            header("webhook-timestamp", timestamp)?,
            header("webhook-signature", signature)?,
        ];
        Some(HeaderMap::from_iter(all))
    }
}

fn key(secret: &str) -> Result<Hmac<Sha256>, BadSecret> {
    let bytes = match secret.strip_prefix("whsec_") {
        // The cause would show a piece of the secret.
        Some(base64) => BASE64.decode(base64).map_err(|_| BadSecret("holds `whsec_` and no base64 behind it"))?,
        None => secret.as_bytes().to_vec(),
    };
    if bytes.is_empty() {
        return Err(BadSecret("holds no secret"));
    }
    Hmac::new_from_slice(&bytes).map_err(|_| BadSecret("holds a secret that cannot be used"))
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("poster", &self.poster).finish_non_exhaustive()
    }
}
