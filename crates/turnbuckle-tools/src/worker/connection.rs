//! A running worker. Dropping it ends the process.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::call::{Call, CallEvent};
use super::error::WorkerError;
use super::link::Link;
use super::message::Handshake;
use super::serve::serve;
use crate::command::process::Started;

/// How long a worker may take for what is no hook call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// From its start to its answer to `initialize`.
    pub(super) handshake: Duration,
    /// To answer a call that was cancelled, and to read a line.
    pub(super) reaction: Duration,
}

/// A worker that has answered `initialize`.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) handshake: Handshake,
    pub(super) since: Instant,
    link: Arc<Link>,
}

impl Connection {
    /// Serves a process that was just started, and introduces the two to each other.
    pub(super) async fn open(
        mut started: Started,
        command: String,
        initialize: Value,
        patience: Patience,
    ) -> Result<Self, WorkerError> {
        let link = Link::new(command, started.child.stdin.take(), patience.reaction)?;
        // From here on, an error drops the connection, which ends the process.
        let mut connection = Self { handshake: Handshake::default(), since: Instant::now(), link: link.clone() };
        tokio::spawn(serve(started, link.clone()));
        let wrong = |why: String| WorkerError::Handshake { command: link.command.clone(), why };
        let greeting = async {
            let mut call = Call::begin(&link, "initialize", initialize).await?;
            loop {
                match call.event().await? {
                    CallEvent::Answer(answer) => return Ok(answer),
                    CallEvent::Failed(error) => return Err(wrong(error.message)),
                    CallEvent::Progress(_) => {}
                    CallEvent::Next(..) => return Err(wrong("it called `next` outside a wrap".to_owned())),
                }
            }
        };
        let answer = match timeout(patience.handshake, greeting).await {
            Ok(answer) => answer?,
            Err(_) => {
                return Err(WorkerError::Silent { command: link.command.clone(), limit: patience.handshake });
            }
        };
        connection.handshake = Handshake::read(answer).map_err(wrong)?;
        Ok(connection)
    }

    /// Sends a request. The call is cancelled when what this returns is dropped.
    pub(super) async fn begin(&self, method: &str, params: impl Serialize + Send) -> Result<Call, WorkerError> {
        Call::begin(&self.link, method, params).await
    }

    /// Tells the worker something that it does not answer. Without room it does not read, which is found out elsewhere.
    pub(super) fn notify(&self, method: &str, params: &Value) {
        self.link.outgoing.try_send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Why it has ended, if it has.
    pub(super) fn failure(&self) -> Option<WorkerError> {
        self.link.failure()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.stop.cancel();
    }
}
