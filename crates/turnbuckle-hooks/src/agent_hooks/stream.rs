//! A reply that is told in increments: each chunk once the reply up to it was permitted.

use std::sync::Arc;

use turnbuckle::hook::{AsyncTransformer, Stretch, StretchKind, TransformBatch, TransformedBatch};
use turnbuckle::{BoxError, BoxFuture};

use super::session::{Blocked, Run, Sessions};

/// One stretch of a reply on its way through the interceptors.
pub(super) struct Increments {
    sessions: Arc<Sessions>,
    /// What was permitted and told.
    told: String,
    /// The chunk that came last. Whether it ends the reply is known when the next one comes, or none does.
    held: Option<String>,
    /// Why no more of it may be told.
    denied: Option<String>,
}

/// An interceptor does not let a reply through.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Denied(String);

impl Increments {
    pub(super) fn new(sessions: Arc<Sessions>) -> Self {
        Self { sessions, told: String::new(), held: None, denied: None }
    }

    async fn pass(&mut self, stretch: &Stretch, batch: TransformBatch) -> Result<TransformedBatch, BoxError> {
        if stretch.kind == StretchKind::Thinking {
            return Ok(TransformedBatch { text: batch.chunks.concat(), ..TransformedBatch::default() });
        }
        if let Some(reason) = &self.denied {
            return Err(Denied(reason.clone()).into());
        }
        let run = self.sessions.run(&stretch.conversation, &stretch.turn, &stretch.agent, Vec::new)?;
        let mut passed = String::new();
        let judged = self.judge_all(&run, batch, &mut passed).await;
        match judged {
            // What was permitted is told. The reply is refused by the next batch, or at its end.
            Err(error) if !passed.is_empty() => self.denied = Some(error.to_string()),
            judged => judged?,
        }
        Ok(TransformedBatch { text: passed, ..TransformedBatch::default() })
    }

    async fn judge_all(&mut self, run: &Run, batch: TransformBatch, passed: &mut String) -> Result<(), BoxError> {
        for chunk in batch.chunks {
            run.leave_residue(true).await;
            if let Some(held) = self.held.replace(chunk) {
                passed.push_str(&self.judge(run, held, false).await?);
            }
        }
        if batch.is_last {
            if let Some(held) = self.held.take() {
                passed.push_str(&self.judge(run, held, true).await?);
            }
            run.leave_residue(false).await;
        }
        Ok(())
    }

    /// The chunk, if the reply up to its end is permitted.
    async fn judge(&mut self, run: &Run, chunk: String, is_last: bool) -> Result<String, BoxError> {
        self.told.push_str(&chunk);
        match run.judge("model", &self.told, is_last).await {
            Err(Blocked(reason)) => Err(Denied(reason).into()),
            Ok(context) if context["response"]["content"] != *self.told => {
                let why = "a transform of a reply that is told in increments; use the buffered output for it";
                run.refuse(why).await;
                Err(Denied(why.to_owned()).into())
            }
            Ok(_) => Ok(chunk),
        }
    }
}

impl AsyncTransformer for Increments {
    fn transform<'a>(
        &'a mut self,
        stretch: &'a Stretch,
        batch: TransformBatch,
    ) -> BoxFuture<'a, Result<TransformedBatch, BoxError>> {
        Box::pin(self.pass(stretch, batch))
    }
}
