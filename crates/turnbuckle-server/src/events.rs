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
use crate::page::Rights;
use crate::page_caller::rights_of;
use crate::rejection::Rejection;
use crate::server::App;
use crate::session::Session;
use crate::wire::ErrorBody;

/// How often something is sent when nothing happens, so that both sides notice a connection that broke. The rights of the viewer
/// are looked at just as often.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// What is sent then: a comment, which clients pass over.
const HEARTBEAT_FRAME: &[u8] = b": \n\n";
/// A page whose viewer may do more or less than before is fetched again.
const REFRESH_FRAME: &[u8] = b"event: refresh\ndata: \n\n";
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
    let last = headers.get("last-event-id").and_then(|given| place(given.as_bytes()));
    open(app, caller, Watching::Json, &id, last).await
}

/// What a viewer is sent.
pub(crate) enum Watching {
    /// Events as JSON.
    Json,
    /// Pieces of the page.
    Page { rights: Rights, session: Option<Session> },
}

/// The stream of a conversation for somebody who may read it.
pub(crate) async fn open(
    app: Arc<App>,
    caller: Caller,
    watching: Watching,
    id: &ConversationId,
    last: Option<Cursor>,
) -> Result<Response, Rejection> {
    app.takes_work()?;
    let open = app.limits.open_stream(caller.identity)?;
    let hub = app.hubs.of(id).await?;
    let (rights, session) = match watching {
        Watching::Json => (None, None),
        Watching::Page { rights, session } => (Some(rights), session),
    };
    let is_page = rights.is_some();
    let viewer = hub.join(last, rights);
    let begin = format!("retry: {RETRY_MS}\nid: {}\n\n", viewer.cursor);
    let stream = EventStream {
        app,
        caller,
        session,
        is_page,
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

/// Where a client was. What is no cursor of ours was told by nobody, and the answer is `lagged`.
pub(crate) fn place(given: &[u8]) -> Option<Cursor> {
    let nowhere = Cursor { epoch: u64::MAX, position: u64::MAX };
    let text = std::str::from_utf8(given).unwrap_or_default().trim();
    (!given.is_empty()).then(|| text.parse().unwrap_or(nowhere))
}

/// One open stream.
struct EventStream {
    app: Arc<App>,
    caller: Caller,
    /// Of a page whose viewer logged in.
    session: Option<Session>,
    is_page: bool,
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
            // A viewer that lost its rights is sent nothing more, however much there is to send.
            biased;
            () = sleep_until(self.look_at) => {
                self.look_at = Instant::now() + HEARTBEAT;
                self.look().await
            }
            bytes = self.viewer.next() => bytes,
            () = self.app.closing() => {
                self.is_over = true;
                self.hub.notice("the server shuts down")
            }
        }
    }

    /// A token may have been removed, or the rights may have changed: then the stream ends, or its page is fetched again.
    async fn look(&mut self) -> Option<Bytes> {
        if self.session.is_some_and(|session| !session.is_good(&self.app.keys, self.app.clock.now())) {
            return None;
        }
        match (&self.app.tokens, self.caller.identity) {
            // With the roles that it has now.
            (Some(tokens), Identity::Token(digest)) => self.caller.scope = tokens.with_digest(&digest)?.scope(),
            (None, Identity::Local) => {}
            _ => return None,
        }
        match self.app.conversations.may(&self.hub.id, Action::Read, &self.caller.scope).await {
            Ok(()) => {}
            // A store that fails for a moment says nothing about rights.
            Err(SendError::Store(_)) => return Some(Bytes::from_static(HEARTBEAT_FRAME)),
            Err(_) => return None,
        }
        if self.is_page
            && let Ok(rights) = rights_of(&self.app, &self.caller, &self.hub.id).await
            && self.viewer.set_rights(rights)
        {
            return Some(Bytes::from_static(REFRESH_FRAME));
        }
        Some(Bytes::from_static(HEARTBEAT_FRAME))
    }
}
