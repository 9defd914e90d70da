//! Messages, and taking a turn back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use turnbuckle::access::Action;
use turnbuckle::conversation::{Cancelled, SendError};
use turnbuckle::{Content, ConversationId, OutputSchema, Part, UserInput, WhileBusy};

use crate::caller::Caller;
use crate::extract::{InPath, JsonBody};
use crate::rejection::Rejection;
use crate::server::App;
use crate::wire::{AcceptedMessage, CancelledTurn, ErrorBody, NewMessage, WhileBusyChoice};

impl From<WhileBusyChoice> for WhileBusy {
    fn from(choice: WhileBusyChoice) -> Self {
        match choice {
            WhileBusyChoice::Reject => Self::Reject,
            WhileBusyChoice::Queue => Self::Queue,
            WhileBusyChoice::Interrupt => Self::Interrupt,
            WhileBusyChoice::Steer => Self::Steer,
        }
    }
}

/// Sends a message
///
/// It is stored before this answers. The turn goes on whether or not somebody watches.
#[utoipa::path(post, path = "/v1/conversations/{id}/messages", tag = "conversations", 
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "a message that is sent again under the same key within a day is not sent twice")),
    request_body = NewMessage,
    responses((status = 202, description = "the message is stored; its turn runs", body = AcceptedMessage), (status = "4XX", description = "the message was not taken: `bad_request`, `unauthorized`, `forbidden`, `not_found`, `busy`, `changed`, `held`, `too_large`", body = ErrorBody)))]
pub(crate) async fn send(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<ConversationId>,
    headers: HeaderMap,
    JsonBody(message): JsonBody<NewMessage>,
) -> Result<(StatusCode, Json<AcceptedMessage>), Rejection> {
    app.takes_work()?;
    // Sending makes a conversation that is not there; here one is made by asking for it.
    app.conversations.may(&id, Action::Say, &caller.scope).await?;
    let mut input = UserInput::new(content(message.content)?);
    if let Some(key) = key(&headers)? {
        input = input.with_key(key);
    }
    if let Some(schema) = message.schema {
        let schema = OutputSchema::new(schema).map_err(|error| Rejection::bad_request(format!("`schema`: {error}")))?;
        input = input.with_schema(schema);
    }
    // Looked for before anything that may have changed since: the first one was taken, and this is the answer to it.
    if let Some(turn) = app.conversations.sent_before(&id, &input, &caller.scope).await? {
        return Ok((StatusCode::ACCEPTED, Json(AcceptedMessage { turn })));
    }
    if message.accept_changes {
        input = input.accept_agent();
        if app.conversations.accept_changes(&id, caller.scope.clone()).await?.is_some() {
            app.conversations.resume(&id, caller.scope.clone()).await?;
        }
    } else if let Some(left) = app.conversations.left_turn(&id, caller.scope.clone()).await? {
        return Err(SendError::Left { id, left }.into());
    }
    let turn = match app.conversations.send_while(&id, input, caller.scope, message.while_busy.into()).await {
        Ok(handle) => handle.turn().clone(),
        Err(SendError::SentBefore { turn }) => turn,
        Err(error) => return Err(error.into()),
    };
    Ok((StatusCode::ACCEPTED, Json(AcceptedMessage { turn })))
}

/// The longest `Idempotency-Key`, in bytes.
const MAX_KEY: usize = 255;

/// The `Idempotency-Key`, if there is one.
fn key(headers: &HeaderMap) -> Result<Option<String>, Rejection> {
    let mut given = headers.get_all("idempotency-key").iter();
    let Some(key) = given.next() else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) && given.next().is_none() => Ok(Some(key.to_owned())),
        _ => Err(Rejection::bad_request(format!("an `Idempotency-Key` has 1 to {MAX_KEY} visible ASCII characters"))),
    }
}

/// A text or parts. What only models and providers write is refused.
fn content(value: Value) -> Result<Content, Rejection> {
    let parts: Vec<Part> = match value {
        Value::String(text) => return Ok(text.into()),
        Value::Array(_) => serde_json::from_value(value)
            .map_err(|error| Rejection::bad_request(format!("`content` does not fit: {error}")))?,
        _ => return Err(Rejection::bad_request("`content` is a text or a list of parts")),
    };
    for part in &parts {
        let (data, url) = match part {
            Part::Text { .. } => continue,
            Part::Image(image) => (&image.data, &image.url),
            Part::File(file) => (&file.data, &file.url),
            _ => return Err(Rejection::bad_request("`content` takes parts of the types text, image and file")),
        };
        if data.is_some() == url.is_some() {
            return Err(Rejection::bad_request("an image or a file has `data` or `url`"));
        }
    }
    Ok(parts.into())
}

/// Cancels the turn under way
#[utoipa::path(post, path = "/v1/conversations/{id}/cancel", tag = "conversations", params(("id" = String, Path)),
    responses((status = 200, description = "the turn that is cancelled, if one was open", body = CancelledTurn), (status = "4XX", description = "nothing was cancelled: `unauthorized`, `forbidden`, `not_found`", body = ErrorBody)))]
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<ConversationId>,
) -> Result<Json<CancelledTurn>, Rejection> {
    let turn = match app.conversations.cancel(&id, caller.scope).await? {
        Cancelled::Local { turn } | Cancelled::Remote { turn } => Some(turn),
        Cancelled::NotRunning => None,
    };
    Ok(Json(CancelledTurn { turn }))
}
