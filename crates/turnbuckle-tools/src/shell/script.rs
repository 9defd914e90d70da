//! What a shell that waits is told, so that it runs a line with the result that `sh -c` would have.
//!
//! The shell reads it from its stdin as a script. A shell executes what it has read when its input ends, even without the end of the line. So the
//! first part opens a group, which only the word to begin closes: a group that is not closed is a syntax error, of which nothing is executed.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::rules;

/// What the shell is. Commands must not depend on how it was started.
pub(super) const SHELL: &str = "/bin/sh";

/// The word to begin. The shell must not read on: its input is another one by then.
pub(super) const BEGIN: &str = "\nexit\n}\n";

/// A single argument of a program is shorter on Linux, its end included.
const LONGEST_ARGUMENT: usize = 128 * 1024;

/// How a shell that reads a script executes a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As part of the script.
    Itself,
    /// By executing `sh -c` in its own place.
    Anew,
}

/// All but the word to begin. Also the line is not read from where the commands in it read: their stdin is empty.
pub(super) fn opening(line: &str) -> io::Result<String> {
    match way(line, *IS_SAME.get().unwrap_or(&false)) {
        Way::Itself => Ok(format!("{{ exec </dev/null; {line}")),
        Way::Anew if line.contains('\0') => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "the command contains a zero byte"))
        }
        Way::Anew if line.len() >= LONGEST_ARGUMENT => Err(io::ErrorKind::ArgumentListTooLong.into()),
        Way::Anew => Ok(format!("{{ exec </dev/null; exec {SHELL} -c '{}'", line.replace('\'', r"'\''"))),
    }
}

/// The parser of rules lets no line through that could close the group or that has a syntax error. Of other lines `eval` would change what is
/// written about errors, and what the shell says about itself (`$-`, `$0`) would be another thing in a script.
fn way(line: &str, is_same: bool) -> Way {
    if is_same && rules::simple_commands(line).is_ok() { Way::Itself } else { Way::Anew }
}

/// Whether the shell of this machine does the same with simple commands in a script as behind `-c`. Not set: it has not been tried.
static IS_SAME: OnceLock<bool> = OnceLock::new();

/// Finds out what [`opening`] must know of the shell; it starts a process and waits for it. Until then the line is given to a new shell.
pub(super) fn look_at_shell() {
    IS_SAME.get_or_init(|| is_same(Path::new(SHELL)).unwrap_or_default());
}

pub(super) fn is_shell_known() -> bool {
    IS_SAME.get().is_some()
}

/// Of `dash` it is known, as long as it does not execute the last program behind `-c` in its own place: then a signal that ends the program would end
/// the shell as well. `bash` does that, and writes of programs that were ended by a signal in scripts only.
fn is_same(shell: &Path) -> io::Result<bool> {
    if shell.canonicalize()?.file_name().is_none_or(|name| name != "dash") {
        return Ok(false);
    }
    let mut command = Command::new(shell);
    command.args(["-c", "/bin/cat /proc/self/stat"]).env_clear();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let own = child.id().to_string();
    let output = child.wait_with_output()?;
    // It begins with the number of the process.
    let number = output.stdout.split(|byte| *byte == b' ').next().unwrap_or_default();
    Ok(output.status.success() && !number.is_empty() && number != own.as_bytes())
}

#[cfg(test)]
mod tests;
