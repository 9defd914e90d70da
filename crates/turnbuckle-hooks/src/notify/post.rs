//! One event on its way: signed, posted, tried again.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use turnbuckle::feed::FeedEvent;
use turnbuckle::hooks::OptionError;

/// The wait after the first try that failed; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Posts events to one address, signed with one key.
pub(super) struct Post {
    agent: ureq::Agent,
    url: String,
    key: Hmac<Sha256>,
    tries: u32,
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
        Ok(Self { agent: config.into(), url: url.to_owned(), key: key(secret)?, tries })
    }

    /// Posts an event, with retries. Returns whether the receiver accepted it.
    pub(super) fn send(&self, told: &FeedEvent) -> bool {
        let Ok(body) = serde_json::to_vec(told) else { return false };
        let id = format!("{}_{}", told.conversation, told.cursor);
        let timestamp = (told.at.as_millis() / 1000).to_string();
        let signature = self.signature(&id, &timestamp, &body);
        let mut wait = FIRST_WAIT;
        for attempt in 1..=self.tries {
            let posted = self
                .agent
                .post(&self.url)
                .header("content-type", "application/json")
                .header("webhook-id", &id)
                .header("webhook-timestamp", &timestamp)
                .header("webhook-signature", &signature)
                .send(&body[..]);
            match posted.map(|answer| answer.status().as_u16()) {
                Ok(429 | 500..) | Err(_) if attempt < self.tries => {
                    std::thread::sleep(wait);
                    wait *= 2;
                }
                result => return result.is_ok_and(|status| (200..300).contains(&status)),
            }
        }
        false
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
