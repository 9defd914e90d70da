//! One event on its way: signed, posted, tried again.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use turnbuckle::feed::FeedEvent;
use turnbuckle::hooks::OptionError;
use turnbuckle::{BoxError, Timestamp};

/// The wait after the first try that failed; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Posts events to one address, signed with one key.
pub(super) struct Post {
    agent: ureq::Agent,
    url: String,
    /// For messages: the whole address may hold a token.
    host: String,
    key: Hmac<Sha256>,
    give_up_after: Duration,
    tries: u32,
}

/// Why an event did not reach its receiver.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotDelivered {
    #[error("no link could be made: {0}")]
    NoLink(#[source] BoxError),
    #[error("the event cannot be written as JSON")]
    Body(#[source] serde_json::Error),
    #[error("{host} answered with status {status}")]
    Status { status: u16, host: String },
    #[error("{host} did not answer: {source}")]
    NoAnswer { host: String, source: ureq::Error },
}

impl NotDelivered {
    /// Whether it may be better in a moment.
    fn may_pass(&self) -> bool {
        match self {
            Self::NoLink(_) | Self::Body(_) => false,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            Self::NoAnswer { .. } => true,
        }
    }
}

/// What stands beside the event: which part of the time has passed, and where it can be answered.
type Beside<'a> = (Option<u8>, Option<&'a str>);

/// The event as `show --json` has it.
fn body(event: &FeedEvent, (reminder, link): Beside<'_>) -> Result<Vec<u8>, serde_json::Error> {
    if reminder.is_none() && link.is_none() {
        return serde_json::to_vec(event);
    }
    let mut line = serde_json::to_value(event)?;
    if let Some(line) = line.as_object_mut() {
        if let Some(percent) = reminder {
            line.insert("reminder".to_owned(), (f64::from(percent) / 100.0).into());
        }
        if let Some(link) = link {
            line.insert("link".to_owned(), link.into());
        }
    }
    serde_json::to_vec(&line)
}

impl Post {
    pub(super) fn new(url: &str, secret: &str, give_up_after: Duration, tries: u32) -> Result<Self, OptionError> {
        let parsed: ureq::http::Uri =
            url.parse().map_err(|error| OptionError::new("url", "is no address").because(error))?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none() {
            return Err(OptionError::new("url", "must begin with https:// or http:// and name a host"));
        }
        // Redirects are not followed: a signature is for the address it was made for.
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(give_up_after))
            .max_redirects(0)
            .http_status_as_error(false)
            .build();
        let host = parsed.host().unwrap_or_default().to_owned();
        Ok(Self { agent: config.into(), url: url.to_owned(), host, key: key(secret)?, give_up_after, tries })
    }

    /// How long the tries at one event may take together.
    pub(super) fn longest(&self) -> Duration {
        let waits = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(self.tries - 1) - 1);
        self.give_up_after.saturating_mul(self.tries).saturating_add(waits)
    }

    /// Posts an event, with retries, under this id.
    pub(super) fn send(
        &self,
        event: &FeedEvent,
        id: &str,
        beside: Beside<'_>,
        at: Timestamp,
    ) -> Result<(), NotDelivered> {
        let body = body(event, beside).map_err(NotDelivered::Body)?;
        let timestamp = (at.as_millis() / 1000).to_string();
        let signature = self.signature(id, &timestamp, &body);
        let mut wait = FIRST_WAIT;
        let mut tries = 0;
        loop {
            tries += 1;
            let posted = self
                .agent
                .post(&self.url)
                .header("content-type", "application/json")
                .header("webhook-id", id)
                .header("webhook-timestamp", &timestamp)
                .header("webhook-signature", &signature)
                .send(&body[..]);
            let failure = match posted.map(|answer| answer.status().as_u16()) {
                Ok(200..300) => return Ok(()),
                Ok(status) => NotDelivered::Status { status, host: self.host.clone() },
                Err(source) => NotDelivered::NoAnswer { host: self.host.clone(), source },
            };
            if tries >= self.tries || !failure.may_pass() {
                return Err(failure);
            }
            std::thread::sleep(wait);
            wait *= 2;
        }
    }

    fn signature(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mut mac = self.key.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

fn key(secret: &str) -> Result<Hmac<Sha256>, OptionError> {
    let refused = |why: &str| OptionError::new("secret_env", why);
    let bytes = match secret.strip_prefix("whsec_") {
        // The cause would show a piece of the secret.
        Some(base64) => BASE64.decode(base64).map_err(|_| refused("holds `whsec_` and no base64 behind it"))?,
        None => secret.as_bytes().to_vec(),
    };
    if bytes.is_empty() {
        return Err(refused("holds no secret"));
    }
    Hmac::new_from_slice(&bytes).map_err(|_| refused("holds a secret that cannot be used"))
}
