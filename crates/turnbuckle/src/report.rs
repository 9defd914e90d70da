//! How a turn ended, for callers and hooks.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::event::{Cause, EndDetails, Event, EventKind, Outcome, TurnEnded, Warning};
use crate::feed::projection::Pending;
use crate::id::{ConversationId, TurnId};
use crate::message::{Reply, Text, Usage};
use crate::scope::{Actor, Author, PermissionMode};

/// A turn that is over, or, from [`Agent::run`](crate::Agent::run), one that waits for an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TurnReport {
    /// The conversation the turn belongs to.
    pub conversation: ConversationId,
    /// The turn's id.
    pub turn: TurnId,
    /// The agent's name.
    pub agent: Text,
    /// Who sent the message that opened the turn.
    pub actor: Actor,
    /// Whether a person was there to be asked.
    pub permission_mode: PermissionMode,
    /// How the turn came out.
    pub outcome: Outcome,
    /// Why it did not simply complete, for people.
    pub reason: Option<Text>,
    /// Why it did not simply complete, for programs.
    pub cause: Option<Cause>,
    /// Who ended it, if not the model.
    pub by: Option<Author>,
    /// The model's last reply, if the turn got that far.
    pub reply: Option<Arc<Reply>>,
    /// What an `after_agent` hook shows instead of the reply.
    pub result: Option<Arc<Value>>,
    /// What went wrong without ending the turn. Overruled stops are here, with their hook.
    pub warnings: Vec<Warning>,
    /// Attempts that reached a model.
    pub model_calls: u32,
    /// Tokens, over all attempts.
    pub usage: Usage,
    /// Dollars, over all attempts of models with a known price.
    pub cost: f64,
    /// Time the turn was at work, waiting left out.
    pub ms: u64,
    /// Calls that the turn waits for. Only in the report of [`Agent::run`](crate::Agent::run), whose conversation ends
    /// with it: nobody could answer them any more.
    pub pending: Vec<Pending>,
}

impl TurnReport {
    /// The report of a turn whose end is in the log. `reply` is the last one that the turn's model gave.
    pub(crate) fn new(of: ReportOf, ended: &TurnEnded, reply: Option<Arc<Reply>>) -> Self {
        let ReportOf { conversation, turn, agent, actor, permission_mode } = of;
        Self {
            conversation,
            turn,
            agent,
            actor,
            permission_mode,
            outcome: ended.outcome,
            reason: ended.reason().cloned(),
            cause: ended.cause().cloned(),
            by: ended.by().cloned(),
            reply,
            result: ended.result().cloned(),
            warnings: ended.warnings().to_vec(),
            model_calls: ended.model_calls,
            usage: ended.usage,
            cost: ended.cost,
            ms: ended.ms,
            pending: Vec::new(),
        }
    }

    /// What to show: the result a hook made, the object that was asked for, or the model's last reply. Empty if the turn
    /// did not complete.
    pub fn text(&self) -> String {
        if let (None, Some(object)) = (&self.result, self.object()) {
            return object.to_string();
        }
        match (&self.result, &self.reply) {
            (Some(result), _) => match &**result {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            },
            (None, Some(reply)) if self.outcome == Outcome::Completed => reply.content.text(),
            _ => String::new(),
        }
    }

    /// The object, when a schema was asked for and the turn completed.
    pub fn object(&self) -> Option<&Value> {
        let reply = self.reply.as_ref().filter(|_| self.is_completed())?;
        reply.object.as_deref()
    }

    /// The object that a schema asked for, or else the text as JSON, as a Rust value.
    ///
    /// ```
    /// # #[cfg(feature = "schemars")]
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use turnbuckle::{Agent, Conversations, OutputSchema, Scope, UserInput, models::Script};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Count { n: u32 }
    ///
    /// let agent = Agent::builder("counter", Script::says(["{\"n\": 3}"])).build()?;
    /// let input = UserInput::new("how many?").with_schema(OutputSchema::of::<Count>()?);
    /// let report = Conversations::in_memory(agent).run(input, Scope::local()).await?;
    /// assert_eq!(report.parse::<Count>()?.n, 3);
    /// # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
    /// ```
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.object() {
            Some(object) => T::deserialize(object),
            None => serde_json::from_str(&self.text()),
        }
    }

    /// Whether the turn completed.
    pub fn is_completed(&self) -> bool {
        self.outcome == Outcome::Completed
    }
}

impl TurnReport {
    /// The report of a turn that waits in a conversation that ends now.
    pub(crate) fn waiting(of: ReportOf, pending: Vec<Pending>) -> Self {
        let calls: Vec<&str> = pending.iter().map(|pending| pending.call.as_str()).collect();
        let reason = Some(format!("it waits for an answer to {}", calls.join(", ")).into());
        let ended = TurnEnded {
            outcome: Outcome::Cancelled,
            details: EndDetails { reason, ..EndDetails::default() }.boxed(),
            model_calls: 0,
            usage: Usage::default(),
            cost: 0.0,
            ms: 0,
            agent: None,
        };
        Self { pending, ..Self::new(of, &ended, None) }
    }
}

/// Which turn a report is about, and who was part of it.
pub(crate) struct ReportOf {
    pub(crate) conversation: ConversationId,
    pub(crate) turn: TurnId,
    pub(crate) agent: Text,
    pub(crate) actor: Actor,
    pub(crate) permission_mode: PermissionMode,
}

/// The last reply of the model in this turn, as the log has it.
pub(crate) fn last_reply(log: &[Arc<Event>], turn: &TurnId) -> Option<Arc<Reply>> {
    let of_turn = log.iter().rev().filter(|event| event.turn == *turn);
    let mut replies = of_turn.filter_map(|event| match &event.kind {
        EventKind::AssistantMessage { content, stop_reason, usage, extras, model, .. } => Some(Reply {
            content: content.clone(),
            stop_reason: *stop_reason,
            usage: *usage,
            object: extras.as_ref().and_then(|extras| extras.object.clone()),
            model: model.clone(),
            ..Reply::default()
        }),
        _ => None,
    });
    replies.next().map(Arc::new)
}

/// How far a turn has come when it stops moving.
#[derive(Clone, Debug)]
pub enum TurnStatus {
    /// It is over.
    Ended(Box<TurnReport>),
    /// It waits until someone answers these calls.
    Waiting(Vec<Pending>),
}
