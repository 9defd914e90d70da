//! One request to a worker, from its line to its answer.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::error::WorkerError;
use super::link::{Event, Link, Opened};
use super::message::{Id, Request, RpcError};
use super::outgoing::line;

/// What happens to a call.
#[derive(Debug)]
pub(super) enum CallEvent {
    /// The result. Nothing follows.
    Answer(Value),
    /// The worker answered with an error. Nothing follows.
    Failed(RpcError),
    /// What it is doing.
    Progress(String),
    /// It wants the rest of the chain to run; to be answered with [`Call::respond`].
    Next(Id, Value),
}

/// One request on its way. Dropping it before the answer cancels it.
#[derive(Debug)]
pub(super) struct Call {
    opened: Opened,
    link: Arc<Link>,
    is_sent: bool,
}

impl Call {
    pub(super) async fn begin(
        link: &Arc<Link>,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<Self, WorkerError> {
        let mut call = Self { opened: link.open()?, link: link.clone(), is_sent: false };
        let line = line(&Request::new(call.opened.id, method, params))?;
        call.send(line).await?;
        call.is_sent = true;
        Ok(call)
    }

    async fn send(&self, line: Vec<u8>) -> Result<(), WorkerError> {
        match self.link.outgoing.send(line).await {
            true => Ok(()),
            false => {
                // Then all calls are about to fail, and why is known.
                self.closed().await;
                Err(self.link.ended())
            }
        }
    }

    /// What happens next. May be dropped and called again.
    pub(super) async fn event(&mut self) -> Result<CallEvent, WorkerError> {
        tokio::select! {
            // What was said before the answer comes before it.
            biased;
            Some(event) = self.opened.events.recv() => Ok(match event {
                Event::Progress(text) => CallEvent::Progress(text),
                Event::Next(id, params) => CallEvent::Next(id, params),
            }),
            answer = &mut self.opened.answer => match answer {
                Ok(Ok(answer)) => Ok(CallEvent::Answer(answer)),
                Ok(Err(error)) => Ok(CallEvent::Failed(error)),
                Err(_) => Err(self.link.ended()),
            },
        }
    }

    /// Ends when the call is answered or the worker is gone; [`event`](Self::event) then says which.
    pub(super) async fn closed(&self) {
        self.link.closed(self.opened.id).await;
    }

    /// Answers a `next` of this call.
    pub(super) async fn respond(&self, id: &Id, result: Result<Value, RpcError>) -> Result<(), WorkerError> {
        self.link.next_is_over(self.opened.id);
        let answer = match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => error.answer_to(id),
        };
        self.send(line(&answer)?).await
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.link.abandon(self.opened.id, self.is_sent) {
            // Without room in the queue the worker does not read, which is found out elsewhere.
            let cancel = json!({"jsonrpc": "2.0", "method": "cancel", "params": {"call": self.opened.id}});
            self.link.outgoing.try_send(&cancel);
        }
    }
}
