//! Between a model and transformers that answer later: what the model says is kept in order until they are ready for it.
//!
//! A model pushes and never waits, so what waits here is bounded by the reply, which the turn keeps as a whole anyway.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use super::context::TurnContext;
use super::reply_stream::ReplyStream;
use crate::BoxError;
use crate::hook::HookFailure;
use crate::hook::call::contained;
use crate::model::Sink;

/// What a model pushed.
#[derive(Debug)]
pub(super) enum Pushed {
    Begin(u32),
    Text(String),
    Thinking(String),
}

/// The chunks that wait.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// Held only to add and to take, never across an await.
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    pushed: Vec<Pushed>,
    is_closed: bool,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, pushed: Pushed) {
        self.lock().pushed.push(pushed);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Everything that waits; `None` once nothing more can come.
    async fn next(&self) -> Option<Vec<Pushed>> {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.pushed.is_empty() {
                    return Some(std::mem::take(&mut waiting.pushed));
                }
                if waiting.is_closed {
                    return None;
                }
            }
            // One task waits, and `notify_one` keeps a permit for it: nothing is missed between the look and the wait.
            self.changed.notified().await;
        }
    }

    /// Where the model pushes.
    pub(super) fn sink(&self) -> PipeSink<'_> {
        PipeSink(self)
    }

    /// Runs the model, and beside it the transformers on what it says, until both are done.
    pub(super) async fn run<T>(&self, stream: &mut ReplyStream, model: impl Future<Output = T>) -> T {
        let speaking = async {
            let result = model.await;
            self.close();
            result
        };
        let passing = async {
            while let Some(pushed) = self.next().await {
                stream.take(pushed).await;
            }
        };
        let (result, ()) = tokio::join!(speaking, passing);
        result
    }
}

pub(super) struct PipeSink<'a>(&'a Pipe);

impl Sink for PipeSink<'_> {
    fn begin(&mut self, attempt: u32) {
        self.0.push(Pushed::Begin(attempt));
    }
    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push(Pushed::Text(text.to_owned()));
        }
    }
    fn thinking(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push(Pushed::Thinking(text.to_owned()));
        }
    }
}

/// What foreign code answers within `limit`; a panic inside is a failure.
pub(super) async fn within<T>(
    ctx: &TurnContext,
    limit: Duration,
    answer: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, HookFailure> {
    let (mut answer, mut timer) = (pin!(answer), ctx.clock().sleep(limit));
    poll_fn(|cx| match contained(answer.as_mut(), cx) {
        Poll::Ready(result) => Poll::Ready(result),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| Err(HookFailure::TimedOut(limit))),
    })
    .await
}
