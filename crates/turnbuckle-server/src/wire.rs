//! Every JSON shape that goes in or out. Nothing else is serialised to HTTP, and `openapi.json` is made of these.

mod answering;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnbuckle::audit::AuditedCall;
use turnbuckle::feed::{ConversationState, Cursor, FeedEvent};
use turnbuckle::hook::{Change, Decision, Edited, InjectionSpan, Point, Record};
use turnbuckle::scope::Author;
use turnbuckle::store::{ConversationStatus, ConversationSummary, StandingApproval};
use turnbuckle::{CallId, ConversationId, Outcome, Timestamp, TurnId};
use utoipa::ToSchema;

pub(crate) use self::answering::{CallAnswer, LinkAnswer, LinkUsed, LinkView, LiveQuestionChange, PendingView};
use crate::page::View;
use crate::waits::Waiting;

/// An error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorDetail,
}

/// What is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// For programs: `bad_request`, `unauthorized`, `forbidden`, `not_found`, `method_not_allowed`, `busy`, `stale`, `exists`,
    /// `changed`, `held`, `too_large`, `misdirected`, `rate_limited`, `internal` or `in_use`.
    pub(crate) code: String,
    /// For people.
    pub(crate) message: String,
}

/// A conversation to be made.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConversation {
    /// Its id, 1 to 64 of `A-Z a-z 0-9 _ -`. Without one the server makes one.
    pub(crate) id: Option<String>,
}

/// A conversation that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedConversation {
    #[schema(value_type = String)]
    pub(crate) id: ConversationId,
}

/// A page of the list, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConversationList {
    pub(crate) conversations: Vec<ListedConversation>,
    /// Whether there are older ones: ask again with `before` set to the last id.
    pub(crate) more: bool,
}

/// A conversation in the list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListedConversation {
    #[schema(value_type = String)]
    pub(crate) id: ConversationId,
    #[schema(value_type = Option<String>)]
    pub(crate) title: Option<Arc<str>>,
    /// `idle`, `running` or `waiting`.
    pub(crate) state: &'static str,
    /// Who owns it: `{"user":"ann"}`.
    #[schema(value_type = Object)]
    pub(crate) owner: Author,
    #[schema(value_type = String)]
    pub(crate) opened: Timestamp,
    /// When it was last written to.
    #[schema(value_type = String)]
    pub(crate) written: Timestamp,
    /// The number of its last event.
    pub(crate) seq: u64,
    /// Whether it is on hold and cannot be deleted.
    pub(crate) held: bool,
}

impl From<ConversationSummary> for ListedConversation {
    fn from(one: ConversationSummary) -> Self {
        let state = match one.status {
            ConversationStatus::Idle => "idle",
            ConversationStatus::Running => "running",
            ConversationStatus::Waiting { .. } => "waiting",
        };
        Self {
            id: one.id,
            title: one.title,
            state,
            owner: one.owner.author(),
            opened: one.opened,
            written: one.written,
            seq: one.seq,
            held: one.hold.is_some(),
        }
    }
}

/// What a person sees of a conversation. `events` goes on from `cursor`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConversationView {
    #[schema(value_type = String)]
    pub(crate) id: ConversationId,
    /// A stage of the turn that runs, `idle` or `waiting`.
    #[schema(value_type = String)]
    pub(crate) state: ConversationState,
    /// The newest part of the log, oldest first: events as in `events`.
    #[schema(value_type = Vec<Object>)]
    pub(crate) messages: Vec<FeedEvent>,
    /// What the model is saying and is not in the log yet.
    pub(crate) streaming: Option<StreamingView>,
    pub(crate) in_flight_tools: Vec<RunningToolView>,
    /// Calls that wait for an answer.
    pub(crate) pending: Vec<PendingView>,
    /// Hooks that run.
    pub(crate) hooks: Vec<RunningHookView>,
    /// Where `events` goes on: give it as `Last-Event-ID`.
    #[schema(value_type = String)]
    pub(crate) cursor: Cursor,
    /// Whether the log has older events than these.
    pub(crate) more: bool,
}

impl ConversationView {
    pub(crate) fn of(id: ConversationId, view: &View, cursor: Cursor) -> Self {
        let (view, asked) = (view.projection(), view.asked());
        let streaming = view.streaming.as_ref().map(|streaming| StreamingView {
            attempt: streaming.attempt,
            text: streaming.text.clone(),
            thinking: streaming.thinking.clone(),
        });
        let tools = view.in_flight_tools.values();
        let hooks = view.hooks.iter().map(|hook| RunningHookView {
            hook: hook.hook.clone(),
            point: hook.point,
            progress: hook.progress.clone(),
        });
        Self {
            state: view.state,
            messages: view.events.iter().map(|event| FeedEvent::read_back(&id, event.clone())).collect(),
            streaming,
            in_flight_tools: tools
                .map(|tool| RunningToolView { call: tool.call.clone(), progress: tool.progress.clone() })
                .collect(),
            pending: view
                .pending
                .values()
                .cloned()
                .map(PendingView::from)
                .chain(asked.iter().map(PendingView::of))
                .collect(),
            hooks: hooks.collect(),
            cursor,
            more: view.more,
            id,
        }
    }
}

/// An attempt under way.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StreamingView {
    pub(crate) attempt: u32,
    pub(crate) text: String,
    pub(crate) thinking: String,
}

/// A tool under way.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunningToolView {
    #[schema(value_type = String)]
    pub(crate) call: CallId,
    /// What it said last.
    #[schema(value_type = Option<Value>)]
    pub(crate) progress: Option<Arc<Value>>,
}

/// A hook under way.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunningHookView {
    #[schema(value_type = String)]
    pub(crate) hook: Arc<str>,
    #[schema(value_type = String)]
    pub(crate) point: Point,
    /// What it said last.
    #[schema(value_type = Option<String>)]
    pub(crate) progress: Option<Arc<str>>,
}

/// A call of any conversation that waits for the caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaitingCall {
    #[schema(value_type = String)]
    pub(crate) conversation: ConversationId,
    /// The name of the agent that asks.
    #[schema(value_type = String)]
    pub(crate) agent: Arc<str>,
    /// Who sent the message of the turn.
    #[schema(value_type = Object)]
    pub(crate) requester: Author,
    /// Since when it waits.
    #[schema(value_type = String)]
    pub(crate) asked: Timestamp,
    #[serde(flatten)]
    pub(crate) pending: PendingView,
}

impl From<Waiting> for WaitingCall {
    fn from(waiting: Waiting) -> Self {
        let pending = PendingView::of(&waiting);
        let Waiting { conversation, agent, requester, asked, .. } = waiting;
        Self { conversation, agent, requester, asked, pending }
    }
}

/// Everything that waits for the caller, the oldest question first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaitingCalls {
    pub(crate) pending: Vec<WaitingCall>,
}

/// A page of the log, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryPage {
    /// Events as in `events`.
    #[schema(value_type = Vec<Object>)]
    pub(crate) messages: Vec<FeedEvent>,
    /// Whether there are older ones: ask again with `before` set to the `seq` of the first.
    pub(crate) more: bool,
}

/// A message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMessage {
    /// A text, or parts: `{"type":"text","text"}`, `{"type":"image","media_type","data"|"url"}`,
    /// `{"type":"file","media_type","name"?,"data"|"url"}`.
    pub(crate) content: Value,
    /// A JSON schema that the answer must fit.
    pub(crate) schema: Option<Value>,
    #[serde(default)]
    pub(crate) while_busy: WhileBusyChoice,
    /// Carries an open turn on although its agent has changed since.
    #[serde(default)]
    pub(crate) accept_changes: bool,
}

/// What to do with a message while a turn runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhileBusyChoice {
    /// Refuse it: 409 `busy`.
    #[default]
    Reject,
    /// Take it up when the turn is over.
    Queue,
    /// Cancel the turn, then take it up.
    Interrupt,
    /// Give it to the model at its next call within the turn.
    Steer,
}

/// The turn that a message opens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcceptedMessage {
    #[schema(value_type = String)]
    pub(crate) turn: TurnId,
}

/// The turn of a call that was answered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnsweredCall {
    #[schema(value_type = String)]
    pub(crate) turn: TurnId,
    /// Why the turn is not carried on here, if it is not: the answer is recorded for its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<String>,
}

/// What became of a cancellation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelledTurn {
    /// The turn that ends; null if none was open.
    #[schema(value_type = Option<String>)]
    pub(crate) turn: Option<TurnId>,
}

/// What is changed about a conversation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConversationChange {
    /// Control characters become spaces, and 100 characters are kept.
    pub(crate) title: String,
}

/// A conversation that was deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedConversation {
    #[schema(value_type = String)]
    pub(crate) id: ConversationId,
    /// What may still have text of it. Deleting it again, and the server by itself, go on with that.
    pub(crate) left: Vec<LeftoverView>,
}

/// Something that may still have text of a deleted conversation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeftoverView {
    #[schema(value_type = String)]
    pub(crate) what: Arc<str>,
    #[schema(value_type = String)]
    pub(crate) why: Arc<str>,
}

/// The trace of a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnTrace {
    #[schema(value_type = String)]
    pub(crate) turn: TurnId,
    #[schema(value_type = String)]
    pub(crate) at: Timestamp,
    /// Null while the turn is open.
    #[schema(value_type = Option<String>)]
    pub(crate) outcome: Option<Outcome>,
    /// Milliseconds, once it is over.
    pub(crate) ms: Option<u64>,
    /// As `turnbuckle trace` prints it.
    pub(crate) trace: String,
    /// Its part of the log.
    #[schema(value_type = Vec<Object>)]
    pub(crate) events: Vec<FeedEvent>,
    /// What each hook did, in the order in which they finished.
    pub(crate) hooks: Vec<HookRecord>,
    /// What models were sent, if the store has an audit.
    pub(crate) model_calls: Vec<ModelCallView>,
}

/// What a hook did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HookRecord {
    #[schema(value_type = String)]
    pub(crate) point: Point,
    #[schema(value_type = String)]
    pub(crate) hook: Arc<str>,
    #[schema(value_type = String)]
    pub(crate) decision: Decision,
    pub(crate) ms: f64,
    #[schema(value_type = Option<String>)]
    pub(crate) call: Option<CallId>,
    pub(crate) tokens: u32,
    #[schema(value_type = Option<String>)]
    pub(crate) reason: Option<Arc<str>>,
    #[schema(value_type = Option<String>)]
    pub(crate) error: Option<Arc<str>>,
    #[schema(value_type = Option<String>)]
    pub(crate) outcome: Option<Arc<str>>,
    /// What it changed; null if nothing.
    pub(crate) change: Option<HookChange>,
}

/// What a hook changed: texts for people, cut after 4 KiB each, without what must not be stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HookChange {
    /// What it added to the context, or left for the next turn.
    pub(crate) injected: Vec<AddedText>,
    /// What it put in the place of something else.
    pub(crate) edit: Option<HookEdit>,
}

/// A text that a hook added.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AddedText {
    #[schema(value_type = String)]
    pub(crate) text: Arc<str>,
    /// How long it stays: `this_call`, `this_turn`, `durable` or `next_turn`.
    #[serde(rename = "for")]
    #[schema(value_type = String)]
    pub(crate) lasts: InjectionSpan,
    /// Whether there was no room for it.
    pub(crate) left_out: bool,
}

/// What a hook put in the place of something else.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HookEdit {
    /// `message`, `context`, `reply`, `arguments` (as JSON), `result` or `turn_result`.
    #[schema(value_type = String)]
    pub(crate) of: Edited,
    /// What is different, where the texts do not say it.
    #[schema(value_type = Option<String>)]
    pub(crate) what: Option<Arc<str>>,
    /// Null if nothing was there, or if it is not kept.
    #[schema(value_type = Option<String>)]
    pub(crate) before: Option<Arc<str>>,
    /// Null if it is not kept.
    #[schema(value_type = Option<String>)]
    pub(crate) after: Option<Arc<str>>,
    /// Whether a text is not kept.
    pub(crate) hidden: bool,
}

impl From<Change> for HookChange {
    fn from(change: Change) -> Self {
        let injected = change.injected.into_iter();
        let edit = change.edit.map(|edit| HookEdit {
            of: edit.of,
            what: edit.what,
            before: edit.before,
            after: edit.after,
            hidden: edit.hidden,
        });
        Self {
            injected: injected
                .map(|added| AddedText { text: added.text, lasts: added.lasts, left_out: added.left_out })
                .collect(),
            edit,
        }
    }
}

impl From<Record> for HookRecord {
    fn from(record: Record) -> Self {
        Self {
            point: record.point,
            hook: record.hook,
            decision: record.decision,
            ms: record.took.as_micros() as f64 / 1000.0,
            call: record.call,
            tokens: record.tokens,
            reason: record.reason,
            error: record.failure,
            outcome: record.outcome,
            change: record.change.map(|change| HookChange::from(*change)),
        }
    }
}

/// A request to a model, from the audit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelCallView {
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub(crate) call: AuditedCall,
    pub(crate) request: Value,
    /// Whether nothing of the request was removed from the audit meanwhile.
    pub(crate) is_complete: bool,
}

/// Standing approvals, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StandingApprovals {
    #[schema(value_type = Vec<Object>)]
    pub(crate) approvals: Vec<StandingApproval>,
}

/// A standing approval that was revoked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RevokedApproval {
    pub(crate) revoked: String,
}

/// Whether the server works.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`: what is not is an error.
    pub(crate) status: &'static str,
}
