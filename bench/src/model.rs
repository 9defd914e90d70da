//! A model that answers at once: first a call of `add`, then, once there is a result, text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use turnbuckle::message::StopReason;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{BoxFuture, Message, Reply, ToolCall};

/// What it says at the end.
pub const ANSWER: &str = "The sum is 5.";

/// The model that the runtime and the hand-written loop share. Its call ids are fresh, as a provider's are.
#[derive(Clone, Debug, Default)]
pub struct Instant {
    /// How many it has made. Clones share it: they are the same model.
    calls: Arc<AtomicU64>,
}

impl Instant {
    fn answer(&self, request: &Request, out: &mut dyn Sink) -> Reply {
        if let Some(Message::Result { .. }) = request.messages.last() {
            out.text(ANSWER);
            return Reply::text(ANSWER);
        }
        let count = self.calls.fetch_add(1, Ordering::Relaxed);
        let call = ToolCall {
            call: format!("call_{count}").into(),
            name: "add".into(),
            arguments: Arc::new(json!({ "a": 2, "b": 3 })),
        };
        Reply { calls: vec![call], stop_reason: StopReason::ToolCalls, ..Reply::default() }
    }
}

impl Model for Instant {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move { Ok(self.answer(request, out)) })
    }
}
