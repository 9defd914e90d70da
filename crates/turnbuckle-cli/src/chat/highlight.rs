//! Colours in code. What is a comment, a string, a number or a keyword is known to the page as well, and decided in one place.

use anstyle::{AnsiColor, Style};
use turnbuckle_server::page::highlight::{self, Token};

use super::styled::{Row, coloured};

/// Colours the lines of one block of code, in order.
#[derive(Debug)]
pub(super) struct Highlighter(highlight::Highlighter);

impl Highlighter {
    /// For the word behind the opening fence, or the end of a file's name.
    pub(super) fn of(language: &str) -> Self {
        Self(highlight::Highlighter::of(language))
    }

    /// One line, without its line end.
    pub(super) fn line(&mut self, text: &str) -> Row {
        let mut row = Row::default();
        for (piece, token) in self.0.line(text) {
            row.push(piece, style(token));
        }
        row
    }
}

/// How a line of a diff in the unified format is shown.
pub(super) fn diff_style(line: &str) -> Style {
    style(highlight::diff_line(line))
}

fn style(token: Token) -> Style {
    match token {
        Token::Plain => Style::new(),
        Token::Comment => coloured(AnsiColor::BrightBlack),
        Token::String | Token::Added => coloured(AnsiColor::Green),
        Token::Number | Token::Place => coloured(AnsiColor::Cyan),
        Token::Keyword => coloured(AnsiColor::Magenta),
        Token::Function => coloured(AnsiColor::Blue),
        Token::Removed => coloured(AnsiColor::Red),
        Token::File => Style::new().bold(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Palette;

    fn styles(language: &str, lines: &[&str]) -> Vec<String> {
        let mut highlighter = Highlighter::of(language);
        lines.iter().map(|line| highlighter.line(line).paint(Palette::coloured())).collect()
    }

    #[test]
    fn comments_strings_numbers_and_keywords_have_colours() {
        let shown = styles("rust", &["let x = \"a \\\" b\"; // 1", "/* open", "still */ fn f() { 42 }"]);
        let (keyword, string) = (coloured(AnsiColor::Magenta), coloured(AnsiColor::Green));
        let (comment, number) = (coloured(AnsiColor::BrightBlack), coloured(AnsiColor::Cyan));
        assert!(shown[0].contains(&format!("{keyword}let")));
        assert!(shown[0].contains(&format!("{string}\"a \\\" b\"")));
        assert!(shown[0].contains(&format!("{comment}// 1")));
        assert!(shown[2].starts_with(&format!("{comment}still */")), "{:?}", shown[2]);
        assert!(shown[2].contains(&format!("{number}42")));
    }

    #[test]
    fn nothing_of_the_text_is_lost() {
        for language in ["rust", "py", "js", "go", "c", "sh", "sql", "json", "ruby", "nonsense", "diff"] {
            let mut highlighter = Highlighter::of(language);
            for line in ["", "a = 'x", "\"\"\"", "é /* ` # -- // \\", "+1", "日本 1.5e3_x"] {
                assert_eq!(highlighter.line(line).text(), line, "{language}");
            }
        }
    }
}
