//! The programs that hooks start end with this process, however it ends.
//!
//! A process that is killed with SIGKILL runs no code any more. So a second, small process watches: it holds the reading end of
//! a pipe, and when that closes it kills the process groups that are noted in a file. Before the first program starts, programs of
//! processes that died before are waited for, so that none runs beside its successor. `docs/design/0007-programs-end-with-the-process.md`
//! has the reasons and the limits.

mod client;
mod identity;
mod noted;
mod record;
mod server;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use client::{Ticket, begin, executable, wait_for_the_dead};

use crate::shell::launcher;

/// What the watching process is called in a list of processes, and how it knows what it is.
const NAME: &str = "turnbuckle-watcher";

/// The line by which a watcher knows that it is told of programs through the pipe, from here on, and not by its file.
const BY_PIPE: &str = "pipe";

/// A variable that each program of a hook is given, with a value of its own: the watcher finds by it a program that was started in
/// the moment in which this process was killed.
pub(crate) const VARIABLE: &str = "TURNBUCKLE_PROGRAM";

/// Whether the variable, with its end, is one of the environment.
fn has_variable(environment: &[u8], variable: &[u8]) -> bool {
    environment.split_inclusive(|byte| *byte == 0).any(|one| one == variable)
}

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Whether this executable may be started again under another name.
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Acquire)
}

/// Makes the programs of hooks end with this process, also if it is killed with SIGKILL.
///
/// Call it first in `main`, before arguments are read. The watching process is this executable, started again under the name
/// `turnbuckle-watcher`: in that process the function returns a code to exit with. It is started with the first program, not before.
/// Commands of the [shell tool](crate::Shell) are started by the same executable under the name `turnbuckle-shell`, which gives them
/// a session of their own and confines them. It must have one thread then, so nothing may come before this call.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(code) = turnbuckle_tools::watch_programs() {
///         return code;
///     }
///     // The program.
///     ExitCode::SUCCESS
/// }
/// ```
///
/// Without it, [`kill_all_groups`](crate::kill_all_groups) ends them in a process that ends by itself, and after SIGKILL they go
/// on until they end by themselves.
#[must_use = "in the watching process, `main` must return this code"]
pub fn watch_programs() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    if name.as_ref().is_some_and(|name| name == NAME) {
        return Some(server::run(arguments.next().as_deref().map(AsRef::as_ref)));
    }
    if name.is_some_and(|name| name == launcher::NAME) {
        return Some(launcher::run(arguments));
    }
    let mut arguments = arguments.peekable();
    if arguments.next_if(|first| first == launcher::INSIDE_BUBBLEWRAP).is_some() {
        return Some(launcher::run_inside_bubblewrap(arguments));
    }
    ENABLED.store(true, Ordering::Release);
    None
}

/// The folder in `/tmp` in which processes of this user find each other's programs, if somebody else made it or may write to it. It
/// is not used then. Programs still end with their process; but where the user has no runtime folder (`/run/user/UID`) either, a turn
/// that is taken up after a crash does not wait for programs of the process that died.
///
/// ```
/// if let Some(folder) = turnbuckle_tools::foreign_watch_folder() {
///     eprintln!("warning: {} is not yours alone", folder.display());
/// }
/// ```
pub fn foreign_watch_folder() -> Option<PathBuf> {
    record::foreign_folder()
}

/// Why programs cannot be started: nothing would end them with this process, or some of an earlier process may still run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The watching process could not be started, or does not answer.
    #[error("the process that ends programs with this one cannot be started: {0}")]
    Start(#[source] io::Error),
    /// The watching process could not be told.
    #[error("the process that ends programs with this one cannot be told about it: {0}")]
    Tell(#[source] io::Error),
    /// A Turnbuckle process died, and its programs have not been ended yet.
    #[error("the programs of process {owner}, which has died, are still being ended")]
    Earlier {
        /// The process that died.
        owner: u32,
    },
}
