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
use crate::page::{Rights, waiting_count};
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
/// How long a page is told of a question later than of the question's element, so that several at once are counted once.
const COUNT_AFTER: Duration = Duration::from_millis(200);
/// How long a client waits before it connects again, in milliseconds.
const RETRY_MS: u32 = 1_000;

/// The live feed
///
/// Server-sent events: `id` is the cursor, `event` the type, `data` the event as JSON. `Last-Event-ID` goes on behind that cursor;
/// without it, from now on. After `lagged`, take a new snapshot (`GET /v1/conversations/{id}`).
#[utoipa::path(get, path = "/v1/conversations/{id}/events", tag = "conversations",
    params(("id" = String, Path), ("Last-Event-ID" = Option<String>, Header, description = "a cursor")),
    responses((status = 200, description = "events, until the client or the server ends the stream", content_type = "text/event-stream", body = String), (status = "4XX", description = "there is no stream: `unauthorized`, `not_found`", body = ErrorBody)))]
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
    let count = is_page.then(|| Count { at: Some(Instant::now()), as_of: None, told: None });
    let begin = format!("retry: {RETRY_MS}\nid: {}\n\n", viewer.cursor);
    let stream = EventStream {
        app,
        caller,
        session,
        count,
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
    /// Of questions that wait for the viewer of a page.
    count: Option<Count>,
    hub: Arc<Hub>,
    viewer: Viewer,
    begin: Option<Bytes>,
    look_at: Instant,
    is_over: bool,
    _open: OpenStream,
}

/// What a page was told of the questions that wait for its viewer.
struct Count {
    /// When it is counted again.
    at: Option<Instant>,
    /// The last question or answer of this conversation that is counted.
    as_of: Option<Instant>,
    told: Option<usize>,
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
        loop {
            let count_at = self.count.as_ref().and_then(|count| count.at);
            tokio::select! {
                // A viewer that lost its rights is sent nothing more, however much there is to send.
                biased;
                () = sleep_until(self.look_at) => {
                    self.look_at = Instant::now() + HEARTBEAT;
                    return self.look().await;
                }
                () = sleep_until(count_at.unwrap_or(self.look_at)), if count_at.is_some() => {
                    if let Some(bytes) = self.count_waiting().await {
                        return Some(bytes);
                    }
                }
                bytes = self.viewer.next() => {
                    let asked_at = self.hub.asked_at();
                    if let Some(count) = self.count.as_mut().filter(|count| count.as_of != Some(asked_at)) {
                        count.at.get_or_insert(Instant::now() + COUNT_AFTER);
                    }
                    return bytes;
                }
                () = self.app.closing() => {
                    self.is_over = true;
                    return self.hub.notice("the server shuts down");
                }
            }
        }
    }

    /// How many questions wait for the viewer, in all conversations, as a piece of the page; `None` if that is known.
    async fn count_waiting(&mut self) -> Option<Bytes> {
        let asked_at = self.hub.asked_at();
        let count = self.count.as_mut()?;
        let waiting = match count.as_of == Some(asked_at) {
            // Those of other conversations: a count of a moment ago will do.
            true => self.app.waiting.of(&self.app, &self.caller.scope).await,
            false => self.app.waiting.of_since(&self.app, &self.caller.scope, asked_at).await,
        };
        count.at = None;
        match waiting {
            Ok(waiting) => {
                count.as_of = Some(asked_at);
                let is_new = count.told.replace(waiting) != Some(waiting);
                is_new.then(|| format!("event: patch\ndata: {}\n\n", waiting_count(waiting).0).into())
            }
            // It is counted again with the next heartbeat.
            Err(error) => {
                tracing::warn!(%error, "the questions that wait for a viewer could not be counted");
                None
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
        if let Some(count) = &mut self.count {
            count.at.get_or_insert_with(Instant::now);
        }
        match self.app.conversations.may(&self.hub.id, Action::Read, &self.caller.scope).await {
            Ok(()) => {}
            // A store that fails for a moment says nothing about rights.
            Err(SendError::Store(_)) => return Some(Bytes::from_static(HEARTBEAT_FRAME)),
            Err(_) => return None,
        }
        if self.count.is_some()
            && let Ok(rights) = rights_of(&self.app, &self.caller, &self.hub.id).await
            && self.viewer.set_rights(rights)
        {
            return Some(Bytes::from_static(REFRESH_FRAME));
        }
        Some(Bytes::from_static(HEARTBEAT_FRAME))
    }
}
