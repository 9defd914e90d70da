//! A stream of text into blocks: what is between two empty lines, and the lines of fenced code one by one.

use std::collections::VecDeque;

use super::super::highlight::Highlighter;
use super::super::styled::Row;

/// The longest block that is laid out as Markdown. A longer one, without an empty line in it, is cut.
const LONGEST: usize = 16 * 1024;

/// Something that does not change any more.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// Text up to an empty line.
    Markdown(String),
    /// A line of fenced code.
    Code(Row),
    /// The space around fenced code.
    Gap,
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// What is not complete: of a line in code, of a block elsewhere.
    rest: String,
    /// Where in `rest` the last line begins, outside of code.
    line: usize,
    fence: Option<Fence>,
    complete: VecDeque<Block>,
}

#[derive(Debug)]
struct Fence {
    mark: char,
    length: usize,
    indent: usize,
    highlighter: Highlighter,
}

impl Blocks {
    pub(super) fn push(&mut self, piece: &str) {
        for part in piece.split_inclusive('\n') {
            self.rest.push_str(part);
            if part.ends_with('\n') {
                self.end_line();
            }
        }
    }

    pub(super) fn finish(&mut self) {
        if !self.rest.is_empty() && !self.rest.ends_with('\n') {
            self.rest.push('\n');
            self.end_line();
        }
        self.end_block();
    }

    pub(super) fn next(&mut self) -> Option<Block> {
        self.complete.pop_front()
    }

    /// What is there of the block that is not complete.
    pub(super) fn open(&self) -> Option<Block> {
        if self.rest.trim().is_empty() {
            return None;
        }
        Some(match &self.fence {
            Some(fence) => Block::Code(Row::plain(without_indent(&self.rest, fence.indent))),
            // A line that begins like a fence is not shown before it is known what it is.
            None if is_fence_begun(&self.rest[self.line..]) => {
                return Some(Block::Markdown(self.rest[..self.line].to_owned())).filter(|_| self.line > 0);
            }
            None => Block::Markdown(self.rest.clone()),
        })
    }

    fn end_line(&mut self) {
        if let Some(fence) = &mut self.fence {
            let line = std::mem::take(&mut self.rest);
            let line = line.trim_end_matches(['\n', '\r']);
            if closes(line, fence) {
                self.fence = None;
                return;
            }
            let row = fence.highlighter.line(without_indent(line, fence.indent));
            self.complete.push_back(Block::Code(row));
            return;
        }
        let line = &self.rest[self.line..];
        if let Some(fence) = opens(line) {
            self.rest.truncate(self.line);
            self.end_block();
            (self.fence, self.line) = (Some(fence), 0);
            self.complete.push_back(Block::Gap);
        } else if line.trim().is_empty() || self.rest.len() > LONGEST {
            self.end_block();
        } else {
            self.line = self.rest.len();
        }
    }

    fn end_block(&mut self) {
        let text = std::mem::take(&mut self.rest);
        self.line = 0;
        if !text.trim().is_empty() {
            self.complete.push_back(Block::Markdown(text));
        }
    }
}

fn opens(line: &str) -> Option<Fence> {
    let text = line.trim_start_matches(' ');
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let length = text.chars().take_while(|ch| *ch == mark).count();
    let word = text[length..].trim();
    let is_fence = length >= 3 && !(mark == '`' && word.contains('`'));
    let indent = line.len() - text.len();
    is_fence.then(|| Fence { mark, length, indent, highlighter: Highlighter::of(word) })
}

fn closes(line: &str, fence: &Fence) -> bool {
    let line = line.trim();
    line.len() >= fence.length && line.chars().all(|ch| ch == fence.mark)
}

fn is_fence_begun(line: &str) -> bool {
    let text = line.trim_start_matches(' ');
    !text.is_empty() && (text.starts_with("```") || text.starts_with("~~~") || matches!(text, "`" | "``" | "~" | "~~"))
}

/// The line without as many spaces as stand before its fence.
fn without_indent(line: &str, indent: usize) -> &str {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    &line[spaces.min(indent)..]
}
