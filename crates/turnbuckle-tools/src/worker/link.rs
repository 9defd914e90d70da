//! The calls of a worker that are open. Callers share a [`Link`] with the task that serves the process (`serve.rs`). Whatever ends
//! the process fails all open calls at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::process::ChildStdin;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::error::WorkerError;
use super::message::{Id, Message, RpcError, Source, cut};
use super::outgoing::Outgoing;

/// The most calls that may be open at once.
const MOST_CALLS: usize = 64;
/// Progress that waits for its caller; more is dropped, since losing a live event loses nothing.
const QUEUED_EVENTS: usize = 16;
/// A call that says more than this is a flood.
const MOST_PROGRESS: u32 = 1000;
/// How many cancelled calls a worker may leave without an answer.
const MOST_ABANDONED: usize = 256;

/// What callers share with the task that serves the process.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) command: String,
    pub(super) outgoing: Outgoing,
    /// Held only to look something up or change it, never across an await.
    calls: Mutex<Calls>,
    /// A call was abandoned: the worker must react in time.
    abandoned: Notify,
    /// A call was answered, or all have failed.
    changed: Notify,
    pub(super) stop: CancellationToken,
    pub(super) reaction: Duration,
}

#[derive(Debug, Default)]
struct Calls {
    /// The last id that was given.
    last: u64,
    open: HashMap<u64, OpenCall>,
    /// Cancelled calls that the worker has still to answer, each with the time until which it may take.
    abandoned: HashMap<u64, Instant>,
    /// Set once, by the task, when the process has ended.
    failure: Option<WorkerError>,
}

#[derive(Debug)]
struct OpenCall {
    answer: oneshot::Sender<Result<Value, RpcError>>,
    events: mpsc::Sender<Event>,
    progress: u32,
    /// Whether a `next` of this call is being carried out.
    in_next: bool,
}

/// What a worker says of a call before it answers.
#[derive(Debug)]
pub(super) enum Event {
    Progress(String),
    Next(Id, Value),
}

/// The caller's end of an open call.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: u64,
    pub(super) answer: oneshot::Receiver<Result<Value, RpcError>>,
    pub(super) events: mpsc::Receiver<Event>,
}

impl Link {
    pub(super) fn new(
        command: String,
        stdin: Option<ChildStdin>,
        reaction: Duration,
    ) -> Result<Arc<Self>, WorkerError> {
        let outgoing = Outgoing::new(stdin).map_err(|error| WorkerError::Handshake {
            command: command.clone(),
            why: format!("its stdin cannot be used: {error}"),
        })?;
        Ok(Arc::new(Self {
            command,
            outgoing,
            calls: Mutex::default(),
            abandoned: Notify::new(),
            changed: Notify::new(),
            stop: CancellationToken::new(),
            reaction,
        }))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a number for a call that is about to be sent.
    pub(super) fn open(&self) -> Result<Opened, WorkerError> {
        let (answer_to, answer) = oneshot::channel();
        let (events_to, events) = mpsc::channel(QUEUED_EVENTS);
        let mut calls = self.calls();
        if let Some(failure) = &calls.failure {
            return Err(failure.clone());
        }
        if calls.open.len() >= MOST_CALLS {
            return Err(WorkerError::Busy { command: self.command.clone(), most: MOST_CALLS });
        }
        calls.last += 1;
        let id = calls.last;
        calls.open.insert(id, OpenCall { answer: answer_to, events: events_to, progress: 0, in_next: false });
        Ok(Opened { id, answer, events })
    }

    /// Gives a call up. If it was sent, the worker has to answer it all the same; true if it must be told.
    pub(super) fn abandon(&self, id: u64, is_sent: bool) -> bool {
        let mut calls = self.calls();
        if calls.open.remove(&id).is_none() || !is_sent {
            return false;
        }
        calls.abandoned.insert(id, Instant::now() + self.reaction);
        drop(calls);
        self.abandoned.notify_one();
        true
    }

    /// A `next` of this call was carried out.
    pub(super) fn next_is_over(&self, id: u64) {
        if let Some(open) = self.calls().open.get_mut(&id) {
            open.in_next = false;
        }
    }

    /// Why the worker has ended, if it has.
    pub(super) fn failure(&self) -> Option<WorkerError> {
        self.calls().failure.clone()
    }

    /// Why a call has no answer.
    pub(super) fn ended(&self) -> WorkerError {
        self.failure().unwrap_or_else(|| WorkerError::Stopped { command: self.command.clone() })
    }

    /// Ends when the call is answered or the worker is gone.
    pub(super) async fn closed(&self, id: u64) {
        loop {
            // `notify_waiters` wakes those that were made before it, so the look comes after.
            let changed = self.changed.notified();
            if !self.calls().open.contains_key(&id) {
                return;
            }
            changed.await;
        }
    }

    /// One line of the worker. An error is a breach of the protocol.
    pub(super) fn take(&self, line: &[u8]) -> Result<(), String> {
        match Message::read(line, Source::Stdout)? {
            Message::Answer { id, result } => self.answered(id, result),
            Message::Progress { call, text } => self.progressed(call, text),
            Message::Next { id, call, params } => self.next(id, call, params),
        }
    }

    fn answered(&self, id: u64, result: Result<Value, RpcError>) -> Result<(), String> {
        let mut calls = self.calls();
        if let Some(open) = calls.open.remove(&id) {
            // The caller may have gone in this moment.
            let _ = open.answer.send(result);
            drop(calls);
            self.changed.notify_waiters();
            return Ok(());
        }
        match calls.abandoned.remove(&id) {
            Some(_) => Ok(()),
            None => Err(format!("an answer to call {id}, which is not open")),
        }
    }

    fn progressed(&self, call: u64, text: String) -> Result<(), String> {
        let mut calls = self.calls();
        let is_abandoned = calls.abandoned.contains_key(&call);
        match calls.open.get_mut(&call) {
            Some(open) if open.progress < MOST_PROGRESS => {
                open.progress += 1;
                // Where there is no room, it is left out.
                let _ = open.events.try_send(Event::Progress(cut(text)));
                Ok(())
            }
            Some(_) => Err(format!("more than {MOST_PROGRESS} reports of progress for one call")),
            None if is_abandoned => Ok(()),
            None => Err(format!("progress of call {call}, which is not open")),
        }
    }

    fn next(&self, id: Id, call: u64, params: Value) -> Result<(), String> {
        let refusal = {
            let mut calls = self.calls();
            let is_abandoned = calls.abandoned.contains_key(&call);
            match calls.open.get_mut(&call) {
                Some(open) if open.in_next => "`next` is running already: one at a time",
                Some(open) => {
                    if open.events.try_send(Event::Next(id.clone(), params)).is_ok() {
                        open.in_next = true;
                        return Ok(());
                    }
                    "the call has too many messages waiting"
                }
                None if is_abandoned => "the call was cancelled",
                None => return Err(format!("`next` of call {call}, which is not open")),
            }
        };
        match self.outgoing.try_send(&RpcError::new(refusal).answer_to(&id)) {
            true => Ok(()),
            false => Err("it calls `next` without reading the answers".to_owned()),
        }
    }

    /// Ends when a cancelled call was not answered in time.
    pub(super) async fn hang(&self) {
        loop {
            let changed = self.abandoned.notified();
            let (first, count) = {
                let calls = self.calls();
                (calls.abandoned.values().min().copied(), calls.abandoned.len())
            };
            match first {
                _ if count > MOST_ABANDONED => return,
                None => changed.await,
                Some(until) if until <= Instant::now() => return,
                // A call that is abandoned later has a later deadline. It is looked at again all the same: there may be too many.
                Some(until) => tokio::select! {
                    () = sleep_until(until) => {}
                    () = changed => {}
                },
            }
        }
    }

    pub(super) fn fail(&self, failure: WorkerError) {
        let mut calls = self.calls();
        calls.failure = Some(failure);
        // Dropping the senders wakes the callers, who then read the failure.
        calls.open.clear();
        calls.abandoned.clear();
        drop(calls);
        self.outgoing.close();
        self.changed.notify_waiters();
    }
}
