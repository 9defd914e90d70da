//! Markdown as it is streamed: whole blocks are laid out once, the last one again with each piece.

mod blocks;
mod table;
mod writer;

use std::collections::VecDeque;

use self::blocks::{Block, Blocks};
use super::styled::{Row, fold};

/// Code stands so far to the right.
const CODE_INDENT: usize = 2;

/// A text that is being streamed, as rows of a width.
#[derive(Debug, Default)]
pub(super) struct Markdown {
    blocks: Blocks,
    /// What is laid out and was not taken away, each block with its rows.
    laid_out: VecDeque<(Block, Vec<Row>)>,
    /// How many rows of the first block were taken away.
    taken: usize,
    width: usize,
    /// Whether anything was written, so that the next block has an empty row before it.
    begun: bool,
}

impl Markdown {
    pub(super) fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    /// Adds a piece of the text.
    pub(super) fn push(&mut self, piece: &str) {
        self.blocks.push(piece);
        self.lay_out_complete();
    }

    /// The text is complete.
    pub(super) fn finish(&mut self) {
        self.blocks.finish();
        self.lay_out_complete();
    }

    fn lay_out_complete(&mut self) {
        while let Some(block) = self.blocks.next() {
            let rows = self.rows_of(&block, self.begun);
            self.begun |= !rows.is_empty();
            self.laid_out.push_back((block, rows));
        }
    }

    /// The terminal has another width now.
    pub(super) fn resize(&mut self, width: usize) {
        if width == self.width {
            return;
        }
        self.width = width;
        let blocks: Vec<Block> = self.laid_out.drain(..).map(|(block, _)| block).collect();
        for (index, block) in blocks.into_iter().enumerate() {
            let rows = self.rows_of(&block, index > 0);
            self.laid_out.push_back((block, rows));
        }
        // What was taken away of the first block stands above; about as many rows of it are passed over.
        self.taken = self.taken.min(self.laid_out.front().map_or(0, |(_, rows)| rows.len()));
    }

    fn rows_of(&self, block: &Block, is_later: bool) -> Vec<Row> {
        let mut rows = match block {
            Block::Markdown(text) => writer::rows(text, self.width),
            Block::Code(line) => {
                let room = self.width.saturating_sub(CODE_INDENT);
                let indent = || Row::plain(&" ".repeat(CODE_INDENT));
                return fold(line, room).into_iter().map(|row| row.behind(indent())).collect();
            }
            Block::Gap => return if is_later { vec![Row::default()] } else { Vec::new() },
        };
        if is_later && !rows.is_empty() {
            rows.insert(0, Row::default());
        }
        rows
    }

    /// All rows that were not taken away, the unfinished block included.
    pub(super) fn rows(&self) -> Vec<Row> {
        let laid_out = self.laid_out.iter().flat_map(|(_, rows)| rows.iter().cloned()).skip(self.taken);
        let mut rows: Vec<Row> = laid_out.collect();
        if let Some(open) = self.blocks.open() {
            rows.extend(self.rows_of(&open, self.begun));
        }
        rows
    }

    /// Takes up to `count` rows away that do not change any more.
    pub(super) fn take(&mut self, count: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        while rows.len() < count {
            let Some((_, first)) = self.laid_out.front() else { break };
            let left = &first[self.taken.min(first.len())..];
            let wanted = left.len().min(count - rows.len());
            rows.extend_from_slice(&left[..wanted]);
            match wanted == left.len() {
                true => {
                    self.laid_out.pop_front();
                    self.taken = 0;
                }
                false => self.taken += wanted,
            }
        }
        rows
    }
}

/// A whole text as rows.
pub(super) fn rows(text: &str, width: usize) -> Vec<Row> {
    let mut markdown = Markdown::new(width);
    markdown.push(text);
    markdown.finish();
    markdown.rows()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title\n\nSome *words* and `code`, which go on for a while.\n\n- one\n- two\n  1. inner\n\n\
                        ```rust\nfn main() {}\n\n// end\n```\n\n| a | b |\n|---|---|\n| 1 | two |\n\n> quoted\n\nEnd.";

    fn texts(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| row.text().trim_end().to_owned()).collect()
    }

    #[test]
    fn however_a_text_is_cut_it_ends_up_the_same() {
        let whole = texts(&rows(TEXT, 40));
        for size in [1, 2, 3, 7, 50] {
            let mut markdown = Markdown::new(40);
            let chars: Vec<char> = TEXT.chars().collect();
            for piece in chars.chunks(size) {
                markdown.push(&piece.iter().collect::<String>());
            }
            markdown.finish();
            assert_eq!(texts(&markdown.rows()), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn a_text_is_laid_out_as_a_person_reads_it() {
        let expected = "Title\n\nSome words and code, which go on for a\nwhile.\n\n• one\n• two\n  1. inner\n\n  fn main() {}\n\n  // end\n\n\
                        a │ b\n──┼────\n1 │ two\n\n│ quoted\n\nEnd.";
        assert_eq!(texts(&rows(TEXT, 40)).join("\n"), expected);
    }

    #[test]
    fn rows_are_taken_away_once_and_in_order() {
        let mut markdown = Markdown::new(30);
        let (mut taken, whole) = (Vec::new(), texts(&rows(TEXT, 30)));
        for piece in TEXT.split_inclusive(' ') {
            markdown.push(piece);
            taken.extend(markdown.take(2));
        }
        markdown.finish();
        taken.extend(markdown.rows());
        assert_eq!(texts(&taken), whole);
    }

    #[test]
    fn no_row_is_wider_than_the_screen() {
        let long = format!(
            "{TEXT}\n\n| {} | b |\n|--|--|\n| c | {} |\n\n```\n{}\n```\n",
            "w ".repeat(40),
            "x".repeat(90),
            "y".repeat(99)
        );
        for width in [10, 20, 30, 40, 80] {
            for row in rows(&long, width) {
                assert!(row.width() <= width, "{:?} in {width} columns", row.text());
            }
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_anything() {
        for deep in
            ["> ".repeat(5_000), "- ".repeat(5_000), "**".repeat(20_000), "[".repeat(20_000), "|".repeat(20_000)]
        {
            let shown = rows(&format!("{deep}x"), 40);
            assert!(shown.iter().all(|row| row.width() <= 40));
        }
    }
}
