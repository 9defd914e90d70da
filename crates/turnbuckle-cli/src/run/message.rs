//! The message: the argument, stdin, or both.
//!
//! Without an argument stdin is the message. Beside one, what comes through a pipe is given to the model with it, fenced: a log or a
//! diff that somebody else may have written. Nobody is kept waiting by a pipe that a parent process left open, and nothing is read that
//! happens to be on stdin, such as the rest of a script in a loop: both need `--stdin`.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use turnbuckle::hook::Fence;
use turnbuckle::message::{Content, Part};

use crate::Stopped;
use crate::output;
use crate::problem::Problem;
use crate::read_file::{PIPED, ReadError, text};

/// How to give one.
pub(super) const HOW: &str = "turnbuckle run \"…\", or pipe it in";
/// How long a pipe beside a message may stay silent.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the message comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) argument: Option<&'a str>,
    /// Whether stdin is read to its end, whatever it is: the option `--stdin`.
    pub(super) stdin: bool,
    /// Whether there need not be a message.
    pub(super) may_be_none: bool,
}

/// The message, which must say something. `None` if there is none and there need not be one.
pub(super) fn read(given: Given<'_>) -> Result<Option<Content>, Stopped> {
    let Given { argument, stdin, may_be_none } = given;
    let empty = |what: &str| Stopped::usage(Problem::error(what).hint(HOW));
    let Some(argument) = argument else {
        if io::stdin().is_terminal() && !stdin {
            return if may_be_none { Ok(None) } else { Err(empty("there is no message")) };
        }
        let piped = from_stdin()?;
        return match piped.trim().is_empty() {
            true if may_be_none && !stdin => Ok(None),
            true => Err(empty("the message is empty")),
            false => Ok(Some(Content::from(piped))),
        };
    };
    if argument.trim().is_empty() {
        return Err(empty("the message is empty"));
    }
    let beside = if stdin || is_ready_pipe() { from_stdin()? } else { String::new() };
    let message = Part::text(argument);
    Ok(Some(match beside.trim().is_empty() {
        true => Content::from(argument),
        false => [message, Fence::new("stdin").wrap(&beside)].into_iter().collect(),
    }))
}

/// Whether stdin is a pipe through which something comes, or that was closed. Says so if nothing comes.
fn is_ready_pipe() -> bool {
    let stdin = io::stdin();
    let is_pipe = rustix::fs::fstat(&stdin).is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::Fifo);
    if !is_pipe {
        return false;
    }
    let give_up = Instant::now() + PATIENCE;
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                output::say(
                    "note: nothing came through the pipe on stdin within 3 seconds, so it is not read; `--stdin` waits for it",
                );
                return false;
            }
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn from_stdin() -> Result<String, Stopped> {
    let mut text = text(io::stdin().lock(), PIPED).map_err(|error| match error {
        ReadError::Io(error) => Stopped::failed(Problem::error(format!("reading the message from stdin: {error}"))),
        error => {
            let hint = error.hint("pipe in a text");
            Stopped::usage(Problem::error(format!("the message on stdin cannot be used: {error}")).hint(hint))
        }
    })?;
    // `echo hi |` means hi.
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    Ok(text)
}
