//! Text with styles, in rows that fit a width.
//!
//! This is the one place through which text reaches the screen of a chat: a [`Span`] cannot hold a character that steers a
//! terminal, and only styles of this program become escape sequences.

use anstyle::{AnsiColor, Color, Effects, Style};

use crate::show::{Palette, clean, columns};

/// Some text in one style. It has no line end, no tab and nothing that steers a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    text: String,
    style: Style,
}

/// One row, or one line that is not wrapped yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    spans: Vec<Span>,
}

/// A colour of the terminal's own palette, so that light and dark themes both work.
pub(super) fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

impl Row {
    pub(super) fn of(text: &str, style: Style) -> Self {
        let mut row = Self::default();
        row.push(text, style);
        row
    }

    pub(super) fn plain(text: &str) -> Self {
        Self::of(text, Style::new())
    }

    pub(super) fn dim(text: &str) -> Self {
        Self::of(text, Style::new().dimmed())
    }

    /// Adds text, without what is unsafe on a terminal.
    pub(super) fn push(&mut self, text: &str, style: Style) {
        if text.is_empty() {
            return;
        }
        let safe = clean(text).replace('\t', "    ").replace('\n', " ");
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.text.push_str(&safe),
            _ => self.spans.push(Span { text: safe, style }),
        }
    }

    pub(super) fn append(&mut self, other: Self) {
        for span in other.spans {
            match self.spans.last_mut() {
                Some(last) if last.style == span.style => last.text.push_str(&span.text),
                _ => self.spans.push(span),
            }
        }
    }

    /// The same behind other text.
    pub(super) fn behind(self, prefix: Self) -> Self {
        let mut row = prefix;
        row.append(self);
        row
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    pub(super) fn width(&self) -> usize {
        self.spans.iter().flat_map(|span| span.text.chars()).map(columns).sum()
    }

    /// The same, with these effects on top: struck out, dimmed.
    pub(super) fn with(mut self, effects: Effects) -> Self {
        for span in &mut self.spans {
            span.style |= effects;
        }
        self
    }

    /// What is written to the terminal.
    pub(super) fn paint(&self, palette: Palette) -> String {
        let mut out = String::new();
        for Span { text, style } in &self.spans {
            match palette.is_coloured() && *style != Style::new() {
                true => out.push_str(&format!("{style}{text}{style:#}")),
                false => out.push_str(text),
            }
        }
        out
    }

    /// Cut to so many columns, with a mark if something is missing.
    pub(super) fn cut(self, room: usize) -> Self {
        if self.width() <= room {
            return self;
        }
        let mut row = Self::default();
        let mut used = 0;
        'spans: for span in &self.spans {
            for ch in span.text.chars() {
                if used + columns(ch) + 1 > room {
                    break 'spans;
                }
                used += columns(ch);
                row.push_char(ch, span.style);
            }
        }
        row.push_char('…', Style::new());
        row
    }

    fn push_char(&mut self, ch: char, style: Style) {
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.text.push(ch),
            _ => self.spans.push(Span { text: ch.to_string(), style }),
        }
    }

    fn chars(&self) -> impl Iterator<Item = (char, Style)> + '_ {
        self.spans.iter().flat_map(|span| span.text.chars().map(|ch| (ch, span.style)))
    }
}

/// Breaks a line between words into rows of at most `room` columns. Rows after the first begin with `hang` spaces. A word that
/// is wider than a row is cut. Each character is looked at a bounded number of times.
pub(super) fn wrap(line: &Row, room: usize, hang: usize) -> Vec<Row> {
    let room = room.max(2);
    let hang = if hang + 8 > room { 0 } else { hang };
    let chars: Vec<(char, Style)> = line.chars().collect();
    let (mut rows, mut row, mut used, mut inked) = (Vec::new(), Row::default(), 0, false);
    let mut next_row = |row: &mut Row, used: &mut usize, inked: &mut bool| {
        rows.push(trimmed(std::mem::take(row)));
        (0..hang).for_each(|_| row.push_char(' ', Style::new()));
        (*used, *inked) = (hang, false);
    };
    let mut at = 0;
    while at < chars.len() {
        let end = chars[at..].iter().position(|(ch, _)| *ch == ' ').map_or(chars.len(), |length| at + length);
        let word = &chars[at..end];
        let width: usize = word.iter().map(|(ch, _)| columns(*ch)).sum();
        if inked && used + width > room {
            next_row(&mut row, &mut used, &mut inked);
        }
        for (ch, style) in word {
            let width = columns(*ch);
            if used + width > room && used > hang {
                next_row(&mut row, &mut used, &mut inked);
            }
            row.push_char(*ch, *style);
            (used, inked) = (used + width, true);
        }
        at = end;
        while let Some((' ', style)) = chars.get(at) {
            row.push_char(' ', *style);
            (used, at) = (used + 1, at + 1);
        }
    }
    rows.push(trimmed(row));
    rows
}

/// A line of code: cut where a row is full, wherever that is.
pub(super) fn fold(line: &Row, room: usize) -> Vec<Row> {
    let room = room.max(2);
    let (mut rows, mut row, mut used) = (Vec::new(), Row::default(), 0);
    for (ch, style) in line.chars() {
        if used + columns(ch) > room && used > 0 {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        row.push_char(ch, style);
        used += columns(ch);
    }
    rows.push(row);
    rows
}

/// Without the spaces at its end.
fn trimmed(mut row: Row) -> Row {
    while let Some(last) = row.spans.last_mut() {
        last.text.truncate(last.text.trim_end_matches(' ').len());
        if !last.text.is_empty() {
            break;
        }
        row.spans.pop();
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rows: &[Row]) -> Vec<String> {
        rows.iter().map(Row::text).collect()
    }

    #[test]
    fn no_text_steers_the_terminal() {
        let row = Row::of("a\u{1b}[31m\u{9b}2J\u{7}\u{202e}b", Style::new().bold());
        assert!(!row.paint(Palette::plain()).contains(['\u{1b}', '\u{9b}', '\u{7}', '\u{202e}']));
        let mut line = Row::plain("\u{1b}]0;title\u{7}");
        line.append(Row::plain("\r\n"));
        assert!(!line.text().chars().any(char::is_control));
    }

    #[test]
    fn rows_are_never_wider_than_the_room() {
        for text in ["one two three four five", "abcdefghijklmnop qr", "日本語 日本語 日本", "x      y", ""] {
            for room in 2..24 {
                for hang in [0, 2, 4] {
                    let wide = wrap(&Row::plain(text), room, hang).into_iter().find(|row| row.width() > room);
                    assert_eq!(wide, None, "{text:?} in {room} columns with {hang}");
                }
                assert!(fold(&Row::plain(text), room).iter().all(|row| row.width() <= room), "{text:?} in {room}");
                assert!(Row::plain(text).cut(room).width() <= room, "{text:?} in {room}");
            }
        }
    }

    #[test]
    fn following_rows_hang() {
        assert_eq!(texts(&wrap(&Row::plain("• one two three"), 10, 2)), ["• one two", "  three"]);
        let mut line = Row::plain("a ");
        line.push("bold words", Style::new().bold());
        let rows = wrap(&line, 6, 0);
        assert_eq!(texts(&rows), ["a bold", "words"]);
    }

    /// A model may answer with one word of a megabyte.
    #[test]
    fn a_long_line_takes_time_in_proportion_to_its_length() {
        let rows = wrap(&Row::plain(&"x".repeat(1_000_000)), 80, 0);
        assert_eq!(rows.len(), 12_500);
    }
}
