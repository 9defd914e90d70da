//! What to run.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use tokio::process;

use super::CommandError;

/// A string is `sh -c`, an array is argv.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "must be a string or a list of strings")]
pub enum CommandLine {
    /// `sh -c` this.
    Shell(String),
    /// A program and its arguments. A relative path with a `/` starts at the hook's folder.
    Argv(Vec<String>),
}

impl CommandLine {
    /// Whether it names no program.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Shell(line) => line.trim().is_empty(),
            Self::Argv(words) => words.first().is_none_or(|program| program.trim().is_empty()),
        }
    }

    pub(super) fn command(&self, cwd: &Path) -> Result<process::Command, CommandError> {
        match self {
            Self::Shell(line) if line.trim().is_empty() => Err(CommandError::Empty),
            Self::Shell(line) => {
                let mut command = process::Command::new("sh");
                command.arg("-c").arg(line);
                Ok(command)
            }
            Self::Argv(words) => {
                let [program, arguments @ ..] = &**words else { return Err(CommandError::Empty) };
                // Which folder a relative program starts at is left open by the standard library.
                let mut command = match program.contains('/') {
                    true => process::Command::new(cwd.join(program)),
                    false => process::Command::new(program),
                };
                command.args(arguments);
                Ok(command)
            }
        }
    }
}

/// One line of at most 80 characters, for messages: they are kept in logs, so addresses lose their passwords and queries.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = match self {
            Self::Shell(line) => line.clone(),
            Self::Argv(words) => words.join(" "),
        };
        let line = whole.split_whitespace().map(without_secrets).collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(80) {
            Some((end, _)) => write!(f, "{}…", &line[..end]),
            None => f.write_str(&line),
        }
    }
}

/// A word without what stands before the host of an address in it, and without its query: either may be a password or a token.
fn without_secrets(word: &str) -> String {
    const SCHEME_END: &str = "://";
    let mut shown = String::new();
    for piece in word.split_inclusive(['"', '\'', '`', '<', '>']) {
        let Some((scheme, address)) = piece.split_once(SCHEME_END) else {
            shown.push_str(piece);
            continue;
        };
        // A password may hold any sign, so it ends at the last `@`.
        let (hidden, address) = address.rsplit_once('@').map_or(("", address), |(_, host)| ("…@", host));
        let end = address.find(['"', '\'', '`', '<', '>']).unwrap_or(address.len());
        let (address, quote) = address.split_at(end);
        let (path, query) = address.split_once('?').map_or((address, ""), |(path, _)| (path, "?…"));
        shown.extend([scheme, SCHEME_END, hidden, path, query, quote]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_for_the_shell_and_an_array_is_argv() {
        let shell: CommandLine = serde_json::from_str(r#""cargo check""#).unwrap();
        assert_eq!(shell, CommandLine::Shell("cargo check".into()));
        let argv: CommandLine = serde_json::from_str(r#"["cargo", "check"]"#).unwrap();
        assert_eq!(argv, CommandLine::Argv(vec!["cargo".into(), "check".into()]));
    }

    #[test]
    fn a_long_line_is_shortened_in_messages() {
        assert_eq!(CommandLine::Shell("a\n  b".into()).to_string(), "a b");
        assert!(CommandLine::Shell("é".repeat(100)).to_string().ends_with("é…"));
    }
    #[test]
    fn a_message_has_no_password_of_an_address() {
        let long = "x".repeat(70);
        for (line, shown) in [
            ("curl https://ann:HUNTER2@host/x | sh", "curl https://…@host/x | sh"),
            ("curl 'https://ann:HUN@T/ER2@host/x?token=HUNTER2'", "curl 'https://…@host/x?…'"),
            ("psql \"postgres://ann:HUNTER2@db/x\" -c x@y", "psql \"postgres://…@db/x\" -c x@y"),
            ("A=https://h/p B=ann@host", "A=https://h/p B=ann@host"),
            (&*format!("{long} https://ann:HUNTER2@host"), &*format!("{long} https://…")),
        ] {
            assert_eq!(
                CommandLine::Shell(line.into()).to_string(),
                shown.to_owned() + if line.starts_with('x') { "…" } else { "" }
            );
        }
    }
}
