//! The screen of a chat: what is done scrolls up and belongs to the terminal; below it is a live part that is drawn again and
//! again.

use super::styled::Row;
use crate::show::Palette;

/// Computes what to write to the terminal. It remembers what the live part looks like there.
#[derive(Debug)]
pub(super) struct Screen {
    palette: Palette,
    /// The live rows as they stand on the terminal, and how wide each is.
    drawn: Vec<(String, usize)>,
    /// The row of `drawn` in which the cursor is.
    cursor: usize,
    width: usize,
}

/// The live part: rows that fit the screen, and where the cursor is.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) rows: Vec<Row>,
    pub(super) cursor_row: usize,
    pub(super) cursor_column: usize,
}

/// Around everything that is drawn at once, for terminals that know it: none of them shows half of it.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

impl Screen {
    pub(super) fn new(palette: Palette) -> Self {
        Self { palette, drawn: Vec::new(), cursor: 0, width: 0 }
    }

    pub(super) fn palette(&self) -> Palette {
        self.palette
    }

    /// What to write so that `above` stands above the live part, and the live part is this. Empty if nothing changes.
    pub(super) fn draw(&mut self, above: &[Row], live: &Live, width: usize) -> String {
        let rows: Vec<(String, usize)> = live.rows.iter().map(|row| (row.paint(self.palette), row.width())).collect();
        let is_same = above.is_empty() && rows == self.drawn && width == self.width;
        let mut out = String::new();
        if !is_same {
            out.push_str(&self.erase(width));
            for row in above {
                out.push_str(&row.paint(self.palette));
                out.push('\n');
            }
            let texts: Vec<&str> = rows.iter().map(|(text, _)| text.as_str()).collect();
            out.push_str(&texts.join("\n"));
            self.cursor = rows.len().saturating_sub(1);
            (self.drawn, self.width) = (rows, width);
        }
        out.push_str(&self.place(live));
        if out.is_empty() { out } else { format!("{BEGIN}{out}{END}") }
    }

    /// Erases the live part; the cursor is where it began.
    pub(super) fn erase(&mut self, width: usize) -> String {
        if self.drawn.is_empty() {
            return String::new();
        }
        // A terminal that has become narrower has broken the rows that were drawn.
        let height = |width_of_row: usize| if width == 0 { 1 } else { width_of_row.div_ceil(width).max(1) };
        let is_narrower = width < self.width;
        let above: usize =
            self.drawn[..self.cursor].iter().map(|(_, row)| if is_narrower { height(*row) } else { 1 }).sum();
        self.drawn.clear();
        self.cursor = 0;
        format!("{}\r\x1b[J", up(above))
    }

    fn place(&mut self, live: &Live) -> String {
        let row = live.cursor_row.min(self.drawn.len().saturating_sub(1));
        let lines = match self.cursor.checked_sub(row) {
            Some(rows) => up(rows),
            None => format!("\x1b[{}B", row - self.cursor),
        };
        self.cursor = row;
        let right = if live.cursor_column > 0 { format!("\x1b[{}C", live.cursor_column) } else { String::new() };
        format!("{lines}\r{right}")
    }
}

fn up(rows: usize) -> String {
    if rows > 0 { format!("\x1b[{rows}A") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(rows: &[&str], cursor_row: usize, cursor_column: usize) -> Live {
        Live { rows: rows.iter().map(|text| Row::plain(text)).collect(), cursor_row, cursor_column }
    }

    fn bare(text: &str) -> String {
        text.replace(BEGIN, "").replace(END, "")
    }

    #[test]
    fn the_live_part_stays_below_what_is_done() {
        let mut screen = Screen::new(Palette::plain());
        assert_eq!(bare(&screen.draw(&[], &live(&["> a", "status"], 0, 3), 20)), "> a\nstatus\x1b[1A\r\x1b[3C");
        let done = [Row::plain("done")];
        assert_eq!(
            bare(&screen.draw(&done, &live(&["> a", "status"], 0, 3), 20)),
            "\r\x1b[Jdone\n> a\nstatus\x1b[1A\r\x1b[3C"
        );
        assert_eq!(bare(&screen.draw(&[], &live(&["> a", "status"], 0, 2), 20)), "\r\x1b[2C", "only the cursor moves");
        assert_eq!(bare(&screen.erase(20)), "\r\x1b[J");
    }

    #[test]
    fn rows_that_a_narrower_terminal_broke_are_erased_as_well() {
        let mut screen = Screen::new(Palette::plain());
        screen.draw(&[], &live(&["0123456789", "> "], 1, 2), 20);
        assert_eq!(screen.erase(5), "\x1b[2A\r\x1b[J");
    }
}
