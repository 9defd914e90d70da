//! The screen of a chat: what happens runs upwards, and the line that is being typed stays at its foot.

use unicode_width::UnicodeWidthChar as _;

use super::draft::Draft;
use crate::show::{Palette, Tone};

/// Where the words above the foot end, and whether the foot is drawn.
#[derive(Debug)]
pub(super) struct Board {
    palette: Palette,
    /// The column in which the last line above ends; 0 if it is complete.
    column: usize,
    drawn: bool,
}

/// What stands before the line that is being typed.
pub(super) struct Foot<'a> {
    pub(super) label: &'a str,
    pub(super) tone: Tone,
    /// How wide the terminal is.
    pub(super) width: usize,
}

impl Board {
    pub(super) fn new(palette: Palette) -> Self {
        Self { palette, column: 0, drawn: false }
    }

    /// What to write so that `text` stands above the foot.
    pub(super) fn print(&mut self, text: &str, foot: &Foot<'_>, draft: &Draft) -> String {
        let mut out = self.erase();
        out.push_str(text);
        self.column = column_after(self.column, text);
        out.push_str(&self.draw(foot, draft));
        out
    }

    /// Takes the foot away; the next word goes where the last one ended.
    pub(super) fn erase(&mut self) -> String {
        if !std::mem::take(&mut self.drawn) {
            return String::new();
        }
        match self.column {
            0 => "\r\x1b[J".to_owned(),
            column => format!("\r\x1b[J\x1b[A\x1b[{column}C"),
        }
    }

    fn draw(&mut self, foot: &Foot<'_>, draft: &Draft) -> String {
        self.drawn = true;
        let label = foot.label.chars().filter_map(|ch| ch.width()).sum::<usize>();
        let (text, column) = draft.window(foot.width.saturating_sub(label + 1).max(8));
        let newline = if self.column > 0 { "\n" } else { "" };
        let label_text = self.palette.paint(foot.tone, foot.label);
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

    fn board() -> Board {
        Board::new(Palette::plain())
    }

    const FOOT: Foot<'static> = Foot { label: "> ", tone: Tone::Plain, width: 20 };

    #[test]
    fn the_foot_stays_below_a_line_that_goes_on() {
        let (mut board, draft) = (board(), Draft::default());
        assert_eq!(board.print("ab", &FOOT, &draft), "ab\n> \r\x1b[2C");
        assert_eq!(board.print("c\n", &FOOT, &draft), "\r\x1b[J\x1b[A\x1b[2Cc\n> \r\x1b[2C");
        assert_eq!(board.print("d\n", &FOOT, &draft), "\r\x1b[Jd\n> \r\x1b[2C");
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(column_after(0, "\x1b[2mab\x1b[0mc"), 3);
        assert_eq!(column_after(5, "x\n日"), 2);
    }
}
