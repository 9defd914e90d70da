//! Asking a person, on the terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::chat::question::is_yes;

/// Whether somebody can be asked: stdin and stderr are terminals.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Shows the text, asks, and waits for a line. Only `y` and `yes` accept; the end of the input does not.
pub(crate) fn ask(text: &str, question: &str) -> bool {
    let mut err = io::stderr().lock();
    if write!(err, "{text}{question} [y/N] ").and_then(|()| err.flush()).is_err() {
        return false;
    }
    // Whoever cannot see the question cannot answer it, and a stdin that breaks is no answer.
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    if !answer.ends_with('\n') {
        let _ = writeln!(err);
    }
    read.is_ok() && is_yes(answer.trim())
}
