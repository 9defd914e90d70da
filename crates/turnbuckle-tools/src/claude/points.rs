//! The events at the points of a turn: what handlers are told, and what their merged answer decides.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::conversation::TurnReport;
use turnbuckle::event::{Cause, EventKind, Outcome, Question};
use turnbuckle::feed::FeedItem;
use turnbuckle::hook::{
    AfterTool, BeforeAgent, BeforeAgentContext, BeforeCompaction, BeforeCompactionContext, BeforeModel,
    BeforeModelContext, BeforeTool, Hook, Lifecycle, LoggedContext, OnConversationContext, OnStop, OnStopContext,
    Point, Settings,
};
use turnbuckle::message::{Part, ToolCall};
use turnbuckle::store::SideStore;
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Turn};

use super::ClaudeHooks;
use super::answer::Permission;
use super::bridge::{self, NOT_ITS_SHAPE, Replaced};
use super::event::ClaudeEvent;
use super::fire::{Audience, Occasion};
use super::handler::Waiting;
use super::later::Traces;
use super::merge::Merged;
use super::notes::{Notes, last_batch};
use super::patched::files_of;
use super::text::reminder;
use crate::session_env;

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
        let any = |fits: fn(ClaudeEvent) -> bool| self.adapter.handlers.iter().any(|handler| fits(handler.event));
        let beside = any(|event| event == ClaudeEvent::PreToolUse);
        // And a batch has the arguments that its tools ran with.
        let batch = any(|event| event == ClaudeEvent::PostToolBatch);
        // The transcript is written where there is a turn, for handlers that run elsewhere: in sub-agents, and after turns.
        let in_sub_agent = any(|event| matches!(event, ClaudeEvent::SubagentStart | ClaudeEvent::SubagentStop));
        // A session begins before its conversation can be let go; what runs aside is told later.
        let aside = |waiting: Waiting| self.adapter.handlers.iter().any(|handler| handler.waiting == waiting);
        let more = [
            (beside || batch, Point::AfterTool),
            (in_sub_agent, Point::BeforeTool),
            (any(ClaudeEvent::is_outside_turns), Point::OnStop),
            // The next turn has the records of what ran outside of turns.
            (any(|event| event == ClaudeEvent::SessionStart || event.is_outside_turns()), Point::BeforeAgent),
            (aside(Waiting::Not) || aside(Waiting::NotButWakes), Point::BeforeAgent),
            (aside(Waiting::NotButWakes), Point::BeforeModel),
        ];
        let more = more.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, point)| point);
        let only: Vec<Point> = points.chain(more).collect();
        // The protocol stores what handlers add, and shows it in later turns as well.
        settings.durable = only.iter().any(|point| matches!(point, Point::BeforeAgent | Point::OnConversation));
        settings.only = Some(only.into_iter().collect());
        settings.logged = vec!["suspension".into()];
        settings
    }

    fn side_store(&self) -> Option<Arc<dyn SideStore>> {
        Some(Arc::new(Traces(self.adapter.transcripts.clone())))
    }

    async fn on_conversation(&self, context: &mut OnConversationContext) -> Result<(), BoxError> {
        // A sub-agent belongs to the conversation that called it.
        if context.parent_agent().is_some() {
            return Ok(());
        }
        let id = context.conversation().as_str();
        let (event, source) = match context.lifecycle() {
            Lifecycle::Started => (ClaudeEvent::SessionStart, "startup"),
            Lifecycle::Revived => (ClaudeEvent::SessionStart, "resume"),
            _ => (ClaudeEvent::SessionEnd, "other"),
        };
        let is_due = match event {
            ClaudeEvent::SessionStart => {
                self.adapter.begin_session(id, context.agent().name(), context.turn().as_str())
            }
            _ => {
                self.adapter.forget_session(id);
                true
            }
        };
        if !is_due {
            return Ok(());
        }
        let key = if event == ClaudeEvent::SessionStart { "source" } else { "reason" };
        let merged = {
            let occasion = |more| Occasion {
                event,
                conversation: id,
                turn_id: context.turn().as_str(),
                agent: context.agent().name(),
                is_sub_agent: false,
                audience: Audience::Conversation(context),
                subject: source,
                call: None,
                files: Vec::new(),
                more,
            };
            if event == ClaudeEvent::SessionEnd {
                session_env::forget(id);
                let fired = self.adapter.fire(occasion(json!({ key: source })));
                let limit = self.adapter.end_time();
                let fired = tokio::time::timeout(limit, fired).await;
                for failure in self.adapter.aside.let_go(id) {
                    self.adapter.tell(&occasion(json!({})), &failure);
                }
                return match fired {
                    Ok(fired) => fired.map(drop),
                    Err(_) => {
                        let what = format!("the SessionEnd handlers took longer than {limit:?}");
                        self.adapter.tell(&occasion(json!({})), &what);
                        Ok(())
                    }
                };
            }
            let more = json!({ key: source, "model": context.agent().model().name() });
            let merged = self.adapter.fire(occasion(more)).await?;
            if !merged.env.is_empty() && !session_env::set(id, merged.env.join("\n")) {
                self.adapter
                    .tell(&occasion(json!({})), "what handlers wrote to CLAUDE_ENV_FILE is too much, and not used");
            }
            merged
        };
        merged.context.iter().for_each(|text| context.inject(reminder(text)));
        Ok(())
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
        let aside = match turn.parent_agent() {
            Some(_) => Vec::new(),
            None => self.adapter.aside.take(turn.conversation().as_str()),
        };
        merged.context.iter().chain(&aside).for_each(|context| turn.inject(reminder(context)));
        Ok(BeforeAgent::Continue)
    }

    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        let notes = Notes::of(turn);
        let batch = last_batch(turn, &notes, &self.adapter.project);
        if let Some(batch) = batch.filter(|batch| notes.is_new_batch(&batch.last)) {
            let merged = {
                let more = json!({ "tool_calls": batch.calls });
                self.adapter.fire(Occasion::of(turn, ClaudeEvent::PostToolBatch, more)).await?
            };
            let blocked = merged.blocked();
            if let Some(reason) = merged.stop.or(blocked) {
                return Ok(BeforeModel::Halt(reason.into()));
            }
            notes.add_to_turn(merged.context);
        }
        if turn.parent_agent().is_none() {
            notes.add_to_turn(self.adapter.aside.take_waking(turn.conversation().as_str()));
        }
        // What stands at the tail is for one call alone, so it is put there again at each.
        notes.of_turn().iter().for_each(|note| turn.inject(reminder(note)));
        Ok(BeforeModel::Continue)
    }

    async fn before_tool(&self, turn: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        let (name, input) = bridge::outward(turn, call, &self.adapter.project);
        let more = json!({ "tool_name": name, "tool_input": input, "tool_use_id": call.call });
        let first = self.adapter.fire(self.of_call(turn, ClaudeEvent::PreToolUse, call, (&name, &input), more)).await?;
        let first = match Judged::of(first) {
            Ok(judged) => judged,
            Err(decision) => return Ok(decision),
        };
        if name == bridge::SUB_AGENT {
            // What runs inside the sub-agent is given the path of this conversation's transcript.
            self.adapter.write_transcript(&Occasion::of(turn, ClaudeEvent::PreToolUse, json!({}))).await;
        }
        let notes = Notes::of(turn);
        notes.add(&call.call, first.context);
        let input = first.input.map_or(input, Value::Object);
        let asks = matches!(first.permission, Some((Permission::Ask | Permission::Defer, _)));
        let is_gated = first.permission.is_none() && turn.agent().needs_approval(&call.name);
        let mut judged = Judged { input: None, context: Vec::new(), permission: first.permission };
        if asks || is_gated {
            let more = json!({ "tool_name": name, "tool_input": input });
            let event = ClaudeEvent::PermissionRequest;
            let second = self.adapter.fire(self.of_call(turn, event, call, (&name, &input), more)).await?;
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
        if self.adapter.handlers.iter().any(|handler| handler.event == ClaudeEvent::PostToolBatch) {
            Notes::of(turn).ran(&call.call, input.clone());
        }
        let mut more = json!({ "tool_name": name, "tool_input": input, "tool_use_id": call.call });
        let event = match output.ok {
            true => {
                more["tool_response"] = bridge::response(&name, &input, output);
                ClaudeEvent::PostToolUse
            }
            false => {
                more["error"] = json!(bridge::error_of(&name, output));
                ClaudeEvent::PostToolUseFailure
            }
        };
        let occasion = self.of_call(turn, event, call, (&name, &input), more);
        let merged = self.adapter.fire(occasion).await?;
        let mut changed = None;
        if let Some(given) = &merged.updated_output {
            match bridge::replaced_response(&name, &input, output, given) {
                Replaced::Text(text) => changed = Some(output.clone().with_content(text)),
                Replaced::Unchanged => {}
                Replaced::Misshapen => {
                    let occasion = self.of_call(turn, event, call, (&name, &input), json!({}));
                    self.adapter.tell(&occasion, NOT_ITS_SHAPE);
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
        if self.adapter.handlers.iter().any(|handler| handler.event.is_outside_turns()) {
            self.adapter.write_transcript(&occasion).await;
        }
        let merged = self.adapter.fire(occasion).await?;
        if let Some(reason) = merged.stop {
            return Ok(OnStop::Prevent(reason.into()));
        }
        let feedback: Vec<String> = merged.blocks.into_iter().chain(merged.context).collect();
        Ok(if feedback.is_empty() { OnStop::Accept } else { OnStop::Refuse(feedback.join("\n\n").into()) })
    }

    async fn before_compaction(&self, context: &mut BeforeCompactionContext) -> Result<BeforeCompaction, BoxError> {
        let conversation = context.conversation().as_str();
        let occasion = Occasion {
            event: ClaudeEvent::PreCompact,
            conversation,
            turn_id: context.turn().as_str(),
            agent: context.agent(),
            is_sub_agent: context.conversation().is_sub_agent(),
            audience: Audience::Agent(context.agent_definition()),
            subject: AUTO,
            call: None,
            files: Vec::new(),
            more: json!({ "trigger": AUTO, "custom_instructions": null }),
        };
        let merged = self.adapter.fire(occasion).await?;
        if let Some(reason) = merged.blocked() {
            return Ok(BeforeCompaction::Skip(reason.into()));
        }
        if self.adapter.handlers.iter().any(|handler| handler.event == ClaudeEvent::PostCompact) {
            let (adapter, agent) = (self.adapter.clone(), context.agent().clone());
            let (id, turn) = (context.conversation().clone(), context.turn().clone());
            context.when_summarised(async move |summary| {
                let occasion = Occasion {
                    event: ClaudeEvent::PostCompact,
                    conversation: id.as_str(),
                    turn_id: turn.as_str(),
                    agent: &agent,
                    is_sub_agent: id.is_sub_agent(),
                    audience: Audience::Nobody,
                    subject: AUTO,
                    call: None,
                    files: Vec::new(),
                    more: json!({ "trigger": AUTO, "compact_summary": summary }),
                };
                if let Err(error) = adapter.fire(occasion).await {
                    tracing::warn!(hook = %adapter.name, error = &*error as &dyn std::error::Error, "a PostCompact handler may not run");
                }
            });
        }
        Ok(BeforeCompaction::Continue)
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
            is_sub_agent: ended.conversation.is_sub_agent(),
            audience: Audience::Nobody,
            subject,
            call: None,
            files: Vec::new(),
            more,
        };
        self.adapter.fire(occasion).await.map(|_| ())
    }

    async fn on_logged(&self, context: &LoggedContext) -> Result<(), BoxError> {
        let event = context.event();
        let FeedItem::Log(logged) = &event.item else { return Ok(()) };
        let EventKind::Suspension { question, .. } = &logged.kind else { return Ok(()) };
        let (kind, message) = notification(question);
        let occasion = Occasion {
            event: ClaudeEvent::Notification,
            conversation: event.conversation.as_str(),
            turn_id: logged.turn.as_str(),
            agent: context.agent(),
            is_sub_agent: event.conversation.is_sub_agent(),
            audience: Audience::Nobody,
            subject: kind,
            call: None,
            files: Vec::new(),
            more: json!({ "notification_type": kind, "message": message }),
        };
        self.adapter.fire(occasion).await.map(|_| ())
    }
}

/// Summaries are made when they are due; nobody asks for one.
const AUTO: &str = "auto";

impl ClaudeHooks {
    fn of_call<'a>(
        &self,
        turn: &'a Turn,
        event: ClaudeEvent,
        call: &'a ToolCall,
        (name, input): (&'a str, &'a Value),
        more: Value,
    ) -> Occasion<'a> {
        let files = files_of(name, input, &self.adapter.project);
        Occasion { subject: name, call: Some((&call.call, input)), files, ..Occasion::of(turn, event, more) }
    }
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

/// What kind of notification a question is, and its words.
fn notification(question: &Question) -> (&'static str, String) {
    match question {
        Question::Approval { tool: Some(tool), arguments, .. } => {
            ("permission_prompt", format!("permission is needed to use {}", bridge::name_of(tool, arguments)))
        }
        Question::Approval { why, .. } => {
            ("permission_prompt", why.as_deref().unwrap_or("permission is needed to go on").to_owned())
        }
        Question::Elicitation { question, .. } => ("elicitation_dialog", question.to_string()),
        _ => ("agent_needs_input", "the agent waits for an answer".to_owned()),
    }
}
