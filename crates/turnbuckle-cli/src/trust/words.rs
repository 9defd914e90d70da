//! What in a command may be the name of a file.
//!
//! A command is read the way a shell reads it: quotes, backslashes, comments, `$(…)` and redirections. Whoever wants a script to
//! change unnoticed would look for a spelling that is read wrongly here, so the reading errs on the side of too many names: the
//! text is read again from the start of each line (a quote in a here-document must not hide what follows), with and without
//! comments, and is cut at every sign that means something to some shell. A name that is no file of the project costs nothing.
//!
//! Only one thing is left out: a word that a shell does nothing with but write to it. A hook that writes a log would otherwise
//! change its own acceptance with each run.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;

/// The most bytes of one command, and the most lines: each line is a place to read from, so this bounds the work.
const MOST_BYTES: usize = 16 << 10;
const MOST_LINES: usize = 128;
/// The most names in one command, and the most bytes of one: no system has longer paths.
const MOST_NAMES: usize = 4096;
const LONGEST_NAME: usize = 4096;

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
    #[error("a command of a hook spells a name that is not UTF-8")]
    NotText,
}

/// Names that a command spells.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// What may be a file that the command reads or runs.
    pub(super) used: BTreeSet<String>,
    /// What the command writes to by a redirection.
    pub(super) written: BTreeSet<String>,
}

/// The names in a command: a string for the shell, or a list of words.
pub(super) fn names(command: &Value) -> Result<Names, WordError> {
    let mut names = Names::default();
    match command {
        Value::String(line) => names.add_line(line, IsShell::Yes)?,
        Value::Array(words) => {
            let mut is_shell = IsShell::No;
            for word in words.iter().filter_map(Value::as_str) {
                names.add(word, false);
                // One word of a list may be a whole line for a shell: `["sh", "-c", "./lint.sh --fix"]`.
                names.add_line(word, is_shell)?;
                if SHELLS.contains(&word.rsplit('/').next().unwrap_or(word)) {
                    is_shell = IsShell::Yes;
                }
            }
        }
        _ => {}
    }
    Ok(names)
}

/// Whether a text is certainly read by a shell. In another language `>` compares, and what follows it may be loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsShell {
    Yes,
    No,
}

const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"];

impl Names {
    fn add_line(&mut self, line: &str, is_shell: IsShell) -> Result<(), WordError> {
        if line.len() > MOST_BYTES {
            return Err(WordError::Long { bytes: line.len() });
        }
        let starts: Vec<usize> = std::iter::once(0).chain(line.match_indices('\n').map(|(at, _)| at + 1)).collect();
        if starts.len() > MOST_LINES {
            return Err(WordError::ManyLines { lines: starts.len() });
        }
        let targets = match is_shell {
            IsShell::Yes => targets(line)?,
            IsShell::No => Vec::new(),
        };
        self.written.extend(targets.iter().map(|token| token.text.clone()));
        let left_out: Vec<Range<usize>> = match reaches_open_files(line) {
            true => Vec::new(),
            false => {
                targets.into_iter().filter(|token| is_plain(&line[token.range.clone()])).map(|it| it.range).collect()
            }
        };
        let is_left_out = |range: &Range<usize>| {
            let at = left_out.partition_point(|out| out.end < range.end);
            left_out.get(at).is_some_and(|out| out.start <= range.start && range.end <= out.end)
        };
        for reading in Reading::all(line) {
            let mut seen = BTreeSet::new();
            for start in &starts {
                for token in tokens(line, *start, reading, &mut seen)? {
                    if !is_left_out(&token.range) {
                        self.add(&token.text, true);
                    }
                }
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

/// How to read a text.
#[derive(Clone, Copy)]
struct Reading {
    /// `#` begins a comment.
    has_comments: bool,
    /// `$'…'` has escapes, and `$"…"` is a text to be translated, as in bash. Other shells take the dollar as it is.
    has_escapes: bool,
}

impl Reading {
    /// Those in which the text may differ.
    fn all(text: &str) -> impl Iterator<Item = Self> {
        let comments = if text.contains('#') { &[true, false][..] } else { &[true] };
        let escapes = if text.contains("$'") || text.contains("$\"") { &[true, false][..] } else { &[false] };
        let of = move |has_comments: bool| escapes.iter().map(move |has_escapes| (has_comments, *has_escapes));
        comments
            .iter()
            .flat_map(move |one| of(*one))
            .map(|(has_comments, has_escapes)| Self { has_comments, has_escapes })
    }
}

/// A word without its quotes.
#[derive(Debug)]
struct Token {
    text: String,
    /// Where it stands, with its quotes.
    range: Range<usize>,
    /// It follows `>`, and nothing else is done with it.
    is_target: bool,
}

/// The words that are written to. Behind the line of a here-document it is not known what is text and what is a command.
fn targets(line: &str) -> Result<Vec<Token>, WordError> {
    let document = line.find("<<").and_then(|at| line[at..].find('\n').map(|end| at + end)).unwrap_or(line.len());
    let mut found = tokens(line, 0, Reading { has_comments: true, has_escapes: false }, &mut BTreeSet::new())?;
    found.retain(|token| token.is_target && token.range.end <= document);
    found.sort_by_key(|token| token.range.end);
    Ok(found)
}

/// A command under way: the whole line, or what stands in `$(…)`, in backquotes or in `${…}`.
#[derive(Default)]
struct Frame {
    /// What ends it; none: the end of the text.
    closed_by: Option<char>,
    /// Where it begins.
    opened: usize,
    /// Inside double quotes.
    is_quoted: bool,
    word: String,
    /// Where the word begins; none between words.
    begun: Option<usize>,
    is_target: bool,
}

/// The words of `line` from `start` on, up to where an earlier call with the same `seen` stood between two words as well: from
/// there on both find the same.
fn tokens(line: &str, start: usize, reading: Reading, seen: &mut BTreeSet<usize>) -> Result<Vec<Token>, WordError> {
    let mut reader = TokenReader { line, at: start, frames: Vec::new(), frame: Frame::default(), found: Vec::new() };
    loop {
        if reader.is_between_commands() && !seen.insert(reader.at) {
            break;
        }
        let Some(sign) = reader.next() else { break };
        reader.read(sign, reading)?;
    }
    reader.end_all();
    Ok(reader.found)
}

struct TokenReader<'l> {
    line: &'l str,
    at: usize,
    /// Those around the present one, the outermost first.
    frames: Vec<Frame>,
    frame: Frame,
    found: Vec<Token>,
}

impl TokenReader<'_> {
    fn is_between_commands(&self) -> bool {
        self.frames.is_empty() && !self.frame.is_quoted && self.frame.begun.is_none() && !self.frame.is_target
    }

    fn rest(&self) -> &str {
        &self.line[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let sign = self.rest().chars().next()?;
        self.at += sign.len_utf8();
        Some(sign)
    }

    /// Goes past the text if it comes next.
    fn skip(&mut self, text: &str) -> bool {
        let comes = self.rest().starts_with(text);
        self.at += if comes { text.len() } else { 0 };
        comes
    }

    fn push(&mut self, sign: char, from: usize) {
        self.frame.begun.get_or_insert(from);
        self.frame.word.push(sign);
    }

    fn end_word(&mut self, end: usize) {
        if let Some(start) = self.frame.begun.take() {
            let is_target = std::mem::take(&mut self.frame.is_target);
            self.found.push(Token { text: std::mem::take(&mut self.frame.word), range: start..end, is_target });
        }
    }

    fn open(&mut self, closed_by: char, from: usize) {
        self.push(EXPANDED, from);
        let inner = Frame { closed_by: Some(closed_by), opened: self.at, ..Frame::default() };
        self.frames.push(std::mem::replace(&mut self.frame, inner));
    }

    /// Ends the words that the text leaves unfinished.
    fn end_all(&mut self) {
        loop {
            self.end_word(self.line.len());
            match self.frames.pop() {
                Some(outer) => self.frame = outer,
                None => return,
            }
        }
    }

    fn read(&mut self, sign: char, reading: Reading) -> Result<(), WordError> {
        let from = self.at - sign.len_utf8();
        match sign {
            '\\' => self.escaped(from),
            '$' => self.dollar(from, reading)?,
            '"' => {
                self.frame.is_quoted = !self.frame.is_quoted;
                self.frame.begun.get_or_insert(from);
            }
            // What stands between backquotes ends at the next one, whatever is unfinished in it.
            '`' if self.frames.iter().chain([&self.frame]).any(|frame| frame.closed_by == Some('`')) => {
                let mut closed = None;
                while closed != Some('`') {
                    self.end_word(from);
                    closed = self.frame.closed_by;
                    let Some(outer) = self.frames.pop() else { break };
                    self.frame = outer;
                }
            }
            _ if Some(sign) == self.frame.closed_by && !self.frame.is_quoted => {
                self.end_word(from);
                let range = self.frame.opened..from;
                if sign == '}' {
                    // In quotes, spaces in it divide no words: `"${NAME:-my script}"`.
                    self.found.push(Token { text: self.line[range.clone()].to_owned(), range, is_target: false });
                }
                if let Some(outer) = self.frames.pop() {
                    self.frame = outer;
                }
            }
            '`' => self.open('`', from),
            _ if self.frame.is_quoted => self.push(sign, from),
            '\'' => {
                self.frame.begun.get_or_insert(from);
                while let Some(sign) = self.next().filter(|sign| *sign != '\'') {
                    self.frame.word.push(sign);
                }
            }
            '#' if reading.has_comments && self.frame.begun.is_none() => {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            }
            ' ' | '\t' => self.end_word(from),
            '\n' | ';' | '|' | '&' | '(' | ')' => {
                self.end_word(from);
                self.frame.is_target = false;
            }
            '<' => {
                self.end_word(from);
                // `<>` opens a file to read it as well.
                self.skip(">");
                self.frame.is_target = false;
            }
            '>' => {
                self.end_word(from);
                let _ = self.skip(">") || self.skip("|") || self.skip("&");
                // `>(…)` runs a command.
                self.frame.is_target = !self.rest().starts_with('(');
            }
            _ => self.push(sign, from),
        }
        Ok(())
    }

    fn escaped(&mut self, from: usize) {
        let is_quoted = self.frame.is_quoted;
        match self.next() {
            // The line goes on.
            Some('\n') => {}
            Some(sign) if is_quoted && !"$`\"\\".contains(sign) => {
                self.push('\\', from);
                self.push(sign, from);
            }
            Some(sign) => self.push(sign, from),
            None => self.push('\\', from),
        }
    }

    fn dollar(&mut self, from: usize, reading: Reading) -> Result<(), WordError> {
        let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        if self.skip("(") {
            self.open(')', from);
        } else if self.skip("{") {
            // The name and the operator behind it: `${NAME:-…}`.
            let name = self.rest().trim_start_matches(['#', '!']).trim_start_matches(is_name);
            self.at = self.line.len() - name.trim_start_matches([':', '-', '+', '=', '?', '%', '#', '/']).len();
            self.open('}', from);
        } else if !self.frame.is_quoted && self.rest().starts_with('\'') && reading.has_escapes {
            self.at += 1;
            let (text, length) = ansi_text(self.rest())?;
            self.at += length;
            self.frame.begun.get_or_insert(from);
            self.frame.word.push_str(&text);
        } else if !self.frame.is_quoted && self.rest().starts_with('"') && reading.has_escapes {
            // A text to be translated.
            self.frame.begun.get_or_insert(from);
        } else {
            let length = self.rest().len() - self.rest().trim_start_matches(is_name).len();
            let special = self.rest().starts_with(['@', '*', '#', '?', '-', '$', '!']);
            self.at += if length == 0 { usize::from(special) } else { length };
            self.push(if length == 0 && !special { '$' } else { EXPANDED }, from);
        }
        Ok(())
    }
}

/// What stands in `$'…'`, and how long it is with the closing quote.
fn ansi_text(rest: &str) -> Result<(String, usize), WordError> {
    let bytes = rest.as_bytes();
    let (mut text, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at).copied().filter(|byte| *byte != b'\'') {
        at += 1;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let Some(sign) = bytes.get(at).copied() else { break };
        at += 1;
        let mut number = |most: usize, radix: u32| {
            let digits = bytes[at..].iter().take(most).take_while(|digit| char::from(**digit).is_digit(radix)).count();
            let value = u32::from_str_radix(&rest[at..at + digits], radix).ok();
            at += digits;
            value
        };
        match sign {
            b'a' => text.push(7),
            b'b' => text.push(8),
            b'e' | b'E' => text.push(27),
            b'f' => text.push(12),
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'v' => text.push(11),
            b'x' => text.extend(number(2, 16).map(|value| value as u8)),
            b'u' | b'U' => {
                let sign = number(if sign == b'u' { 4 } else { 8 }, 16).and_then(char::from_u32);
                text.extend(sign.map(|sign| sign.to_string().into_bytes()).unwrap_or_default());
            }
            b'c' => {
                text.extend(bytes.get(at).map(|sign| sign & 0x1f));
                at += 1;
            }
            b'0'..=b'7' => {
                at -= 1;
                let bytes = &bytes[at..];
                let digits = bytes.iter().take(3).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
                let value = bytes[..digits].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                at += digits;
                text.push(value as u8);
            }
            b'\\' | b'\'' | b'"' | b'?' => text.push(sign),
            other => text.extend([b'\\', other]),
        }
    }
    let length = (at + 1).min(rest.len());
    Ok((String::from_utf8(text).map_err(|_| WordError::NotText)?, length))
}

#[cfg(test)]
mod tests;
