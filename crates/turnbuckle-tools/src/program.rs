//! A program that runs beside this process for longer than one call, such as an MCP server.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use turnbuckle::hooks::ProgramCheck;

use crate::command::env::ProgramEnv;
use crate::command::process::{self, Started};
use crate::command::{CommandError, CommandLine};

/// What to start, and with which environment.
#[derive(Clone)]
pub struct ProgramOptions {
    /// The program and its arguments.
    pub line: CommandLine,
    /// Where it runs.
    pub folder: PathBuf,
    /// Variables that it does not get, beside those that look like secrets, as for [`ShellOptions::withheld_env`](crate::ShellOptions).
    pub withheld_env: Vec<String>,
    /// Variables that it gets all the same.
    pub pass_env: Vec<String>,
    /// Variables that it has besides.
    pub env: Vec<(String, String)>,
    /// Asked before each start.
    pub check: Option<ProgramCheck>,
}

/// A program that was started, in a process group of its own. Dropping it kills the group, and with
/// [`watch_programs`](crate::watch_programs) the group ends with this process, however that ends.
pub struct Program(Started);

/// Its three pipes.
#[derive(Debug)]
pub struct Pipes {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it answers.
    pub stdout: ChildStdout,
    /// What it says besides. Somebody must read it, or the program stands still when the pipe is full.
    pub stderr: ChildStderr,
}

impl Program {
    /// Starts it, and gives its pipes.
    pub async fn start(options: &ProgramOptions) -> Result<(Self, Pipes), CommandError> {
        let env = ProgramEnv::for_tools(&options.withheld_env, &options.pass_env, &options.env, options.check.clone());
        let mut started = process::start(&options.line, &options.folder, &env).await?;
        let child = &mut started.child;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((Self(started), Pipes { stdin, stdout, stderr })),
            _ => {
                let (command, source) = (options.line.to_string(), io::ErrorKind::BrokenPipe.into());
                Err(CommandError::Start { command, source })
            }
        }
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.0.child.wait().await
    }
}
