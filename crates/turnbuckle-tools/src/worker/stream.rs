//! A stream transformer in a worker or a service: batches of chunks go out, and what it lets through comes back.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::{Value, json};
use turnbuckle::hook::{AsyncTransformer, Point, Stretch, StretchKind, TransformBatch, TransformedBatch};
use turnbuckle::{BoxError, BoxFuture};

use super::answer::StreamAnswer;
use super::ask::{Hooks, Peer};
use super::error::WorkerError;
use super::remote::Remote;

/// Makes the numbers of stretches unique in this process: a worker keeps what it holds back under them.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// What a stretch may grow by beyond what went in, over all its batches.
const MOST_ADDED: usize = 4 * 1024 * 1024;
/// All annotations of a stretch, as JSON.
const MOST_ANNOTATED: usize = 256 * 1024;

/// One stretch of text or thinking on its way through the hooks of another process.
pub(super) struct RemoteTransformer {
    remote: Remote,
    number: u64,
    /// The process that knows the beginning of this stretch. Another one would not know what is held back, so if it ends the
    /// stretch fails.
    peer: Option<Peer>,
    is_over: bool,
    /// How much went in, came out, and was put beside it.
    given: usize,
    passed: usize,
    annotated: usize,
}

impl RemoteTransformer {
    pub(super) fn new(remote: Remote) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { remote, number, peer: None, is_over: false, given: 0, passed: 0, annotated: 0 }
    }

    async fn pass(&mut self, stretch: &Stretch, batch: TransformBatch) -> Result<TransformedBatch, BoxError> {
        let peer = match &self.peer {
            Some(peer) => peer.clone(),
            None => self.peer.insert(self.remote.peer().await.map_err(WorkerError::boxed)?).clone(),
        };
        let hooks = Hooks { peer, point: Point::Stream };
        let kind = match stretch.kind {
            StretchKind::Text => "text",
            StretchKind::Thinking => "thinking",
        };
        let mut chunks = batch.chunks;
        self.given += chunks.iter().map(String::len).sum::<usize>();
        let mut passed = TransformedBatch::default();
        for hook in hooks.iter(None) {
            let params = StreamParams {
                conversation: stretch.conversation.as_str(),
                turn: stretch.turn.as_str(),
                agent: &stretch.agent,
                attempt: stretch.attempt,
                kind,
                stream: self.number,
                chunks: &chunks,
                last: batch.is_last,
            };
            let StreamAnswer::Pass { text, annotations } = hooks.ask(hook, params, |_| {}).await?;
            self.annotated += annotations.iter().map(|(key, value)| key.len() + json_len(value)).sum::<usize>();
            if self.annotated > MOST_ANNOTATED {
                let why = format!("annotations of more than {MOST_ANNOTATED} bytes for one stretch of text");
                return Err(hooks.nonsense(hook, why).into());
            }
            // Also between two hooks: what the first makes of a little is sent to the second.
            if self.passed + text.len() > self.given + MOST_ADDED {
                let why = format!("more than {MOST_ADDED} bytes beyond what the model said");
                return Err(hooks.nonsense(hook, why).into());
            }
            passed.annotations.extend(annotations);
            chunks = if text.is_empty() { Vec::new() } else { vec![text] };
        }
        self.is_over = batch.is_last;
        passed.text = chunks.concat();
        self.passed += passed.text.len();
        Ok(passed)
    }
}

/// What is sent at `stream`.
#[derive(Serialize)]
struct StreamParams<'a> {
    conversation: &'a str,
    turn: &'a str,
    agent: &'a str,
    attempt: u32,
    kind: &'static str,
    stream: u64,
    chunks: &'a [String],
    last: bool,
}

/// How long a value is as JSON.
fn json_len(value: &Value) -> usize {
    value.to_string().len()
}

impl AsyncTransformer for RemoteTransformer {
    fn transform<'a>(
        &'a mut self,
        stretch: &'a Stretch,
        batch: TransformBatch,
    ) -> BoxFuture<'a, Result<TransformedBatch, BoxError>> {
        Box::pin(self.pass(stretch, batch))
    }
}

impl Drop for RemoteTransformer {
    /// What the worker holds back of a reply that was discarded is of no use any more.
    fn drop(&mut self) {
        if let (Some(Peer::Worker(connection)), false) = (&self.peer, self.is_over) {
            connection.notify("discard", &json!({"stream": self.number}));
        }
    }
}
