//! The turn on rig: an agent over a model in this process, with one tool.
#![expect(clippy::result_large_err, reason = "rig's error type is this large")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, stream};
use rig_agent::agent::MultiTurnStreamItem;
use rig_agent::completion::{CompletionRequest, CompletionResponse, Usage};
use rig_agent::tool::{Tool, ToolContext};
use rig_agent::{Agent, AgentBuilder};
use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
use rig_core::error::ProviderError;
use rig_core::message::{AssistantContent, Message, Origin, ToolCall, ToolFunction, ToolName, UserContent};
use rig_core::test_utils::{MockFrame, MockScript, MockStreamEvent};
use rig_core::wire::Mode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::BoxError;
use crate::model::ANSWER;

/// Model calls that a turn may make: it makes two.
const MAX_TURNS: usize = 4;

/// An agent that is used for every turn: each prompt is a conversation of its own.
pub fn agent() -> Agent {
    AgentBuilder::new(Model::new(MockScript::default(), Instant::default())).tool(Add).build()
}

/// One message to its answer, without streaming.
pub async fn turn(agent: &Agent, message: &str) -> Result<String, BoxError> {
    Ok(agent.prompt(message).max_turns(MAX_TURNS).await?.output())
}

/// The same as a stream that the caller reads to its end.
pub async fn streamed_turn(agent: &Agent, message: &str) -> Result<String, BoxError> {
    let mut items = agent.prompt(message).max_turns(MAX_TURNS).stream();
    let mut answer = Err("rig streamed no final response".into());
    while let Some(item) = items.next().await {
        match std::hint::black_box(item?) {
            MultiTurnStreamItem::FinalResponse(response) => answer = Ok(response.output()),
            _ => continue,
        }
    }
    answer
}

/// Answers at once: first a call of `add`, then, once there is a result, text.
#[derive(Clone, Default)]
struct Instant {
    calls: Arc<AtomicU64>,
}

impl Instant {
    /// The id and the arguments of a call, or nothing if there is a result.
    fn call(&self, request: &CompletionRequest) -> Option<(String, Value)> {
        let result = |content: &UserContent| matches!(content, UserContent::ToolResult(_));
        if matches!(request.chat_history.iter().last(), Some(Message::User { content }) if content.iter().any(result)) {
            return None;
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        Some((format!("call_{number}"), json!({ "a": 2, "b": 3 })))
    }

    fn whole(&self, request: &CompletionRequest) -> Result<CompletionResponse, ProviderError> {
        let content = match self.call(request) {
            None => AssistantContent::text(ANSWER),
            Some((id, arguments)) => {
                let name = ToolName::new("add").map_err(|error| ProviderError::Provider(error.to_string()))?;
                AssistantContent::ToolCall(ToolCall::from_wire(id, ToolFunction::new(name, arguments)))
            }
        };
        let origin = Origin::new("mock.script", "mock", "");
        Ok(CompletionResponse::new(vec![content], Usage::default(), origin, Value::Null))
    }

    fn events(&self, request: &CompletionRequest) -> [Result<MockFrame, ProviderError>; 2] {
        let event = match self.call(request) {
            None => MockStreamEvent::text(ANSWER),
            Some((id, arguments)) => MockStreamEvent::tool_call(id, "add", arguments),
        };
        [event, MockStreamEvent::final_response_with_default_usage()].map(|event| Ok(MockFrame::Event(event)))
    }
}

impl Transport<MockScript> for Instant {
    fn send(&self, request: CompletionRequest, exchange: Exchange) -> Opening<MockFrame> {
        match exchange.mode {
            Mode::Streaming => Opening::ready(Opened::new(stream::iter(self.events(&request)))),
            Mode::Unary => match self.whole(&request) {
                Ok(response) => {
                    Opening::ready(Opened::new(stream::iter([Ok(MockFrame::Response(Box::new(response)))])))
                }
                Err(error) => Opening::failed(error),
            },
        }
    }
}

#[derive(Deserialize)]
struct Numbers {
    a: i64,
    b: i64,
}

/// Adds `a` and `b`.
struct Add;

impl Tool for Add {
    const NAME: &'static str = "add";
    type Args = Numbers;
    type Output = String;
    type Error = Infallible;

    fn description(&self) -> String {
        "Adds two numbers.".to_owned()
    }
    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
            "required": ["a", "b"],
        })
    }
    async fn call(&self, _: &mut ToolContext, Numbers { a, b }: Numbers) -> Result<String, Infallible> {
        Ok((a + b).to_string())
    }
}
