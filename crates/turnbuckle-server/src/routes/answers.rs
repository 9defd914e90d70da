//! What waits for people: calls, and standing approvals.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use turnbuckle::message::Text;
use turnbuckle::store::Answer;
use turnbuckle::{CallId, ConversationId};
use wildmatch::WildMatch;

use crate::caller::Caller;
use crate::extract::{InPath, JsonBody, QueryOf};
use crate::live_questions;
use crate::rejection::Rejection;
use crate::server::App;
use crate::wire::{AnsweredCall, CallAnswer, ErrorBody, RevokedApproval, StandingApprovals, WaitingCalls};

/// Answers a call that waits
///
/// `approve` with `reason`, `arguments` and `digest`, or `answer`, or `error`. The first answer counts; a later one is 409 `stale`.
#[utoipa::path(post, path = "/v1/conversations/{id}/calls/{call}", tag = "answers",
    params(("id" = String, Path), ("call" = String, Path)), request_body = CallAnswer,
    responses((status = 200, description = "the answer is recorded", body = AnsweredCall), (status = "4XX", description = "the answer was not taken: `bad_request`, `unauthorized`, `forbidden`, `not_found`, `stale`, `changed`, `too_large`", body = ErrorBody)))]
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath((id, call)): InPath<(ConversationId, CallId)>,
    JsonBody(given): JsonBody<CallAnswer>,
) -> Result<Json<AnsweredCall>, Rejection> {
    app.takes_work()?;
    let (accept_changes, digest) = (given.accept_changes, given.digest.clone().map(Text::from));
    let answer = answer_of(given)?;
    if let Some(asked) = app.live_questions.find(&id, &call) {
        let turn = live_questions::answer(&app, &asked, answer, digest.as_deref(), &caller.scope).await?;
        return Ok(Json(AnsweredCall { turn, left: None }));
    }
    if accept_changes {
        app.conversations.accept_changes(&id, caller.scope.clone()).await?;
    }
    let handle = app.conversations.resolve(&id, &call, answer, digest, caller.scope).await?;
    let left = handle.left().map(ToString::to_string);
    Ok(Json(AnsweredCall { turn: handle.turn().clone(), left }))
}

/// One answer, and nothing beside it that would have no meaning.
pub(super) fn answer_of(given: CallAnswer) -> Result<Answer, Rejection> {
    let CallAnswer { approve, reason, arguments, digest, answer, error, .. } = given;
    match (approve, reason, arguments, answer, error) {
        (Some(true), None, None, None, None) => Ok(Answer::Approve),
        (Some(true), None, Some(arguments), None, None) => Ok(Answer::ApproveWith(Arc::new(arguments))),
        (Some(true), Some(_), ..) => Err(Rejection::bad_request("`reason` is for a denial")),
        (Some(false), reason, None, None, None) => Ok(Answer::Deny(reason.map(Into::into))),
        (None, None, None, Some(value), None) if digest.is_none() => Ok(Answer::Result(value)),
        (None, None, None, None, Some(text)) if digest.is_none() => Ok(Answer::Error(text.into())),
        _ => Err(Rejection::bad_request(
            "an answer is `approve` with `arguments`, `reason` and `digest` as needed, or `answer`, or `error`",
        )),
    }
}

/// Which calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingFilter {
    tool: Option<String>,
    agent: Option<String>,
    older: Option<String>,
}

/// Calls of all conversations that wait for the caller, the oldest question first
#[utoipa::path(get, path = "/v1/pending", tag = "answers",
    params(("tool" = Option<String>, Query, description = "the name of a tool, or a glob"), ("agent" = Option<String>, Query),
        ("older" = Option<String>, Query, description = "how long they wait at least: `1h`")),
    responses((status = 200, description = "the calls that wait", body = WaitingCalls), (status = "4XX", description = "nothing was read: `bad_request`, `unauthorized`", body = ErrorBody)))]
pub(crate) async fn pending(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(filter): QueryOf<PendingFilter>,
) -> Result<Json<WaitingCalls>, Rejection> {
    let older = match filter.older.as_deref().map(humantime::parse_duration) {
        None => Duration::ZERO,
        Some(Ok(older)) => older,
        Some(Err(_)) => {
            return Err(Rejection::bad_request("`older` is no time: write 30m, 1h or 7d".to_owned()));
        }
    };
    let tool = filter.tool.as_deref().map(WildMatch::new);
    let mut calls = app.waits_for(&caller.scope).await?;
    let now = app.clock.now();
    calls.retain(|call| {
        filter.agent.as_deref().is_none_or(|agent| agent == &*call.agent) && now.since(call.asked) >= older
    });
    let mut pending = Vec::new();
    for call in calls {
        let tool_of_question = call.live.as_ref().map(|live| &live.tool).or_else(|| call.pending.question.tool());
        let is_of_tool = match (&tool, tool_of_question) {
            (None, _) => true,
            (Some(names), Some(tool)) => names.matches(tool),
            // The question does not name the tool that asks it, and the log does.
            (Some(names), None) => {
                let asks = app.conversations.tool_of(&call.conversation, &call.pending.call).await?;
                asks.is_some_and(|tool| names.matches(&tool))
            }
        };
        if is_of_tool {
            pending.push(call.into());
        }
    }
    Ok(Json(WaitingCalls { pending }))
}

/// The standing approvals that the caller gave, or that calls for the caller use, the oldest first
#[utoipa::path(get, path = "/v1/approvals", tag = "answers",
    responses((status = 200, description = "the standing approvals", body = StandingApprovals), (status = "4XX", description = "nothing was read: `unauthorized`", body = ErrorBody)))]
pub(crate) async fn approvals(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<StandingApprovals>, Rejection> {
    Ok(Json(StandingApprovals { approvals: app.conversations.standing(&caller.scope).await? }))
}

/// Revokes a standing approval
#[utoipa::path(delete, path = "/v1/approvals/{id}", tag = "answers", params(("id" = String, Path)),
    responses((status = 200, description = "the approval is revoked", body = RevokedApproval), (status = "4XX", description = "nothing was revoked: `unauthorized`, `forbidden`, `not_found`", body = ErrorBody)))]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    InPath(id): InPath<String>,
) -> Result<Json<RevokedApproval>, Rejection> {
    match app.conversations.revoke_standing(&id, &caller.scope).await? {
        true => Ok(Json(RevokedApproval { revoked: id })),
        false => Err(Rejection::not_found()),
    }
}
