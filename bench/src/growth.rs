//! Turns of a given size, to see how work grows with it: calls in a reply, bytes of a text, hooks, viewers, events before it.
//!
//! Each scenario is one turn. `bench/instructions` counts it at N, 2 N and 4 N: work that grows with the size has twice the
//! increment in the second step, work with the square of it four times.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::message::StopReason;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, BoxFuture, Message, Reply, ToolCall};

use crate::BoxError;
use crate::agents::{calculator, speaker};
use crate::batch::{Batch, Source, Viewers};
use crate::chunks::CHUNK;
use crate::hooks::interested;
use crate::long::Template;
use crate::model::{ANSWER, Instant};
use crate::tool::Add;

/// Long enough that the turns of a thousand events fill the window, so that more events do not change what a model is sent.
const LOGGED_MESSAGE: usize = 2_400;
const KILOBYTE: usize = 1_000;

/// One conversation that is ready for the turn `name` of this size. A size is a number of calls, kilobytes, hooks, viewers or
/// events.
pub async fn prepare(name: &str, size: usize) -> Result<Batch, BoxError> {
    let one = Viewers::Lossy(1);
    let model = Instant::default();
    let (agent, viewers) = match name {
        // One write tells more events than a lossy viewer may be behind.
        "calls" => (Agent::builder("caller", Calls(size)).tool(Add::default()).build()?, Viewers::Lossless(1)),
        "reply" => (speaker(size * KILOBYTE / CHUNK, 0)?, one),
        "redacted" => (speaker(size * KILOBYTE / CHUNK, 1)?, one),
        "hooks" => (calculator(&model, interested(size))?, one),
        "viewers" => (calculator(&model, Vec::new())?, Viewers::Lossy(size)),
        "message" => return message(size * KILOBYTE).await,
        "log" => return logged(&calculator(&model, Vec::new())?, size).await,
        _ => return Err(format!("there is no scenario {name}").into()),
    };
    Batch::new(&agent, 1, viewers, Source::Exact).await
}

/// A message of so many bytes, without an end of line, in a window that it fits in.
async fn message(bytes: usize) -> Result<Batch, BoxError> {
    let limits = turnbuckle::Limits { context_tokens: bytes as u64, ..Default::default() };
    let agent = Agent::builder("calculator", Instant::default()).tool(Add::default()).limits(limits).build()?;
    let batch = Batch::new(&agent, 1, Viewers::Lossy(1), Source::Exact).await?;
    Ok(batch.saying("lorem ipsum ".repeat(bytes / 12)))
}

/// A conversation whose log has so many events, of which the window shows the last.
async fn logged(agent: &Agent, events: usize) -> Result<Batch, BoxError> {
    let (store, id) = (MemoryStore::default(), "c_0".into());
    Template::of(agent, LOGGED_MESSAGE).await?.fill(&store, &id, events).await?;
    Batch::of(agent, store, vec![id], Viewers::None, Source::Exact).await
}

/// Answers with so many calls of `add`, then, once there is a result, with text.
struct Calls(usize);

impl Model for Calls {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            if let Some(Message::Result { .. }) = request.messages.last() {
                out.text(ANSWER);
                return Ok(Reply::text(ANSWER));
            }
            let call = |number: usize| ToolCall {
                call: format!("call_{number}").into(),
                name: "add".into(),
                arguments: Arc::new(json!({ "a": 2, "b": number })),
            };
            let calls = (0..self.0).map(call).collect();
            Ok(Reply { calls, stop_reason: StopReason::ToolCalls, ..Reply::default() })
        })
    }
}
