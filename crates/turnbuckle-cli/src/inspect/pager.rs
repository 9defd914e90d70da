//! Output that is longer than the screen is shown in a pager, as `git` does it. Elsewhere than on a terminal nothing is held back.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Child, Command, Stdio};

use rustix::termios::tcgetwinsize;

use super::print;
use crate::Stopped;
use crate::logging::CLI;
use crate::model_name::provider_variables;
use crate::signals::{Second, Signals};

/// Names the pager of this program; `PAGER` is the one of all programs. An empty one, or `cat`, is none.
const VARIABLES: [&str; 2] = ["TURNBUCKLE_PAGER", "PAGER"];
/// `less` ends if the text fits after all (F), shows colours (R), and leaves the text on the screen (X).
const DEFAULT: &str = "less";
const LESS: &str = "FRX";

/// Where a text goes that may be long.
pub(super) enum Pages {
    /// To stdout as it comes.
    Direct,
    /// Held back until it is known whether it fits the screen.
    Held { text: String, height: usize, pager: String },
    /// Ctrl-C is for the pager. A program that ended of it would leave the terminal to the shell and the pager at once.
    Pager(Child, Option<Signals>),
    /// The person has seen enough.
    Closed,
}

impl Pages {
    /// What stdout wants.
    pub(super) fn of_stdout() -> Self {
        let stdout = io::stdout();
        let height = tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_row));
        let wanted = VARIABLES.iter().find_map(|name| std::env::var(name).ok());
        let pager = wanted.unwrap_or_else(|| DEFAULT.to_owned());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match stdout.is_terminal() && height > 0 && !is_dumb && !matches!(pager.trim(), "" | "cat") {
            true => Self::Held { text: String::new(), height, pager },
            false => Self::Direct,
        }
    }

    /// Prints it, now or later. `false` if nobody reads any more.
    pub(super) fn print(&mut self, more: &str) -> Result<bool, Stopped> {
        match self {
            Self::Direct => print(more),
            Self::Closed => Ok(false),
            Self::Pager(child, _) => {
                let written = child.stdin.as_mut().map(|pipe| pipe.write_all(more.as_bytes()));
                // A pager that was left takes no more.
                Ok(matches!(written, Some(Ok(()))))
            }
            Self::Held { text, height, pager } => {
                text.push_str(more);
                // The prompt that comes back needs a row as well.
                if text.lines().count() < *height {
                    return Ok(true);
                }
                let text = std::mem::take(text);
                *self = start(pager)
                    .map_or(Self::Direct, |child| Self::Pager(child, Signals::listen(Second::IsPassedOn).ok()));
                self.print(&text)
            }
        }
    }

    /// Prints what is held back, and waits until the person has seen enough.
    pub(super) fn finish(&mut self) -> Result<(), Stopped> {
        match std::mem::replace(self, Self::Closed) {
            Self::Held { text, .. } => print(&text).map(drop),
            Self::Pager(mut child, _signals) => {
                drop(child.stdin.take());
                if let Err(error) = child.wait() {
                    tracing::debug!(target: CLI, %error, "the pager could not be waited for");
                }
                Ok(())
            }
            Self::Direct | Self::Closed => Ok(()),
        }
    }
}

/// `None` if it does not start: then the text is printed without one.
fn start(pager: &str) -> Option<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    // It needs no key.
    for name in provider_variables() {
        command.env_remove(name);
    }
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", LESS);
    }
    // A shell starts even if the pager is not there.
    let first = pager.split_whitespace().next()?;
    let is_there =
        first.contains('/') || std::env::split_paths(&std::env::var_os("PATH")?).any(|path| path.join(first).is_file());
    if !is_there {
        return None;
    }
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            tracing::debug!(target: CLI, %error, "the pager does not start");
            None
        }
    }
}

pub(super) fn print_long(text: &str) -> Result<(), Stopped> {
    let mut pages = Pages::of_stdout();
    pages.print(text)?;
    pages.finish()
}
