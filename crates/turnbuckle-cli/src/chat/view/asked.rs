//! Questions on the screen of a chat: lines and diffs, of which no part can pass for another line.

use anstyle::Style;

use super::super::highlight::diff_style;
use super::super::styled::Row;
use super::{BELOW_A_QUESTION, View, labelled, size};
use crate::show::{AskedRow, GUTTER, Line, asked_rows, diff_rows};

impl View {
    /// A line of a question, with every row that goes on marked as such.
    pub(in super::super) fn asked(&mut self, line: &Line) {
        let style = self.screen.palette().style(line.tone);
        let rows = asked(&line.text, style, self.text_width());
        self.put(labelled(line.label, rows, line.label.is_empty()));
    }

    /// A diff in the unified format.
    pub(in super::super) fn diff(&mut self, diff: &str) {
        let room = self.text_width();
        let rows: Vec<Row> = diff.lines().flat_map(|line| changed(line, room)).collect();
        self.put(labelled("", rows, true));
    }

    /// Whether these lines and this diff can be on the screen all at once, with what stands below them.
    pub(in super::super) fn fits(&self, lines: &[Line], diff: Option<&str>) -> bool {
        let room = self.text_width();
        let lines: usize = lines.iter().map(|line| asked(&line.text, Style::new(), room).len()).sum();
        let diff: usize = diff.unwrap_or_default().lines().map(|line| changed(line, room).len()).sum();
        lines + diff + BELOW_A_QUESTION <= size().1
    }
}

fn asked(text: &str, style: Style, room: usize) -> Vec<Row> {
    styled(asked_rows(text, room), style)
}

fn changed(line: &str, room: usize) -> Vec<Row> {
    styled(diff_rows(line, room), diff_style(line))
}

fn styled(rows: Vec<AskedRow>, style: Style) -> Vec<Row> {
    let row = |row: AskedRow| match row.goes_on {
        false => Row::of(&row.text, style),
        true => Row::of(&row.text, style).behind(Row::dim(GUTTER)),
    };
    rows.into_iter().map(row).collect()
}
