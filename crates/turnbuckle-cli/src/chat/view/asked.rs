//! Lines of a question. What is asked about is chosen by a model: no part of it may look like another line of the question.

use anstyle::Style;

use super::super::styled::{Row, wrap};
use super::{View, labelled};
use crate::show::Line;

/// Before every row but the first of a line. No line of a question begins with it: names of arguments that have such a sign are quoted.
const GUTTER: &str = "│ ";
const GUTTER_WIDTH: usize = 2;
/// So many blanks in a row are shown as signs, unless a line begins with them.
const MANY_BLANKS: usize = 4;

impl View {
    /// A line of a question, with every row that goes on marked as such.
    pub(in super::super) fn asked(&mut self, line: &Line) {
        let style = self.screen.palette().style(line.tone);
        let rows = asked_rows(&line.text, style, self.text_width());
        self.put(labelled(line.label, rows, line.label.is_empty()));
    }
}

/// The rows of a line of a question.
pub(super) fn asked_rows(text: &str, style: Style, room: usize) -> Vec<Row> {
    let room = room.saturating_sub(GUTTER_WIDTH).max(1);
    let lines = text.split('\n').flat_map(|line| wrap(&Row::of(&with_blanks_shown(line), style), room, 0));
    let marked = |(place, row): (usize, Row)| if place == 0 { row } else { row.behind(Row::dim(GUTTER)) };
    lines.enumerate().map(marked).collect()
}

/// A run of blanks could push what is behind it to where another line would begin, or out of sight.
fn with_blanks_shown(line: &str) -> String {
    let begins = line.len() - line.trim_start_matches(' ').len();
    let mut shown = line[..begins].to_owned();
    let mut rest = &line[begins..];
    while let Some(at) = rest.find(' ') {
        let blanks = rest[at..].len() - rest[at..].trim_start_matches(' ').len();
        shown.push_str(&rest[..at]);
        shown.push_str(&if blanks < MANY_BLANKS { " " } else { "·" }.repeat(blanks));
        rest = &rest[at + blanks..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Palette;

    #[test]
    fn no_row_of_a_value_looks_like_another_field() {
        for room in [29, 89] {
            for filler in
                [" ".repeat(room), "x".repeat(room - 6), format!("{} ", "word ".repeat(room / 5)), "\n".to_owned()]
            {
                let text = format!("path: {filler}command: ls");
                let rows = asked_rows(&text, Style::new(), room);
                let shown: Vec<String> = rows.into_iter().map(|row| row.paint(Palette::plain())).collect();
                assert!(shown[0].starts_with("path:"), "{shown:?}");
                assert!(shown[1..].iter().all(|row| row.contains('│') && !row.starts_with("command")), "{shown:?}");
            }
        }
    }

    #[test]
    fn many_blanks_are_seen_and_indentation_stays() {
        assert_eq!(with_blanks_shown("      if x {"), "      if x {");
        assert_eq!(with_blanks_shown("a b  c    d"), "a b  c····d");
        assert_eq!(with_blanks_shown("a     "), "a·····");
    }
}
