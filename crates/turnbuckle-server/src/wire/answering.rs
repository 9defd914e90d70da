//! Calls that wait, and answers to them, by their callers or through links.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnbuckle::access::AnswerRule;
use turnbuckle::event::Question;
use turnbuckle::projection::Pending;
use turnbuckle::scope::Author;
use turnbuckle::{CallId, ConversationId, Timestamp, TurnId};
use utoipa::ToSchema;

use crate::waits::{Live, Waiting};

/// A call that waits: the question as its `suspension` event has it, with `kind` and `prompt`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PendingView {
    #[schema(value_type = String)]
    pub(crate) call: CallId,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub(crate) question: Question,
    #[schema(value_type = String)]
    pub(crate) expires: Timestamp,
    /// Who may answer, if there is a rule for it.
    #[schema(value_type = Option<Object>)]
    pub(crate) answer_by: Option<Arc<AnswerRule>>,
    /// Who approved so far, if several must.
    #[schema(value_type = Vec<Object>)]
    pub(crate) approvals: Vec<Author>,
    /// What it is about, if it is asked while a call runs: it is stored nowhere, and lapses with the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<LiveView>,
}

/// A question that is asked while a call runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LiveView {
    /// The call that runs.
    #[schema(value_type = String)]
    pub(crate) call: CallId,
    /// Its tool.
    #[schema(value_type = String)]
    pub(crate) tool: Arc<str>,
    /// Who asks, for people: `the MCP server time`.
    #[schema(value_type = String)]
    pub(crate) asker: Arc<str>,
}

impl From<Pending> for PendingView {
    fn from(pending: Pending) -> Self {
        let Pending { call, question, expires, rule, approvals } = pending;
        Self { call, question, expires, answer_by: rule, approvals, live: None }
    }
}

impl PendingView {
    /// A question, live or stored.
    pub(crate) fn of(waiting: &Waiting) -> Self {
        let live = waiting.live.clone().map(|Live { call, tool, asker }| LiveView { call, tool, asker });
        Self { live, ..waiting.pending.clone().into() }
    }
}

/// That a live question stands, or stands no longer: the payload of a `tool_progress` event of the call that runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LiveQuestionChange {
    /// The question, as it is in `pending`.
    Asked(PendingView),
    /// The `call` of a question that was answered, or whose call is over.
    Closed(CallId),
}

/// An answer to a call: `approve`, `answer` or `error`, one of them.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallAnswer {
    pub(crate) approve: Option<bool>,
    /// Why it is denied.
    pub(crate) reason: Option<String>,
    /// What it runs with, in the place of what was asked about.
    pub(crate) arguments: Option<Value>,
    /// The digest of what was shown: an answer about something else is stale.
    pub(crate) digest: Option<String>,
    /// The result: of a question, or of a tool that the client runs. `null` is one, too.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Value>)]
    pub(crate) answer: Option<Value>,
    /// Why there is no result.
    pub(crate) error: Option<String>,
    /// Carries the turn on although its agent has changed since it began.
    #[serde(default)]
    pub(crate) accept_changes: bool,
}

impl CallAnswer {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { approve, reason, arguments, digest, answer, error, accept_changes } = self;
        let texts = [reason, digest, error];
        approve.is_none()
            && arguments.is_none()
            && answer.is_none()
            && !accept_changes
            && texts.iter().all(|text| text.is_none())
    }
}

/// What a link answers a call with, or that it is not to be used any more: one of `approve`, `answer`, `error` and `revoke`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkAnswer {
    pub(crate) approve: Option<bool>,
    /// Why it is denied.
    pub(crate) reason: Option<String>,
    /// What it runs with, in the place of what was asked about.
    pub(crate) arguments: Option<Value>,
    /// The digest of what was shown. Left out, it is the one that the link was made for.
    pub(crate) digest: Option<String>,
    /// The result: of a question, or of a tool that the client runs. `null` is one, too.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Value>)]
    pub(crate) answer: Option<Value>,
    /// Why there is no result.
    pub(crate) error: Option<String>,
    /// The link is void from now on, and the call stays open.
    #[serde(default)]
    pub(crate) revoke: bool,
}

/// What a link would answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkView {
    #[schema(value_type = String)]
    pub(crate) conversation: ConversationId,
    /// In whose name it answers; null for nobody in particular, who can deny and do no more.
    #[schema(value_type = Option<String>)]
    pub(crate) user: Option<Arc<str>>,
    #[serde(flatten)]
    pub(crate) pending: PendingView,
}

/// What became of an answer through a link: the turn, or that the link was revoked.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct LinkUsed {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) turn: Option<TurnId>,
    /// Why the turn is not carried on here, if it is not: the answer is recorded for its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<String>,
    /// Whether the link was revoked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) revoked: bool,
}

/// A member that is there, whatever it is: `null` is an answer.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
