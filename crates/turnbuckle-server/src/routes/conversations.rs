//! Conversations: made, listed, shown, named, deleted.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use turnbuckle::ConversationId;
use turnbuckle::feed::FeedEvent;

use crate::caller::Caller;
use crate::extract::{InPath, JsonBody, OptionalJsonBody, QueryOf};
use crate::rejection::Rejection;
use crate::server::App;
use crate::wire::{
    ConversationChange, ConversationList, ConversationView, CreatedConversation, DeletedConversation, ErrorBody,
    HistoryPage, LeftoverView, NewConversation,
};

/// How many conversations or events a page has if nothing else is said.
const PAGE: usize = 50;
/// How many it has at most.
const MAX_PAGE: usize = 500;

/// Makes a conversation
#[utoipa::path(post, path = "/v1/conversations", tag = "conversations", request_body = Option<NewConversation>,
    responses((status = 201, description = "the conversation is made", body = CreatedConversation), (status = "4XX", description = "none was made: `bad_request`, `unauthorized`, `forbidden`, `exists`, `too_large`", body = ErrorBody)))]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    OptionalJsonBody(new): OptionalJsonBody<NewConversation>,
) -> Result<(StatusCode, Json<CreatedConversation>), Rejection> {
    app.takes_work()?;
    let id = match new.id {
        Some(_) if !app.client_ids => return Err(Rejection::bad_request("this server makes all ids: leave `id` out")),
        Some(id) => Some(ConversationId::parse(&id).map_err(|error| Rejection::bad_request(error.to_string()))?),
        None => None,
    };
    let id = app.conversations.create(id, &caller.scope).await?;
    Ok((StatusCode::CREATED, Json(CreatedConversation { id })))
}

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageOf<T> {
    before: Option<T>,
    limit: Option<usize>,
}

impl<T> PageOf<T> {
    fn limit(&self) -> Result<usize, Rejection> {
        match self.limit.unwrap_or(PAGE) {
            limit @ 1..=MAX_PAGE => Ok(limit),
            _ => Err(Rejection::bad_request(format!("`limit` is 1 to {MAX_PAGE}"))),
        }
    }
}

/// The conversations that the caller may read, the newest first
#[utoipa::path(get, path = "/v1/conversations", tag = "conversations",
    params(("limit" = Option<usize>, Query), ("before" = Option<String>, Query, description = "an id: only older ones")),
    responses((status = 200, description = "a page of the list", body = ConversationList), (status = "4XX", description = "nothing was read: `bad_request`, `unauthorized`", body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(page): QueryOf<PageOf<String>>,
) -> Result<Json<ConversationList>, Rejection> {
    let limit = page.limit()?;
    let before = page.before.map(ConversationId::from);
    let listed = app.conversations.list_page(before.as_ref(), limit, &caller.scope).await?;
    let conversations = listed.items.into_iter().map(Into::into).collect();
    Ok(Json(ConversationList { conversations, more: listed.more }))
}

/// What a person sees of a conversation
///
/// `events` with `Last-Event-ID` set to its `cursor` goes on from here.
#[utoipa::path(get, path = "/v1/conversations/{id}", tag = "conversations", params(("id" = String, Path)),
    responses((status = 200, description = "the conversation as it is now", body = ConversationView), (status = "4XX", description = "nothing was read: `bad_request`, `unauthorized`, `not_found`", body = ErrorBody)))]
pub(crate) async fn view(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<ConversationId>,
) -> Result<Json<ConversationView>, Rejection> {
    app.conversations.begin_reading(&id, &caller.scope).await?;
    // From the hub, which knows every event behind the cursor that is told here.
    let (view, cursor) = app.hubs.current(&id).await?;
    Ok(Json(ConversationView::of(id, &view, cursor)))
}

/// A page of the log, oldest first
#[utoipa::path(get, path = "/v1/conversations/{id}/history", tag = "conversations",
    params(("id" = String, Path), ("limit" = Option<usize>, Query),
        ("before" = Option<u64>, Query, description = "a `seq`: only older events")),
    responses((status = 200, description = "a page of the log", body = HistoryPage), (status = "4XX", description = "nothing was read: `bad_request`, `unauthorized`, `not_found`", body = ErrorBody)))]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<ConversationId>,
    QueryOf(page): QueryOf<PageOf<u64>>,
) -> Result<Json<HistoryPage>, Rejection> {
    let limit = page.limit()?;
    let events = app.conversations.history(&id, page.before, limit, &caller.scope).await?;
    let messages = events.items.into_iter().map(|event| FeedEvent::read_back(&id, event)).collect();
    Ok(Json(HistoryPage { messages, more: events.more }))
}

/// Names a conversation
#[utoipa::path(patch, path = "/v1/conversations/{id}", tag = "conversations", params(("id" = String, Path)),
    request_body = ConversationChange,
    responses((status = 200, description = "the conversation has the new title", body = CreatedConversation), (status = "4XX", description = "nothing was changed: `bad_request`, `unauthorized`, `forbidden`, `not_found`, `too_large`", body = ErrorBody)))]
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<ConversationId>,
    JsonBody(change): JsonBody<ConversationChange>,
) -> Result<Json<CreatedConversation>, Rejection> {
    match app.conversations.set_title(&id, &change.title, &caller.scope).await? {
        true => Ok(Json(CreatedConversation { id })),
        false => Err(Rejection::bad_request("a title has at least one letter or digit")),
    }
}

/// Deletes a conversation and everything made from it
#[utoipa::path(delete, path = "/v1/conversations/{id}", tag = "conversations", params(("id" = String, Path)),
    responses((status = 200, description = "the conversation is deleted", body = DeletedConversation), (status = "4XX", description = "nothing was deleted: `unauthorized`, `forbidden`, `not_found`, `busy`, `held`", body = ErrorBody)))]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<ConversationId>,
) -> Result<Json<DeletedConversation>, Rejection> {
    let deleted = app.conversations.delete(&id, caller.scope).await?;
    let left = deleted.left.into_iter().map(|left| LeftoverView { what: left.what, why: left.why }).collect();
    Ok(Json(DeletedConversation { id: deleted.id, left }))
}
