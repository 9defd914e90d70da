//! The HTTP client of a connection. It reads no more of an answer than a message may have: the one that comes with rmcp reads every answer to its
//! end, so that a server which never ends one would fill the memory of this process.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use crate::transport::{MOST_MESSAGE, WhyEnded};

/// What requests say that they take.
const BOTH: &str = "text/event-stream, application/json";
/// How much of an answer that is no message is told, in bytes.
const MOST_TOLD: usize = 2000;

/// Requests to one server.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: reqwest::Client,
    /// Is told when a message is too long: that ends the connection, as it does with a program.
    ended: WhyEnded,
}

type Failed = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// What an answer says that it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Events,
    Other,
}

impl Kind {
    fn of(headers: &HeaderMap) -> Self {
        match headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) {
            Some(kind) if kind.starts_with(JSON_MIME_TYPE.as_bytes()) => Self::Json,
            Some(kind) if kind.starts_with(EVENT_STREAM_MIME_TYPE.as_bytes()) => Self::Events,
            _ => Self::Other,
        }
    }
}

impl HttpClient {
    pub(crate) fn new(client: reqwest::Client, ended: WhyEnded) -> Self {
        Self { client, ended }
    }

    /// A message that is answered at once, or not at all.
    async fn whole(&self, mut answer: Response) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            if body.len() + piece.len() > MOST_MESSAGE {
                self.ended.note_too_long();
                return Err(unexpected("a message that is too long".to_owned()));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// Messages as they come.
    fn events(&self, answer: Response, most: usize) -> Events {
        let (ended, mut limit) = (self.ended.clone(), EventLimit::new(most));
        let pieces = answer.bytes_stream().map(move |piece| {
            let piece = piece.map_err(io::Error::other)?;
            match limit.is_kept_by(&piece) {
                true => Ok(piece),
                false => {
                    ended.note_too_long();
                    Err(io::Error::new(io::ErrorKind::InvalidData, "a message of the server is too long"))
                }
            }
        });
        SseStream::from_bytes_stream(pieces).boxed()
    }

    /// What becomes of a message that was answered with an error status. A server that says in JSON what is wrong answers the request.
    async fn refused(&self, answer: Response) -> Result<StreamableHttpPostResponse, Failed> {
        let (status, kind, session) = (answer.status(), Kind::of(answer.headers()), session_of(answer.headers()));
        let failed = failed_status(status, answer.headers());
        if kind != Kind::Json || status == StatusCode::TOO_MANY_REQUESTS {
            let Some(failed) = failed else {
                return Err(unexpected(format!("HTTP {status}: {}", beginning(answer).await)));
            };
            return Err(failed.into());
        }
        let body = self.whole(answer).await?;
        let is_about_login = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(message @ JsonRpcMessage::Error(_)) if !is_about_login => {
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            _ => Err(failed.map_or_else(|| unexpected(format!("HTTP {status}: {}", start_of(&body))), Into::into)),
        }
    }
}

fn unexpected(what: String) -> Failed {
    StreamableHttpError::UnexpectedServerResponse(what.into())
}

fn with_headers(
    mut request: RequestBuilder,
    session: Option<&str>,
    token: Option<String>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> Result<RequestBuilder, Failed> {
    for (name, value) in headers {
        // They are the protocol's.
        let is_reserved = ["accept", HEADER_SESSION_ID, HEADER_LAST_EVENT_ID];
        if is_reserved.iter().any(|reserved| name.as_str().eq_ignore_ascii_case(reserved)) {
            return Err(StreamableHttpError::ReservedHeaderConflict(name.to_string()));
        }
        request = request.header(name, value);
    }
    if let Some(session) = session {
        request = request.header(HEADER_SESSION_ID, session);
    }
    Ok(match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    })
}

/// Whether somebody must log in first, or with more rights.
fn check_login(answer: &Response) -> Result<(), Failed> {
    let Some(wanted) = answer.headers().get(WWW_AUTHENTICATE) else { return Ok(()) };
    let text = || String::from_utf8_lossy(wanted.as_bytes()).into_owned();
    match answer.status() {
        StatusCode::UNAUTHORIZED => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(text()))),
        StatusCode::FORBIDDEN => Err(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(text(), None))),
        _ => Ok(()),
    }
}

/// A failure of the server, or that it was asked too much, and when it can be asked again.
fn failed_status(status: StatusCode, headers: &HeaderMap) -> Option<HttpStatusError> {
    let is_told = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    let retry = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    is_told.then(|| HttpStatusError::new(status.as_u16(), retry))
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    headers.get(HEADER_SESSION_ID)?.to_str().ok().map(str::to_owned)
}

/// How an answer begins that is no message; the rest is not read.
async fn beginning(mut answer: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = answer.chunk().await {
        body.extend_from_slice(&piece[..piece.len().min(MOST_TOLD)]);
        if body.len() >= MOST_TOLD {
            break;
        }
    }
    start_of(&body)
}

fn start_of(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(MOST_TOLD)]).into_owned()
}

fn other_kind(headers: &HeaderMap) -> Failed {
    let kind = headers.get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    StreamableHttpError::UnexpectedContentType(kind)
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, MOST_MESSAGE).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let wants_reply = matches!(message, JsonRpcMessage::Request(_));
        let request = self.client.post(&*uri).header(ACCEPT, BOTH).header(CONTENT_TYPE, JSON_MIME_TYPE);
        let request = with_headers(request, session.as_deref(), token, headers)?;
        let answer = request.body(serde_json::to_vec(&message)?).send().await?;
        check_login(&answer)?;
        let status = answer.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            return self.refused(answer).await;
        }
        // Some answer a notification with an empty 200.
        if !wants_reply && answer.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session = session_of(answer.headers());
        match Kind::of(answer.headers()) {
            Kind::Events => Ok(StreamableHttpPostResponse::Sse(self.events(answer, most), session)),
            Kind::Other => Err(other_kind(answer.headers())),
            Kind::Json => {
                let body = self.whole(answer).await?;
                match serde_json::from_slice(&body) {
                    Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
                    // Nobody waits for it.
                    Err(_) if !wants_reply => Ok(StreamableHttpPostResponse::Accepted),
                    Err(error) => Err(unexpected(format!("no message of the protocol ({error}): {}", start_of(&body)))),
                }
            }
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failed> {
        self.get_stream_with_max_sse_event_size(uri, session, last, token, headers, MOST_MESSAGE).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<Events, Failed> {
        // What was too long would come again.
        if self.ended.is_too_long() {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let mut request = self.client.get(&*uri).header(ACCEPT, BOTH);
        if let Some(last) = last {
            request = request.header(HEADER_LAST_EVENT_ID, last);
        }
        let answer = with_headers(request, session.as_deref(), token, headers)?.send().await?;
        if answer.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        check_login(&answer)?;
        if let Some(failed) = failed_status(answer.status(), answer.headers()) {
            return Err(failed.into());
        }
        let answer = answer.error_for_status()?;
        match Kind::of(answer.headers()) {
            Kind::Other => Err(other_kind(answer.headers())),
            Kind::Json | Kind::Events => Ok(self.events(answer, most)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        self.client.delete_session(uri, session, token, headers).await
    }
}

/// Finds an event of a stream that is longer than a message may be, before it is put together. Events end with an empty line; lines end with
/// `\n`, `\r` or both.
struct EventLimit {
    most: usize,
    /// Bytes since the last event ended.
    event: usize,
    /// Bytes since the last line ended.
    line: usize,
    is_after_return: bool,
}

impl EventLimit {
    fn new(most: usize) -> Self {
        Self { most, event: 0, line: 0, is_after_return: false }
    }

    fn is_kept_by(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            self.event += 1;
            match byte {
                // It belongs to the end of the line before it.
                b'\n' if self.is_after_return => {}
                b'\n' | b'\r' => {
                    if self.line == 0 {
                        self.event = 0;
                    }
                    self.line = 0;
                }
                _ => self.line += 1,
            }
            self.is_after_return = *byte == b'\r';
            if self.event > self.most {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_as_long_as_what_stands_between_empty_lines() {
        let is_kept = |pieces: &[&str]| {
            let mut limit = EventLimit::new(10);
            pieces.iter().all(|piece| limit.is_kept_by(piece.as_bytes()))
        };
        assert!(is_kept(&["data: abcd"]) && !is_kept(&["data: abcd", "e"]));
        for end in ["\n", "\r", "\r\n"] {
            // Many short events are no long one, and many short lines are.
            let events = format!("d: a{end}{end}").repeat(10);
            assert!(is_kept(&[&events]), "{end:?}");
            let byte_by_byte: Vec<&str> = events.split_inclusive(|_: char| true).collect();
            assert!(is_kept(&byte_by_byte), "{end:?}");
            assert!(!is_kept(&[&format!("d: a{end}").repeat(10)]), "{end:?}");
        }
    }
}
