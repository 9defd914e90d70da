//! The task that owns the process of a worker and serves its pipes, until the process dies, breaks the protocol, hangs, or is
//! needed by nobody any more.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use super::error::WorkerError;
use super::link::Link;
use super::outgoing::Stuck;
use crate::command::process::Started;

/// The longest line that a worker may write.
pub(super) const LONGEST_LINE: usize = 4 * 1024 * 1024;
/// Kept of the end of stderr.
const STDERR_TAIL: usize = 2 * 1024;
/// How long to go on reading when the process has ended, or a pipe of it: what it wrote before is there by then. Another process
/// may hold its stdout for as long as it likes.
const DRAIN: Duration = Duration::from_millis(20);
/// How long a process may take to end when it has closed a pipe.
const ENDING: Duration = Duration::from_millis(500);

/// Why the task ends.
enum End {
    /// The process has ended, or a pipe of it is closed.
    Closed,
    Protocol(String),
    Hung,
    Stopped,
}

/// Fails what is open when the task is over, also if the runtime drops it.
struct Served(Arc<Link>);

impl Drop for Served {
    fn drop(&mut self) {
        if self.0.failure().is_none() {
            self.0.fail(WorkerError::Stopped { command: self.0.command.clone() });
        }
    }
}

/// If the runtime drops this, the process group is killed.
pub(super) async fn serve(mut started: Started, link: Arc<Link>) {
    let served = Served(link.clone());
    let child = &mut started.child;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut tail = Vec::new();
    let end = {
        let mut errors = pin!(keep_tail(stderr, &mut tail));
        let mut reading = pin!(read(stdout, &link));
        let mut has_read_all = false;
        let mut end = tokio::select! {
            end = &mut reading => {
                has_read_all = true;
                end
            }
            // Not only by its stdout: a child of it may hold that.
            _ = child.wait() => End::Closed,
            stuck = link.outgoing.write_queued(link.reaction) => match stuck {
                Stuck::Closed => End::Closed,
                Stuck::Full => End::Hung,
            },
            () = link.outgoing.closed() => End::Closed,
            () = link.hang() => End::Hung,
            () = link.stop.cancelled() => End::Stopped,
            () = &mut errors => End::Closed,
        };
        if matches!(end, End::Closed) {
            let rest = async { if has_read_all { End::Closed } else { reading.await } };
            let (rest, _) = tokio::join!(timeout(DRAIN, rest), timeout(DRAIN, errors));
            // A breach of the protocol in the last lines is one all the same.
            end = rest.unwrap_or(End::Closed);
        }
        end
    };
    let command = link.command.clone();
    let failure = match end {
        End::Closed => match timeout(ENDING, started.child.wait()).await {
            Ok(status) => {
                started.group.ended();
                WorkerError::Died { command, status: status.ok(), stderr: last_lines(&tail) }
            }
            Err(_) => WorkerError::Protocol { command, why: "it closed a pipe and went on".to_owned() },
        },
        End::Protocol(why) => WorkerError::Protocol { command, why },
        End::Hung => WorkerError::Hung { command },
        End::Stopped => WorkerError::Stopped { command },
    };
    drop(started);
    tracing::debug!(error = &failure as &dyn std::error::Error, "a hook worker has ended");
    link.fail(failure);
    drop(served);
}

async fn read(stdout: Option<ChildStdout>, link: &Link) -> End {
    let Some(stdout) = stdout else { return End::Closed };
    let mut reader = BufReader::with_capacity(64 * 1024, stdout);
    loop {
        match next_line(&mut reader).await {
            Line::Whole(line) => {
                if let Err(why) = link.take(&line) {
                    return End::Protocol(why);
                }
            }
            Line::TooLong => return End::Protocol(format!("a line of more than {LONGEST_LINE} bytes")),
            Line::End => return End::Closed,
        }
    }
}

/// What was read of a worker.
pub(super) enum Line {
    /// With its end.
    Whole(Vec<u8>),
    /// More than [`LONGEST_LINE`]; the rest is not read.
    TooLong,
    /// Nothing, or no whole line, follows.
    End,
}

/// Reads one line, of which never more than [`LONGEST_LINE`] is kept.
pub(super) async fn next_line(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Line {
    let mut line = Vec::new();
    loop {
        let Ok(buffer) = reader.fill_buf().await else { return Line::End };
        if buffer.is_empty() {
            return Line::End;
        }
        let end = memchr::memchr(b'\n', buffer);
        let count = end.map_or(buffer.len(), |end| end + 1);
        if line.len() + count > LONGEST_LINE {
            return Line::TooLong;
        }
        line.extend_from_slice(&buffer[..count]);
        reader.consume(count);
        if end.is_some() {
            return Line::Whole(line);
        }
    }
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
pub(crate) fn last_lines(tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    let lines: Vec<&str> = text.trim().lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(5));
    last.map(|line| line.chars().take(200).collect::<String>()).collect::<Vec<_>>().join("\n")
}
