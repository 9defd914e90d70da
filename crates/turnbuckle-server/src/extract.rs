//! What requests carry, with the errors of the API where it is wrong.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use turnbuckle::{CallId, ConversationId, TurnId};

use crate::link::MAX_SIGNED;
use crate::rejection::{Code, Rejection};
use crate::server::App;

/// How long a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// The most fields of a form.
const MAX_FIELDS: usize = 1_000;
/// The longest id of a call, a turn or an approval that is looked for.
const MAX_ID: usize = 256;

/// A JSON body.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Rejection> {
        let is_json = is_json(request.headers());
        let bytes = bytes(request, app).await?;
        if !is_json {
            return Err(Rejection::bad_request("the body must be JSON: `Content-Type: application/json`"));
        }
        parsed(&bytes).map(Self)
    }
}

/// A JSON body that may be left out.
pub(crate) struct OptionalJsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for OptionalJsonBody<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Rejection> {
        let is_json = is_json(request.headers());
        let bytes = bytes(request, app).await?;
        match is_json {
            _ if bytes.is_empty() => Ok(Self(T::default())),
            true if is_null(&bytes) => Ok(Self(T::default())),
            true => parsed(&bytes).map(Self),
            false => Err(Rejection::bad_request("the body must be JSON: `Content-Type: application/json`")),
        }
    }
}

/// The same request with its body read, for those who would wait for it as long as the client likes.
pub(crate) async fn with_whole_body(request: Request, app: &Arc<App>) -> Result<Request, Rejection> {
    let (parts, body) = request.into_parts();
    let mut carrier = Request::new(body);
    carrier.headers_mut().clone_from(&parts.headers);
    // The limit of bodies is among them.
    carrier.extensions_mut().clone_from(&parts.extensions);
    let bytes = bytes(carrier, app).await?;
    Ok(Request::from_parts(parts, bytes.into()))
}

async fn bytes(request: Request, app: &Arc<App>) -> Result<Bytes, Rejection> {
    let too_large = || Rejection::new(Code::TooLarge, "the body is larger than this server takes");
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > app.limits.limits().body_bytes as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_PATIENCE, Bytes::from_request(request, app)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(too_large()),
        Ok(Err(_)) => Err(Rejection::bad_request("the body broke off")),
        Err(_) => Err(Rejection::bad_request("the body took too long")),
    }
}

/// Also keeps forms of other sites out: they cannot send this type without being asked about it first.
fn is_json(headers: &HeaderMap) -> bool {
    is_of_type(headers, "application/json")
}

/// Whether a form was sent.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    is_of_type(headers, "application/x-www-form-urlencoded")
}

fn is_of_type(headers: &HeaderMap, media_type: &str) -> bool {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(media_type)
}

/// Every body is an object. Shapes would also be read from an array of their members in order, which nobody means.
fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Rejection> {
    let refused = |error| Rejection::bad_request(format!("the body does not fit: {error}"));
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|first| *first != b'{') {
        // What is no JSON at all is told as that.
        serde_json::from_slice::<IgnoredAny>(bytes).map_err(refused)?;
        return Err(Rejection::bad_request("the body must be a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(refused)
}

fn is_null(bytes: &[u8]) -> bool {
    bytes.trim_ascii() == b"null"
}

/// The query, of which no key may be unknown.
pub(crate) struct QueryOf<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => Err(Rejection::bad_request(error.body_text())),
        }
    }
}

/// What stands in the path. What cannot be an id is the id of nothing.
pub(crate) struct InPath<T>(pub(crate) T);

/// Something that is made of the variable parts of a path.
pub(crate) trait PathParts: Sized {
    type Texts: DeserializeOwned + Send;
    fn parse(texts: Self::Texts) -> Option<Self>;
}

impl<T: PathParts, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        match Path::<T::Texts>::from_request_parts(parts, state).await {
            Ok(Path(texts)) => T::parse(texts).map(Self).ok_or_else(Rejection::not_found),
            Err(_) => Err(Rejection::bad_request("the path is not valid UTF-8")),
        }
    }
}

impl PathParts for ConversationId {
    type Texts = String;
    fn parse(text: String) -> Option<Self> {
        Self::parse(&text).ok()
    }
}

impl PathParts for (ConversationId, CallId) {
    type Texts = (String, String);
    fn parse((conversation, call): (String, String)) -> Option<Self> {
        Some((ConversationId::parse(&conversation).ok()?, plain(call)?.into()))
    }
}

impl PathParts for (ConversationId, TurnId) {
    type Texts = (String, String);
    fn parse((conversation, turn): (String, String)) -> Option<Self> {
        Some((ConversationId::parse(&conversation).ok()?, plain(turn)?.into()))
    }
}

impl PathParts for String {
    type Texts = String;
    fn parse(text: String) -> Option<Self> {
        plain(text)
    }
}

/// The signed part of a link that answers a call. What is too long is none.
pub(crate) struct Signed(pub(crate) String);

impl PathParts for Signed {
    type Texts = String;
    fn parse(text: String) -> Option<Self> {
        (text.len() <= MAX_SIGNED).then_some(Self(text))
    }
}

/// An id that somebody else made: of any characters, but not of any length.
fn plain(text: String) -> Option<String> {
    (!text.is_empty() && text.len() <= MAX_ID && !text.contains(char::is_control)).then_some(text)
}

/// The fields of a form, in order, as browsers send them.
pub(crate) async fn form_fields(request: Request, app: &Arc<App>) -> Result<Vec<(String, String)>, Rejection> {
    let is_form = is_form(request.headers());
    let bytes = bytes(request, app).await?;
    if !is_form {
        return Err(Rejection::bad_request("the body must be a form"));
    }
    let fields = form_urlencoded::parse(&bytes).into_owned();
    let fields: Vec<_> = fields.take(MAX_FIELDS + 1).collect();
    match fields.len() <= MAX_FIELDS {
        true => Ok(fields),
        false => Err(Rejection::bad_request("the form has too many fields")),
    }
}
