//! Reads a text the way a shell does, up to words: quotes, backslashes, comments, `$(…)`, backquotes, `${…}` and redirections.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{EXPANDED, PLUGIN_ROOT, WordError};

/// How to read a text.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// `#` begins a comment.
    has_comments: bool,
    /// `$'…'` has escapes, and `$"…"` is a text to be translated, as in bash. Other shells take the dollar as it is.
    has_escapes: bool,
}

impl Reading {
    /// That of most shells.
    pub(super) const USUAL: Self = Self { has_comments: true, has_escapes: false };

    /// Those in which the text may differ.
    pub(super) fn all(text: &str) -> impl Iterator<Item = Self> {
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
#[derive(Debug, Default)]
pub(super) struct Token {
    pub(super) text: String,
    /// Where it stands, with its quotes.
    pub(super) range: Range<usize>,
    /// It follows `>`, or a command that only writes to it, and nothing else is done with it.
    pub(super) is_target: bool,
    /// It is written to by a redirection.
    pub(super) follows_sign: bool,
    /// It is an argument of one of the [`READERS`], or what that reads by `<`, outside of substitutions.
    pub(super) is_read: bool,
    /// It has a brace that is not quoted: bash may make several words of it.
    pub(super) has_brace: bool,
    /// What it becomes is known only when the command runs: it has a variable, the output of a command, or a pattern. Or it has
    /// braces with and without quotes.
    pub(super) is_computed: bool,
}

/// The words that are written to, in whatever way a shell reads the text. Behind the line of a here-document it is not known what
/// is text and what is a command.
pub(super) fn targets(line: &str) -> Result<Vec<Token>, WordError> {
    let document = line.find("<<").and_then(|at| line[at..].find('\n').map(|end| at + end)).unwrap_or(line.len());
    let read = |has_escapes| tokens(line, 0, Reading { has_comments: true, has_escapes }, &mut BTreeSet::new());
    let mut found = read(false)?;
    found.retain(|token| token.is_target && token.range.end <= document);
    if line.contains("$'") || line.contains("$\"") {
        let others: BTreeSet<(usize, usize)> = read(true)?
            .iter()
            .filter(|token| token.is_target)
            .map(|token| (token.range.start, token.range.end))
            .collect();
        found.retain(|token| others.contains(&(token.range.start, token.range.end)));
    }
    found.sort_by_key(|token| token.range.end);
    Ok(found)
}

/// Commands that write to their arguments and do nothing else with them: they neither run nor print what is in the files.
const WRITERS: [&str; 5] = ["tee", "touch", "mkdir", "rm", "truncate"];
/// Commands that print or compare their arguments or what the files hold, and never run it.
const READERS: [&str; 18] = [
    "[", "cat", "cmp", "cut", "diff", "echo", "egrep", "fgrep", "grep", "head", "ls", "printf", "stat", "tac", "tail",
    "test", "uniq", "wc",
];
/// Words behind which a command begins.
const BEFORE_COMMANDS: [&str; 9] = ["if", "then", "else", "elif", "do", "while", "until", "!", "{"];
/// Variables and commands that give the project's folder, a plugin's, or one outside of both: what follows them is looked for.
const FOLDER_VARIABLES: [&str; 4] = ["PWD", "CLAUDE_PROJECT_DIR", "HOME", PLUGIN_ROOT];
const FOLDER_COMMANDS: [&str; 2] = ["pwd", "git rev-parse --show-toplevel"];

/// Where in a command the next word stands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Position {
    /// It is the command.
    #[default]
    Command,
    /// It is an argument of one of the [`WRITERS`].
    Written,
    /// It is an argument of one of the [`READERS`].
    Read,
    /// It is an argument of another command, or it is not known what it is.
    Other,
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
    has_brace: bool,
    /// It has a sign in quotes that without them would be part of a list in braces.
    quotes_brace: bool,
    is_computed: bool,
    /// The next word follows `>`.
    is_target: bool,
    /// The next word follows `<`.
    is_source: bool,
    position: Position,
}

/// The words of `line` from `start` on, up to where an earlier call with the same `seen` stood between two words as well: from
/// there on both find the same.
pub(super) fn tokens(
    line: &str,
    start: usize,
    reading: Reading,
    seen: &mut BTreeSet<usize>,
) -> Result<Vec<Token>, WordError> {
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

    /// A sign that quotes or a backslash keep from meaning anything.
    fn push_quoted(&mut self, sign: char, from: usize) {
        self.frame.quotes_brace |= "{},".contains(sign);
        self.push(sign, from);
    }

    fn push(&mut self, sign: char, from: usize) {
        self.frame.begun.get_or_insert(from);
        self.frame.word.push(sign);
    }

    fn end_word(&mut self, end: usize) {
        let Some(start) = self.frame.begun.take() else { return };
        let raw = &self.line[start..end];
        let (follows_sign, is_source) = (self.frame.is_target, self.frame.is_source);
        let is_written = self.frame.position == Position::Written && !raw.starts_with('-');
        let is_target = follows_sign || (is_written && !is_source);
        let is_read = self.frame.position == Position::Read && !is_target && self.frames.is_empty();
        if self.frame.position == Position::Command && !follows_sign && !is_source {
            self.frame.position = match raw {
                raw if WRITERS.contains(&raw) => Position::Written,
                raw if READERS.contains(&raw) => Position::Read,
                raw if BEFORE_COMMANDS.contains(&raw) => Position::Command,
                _ => Position::Other,
            };
        }
        let has_brace = std::mem::take(&mut self.frame.has_brace);
        let has_both = std::mem::take(&mut self.frame.quotes_brace) && has_brace;
        let is_computed = std::mem::take(&mut self.frame.is_computed) || has_both;
        let text = std::mem::take(&mut self.frame.word);
        self.found.push(Token { text, range: start..end, is_target, follows_sign, is_read, has_brace, is_computed });
        (self.frame.is_target, self.frame.is_source) = (false, false);
    }

    /// The word ends here, and what follows is another command, if this one does not go on behind it.
    fn end_command(&mut self, end: usize, next: Position) {
        self.end_word(end);
        (self.frame.is_target, self.frame.is_source, self.frame.position) = (false, false, next);
    }

    fn open(&mut self, closed_by: char, from: usize) {
        self.push(EXPANDED, from);
        // Between backquotes a backslash means something else, and `${…}` holds no command.
        let position = if closed_by == ')' { Position::Command } else { Position::Other };
        let inner = Frame { closed_by: Some(closed_by), opened: self.at, position, ..Frame::default() };
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
                let (mut closed, mut opened) = (None, from);
                while closed != Some('`') {
                    self.end_word(from);
                    (closed, opened) = (self.frame.closed_by, self.frame.opened);
                    let Some(outer) = self.frames.pop() else { break };
                    self.frame = outer;
                }
                self.frame.is_computed |= !FOLDER_COMMANDS.contains(&self.line[opened..from].trim());
            }
            _ if Some(sign) == self.frame.closed_by && !self.frame.is_quoted => {
                self.end_word(from);
                let range = self.frame.opened..from;
                if sign == '}' {
                    // In quotes, spaces in it divide no words: `"${NAME:-my script}"`.
                    let text = self.line[range.clone()].to_owned();
                    self.found.push(Token { text, range: range.clone(), ..Token::default() });
                }
                if let Some(outer) = self.frames.pop() {
                    self.frame = outer;
                }
                // Of `${NAME}` the name was looked at when it began.
                self.frame.is_computed |= sign == ')' && !FOLDER_COMMANDS.contains(&self.line[range].trim());
            }
            '`' => self.open('`', from),
            _ if self.frame.is_quoted => self.push_quoted(sign, from),
            '\'' => {
                self.frame.begun.get_or_insert(from);
                while let Some(sign) = self.next().filter(|sign| *sign != '\'') {
                    self.push_quoted(sign, from);
                }
            }
            '#' if reading.has_comments && self.frame.begun.is_none() => {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            }
            ' ' | '\t' => self.end_word(from),
            // `&>` is a redirection: the command goes on behind it.
            '&' if self.rest().starts_with('>') => self.end_word(from),
            '\n' | ';' | '|' | '&' => self.end_command(from, Position::Command),
            '(' => {
                let is_first = self.frame.begun.is_none() && self.frame.position == Position::Command;
                let is_file = self.frame.is_target || self.frame.is_source;
                let next = if is_first && !is_file { Position::Command } else { Position::Other };
                self.end_command(from, next);
            }
            // What follows may be an argument of the command that `<(…)` is one of.
            ')' => self.end_command(from, Position::Other),
            '<' => {
                self.end_word(from);
                // `<>` opens a file to read it as well, `<&` is followed by its number.
                let _ = self.skip(">") || self.skip("&");
                (self.frame.is_target, self.frame.is_source) = (false, true);
            }
            '>' => {
                self.end_word(from);
                let _ = self.skip(">") || self.skip("|") || self.skip("&");
                // `>(…)` runs a command.
                (self.frame.is_target, self.frame.is_source) = (!self.rest().starts_with('('), false);
            }
            _ => {
                self.frame.has_brace |= sign == '{';
                self.frame.is_computed |= self.is_pattern(sign, from);
                self.push(sign, from);
            }
        }
        Ok(())
    }

    /// Whether the sign makes a shell look for files. A bracket alone is a command that tests something.
    fn is_pattern(&self, sign: char, from: usize) -> bool {
        let is_test = || self.frame.begun.is_none() && self.rest().starts_with([' ', '\t', '[']);
        match sign {
            '*' | '?' => true,
            '[' => !is_test() && !self.line[..from].ends_with('['),
            _ => false,
        }
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
            Some(sign) => self.push_quoted(sign, from),
            None => self.push('\\', from),
        }
    }

    fn dollar(&mut self, from: usize, reading: Reading) -> Result<(), WordError> {
        let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        if self.skip("(") {
            self.open(')', from);
        } else if self.skip("{") {
            // The name and the operator behind it: `${NAME:-…}`.
            let name = self.rest().trim_start_matches(['#', '!']);
            let behind = name.trim_start_matches(is_name);
            let is_folder = FOLDER_VARIABLES.contains(&&name[..name.len() - behind.len()]) && behind.starts_with('}');
            let operand = behind.trim_start_matches([':', '-', '+', '=', '?', '%', '#', '/']);
            self.at = self.line.len() - operand.len();
            self.frame.is_computed |= !is_folder;
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
            // A number of a process, of arguments or of an exit is no file.
            let is_number = self.rest().starts_with(['#', '?', '-', '$', '!']);
            let is_known = is_number || FOLDER_VARIABLES.contains(&&self.rest()[..length]);
            self.frame.is_computed |= (length > 0 || special) && !is_known;
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
