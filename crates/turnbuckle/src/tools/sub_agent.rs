//! A sub-agent: a tool with an agent inside. Its conversation is `PARENT/CALL`; scope, cancellation and budget are the
//! parent's.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::conversation::{Conversations, ResolveError, Runtime, TurnHandle, TurnReport, TurnStatus};
use crate::event::{Event, EventKind, Outcome, Question};
use crate::feed::projection::{Pending, Projection};
use crate::feed::{Delivery, Subscription};
use crate::id::{CallId, ConversationId};
use crate::limits::UsedBudget;
use crate::message::{Text, ToolCall};
use crate::scope::{Actor, Scope};
use crate::store::Answer;
use crate::tool::{Effect, Output, OwnQuestion, Retention, Spec, Tool};
use crate::turn::{OwnAnswer, Turn};
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
        // Its answer took many model calls, and calling it again starts anew.
        spec.retention = Retention::Keep;
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
        let log = match turn.own_answer() {
            Some(_) => conversations.log(&id, turn.scope().clone()).await?,
            None => Vec::new(),
        };
        let handle = match turn.own_answer() {
            Some(answer) if !was_passed_on(&log, answer) => {
                let asked = asked_by_sub_agent(&events.snapshot, &log, answer)?;
                pass_on(&conversations, &id, answer, asked, turn).await?
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
                let Pending { question, rule, .. } = pending.swap_remove(0);
                Ok(Output::wait_for(OwnQuestion { question, rule }))
            }
            TurnStatus::Waiting(_) => Err("the sub-agent waits for nothing".into()),
        }
    }
}

/// Whether the sub-agent has this answer already: the process died after it was passed on. What the sub-agent asks by
/// now is another question, and the answer must not reach it.
fn was_passed_on(log: &[Arc<Event>], answer: &OwnAnswer) -> bool {
    log.iter().filter(|event| event.kind.answers().is_some()).count() >= answer.count
}

/// The answer to the parent's call is the answer to what the sub-agent asked, in the name of those who gave it. Of several
/// approvals the last one carries the sub-agent's turn on.
async fn pass_on(
    conversations: &Conversations,
    id: &ConversationId,
    given: &OwnAnswer,
    pending: &Pending,
    turn: &Turn,
) -> Result<TurnHandle, BoxError> {
    let scope_of = |actor: &Actor| {
        let scope = Scope::of(actor.clone());
        match given.asked.as_ref().and_then(|asked| asked.via_of(&actor.author())) {
            Some(via) => scope.via(&**via),
            None => scope,
        }
    };
    let mut by: Vec<Scope> = given.by.iter().map(scope_of).collect();
    if by.is_empty() {
        // An answer that an older program stored does not say who gave it.
        by.push(turn.scope().clone());
    }
    let (mut answer, mut digest) = (given.answer.clone(), pending.question.digest().cloned());
    for scope in by.drain(..by.len() - 1) {
        match conversations.resolve(id, &pending.call, answer.clone(), digest.clone(), scope).await {
            // It was passed on before a crash.
            Ok(_) | Err(ResolveError::Stale { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if let Answer::ApproveWith(edited) = &answer {
            // The others approved what the first one made of it, so that is what the sub-agent must ask about now.
            let asked = conversations.snapshot(id, turn.scope().clone()).await?.pending;
            let asked = asked.get(&pending.call).map(|pending| pending.question.clone());
            match &asked {
                Some(question @ Question::Approval { arguments, .. }) if arguments == edited => {
                    digest = question.digest().cloned();
                }
                _ => return Err("the arguments that were approved are not those that would run".into()),
            }
            answer = Answer::Approve;
        }
    }
    let last = by.remove(0);
    Ok(conversations.resolve(id, &pending.call, answer, digest, last).await?)
}

/// What the sub-agent asks that was shown to those who answered.
fn asked_by_sub_agent<'a>(
    view: &'a Projection,
    log: &[Arc<Event>],
    given: &OwnAnswer,
) -> Result<&'a Pending, BoxError> {
    let pending = &view.pending;
    let is_shown = |call: &CallId, question: &Question| match &given.asked {
        Some(asked) => asked.shown() == question && pending.contains(call),
        None => pending.contains(call),
    };
    let call = log.iter().find_map(|event| match &event.kind {
        EventKind::Suspension { call, question, .. } if is_shown(call, question) => Some(call),
        _ => None,
    });
    let asked = call.and_then(|call| pending.get(call));
    asked.ok_or_else(|| "the sub-agent does not ask this any more".into())
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
        Outcome::Exhausted if report.result.is_some() => {
            let limit = report.reason.as_deref().unwrap_or("its budget");
            Output::ok(format!("{}\n[the sub-agent reached {limit}: this is what it had by then]", report.text()))
        }
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
