//! The turn on swiftide: an agent over a model in this process, with one tool.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use swiftide_agents::Agent;
use swiftide_core::AgentContext;
use swiftide_core::chat_completion::errors::{LanguageModelError, ToolError};
use swiftide_core::chat_completion::{
    ChatCompletion, ChatCompletionRequest, ChatCompletionResponse, ChatMessage, Tool, ToolCall, ToolOutput, ToolSpec,
};

use crate::BoxError;
use crate::model::ANSWER;

/// Agents with an empty history, without a system prompt and without the default tool. An agent is a conversation, so each
/// turn has one of its own.
pub fn agents(model: &Instant, count: usize, streams: bool) -> Result<Vec<Agent>, BoxError> {
    let tool = Add::new()?;
    let agent = |_| {
        let mut builder = Agent::builder();
        builder.llm(model).without_default_stop_tool().tools([tool.clone().boxed()]);
        if streams {
            builder.on_stream(|_, response| {
                std::hint::black_box(response);
                Box::pin(async { Ok(()) })
            });
        }
        Ok(builder.build()?)
    };
    (0..count).map(agent).collect()
}

/// One message to its answer.
pub async fn turn(agent: &mut Agent, message: &'static str) -> Result<(), BoxError> {
    agent.query(message).await?;
    Ok(())
}

/// Whether the history is that of one turn: the message, the call, its result, and the answer.
pub async fn answered(agent: &Agent) -> Result<bool, BoxError> {
    let history = agent.history().await?;
    let answer = matches!(history.last(), Some(ChatMessage::Assistant(Some(text), _)) if text == ANSWER);
    Ok(answer && history.len() == 4)
}

/// Answers at once: first a call of `add`, then, once there is a result, text. A streamed reply is one piece, which is what the
/// trait does by itself.
#[derive(Clone, Default)]
pub struct Instant {
    calls: Arc<AtomicU64>,
}

#[async_trait]
impl ChatCompletion for Instant {
    async fn complete(
        &self,
        request: &ChatCompletionRequest<'_>,
    ) -> Result<ChatCompletionResponse, LanguageModelError> {
        if let Some(ChatMessage::ToolOutput(..)) = request.messages().last() {
            return Ok(ChatCompletionResponse { message: Some(ANSWER.to_owned()), ..Default::default() });
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = ToolCall::builder()
            .id(format!("call_{number}"))
            .name("add")
            .args(json!({ "a": 2, "b": 3 }).to_string())
            .build()
            .map_err(LanguageModelError::permanent)?;
        Ok(ChatCompletionResponse { tool_calls: Some(vec![call]), ..Default::default() })
    }
}

#[derive(Deserialize)]
struct Numbers {
    a: i64,
    b: i64,
}

/// Adds `a` and `b`.
#[derive(Clone)]
struct Add(ToolSpec);

impl Add {
    fn new() -> Result<Self, BoxError> {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
            "required": ["a", "b"],
            "additionalProperties": false,
        });
        let schema = schemars::Schema::try_from(schema)?;
        let mut spec = ToolSpec::builder();
        Ok(Self(spec.name("add").description("Adds two numbers.").parameters_schema(schema).build()?))
    }
}

#[async_trait]
impl Tool for Add {
    async fn invoke(&self, _: &dyn AgentContext, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let Numbers { a, b } =
            serde_json::from_str(call.args().unwrap_or_default()).map_err(ToolError::WrongArguments)?;
        Ok(ToolOutput::text((a + b).to_string()))
    }
    fn name(&self) -> Cow<'_, str> {
        "add".into()
    }
    fn tool_spec(&self) -> ToolSpec {
        self.0.clone()
    }
}
