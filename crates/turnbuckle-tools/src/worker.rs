//! A program that stays: hooks in any language, in one process, without a process start for each call: `use = "worker"`.
//!
//! # What it does
//!
//! The program is started when one of its hooks is first called, and then asked over its stdin and stdout, in lines of
//! JSON-RPC 2.0. Calls run at the same time. `docs/hook-workers.md` describes the protocol; `sdk/python` and `sdk/typescript` have it ready.
//!
//! - What a hook in the worker decides is what a hook in Rust could decide at that point. An answer that makes no sense there,
//!   or an error, is the hook's failure and follows `on_failure`.
//! - Where a worker has several hooks at a point they are asked one after the other. Edits add up; the first decision that is
//!   more than an edit is the decision of the worker.
//! - A worker that ends, breaks the protocol or does not react to a cancellation within 5 s is ended with its process group,
//!   and all its open calls fail. The next call starts it again: at once after the first failure, then after a pause that
//!   doubles from 0.2 s to 30 s. A call waits up to 2 s for a pause to end, and fails at once during a longer one.
//! - It may have 64 calls open; a line of it may have 4 MiB. So what it makes this process keep is bounded.
//! - When a turn is cancelled, or the time of a hook is up, its call is cancelled: the worker is told, and must answer.
//! - It ends with the agent, and with the process. Its environment is that of a [command hook](crate::command).
//!
//! # Points
//!
//! Those that `on` names: any. If the worker serves other points than these, every call fails, and blocks whatever `on_failure` says:
//! what runs where is known before anything was started, and a guard that is missing is noticed.
//!
//! At `stream` the worker is given batches of chunks, and each answer has the hook's `timeout`. One that is late or fails blocks.
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `on` | required | the points that the worker serves, as a list |
//! | `run` | required | a string is given to `sh -c`, a list is the program and its arguments; it runs in the project's folder |
//! | `pass_env` | `[]` | variables that are withheld from programs, and that this one gets |
//!
//! # Example
//!
//! ```toml
//! [[hooks]]
//! use = "worker"
//! name = "policies"
//! on = ["before_tool", "on_stop"]
//! run = ["python3", "hooks.py"]
//! on_failure = "block"
//! ```

mod answer;
mod ask;
mod call;
pub mod conform;
mod connection;
mod error;
mod link;
mod message;
mod outgoing;
mod points;
mod remote;
mod serve;
mod service;
mod stream;
mod supervisor;
mod wire;
mod wraps;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use turnbuckle::hook::{HookEntry, Point, Points};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};

use crate::command::CommandLine;
use crate::command::env::ProgramEnv;
use connection::Patience;
pub use error::WorkerError;
pub(crate) use points::WorkerPoints;
pub(crate) use remote::Remote;
pub(crate) use serve::last_lines;
pub(crate) use service::{Endpoint, Service};
use supervisor::{Program, Worker};

/// Hooks in a program that stays; becomes a [`HookEntry`] at the points it was made for.
///
/// ```
/// use turnbuckle::hook::{HookEntry, Point};
/// use turnbuckle_tools::{CommandLine, WorkerHook};
///
/// let run = CommandLine::Argv(vec!["python3".into(), "hooks.py".into()]);
/// let entry: HookEntry = WorkerHook::new("policies", [Point::BeforeTool], run, ".")?.into();
/// assert!(entry.points().iter().eq([Point::BeforeTool]));
/// # Ok::<(), turnbuckle::hooks::OptionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct WorkerHook {
    program: Program,
}

impl WorkerHook {
    /// Runs `run` in the folder `cwd`; it serves exactly these points. Nothing is started yet.
    ///
    /// # Errors
    ///
    /// There is no point.
    pub fn new(
        name: impl Into<String>,
        points: impl IntoIterator<Item = Point>,
        run: CommandLine,
        cwd: impl Into<PathBuf>,
    ) -> Result<Self, OptionError> {
        let points: Points = points.into_iter().collect();
        if points == Points::default() {
            return Err(OptionError::new("on", "names no point: the worker would never run"));
        }
        let patience = Patience { handshake: Duration::from_secs(10), reaction: Duration::from_secs(5) };
        let env = ProgramEnv::default();
        Ok(Self { program: Program { name: name.into(), line: run, cwd: cwd.into(), env, points, patience } })
    }

    /// Withholds these variables from the program. Otherwise it has the whole environment of this process.
    #[must_use]
    pub fn without_env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.program.env = ProgramEnv::without(names);
        self
    }

    /// How long the worker may take to answer a call that was cancelled, and to read a line, before it counts as hung.
    #[must_use]
    pub fn reaction_time(mut self, limit: Duration) -> Self {
        self.program.patience.reaction = limit;
        self
    }
}

impl ConfigHook for WorkerHook {
    const NAME: &'static str = "worker";
    const SUMMARY: &'static str = "asks a program that stays, in any language, at the points it serves";
    type Options = WorkerOptions;

    fn from_options(options: WorkerOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        if options.run.is_empty() {
            let why = "names no program: a string is given to `sh -c`, a list is the program and its arguments";
            return Err(OptionError::new("run", why));
        }
        let mut hook = Self::new(Self::NAME, options.on, options.run, context.folder)?;
        hook.program.env = ProgramEnv::of(context, &options.pass_env)?;
        Ok(hook)
    }

    fn entry(mut self, name: String) -> HookEntry {
        self.program.name = name;
        self.into()
    }
}

/// Options of [`WorkerHook`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerOptions {
    /// The points that the worker serves.
    pub on: Vec<Point>,
    /// What runs.
    pub run: CommandLine,
    /// Variables that are withheld from programs, and that this one gets.
    #[serde(default)]
    pub pass_env: Vec<String>,
}

impl From<WorkerHook> for HookEntry {
    fn from(WorkerHook { program }: WorkerHook) -> Self {
        let (name, points) = (program.name.as_str().into(), program.points);
        WorkerPoints { name, points, remote: Remote::Worker(Worker::new(program)) }.into()
    }
}
