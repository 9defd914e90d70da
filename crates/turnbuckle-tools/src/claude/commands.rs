//! The commands of a line for the shell, for rules that name one. Whoever wants to get past such a rule looks for a spelling that is
//! read wrongly here, so a line counts as unreadable as soon as it cannot be told which program runs.

use std::iter::Peekable;
use std::str::Chars;

use super::arguments::{Arguments, Given, Word};
use super::programs::{
    CONTROL, SHELL_WORDS, base_name, evaluates_text, is_assignment, is_opaque, is_runner, is_shell, may_run_another,
};

/// The deepest a text may be nested: here-documents in here-documents, texts in quotes that are evaluated.
const DEEPEST: usize = 8;

/// What is known of a line.
#[derive(Debug, Default)]
pub(super) struct Commands {
    pub(super) found: Vec<SimpleCommand>,
    /// The words of some command cannot be told, though its program can: a part of them stands in parentheses.
    pub(super) is_unclear: bool,
}

/// A command without its quotes.
#[derive(Debug)]
pub(super) struct SimpleCommand {
    pub(super) text: String,
    /// The shell may put other words into the place of some.
    pub(super) is_expanded: bool,
}

/// The commands of a line, those inside of substitutions and of texts that may be evaluated as well: as they are written and as
/// their programs get them, with and without leading assignments, and under the name that the program has without its folder.
/// `None` if it cannot be told which programs run: quotes that do not end, a program that a variable, a substitution or a pattern
/// names, a shell that reads commands from elsewhere.
pub(super) fn simple_commands(line: &str) -> Option<Commands> {
    let read = read(line)?;
    let mut found = Vec::new();
    for SimpleCommand { text, is_expanded } in read.found {
        let words: Vec<&str> = text.split_whitespace().collect();
        // An assignment in quotes may have blanks, so both are tried.
        let behind = words.iter().position(|word| !is_assignment(word)).unwrap_or(words.len());
        for words in [&words[..], &words[behind..]] {
            let Some((first, rest)) = words.split_first() else { continue };
            found.push(SimpleCommand { text: words.join(" "), is_expanded });
            if first.contains('/') {
                let text = std::iter::once(&base_name(first)).chain(rest).copied().collect::<Vec<_>>().join(" ");
                found.push(SimpleCommand { text, is_expanded });
            }
        }
    }
    Some(Commands { found, is_unclear: read.is_unclear })
}

/// In what shells differ.
#[derive(Clone, Copy)]
enum Dialect {
    /// `&>` is a redirection, and the number of a file may be long.
    Bash,
    /// `&` ends a command, also in front of `>`.
    Posix,
}

fn read(line: &str) -> Option<Commands> {
    let mut commands = read_as(Dialect::Bash, line, 0)?;
    if line.contains(['<', '>']) {
        let others = read_as(Dialect::Posix, line, 0)?;
        commands.found.extend(others.found);
        commands.is_unclear |= others.is_unclear;
    }
    Some(commands)
}

fn read_as(dialect: Dialect, line: &str, depth: usize) -> Option<Commands> {
    let mut reader = CommandReader::new(dialect, line, depth);
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
    /// What the shell makes a part of a word of: `<(…)`, `@(…)`, `a=(…)`.
    Part,
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
    dialect: Dialect,
    line: &'l str,
    depth: usize,
    signs: Peekable<Chars<'l>>,
    commands: Vec<String>,
    /// The command under way, without its quotes.
    current: String,
    /// The words of the commands so far, and of the one under way.
    given: Vec<Given>,
    arguments: Arguments,
    /// Those of here-documents and of texts that are evaluated.
    nested: Commands,
    is_unclear: bool,
    /// Whether it is what stands behind a substitution in a command whose program is known.
    is_rest: bool,
    quote: Option<char>,
    open: Vec<Open>,
    documents: Vec<Document>,
}

impl<'l> CommandReader<'l> {
    fn new(dialect: Dialect, line: &'l str, depth: usize) -> Self {
        let signs = line.chars().peekable();
        let (commands, current, given, arguments, nested) = Default::default();
        let (is_unclear, is_rest, quote, open, documents) = Default::default();
        Self {
            dialect,
            line,
            depth,
            signs,
            commands,
            current,
            given,
            arguments,
            nested,
            is_unclear,
            is_rest,
            quote,
            open,
            documents,
        }
    }

    fn take(&mut self, sign: char) -> Option<()> {
        let in_backquotes = self.open.iter().any(|open| matches!(open, Open::Backquotes(_)));
        match (self.quote, sign) {
            (Some('\''), '\'') | (Some('"'), '"') => self.quote = None,
            (Some('\''), _) => self.push_quoted(sign),
            (None, '\'' | '"') => {
                self.quote = Some(sign);
                self.arguments.open_quote();
            }
            (_, '\\') => match self.signs.next() {
                // A shell removes a backslash with the end of the line behind it: the word goes on.
                None | Some('\n') => {}
                Some('`') if in_backquotes => self.end_command(),
                Some(next) => self.push_quoted(next),
            },
            (_, '`') => self.backquote()?,
            (_, '$') => self.dollar()?,
            (Some(_), _) => self.push_quoted(sign),
            (None, '#') if !self.arguments.is_in_word() => while self.signs.next_if(|sign| *sign != '\n').is_some() {},
            (None, '\n') => {
                self.end_command();
                self.is_rest = false;
                self.take_documents()?;
            }
            // The file may be a number of one that is open, or one that shall be written to though it is there.
            (None, '&' | '|') if self.arguments.awaits_target() && self.current.ends_with(['<', '>']) => {
                self.current.push(sign);
            }
            (None, '&') if matches!(self.dialect, Dialect::Bash) && self.signs.peek() == Some(&'>') => {
                self.current.push(' ');
                self.arguments.end_word();
            }
            (None, ';' | '&' | '|') => {
                self.end_command();
                self.is_rest = false;
            }
            (None, '(') => {
                let is_part = self.current.ends_with(['<', '>', '@', '+', '!', '?', '*', '=']);
                self.is_unclear |= is_part;
                self.end_command();
                self.open.push(if is_part { Open::Part } else { Open::Paren });
                self.is_rest = false;
            }
            (None, ')') => self.close(),
            (None, '<') if self.signs.next_if_eq(&'<').is_some() => self.document()?,
            (None, '*' | '?' | '[' | '{') => {
                let next = self.signs.peek().copied().unwrap_or(' ');
                // `[` and `[[` test something, and a brace alone begins a group.
                let is_word = self.is_between_words() && (next.is_whitespace() || (sign == '[' && next == '['));
                // So does what follows the first bracket, and `{}` stands for itself.
                let is_itself = sign == '[' && self.current.ends_with('[') || sign == '{' && next == '}';
                let names_program = !(is_itself || (is_word && "[{".contains(sign))) && self.is_at_program();
                (!names_program).then_some(())?;
                self.current.push(sign);
                match is_itself || is_word {
                    true => self.arguments.push_as_is(sign),
                    false => self.arguments.push(sign),
                }
            }
            (None, ' ' | '\t') => {
                self.current.push(sign);
                self.arguments.end_word();
            }
            (None, '<' | '>') => {
                self.current.push(sign);
                self.redirect();
            }
            (None, _) => {
                self.current.push(sign);
                self.arguments.push(sign);
            }
        }
        Some(())
    }

    fn push_quoted(&mut self, sign: char) {
        self.current.push(sign);
        self.arguments.push_quoted(sign);
    }

    fn redirect(&mut self) {
        self.arguments.redirect(match self.dialect {
            Dialect::Bash => usize::MAX,
            Dialect::Posix => 1,
        });
    }

    fn is_between_words(&self) -> bool {
        self.current.chars().next_back().is_none_or(char::is_whitespace)
    }

    fn end_command(&mut self) {
        self.commands.push(std::mem::take(&mut self.current));
        self.given.push(self.arguments.take());
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
            self.arguments.expand();
            return Some(());
        }
        (!self.is_at_program()).then_some(())?;
        self.open.push(Open::Backquotes(self.quote.take()));
        self.arguments.expand();
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
            self.arguments.expand();
            self.end_command();
            self.is_rest = false;
        } else {
            self.current.push('$');
            self.arguments.push('$');
        }
        Some(())
    }

    fn close(&mut self) {
        self.end_command();
        self.is_rest = match self.open.pop() {
            Some(Open::Substitution(quote)) => {
                self.quote = quote;
                self.arguments.expand();
                true
            }
            Some(open @ Open::Backquotes(_)) => {
                self.open.push(open);
                false
            }
            // The word goes on.
            Some(Open::Part) => {
                self.arguments.expand();
                false
            }
            // The end of a pattern of `case` closes nothing.
            Some(Open::Paren) | None => false,
        };
    }

    /// The word behind `<<`.
    fn document(&mut self) -> Option<()> {
        self.current.push_str("<<");
        self.redirect();
        if self.signs.next_if_eq(&'<').is_some() {
            self.current.push('<');
            return Some(());
        }
        let is_indented = self.signs.next_if_eq(&'-').is_some();
        while self.signs.next_if(|sign| *sign == ' ' || *sign == '\t').is_some() {}
        let (mut end, mut is_expanded, mut quote) = (String::new(), true, None);
        let ends = |sign: &char| " \t\n;&|<>()".contains(*sign);
        while let Some(sign) = self.signs.next_if(|sign| quote.is_some() || !ends(sign)) {
            match (quote, sign) {
                (Some(open), _) if open == sign => quote = None,
                (None, '\'' | '"') => (quote, is_expanded) = (Some(sign), false),
                (None | Some('"'), '\\') => {
                    is_expanded = false;
                    end.extend(self.signs.next());
                }
                (_, _) => end.push(sign),
            }
        }
        // No line is like an end that has more than one, and shells differ in what they do then.
        if quote.is_some() || end.contains('\n') {
            return None;
        }
        self.current.push_str(&end);
        self.arguments.end_redirection();
        self.documents.push(Document { end, is_indented, is_expanded });
        Some(())
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
            match read_as(self.dialect, &body.join("\n"), self.depth + 1) {
                Some(commands) => self.add(commands),
                // It is read by a shell, or it is text in which quotes mean nothing.
                None if self.names_shell() => return None,
                None => {
                    let read = |line: &String| read_as(self.dialect, line, self.depth + 1);
                    let each: Vec<_> = body.iter().filter_map(read).collect();
                    each.into_iter().for_each(|commands| self.add(commands));
                }
            }
        }
        Some(())
    }

    fn names_shell(&self) -> bool {
        let nested = self.nested.found.iter().map(|command| &command.text);
        let mut words = self.commands.iter().chain(nested).flat_map(|command| command.split_whitespace());
        words.any(|word| is_shell(word) || word == "eval" || word == "source" || word == ".")
    }

    fn add(&mut self, commands: Commands) {
        self.nested.found.extend(commands.found);
        self.nested.is_unclear |= commands.is_unclear;
    }

    /// What stands in quotes is a command again, if the program evaluates it.
    fn evaluate(&mut self, given: &Given) -> Option<()> {
        let is_evaluator = |word: &Word| evaluates_text(base_name(&word.text));
        let evaluator = given.words.iter().position(is_evaluator);
        let mut texts: Vec<String> = Vec::new();
        let quoted = given.words.iter().filter(|word| word.has_quoted_signs);
        texts.extend(quoted.map(|word| word.text.clone()));
        // But for shells, they put their words together first.
        if let Some(at) = evaluator.filter(|at| !texts.is_empty() && !is_shell(&given.words[*at].text)) {
            texts.push(joined(&given.words[at + 1..]));
        }
        for text in texts {
            let commands = (self.depth < DEEPEST).then(|| read_as(self.dialect, &text, self.depth + 1)).flatten();
            match commands {
                Some(commands) if evaluator.is_some() => self.add(commands),
                // Probably it is text: signs in it are no doubt about what runs.
                Some(mut commands) => {
                    commands.is_unclear = false;
                    commands.found.iter_mut().for_each(|command| command.is_expanded = false);
                    self.add(commands);
                }
                None if evaluator.is_some() => return None,
                None => {}
            }
        }
        Some(())
    }

    fn end(mut self) -> Option<Commands> {
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
        if self.commands.iter().any(is_unknown) {
            return None;
        }
        let commands = std::mem::take(&mut self.commands);
        for (text, given) in commands.into_iter().zip(std::mem::take(&mut self.given)) {
            if may_run_another(&text) {
                self.evaluate(&given)?;
            }
            let bare = joined(&given.words);
            let is_expanded = given.is_expanded;
            if bare != text {
                self.nested.found.push(SimpleCommand { text: bare, is_expanded });
            }
            self.nested.found.push(SimpleCommand { text, is_expanded });
        }
        self.nested.is_unclear |= self.is_unclear;
        Some(self.nested)
    }
}

fn joined(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}
