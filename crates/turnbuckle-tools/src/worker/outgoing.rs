//! The lines for a worker. A caller writes its line itself while the pipe has room; otherwise the line is queued for the task that
//! serves the process. So a call needs no other task to be sent, and a worker that does not read holds up nobody but its callers.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::error::WorkerError;

/// Lines that wait to be written; a caller that finds no room waits.
const QUEUED_LINES: usize = 16;

/// The writing end of a worker's stdin.
#[derive(Debug)]
pub(super) struct Outgoing {
    pipe: Option<pipe::Sender>,
    queue: mpsc::Sender<Vec<u8>>,
    /// Held only to write without waiting, never across an await.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Taken by the task that writes what is queued.
    lines: Option<mpsc::Receiver<Vec<u8>>>,
    /// Whether something is queued or partly written: then nobody else may write, or lines would mix.
    is_queued: bool,
    is_closed: bool,
}

/// Why nothing is written any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The worker has closed its stdin.
    Closed,
    /// It does not read.
    Full,
}

/// A message as it is written.
pub(super) fn line(message: &impl Serialize) -> Result<Vec<u8>, WorkerError> {
    let mut line = serde_json::to_vec(message).map_err(|error| WorkerError::Unwritable { why: error.to_string() })?;
    line.push(b'\n');
    Ok(line)
}

impl Outgoing {
    pub(super) fn new(stdin: Option<ChildStdin>) -> io::Result<Self> {
        let pipe = stdin.map(ChildStdin::into_owned_fd).transpose()?.map(pipe::Sender::from_owned_fd).transpose()?;
        let (queue, lines) = mpsc::channel(QUEUED_LINES);
        let state = State { lines: Some(lines), is_queued: false, is_closed: pipe.is_none() };
        Ok(Self { pipe, queue, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what the pipe takes at once, and queues the rest. The room is taken before anything is written: a line that was begun
    /// is always finished.
    fn write(&self, line: Vec<u8>, room: mpsc::Permit<'_, Vec<u8>>) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        // An error is found again by the task, which knows what to do about it.
        let written = match &self.pipe {
            Some(pipe) if !state.is_queued => pipe.try_write(&line).unwrap_or(0),
            _ => 0,
        };
        if written < line.len() {
            state.is_queued = true;
            room.send(if written == 0 { line } else { line[written..].to_vec() });
        }
        true
    }

    /// False if the worker is gone.
    pub(super) async fn send(&self, line: Vec<u8>) -> bool {
        match self.queue.reserve().await {
            Ok(room) => self.write(line, room),
            Err(_) => false,
        }
    }

    /// False if there is no room, or the worker is gone.
    pub(super) fn try_send(&self, value: &Value) -> bool {
        let Ok(line) = line(value) else { return false };
        self.queue.try_reserve().is_ok_and(|room| self.write(line, room))
    }

    /// No line is taken any more.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        // Wakes those that wait for room.
        state.lines = None;
    }

    /// Ends when the worker has closed its stdin: then it can be asked nothing any more.
    pub(super) async fn closed(&self) {
        if let Some(pipe) = &self.pipe {
            while pipe.ready(Interest::ERROR).await.is_ok_and(|ready| !ready.is_error() && !ready.is_write_closed()) {}
        }
    }

    /// Writes what is queued. Ends only if that is not possible any more; `patience` is for one line.
    pub(super) async fn write_queued(&self, patience: Duration) -> Stuck {
        let lines = self.state().lines.take();
        let (Some(pipe), Some(mut lines)) = (&self.pipe, lines) else { return Stuck::Closed };
        while let Some(line) = lines.recv().await {
            match timeout(patience, write_all(pipe, &line)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Stuck::Closed,
                Err(_) => return Stuck::Full,
            }
            let mut state = self.state();
            // Lines are queued under the lock, so none comes in between.
            state.is_queued = !lines.is_empty();
        }
        Stuck::Closed
    }
}

async fn write_all(pipe: &pipe::Sender, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        pipe.writable().await?;
        match pipe.try_write(line) {
            Ok(count) => line = &line[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
