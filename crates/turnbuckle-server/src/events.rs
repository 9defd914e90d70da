//! `GET /v1/conversations/{id}/events`: the live feed as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use tokio::time::{Instant, sleep_until};
use turnbuckle::ConversationId;
use turnbuckle::access::Action;
use turnbuckle::conversation::SendError;
use turnbuckle::feed::Cursor;

use crate::caller::{Caller, Identity};
use crate::extract::InPath;
use crate::hub::{Hub, Viewer};
use crate::limits::OpenStream;
use crate::rejection::Rejection;
use crate::server::App;
use crate::wire::ErrorBody;

/// How often something is sent when nothing happens, so that both sides notice a connection that broke. The rights of the viewer
/// are looked at just as often.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client waits before it connects again, in milliseconds.
const RETRY_MS: u32 = 1_000;

/// The live feed
///
/// Server-sent events: `id` is the cursor, `event` the type, `data` the event as JSON. `Last-Event-ID` goes on behind that cursor;
/// without it, from now on. After `lagged`, take a new snapshot (`GET /v1/conversations/{id}`).
#[utoipa::path(get, path = "/v1/conversations/{id}/events", tag = "conversations",
    params(("id" = String, Path), ("Last-Event-ID" = Option<String>, Header, description = "a cursor")),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<ConversationId>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    app.conversations.begin_reading(&id, &caller.scope).await?;
    app.takes_work()?;
    let last = last_event(&headers);
    let open = app.limits.open_stream(caller.identity)?;
    let hub = app.hubs.of(&id).await?;
    let viewer = hub.join(last);
    let begin = format!("retry: {RETRY_MS}\nid: {}\n\n", viewer.cursor);
    let stream = EventStream {
        app,
        caller,
        hub,
        viewer,
        begin: Some(begin.into()),
        look_at: Instant::now() + HEARTBEAT,
        is_over: false,
        _open: open,
    };
    let frames = stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<Bytes, Infallible>(bytes), stream))
    });
    let mut response = Body::from_stream(frames).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A proxy that collects a response before it passes it on would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Where the client was. What is no cursor of ours was told by nobody, and the answer is `lagged`.
fn last_event(headers: &HeaderMap) -> Option<Cursor> {
    let given = headers.get("last-event-id")?;
    let text = given.to_str().unwrap_or_default().trim();
    match text.is_empty() && given.is_empty() {
        true => None,
        false => Some(text.parse().unwrap_or(Cursor { epoch: u64::MAX, position: u64::MAX })),
    }
}

/// One open stream.
struct EventStream {
    app: Arc<App>,
    caller: Caller,
    hub: Arc<Hub>,
    viewer: Viewer,
    begin: Option<Bytes>,
    look_at: Instant,
    is_over: bool,
    _open: OpenStream,
}

impl EventStream {
    /// What is sent next; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(begin) = self.begin.take() {
            return Some(begin);
        }
        if self.is_over {
            return None;
        }
        tokio::select! {
            bytes = self.viewer.next() => bytes,
            () = self.app.closing() => {
                self.is_over = true;
                self.hub.notice("the server shuts down")
            }
            () = sleep_until(self.look_at) => {
                self.look_at = Instant::now() + HEARTBEAT;
                match self.may_still_read().await {
                    true => Some(Bytes::from_static(b": \n\n")),
                    false => None,
                }
            }
        }
    }

    /// A token may have been removed, or the rights may have changed.
    async fn may_still_read(&self) -> bool {
        let is_known = match (&self.app.tokens, self.caller.identity) {
            (Some(tokens), Identity::Token(digest)) => tokens.with_digest(&digest).is_some(),
            (None, Identity::Local) => true,
            _ => false,
        };
        is_known
            && match self.app.conversations.may(&self.hub.id, Action::Read, &self.caller.scope).await {
                Ok(()) => true,
                // A store that fails for a moment says nothing about rights.
                Err(SendError::Store(_)) => true,
                Err(_) => false,
            }
    }
}
