//! The points at which a program can be a hook, a type each.

use std::borrow::Cow;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use turnbuckle::conversation::TurnReport;
use turnbuckle::hook::{
    AfterModel, AfterTool, BeforeAgent, BeforeAgentContext, BeforeTool, Hook, OnStop, OnStopContext,
};
use turnbuckle::limits::RemainingBudget;
use turnbuckle::message::{Part, Reply, ToolCall, Usage};
use turnbuckle::scope::PermissionMode;
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, ConversationId, Turn, TurnId};

use super::answer::{AgentAnswer, NoAnswer, ReplyAnswer, ResultAnswer, Said, StopAnswer, ToolAnswer, said};
use super::env::ProgramEnv;
use super::{CommandError, CommandLine, CommandPoint, process};

/// What runs, and where.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) name: String,
    pub(super) line: CommandLine,
    pub(super) cwd: PathBuf,
    pub(super) env: ProgramEnv,
}

/// What every program is told, and `more` that depends on the point.
#[derive(Serialize)]
struct Input<'a, M> {
    conversation: &'a str,
    turn: &'a str,
    cwd: Cow<'a, str>,
    hook_event_name: &'static str,
    agent: &'a str,
    permission_mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<RemainingBudget>,
    #[serde(flatten)]
    more: M,
}

/// Whose turn it is.
struct About<'a> {
    conversation: &'a ConversationId,
    turn: &'a TurnId,
    agent: &'a str,
    mode: PermissionMode,
    /// What is left to it, as long as it runs.
    budget: Option<RemainingBudget>,
}

impl<'a> From<&'a Turn> for About<'a> {
    fn from(turn: &'a Turn) -> Self {
        let (mode, budget) = (turn.permission_mode(), Some(turn.remaining_budget()));
        Self { conversation: turn.conversation(), turn: turn.id(), agent: turn.agent().name(), mode, budget }
    }
}

impl<'a> From<&'a TurnReport> for About<'a> {
    fn from(ended: &'a TurnReport) -> Self {
        let (mode, budget) = (ended.permission_mode, None);
        Self { conversation: &ended.conversation, turn: &ended.turn, agent: &ended.agent, mode, budget }
    }
}

impl Command {
    async fn ask<A: DeserializeOwned>(
        &self,
        on: CommandPoint,
        about: impl Into<About<'_>>,
        more: impl Serialize,
    ) -> Result<Said<A>, BoxError> {
        let about = about.into();
        let input = Input {
            conversation: about.conversation.as_str(),
            turn: about.turn.as_str(),
            cwd: self.cwd.to_string_lossy(),
            hook_event_name: on.event_name(),
            agent: about.agent,
            permission_mode: about.mode.name(),
            budget: about.budget,
            more,
        };
        let mut line = serde_json::to_vec(&input)?;
        line.push(b'\n');
        let ran = not_at_once(process::run(&self.line, &self.cwd, &self.env, &line)).await?;
        Ok(said(&ran, &self.line, on)?)
    }

    fn nonsense(&self, on: CommandPoint, why: impl Into<String>) -> BoxError {
        CommandError::Answer { command: self.line.to_string(), on, why: why.into() }.into()
    }
}

/// Is never over at its first poll. A short program may be, and then whether its start is told would be chance. To yield before the
/// start would cost more: the runtime would look at the turn once more while the program begins, and wake a thread for it.
async fn not_at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let (mut is_first, mut early) = (true, None);
    poll_fn(|cx| {
        if let Some(done) = early.take() {
            return Poll::Ready(done);
        }
        let polled = future.as_mut().poll(cx);
        match (std::mem::take(&mut is_first), polled) {
            (true, Poll::Ready(done)) => {
                early = Some(done);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            (_, polled) => polled,
        }
    })
    .await
}

pub(super) struct BeforeAgentCommand(pub(super) Command);

#[derive(Serialize)]
struct Prompted {
    prompt: String,
    /// Whether the message is for the turn that runs: what the program decides is about the message then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    steering: bool,
}

impl Hook for BeforeAgentCommand {
    fn name(&self) -> String {
        self.0.name.clone()
    }
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let on = CommandPoint::BeforeAgent;
        let asked = Prompted { prompt: turn.user_message().text(), steering: turn.is_steering() };
        let answer: AgentAnswer = match self.0.ask(on, &**turn, asked).await? {
            Said::Nothing => return Ok(BeforeAgent::Continue),
            Said::Block(reason) => return Ok(BeforeAgent::Halt(reason.into())),
            Said::Answer(answer) => answer,
        };
        if let Some(prompt) = answer.prompt {
            if prompt.trim().is_empty() {
                return Err(self.0.nonsense(on, "`prompt` is blank; exit 2 stops the message"));
            }
            turn.rewrite_input(prompt);
        }
        if let Some(context) = answer.context.filter(|context| !context.trim().is_empty()) {
            turn.inject(context);
        }
        Ok(BeforeAgent::Continue)
    }
}

#[derive(Serialize)]
struct Called<'a> {
    tool_name: &'a str,
    tool_input: &'a Value,
    tool_use_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_response: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
}

impl<'a> Called<'a> {
    fn of(call: &'a ToolCall) -> Self {
        let ToolCall { call, name, arguments } = call;
        Self { tool_name: name, tool_input: arguments, tool_use_id: call.as_str(), tool_response: None, ok: None }
    }
}

pub(super) struct BeforeToolCommand(pub(super) Command);

impl Hook for BeforeToolCommand {
    fn name(&self) -> String {
        self.0.name.clone()
    }
    async fn before_tool(&self, turn: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        let on = CommandPoint::BeforeTool;
        match self.0.ask::<ToolAnswer>(on, turn, Called::of(call)).await? {
            Said::Nothing => Ok(BeforeTool::Continue),
            Said::Block(reason) => Ok(BeforeTool::Deny(reason.into())),
            Said::Answer(answer) => answer.decide().map_err(|why| self.0.nonsense(on, why)),
        }
    }
}

pub(super) struct AfterToolCommand(pub(super) Command);

impl Hook for AfterToolCommand {
    fn name(&self) -> String {
        self.0.name.clone()
    }
    async fn after_tool(&self, turn: &Turn, call: &ToolCall, output: &Output) -> Result<AfterTool, BoxError> {
        let response = Some(output.content.text());
        let more = Called { tool_response: response, ok: Some(output.ok), ..Called::of(call) };
        let text = match self.0.ask::<ResultAnswer>(CommandPoint::AfterTool, turn, more).await? {
            Said::Nothing => return Ok(AfterTool::Continue),
            Said::Block(reason) => reason,
            Said::Answer(ResultAnswer { context }) => match context.filter(|context| !context.trim().is_empty()) {
                Some(context) => context,
                None => return Ok(AfterTool::Continue),
            },
        };
        // A part of its own, on a line of its own, under the hook's name: the model shall not take it for the result.
        let note = Part::text(format!("\n[{}] {text}", self.0.name));
        let mut beside = output.clone();
        beside.content = beside.content.followed_by(&[note]);
        Ok(AfterTool::Modify(beside))
    }
}

pub(super) struct AfterModelCommand(pub(super) Command);

#[derive(Serialize)]
struct Replied {
    message: String,
}

impl Hook for AfterModelCommand {
    fn name(&self) -> String {
        self.0.name.clone()
    }
    async fn after_model(&self, turn: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        let on = CommandPoint::AfterModel;
        match self.0.ask::<ReplyAnswer>(on, turn, Replied { message: reply.content.text() }).await? {
            Said::Nothing => Ok(AfterModel::Continue),
            Said::Block(reason) => Ok(AfterModel::Regenerate(reason.into())),
            Said::Answer(answer) => answer.decide(reply).map_err(|why| self.0.nonsense(on, why)),
        }
    }
}

pub(super) struct StopCommand(pub(super) Command);

#[derive(Serialize)]
struct Stopped<'a> {
    stop_active: bool,
    last_assistant_message: String,
    tools_used: Vec<&'a str>,
    touched: Vec<String>,
}

impl Hook for StopCommand {
    fn name(&self) -> String {
        self.0.name.clone()
    }
    async fn on_stop(&self, turn: &OnStopContext) -> Result<OnStop, BoxError> {
        let stopped = Stopped {
            stop_active: turn.stop_active(),
            last_assistant_message: turn.assistant_message().map(|reply| reply.content.text()).unwrap_or_default(),
            tools_used: turn.tool_trace().iter().map(|trace| &*trace.name).collect(),
            touched: turn.touched(),
        };
        Ok(match self.0.ask::<StopAnswer>(CommandPoint::Stop, &**turn, stopped).await? {
            Said::Nothing => OnStop::Accept,
            Said::Block(reason) => OnStop::Refuse(reason.into()),
            Said::Answer(answer) => answer.decide(),
        })
    }
}

pub(super) struct EndedCommand(pub(super) Command);

#[derive(Serialize)]
struct Over {
    outcome: String,
    usage: Usage,
}

impl Hook for EndedCommand {
    fn name(&self) -> String {
        self.0.name.clone()
    }
    async fn on_ended(&self, ended: &TurnReport) -> Result<(), BoxError> {
        let over = Over { outcome: ended.outcome.to_string(), usage: ended.usage };
        self.0.ask::<NoAnswer>(CommandPoint::Ended, ended, over).await.map(|_| ())
    }
}
