//! The program that is checked, spoken to in single lines.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;
use turnbuckle::hook::Point;

use super::super::message::{Handshake, Message, PROTOCOL, Served, Source};
use super::super::serve::{LONGEST_LINE, Line, next_line};
use super::Program;
use crate::command::env::ProgramEnv;
use crate::command::process::{self, Started};

/// How long any answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Why a check fails, for people.
pub(super) type Why = String;

pub(super) struct Peer {
    started: Started,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last: u64,
    pub(super) hooks: Vec<Served>,
}

/// What the program sent for a call.
#[derive(Debug)]
pub(super) enum Heard {
    Result(Value),
    Error(i64, String),
}

impl Peer {
    /// Starts the program; nothing is said yet.
    pub(super) async fn start(program: &Program<'_>) -> Result<Self, Why> {
        // Anyone's program: it gets no key.
        let started = process::start(program.line, program.cwd, &ProgramEnv::for_tools(&[], &[], &[], None)).await;
        let mut started = started.map_err(|error| error.to_string())?;
        let (stdin, stdout) = (started.child.stdin.take(), started.child.stdout.take());
        let stdout = BufReader::new(stdout.ok_or("it has no stdout")?);
        if let Some(stderr) = started.child.stderr.take() {
            program.stderr.read(stderr);
        }
        Ok(Self { started, stdin, stdout, last: 0, hooks: Vec::new() })
    }

    /// Starts the program and introduces the two.
    pub(super) async fn open(program: &Program<'_>) -> Result<Self, Why> {
        let mut peer = Self::start(program).await?;
        let params = super::samples::initialize(PROTOCOL, program.cwd);
        let answer = match peer.request("initialize", params).await? {
            Heard::Result(answer) => answer,
            Heard::Error(_, message) => return Err(format!("it answered `initialize` with the error {message:?}")),
        };
        peer.hooks = Handshake::read(answer)?.hooks;
        if peer.hooks.is_empty() {
            return Err("it has no hook".to_owned());
        }
        Ok(peer)
    }

    pub(super) fn hook(&self, name: &str, point: Point) -> Option<Served> {
        self.hooks.iter().find(|hook| hook.name == name && hook.point == point).cloned()
    }

    pub(super) async fn send(&mut self, message: &Value) -> Result<(), Why> {
        let stdin = self.stdin.as_mut().ok_or("its stdin is closed")?;
        let line = format!("{message}\n");
        match timeout(PATIENCE, stdin.write_all(line.as_bytes())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("it does not read its stdin any more: {error}")),
            Err(_) => Err("it does not read its stdin".to_owned()),
        }
    }

    /// Sends a request and returns its number.
    pub(super) async fn begin(&mut self, method: &str, params: Value) -> Result<u64, Why> {
        self.last += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})).await?;
        Ok(self.last)
    }

    pub(super) async fn notify(&mut self, method: &str, params: Value) -> Result<(), Why> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    /// The next message.
    pub(super) async fn hear(&mut self) -> Result<Message, Why> {
        match timeout(PATIENCE, next_line(&mut self.stdout)).await {
            Err(_) => Err(format!("it said nothing for {} s", PATIENCE.as_secs())),
            Ok(Line::End) => Err("it closed its stdout, or ended".to_owned()),
            Ok(Line::TooLong) => Err(format!("it wrote a line of more than {LONGEST_LINE} bytes")),
            Ok(Line::Whole(line)) => Message::read(&line, Source::Stdout).map_err(|why| format!("it wrote {why}")),
        }
    }

    /// The answer to a request; nothing else may come before it but progress.
    pub(super) async fn answer_to(&mut self, number: u64) -> Result<Heard, Why> {
        loop {
            match self.hear().await? {
                Message::Answer { id, result } if id == number => {
                    return Ok(match result {
                        Ok(result) => Heard::Result(result),
                        Err(error) => Heard::Error(error.code, error.message),
                    });
                }
                Message::Answer { id, .. } => return Err(format!("it answered call {id}, and {number} is open")),
                Message::Progress { call, .. } if call == number => {}
                Message::Progress { call, .. } => {
                    return Err(format!("it told progress of call {call}, which is not open"));
                }
                Message::Next { .. } => return Err("it called `next` outside a wrap".to_owned()),
            }
        }
    }

    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<Heard, Why> {
        let number = self.begin(method, params).await?;
        self.answer_to(number).await
    }

    /// Closes its stdin; whether it ends.
    pub(super) async fn close(&mut self) -> Result<(), Why> {
        self.stdin = None;
        match timeout(PATIENCE, self.started.child.wait()).await {
            Ok(Ok(_)) => {
                self.started.group.ended();
                Ok(())
            }
            _ => Err(format!("it still runs {} s after its stdin was closed", PATIENCE.as_secs())),
        }
    }
}
