//! Interceptors of [AGENT-HOOKS 0.1](agent_hooks), a contract for hooks that other agent frameworks share.
//!
//! # What it does
//!
//! [`AgentHooks`] runs interceptors that were written for that contract at the points of a turn. A turn is one run of theirs: it
//! begins with `agent_startup`, its emissions are numbered, and it ends with `agent_shutdown`. What a verdict means here:
//!
//! | theirs | at | deny | transform |
//! |---|---|---|---|
//! | `agent_startup`, `input` | `before_agent` | the turn is halted | the message is rewritten |
//! | `pre_model_call` | `before_model` | the turn is halted | the messages of this call are others |
//! | `post_model_call`, `output` | `after_model`, and in increments at the stream | the reply is taken back and the turn ends | the reply is modified |
//! | `pre_tool_call` | `before_tool` | the call does not run; the model reads the reason | the arguments are rewritten |
//! | `post_tool_call` | `after_tool` | the model reads the reason in the place of the result | the result is modified |
//! | `agent_shutdown` | `on_ended` | nothing is left to stop | – |
//!
//! How several interceptors are composed, who approves what a liftable deny asks for, and what is recorded is decided by the
//! contract's own emitter, which you make. If the emitter cannot be made, or a transform gives something that cannot be used here,
//! the hook fails, and blocks.
//!
//! Nothing of a reply is told before its verdict. With [`Output::Buffered`] the whole reply is held back until then. With
//! [`Output::Incremental`] each chunk is told once the reply up to it was permitted; a transform is refused there, since what was
//! told cannot be changed. Thoughts of the model are not part of the contract, and pass.
//!
//! # Limits
//!
//! An approval resolver answers within the call: it cannot suspend the turn until a person decides. For that, use a hook that asks.

mod session;
mod stream;
mod wire;

use std::fmt;
use std::sync::Arc;

use ::agent_hooks::{InterceptionEmitter, InterceptionRecord};
use serde_json::Value;
use turnbuckle::conversation::TurnReport;
use turnbuckle::hook::{
    AfterModel, AfterTool, AsyncTransformer, BeforeAgent, BeforeAgentContext, BeforeModel, BeforeModelContext,
    BeforeTool, Hook, OnFailure, Release, Settings,
};
use turnbuckle::message::{Reply, Text, ToolCall};
use turnbuckle::tool::Output as ToolOutput;
use turnbuckle::{BoxError, Outcome, Turn};

use session::{Blocked, Run, Sessions};
use stream::Increments;

/// Makes the emitter of one turn, with its interceptors, its resolver and its configuration.
pub type MakeEmitter = dyn Fn() -> Result<InterceptionEmitter, BoxError> + Send + Sync;

/// How a reply is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// As a whole, once it was permitted.
    #[default]
    Buffered,
    /// Chunk by chunk, each once the reply up to it was permitted. The last chunk that came is always held back, until the next one
    /// or the end.
    Incremental,
}

/// Runs interceptors of AGENT-HOOKS 0.1 as one hook.
///
/// ```
/// use agent_hooks::ctk::async_trait;
/// use agent_hooks::{AgentContext, EnforcementMode, InterceptionEmitter, Interceptor, Verdict};
/// use turnbuckle::{Agent, models::Script};
/// use turnbuckle_hooks::AgentHooks;
///
/// struct NoShell;
/// #[async_trait]
/// impl Interceptor for NoShell {
///     async fn intercept(&self, context: &AgentContext) -> Verdict {
///         match context.get("tool_call").is_some_and(|call| call["name"] == "shell") {
///             true => Verdict::deny(Some("policy:no_shell".into()), None),
///             false => Verdict::allow(),
///         }
///     }
/// }
///
/// let hooks = AgentHooks::new("policy", || {
///     let mut emitter = InterceptionEmitter::new(EnforcementMode::Enforce, None);
///     emitter.register(Box::new(NoShell));
///     Ok(emitter)
/// });
/// let agent = Agent::builder("coder", Script::says(["Done."])).hook(hooks).build()?;
/// # Ok::<(), turnbuckle::BoxError>(())
/// ```
#[derive(Clone)]
pub struct AgentHooks {
    name: Text,
    output: Output,
    sessions: Arc<Sessions>,
}

impl AgentHooks {
    /// With one emitter for each turn, made when the turn begins.
    pub fn new(
        name: impl Into<Text>,
        make: impl Fn() -> Result<InterceptionEmitter, BoxError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), output: Output::default(), sessions: Arc::new(Sessions::new(Box::new(make), None)) }
    }

    /// Tells replies in this way.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Gives every record to `sink`, in order. The emitters themselves keep none. Call it before the hook is used.
    #[must_use]
    pub fn record_to(mut self, sink: impl Fn(&InterceptionRecord) + Send + Sync + 'static) -> Self {
        if let Some(sessions) = Arc::get_mut(&mut self.sessions) {
            sessions.record = Some(Box::new(sink));
        }
        self
    }

    fn run(&self, turn: &Turn) -> Result<Run, BoxError> {
        let tools = || turn.agent().tools().iter().map(|tool| tool.name.to_string()).collect();
        self.sessions.run(turn.conversation(), turn.id(), turn.agent().name(), tools)
    }
}

/// What the model reads of a deny.
fn reason(blocked: Blocked) -> Text {
    blocked.0.into()
}

impl Hook for AgentHooks {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.on_failure = Some(OnFailure::Block);
        if self.output == Output::Buffered {
            settings.release = Release::OnAccept;
        }
        settings
    }

    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let run = self.run(turn)?;
        let content = wire::content(turn.user_message());
        let given = content.clone();
        match run.emit(move |builder| builder.input(given, "user")).await {
            Err(blocked) => return Ok(BeforeAgent::Halt(reason(blocked))),
            Ok(context) => {
                let decided = &context["input"]["content"];
                if *decided != content {
                    turn.rewrite_input(wire::content_of(decided)?);
                }
            }
        }
        Ok(BeforeAgent::Continue)
    }

    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        let run = self.run(turn)?;
        let model = turn.agent().model().name().to_owned();
        let messages: Vec<Value> =
            turn.context().map(|request| request.messages.iter().map(wire::message).collect()).unwrap_or_default();
        let given = messages.clone();
        match run.emit(move |builder| builder.pre_model_call(&model, given)).await {
            Err(blocked) => return Ok(BeforeModel::Halt(reason(blocked))),
            Ok(context) => {
                let decided = context["messages"].as_array().ok_or("a transform left no list of messages")?;
                if *decided != messages {
                    *turn.edit_context() = decided.iter().map(wire::message_of).collect::<Result<_, _>>()?;
                }
            }
        }
        Ok(BeforeModel::Continue)
    }

    /// One for each stretch of text, if replies are told in increments.
    fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>> {
        (self.output == Output::Incremental).then(|| Box::new(Increments::new(self.sessions.clone())) as _)
    }

    async fn after_model(&self, turn: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        let run = self.run(turn)?;
        let model = turn.agent().model().name().to_owned();
        let mut decided = Reply::clone(reply);
        let mut is_modified = false;
        if let Some(denied) = run.take_denial().await {
            return Ok(AfterModel::Reject(reason(denied)));
        }
        // What was judged in increments, as a whole and with nothing besides, is not judged again.
        if !(decided.calls.is_empty() && run.has_judged(&decided.content.text()).await) {
            let response = wire::response(&decided);
            let given = response.clone();
            let build = move |builder: &mut ::agent_hooks::AgentContextBuilder| {
                let calls = given["tool_calls"].as_array().cloned().unwrap_or_default();
                let finish = given["finish_reason"].as_str().unwrap_or_default();
                builder.post_model_call(&model, given["content"].clone(), calls, finish)
            };
            match run.emit(build).await {
                Err(blocked) => return Ok(AfterModel::Reject(reason(blocked))),
                Ok(context) if context["response"] != response => {
                    (decided, is_modified) = (wire::with_response(&decided, &context["response"])?, true);
                }
                Ok(_) => {}
            }
        }
        if decided.calls.is_empty() {
            let content = Value::String(decided.content.text());
            let given = content.clone();
            match run.emit(move |builder| builder.output(given)).await {
                Err(blocked) => return Ok(AfterModel::Reject(reason(blocked))),
                Ok(context) if context["output"]["content"] != content => {
                    let text = context["output"]["content"].as_str().ok_or("a transform left no text to say")?;
                    (decided, is_modified) = (wire::with_text(&decided, text), true);
                }
                Ok(_) => {}
            }
        }
        if is_modified && self.output == Output::Incremental {
            return Err("a transform of a reply that was told in increments; use the buffered output for it".into());
        }
        Ok(if is_modified { AfterModel::Modify(Box::new(decided)) } else { AfterModel::Continue })
    }

    async fn before_tool(&self, turn: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        let run = self.run(turn)?;
        let (id, name, given) = (call.call.to_string(), call.name.to_string(), (*call.arguments).clone());
        match run.emit(move |builder| builder.pre_tool_call(&id, &name, given)).await {
            Err(blocked) => Ok(BeforeTool::Deny(reason(blocked))),
            Ok(mut context) => {
                let decided = context["tool_call"]["args"].take();
                Ok(if decided == *call.arguments { BeforeTool::Continue } else { BeforeTool::Rewrite(decided) })
            }
        }
    }

    async fn after_tool(&self, turn: &Turn, call: &ToolCall, output: &ToolOutput) -> Result<AfterTool, BoxError> {
        let run = self.run(turn)?;
        let (id, name, arguments) = (call.call.to_string(), call.name.to_string(), (*call.arguments).clone());
        let value = wire::result(output);
        let (given, is_error) = (value.clone(), !output.ok);
        match run.emit(move |builder| builder.post_tool_call(&id, &name, arguments, given, is_error)).await {
            Err(blocked) => Ok(AfterTool::Modify(ToolOutput::error(reason(blocked).to_string()))),
            Ok(context) => {
                let decided = &context["tool_result"]["value"];
                Ok(if *decided == value { AfterTool::Continue } else { wire::modified(output, decided)? })
            }
        }
    }

    async fn on_ended(&self, report: &TurnReport) -> Result<(), BoxError> {
        if let Some(run) = self.sessions.end(&report.conversation, &report.turn) {
            run.shut_down(if report.outcome == Outcome::Completed { "completed" } else { "error" }).await;
        }
        Ok(())
    }
}

impl fmt::Debug for AgentHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHooks").field("name", &self.name).field("output", &self.output).finish_non_exhaustive()
    }
}
