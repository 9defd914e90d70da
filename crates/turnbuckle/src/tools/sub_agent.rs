//! A sub-agent: a tool with an agent inside. Its conversation is `PARENT/CALL`; scope, cancel and budget are the parent's.

use serde_json::{Value, json};

use crate::BoxError;
use crate::BoxFuture;
use crate::agent::Agent;
use crate::conversation::{Conversations, TurnHandle, TurnReport, TurnStatus};
use crate::event::{EventKind, Outcome};
use crate::feed::{Delivery, Subscription};
use crate::message::{Text, ToolCall};
use crate::store::Answer;
use crate::tool::{Effect, Output, Spec, Tool};
use crate::turn::Turn;

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
        // The call id is the key: called again, it finds its conversation and goes on.
        let spec = Spec::server(agent.name(), description, schema, Effect::Idempotent);
        let spec = Spec { timeout: std::time::Duration::from_secs(30 * 60), ..spec };
        Self { spec, agent: agent.as_sub_agent() }
    }

    async fn work(&self, turn: &Turn, call: &ToolCall) -> Result<Output, BoxError> {
        let inside = Conversations::inside(&turn.ctx, self.agent.clone());
        let id = turn.conversation().child(&call.call);
        let task = call.arguments.get("task").and_then(Value::as_str).unwrap_or_default();
        let tail = inside.subscribe(&id, Delivery::Lossless, turn.scope().clone()).await?;
        let handle = match turn.answer() {
            Some(answer) if !was_passed_on(&inside, &id, turn).await? => {
                pass_on(&inside, &id, answer.clone(), &tail, turn).await?
            }
            // Asked in this order: what is under way may end at any moment.
            _ => match inside.resume(&id, turn.scope().clone()).await? {
                Some(handle) => handle,
                None => match inside.ended(&id).await? {
                    Some(ended) => {
                        inside.forget(&id);
                        return Ok(result(&ended));
                    }
                    None => inside.send(&id, task, turn.scope().clone()).await?,
                },
            },
        };
        match follow(turn, handle, tail).await? {
            TurnStatus::Ended(ended) => {
                inside.forget(&id);
                Ok(result(&ended))
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
async fn was_passed_on(inside: &Conversations, id: &crate::ConversationId, turn: &Turn) -> Result<bool, BoxError> {
    let given = turn.in_tool.as_ref().map_or(0, |tool| tool.answers);
    let log = inside.log(id, turn.scope().clone()).await?;
    Ok(log.iter().filter(|event| matches!(event.kind, EventKind::Resolution { .. })).count() >= given)
}

/// The answer to the parent's call is the answer to what the sub-agent asked first.
async fn pass_on(
    inside: &Conversations,
    id: &crate::ConversationId,
    answer: Answer,
    tail: &Subscription,
    turn: &Turn,
) -> Result<TurnHandle, BoxError> {
    let pending = tail.snapshot.pending.first().ok_or("the sub-agent asks nothing any more")?;
    Ok(inside.resolve(id, &pending.call, answer, None, turn.scope().clone()).await?)
}

/// Waits for the sub-agent; what it does shows as the parent's tool progress.
async fn follow(turn: &Turn, handle: TurnHandle, mut tail: Subscription) -> Result<TurnStatus, BoxError> {
    let mut rest = std::pin::pin!(handle.wait());
    loop {
        tokio::select! {
            biased;
            Some(told) = tail.next() => turn.report_progress(serde_json::to_value(&*told)?),
            rest = &mut rest => return Ok(rest?),
        }
    }
}

fn result(ended: &TurnReport) -> Output {
    match ended.outcome {
        Outcome::Completed => Output::ok(ended.text()),
        outcome => {
            let reason = ended.reason.as_deref().unwrap_or("no reason given");
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
    fn agent(&self) -> Option<&Agent> {
        Some(&self.agent)
    }
}
