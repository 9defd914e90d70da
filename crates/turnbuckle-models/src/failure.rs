//! Makes a typed error of a response that is not a stream, or of a connection that failed.

use std::time::Duration;

use reqwest::header::{HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, Url};
use serde_json::Value;
use turnbuckle::Timestamp;
use turnbuckle::model::ModelError;

use crate::key::Secrets;
use crate::wire::{Complaint, TooLong};

/// The longest wait that a server may ask for. A longer one is an outage, which should be reported and not waited for.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How much of the body of an error response is read.
const LONGEST_BODY: usize = 64 * 1024;
/// How much of a provider's message is passed on.
const LONGEST_MESSAGE: usize = 2000;

/// The connection failed. The URL is left out of the message: it may contain a password.
pub(crate) fn broken(doing: &str, error: reqwest::Error) -> ModelError {
    let error = error.without_url();
    let why = if error.is_connect() { "no connection".to_owned() } else { error.to_string() };
    let cause = innermost(&error);
    let message = if why.ends_with(&cause) { format!("{doing}: {why}") } else { format!("{doing}: {why}: {cause}") };
    ModelError::Transport { message, source: Some(error.into()) }
}

/// The last cause in the chain, which is the most specific: "connection refused".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The stream ended before the reply did.
pub(crate) fn cut_off(what: &str) -> ModelError {
    ModelError::Transport { message: what.to_owned(), source: None }
}

/// An event is not UTF-8 or not JSON. Something on the way damaged it, so trying again may help.
pub(crate) fn garbled(error: impl std::error::Error + Send + Sync + 'static) -> ModelError {
    ModelError::Transport { message: format!("an event of the answer is garbled: {error}"), source: Some(error.into()) }
}

/// The provider sent an error in the middle of a stream.
pub(crate) fn in_stream(complaint: &Complaint, secrets: &Secrets) -> ModelError {
    let (status, message) = (complaint.status(), presentable(&complaint.message, secrets));
    match complaint.too_long {
        Some(too_long) => too_long_with(too_long, status, message),
        None => ModelError::Status { status, message, retry_after: None },
    }
}

fn too_long_with(too_long: TooLong, status: u16, message: String) -> ModelError {
    ModelError::TooLong { message, status: Some(status), limit: too_long.limit, size: too_long.size }
}

/// The error of a response whose status is not success.
pub(crate) async fn of_response(response: Response, secrets: &Secrets, now: Timestamp) -> ModelError {
    let status = response.status();
    let retry_after = retry_after(response.headers(), now);
    let elsewhere = elsewhere(response.headers());
    let body = start_of(response).await;
    // A body that is not JSON is passed on as text.
    let complaint = serde_json::from_slice::<Value>(&body).ok().and_then(|body| Complaint::read(&body));
    // The body is larger than the server takes: for a model that is the same as too many tokens.
    let too_large = (status.as_u16() == 413).then(TooLong::default);
    let too_long = complaint.as_ref().and_then(|complaint| complaint.too_long).or(too_large);
    let message = match complaint {
        Some(complaint) => complaint.message,
        // A redirect is not followed: the key would be sent to the new address.
        None if status.is_redirection() => format!("the answer is elsewhere{}", elsewhere.unwrap_or_default()),
        None if body.is_empty() => status.canonical_reason().unwrap_or("no reason given").to_owned(),
        None => String::from_utf8_lossy(&body).into_owned(),
    };
    let (status, message) = (status.as_u16(), presentable(&message, secrets));
    match too_long.filter(|_| (400..500).contains(&status) && status != 429) {
        Some(too_long) => too_long_with(too_long, status, message),
        None => ModelError::Status { status, message, retry_after },
    }
}

/// The scheme and host that a redirect leads to. The rest of the URL may contain a secret.
fn elsewhere(headers: &HeaderMap) -> Option<String> {
    let url = Url::parse(headers.get(LOCATION)?.to_str().ok()?).ok()?;
    Some(format!(": at {}://{}", url.scheme(), url.host_str()?))
}

/// The error of a response that is JSON instead of a stream: an error message with status 200, or a server that does not stream.
pub(crate) async fn not_a_stream(response: Response, secrets: &Secrets) -> ModelError {
    // A body that is not JSON, or longer than what is read of it, contains no error message.
    let body: Value = serde_json::from_slice(&start_of(response).await).unwrap_or_default();
    match body.get("error").and_then(|_| Complaint::read(&body)) {
        Some(complaint) => in_stream(&complaint, secrets),
        None => ModelError::Protocol("the server was asked to stream and did not".to_owned()),
    }
}

/// The error of a response that is a web page: the base URL is wrong, or incomplete.
pub(crate) fn a_page(place: &str) -> ModelError {
    ModelError::Protocol(format!("{place} answers with a web page, not with a model's stream: is the base URL right?"))
}

/// The error of a compressed response. The request did not allow compression, and this client cannot decompress.
pub(crate) fn compressed(coding: &str) -> ModelError {
    let coding: String = coding.chars().filter(|c| c.is_ascii_graphic()).take(20).collect();
    ModelError::Protocol(format!("the answer is compressed ({coding}), and nobody asked for that"))
}

/// The first bytes of a body. If the connection breaks off, what came before is used: the status of the response is the error
/// that counts.
pub(crate) async fn start_of(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        let room = LONGEST_BODY - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if body.len() == LONGEST_BODY {
            break;
        }
    }
    body
}

/// A provider's message without secrets and control characters, cut at [`LONGEST_MESSAGE`].
fn presentable(message: &str, secrets: &Secrets) -> String {
    let hidden = secrets.hidden_in(message);
    let plain = hidden.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(LONGEST_MESSAGE).collect()
}

/// The wait that a server asks for: `retry-after-ms`, or `retry-after` in seconds or as a date. At most [`LONGEST_WAIT`]. A value
/// that cannot be parsed counts as absent.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    let wait = match text("retry-after-ms").and_then(number) {
        Some(ms) => seconds(ms / 1000.0),
        None => {
            let value = text(RETRY_AFTER.as_str())?;
            match number(value) {
                Some(number) => seconds(number),
                None => until(value, now)?,
            }
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_WAIT)
}

fn until(date: &str, now: Timestamp) -> Option<Duration> {
    let then = httpdate::parse_http_date(date).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(then.saturating_sub(Duration::from_millis(now.as_millis())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(name: &'static str, value: &str) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
        retry_after(&headers, Timestamp::from_millis(784_111_777_000))
    }

    #[test]
    fn a_wait_is_read_in_seconds_milliseconds_and_as_a_date_up_to_the_cap() {
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(wait("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(wait("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(wait("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        for endless in ["1e30", "86400", "inf", "Sat, 06 Nov 2094 08:49:37 GMT"] {
            assert_eq!(wait("retry-after", endless), Some(LONGEST_WAIT), "{endless}");
        }
        for nonsense in ["", "soon", "-1", "NaN"] {
            assert_eq!(wait("retry-after", nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_message_is_passed_on_without_the_key_and_in_one_line() {
        let mut secrets = Secrets::of_url(&"http://ann:p%20w@h/".parse().unwrap());
        secrets.add(crate::Key::new("sk-secret"));
        assert_eq!(presentable("bad key: sk-secret\nbye\u{1b}", &secrets), "bad key: [key] bye ");
        assert_eq!(presentable("ann, p%20w, p w", &secrets), "ann, [key], [key]");
        assert_eq!(presentable(&"x".repeat(5000), &Secrets::default()).len(), LONGEST_MESSAGE);
    }
}
