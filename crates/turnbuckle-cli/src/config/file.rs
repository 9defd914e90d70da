//! One file's text: offsets become lines, and problems are collected.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::problem::{Place, Problem};

/// A file that is being read.
pub(super) struct Source {
    name: Arc<str>,
    text: String,
    /// Where each line begins. A place is looked up for every key, so the text is not counted again for each.
    lines: Vec<usize>,
    /// What relative paths in it are relative to.
    folder: PathBuf,
    problems: RefCell<Vec<Problem>>,
}

impl Source {
    pub(super) fn new(path: &Path, text: String) -> Self {
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { name: path.display().to_string().into(), text, lines, folder, problems: RefCell::default() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The line of a byte.
    pub(super) fn place(&self, offset: usize) -> Place {
        Place { file: self.name.clone(), line: self.lines.partition_point(|begin| *begin <= offset) }
    }

    pub(super) fn tell(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_belongs_to_the_line_that_it_stands_on() {
        let source = Source::new(Path::new("f"), "a\n\nbc\n".to_owned());
        let lines: Vec<usize> = (0..8).map(|offset| source.place(offset).line).collect();
        assert_eq!(lines, [1, 1, 2, 3, 3, 3, 4, 4]);
    }
}
