//! The message: the argument, or stdin.

use std::io::{self, IsTerminal};

use crate::Stopped;
use crate::problem::Problem;
use crate::read_file::{PIPED, ReadError, text};

/// How to give one.
pub(super) const HOW: &str = "turnbuckle run \"…\", or pipe it in";

/// The message, which must say something. `None` if there is none and there `may_be_none`.
pub(super) fn read(argument: Option<&str>, may_be_none: bool) -> Result<Option<String>, Stopped> {
    let message = match argument {
        Some(argument) => argument.to_owned(),
        None if may_be_none => {
            let piped = if io::stdin().is_terminal() { String::new() } else { from_stdin()? };
            return Ok(Some(piped).filter(|text| !text.trim().is_empty()));
        }
        None if io::stdin().is_terminal() => {
            return Err(Stopped::usage(Problem::error("there is no message").hint(HOW)));
        }
        None => from_stdin()?,
    };
    if message.trim().is_empty() {
        return Err(Stopped::usage(Problem::error("the message is empty").hint(HOW)));
    }
    Ok(Some(message))
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
