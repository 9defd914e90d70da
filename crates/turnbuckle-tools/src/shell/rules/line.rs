//! A strict parser of shell command lines. It knows lists of simple commands and nothing else.

/// What the parser does not know, so that no rule allows the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unparsed {
    /// `$NAME`, `$(…)` or a backquote.
    #[error("the shell would put something else in the place of `$` or a backquote")]
    Expansion,
    /// `*`, `?`, `[…]`, `{…}` or a leading `~`.
    #[error("the shell would put names of files in the place of a pattern")]
    Pattern,
    /// To or from a file, or a here-document.
    #[error("it redirects to or from something else than /dev/null and the two outputs")]
    Redirection,
    /// `NAME=value` before a command.
    #[error("it sets a variable")]
    Assignment,
    /// `export`, `alias`, `enable`, `trap` and others: what follows could be another program than the one that is named.
    #[error("it changes how the shell runs what follows")]
    ShellState,
    /// `&` at the end of a command.
    #[error("it runs something in the background")]
    Background,
    /// `if`, `for`, `{`, `!`, a function, a subshell, a comment.
    #[error("it is more than simple commands joined by `&&`, `||`, `;` and `|`")]
    Construct,
    /// A quote without its end, an operator without a command.
    #[error("it is not complete")]
    Incomplete,
    /// A control character, or a line that is continued behind `\`.
    #[error("it has a control character or a continued line")]
    Control,
    /// Longer than anything that a rule is meant for.
    #[error("it is longer than 16 KiB")]
    Length,
}

const MOST: usize = 16 * 1024;

/// Words that begin a construct of some shell, if they stand where a command begins.
const RESERVED: [&str; 24] = [
    "!",
    "[[",
    "]]",
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "end",
    "esac",
    "fi",
    "for",
    "foreach",
    "function",
    "if",
    "in",
    "namespace",
    "repeat",
    "select",
    "then",
    "time",
    "until",
    "while",
];

/// Commands of some shell that set variables, aliases, functions or traps, or run a text as a command: behind them `ls` may be any program.
const CHANGES_SHELL: [&str; 36] = [
    ".",
    "alias",
    "bind",
    "builtin",
    "compgen",
    "complete",
    "compopt",
    "declare",
    "enable",
    "eval",
    "export",
    "fc",
    "float",
    "getopts",
    "hash",
    "history",
    "integer",
    "let",
    "local",
    "mapfile",
    "nameref",
    "print",
    "read",
    "readarray",
    "readonly",
    "set",
    "setopt",
    "shift",
    "shopt",
    "source",
    "trap",
    "typeset",
    "unalias",
    "unset",
    "unsetopt",
    "vared",
];

/// Whether a command changes the shell itself.
fn changes_shell(words: &[String]) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    let first = rest.first().map_or("", String::as_str);
    match program.as_str() {
        // It only says what the name stands for.
        "command" => !matches!(first, "-v" | "-V"),
        // These set a variable, or run what is in the name of one.
        "printf" => {
            let format = rest.iter().find(|word| *word != "--");
            first.starts_with("-v") || format.is_some_and(|format| counts_into_variable(format))
        }
        "test" => rest.iter().any(|word| word == "-v" || word == "-R"),
        "wait" => rest.iter().any(|word| word.starts_with('-') && word.contains('p')),
        program => CHANGES_SHELL.contains(&program),
    }
}

/// Whether a format of `printf` may have a `%n`, by which `bash` writes a number into the variable that an argument names: `printf '%n' PATH`.
fn counts_into_variable(format: &str) -> bool {
    let is_before_conversion = |sign: &char| "0123456789.*+-# 'hlLjzt".contains(*sign);
    format.split('%').skip(1).any(|behind| behind.chars().find(|sign| !is_before_conversion(sign)) == Some('n'))
}

/// The simple commands of a line, as the words that each program would get. Words are as the shell makes them: without quotes.
///
/// ```
/// use turnbuckle_tools::rules::simple_commands;
///
/// assert_eq!(simple_commands("cd src && 'ls' -l 2>&1").unwrap(), [vec!["cd", "src"], vec!["ls", "-l"]]);
/// assert!(simple_commands("ls $(id)").is_err());
/// ```
pub fn simple_commands(line: &str) -> Result<Vec<Vec<String>>, Unparsed> {
    let mut reader = Reader::new(line)?;
    let mut commands = Vec::new();
    loop {
        let (words, end) = reader.command(Stars::Refused)?;
        match (words.is_empty(), end) {
            // Blank lines are nothing, also behind an operator, which goes on in the next line.
            (true, End::Line) => continue,
            (true, End::Input) if !reader.needs_command => return Ok(commands),
            (true, _) => return Err(Unparsed::Incomplete),
            (false, _) => commands.push(words),
        }
        reader.needs_command = end == End::Joined;
        if end == End::Input {
            return Ok(commands);
        }
    }
}

/// What a `*` of a pattern is in its words, if it is neither quoted nor escaped. No line has this sign: the reader refuses it.
pub(super) const STAR: char = '\u{1}';

/// The words of a rule's pattern: one simple command, in which [`STAR`] is a word or a part of one.
pub(super) fn pattern_words(pattern: &str) -> Result<Vec<String>, Unparsed> {
    let (words, end) = Reader::new(pattern)?.command(Stars::Kept)?;
    if end == End::Input { Ok(words) } else { Err(Unparsed::Construct) }
}

/// What `*` is outside quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stars {
    Refused,
    Kept,
}

/// What ended a simple command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Input,
    Line,
    /// `;`: another command may follow.
    Semicolon,
    /// `&&`, `||` or `|`: another command must follow.
    Joined,
}

struct Reader<'a> {
    signs: std::iter::Peekable<std::str::Chars<'a>>,
    /// Whether an operator stands before, so that the line cannot end here.
    needs_command: bool,
}

/// A word under way.
#[derive(Default)]
struct Word {
    text: String,
    /// `''` is a word, too.
    exists: bool,
    is_quoted: bool,
}

impl<'a> Reader<'a> {
    fn new(line: &'a str) -> Result<Self, Unparsed> {
        if line.len() > MOST {
            return Err(Unparsed::Length);
        }
        if line.chars().any(|sign| sign.is_control() && !matches!(sign, '\n' | '\t')) {
            return Err(Unparsed::Control);
        }
        Ok(Self { signs: line.chars().peekable(), needs_command: false })
    }

    /// One simple command, to the operator behind it.
    fn command(&mut self, stars: Stars) -> Result<(Vec<String>, End), Unparsed> {
        let (mut words, mut word) = (Vec::new(), Word::default());
        let mut redirects = false;
        let end = loop {
            let Some(sign) = self.signs.next() else { break End::Input };
            match sign {
                ' ' | '\t' => finish(&mut word, &mut words)?,
                '\n' => break End::Line,
                ';' if self.signs.peek() == Some(&';') => return Err(Unparsed::Construct),
                ';' => break End::Semicolon,
                '&' => match self.signs.next_if_eq(&'&') {
                    Some(_) => break End::Joined,
                    None => return Err(Unparsed::Background),
                },
                '|' => {
                    self.signs.next_if_eq(&'|');
                    // `|&` is a pipe in one shell and an error in another.
                    match self.signs.peek() {
                        Some('&') => return Err(Unparsed::Redirection),
                        _ => break End::Joined,
                    }
                }
                '<' | '>' => {
                    self.redirection(sign, &mut word, &mut words)?;
                    redirects = true;
                }
                '\'' => self.single_quoted(&mut word)?,
                '"' => self.double_quoted(&mut word)?,
                '\\' => match self.signs.next() {
                    None => return Err(Unparsed::Incomplete),
                    Some('\n') => return Err(Unparsed::Control),
                    Some(escaped) => word.push_quoted(escaped),
                },
                '$' | '`' => return Err(Unparsed::Expansion),
                '*' if stars == Stars::Kept => word.push(STAR),
                '*' | '?' | '[' | ']' | '{' | '}' => return Err(Unparsed::Pattern),
                // Elsewhere it is an ordinary sign: HEAD~1.
                '~' if !word.exists || word.text.ends_with(['=', ':']) => return Err(Unparsed::Pattern),
                '(' | ')' => return Err(Unparsed::Construct),
                '#' if !word.exists => return Err(Unparsed::Construct),
                _ => word.push(sign),
            }
        };
        finish(&mut word, &mut words)?;
        if words.is_empty() && redirects {
            return Err(Unparsed::Redirection);
        }
        if changes_shell(&words) {
            return Err(Unparsed::ShellState);
        }
        Ok((words, end))
    }

    fn single_quoted(&mut self, word: &mut Word) -> Result<(), Unparsed> {
        word.quote();
        loop {
            match self.signs.next() {
                None => return Err(Unparsed::Incomplete),
                Some('\'') => return Ok(()),
                Some(sign) => word.push_quoted(sign),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), Unparsed> {
        word.quote();
        loop {
            match self.signs.next() {
                None => return Err(Unparsed::Incomplete),
                Some('"') => return Ok(()),
                Some('$' | '`') => return Err(Unparsed::Expansion),
                Some('\\') => match self.signs.next() {
                    None => return Err(Unparsed::Incomplete),
                    Some('\n') => return Err(Unparsed::Control),
                    Some(sign @ ('$' | '`' | '"' | '\\')) => word.push_quoted(sign),
                    // Before any other sign the backslash stays.
                    Some(sign) => {
                        word.push_quoted('\\');
                        word.push_quoted(sign);
                    }
                },
                Some(sign) => word.push_quoted(sign),
            }
        }
    }

    /// Only what changes nothing outside: to and from `/dev/null`, and one output into the other.
    fn redirection(&mut self, sign: char, word: &mut Word, words: &mut Vec<String>) -> Result<(), Unparsed> {
        // A number right before the sign says which output is meant. Of several digits, shells differ.
        match word.text.as_str() {
            "1" | "2" if !word.is_quoted && sign == '>' => *word = Word::default(),
            text if word.exists && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(Unparsed::Redirection);
            }
            _ => finish(word, words)?,
        }
        if sign == '>' && self.signs.next_if_eq(&'&').is_some() {
            let number = self.signs.next();
            return match (number, self.at_boundary()) {
                (Some('1' | '2'), true) => Ok(()),
                _ => Err(Unparsed::Redirection),
            };
        }
        if sign == '>' {
            self.signs.next_if_eq(&'>');
        }
        while self.signs.next_if(|sign| matches!(sign, ' ' | '\t')).is_some() {}
        for expected in "/dev/null".chars() {
            self.signs.next_if_eq(&expected).ok_or(Unparsed::Redirection)?;
        }
        if self.at_boundary() { Ok(()) } else { Err(Unparsed::Redirection) }
    }

    fn at_boundary(&mut self) -> bool {
        self.signs.peek().is_none_or(|sign| matches!(sign, ' ' | '\t' | '\n' | ';' | '&' | '|'))
    }
}

impl Word {
    fn push(&mut self, sign: char) {
        self.exists = true;
        self.text.push(sign);
    }

    fn quote(&mut self) {
        (self.exists, self.is_quoted) = (true, true);
    }

    fn push_quoted(&mut self, sign: char) {
        self.quote();
        self.text.push(sign);
    }
}

/// Adds the word under way, if there is one, to those of the command.
fn finish(word: &mut Word, words: &mut Vec<String>) -> Result<(), Unparsed> {
    let Word { text, exists, .. } = std::mem::take(word);
    if !exists {
        return Ok(());
    }
    if words.is_empty() {
        // Quoted it would be the name of a program; no program that a rule is meant for is called so.
        if text.contains('=') {
            return Err(Unparsed::Assignment);
        }
        if text.is_empty() || RESERVED.contains(&text.as_str()) {
            return Err(Unparsed::Construct);
        }
    }
    words.push(text);
    Ok(())
}
