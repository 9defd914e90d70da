//! The hand-written loop that a turn is measured against: the same model, the same tool, no log, no viewers, no hooks.

use std::sync::{Arc, Mutex, PoisonError};

use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::{Agent, BoxFuture, Message, Reply};

use crate::BoxError;
use crate::tool::Add;

/// Model, tool, and a request to begin with.
pub struct Loop {
    model: Arc<dyn Model>,
    tool: Add,
    /// As the runtime made it once: only the runtime can make one.
    request: Request,
}

/// Drops what is streamed.
struct Nowhere;

impl Sink for Nowhere {
    fn text(&mut self, text: &str) {
        std::hint::black_box(text);
    }
    fn thinking(&mut self, text: &str) {
        std::hint::black_box(text);
    }
}

impl Loop {
    /// Over this model and tool.
    pub async fn new(model: Arc<dyn Model>, tool: Add) -> Result<Self, BoxError> {
        let seen = Arc::new(Mutex::new(None));
        Agent::builder("hand", Kept(seen.clone())).tool(Add::default()).build()?.run("hi").await?;
        let request = seen.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or("no request was seen")?;
        Ok(Self { model, tool, request })
    }

    /// One message to its answer.
    pub async fn turn(&self, message: &str) -> Result<String, BoxError> {
        let mut request = self.request.clone();
        request.messages = Arc::new(vec![Message::User(message.into())]);
        loop {
            let reply = self.model.stream(&request, &mut Nowhere).await?;
            if reply.calls.is_empty() {
                return Ok(reply.content.text());
            }
            let messages = Arc::make_mut(&mut request.messages);
            messages.push(Message::Assistant { content: reply.content, calls: reply.calls.clone() });
            for call in reply.calls {
                let output = self.tool.add(&call.arguments)?;
                let (ok, content) = (output.ok, output.content);
                messages.push(Message::Result { call: call.call, name: call.name, ok, content });
            }
        }
    }
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loop").finish_non_exhaustive()
    }
}

/// Keeps the request it is asked with.
struct Kept(Arc<Mutex<Option<Request>>>);

impl Model for Kept {
    fn stream<'a>(&'a self, request: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.clone());
        Box::pin(async { Ok(Reply::text("kept")) })
    }
}
