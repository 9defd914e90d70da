//! The commands of a line for the shell, for rules that name one. Whoever wants to get past such a rule looks for a spelling that is
//! read wrongly here, so a line counts as unreadable as soon as it cannot be told which program runs.

use std::iter::Peekable;
use std::str::Chars;

use super::programs::{
    CONTROL, SHELL_WORDS, base_name, is_assignment, is_opaque, is_runner, is_shell, may_run_another,
};

/// The deepest a text may be nested: here-documents in here-documents.
const DEEPEST: usize = 8;

/// The commands of a line, those inside of substitutions as well, with and without leading assignments, and under the name that
/// their program has without its folder. `None` if it cannot be told which programs run: quotes that do not end, a program that a
/// variable, a substitution or a pattern names, a shell that reads commands from elsewhere.
pub(super) fn simple_commands(line: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for command in read(line, 0)? {
        let words: Vec<&str> = command.split_whitespace().collect();
        // An assignment in quotes may have blanks, so both are tried.
        let behind = words.iter().position(|word| !is_assignment(word)).unwrap_or(words.len());
        for words in [&words[..], &words[behind..]] {
            let Some((first, rest)) = words.split_first() else { continue };
            found.push(words.join(" "));
            if first.contains('/') {
                found.push(std::iter::once(&base_name(first)).chain(rest).copied().collect::<Vec<_>>().join(" "));
            }
        }
    }
    Some(found)
}

fn read(line: &str, depth: usize) -> Option<Vec<String>> {
    let mut reader = CommandReader { signs: line.chars().peekable(), ..CommandReader::new(line, depth) };
    while let Some(sign) = reader.signs.next() {
        reader.take(sign)?;
    }
    reader.end()
}

/// What is open around the present place.
enum Open {
    /// `$(…)`, with the quote that it stands in.
    Substitution(Option<char>),
    /// Backquotes, likewise.
    Backquotes(Option<char>),
    /// A subshell, or the pattern of a function or of `case`.
    Paren,
}

/// A here-document that begins at the end of this line.
struct Document {
    end: String,
    /// Whether leading tabs of its lines do not count.
    is_indented: bool,
    /// Whether variables and substitutions in it count.
    is_expanded: bool,
}

struct CommandReader<'l> {
    line: &'l str,
    depth: usize,
    signs: Peekable<Chars<'l>>,
    commands: Vec<String>,
    /// The command under way, without its quotes.
    current: String,
    /// Whether it is what stands behind a substitution in a command whose program is known.
    is_rest: bool,
    quote: Option<char>,
    open: Vec<Open>,
    documents: Vec<Document>,
}

impl<'l> CommandReader<'l> {
    fn new(line: &'l str, depth: usize) -> Self {
        let (commands, current, open, documents) = Default::default();
        Self {
            line,
            depth,
            signs: "".chars().peekable(),
            commands,
            current,
            is_rest: false,
            quote: None,
            open,
            documents,
        }
    }

    fn take(&mut self, sign: char) -> Option<()> {
        let in_backquotes = self.open.iter().any(|open| matches!(open, Open::Backquotes(_)));
        match (self.quote, sign) {
            (Some('\''), '\'') | (Some('"'), '"') => self.quote = None,
            (Some('\''), _) => self.current.push(sign),
            (None, '\'' | '"') => self.quote = Some(sign),
            (_, '\\') => match self.signs.next() {
                // A shell removes a backslash with the end of the line behind it: the word goes on.
                None | Some('\n') => {}
                Some('`') if in_backquotes => self.end_command(),
                Some(next) => self.current.push(next),
            },
            (_, '`') => self.backquote()?,
            (_, '$') => self.dollar()?,
            (Some(_), _) => self.current.push(sign),
            (None, '#') if self.is_between_words() => while self.signs.next_if(|sign| *sign != '\n').is_some() {},
            (None, '\n') => {
                self.end_command();
                self.is_rest = false;
                self.take_documents()?;
            }
            (None, ';' | '&' | '|') => {
                self.end_command();
                self.is_rest = false;
            }
            (None, '(') => {
                self.end_command();
                self.open.push(Open::Paren);
                self.is_rest = false;
            }
            (None, ')') => self.close(),
            (None, '<') if self.signs.next_if_eq(&'<').is_some() => self.document(),
            (None, '*' | '?' | '[' | '{') => {
                let next = self.signs.peek().copied().unwrap_or(' ');
                // `[` and `[[` test something, and a brace alone begins a group.
                let is_word = self.is_between_words() && (next.is_whitespace() || (sign == '[' && next == '['));
                // So does what follows the first bracket, and `{}` stands for itself.
                let is_itself = sign == '[' && self.current.ends_with('[') || sign == '{' && next == '}';
                let names_program = !(is_itself || (is_word && "[{".contains(sign))) && self.is_at_program();
                (!names_program).then(|| self.current.push(sign))?;
            }
            (None, _) => self.current.push(sign),
        }
        Some(())
    }

    fn is_between_words(&self) -> bool {
        self.current.chars().next_back().is_none_or(char::is_whitespace)
    }

    fn end_command(&mut self) {
        self.commands.push(std::mem::take(&mut self.current));
    }

    /// Whether the word under way, or the next one, may be the program that runs.
    fn is_at_program(&self) -> bool {
        if self.is_rest {
            return false;
        }
        let words: Vec<&str> = self.current.split_whitespace().collect();
        let (done, begun) = match (self.is_between_words(), words.split_last()) {
            (false, Some((last, done))) => (done, Some(*last)),
            _ => (&words[..], None),
        };
        let (mut runner, mut last) = (None, "");
        for word in done {
            let follows_option = last.starts_with('-');
            let is_target = last.ends_with(['<', '>']);
            last = word;
            let name = base_name(word);
            if is_assignment(word) || word.contains(['<', '>']) || is_target {
                continue;
            }
            match runner {
                None if CONTROL.contains(word) => {}
                _ if is_runner(name) || SHELL_WORDS.contains(word) => {
                    // What a shell is given is a command, wherever it stands.
                    if is_shell(name) || name == "eval" {
                        return true;
                    }
                    runner = Some(name);
                }
                None => return false,
                // Options, their values, and numbers stand before the program.
                Some(_) if word.starts_with('-') || follows_option => {}
                Some(_) if word.starts_with(|sign: char| sign.is_ascii_digit()) => {}
                Some(_) => return false,
            }
        }
        // An assignment or an option is none.
        let is_program = |word: &str| !(is_assignment(word) || word.contains(['<', '>']) || word.starts_with('-'));
        !last.ends_with(['<', '>']) && begun.is_none_or(is_program)
    }

    fn backquote(&mut self) -> Option<()> {
        if let Some(Open::Backquotes(quote)) = self.open.last() {
            self.quote = *quote;
            self.open.pop();
            self.end_command();
            self.is_rest = true;
            return Some(());
        }
        (!self.is_at_program()).then_some(())?;
        self.open.push(Open::Backquotes(self.quote.take()));
        self.end_command();
        self.is_rest = false;
        Some(())
    }

    fn dollar(&mut self) -> Option<()> {
        // What stands in these quotes depends on the shell, and where they end does as well.
        if self.quote.is_none() && matches!(self.signs.peek(), Some('\'' | '"')) {
            return None;
        }
        if self.is_at_program() {
            return None;
        }
        if self.signs.next_if_eq(&'(').is_some() {
            // Its patterns end with a parenthesis, so it cannot be told where the substitution ends.
            if self.line.split_whitespace().any(|word| word == "esac" || word.starts_with("esac")) {
                return None;
            }
            self.open.push(Open::Substitution(self.quote.take()));
            self.end_command();
            self.is_rest = false;
        } else {
            self.current.push('$');
        }
        Some(())
    }

    fn close(&mut self) {
        self.end_command();
        self.is_rest = match self.open.pop() {
            Some(Open::Substitution(quote)) => {
                self.quote = quote;
                true
            }
            Some(open @ Open::Backquotes(_)) => {
                self.open.push(open);
                false
            }
            // The end of a pattern of `case` closes nothing.
            Some(Open::Paren) | None => false,
        };
    }

    /// The word behind `<<`.
    fn document(&mut self) {
        self.current.push_str("<<");
        if self.signs.next_if_eq(&'<').is_some() {
            return self.current.push('<');
        }
        let is_indented = self.signs.next_if_eq(&'-').is_some();
        while self.signs.next_if(|sign| *sign == ' ' || *sign == '\t').is_some() {}
        let (mut end, mut is_expanded) = (String::new(), true);
        while let Some(sign) = self.signs.next_if(|sign| !sign.is_whitespace() && !";&|<>()".contains(*sign)) {
            match "'\"\\".contains(sign) {
                true => is_expanded = false,
                false => end.push(sign),
            }
        }
        self.current.push_str(&end);
        self.documents.push(Document { end, is_indented, is_expanded });
    }

    /// The texts of here-documents, from the line that begins now. Each of their lines counts as a command: a shell may read them.
    fn take_documents(&mut self) -> Option<()> {
        for Document { end, is_indented, is_expanded } in std::mem::take(&mut self.documents) {
            let mut body = Vec::new();
            while self.signs.peek().is_some() {
                let line: String = self.signs.by_ref().take_while(|sign| *sign != '\n').collect();
                let shown = if is_indented { line.trim_start_matches('\t') } else { &line };
                if shown == end {
                    break;
                }
                body.push(line);
            }
            if is_expanded && body.iter().any(|line| line.contains("$(") || line.contains('`')) {
                return None;
            }
            if self.depth == DEEPEST {
                return None;
            }
            match read(&body.join("\n"), self.depth + 1) {
                Some(commands) => self.commands.extend(commands),
                // It is read by a shell, or it is text in which quotes mean nothing.
                None if self.names_shell() => return None,
                None => {
                    let each = body.iter().filter_map(|line| read(line, self.depth + 1));
                    self.commands.extend(each.flatten());
                }
            }
        }
        Some(())
    }

    fn names_shell(&self) -> bool {
        let mut words = self.commands.iter().flat_map(|command| command.split_whitespace());
        words.any(|word| is_shell(word) || word == "eval" || word == "source" || word == ".")
    }

    fn end(mut self) -> Option<Vec<String>> {
        self.end_command();
        let is_open = |open: &Open| !matches!(open, Open::Paren);
        if self.quote.is_some() || self.open.iter().any(is_open) {
            return None;
        }
        // A text in quotes that a shell reads may have variables of its own.
        let runs_text = |command: &str| {
            let mut words = command.split_whitespace();
            let is_option = |word: &str| word.starts_with('-') && word.contains('c');
            let runs = words.any(|word| is_shell(word) || word == "eval");
            may_run_another(command) && runs && (command.contains("eval") || words.any(is_option))
        };
        let is_unknown = |command: &String| is_opaque(command) || runs_text(command) && command.contains(['$', '`']);
        (!self.commands.iter().any(is_unknown)).then_some(self.commands)
    }
}
