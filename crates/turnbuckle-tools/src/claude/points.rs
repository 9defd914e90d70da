//! The events at the points of a turn: what handlers are told, and what their merged answer decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use turnbuckle::conversation::TurnReport;
use turnbuckle::event::{Cause, Outcome};
use turnbuckle::hook::{
    AfterTool, BeforeAgent, BeforeAgentContext, BeforeTool, Hook, OnStop, OnStopContext, Point, Settings,
};
use turnbuckle::id::CallId;
use turnbuckle::message::{Part, ToolCall};
use turnbuckle::store::SideStore;
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Turn};

use super::ClaudeHooks;
use super::answer::Permission;
use super::bridge;
use super::event::ClaudeEvent;
use super::fire::Occasion;
use super::merge::Merged;
use super::text::reminder;

/// What `PreToolUse` handlers said for the model, until the call has its result. It is lost if the process ends meanwhile.
#[derive(Default)]
struct Notes(Mutex<HashMap<CallId, Vec<String>>>);

impl Notes {
    fn of(turn: &Turn) -> Arc<Self> {
        // Calls of one reply are decided at the same time.
        static MAKING: Mutex<()> = Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        turn.shared::<Self>().unwrap_or_else(|| {
            turn.share(Self::default());
            turn.shared::<Self>().unwrap_or_default()
        })
    }

    fn add(&self, call: &CallId, notes: Vec<String>) {
        if !notes.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(call.clone()).or_default().extend(notes);
        }
    }

    fn take(&self, call: &CallId) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(call).unwrap_or_default()
    }
}

impl Hook for ClaudeHooks {
    fn name(&self) -> String {
        self.adapter.name.to_string()
    }

    fn settings(&self) -> Settings {
        let longest = self.adapter.handlers.iter().map(|handler| handler.timeout).max().unwrap_or_default();
        let mut settings = Settings::default();
        // Handlers have times of their own. `PermissionRequest` may follow `PreToolUse` at one point.
        settings.timeout = Some(longest.saturating_mul(2).saturating_add(std::time::Duration::from_secs(30)));
        settings.repeats_refusals = true;
        let points = self.adapter.handlers.iter().map(|handler| handler.event.point());
        // What `PreToolUse` handlers say for the model stands beside the result.
        let beside = self.adapter.handlers.iter().any(|handler| handler.event == ClaudeEvent::PreToolUse);
        settings.only = Some(points.chain(beside.then_some(Point::AfterTool)).collect());
        settings
    }

    fn side_store(&self) -> Option<Arc<dyn SideStore>> {
        Some(Arc::new(self.adapter.transcripts.clone()))
    }

    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let merged = {
            let occasion = match turn.parent_agent() {
                Some(_) => Occasion {
                    subject: turn.agent().name(),
                    ..Occasion::of(turn, ClaudeEvent::SubagentStart, json!({}))
                },
                None => {
                    let more = json!({ "prompt": turn.user_message().text() });
                    Occasion::of(turn, ClaudeEvent::UserPromptSubmit, more)
                }
            };
            self.adapter.fire(occasion).await?
        };
        if let Some(reason) = merged.stop {
            return Ok(BeforeAgent::Halt(reason.into()));
        }
        if let Some(reason) = merged.blocked() {
            return Ok(BeforeAgent::Erase(reason.into()));
        }
        merged.context.iter().for_each(|context| turn.inject(reminder(context)));
        Ok(BeforeAgent::Continue)
    }

    async fn before_tool(&self, turn: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        let (name, input) = bridge::outward(turn, call, &self.adapter.project);
        let more = json!({ "tool_name": name, "tool_input": input, "tool_use_id": call.call });
        let first = self.adapter.fire(of_call(turn, ClaudeEvent::PreToolUse, call, &name, &input, more)).await?;
        let first = match Judged::of(first) {
            Ok(judged) => judged,
            Err(decision) => return Ok(decision),
        };
        let notes = Notes::of(turn);
        notes.add(&call.call, first.context);
        let input = first.input.map_or(input, Value::Object);
        let asks = matches!(first.permission, Some((Permission::Ask | Permission::Defer, _)));
        let is_gated = first.permission.is_none() && turn.agent().needs_approval(&call.name);
        let mut judged = Judged { input: None, context: Vec::new(), permission: first.permission };
        if asks || is_gated {
            let more = json!({ "tool_name": name, "tool_input": input });
            let event = ClaudeEvent::PermissionRequest;
            let second = self.adapter.fire(of_call(turn, event, call, &name, &input, more)).await?;
            let second = match Judged::of(second) {
                Ok(judged) => judged,
                Err(decision) => return Ok(decision),
            };
            judged.permission = second.permission.or(judged.permission);
            judged.input = second.input;
        }
        let input = judged.input.map_or(input, Value::Object);
        let (_, before) = bridge::outward(turn, call, &self.adapter.project);
        let rewritten = match input {
            Value::Object(fields) if Value::Object(fields.clone()) != before => {
                Some(bridge::inward(turn, call, fields, &self.adapter.project))
            }
            _ => None,
        };
        Ok(match (judged.permission, rewritten) {
            (Some((Permission::Allow, _)), rewritten) => BeforeTool::Approve(rewritten),
            (Some((_, reason)), Some(rewritten)) => BeforeTool::RewriteAndAsk(rewritten, reason.into()),
            (Some((_, reason)), None) => BeforeTool::Ask(reason.into()),
            (None, Some(rewritten)) => BeforeTool::Rewrite(rewritten),
            (None, None) => BeforeTool::Continue,
        })
    }

    async fn after_tool(&self, turn: &Turn, call: &ToolCall, output: &Output) -> Result<AfterTool, BoxError> {
        let (name, input) = bridge::outward(turn, call, &self.adapter.project);
        let mut more = json!({ "tool_name": name, "tool_input": input, "tool_use_id": call.call });
        let event = match output.ok {
            true => {
                more["tool_response"] = bridge::response(&name, &input, output);
                ClaudeEvent::PostToolUse
            }
            false => {
                more["error"] = json!(output.content.text());
                ClaudeEvent::PostToolUseFailure
            }
        };
        let occasion = of_call(turn, event, call, &name, &input, more);
        let merged = self.adapter.fire(occasion).await?;
        let mut changed = None;
        if let Some(given) = &merged.updated_output {
            match bridge::text_of_response(&name, given) {
                Some(text) => changed = Some(output.clone().with_content(text)),
                None => {
                    let occasion = of_call(turn, event, call, &name, &input, json!({}));
                    self.adapter.tell(
                        &occasion,
                        "`updatedToolOutput` does not have the shape of the tool's result, and is not used",
                    );
                }
            }
        }
        if let Some(reason) = merged.stop {
            return Ok(AfterTool::Halt(reason.into()));
        }
        let notes = Notes::of(turn).take(&call.call).into_iter().chain(merged.blocks).chain(merged.context);
        // Parts of their own, on lines of their own, under the hook's name: the model shall not take them for the result.
        let parts: Vec<Part> = notes.map(|note| Part::text(format!("\n[{}] {note}", self.adapter.name))).collect();
        if parts.is_empty() {
            return Ok(changed.map_or(AfterTool::Continue, AfterTool::Modify));
        }
        let output = changed.unwrap_or_else(|| output.clone());
        let content = output.content.followed_by(&parts);
        Ok(AfterTool::Modify(output.with_content(content)))
    }

    async fn on_stop(&self, turn: &OnStopContext) -> Result<OnStop, BoxError> {
        let event = if turn.parent_agent().is_some() { ClaudeEvent::SubagentStop } else { ClaudeEvent::Stop };
        let said = turn.assistant_message().map(|reply| reply.content.text()).unwrap_or_default();
        let more = json!({
            "stop_hook_active": turn.stop_active(), "last_assistant_message": said,
            "background_tasks": [], "session_crons": [],
        });
        let occasion = Occasion { subject: turn.agent().name(), ..Occasion::of(turn, event, more) };
        let merged = self.adapter.fire(occasion).await?;
        if let Some(reason) = merged.stop {
            return Ok(OnStop::Prevent(reason.into()));
        }
        let feedback: Vec<String> = merged.blocks.into_iter().chain(merged.context).collect();
        Ok(if feedback.is_empty() { OnStop::Accept } else { OnStop::Refuse(feedback.join("\n\n").into()) })
    }

    async fn on_ended(&self, ended: &TurnReport) -> Result<(), BoxError> {
        let (event, subject, more) = match (ended.outcome, &ended.cause) {
            (Outcome::Cancelled, _) => (ClaudeEvent::TurnInterrupted, "", json!({ "reason": ended.reason })),
            (Outcome::Failed, Some(Cause::Model { status, .. })) => {
                let error = error_kind(*status);
                let details = json!({
                    "error": error, "error_details": ended.reason, "last_assistant_message": ended.reason,
                });
                (ClaudeEvent::StopFailure, error, details)
            }
            _ => return Ok(()),
        };
        let occasion = Occasion {
            event,
            conversation: ended.conversation.as_str(),
            turn_id: ended.turn.as_str(),
            agent: &ended.agent,
            is_sub_agent: false,
            turn: None,
            subject,
            call: None,
            more,
        };
        self.adapter.fire(occasion).await.map(|_| ())
    }
}

fn of_call<'a>(
    turn: &'a Turn,
    event: ClaudeEvent,
    call: &'a ToolCall,
    name: &'a str,
    input: &'a Value,
    more: Value,
) -> Occasion<'a> {
    Occasion { subject: name, call: Some((&call.call, input)), ..Occasion::of(turn, event, more) }
}

/// What is left of a merged answer about a call when nothing forbids the call.
struct Judged {
    permission: Option<(Permission, String)>,
    input: Option<serde_json::Map<String, Value>>,
    context: Vec<String>,
}

impl Judged {
    /// The decision, if the call is not to run.
    fn of(merged: Merged) -> Result<Self, BeforeTool> {
        let denied = match &merged.permission {
            Some((Permission::Deny, reason)) => Some(reason.clone()),
            _ => None,
        };
        let reasons: Vec<String> = merged.blocked().into_iter().chain(denied).collect();
        if let Some(reason) = merged.stop {
            return Err(BeforeTool::Halt(reason.into()));
        }
        if !reasons.is_empty() {
            // A denied call has no result that the context could stand beside.
            let all: Vec<String> = reasons.into_iter().chain(merged.context).collect();
            return Err(BeforeTool::Deny(all.join("\n\n").into()));
        }
        let is_deferred = matches!(merged.permission, Some((Permission::Defer, _)));
        let input = merged.updated_input.filter(|_| !is_deferred);
        Ok(Self { permission: merged.permission, input, context: merged.context })
    }
}

fn error_kind(status: Option<u16>) -> &'static str {
    match status {
        Some(429) => "rate_limit",
        Some(503 | 529) => "overloaded",
        Some(401 | 403) => "authentication_failed",
        Some(402) => "billing_error",
        Some(404) => "model_not_found",
        Some(400..=499) => "invalid_request",
        Some(500..) => "server_error",
        _ => "unknown",
    }
}
