//! The rule language: which calls of tools are allowed without asking.
//!
//! A rule is `TOOL` or `TOOL(PATTERN)`:
//!
//! | rule | allows |
//! |---|---|
//! | `shell(git status)` | the command `git status`, with no further argument |
//! | `shell(cargo test *)` | `cargo test` with any further arguments; `*` inside a word stands for any part of that word, and quoted (`'*'`) for itself |
//! | `shell(*)`, `shell` | every command that can be parsed |
//! | `write_file(src/**)` | paths below `src`; `*` stands for a part of one name, `**` for any number of folders |
//! | `fetch(docs.rs)`, `fetch(*.rust-lang.org)` | addresses of that host, or of the hosts below it, on the scheme's own port |
//! | `todo` | every call of the tool |
//!
//! A command is parsed and never matched as text. Each part of `a && b`, `a || b`, `a; b` and `a | b` must be allowed by a
//! rule. What the parser does not know is allowed by no rule: variables, substitutions, patterns of file names, assignments,
//! redirections to files, subshells, background jobs, the shell's own constructs, and what changes the shell itself (`export`, `readonly`, `alias`).
//! Such a call is asked about.
//!
//! Which files of the project decide what runs (`turnbuckle.toml`, `.mcp.json`, what is in `.turnbuckle`, `.claude` and every `.git`), a rule for a tool
//! that changes files must say as they are: `write_file(.claude/*)`, `edit_file(.git/hooks/**)`. `write_file(**)`, `write_file` and `apply_patch` allow
//! no change of them.
//!
//! A rule with `*` allows whatever arguments the program takes, also those that run other programs or write files
//! (`find * -exec`, `git log --output=FILE`). The rule's author has to know the program.

pub(crate) mod address;
mod choices;
mod line;
mod path;

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use turnbuckle::store::{ArgumentMatch, MustBe};
use wildmatch::WildMatchPattern;

use super::sandbox::guarded_by;
use crate::files::files_of_patch;

pub(crate) use choices::allow;
pub use choices::{choices, in_words, remark};
use line::STAR;
pub use line::{Unparsed, simple_commands};

/// What a rule's pattern is compared with.
#[derive(Clone, Debug)]
enum Pattern {
    /// No pattern: every call of the tool.
    Any,
    /// Words of one simple command.
    Command(CommandPattern),
    /// A path relative to the project.
    Path(path::PathPattern),
    /// A host.
    Host(address::HostPattern),
}

/// A word in which [`STAR`] stands for any part. No line has the sign for a single one either.
type WordPattern = WildMatchPattern<STAR, '\u{2}'>;

/// Words of a simple command, and whether more may follow.
#[derive(Clone, Debug)]
struct CommandPattern {
    words: Vec<WordPattern>,
    has_rest: bool,
}

/// A rule that allows calls of one tool.
///
/// ```
/// use serde_json::json;
/// use turnbuckle_tools::rules::Rule;
///
/// let rules: Vec<Rule> = ["shell(git status)", "shell(head *)"].iter().map(|rule| rule.parse()).collect::<Result<_, _>>()?;
/// let allows = |command: &str| Rule::allow(&rules, "shell", &json!({ "command": command }));
/// assert!(allows("git status | head -5"));
/// assert!(!allows("git status; rm -rf ."));
/// assert!(!allows("git status > $HOME/.profile"));
/// # Ok::<(), turnbuckle_tools::rules::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    tool: String,
    pattern: Pattern,
    text: String,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Neither `TOOL` nor `TOOL(PATTERN)`.
    #[error("{0:?} is not a rule: write `TOOL` or `TOOL(PATTERN)`, such as `shell(cargo test *)`")]
    Form(String),
    /// A pattern for a tool whose calls have nothing that it could be compared with.
    #[error("calls of `{0}` are not told apart by a pattern: write `{0}` alone")]
    NoPattern(String),
    /// Several commands, or what the shell would expand.
    #[error("the pattern {pattern:?} is not one simple command: {source}")]
    Command {
        /// The pattern as it was given.
        pattern: String,
        /// What is not known in it.
        source: Unparsed,
    },
    /// The name of the program is a part of a word: any program whose path ends so would be allowed.
    #[error("the pattern {0:?} leaves open which program runs: write its whole name, or `*` alone for all programs")]
    Program(String),
    /// A path that leaves the project, or is empty.
    #[error("the pattern {0:?} is not a path below the project: write it relative to the project, without `..`")]
    Path(String),
    /// Not a host.
    #[error("the pattern {0:?} is not a host: write `docs.rs`, `*.docs.rs` or `localhost:8080`")]
    Host(String),
}

impl Rule {
    /// The tool whose calls it allows.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether the rules allow a call with these arguments. The arguments are in their normal form: a path is relative to the
    /// project. What cannot be judged is not allowed.
    pub fn allow<'a>(rules: impl IntoIterator<Item = &'a Self>, tool: &str, arguments: &Value) -> bool {
        Self::allowing(rules, tool, arguments).is_some()
    }

    /// The rules by which a call with these arguments is allowed: one, or one for each command of a line. `None` if it is not.
    pub fn allowing<'a>(
        rules: impl IntoIterator<Item = &'a Self>,
        tool: &str,
        arguments: &Value,
    ) -> Option<Vec<&'a Self>> {
        let rules: Vec<&Self> = rules.into_iter().filter(|rule| rule.tool == tool).collect();
        let text = |key: &str| arguments.get(key).and_then(Value::as_str);
        let rule = match subject_of(tool) {
            Subject::Command => {
                // A call that asks for more than to run a command is not what a rule about commands allows.
                let known = |key: &String| matches!(key.as_str(), "command" | "timeout");
                let is_plain = arguments.as_object().is_some_and(|fields| fields.keys().all(known));
                let commands =
                    simple_commands(text("command")?).ok().filter(|commands| is_plain && !commands.is_empty())?;
                let allowing = |words: &Vec<String>| rules.iter().copied().find(|rule| rule.allows_command(words));
                let mut found: Vec<&Self> = Vec::new();
                for words in &commands {
                    let rule = allowing(words)?;
                    if !found.iter().any(|known| std::ptr::eq(*known, rule)) {
                        found.push(rule);
                    }
                }
                return Some(found);
            }
            Subject::Path(change) => {
                let guarded = guarded_names(tool, arguments);
                rules.into_iter().find(|rule| match (&rule.pattern, &guarded) {
                    (Pattern::Any, guarded) => change == Change::None || *guarded == Some(0),
                    (Pattern::Path(pattern), Some(count)) => {
                        pattern.names_first(*count) && text("path").is_some_and(|path| pattern.matches(path))
                    }
                    _ => false,
                })
            }
            // The name of the tool alone, which names no file.
            Subject::Patch => rules.into_iter().find(|_| guarded_names(tool, arguments) == Some(0)),
            Subject::Host => rules.into_iter().find(|rule| match &rule.pattern {
                Pattern::Any => text("url").is_some(),
                Pattern::Host(pattern) => text("url").is_some_and(|url| pattern.matches(url)),
                _ => false,
            }),
            Subject::Nothing => rules.into_iter().next(),
        };
        Some(vec![rule?])
    }

    fn allows_command(&self, words: &[String]) -> bool {
        match &self.pattern {
            Pattern::Any => true,
            Pattern::Command(CommandPattern { words: patterns, has_rest }) => {
                let is_length = words.len() == patterns.len() || (*has_rest && words.len() > patterns.len());
                is_length && patterns.iter().zip(words).all(|(pattern, word)| pattern.matches(word))
            }
            _ => false,
        }
    }
}

/// What of a call a pattern is compared with.
enum Subject {
    Command,
    Path(Change),
    /// The paths in a patch. There are no patterns for them.
    Patch,
    Host,
    Nothing,
}

/// Whether a tool changes the file at the path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Contents,
}

/// How many names of the files that a call changes a rule must have as they are: none, if no file is guarded. `None` if the files are not known.
fn guarded_names(tool: &str, arguments: &Value) -> Option<usize> {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    match subject_of(tool) {
        Subject::Path(Change::Contents) => text("path").map(|path| guarded_by(path).unwrap_or(0)),
        Subject::Patch => {
            let files = files_of_patch(text("patch")?)?;
            Some(files.iter().filter_map(|file| guarded_by(&file.path)).max().unwrap_or(0))
        }
        _ => Some(0),
    }
}

/// Whether a standing approval of these parts, which a call is like, may cover it: one of a guarded file must name it. Rules are judged by themselves.
pub(crate) fn standing_covers(tool: &str, parts: &[ArgumentMatch], arguments: &Value) -> bool {
    let is_by_rules = |part: &ArgumentMatch| matches!(part.must, MustBe::AllowedBy(_));
    guarded_names(tool, arguments) == Some(0) || parts.iter().any(|part| names_files(part) || is_by_rules(part))
}

/// Whether a part of a standing approval says which files are changed.
fn names_files(part: &ArgumentMatch) -> bool {
    matches!(part.must, MustBe::Equals(_)) && matches!(part.pointer.as_str(), "" | "/path" | "/patch")
}

fn subject_of(tool: &str) -> Subject {
    match tool {
        "shell" => Subject::Command,
        "fetch" => Subject::Host,
        "read_file" | "list_files" | "search_files" => Subject::Path(Change::None),
        "write_file" | "edit_file" => Subject::Path(Change::Contents),
        "apply_patch" => Subject::Patch,
        _ => Subject::Nothing,
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let form = || RuleError::Form(text.to_owned());
        let trimmed = text.trim();
        let (tool, pattern) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').ok_or_else(form)?.trim())),
        };
        let is_name = |sign: char| sign.is_ascii_alphanumeric() || "_-".contains(sign);
        if tool.is_empty() || !tool.chars().all(is_name) || pattern.is_some_and(str::is_empty) {
            return Err(form());
        }
        let pattern = match (pattern, subject_of(tool)) {
            (None, _) => Pattern::Any,
            (Some(pattern), Subject::Command) => command_pattern(pattern)?,
            (Some(pattern), Subject::Path(_)) => Pattern::Path(path::PathPattern::new(pattern)?),
            (Some(pattern), Subject::Host) => Pattern::Host(address::HostPattern::new(pattern)?),
            (Some(_), Subject::Patch | Subject::Nothing) => return Err(RuleError::NoPattern(tool.to_owned())),
        };
        Ok(Self { tool: tool.to_owned(), pattern, text: trimmed.to_owned() })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Words are separated by blanks and may be quoted as in a command. `*` is the only sign with a meaning of its own, and quoted or behind a backslash it
/// is itself.
fn command_pattern(pattern: &str) -> Result<Pattern, RuleError> {
    if pattern == "*" {
        return Ok(Pattern::Any);
    }
    let refused = |source| RuleError::Command { pattern: pattern.to_owned(), source };
    let mut words = line::pattern_words(pattern).map_err(refused)?;
    let has_rest = words.last().is_some_and(|word| word.chars().eq([STAR]));
    if has_rest {
        words.pop();
    }
    if words.first().is_none_or(|program| program.contains(STAR)) {
        return Err(RuleError::Program(pattern.to_owned()));
    }
    let words = words.iter().map(|word| WordPattern::new(word)).collect();
    Ok(Pattern::Command(CommandPattern { words, has_rest }))
}

#[cfg(test)]
mod tests;
