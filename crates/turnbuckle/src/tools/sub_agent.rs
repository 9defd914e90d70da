//! A sub-agent: a tool with an agent inside. Its conversation is `PARENT/CALL`; scope, cancellation and budget are the
//! parent's.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::conversation::{Conversations, ResolveError, Runtime, TurnHandle, TurnReport, TurnStatus};
use crate::event::{EventKind, Outcome};
use crate::feed::{Delivery, Subscription};
use crate::id::ConversationId;
use crate::limits::UsedBudget;
use crate::message::{Text, ToolCall};
use crate::scope::Scope;
use crate::store::Answer;
use crate::tool::{Effect, Output, Spec, Tool};
use crate::turn::Turn;
use crate::{BoxError, BoxFuture};

/// Offers an agent to another as a tool.
#[derive(Debug)]
pub struct SubAgent {
    spec: Spec,
    agent: Agent,
}

impl SubAgent {
    /// `agent`, under its own name. `description` is what the parent's model is told it is for.
    pub fn new(agent: Agent, description: impl Into<Text>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": { "task": { "type": "string", "description": "What to do, with all it needs to know." } },
            "required": ["task"],
            "additionalProperties": false,
        });
        let agent = agent.as_sub_agent();
        // The call id is the key: called again, the tool finds its conversation and goes on.
        let mut spec = Spec::server(agent.name(), description, schema, Effect::Idempotent);
        spec.timeout = std::time::Duration::from_secs(30 * 60);
        spec.sub_agent = Some(agent.clone());
        Self { spec, agent }
    }

    async fn work(&self, turn: &Turn, call: &ToolCall) -> Result<Output, BoxError> {
        let runtime = turn.ctx.host.runtime().and_then(|runtime| runtime.downcast::<Runtime>().ok());
        let runtime: Arc<Runtime> = runtime.ok_or("the runtime was shut down")?;
        let conversations = runtime.sub_agent(&turn.ctx, self.agent.clone());
        let id = turn.conversation().child(&call.call);
        let task = call.arguments.get("task").and_then(Value::as_str).unwrap_or_default();
        let events = conversations.subscribe(&id, Delivery::Lossless, turn.scope().clone()).await?;
        let handle = match turn.answer() {
            Some(answer) if !was_passed_on(&conversations, &id, turn).await? => {
                pass_on(&conversations, &id, answer.clone(), &events, turn).await?
            }
            // Asked in this order, because a turn that is open may end at any moment.
            _ => match conversations.resume(&id, turn.scope().clone()).await? {
                Some(handle) => handle,
                None => match conversations.ended(&id, turn.scope().actor()).await? {
                    Some(report) => {
                        // It ended just before a crash, and what it used may not have been stored with this turn.
                        let used = UsedBudget { calls: 0, usage: report.usage, cost: report.cost };
                        turn.ctx.budget.sub_agent_used(&id, &used);
                        conversations.forget(&id);
                        return Ok(result(&report));
                    }
                    None => conversations.send(&id, task, turn.scope().clone()).await?,
                },
            },
        };
        match follow(turn, handle, events).await? {
            TurnStatus::Ended(report) => {
                conversations.forget(&id);
                Ok(result(&report))
            }
            TurnStatus::Waiting(mut pending) if !pending.is_empty() => {
                Ok(Output::wait(pending.swap_remove(0).question))
            }
            TurnStatus::Waiting(_) => Err("the sub-agent waits for nothing".into()),
        }
    }
}

/// Whether the sub-agent has this answer already: the process died after it was passed on. What the sub-agent asks by
/// now is another question, and the answer must not reach it.
async fn was_passed_on(conversations: &Conversations, id: &ConversationId, turn: &Turn) -> Result<bool, BoxError> {
    let given = turn.in_tool.as_ref().map_or(0, |tool| tool.answers);
    let log = conversations.log(id, turn.scope().clone()).await?;
    let settles = |kind: &EventKind| matches!(kind, EventKind::Resolution { evidence, .. } if !evidence.open);
    Ok(log.iter().filter(|event| settles(&event.kind)).count() >= given)
}

/// The answer to the parent's call is the answer to what the sub-agent asked first, in the name of those who gave it. Of
/// several approvals the last one carries the sub-agent's turn on.
async fn pass_on(
    conversations: &Conversations,
    id: &ConversationId,
    answer: Answer,
    events: &Subscription,
    turn: &Turn,
) -> Result<TurnHandle, BoxError> {
    let pending = events.snapshot.pending.first().ok_or("the sub-agent asks nothing any more")?;
    let answered_by = turn.in_tool.as_ref().map_or(&[][..], |tool| &tool.answered_by);
    let (last, before) = match answered_by.split_last() {
        Some((last, before)) => (Scope::of(last.clone()), before),
        // An answer that an older program stored does not say who gave it.
        None => (turn.scope().clone(), &[][..]),
    };
    for actor in before {
        let scope = Scope::of(actor.clone());
        match conversations.resolve(id, &pending.call, answer.clone(), None, scope).await {
            // It was passed on before a crash.
            Ok(_) | Err(ResolveError::Stale { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(conversations.resolve(id, &pending.call, answer, None, last).await?)
}

/// Waits for the sub-agent; what it does shows as progress of the parent's call.
async fn follow(turn: &Turn, handle: TurnHandle, mut events: Subscription) -> Result<TurnStatus, BoxError> {
    let mut status = std::pin::pin!(handle.wait());
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => turn.report_progress(serde_json::to_value(&event)?),
            status = &mut status => return Ok(status?),
        }
    }
}

fn result(report: &TurnReport) -> Output {
    match report.outcome {
        Outcome::Completed => Output::ok(report.text()),
        outcome => {
            let reason = report.reason.as_deref().unwrap_or("no reason given");
            Output::error(format!("[sub-agent {outcome}] {reason}"))
        }
    }
}

impl Tool for SubAgent {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(self.work(turn, call))
    }
}
