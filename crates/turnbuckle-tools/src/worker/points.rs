//! A worker, or a service, at the points of a turn.
//!
//! Of several hooks of a worker at one point each is asked in turn. Edits add up, each hook sees what the one before made, and
//! the first decision that is more than an edit is the decision of the worker.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::conversation::TurnReport;
use turnbuckle::feed::FeedEvent;
use turnbuckle::hook::{
    AfterAgent, AfterAgentContext, AfterModel, AfterTool, AsyncTransformer, BackgroundContext, BeforeAgent,
    BeforeAgentContext, BeforeCompaction, BeforeCompactionContext, BeforeModel, BeforeModelContext, BeforeTool, Hook,
    LoggedContext, ModelNext, OnConversationContext, OnStop, OnStopContext, Point, Points, Settings, ToolNext,
};
use turnbuckle::message::{Content, Message, Reply, Text, ToolCall};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Turn};

use super::answer::{
    AgentAnswer, BackgroundAnswer, CompactionAnswer, InjectAnswer, ModelAnswer, NoAnswer, ReplyAnswer, ResultAnswer,
    SettledAnswer, StopAnswer, ToolAnswer, result,
};
use super::ask::Hooks;
use super::error::WorkerError;
use super::remote::Remote;
use super::stream::RemoteTransformer;
use super::wire::{CallView, OutputView, ToolParams};
use super::{wire, wraps};
use crate::command::with_text;

/// Implements all points of the protocol; its settings narrow it to those that the configuration names.
#[derive(Debug)]
pub(crate) struct WorkerPoints {
    pub(crate) name: Text,
    pub(crate) points: Points,
    pub(crate) remote: Remote,
}

fn contents<C: Into<Content>>(given: Vec<C>) -> impl Iterator<Item = Content> {
    given.into_iter().map(Into::into)
}

/// Where nobody watches.
fn untold(_: String) {}

impl WorkerPoints {
    pub(super) async fn hooks(&self, point: Point) -> Result<Hooks, BoxError> {
        self.remote.hooks(point).await.map_err(WorkerError::boxed)
    }

    fn tell<'a>(&'a self, turn: &'a Turn) -> impl Fn(String) + Send + 'a {
        |text| turn.hook_progress(&self.name, text)
    }

    /// Tells every hook at a point where there is nothing to decide.
    async fn observe(&self, point: Point, params: impl Fn() -> Value + Send) -> Result<(), BoxError> {
        let hooks = self.hooks(point).await?;
        for hook in hooks.iter(None) {
            let NoAnswer::Continue {} = hooks.ask(hook, params(), untold).await?;
        }
        Ok(())
    }
}

impl Hook for WorkerPoints {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.only = Some(self.points);
        settings
    }

    async fn on_conversation(&self, context: &mut OnConversationContext) -> Result<(), BoxError> {
        let hooks = self.hooks(Point::OnConversation).await?;
        let params = json!({
            "conversation": context.conversation().as_str(),
            "actor": context.scope().by(),
            "what": wire::lifecycle(context.lifecycle()),
        });
        for hook in hooks.iter(None) {
            let InjectAnswer::Continue { inject } = hooks.ask(hook, params.clone(), untold).await?;
            contents(inject).for_each(|content| context.inject(content));
        }
        Ok(())
    }

    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let hooks = self.hooks(Point::BeforeAgent).await?;
        let mut prompt = turn.user_message().clone();
        for hook in hooks.iter(None) {
            let params = json!({"turn": wire::turn(turn), "prompt": prompt});
            match hooks.ask(hook, params, self.tell(turn)).await? {
                AgentAnswer::Continue { inject, prompt: rewritten } => {
                    contents(inject).for_each(|content| turn.inject(content));
                    if let Some(rewritten) = rewritten {
                        prompt = rewritten.into();
                        turn.rewrite_input(prompt.clone());
                    }
                }
                AgentAnswer::Halt { reason } => return Ok(BeforeAgent::Halt(reason.into())),
                AgentAnswer::Erase { reason } => return Ok(BeforeAgent::Erase(reason.into())),
            }
        }
        Ok(BeforeAgent::Continue)
    }

    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        let hooks = self.hooks(Point::BeforeModel).await?;
        let mut request = turn.context().map(wire::request).unwrap_or_default();
        for hook in hooks.iter(None) {
            let params = json!({"turn": wire::turn(turn), "request": request});
            match hooks.ask(hook, params, self.tell(turn)).await? {
                ModelAnswer::Continue { inject, messages } => {
                    contents(inject).for_each(|content| turn.inject(content));
                    if let Some(messages) = messages {
                        let messages: Vec<Message> = messages.into_iter().map(Into::into).collect();
                        request["messages"] = wire::messages(&messages);
                        *turn.edit_context() = messages;
                    }
                }
                ModelAnswer::Halt { reason } => return Ok(BeforeModel::Halt(reason.into())),
            }
        }
        Ok(BeforeModel::Continue)
    }

    async fn wrap_model_call<'a>(
        &self,
        turn: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        wraps::model_call(self, turn, request, out, next).await
    }

    /// One for each stretch of text.
    fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>> {
        Some(Box::new(RemoteTransformer::new(self.remote.clone())))
    }

    async fn after_model(&self, turn: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        let hooks = self.hooks(Point::AfterModel).await?;
        let mut reply = reply.clone();
        let (mut is_modified, mut is_approved) = (false, false);
        for hook in hooks.iter(None) {
            let params = json!({"turn": wire::turn(turn), "reply": &*reply});
            match hooks.ask(hook, params, self.tell(turn)).await? {
                ReplyAnswer::Continue {} => {}
                ReplyAnswer::Approve {} => is_approved = true,
                ReplyAnswer::Modify { text } => (reply, is_modified) = (Arc::new(with_text(&reply, text)), true),
                ReplyAnswer::Ask { .. } if is_modified => {
                    return Err(hooks.nonsense(hook, "\"ask\" behind \"modify\" of another hook").into());
                }
                ReplyAnswer::Ask { reason } => return Ok(AfterModel::Ask(reason.into())),
                ReplyAnswer::Reject { reason } => return Ok(AfterModel::Reject(reason.into())),
                ReplyAnswer::Regenerate { reason } => return Ok(AfterModel::Regenerate(reason.into())),
            }
            if is_modified && is_approved {
                let why = "\"approve\" and \"modify\" by hooks of one worker; give one of them a worker of its own";
                return Err(hooks.nonsense(hook, why).into());
            }
        }
        Ok(match (is_modified, is_approved) {
            (true, _) => AfterModel::Modify(Box::new(Arc::unwrap_or_clone(reply))),
            (false, true) => AfterModel::Approve,
            (false, false) => AfterModel::Continue,
        })
    }

    async fn before_tool(&self, turn: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        let hooks = self.hooks(Point::BeforeTool).await?;
        let mut rewritten: Option<Value> = None;
        for hook in hooks.iter(Some(&call.name)) {
            let arguments = rewritten.as_ref().unwrap_or(&call.arguments);
            let call = CallView { id: call.call.as_str(), name: &call.name, arguments };
            let params = ToolParams { turn: wire::turn(turn), call, result: None };
            match hooks.ask(hook, params, self.tell(turn)).await? {
                ToolAnswer::Continue {} => {}
                ToolAnswer::Rewrite { arguments } => rewritten = Some(Value::Object(arguments)),
                ToolAnswer::Ask { .. } if rewritten.is_some() => {
                    let why = "\"ask\" behind \"rewrite\" of another hook; give one of them a worker of its own";
                    return Err(hooks.nonsense(hook, why).into());
                }
                ToolAnswer::Deny { reason } => return Ok(BeforeTool::Deny(reason.into())),
                ToolAnswer::Answer { ok, content } => return Ok(BeforeTool::Answer(result(ok, content))),
                ToolAnswer::Ask { reason } => return Ok(BeforeTool::Ask(reason.into())),
                ToolAnswer::Halt { reason } => return Ok(BeforeTool::Halt(reason.into())),
            }
        }
        Ok(rewritten.map_or(BeforeTool::Continue, BeforeTool::Rewrite))
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        wraps::tool_call(self, turn, call, next).await
    }

    async fn after_tool(&self, turn: &Turn, call: &ToolCall, output: &Output) -> Result<AfterTool, BoxError> {
        let hooks = self.hooks(Point::AfterTool).await?;
        let mut modified: Option<Output> = None;
        for hook in hooks.iter(Some(&call.name)) {
            let output = modified.as_ref().unwrap_or(output);
            let call = CallView { id: call.call.as_str(), name: &call.name, arguments: &call.arguments };
            let shown = OutputView { ok: output.ok, content: &output.content };
            let params = ToolParams { turn: wire::turn(turn), call, result: Some(shown) };
            match hooks.ask(hook, params, self.tell(turn)).await? {
                ResultAnswer::Continue {} => {}
                ResultAnswer::Modify { ok, content } => modified = Some(result(ok.unwrap_or(output.ok), content)),
                ResultAnswer::Halt { reason } => return Ok(AfterTool::Halt(reason.into())),
            }
        }
        Ok(modified.map_or(AfterTool::Continue, AfterTool::Modify))
    }

    async fn on_stop(&self, turn: &OnStopContext) -> Result<OnStop, BoxError> {
        let hooks = self.hooks(Point::OnStop).await?;
        let mut advice: Vec<String> = Vec::new();
        for hook in hooks.iter(None) {
            let reply = turn.assistant_message().map(|reply| &**reply);
            let params = json!({"turn": wire::turn(turn), "reply": reply, "tools": wire::trace(turn.tool_trace())});
            match hooks.ask(hook, params, self.tell(turn)).await? {
                StopAnswer::Accept {} => {}
                StopAnswer::Advise { reason } => advice.push(reason),
                StopAnswer::Refuse { reason } => return Ok(OnStop::Refuse(reason.into())),
                StopAnswer::Pause { reason } => return Ok(OnStop::Pause(reason.into())),
                StopAnswer::Prevent { reason } => return Ok(OnStop::Prevent(reason.into())),
            }
        }
        Ok(if advice.is_empty() { OnStop::Accept } else { OnStop::Advise(advice.join("\n").into()) })
    }

    async fn after_agent(&self, turn: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        let hooks = self.hooks(Point::AfterAgent).await?;
        let mut shown = turn.result().cloned();
        for hook in hooks.iter(None) {
            let reply = turn.assistant_message().map(|reply| &**reply);
            let params = json!({"turn": wire::turn(turn), "reply": reply, "result": shown});
            let (result, inject, decision) = match hooks.ask(hook, params, self.tell(turn)).await? {
                SettledAnswer::Continue { result, inject } => (result, inject, AfterAgent::Continue),
                SettledAnswer::Halt { result, inject } => (result, inject, AfterAgent::Halt),
            };
            contents(inject).for_each(|content| turn.inject_later(content));
            if let Some(result) = result {
                shown = Some(result.clone());
                turn.set_result(result);
            }
            if decision == AfterAgent::Halt {
                return Ok(decision);
            }
        }
        Ok(AfterAgent::Continue)
    }

    async fn background(&self, context: &BackgroundContext) -> Result<(), BoxError> {
        let hooks = self.hooks(Point::Background).await?;
        let params = json!({
            "conversation": context.conversation().as_str(), "turn": context.turn().as_str(), "agent": context.agent(),
            "actor": context.scope().by(), "outcome": context.outcome().to_string(),
            "messages": wire::messages(context.messages()), "reply": context.reply().map(|reply| &**reply),
        });
        for hook in hooks.iter(None) {
            let BackgroundAnswer::Continue { notes, suggest } = hooks.ask(hook, params.clone(), untold).await?;
            contents(notes).for_each(|note| context.leave_note(note));
            if let Some(text) = suggest {
                context.suggest(text);
            }
        }
        Ok(())
    }

    async fn before_compaction(&self, context: &mut BeforeCompactionContext) -> Result<BeforeCompaction, BoxError> {
        let hooks = self.hooks(Point::BeforeCompaction).await?;
        let params = json!({
            "conversation": context.conversation().as_str(), "turn": context.turn().as_str(), "agent": context.agent(),
            "actor": context.scope().by(), "turns": context.turns(), "transcript": context.transcript(),
        });
        for hook in hooks.iter(None) {
            match hooks.ask(hook, params.clone(), untold).await? {
                CompactionAnswer::Continue { keep } => keep.into_iter().for_each(|text| context.keep(text)),
                CompactionAnswer::Skip { reason } => return Ok(BeforeCompaction::Skip(reason.into())),
            }
        }
        Ok(BeforeCompaction::Continue)
    }

    async fn on_ended(&self, report: &TurnReport) -> Result<(), BoxError> {
        let params = || {
            json!({
                "conversation": report.conversation.as_str(), "turn": report.turn.as_str(), "agent": report.agent,
                "permission_mode": report.permission_mode.name(), "outcome": report.outcome.to_string(),
                "reason": report.reason, "model_calls": report.model_calls, "usage": report.usage, "ms": report.ms,
            })
        };
        self.observe(Point::OnEnded, params).await
    }

    async fn on_logged(&self, context: &LoggedContext) -> Result<(), BoxError> {
        let event = serde_json::to_value(context.event())?;
        let params = || {
            json!({
                "key": context.key(), "agent": context.agent(), "tries": context.tries(),
                "reminder": context.reminder(), "event": event,
            })
        };
        self.observe(Point::OnLogged, params).await
    }

    async fn on_event(&self, event: &FeedEvent) -> Result<(), BoxError> {
        let event = serde_json::to_value(event)?;
        self.observe(Point::OnEvent, || json!({"event": event})).await
    }
}
