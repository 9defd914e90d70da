//! The turn as hooks and tools see it: one struct for both.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::context::TurnContext;
use super::state::OpenQuestion;
use crate::agent::Agent;
use crate::clock::Clock;
use crate::event::Approvals;
use crate::feed::{Level, LiveEvent};
use crate::id::{CallId, ConversationId, TurnId};
use crate::limits::RemainingBudget;
use crate::message::{Content, Injection, Reply, Text};
use crate::model::Request;
use crate::record::Record;
use crate::scope::{Actor, Author, PermissionMode, Scope};
use crate::store::Answer;

/// The turn, as hooks and tools see it. Cheap to clone.
#[derive(Clone)]
pub struct Turn {
    pub(crate) ctx: Arc<TurnContext>,
    /// As of now. A clone keeps what it saw.
    pub(crate) view: Arc<TurnView>,
    /// The call, inside a tool.
    pub(crate) in_tool: Option<Arc<InTool>>,
}

/// What changes as a turn goes on. Written by stages, read by hooks and tools.
#[derive(Clone)]
pub(crate) struct TurnView {
    pub(crate) user_message: Content,
    pub(crate) context: Option<Request>,
    pub(crate) injections: Vec<Injection>,
    pub(crate) assistant_message: Option<Arc<Reply>>,
    pub(crate) stop_active: bool,
    /// Whether `user_message` steers the turn and did not open it. Set by `steer`, for `before_agent` hooks.
    pub(crate) is_steering: bool,
}

/// What only a tool has.
pub(crate) struct InTool {
    pub(crate) call: CallId,
    pub(crate) approvals: Approvals,
    /// What was answered to a question of its own.
    pub(crate) answer: Option<OwnAnswer>,
}

/// The answer to a question that a tool asked.
pub(crate) struct OwnAnswer {
    pub(crate) answer: Answer,
    /// What was asked and how it was answered. `None` if an older program asked.
    pub(crate) asked: Option<Box<OpenQuestion>>,
    /// Who gave the answer, or the approvals, with their roles.
    pub(crate) by: Vec<Actor>,
    /// How many answers the call was given, this one included.
    pub(crate) count: usize,
}

impl Turn {
    pub(crate) fn new(ctx: Arc<TurnContext>, user_message: Content) -> Self {
        let (injections, assistant_message) = (Vec::new(), None);
        let (context, stop_active, is_steering) = (None, false, false);
        let view = TurnView { user_message, context, injections, assistant_message, stop_active, is_steering };
        Self { ctx, view: Arc::new(view), in_tool: None }
    }

    /// What is seen from now on.
    pub(crate) fn edit(&mut self) -> &mut TurnView {
        Arc::make_mut(&mut self.view)
    }

    /// The conversation's id.
    pub fn conversation(&self) -> &ConversationId {
        &self.ctx.conversation
    }

    /// The turn's id.
    pub fn id(&self) -> &TurnId {
        &self.ctx.id
    }

    /// Who acts, and the things that came with them.
    pub fn scope(&self) -> &Scope {
        &self.ctx.scope
    }

    /// The agent: its name, limits, tools and hooks as they were when the turn began.
    pub fn agent(&self) -> &Agent {
        &self.ctx.agent
    }

    /// The agent whose tool this agent is, if it is a sub-agent.
    pub fn parent_agent(&self) -> Option<&str> {
        self.ctx.parent.as_ref().map(|parent| parent.agent.name())
    }

    /// The message that opened the turn, as rewritten so far. At `before_agent`, the message that the hook is asked about: see
    /// [`is_steering`](Self::is_steering).
    pub fn user_message(&self) -> &Content {
        &self.view.user_message
    }

    /// Whether a `before_agent` hook is asked about a message that was sent while the turn runs, to be given to the model at its
    /// next call ([`WhileBusy::Steer`](crate::WhileBusy::Steer)). What such a hook decides is about this message and not about
    /// the turn.
    pub fn is_steering(&self) -> bool {
        self.view.is_steering
    }

    /// The context of the present model call, as assembled; none before the first.
    pub fn context(&self) -> Option<&Request> {
        self.view.context.as_ref()
    }

    /// What hooks added so far: of the turn, then of the present call.
    pub fn injections(&self) -> &[Injection] {
        &self.view.injections
    }

    /// The finished reply, from `after_model` on.
    pub fn assistant_message(&self) -> Option<&Arc<Reply>> {
        self.view.assistant_message.as_ref()
    }

    /// The call id, inside a tool.
    pub fn call(&self) -> Option<&CallId> {
        self.in_tool.as_ref().map(|tool| &tool.call)
    }

    /// Who approved the call, inside a tool. The tool itself runs with the requester's scope.
    pub fn approved_by(&self) -> Option<&Author> {
        self.in_tool.as_ref()?.approvals.last.as_ref()
    }

    /// Everyone who approved the call, inside a tool: several where several must.
    pub fn approvals(&self) -> &[Author] {
        self.in_tool.as_ref().map_or(&[], |tool| &tool.approvals.all)
    }

    /// What was answered, inside a tool that returned [`Output::wait`](crate::tool::Output::wait) before.
    pub fn answer(&self) -> Option<&Answer> {
        self.own_answer().map(|own| &own.answer)
    }

    pub(crate) fn own_answer(&self) -> Option<&OwnAnswer> {
        self.in_tool.as_ref()?.answer.as_ref()
    }

    /// What is left of the turn's budget.
    pub fn remaining_budget(&self) -> RemainingBudget {
        self.ctx.budget.remaining(&self.ctx.limits)
    }

    /// Files that tools touched in this turn, in order of name.
    pub fn touched(&self) -> Vec<String> {
        self.ctx.touched()
    }

    /// Says that a tool touched a file.
    pub fn touch(&self, path: impl Into<String>) {
        self.ctx.touch(path.into());
    }

    /// Whether a stop of this turn was refused: what the model says now, it says because of that.
    pub fn stop_active(&self) -> bool {
        self.view.stop_active
    }

    /// The one source of time: a wrap that waits sleeps by it.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.ctx.clock()
    }

    /// Cancelled when the turn is, and when it is over or waits for an answer: for what a hook or a tool started and left
    /// running. A turn that goes on has a new one.
    pub fn cancellation(&self) -> &CancellationToken {
        self.ctx.abort.token()
    }

    /// Tells viewers something a person should know, in the name of `hook`.
    pub fn notice(&self, level: Level, hook: &Text, text: impl Into<Text>) {
        self.ctx.publish(LiveEvent::Notice { level, text: text.into(), hook: Some(hook.clone()) });
    }

    /// Adds a record to those of the turn, for a hook that runs several programs at a point: one for each. What the hook changed
    /// is in the record of the hook itself.
    pub fn record(&self, record: Record) {
        let cut = |text: Option<Text>| text.map(Record::cut);
        let (failure, reason) = (cut(record.failure.clone()), cut(record.reason.clone()));
        self.ctx.record(Record { failure, reason, change: None, ..record });
    }

    /// Tells viewers what `hook` is doing at the moment: "asking the scanner…". At `on_stop` the context knows the hook's name
    /// itself.
    pub fn hook_progress(&self, hook: &Text, text: impl Into<Text>) {
        self.ctx.publish(LiveEvent::HookProgress { hook: hook.clone(), text: text.into() });
    }

    /// Whether a person is there to be asked.
    pub fn permission_mode(&self) -> PermissionMode {
        self.ctx.services.permission_mode
    }

    /// Tells viewers how far a tool is; a string is its status line. Outside a tool it does nothing.
    pub fn report_progress(&self, payload: impl Into<Value>) {
        if let Some(tool) = &self.in_tool {
            self.ctx.publish(LiveEvent::ToolProgress { call: tool.call.clone(), payload: Arc::new(payload.into()) });
        }
    }

    /// Puts something into the bag that hooks share within the turn; it is found again by its type.
    pub fn share<T: Send + Sync + 'static>(&self, thing: T) {
        self.ctx.share(TypeId::of::<T>(), Arc::new(thing));
    }

    /// The `T` in the bag.
    pub fn shared<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.ctx.shared(TypeId::of::<T>())?.downcast().ok()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("conversation", &self.ctx.conversation)
            .field("id", &self.ctx.id)
            .field("agent", &self.ctx.agent.name())
            .finish_non_exhaustive()
    }
}
