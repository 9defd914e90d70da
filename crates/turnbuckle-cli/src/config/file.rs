//! One file's text: offsets become lines, and problems are collected.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::problem::{Place, Problem};

/// A file that is being read.
pub(super) struct Source {
    name: Arc<str>,
    text: String,
    /// What relative paths in it are relative to.
    folder: PathBuf,
    problems: RefCell<Vec<Problem>>,
}

impl Source {
    pub(super) fn new(path: &Path, text: String) -> Self {
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Self { name: path.display().to_string().into(), text, folder, problems: RefCell::default() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The line of a byte.
    pub(super) fn place(&self, offset: usize) -> Place {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        Place { file: self.name.clone(), line: before.iter().filter(|byte| **byte == b'\n').count() + 1 }
    }

    pub(super) fn tell(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}
