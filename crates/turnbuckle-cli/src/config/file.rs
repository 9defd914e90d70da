//! One file's text: offsets become lines, and problems are collected.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnbuckle::hooks::{KnownDatabases, ProgramCheck};

use crate::problem::{Place, Problem};
use crate::trust::{HookDatabases, TrustOptions};

/// A file that is being read.
pub(super) struct Source {
    name: Arc<str>,
    text: String,
    /// Where each line begins. A place is looked up for every key, so the text is not counted again for each.
    lines: Vec<usize>,
    /// What relative paths in it are relative to.
    folder: PathBuf,
    /// The project's folder, absolute.
    project: PathBuf,
    /// What is asked before each start of a hook's program, by the index of the hook.
    checks: OnceCell<HashMap<usize, ProgramCheck>>,
    /// Which databases of its hooks are the user's own.
    databases: Arc<dyn KnownDatabases>,
    /// Whether files of the project that its hooks run were judged with it, or count as accepted.
    covers_project: Cell<bool>,
    problems: RefCell<Vec<Problem>>,
}

impl Source {
    /// The file at `path`, read for the project in the folder `project`. With `--trust-hooks` databases of hooks are used
    /// whoever made them.
    pub(super) fn new(path: &Path, project: &Path, text: String, trust: TrustOptions) -> Self {
        let databases = HookDatabases::of(project, trust);
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let name = path.display().to_string().into();
        let (project, checks) = (project.to_owned(), OnceCell::new());
        let (covers_project, problems) = (Cell::new(trust.trust_hooks), RefCell::default());
        Self { name, text, lines, folder, project, checks, databases, covers_project, problems }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn project(&self) -> &Path {
        &self.project
    }

    pub(super) fn databases(&self) -> Arc<dyn KnownDatabases> {
        self.databases.clone()
    }

    /// Set once, before the hooks are read.
    pub(super) fn set_checks(&self, checks: HashMap<usize, ProgramCheck>) {
        // There is one reading of a file, so nothing was set before.
        let _already_set = self.checks.set(checks);
    }

    /// Says that what the file's hooks run of the project was judged with the file.
    pub(super) fn judged_with_project(&self) {
        self.covers_project.set(true);
    }

    pub(super) fn covers_project(&self) -> bool {
        self.covers_project.get()
    }

    pub(super) fn check_of(&self, hook: usize) -> Option<ProgramCheck> {
        self.checks.get()?.get(&hook).cloned()
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
        let source = Source::new(Path::new("f"), Path::new("/"), "a\n\nbc\n".to_owned(), TrustOptions::default());
        let lines: Vec<usize> = (0..8).map(|offset| source.place(offset).line).collect();
        assert_eq!(lines, [1, 1, 2, 3, 3, 3, 4, 4]);
    }
}
