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

/// One line of at most 80 characters, for messages.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = match self {
            Self::Shell(line) => line.clone(),
            Self::Argv(words) => words.join(" "),
        };
        let line = whole.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(80) {
            Some((end, _)) => write!(f, "{}…", &line[..end]),
            None => f.write_str(&line),
        }
    }
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
}
