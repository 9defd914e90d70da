//! The process between this one and a command: it leaves the session of the terminal and becomes the command.
//!
//! A program may begin a session only if it leads no process group, and nothing can run between fork and exec without unsafe
//! code. So the executable is started again under another name, begins the session, and executes the shell in its place.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{getppid, setsid};
use tokio::process;

use crate::watcher;

/// What the launching process is called, until it has become the command.
pub(crate) const NAME: &str = "turnbuckle-shell";

/// As shells have it: the command was found and could not be started.
const NOT_STARTED: u8 = 126;

/// The command that starts `line`, through the launcher where this executable may be started again.
pub(super) fn command(line: &str) -> io::Result<process::Command> {
    if !watcher::is_enabled() {
        let mut command = process::Command::new("/bin/sh");
        command.arg("-c").arg(line).process_group(0);
        return Ok(command);
    }
    let mut command = process::Command::new(watcher::executable()?);
    command.arg0(NAME).arg(std::process::id().to_string()).arg(line);
    Ok(command)
}

/// The launching process. It returns only if the command could not be started.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(parent), Some(line)) = (arguments.next(), arguments.next()) else { return ExitCode::from(NOT_STARTED) };
    if let Err(error) = become_command(&parent.to_string_lossy(), line) {
        // This is the command's own output, which the model reads. Where it cannot be written, the exit code says it.
        let _ = writeln!(io::stderr(), "turnbuckle: the command could not be started: {error}");
    }
    ExitCode::from(NOT_STARTED)
}

fn become_command(parent: &str, line: OsString) -> io::Result<()> {
    setsid()?;
    // If the parent died before the session began, there was no group yet that could be killed with it.
    if getppid().map(|pid| pid.as_raw_nonzero().to_string()).as_deref() != Some(parent) {
        return Err(io::Error::other("the process that started it has ended"));
    }
    Err(Command::new("/bin/sh").arg("-c").arg(line).exec())
}
