//! The stream that keeps a page in step.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use turnbuckle::ConversationId;

use crate::events::{Watching, open, place};
use crate::page_caller::{PageCaller, PagePath, PageQuery};
use crate::server::App;

/// Where the page stands that was rendered.
#[derive(Debug, Deserialize)]
pub(super) struct After {
    #[serde(default)]
    after: String,
}

/// What changes on the page of a conversation, as HTML.
pub(super) async fn events(
    State(app): State<Arc<App>>,
    who: PageCaller,
    PagePath(id): PagePath<ConversationId>,
    PageQuery(query): PageQuery<After>,
    headers: HeaderMap,
) -> Response {
    let opened = async {
        app.conversations.begin_reading(&id, &who.caller.scope).await?;
        let rights = who.rights(&app, &id).await?;
        let last = headers.get("last-event-id").map(|value| value.as_bytes()).filter(|value| !value.is_empty());
        // A browser that comes back says what it has seen; before that, the page itself does.
        let last = place(last.unwrap_or(query.after.as_bytes()));
        open(app.clone(), who.caller.clone(), Watching::Page { rights, session: who.session }, &id, last).await
    };
    who.answer(opened.await)
}
