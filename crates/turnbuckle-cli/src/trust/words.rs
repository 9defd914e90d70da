//! What in a command may be the name of a file.
//!
//! A command is read the way a shell reads it: quotes, backslashes, comments, `$(…)` and redirections. Whoever wants a script to
//! change unnoticed would look for a spelling that is read wrongly here, so the reading errs on the side of too many names: the
//! text is read again from the start of each line (a quote in a here-document must not hide what follows), with and without
//! comments, and is cut at every sign that means something to some shell. A name that is no file of the project costs nothing.
//!
//! Only one thing is left out: a word that a shell, or a command such as `tee`, does nothing with but write to it, and a word that
//! is only read of what is written there. A hook that writes a log would otherwise change its own acceptance with each run.

mod read_back;
mod reader;

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

use read_back::read_back;
use reader::{Reading, Token, targets, tokens};

/// The most bytes of one command, and the most lines: each line is a place to read from, so this bounds the work.
const MOST_BYTES: usize = 16 << 10;
const MOST_LINES: usize = 128;
/// The most names in one command, and the most bytes of one: no system has longer paths.
const MOST_NAMES: usize = 4096;
const LONGEST_NAME: usize = 4096;
/// The most bytes of texts in a command that are read as commands themselves, as `eval '…'` does, and how deep.
const MOST_NESTED: usize = 8 * MOST_BYTES;
const DEEPEST: usize = 8;
/// The most words that one word with braces stands for. Beyond that they count as computed.
const MOST_BRACES: usize = 64;

/// Stands in a word for what a variable or another command gives. A command cannot hold it: no argument of a program can.
const EXPANDED: char = '\0';

/// Why the names in a command cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WordError {
    #[error("a command of a hook has {bytes} bytes, and {MOST_BYTES} are the most: put it into a script")]
    Long { bytes: usize },
    #[error("a command of a hook has {lines} lines, and {MOST_LINES} are the most: put it into a script")]
    ManyLines { lines: usize },
    #[error("a command of a hook has more than {MOST_NAMES} words that may be files: put it into a script")]
    ManyNames,
    #[error("a command of a hook has too many commands in quotes: put it into a script")]
    ManyNested,
    #[error("a command of a hook spells a name that is not UTF-8")]
    NotText,
}

/// Names that a command spells.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// What may be a file that the command reads or runs.
    pub(super) used: BTreeSet<String>,
    /// What the command writes to, by a redirection or with a command such as `tee`.
    pub(super) written: BTreeSet<String>,
    /// Some names are known only when the command runs: a pattern, a variable, the output of a program.
    pub(super) computed: bool,
    /// What stood in quotes and was read as a command, too, and how many bytes it had.
    nested: BTreeSet<String>,
    nested_bytes: usize,
}

/// The names in a command: a string for the shell, or a list of words.
pub(super) fn names(command: &Value) -> Result<Names, WordError> {
    let mut names = Names::default();
    match command {
        Value::String(line) => names.add_line(line, Text::Shell { may_write: !can_rename(line) }, 0)?,
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let shell = Text::Shell { may_write: !can_rename(&words.join(" ")) };
            let mut text = Text::Unknown;
            for word in words {
                names.add(word, false);
                // One word of a list may be a whole line for a shell: `["sh", "-c", "./lint.sh --fix"]`.
                names.add_line(word, text, 0)?;
                if is_shell(word) {
                    text = shell;
                }
            }
        }
        _ => {}
    }
    Ok(names)
}

/// Whether some names in a command are known only when it runs.
pub(super) fn computes_names(command: &Value) -> bool {
    names(command).is_ok_and(|names| names.computed)
}

/// The variable that a plugin's commands find its folder by.
pub(super) const PLUGIN_ROOT: &str = "CLAUDE_PLUGIN_ROOT";

/// Who reads a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    /// Certainly a shell. `may_write`: its `tee` is the one that everybody knows.
    Shell { may_write: bool },
    /// A shell, perhaps after another one has taken the quotes away. It is not known which of its words are written to.
    Quoted,
    /// Perhaps another program. In another language `>` compares, and what follows it may be loaded.
    Unknown,
}

const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"];
/// Commands that take names from what other programs print or from the folders that they look through.
const FINDERS: [&str; 3] = ["xargs", "find", "parallel"];

pub(super) fn is_shell(word: &str) -> bool {
    SHELLS.contains(&word.rsplit('/').next().unwrap_or(word))
}

impl Names {
    fn add_line(&mut self, line: &str, read_by: Text, depth: usize) -> Result<(), WordError> {
        if line.len() > MOST_BYTES {
            return Err(WordError::Long { bytes: line.len() });
        }
        let starts: Vec<usize> = std::iter::once(0).chain(line.match_indices('\n').map(|(at, _)| at + 1)).collect();
        if starts.len() > MOST_LINES {
            return Err(WordError::ManyLines { lines: starts.len() });
        }
        let left_out = self.left_out(line, read_by)?;
        let is_left_out = |range: &Range<usize>| {
            let at = left_out.partition_point(|out| out.end < range.end);
            left_out.get(at).is_some_and(|out| out.start <= range.start && range.end <= out.end)
        };
        for (number, reading) in Reading::all(line).enumerate() {
            let mut seen = BTreeSet::new();
            for start in &starts {
                let mut found = tokens(line, *start, reading, &mut seen)?;
                // The first reading is the one that most shells have.
                if number == 0 && *start == 0 {
                    self.computed |= read_by != Text::Unknown && found.iter().any(is_computed);
                }
                found.retain(|token| !is_left_out(&token.range));
                found.iter().for_each(|token| self.add_token(token, read_by));
                self.add_nested(&found, read_by, depth)?;
            }
        }
        for cuts in [AT_SIGNS, AT_MORE_SIGNS, AT_QUOTES] {
            for (at, piece) in pieces(line, cuts) {
                if !is_left_out(&(at..at + piece.len())) {
                    self.add(piece, false);
                }
            }
        }
        if self.used.len() > MOST_NAMES { Err(WordError::ManyNames) } else { Ok(()) }
    }

    /// The places in the line that are only written to, and those at which the same is read.
    fn left_out(&mut self, line: &str, read_by: Text) -> Result<Vec<Range<usize>>, WordError> {
        let Text::Shell { may_write } = read_by else { return Ok(Vec::new()) };
        let targets = targets(line)?;
        self.written.extend(targets.iter().map(|token| token.text.clone()));
        if reaches_open_files(line) {
            return Ok(Vec::new());
        }
        let counts = |token: &Token| is_plain(&line[token.range.clone()]) && (may_write || token.follows_sign);
        let targets: Vec<Token> = targets.into_iter().filter(counts).collect();
        let read = if may_write { read_back(line, &targets)? } else { Vec::new() };
        let mut places: Vec<Range<usize>> = targets.into_iter().map(|token| token.range).chain(read).collect();
        places.sort_by_key(|place| place.end);
        Ok(places)
    }

    /// A word, or those that bash makes of it: `{a,b}.sh`.
    fn add_token(&mut self, token: &Token, read_by: Text) {
        self.add(&token.text, true);
        if !token.has_brace {
            return;
        }
        let (words, is_complete) = unfolded(&token.text);
        words.iter().for_each(|word| self.add(word, true));
        self.computed |= !is_complete && read_by != Text::Unknown;
    }

    /// What stands in quotes may be a command itself: `sh -c "sh 'my script'"`, `eval sh 'my\ script'`.
    fn add_nested(&mut self, found: &[Token], read_by: Text, depth: usize) -> Result<(), WordError> {
        if depth == DEEPEST {
            return Ok(());
        }
        let runs_text = |token: &Token| token.text == "eval" || is_shell(&token.text);
        let inner = match read_by {
            Text::Unknown => Text::Unknown,
            _ if found.iter().any(runs_text) => Text::Quoted,
            _ => Text::Unknown,
        };
        let mut texts: Vec<String> = found.iter().map(|token| token.text.clone()).collect();
        // `eval` puts its words together before it reads them.
        if let Some(at) = texts.iter().position(|text| text == "eval") {
            texts.push(texts[at + 1..].join(" "));
        }
        let can_hold_words = |text: &String| text.contains([' ', '\t', '\n', '\'', '"', '\\', '$', '`']);
        for text in texts.into_iter().filter(can_hold_words) {
            if self.nested.contains(&text) {
                continue;
            }
            self.nested_bytes += text.len();
            if self.nested_bytes > MOST_NESTED {
                return Err(WordError::ManyNested);
            }
            self.nested.insert(text.clone());
            self.add_line(&text, inner, depth + 1)?;
        }
        Ok(())
    }

    /// A word and the names in it: behind an option's letter, behind a `=`, behind what a variable gives.
    fn add(&mut self, word: &str, is_read: bool) {
        if is_read && word.contains(EXPANDED) {
            self.add(&word.replace(EXPANDED, ""), false);
            let known = word.rsplit(EXPANDED).next().unwrap_or_default();
            return self.add_ends(known);
        }
        // A path that a program finds by itself: from its home, or from the folder that it is in.
        if word.starts_with('~') || word.starts_with("/proc/") {
            self.add_ends(word);
        }
        let is_option = word.starts_with('-') && word.is_char_boundary(2);
        let behind_option = is_option.then(|| &word[2..]);
        let behind_signs = word.match_indices(['=', ':', ',', '@']).map(|(at, sign)| &word[at + sign.len()..]);
        self.insert(std::iter::once(word).chain(behind_option).chain(behind_signs));
    }

    /// Stops when there are too many: then the command is refused.
    fn insert<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        for name in names.filter(|name| !name.is_empty() && name.len() <= LONGEST_NAME) {
            if self.used.len() > MOST_NAMES {
                return;
            }
            self.used.insert(name.to_owned());
        }
    }

    /// The whole path, and what is left of it without its first folders: where it begins is not known.
    fn add_ends(&mut self, path: &str) {
        self.add(path.trim_start_matches(['/', '~', '+']), false);
        self.insert(path.match_indices('/').map(|(at, _)| &path[at + 1..]));
    }
}

/// Whether what the word becomes is known only when the command runs. A file that is written to is not looked at anyway.
fn is_computed(token: &Token) -> bool {
    (token.is_computed && !token.is_target) || FINDERS.contains(&&*token.text)
}

/// Whether a command could make `tee` mean another program, or use the last argument of a command without naming it.
fn can_rename(line: &str) -> bool {
    const SIGNS: [&str; 12] =
        ["()", "function", "alias", "PATH", "hash", "eval", "source", "enable", "autoload", "$_", "${_", "BASH_"];
    let bare: String = line.chars().filter(|sign| !sign.is_whitespace() && !"\"'\\".contains(*sign)).collect();
    let is_dot = |word: &str| word.trim_matches(['"', '\'', '\\']) == ".";
    let has_dot = || line.split(|sign: char| AT_SIGNS.contains(sign) && !"\"'".contains(sign)).any(is_dot);
    SIGNS.iter().any(|sign| bare.contains(sign)) || has_dot()
}

/// The words that bash makes of one with lists in braces, and whether these are all of them.
fn unfolded(word: &str) -> (Vec<String>, bool) {
    let (mut words, mut waiting) = (Vec::new(), vec![word.to_owned()]);
    while let Some(word) = waiting.pop() {
        if words.len() + waiting.len() >= MOST_BRACES {
            return (words, false);
        }
        match first_list(&word) {
            Some((range, parts)) => {
                let (before, after) = (&word[..range.start], &word[range.end..]);
                waiting.extend(parts.iter().map(|part| format!("{before}{}{after}", &word[part.clone()])));
            }
            None => words.push(word),
        }
    }
    // `{1..9}` counts, and of a brace that is left it is not known whether it was quoted.
    let is_spelt = |word: &String| !word.contains(['{', '}']) || !(word.contains("..") || word.contains(','));
    let are_spelt = words.iter().all(is_spelt);
    (words, are_spelt)
}

/// The first list in braces: where it is, and its parts.
fn first_list(word: &str) -> Option<(Range<usize>, Vec<Range<usize>>)> {
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut first: Option<(Range<usize>, Vec<usize>)> = None;
    for (at, sign) in word.char_indices() {
        match sign {
            '{' => open.push((at, Vec::new())),
            ',' => open.last_mut().into_iter().for_each(|(_, commas)| commas.push(at)),
            '}' => {
                if let Some((start, commas)) = open.pop()
                    && !commas.is_empty()
                    && first.as_ref().is_none_or(|(range, _)| start < range.start)
                {
                    first = Some((start..at + 1, commas));
                }
            }
            _ => {}
        }
    }
    first.map(|(range, commas)| {
        let starts = std::iter::once(range.start).chain(commas.iter().copied()).map(|at| at + 1);
        let parts = starts.zip(commas.iter().copied().chain([range.end - 1])).map(|(start, end)| start..end).collect();
        (range, parts)
    })
}

/// Whether a command mentions the places where a process finds the files that it has open: there it can read what it writes to.
fn reaches_open_files(line: &str) -> bool {
    let bare = line.replace(['"', '\'', '\\'], "");
    ["/fd", "/proc", "/dev/std", "fd/", "proc/"].iter().any(|place| bare.contains(place))
}

/// Whether a target of a redirection is spelt in a way that leaves no doubt: at most its beginning is quoted.
fn is_plain(raw: &str) -> bool {
    let rest = ['"', '\''].iter().find_map(|quote| {
        let (inside, rest) = raw.strip_prefix(*quote)?.split_once(*quote)?;
        (!inside.contains(['"', '\'', '`', '(', '\\', '\n'])).then_some(rest)
    });
    rest.unwrap_or(raw).chars().all(|sign| sign.is_alphanumeric() || "_./$-+:%@{}".contains(sign))
}

/// Signs that mean something to a shell. Of the spaces only some divide words; a file's name may have the others.
const AT_SIGNS: &str = " \t\n;|&()<>`'\"${},";
const AT_MORE_SIGNS: &str = " \t\n;|&()<>`'\"${},=:@%+^!?*[]~#\\";
const AT_QUOTES: &str = "`'\"";

/// What stands between the signs, with where it begins.
fn pieces<'l>(line: &'l str, signs: &str) -> impl Iterator<Item = (usize, &'l str)> {
    let from = line.as_ptr().addr();
    line.split(move |sign: char| signs.contains(sign)).map(move |piece| (piece.as_ptr().addr() - from, piece))
}

#[cfg(test)]
mod tests;
