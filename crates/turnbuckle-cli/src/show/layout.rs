//! Lines on a screen: a narrow column for the stage, the text beside it, wrapped to the width.

use anstyle::{AnsiColor, Color, Style};

use super::asked::asked_text;
use super::commands;
use super::safe::clean;
use super::wrap::{columns, rows};
use super::{Line, Tone};

/// Where the text begins: as in a trace.
pub(crate) const INDENT: usize = 10;
/// Beyond this, lines are hard to read.
const WIDEST: usize = 110;

/// Which styles are used: none where the stream is no terminal, or does not want any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    coloured: bool,
}

impl Palette {
    /// For a stream: `NO_COLOR` and its like are minded.
    pub(crate) fn of(stream: &impl anstream::stream::RawStream) -> Self {
        let choice = anstream::AutoStream::choice(stream);
        Self { coloured: !matches!(choice, anstream::ColorChoice::Never) }
    }

    /// Whether styles are used.
    pub(crate) fn is_coloured(self) -> bool {
        self.coloured
    }

    /// Styles, whatever the stream is.
    #[cfg(test)]
    pub(crate) fn coloured() -> Self {
        Self { coloured: true }
    }

    /// No styles at all.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { coloured: false }
    }

    pub(crate) fn style(self, tone: Tone) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(Color::Ansi(colour)));
        match tone {
            _ if !self.coloured => Style::new(),
            Tone::Plain => Style::new(),
            Tone::Dim => Style::new().dimmed(),
            Tone::Tool => colour(AnsiColor::Cyan),
            Tone::Hook => colour(AnsiColor::Yellow),
            Tone::Refusal => colour(AnsiColor::Red).bold(),
            Tone::Good => colour(AnsiColor::Green),
            Tone::Bad => colour(AnsiColor::Red),
        }
    }

    /// `text` in a tone. A style never spans lines: each line can be cut out by itself.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let style = self.style(tone);
        if style == Style::new() || text.is_empty() {
            return text.to_owned();
        }
        format!("{style}{text}{style:#}")
    }
}

/// How wide stdout or stderr is, if it is a terminal.
pub(crate) fn terminal_width(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let (terminal_size::Width(width), _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(width).clamp(INDENT + 20, WIDEST))
}

/// Lays out lines and streamed words.
#[derive(Debug)]
pub(crate) struct Layout {
    palette: Palette,
    /// None: lines are not wrapped.
    width: Option<usize>,
    /// Where the streamed text is; none between texts.
    column: Option<usize>,
    /// A word that may go on, and how wide it is.
    held: String,
    held_width: usize,
}

impl Layout {
    pub(crate) fn new(palette: Palette, width: Option<usize>) -> Self {
        Self { palette, width, column: None, held: String::new(), held_width: 0 }
    }

    /// A whole line; a text under way is ended first.
    pub(crate) fn line(&mut self, line: &Line) -> String {
        let rows = self.rows(&line.text);
        self.laid_out(line, rows)
    }

    /// A line that has commands to be copied: none of them is broken, however narrow the screen is.
    pub(crate) fn with_commands(&mut self, line: &Line) -> String {
        let (text, room) = (clean(&line.text), self.room());
        let parts = text.split('\n').flat_map(|line| commands::parts(line, room));
        let rows = parts.flat_map(|(part, is_command)| match is_command {
            true => vec![part.to_owned()],
            false => self.rows(part),
        });
        let rows = rows.collect();
        self.laid_out(line, rows)
    }

    fn laid_out(&mut self, line: &Line, rows: Vec<String>) -> String {
        let mut out = self.end_text();
        let mut label = line.label;
        for row in rows {
            if !(label.is_empty() && row.is_empty()) {
                out.push_str(&self.label(label));
                out.push_str(&self.palette.paint(line.tone, &row));
            }
            out.push('\n');
            label = "";
        }
        out
    }

    /// A line of a question: no part of it looks like another one.
    pub(crate) fn asked(&mut self, line: &Line) -> String {
        let room = self.width.map(|width| width - INDENT);
        self.line(&Line { text: asked_text(&line.text, room), ..line.clone() })
    }

    /// A text with the indent of the lines, and no label; no command in it is broken.
    pub(crate) fn note(&mut self, tone: Tone, text: &str) -> String {
        self.with_commands(&Line { label: "", tone, text: text.to_owned() })
    }

    fn label(&self, label: &str) -> String {
        if label.is_empty() {
            return " ".repeat(INDENT);
        }
        self.palette.paint(Tone::Dim, &format!("{label:<INDENT$}"))
    }

    fn room(&self) -> usize {
        self.width.map_or(usize::MAX, |width| width - INDENT)
    }

    /// A text in rows that fit.
    fn rows(&self, text: &str) -> Vec<String> {
        let text = clean(text).replace('\t', "    ");
        text.split('\n').flat_map(|line| rows(line, self.room(), columns)).collect()
    }

    /// A piece of streamed text, under the speaker. A word is held back until it is whole, so that it is not torn; one that
    /// is wider than a row is cut, so that no more than a row is held back.
    pub(crate) fn text(&mut self, piece: &str, tone: Tone) -> String {
        let mut out = String::new();
        if self.column.is_none() {
            out.push_str(&self.label("call"));
            self.column = Some(0);
        }
        let room = self.room();
        for ch in clean(piece).replace('\t', "    ").chars() {
            let width = columns(ch);
            match ch {
                '\n' => {
                    out.push_str(&self.word(tone));
                    out.push_str(&self.new_row());
                }
                ' ' => {
                    self.held.push(' ');
                    out.push_str(&self.word(tone));
                }
                ch => {
                    if self.held_width + width > room && self.held_width > 0 {
                        out.push_str(&self.word(tone));
                    }
                    self.held.push(ch);
                    self.held_width += width;
                }
            }
        }
        out
    }

    /// Writes what is held back, on the next row if this one has no room for it.
    fn word(&mut self, tone: Tone) -> String {
        let (word, width) = (std::mem::take(&mut self.held), std::mem::take(&mut self.held_width));
        let column = self.column.unwrap_or_default();
        let mut out = if column > 0 && column + width > self.room() { self.new_row() } else { String::new() };
        let space = usize::from(word.ends_with(' '));
        self.column = Some(self.column.unwrap_or_default() + width + space);
        out.push_str(&self.palette.paint(tone, &word));
        out
    }

    fn new_row(&mut self) -> String {
        self.column = Some(0);
        format!("\n{:INDENT$}", "")
    }

    /// Ends a text under way.
    pub(crate) fn end_text(&mut self) -> String {
        if self.column.is_none() {
            return String::new();
        }
        let rest = if self.held.is_empty() { String::new() } else { self.word(Tone::Plain) };
        self.column = None;
        format!("{rest}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(width: usize) -> Layout {
        Layout::new(Palette::plain(), Some(width))
    }

    fn line(text: &str) -> Line {
        Line { label: "call", tone: Tone::Plain, text: text.to_owned() }
    }

    #[test]
    fn lines_are_wrapped_beside_the_column() {
        let shown = wide(20).line(&line("one two three four"));
        assert_eq!(shown, "call      one two\n          three four\n");
        assert_eq!(wide(15).line(&line("abcdefgh")), "call      abcde\n          fgh\n");
        assert_eq!(wide(20).line(&line("a\n  ^ b")), "call      a\n            ^ b\n");
    }

    #[test]
    fn a_value_of_a_question_cannot_pass_for_another_argument() {
        let blanks = |count: usize| " ".repeat(count);
        let text = format!(
            "command: echo hi{}  timeout: 5{}  command: ls{}; rm -rf .",
            blanks(63 - INDENT),
            blanks(68 - INDENT),
            blanks(400)
        );
        let shown = wide(80).asked(&line(&text));
        assert!(shown.starts_with("call      command: echo\n          │ hi····"), "{shown}");
        assert!(shown.lines().count() > 3, "{shown}");
        assert!(shown.lines().skip(1).all(|row| row.starts_with("          │ ")), "{shown}");
        assert!(Layout::new(Palette::plain(), None).asked(&line(&text)).contains(&text), "no screen: as it is");
    }

    #[test]
    fn a_command_is_never_broken() {
        let command = "`turnbuckle answer w80 c1 --digest a84f00a84f00a84f --approve`";
        let text = format!("until 2026-11-20T10:00:00Z; {command} (or --deny [REASON])");
        let shown = wide(40).note(Tone::Plain, &text);
        let rows: Vec<&str> = shown.lines().map(str::trim).collect();
        assert_eq!(rows, ["until 2026-11-20T10:00:00Z;", command, "(or --deny [REASON])"]);
        assert_eq!(wide(200).note(Tone::Plain, &text), format!("          {text}\n"));
        assert_eq!(Layout::new(Palette::plain(), None).note(Tone::Plain, &text), format!("          {text}\n"));
    }

    #[test]
    fn wide_letters_count_twice() {
        assert_eq!(wide(14).line(&line("日本語")), "call      日本\n          語\n");
    }

    #[test]
    fn streamed_words_are_not_torn() {
        let mut layout = wide(20);
        let pieces = ["one t", "wo thr", "ee four"];
        let shown: String = pieces.iter().map(|piece| layout.text(piece, Tone::Plain)).collect();
        assert_eq!(shown + &layout.end_text(), "call      one two \n          three four\n");
    }

    #[test]
    fn a_streamed_word_that_is_wider_than_a_row_is_cut_as_it_comes() {
        let mut layout = wide(20);
        let shown = layout.text("ab ", Tone::Plain) + &layout.text(&"x".repeat(25), Tone::Plain);
        assert_eq!(shown, format!("call      ab \n          {}\n          {}", "x".repeat(10), "x".repeat(10)));
        assert!(layout.held.len() <= 10);
        assert_eq!(layout.end_text(), format!("\n          {}\n", "x".repeat(5)));
    }
}
