//! The screen of a chat: output scrolls up, and the footer with the line that is being typed stays at the bottom.

use unicode_width::UnicodeWidthChar as _;

use super::draft::Draft;
use crate::show::{Palette, Tone};

/// Computes what to write to the terminal: it keeps track of where the output ends and whether the footer is drawn.
#[derive(Debug)]
pub(super) struct Screen {
    palette: Palette,
    /// The column in which the last line above ends; 0 if it is complete.
    column: usize,
    drawn: bool,
}

/// What stands before the line that is being typed.
pub(super) struct Footer<'a> {
    pub(super) label: &'a str,
    pub(super) tone: Tone,
    /// How wide the terminal is.
    pub(super) width: usize,
}

impl Screen {
    pub(super) fn new(palette: Palette) -> Self {
        Self { palette, column: 0, drawn: false }
    }

    /// What to write so that `text` stands above the footer.
    pub(super) fn print(&mut self, text: &str, footer: &Footer<'_>, draft: &Draft) -> String {
        let mut out = self.erase();
        out.push_str(text);
        self.column = column_after(self.column, text);
        out.push_str(&self.draw(footer, draft));
        out
    }

    /// Erases the footer and moves the cursor to the end of the output.
    pub(super) fn erase(&mut self) -> String {
        if !std::mem::take(&mut self.drawn) {
            return String::new();
        }
        match self.column {
            0 => "\r\x1b[J".to_owned(),
            column => format!("\r\x1b[J\x1b[A\x1b[{column}C"),
        }
    }

    fn draw(&mut self, footer: &Footer<'_>, draft: &Draft) -> String {
        self.drawn = true;
        let label = footer.label.chars().filter_map(|ch| ch.width()).sum::<usize>();
        let (text, column) = draft.window(footer.width.saturating_sub(label + 1).max(8));
        let newline = if self.column > 0 { "\n" } else { "" };
        let label_text = self.palette.paint(footer.tone, footer.label);
        let right = label + column;
        let place = if right > 0 { format!("\r\x1b[{right}C") } else { "\r".to_owned() };
        format!("{newline}{label_text}{text}{place}")
    }
}

/// Colours take no room.
fn column_after(mut column: usize, text: &str) -> usize {
    let mut chars = text.chars();
    while let Some(ch) = chars.next() {
        match ch {
            '\n' => column = 0,
            '\x1b' => drop(chars.by_ref().find(|ch| ch.is_ascii_alphabetic())),
            ch => column += ch.width().unwrap_or(0),
        }
    }
    column
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen() -> Screen {
        Screen::new(Palette::plain())
    }

    const FOOTER: Footer<'static> = Footer { label: "> ", tone: Tone::Plain, width: 20 };

    #[test]
    fn the_foot_stays_below_a_line_that_goes_on() {
        let (mut screen, draft) = (screen(), Draft::default());
        assert_eq!(screen.print("ab", &FOOTER, &draft), "ab\n> \r\x1b[2C");
        assert_eq!(screen.print("c\n", &FOOTER, &draft), "\r\x1b[J\x1b[A\x1b[2Cc\n> \r\x1b[2C");
        assert_eq!(screen.print("d\n", &FOOTER, &draft), "\r\x1b[Jd\n> \r\x1b[2C");
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(column_after(0, "\x1b[2mab\x1b[0mc"), 3);
        assert_eq!(column_after(5, "x\n日"), 2);
    }
}
