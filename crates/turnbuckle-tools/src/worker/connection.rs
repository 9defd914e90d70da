//! A running worker: its process, its pipes, and the calls that are open.
//!
//! One task owns the process and serves the pipes. Callers share a [`Link`] with it. Whatever ends the process (it dies, it
//! breaks the protocol, it hangs, nobody needs it any more) fails all open calls at once.

use std::collections::HashMap;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::error::WorkerError;
use super::message::{Handshake, Id, Message, RpcError, cut};
use crate::command::process::Started;

/// The most calls that may be open at once.
pub(super) const MOST_CALLS: usize = 64;
/// The longest line that a worker may write.
pub(super) const LONGEST_LINE: usize = 4 * 1024 * 1024;
/// Lines that wait to be written; a caller that finds no room waits.
const QUEUED_LINES: usize = 16;
/// Progress that waits for its caller; more is dropped, since losing a live event loses nothing.
const QUEUED_EVENTS: usize = 16;
/// A call that says more than this is a flood.
const MOST_PROGRESS: u32 = 1000;
/// How many cancelled calls a worker may leave without an answer.
const MOST_ABANDONED: usize = 256;
/// Kept of the end of stderr.
const STDERR_TAIL: usize = 2 * 1024;
/// How long to read stderr when stdout has ended.
const DRAIN: Duration = Duration::from_millis(20);

/// How long a worker may take for what is no hook call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// From its start to its answer to `initialize`.
    pub(super) handshake: Duration,
    /// To answer a call that was cancelled, and to read a line.
    pub(super) reaction: Duration,
}

/// A worker that has answered `initialize`. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) handshake: Handshake,
    pub(super) since: Instant,
    link: Arc<Link>,
}

impl Connection {
    /// Serves a process that was just started, and introduces the two to each other.
    pub(super) async fn open(
        started: Started,
        command: String,
        initialize: Value,
        patience: Patience,
    ) -> Result<Self, WorkerError> {
        let (outgoing, lines) = mpsc::channel(QUEUED_LINES);
        let link = Arc::new(Link {
            command,
            outgoing,
            calls: Mutex::default(),
            abandoned: Notify::new(),
            changed: Notify::new(),
            stop: CancellationToken::new(),
            reaction: patience.reaction,
        });
        // From here on, an error drops the connection, which ends the process.
        let mut connection = Self { handshake: Handshake::default(), since: Instant::now(), link: link.clone() };
        tokio::spawn(serve(started, link.clone(), lines));
        let wrong = |why: String| WorkerError::Handshake { command: link.command.clone(), why };
        let greeting = async {
            let mut call = Link::begin(&link, "initialize", initialize).await?;
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
            Err(_) => return Err(wrong(format!("no answer for {} s", patience.handshake.as_secs_f64()))),
        };
        connection.handshake = Handshake::read(answer).map_err(wrong)?;
        Ok(connection)
    }

    /// Sends a request. The call is cancelled when what this returns is dropped.
    pub(super) async fn begin(&self, method: &str, params: Value) -> Result<Call, WorkerError> {
        Link::begin(&self.link, method, params).await
    }

    /// Why it has ended, if it has.
    pub(super) fn failure(&self) -> Option<WorkerError> {
        self.link.calls().failure.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.stop.cancel();
    }
}

/// What callers share with the task that serves the process.
#[derive(Debug)]
struct Link {
    command: String,
    outgoing: mpsc::Sender<Vec<u8>>,
    /// Held only to look something up or change it, never across an await.
    calls: Mutex<Calls>,
    /// A call was abandoned: the worker must react in time.
    abandoned: Notify,
    /// A call was answered, or all have failed.
    changed: Notify,
    stop: CancellationToken,
    reaction: Duration,
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

#[derive(Debug)]
enum Event {
    Progress(String),
    Next(Id, Value),
}

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

impl Link {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(link: &Arc<Self>, method: &str, params: Value) -> Result<Call, WorkerError> {
        let (answer_to, answer) = oneshot::channel();
        let (events_to, events) = mpsc::channel(QUEUED_EVENTS);
        let id = {
            let mut calls = link.calls();
            if let Some(failure) = &calls.failure {
                return Err(failure.clone());
            }
            if calls.open.len() >= MOST_CALLS {
                return Err(WorkerError::Busy { command: link.command.clone(), most: MOST_CALLS });
            }
            calls.last += 1;
            let id = calls.last;
            calls.open.insert(id, OpenCall { answer: answer_to, events: events_to, progress: 0, in_next: false });
            id
        };
        let mut call = Call { id, answer, events, link: link.clone(), is_sent: false };
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        call.send(&line).await?;
        call.is_sent = true;
        Ok(call)
    }

    fn ended(&self) -> WorkerError {
        self.calls().failure.clone().unwrap_or_else(|| WorkerError::Stopped { command: self.command.clone() })
    }

    /// One line of the worker. An error is a breach of the protocol.
    fn take(&self, line: &[u8]) -> Result<(), String> {
        match Message::read(line)? {
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
        let line = line(&RpcError::new(refusal).answer_to(&id));
        self.outgoing.try_send(line).map_err(|_| "it calls `next` without reading the answers".to_owned())
    }

    /// Ends when a cancelled call was not answered in time.
    async fn hang(&self) {
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
                Some(until) => {
                    // A call that is abandoned later has a later deadline: no need to be woken for it.
                    sleep_until(until).await;
                }
            }
        }
    }

    fn fail(&self, failure: WorkerError) {
        let mut calls = self.calls();
        calls.failure = Some(failure);
        // Dropping the senders wakes the callers, who then read the failure.
        calls.open.clear();
        calls.abandoned.clear();
        drop(calls);
        self.changed.notify_waiters();
    }
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// One request on its way. Dropping it before the answer cancels it.
#[derive(Debug)]
pub(super) struct Call {
    id: u64,
    answer: oneshot::Receiver<Result<Value, RpcError>>,
    events: mpsc::Receiver<Event>,
    link: Arc<Link>,
    is_sent: bool,
}

impl Call {
    async fn send(&self, value: &Value) -> Result<(), WorkerError> {
        match self.link.outgoing.reserve().await {
            Ok(room) => {
                room.send(line(value));
                Ok(())
            }
            Err(_) => Err(self.link.ended()),
        }
    }

    /// What happens next. May be dropped and called again.
    pub(super) async fn event(&mut self) -> Result<CallEvent, WorkerError> {
        tokio::select! {
            // What was said before the answer comes before it.
            biased;
            Some(event) = self.events.recv() => Ok(match event {
                Event::Progress(text) => CallEvent::Progress(text),
                Event::Next(id, params) => CallEvent::Next(id, params),
            }),
            answer = &mut self.answer => match answer {
                Ok(Ok(answer)) => Ok(CallEvent::Answer(answer)),
                Ok(Err(error)) => Ok(CallEvent::Failed(error)),
                Err(_) => Err(self.link.ended()),
            },
        }
    }

    /// Ends when the call is answered or the worker is gone; [`event`](Self::event) then says which.
    pub(super) async fn closed(&self) {
        loop {
            // `notify_waiters` wakes those that were made before it, so the look comes after.
            let changed = self.link.changed.notified();
            if !self.link.calls().open.contains_key(&self.id) {
                return;
            }
            changed.await;
        }
    }

    /// Answers a `next` of this call.
    pub(super) async fn respond(&self, id: &Id, result: Result<Value, RpcError>) -> Result<(), WorkerError> {
        if let Some(open) = self.link.calls().open.get_mut(&self.id) {
            open.in_next = false;
        }
        let answer = match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => error.answer_to(id),
        };
        self.send(&answer).await
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = self.link.calls();
        if calls.open.remove(&self.id).is_none() || !self.is_sent {
            return;
        }
        calls.abandoned.insert(self.id, Instant::now() + self.link.reaction);
        drop(calls);
        self.link.abandoned.notify_one();
        // Without room in the queue the worker does not read, which is found out elsewhere.
        let cancel = json!({"jsonrpc": "2.0", "method": "cancel", "params": {"call": self.id}});
        let _ = self.link.outgoing.try_send(line(&cancel));
    }
}

/// Why the task ends.
enum End {
    Closed,
    Protocol(String),
    Hung,
    Stopped,
}

/// If the runtime drops this, the process group is killed, and callers find the channels closed.
async fn serve(mut started: Started, link: Arc<Link>, lines: mpsc::Receiver<Vec<u8>>) {
    let child = &mut started.child;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut tail = Vec::new();
    let end = {
        let mut errors = pin!(keep_tail(stderr, &mut tail));
        let end = tokio::select! {
            end = read(stdout, &link) => end,
            end = write(stdin, lines, link.reaction) => end,
            () = link.hang() => End::Hung,
            () = link.stop.cancelled() => End::Stopped,
            () = &mut errors => End::Closed,
        };
        if matches!(end, End::Closed) {
            // It never ends by itself: what was written before the end is in the pipe by now.
            let _ = timeout(DRAIN, errors).await;
        }
        end
    };
    let command = link.command.clone();
    let failure = match end {
        End::Closed => {
            let status = timeout(link.reaction, started.child.wait()).await.ok().and_then(Result::ok);
            if status.is_some() {
                started.group.ended();
            }
            WorkerError::Died { command, status, stderr: last_lines(&tail) }
        }
        End::Protocol(why) => WorkerError::Protocol { command, why },
        End::Hung => WorkerError::Hung { command },
        End::Stopped => WorkerError::Stopped { command },
    };
    drop(started);
    tracing::debug!(error = &failure as &dyn std::error::Error, "a hook worker has ended");
    link.fail(failure);
}

async fn read(stdout: Option<ChildStdout>, link: &Link) -> End {
    let Some(stdout) = stdout else { return End::Closed };
    let mut reader = BufReader::with_capacity(64 * 1024, stdout);
    loop {
        let mut line = Vec::new();
        loop {
            let Ok(buffer) = reader.fill_buf().await else { return End::Closed };
            if buffer.is_empty() {
                return End::Closed;
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(buffer.len(), |end| end + 1);
            if line.len() + count > LONGEST_LINE {
                return End::Protocol(format!("a line of more than {LONGEST_LINE} bytes"));
            }
            line.extend_from_slice(&buffer[..count]);
            reader.consume(count);
            if end.is_some() {
                break;
            }
        }
        if let Err(why) = link.take(&line) {
            return End::Protocol(why);
        }
    }
}

/// A worker that closes its stdin is about to end, which its stdout tells.
async fn write(stdin: Option<ChildStdin>, mut lines: mpsc::Receiver<Vec<u8>>, patience: Duration) -> End {
    if let Some(mut stdin) = stdin {
        while let Some(line) = lines.recv().await {
            match timeout(patience, stdin.write_all(&line)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return End::Closed,
                Err(_) => return End::Hung,
            }
        }
    }
    pending().await
}

/// Reads stderr so that the worker is never held up, and keeps the end of it. Never returns.
async fn keep_tail(pipe: Option<impl AsyncRead + Unpin>, tail: &mut Vec<u8>) {
    if let Some(mut pipe) = pipe {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            tail.extend_from_slice(&buffer[..count]);
            let excess = tail.len().saturating_sub(STDERR_TAIL);
            tail.drain(..excess);
        }
    }
    pending().await
}

/// At most five lines of 200 characters.
fn last_lines(tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    let lines: Vec<&str> = text.trim().lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(5));
    last.map(|line| line.chars().take(200).collect::<String>()).collect::<Vec<_>>().join("\n")
}
