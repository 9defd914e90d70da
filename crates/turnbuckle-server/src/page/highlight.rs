//! What is a comment, a string, a number or a keyword in code, by a small table of languages, for the page and the terminal.
//!
//! It reads each character once and keeps nothing between lines but whether a comment or a string is open, so it costs the same
//! for every text: what a model writes must not be able to slow a screen down. It knows words, not grammar, which is enough to
//! read code by.

mod languages;

use self::languages::{LANGUAGES, Language};

/// What a piece of code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Nothing in particular.
    Plain,
    /// A comment, or a part of one.
    Comment,
    /// A string, or a part of one.
    String,
    /// A number.
    Number,
    /// A keyword of the language.
    Keyword,
    /// The name of a function that is called or defined.
    Function,
    /// A line that a diff adds.
    Added,
    /// A line that a diff removes.
    Removed,
    /// The place that a part of a diff is about.
    Place,
    /// The name of a file in a diff.
    File,
}

/// Takes the lines of one block of code apart, in order.
#[derive(Debug)]
pub struct Highlighter {
    language: Option<&'static Language>,
    kind: Kind,
    /// A comment or a string of several lines is open: what ends it, and which it is.
    open: Option<(&'static str, Token)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Code,
    Diff,
}

impl Highlighter {
    /// For the word behind the opening fence, or the end of a file's name.
    pub fn of(language: &str) -> Self {
        let name = language.trim().split([' ', ',', '{']).next().unwrap_or_default().to_ascii_lowercase();
        let kind = if matches!(name.as_str(), "diff" | "patch") { Kind::Diff } else { Kind::Code };
        let language = LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()));
        Self { language, kind, open: None }
    }

    /// The pieces of one line, which has no line end. Together they are the line.
    pub fn line<'a>(&mut self, text: &'a str) -> Vec<(&'a str, Token)> {
        match (self.kind, self.language) {
            (Kind::Diff, _) => vec![(text, diff_line(text))],
            (Kind::Code, None) => vec![(text, Token::Plain)],
            (Kind::Code, Some(language)) => self.code(text, language),
        }
    }

    fn code<'a>(&mut self, text: &'a str, language: &'static Language) -> Vec<(&'a str, Token)> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        // Plain pieces that follow each other are one.
        let (mut plain, mut at) = (0, 0);
        while let Some(first) = rest.chars().next() {
            let (length, token) = self.token(rest, first, language);
            if token != Token::Plain {
                if plain < at {
                    pieces.push((&text[plain..at], Token::Plain));
                }
                pieces.push((&rest[..length], token));
                plain = at + length;
            }
            at += length;
            rest = &rest[length..];
        }
        if plain < text.len() {
            pieces.push((&text[plain..], Token::Plain));
        }
        pieces
    }

    /// How long the next token is, and what it is.
    fn token(&mut self, rest: &str, first: char, language: &'static Language) -> (usize, Token) {
        if let Some((end, token)) = self.open {
            return match rest.find(end) {
                Some(at) => {
                    self.open = None;
                    (at + end.len(), token)
                }
                None => (rest.len(), token),
            };
        }
        if language.line_comments.iter().any(|mark| rest.starts_with(mark)) {
            return (rest.len(), Token::Comment);
        }
        if let Some((begin, end)) = language.block_comment.filter(|(begin, _)| rest.starts_with(begin)) {
            self.open = Some((end, Token::Comment));
            return (begin.len(), Token::Comment);
        }
        if let Some(quote) = language.long_quotes.iter().find(|quote| rest.starts_with(**quote)) {
            self.open = Some((quote, Token::String));
            return (quote.len(), Token::String);
        }
        if language.quotes.contains(first) {
            return (quoted_length(rest, first), Token::String);
        }
        if first.is_ascii_digit() {
            let is_number = |ch: char| ch.is_ascii_alphanumeric() || ch == '.' || ch == '_';
            return (length_while(rest, is_number), Token::Number);
        }
        if first.is_alphabetic() || first == '_' {
            let length = length_while(rest, |ch| ch.is_alphanumeric() || ch == '_');
            let word = &rest[..length];
            let is_sql = language.names.contains(&"sql");
            let is_keyword = language.keywords.contains(&word)
                || (is_sql && language.keywords.contains(&word.to_ascii_uppercase().as_str()));
            let token = match (is_keyword, rest[length..].starts_with('(')) {
                (true, _) => Token::Keyword,
                (false, true) => Token::Function,
                (false, false) => Token::Plain,
            };
            return (length, token);
        }
        (first.len_utf8(), Token::Plain)
    }
}

/// What a line of a diff in the unified format is.
pub fn diff_line(text: &str) -> Token {
    match text {
        text if text.starts_with("+++") || text.starts_with("---") => Token::File,
        text if text.starts_with("@@") => Token::Place,
        text if text.starts_with('+') => Token::Added,
        text if text.starts_with('-') => Token::Removed,
        _ => Token::Plain,
    }
}

/// How long a string is that ends on this line, its quotes included. Without an end it is the rest of the line.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, ch) in text.char_indices().skip(1) {
        match ch {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ch if ch == quote => return at + ch.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn length_while(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|ch: char| !wanted(ch)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_text_is_lost() {
        for language in ["rust", "py", "js", "go", "c", "sh", "sql", "json", "ruby", "nonsense", "diff"] {
            let mut highlighter = Highlighter::of(language);
            for line in ["", "a = 'x", "\"\"\"", "é /* ` # -- // \\", "+1", "日本 1.5e3_x", "f(1) + g"] {
                let pieces: String = highlighter.line(line).into_iter().map(|(text, _)| text).collect();
                assert_eq!(pieces, line, "{language}");
            }
        }
    }

    #[test]
    fn a_comment_of_several_lines_ends_where_it_ends() {
        let mut highlighter = Highlighter::of("rust");
        highlighter.line("/* open");
        let pieces = highlighter.line("still */ fn f() { 42 }");
        assert_eq!(pieces[0], ("still */", Token::Comment));
        assert!(pieces.contains(&("fn", Token::Keyword)) && pieces.contains(&("f", Token::Function)));
        assert!(pieces.contains(&("42", Token::Number)));
    }
}
