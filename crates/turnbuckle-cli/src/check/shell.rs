//! Shell strings of command hooks, judged without running them: their syntax, and whether their first command exists.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a question to the shell may take. It reads a string and answers; more than this means that it hangs.
const MAX_TIME: Duration = Duration::from_secs(2);
/// How often it is asked whether it has ended.
const POLL: Duration = Duration::from_millis(2);
/// Kept of what the shell says.
const MAX_COMPLAINT: u64 = 4 << 10;

/// What is wrong with a shell string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ShellFault {
    /// It cannot be parsed; the shell's words.
    Syntax(String),
    /// Its first command is no program, builtin or function.
    NoSuchCommand {
        name: String,
        /// Whether nothing else in the string could make up for it.
        alone: bool,
    },
}

/// What is wrong with a string that `sh -c` would run in `folder`; nothing if that cannot be found out.
pub(crate) fn fault(line: &str, folder: &Path) -> Option<ShellFault> {
    if let Some(complaint) = syntax_error(line, folder) {
        return Some(ShellFault::Syntax(complaint));
    }
    let name = first_command(line)?;
    let found = match name.contains('/') {
        true => folder.join(name).is_file(),
        false => super::exists(name, folder) || is_known_to_shell(name, folder)?,
    };
    let alone = !line.contains(['|', '&', ';', '\n']);
    (!found).then(|| ShellFault::NoSuchCommand { name: name.to_owned(), alone })
}

/// What `sh -n` says. The string goes in through stdin: some shells run the string of `-c` in spite of `-n`.
fn syntax_error(line: &str, folder: &Path) -> Option<String> {
    let (ok, said) = ask(Command::new("sh").arg("-n"), line, folder)?;
    (!ok).then(|| said.trim().trim_start_matches("sh: ").to_owned())
}

/// Whether the shell has a builtin of this name. The name is an argument of a fixed string, so it is not run.
fn is_known_to_shell(name: &str, folder: &Path) -> Option<bool> {
    let mut command = Command::new("sh");
    command.args(["-c", "command -v -- \"$1\" >/dev/null", "sh", name]);
    ask(&mut command, "", folder).map(|(ok, _)| ok)
}

/// Runs the shell with this on stdin. Gives whether it ended well and what it wrote to stderr; `None` if it could not be started
/// or took too long.
fn ask(command: &mut Command, stdin: &str, folder: &Path) -> Option<(bool, String)> {
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let pipe = child.stdin.take();
    let text = stdin.to_owned();
    // In a thread of its own: a shell that does not read would hold up the write until it is killed.
    let writer = std::thread::spawn(move || pipe.is_some_and(|mut pipe| pipe.write_all(text.as_bytes()).is_ok()));
    let ended = wait(&mut child);
    // A shell that found an error need not read the rest.
    let _ = writer.join();
    let ok = ended?;
    let mut said = Vec::new();
    child.stderr.take()?.take(MAX_COMPLAINT).read_to_end(&mut said).ok()?;
    Some((ok, String::from_utf8_lossy(&said).into_owned()))
}

/// Whether it ended well; killed if it takes too long.
fn wait(child: &mut Child) -> Option<bool> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if began.elapsed() < MAX_TIME => std::thread::sleep(POLL),
            _ => {
                // It may have ended in this moment; either way it is reaped.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// Words in front of a command.
const BEFORE_COMMAND: &[&str] = &["if", "while", "until", "!", "{", "(", "time"];
/// Words behind which no command stands.
const NOT_COMMANDS: &[&str] = &["for", "case", "select", "function", "[["];

/// The name of the first command, if it is written out plainly: no quotes, no expansions.
fn first_command(line: &str) -> Option<&str> {
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix('#') {
            rest = comment.split_once('\n')?.1;
            continue;
        }
        if let Some(inner) = rest.strip_prefix('(') {
            rest = inner;
            continue;
        }
        let end = rest.find(|letter: char| letter.is_whitespace() || ";|&()<>".contains(letter)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let is_assignment = word.split_once('=').is_some_and(|(name, _)| !name.is_empty());
        let is_plain = !word.contains(['$', '`', '"', '\'', '\\', '*', '?', '~', '<', '>']);
        if word.is_empty() || !is_plain || behind.trim_start().starts_with('(') || NOT_COMMANDS.contains(&word) {
            return None;
        }
        if !is_assignment && !BEFORE_COMMAND.contains(&word) {
            return Some(word);
        }
        rest = behind.trim_start_matches([';', '&']);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_is_found_where_it_is_written_plainly() {
        for (line, name) in [
            ("cargo check --quiet || exit 2", Some("cargo")),
            ("  # why\n lint", Some("lint")),
            ("A=1 B= lint -x", Some("lint")),
            ("if tru; then echo; fi", Some("tru")),
            ("! grep -q x", Some("grep")),
            ("{ lint; }", Some("lint")),
            ("(cd x && make)", Some("cd")),
            ("lint>out", Some("lint")),
            ("[ -e x ]", Some("[")),
            ("./scripts/lint.sh", Some("./scripts/lint.sh")),
            ("lint() { echo; }; lint", None),
            ("$LINT x", None),
            ("\"my lint\" x", None),
            ("for x in a; do echo; done", None),
            ("A=\"b c\" lint", None),
            ("> out", None),
            ("# nothing", None),
            ("", None),
        ] {
            assert_eq!(first_command(line), name, "{line}");
        }
    }

    #[test]
    fn a_string_is_judged_without_being_run() {
        let folder = tempfile::tempdir().unwrap();
        let judged = |line: &str| fault(line, folder.path());
        for fine in
            ["touch ran", "cd . && touch ran", "A=1 :", "touch ran; $(touch ran)", "cat <<X\nif\nX", "[ -e ran ]"]
        {
            assert_eq!(judged(fine), None, "{fine}");
        }
        assert!(matches!(judged("touch ran; if true; then; fi"), Some(ShellFault::Syntax(_))));
        assert!(matches!(judged("echo 'open"), Some(ShellFault::Syntax(_))));
        let missing = |name: &str, alone| Some(ShellFault::NoSuchCommand { name: name.to_owned(), alone });
        assert_eq!(judged("no-such-command --flag"), missing("no-such-command", true));
        assert_eq!(judged("no-such-command || touch ran"), missing("no-such-command", false));
        assert_eq!(judged("./no-such-file"), missing("./no-such-file", true));
        assert!(!folder.path().join("ran").exists());
    }
}
