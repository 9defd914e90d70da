//! Turns of a given size, to see how the work of a turn grows: with the calls in a reply, the bytes of a message or a reply,
//! the hooks, the viewers, or the events that are in the log already.
//!
//! Each scenario is one turn. `bench/instructions` counts its instructions at N, 2 N and 4 N and compares the increments.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::message::StopReason;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, BoxFuture, Message, Reply, ToolCall};
use turnbuckle_hooks::Redact;

use crate::BoxError;
use crate::agents::{calculator, speaker};
use crate::batch::{Batch, Source, Viewers};
use crate::chunks::{CHUNK, Chunks};
use crate::hooks::interested;
use crate::long::Template;
use crate::model::{ANSWER, Instant};
use crate::tool::Add;

/// Long enough that a thousand events fill the window, so that the model is sent the same however many more there are.
const LOGGED_MESSAGE: usize = 2_400;
const KILOBYTE: usize = 1_000;

/// One conversation, ready for the turn of scenario `name`. What `size` counts depends on the scenario: calls, kilobytes,
/// hooks, viewers or events.
pub async fn prepare(name: &str, size: usize) -> Result<Batch, BoxError> {
    let one = Viewers::Lossy(1);
    let model = Instant::default();
    let (agent, viewers) = match name {
        // Lossless, because one write publishes more events than a lossy viewer may be behind.
        "calls" => (Agent::builder("caller", Calls(size)).tool(Add::default()).build()?, Viewers::Lossless(1)),
        "reply" => (speaker(size * KILOBYTE / CHUNK, 0)?, one),
        "redacted" => (speaker(size * KILOBYTE / CHUNK, 1)?, one),
        "redacted_word" => (redacted_word(size * KILOBYTE)?, one),
        "hooks" => (calculator(&model, interested(size))?, one),
        "viewers" => (calculator(&model, Vec::new())?, Viewers::Lossy(size)),
        "message" => return message(size * KILOBYTE).await,
        "log" => return logged(&calculator(&model, Vec::new())?, size).await,
        "assembly" => return assembly(size, 6_000).await,
        "assembly_small" => return assembly(size, 2_400).await,
        _ => return Err(format!("there is no scenario {name}").into()),
    };
    Batch::new(&agent, 1, viewers, Source::Exact).await
}

/// A reply that is one word of so many bytes, redacted: redaction has no space at which a secret could end.
fn redacted_word(bytes: usize) -> Result<Agent, BoxError> {
    let word = ('a'..='z').cycle().take(bytes).collect();
    Ok(Agent::builder("speaker", Chunks::of(word)).hook(Redact::standard()?).build()?)
}

/// A message that is one line of so many bytes, with a window that is large enough for it.
async fn message(bytes: usize) -> Result<Batch, BoxError> {
    let limits = turnbuckle::Limits { context_tokens: bytes as u64, ..Default::default() };
    let agent = Agent::builder("calculator", Instant::default()).tool(Add::default()).limits(limits).build()?;
    let batch = Batch::new(&agent, 1, Viewers::Lossy(1), Source::Exact).await?;
    Ok(batch.saying("lorem ipsum ".repeat(bytes / 12)))
}

/// A conversation whose log has so many events; the window holds the last of them.
async fn logged(agent: &Agent, events: usize) -> Result<Batch, BoxError> {
    let (store, id) = (MemoryStore::default(), "c_0".into());
    Template::of(agent, LOGGED_MESSAGE).await?.fill(&store, &id, events).await?;
    Batch::of(agent, store, vec![id], Viewers::None, Source::Exact).await
}

/// A window of so many tokens, so that the same is sent however many more events there are than fill it: of 6,000 tokens, which some two
/// hundred events fill with what is read ahead, or of 2,400, for which a hundred are enough. The turn is one model call: what it takes
/// beyond assembling the context does not depend on the log.
async fn assembly(events: usize, context_tokens: u64) -> Result<Batch, BoxError> {
    let limits = turnbuckle::Limits { context_tokens, injection_reserve: context_tokens / 12, ..Default::default() };
    let (store, id) = (MemoryStore::default(), "c_0".into());
    let full = calculator(&Instant::default(), Vec::new())?;
    Template::of(&full, LOGGED_MESSAGE).await?.fill(&store, &id, events).await?;
    let agent = Agent::builder("speaker", Chunks::new(4)).tool(Add::default()).limits(limits).build()?;
    Batch::of(&agent, store, vec![id], Viewers::None, Source::Exact).await
}

/// Answers with so many calls of `add`, and once there is a result, with text.
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
