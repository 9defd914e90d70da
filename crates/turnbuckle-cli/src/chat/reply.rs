//! The reply that is being streamed: on the screen it can still be taken back, what has scrolled away cannot.

use anstyle::Effects;

use super::markdown::Markdown;
use super::styled::Row;
use crate::show::INDENT;

/// The reply of one attempt.
#[derive(Debug)]
pub(super) struct Reply {
    text: String,
    markdown: Markdown,
    /// Rows of it that have gone up into the scrollback.
    gone: usize,
}

/// Who speaks.
const SPEAKER: &str = "agent";

impl Reply {
    /// `room`: the columns beside the label.
    pub(super) fn new(room: usize) -> Self {
        Self { text: String::new(), markdown: Markdown::new(room), gone: 0 }
    }

    pub(super) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.markdown.push(piece);
    }

    pub(super) fn resize(&mut self, room: usize) {
        self.markdown.resize(room);
    }

    /// What was streamed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a part of it cannot be taken back on the screen.
    pub(super) fn has_scrolled_away(&self) -> bool {
        self.gone > 0
    }

    /// The rows that are on the screen.
    pub(super) fn rows(&self) -> Vec<Row> {
        labelled(SPEAKER, self.markdown.rows(), self.gone > 0)
    }

    /// Takes up to `count` rows, which do not change any more, for the scrollback.
    pub(super) fn take(&mut self, count: usize) -> Vec<Row> {
        let rows = labelled(SPEAKER, self.markdown.take(count), self.gone > 0);
        self.gone += rows.len();
        rows
    }

    /// All that is left, for the scrollback.
    pub(super) fn finish(mut self) -> Vec<Row> {
        self.markdown.finish();
        self.rows()
    }

    /// What is on the screen, struck out.
    pub(super) fn struck(&self) -> Vec<Row> {
        self.rows().into_iter().map(|row| row.with(Effects::STRIKETHROUGH | Effects::DIMMED)).collect()
    }
}

/// Rows beside the narrow column that says what they are. `goes_on`: the first of them stand elsewhere.
pub(super) fn labelled(label: &str, rows: Vec<Row>, goes_on: bool) -> Vec<Row> {
    let blank = || Row::plain(&" ".repeat(INDENT));
    let mut label = Some(label).filter(|_| !goes_on);
    rows.into_iter()
        .map(|row| match label.take() {
            Some(label) => row.behind(Row::dim(&format!("{label:<INDENT$}"))),
            None if row.is_empty() => row,
            None => row.behind(blank()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::view::text_width;
    use super::*;

    #[test]
    fn no_row_of_a_reply_is_cut_while_it_is_streamed() {
        for width in [20, 40, 80, 110, 200] {
            let mut reply = Reply::new(text_width(width));
            reply.push(&"word ".repeat(100));
            reply.push(&"x".repeat(500));
            let rows = reply.rows();
            // As the live part cuts them.
            let cut: Vec<Row> = rows.iter().cloned().map(|row| row.cut(width - 1)).collect();
            assert!(rows.len() > 3 && rows == cut, "{width}");
        }
    }
}
