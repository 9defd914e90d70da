//! The trace of a turn.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use turnbuckle::event::EventKind;
use turnbuckle::feed::FeedEvent;
use turnbuckle::trace::trace_of_turn;
use turnbuckle::{ConversationId, TurnId};

use crate::caller::Caller;
use crate::extract::InPath;
use crate::rejection::Rejection;
use crate::server::App;
use crate::wire::{ErrorBody, ModelCallView, TurnTrace};

/// What happened in a turn
///
/// With `[store] audit`, also what models were sent.
#[utoipa::path(get, path = "/v1/conversations/{id}/turns/{turn}", tag = "conversations",
    params(("id" = String, Path), ("turn" = String, Path)),
    responses((status = 200, description = "the trace of the turn", body = TurnTrace), (status = "4XX", description = "nothing was read: `unauthorized`, `not_found`", body = ErrorBody)))]
pub(crate) async fn turn(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath((id, turn)): InPath<(ConversationId, TurnId)>,
) -> Result<Json<TurnTrace>, Rejection> {
    let (conversations, scope) = (&app.conversations, &caller.scope);
    let events = conversations.turn_log(&id, &turn, scope).await?;
    let Some(first) = events.first() else { return Err(Rejection::not_found()) };
    let ended = events.iter().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended.clone()),
        _ => None,
    });
    let cuts = conversations.cuts(&id, scope.clone()).await?;
    let records = conversations.records(&id, &turn, scope.clone()).await?;
    let audited = conversations.audited_turn(&id, &turn, scope).await?;
    let model_calls = audited.into_iter().map(|audited| ModelCallView {
        call: audited.call,
        request: audited.request,
        is_complete: audited.is_complete,
    });
    Ok(Json(TurnTrace {
        at: first.at,
        outcome: ended.as_ref().map(|ended| ended.outcome),
        ms: ended.as_ref().map(|ended| ended.ms),
        trace: trace_of_turn(&events, &cuts, &turn),
        hooks: records.into_iter().map(Into::into).collect(),
        model_calls: model_calls.collect(),
        events: events.into_iter().map(|event| FeedEvent::read_back(&id, event)).collect(),
        turn,
    }))
}
