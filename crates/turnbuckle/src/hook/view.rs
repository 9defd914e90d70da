//! What a hook is handed at each point: the [`Turn`], and the edits that make sense there.
//!
//! Edits are recorded on the view and applied when the hook has returned well; a hook that fails or is cut off leaves
//! none. An edit that makes no sense at a point cannot be written there.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

use super::{AfterAgent, BeforeAgent, BeforeModel};
use crate::agent::Agent;
use crate::clock::Timestamp;
use crate::event::Outcome;
use crate::feed::{Level, LiveEvent};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::{Content, Message, Reply, Text};
use crate::scope::Scope;
use crate::store::{StoreError, plain_title};
use crate::turn::{Turn, TurnContext};
use crate::{BoxError, BoxFuture};

macro_rules! sees_turn {
    ($view:ident) => {
        impl Deref for $view {
            type Target = Turn;
            fn deref(&self) -> &Turn {
                &self.turn
            }
        }
    };
}

/// At `before_agent`: may inject behind the user's message, and rewrite it.
#[derive(Debug)]
pub struct BeforeAgentContext {
    pub(crate) turn: Turn,
    pub(crate) injected: Vec<Content>,
    pub(crate) rewritten: Option<Content>,
}
sees_turn!(BeforeAgentContext);

impl BeforeAgentContext {
    pub(crate) fn new(turn: Turn) -> Self {
        Self { turn, injected: Vec::new(), rewritten: None }
    }

    /// Adds content right behind the user's message, the same through all model calls of the turn.
    pub fn inject(&mut self, content: impl Into<Content>) {
        self.injected.push(content.into());
    }

    /// Replaces the user's message.
    pub fn rewrite_input(&mut self, content: impl Into<Content>) {
        self.rewritten = Some(content.into());
    }

    /// Go on with these edits: how a [`pre`](super::pre) closure ends.
    pub fn proceed(self) -> Result<(Self, BeforeAgent), BoxError> {
        Ok((self, BeforeAgent::Continue))
    }

    /// End the turn `halted`.
    pub fn halt(self, reason: impl Into<Text>) -> Result<(Self, BeforeAgent), BoxError> {
        Ok((self, BeforeAgent::Halt(reason.into())))
    }

    /// End the turn `halted` and do not keep the message.
    pub fn erase(self, reason: impl Into<Text>) -> Result<(Self, BeforeAgent), BoxError> {
        Ok((self, BeforeAgent::Erase(reason.into())))
    }
}

/// At `before_model`: may inject at the very tail of this call, and edit its context.
#[derive(Debug)]
pub struct BeforeModelContext {
    pub(crate) turn: Turn,
    pub(crate) injected: Vec<Content>,
    pub(crate) edited: Option<Vec<Message>>,
}
sees_turn!(BeforeModelContext);

impl BeforeModelContext {
    pub(crate) fn new(turn: Turn) -> Self {
        Self { turn, injected: Vec::new(), edited: None }
    }

    /// Adds content at the very tail, for this call only.
    pub fn inject(&mut self, content: impl Into<Content>) {
        self.injected.push(content.into());
    }

    /// The messages of this call, to change. The log stays as it is.
    pub fn edit_context(&mut self) -> &mut Vec<Message> {
        let turn = &self.turn;
        self.edited.get_or_insert_with(|| turn.context().map(|request| (*request.messages).clone()).unwrap_or_default())
    }

    /// Go on with these edits: how a [`pre`](super::pre)`(…).every_call()` closure ends.
    pub fn proceed(self) -> Result<(Self, BeforeModel), BoxError> {
        Ok((self, BeforeModel::Continue))
    }

    /// End the turn `halted`.
    pub fn halt(self, reason: impl Into<Text>) -> Result<(Self, BeforeModel), BoxError> {
        Ok((self, BeforeModel::Halt(reason.into())))
    }
}

/// At `after_agent`: may change the result shown, and leave content for the next turn.
#[derive(Debug)]
pub struct AfterAgentContext {
    pub(crate) turn: Turn,
    pub(crate) shown: Option<Arc<Value>>,
    pub(crate) result: Option<Value>,
    pub(crate) injected: Vec<Content>,
}
sees_turn!(AfterAgentContext);

impl AfterAgentContext {
    pub(crate) fn new(turn: Turn) -> Self {
        Self { turn, shown: None, result: None, injected: Vec::new() }
    }

    /// What an earlier hook of the chain made of the result.
    pub fn result(&self) -> Option<&Value> {
        self.shown.as_deref()
    }

    /// Shows this instead of the model's last words. The log keeps both.
    pub fn set_result(&mut self, result: impl Into<Value>) {
        self.result = Some(result.into());
    }

    /// Content that the next turn's model reads. Always durable.
    pub fn inject_later(&mut self, content: impl Into<Content>) {
        self.injected.push(content.into());
    }

    /// Go on with these edits: how a [`post`](super::post) closure ends.
    pub fn proceed(self) -> Result<(Self, AfterAgent), BoxError> {
        Ok((self, AfterAgent::Continue))
    }

    /// Keep these edits and skip the rest of the chain.
    pub fn halt(self) -> Result<(Self, AfterAgent), BoxError> {
        Ok((self, AfterAgent::Halt))
    }
}

/// At `on_stop`: a snapshot to judge, and a way to say what one is doing.
#[derive(Clone, Debug)]
pub struct OnStopContext {
    pub(crate) turn: Turn,
    pub(crate) hook: Text,
    pub(crate) trace: Arc<[ToolTrace]>,
}
sees_turn!(OnStopContext);

impl OnStopContext {
    /// The tools that ran in this turn, in call order. Those of steps that contexts do not show any more are here, too, with notes in
    /// the place of large results.
    pub fn tool_trace(&self) -> &[ToolTrace] {
        &self.trace
    }

    /// Tells viewers what the hook is doing: "running linter…".
    pub fn progress(&self, text: impl Into<Text>) {
        let live = LiveEvent::HookProgress { hook: self.hook.clone(), text: text.into() };
        self.turn.ctx.publish(live);
    }
}

/// One tool call of a turn, with what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolTrace {
    /// The call's id.
    pub call: CallId,
    /// The tool.
    pub name: Text,
    /// As the model gave them.
    pub arguments: Arc<Value>,
    /// Whether it worked.
    pub ok: bool,
    /// What the model read.
    pub content: Content,
}

/// What a background hook works on: the turn as it ended.
#[derive(Clone, Debug)]
pub struct BackgroundContext {
    pub(crate) conversation: ConversationId,
    pub(crate) turn: TurnId,
    pub(crate) agent: Text,
    pub(crate) scope: Scope,
    pub(crate) at: Timestamp,
    pub(crate) messages: Arc<Vec<Message>>,
    pub(crate) reply: Option<Arc<Reply>>,
    pub(crate) outcome: Outcome,
    pub(crate) notes: Arc<crate::turn::NoteBuffer>,
    pub(crate) ctx: Arc<TurnContext>,
}

impl BackgroundContext {
    /// Of which conversation.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }
    /// Of which turn: the key by which a repetition is told.
    pub fn turn(&self) -> &TurnId {
        &self.turn
    }
    /// The agent's name.
    pub fn agent(&self) -> &str {
        &self.agent
    }
    /// Who sent the message.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
    /// When the turn ended.
    pub fn at(&self) -> Timestamp {
        self.at
    }
    /// How it came out.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }
    /// The context as it would be sent next.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }
    /// The model's last words.
    pub fn reply(&self) -> Option<&Arc<Reply>> {
        self.reply.as_ref()
    }
    /// Leaves content that the next turn's model reads.
    pub fn leave_note(&self, content: impl Into<Content>) {
        self.notes.add(content.into());
    }
    /// What the conversation is called, if it has a title.
    pub async fn title(&self) -> Result<Option<Text>, StoreError> {
        self.ctx.store().title(&self.conversation).await
    }
    /// Gives the conversation a title, in the place of the one it had. Control characters and line ends become spaces, and 100
    /// characters are kept. A text without any letter is no title, and changes nothing.
    pub async fn set_title(&self, title: &str) -> Result<(), StoreError> {
        match plain_title(title) {
            Some(title) => self.ctx.store().set_title(&self.conversation, &title).await,
            None => Ok(()),
        }
    }
    /// Suggests a next prompt to the viewers.
    pub fn suggest(&self, text: impl Into<Text>) {
        self.notes.publish(&self.turn, LiveEvent::Suggestion { text: text.into() });
    }
}

/// What follows a summary: it is given the summary's text.
pub(crate) type WhenSummarised = Box<dyn FnOnce(Text) -> BoxFuture<'static, ()> + Send>;

/// At `before_compaction`: may name what must be kept word for word.
pub struct BeforeCompactionContext {
    pub(crate) conversation: ConversationId,
    pub(crate) turn: TurnId,
    pub(crate) agent: Agent,
    pub(crate) agent_name: Text,
    pub(crate) scope: Scope,
    pub(crate) transcript: Text,
    pub(crate) turns: u32,
    pub(crate) kept: Vec<Text>,
    pub(crate) then: Vec<WhenSummarised>,
}

impl fmt::Debug for BeforeCompactionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { conversation, turn, turns, .. } = self;
        f.debug_struct("BeforeCompactionContext")
            .field("conversation", conversation)
            .field("turn", turn)
            .field("turns", turns)
            .finish_non_exhaustive()
    }
}

impl BeforeCompactionContext {
    /// Which conversation.
    pub fn conversation(&self) -> &ConversationId {
        &self.conversation
    }
    /// The turn after which the summary became due.
    pub fn turn(&self) -> &TurnId {
        &self.turn
    }
    /// Whose conversation: the agent's name.
    pub fn agent(&self) -> &Text {
        &self.agent_name
    }
    /// The agent with its model and its hooks.
    pub fn agent_definition(&self) -> &Agent {
        &self.agent
    }
    /// Who sent the message of that turn.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }
    /// How many turns the summary adds to the one before it.
    pub fn turns(&self) -> u32 {
        self.turns
    }
    /// These turns, as text: what the model that makes the summary reads.
    pub fn transcript(&self) -> &Text {
        &self.transcript
    }
    /// Keeps this text word for word beside the summary, in all later versions. There is room for some hundred words; the
    /// oldest texts give way.
    pub fn keep(&mut self, text: impl Into<Text>) {
        self.kept.push(text.into());
    }
    /// Does this with the summary's text once it is stored: at most once, and not at all if no summary is made or the process ends
    /// first. The next piece of background work of the conversation waits for it.
    pub fn when_summarised<F>(&mut self, then: impl FnOnce(Text) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.then.push(Box::new(move |summary| Box::pin(then(summary))));
    }
}

/// What happened to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifecycle {
    /// Its first turn is about to begin.
    Started,
    /// It came back from the store.
    Revived,
    /// It was closed.
    Ended,
}

/// At `on_conversation`: may inject for the turn that follows.
#[derive(Debug)]
pub struct OnConversationContext {
    /// Of the turn that follows, or of the last one.
    pub(crate) ctx: Arc<TurnContext>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) injected: Vec<Content>,
}

impl OnConversationContext {
    /// Which conversation.
    pub fn conversation(&self) -> &ConversationId {
        &self.ctx.conversation
    }
    /// Who acts.
    pub fn scope(&self) -> &Scope {
        &self.ctx.scope
    }
    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.ctx.agent
    }
    /// The turn that follows; when the conversation ends, the last one.
    pub fn turn(&self) -> &TurnId {
        &self.ctx.id
    }
    /// The agent that called this one, in the conversation of a sub-agent.
    pub fn parent_agent(&self) -> Option<&str> {
        self.ctx.parent.as_ref().map(|parent| parent.agent.name())
    }
    /// Tells viewers something a person should know, in the name of `hook`.
    pub fn notice(&self, level: Level, hook: &Text, text: impl Into<Text>) {
        self.ctx.publish(LiveEvent::Notice { level, text: text.into(), hook: Some(hook.clone()) });
    }
    /// What happened.
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle
    }
    /// Adds content to the turn that follows.
    pub fn inject(&mut self, content: impl Into<Content>) {
        self.injected.push(content.into());
    }
}
