//! One file's text: offsets become lines, and problems are collected.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use turnbuckle::hooks::{KnownDatabases, ProgramCheck};

use super::claude_files::ReadByOthers;
use crate::problem::{Place, Problem, Spot};
use crate::trust::{Gate, HookDatabases, ProgramChecks, TrustOptions};

/// A file that is being read.
pub(super) struct Source {
    name: Arc<str>,
    text: Arc<str>,
    /// Where each line begins. A place is looked up for every key, so the text is not counted again for each.
    lines: Vec<usize>,
    /// What relative paths in it are relative to.
    folder: PathBuf,
    /// The project's folder, absolute.
    project: PathBuf,
    /// What is asked before each start of a program that it names.
    checks: OnceCell<ProgramChecks>,
    /// Which databases of its hooks are the user's own.
    databases: Arc<dyn KnownDatabases>,
    /// Whether files of the project that its hooks run were judged with it, or count as accepted.
    covers_project: Cell<bool>,
    /// Whether its hooks leave out what they find in the project's folder.
    ignores_project: bool,
    /// What sections of other files, or other sections of this one, read in the place of its hooks.
    read_by_others: OnceCell<ReadByOthers>,
    /// Variables that hold the secrets of its hooks, those of sub-agents included: programs of hooks do not get them.
    secret_variables: RefCell<BTreeSet<String>>,
    /// What the command that reads the file is going to do.
    gate: Cell<Gate>,
    problems: RefCell<Vec<Problem>>,
}

/// The tables of a list such as `[[hooks]]`.
fn tables<'a, 'i>(list: Option<&'a Spanned<DeValue<'i>>>) -> impl Iterator<Item = &'a DeTable<'i>> {
    let list = list.and_then(|value| value.get_ref().as_array());
    list.into_iter().flatten().filter_map(|value| value.get_ref().as_table())
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
        let (ignores_project, secret_variables) = (trust.ignore_project, RefCell::default());
        Self {
            name,
            text: text.into(),
            lines,
            folder,
            project,
            checks,
            databases,
            covers_project,
            ignores_project,
            read_by_others: OnceCell::new(),
            secret_variables,
            gate: Cell::new(Gate::LeftOut),
            problems,
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Has to be called before a hook is read, because each is told which variables it must not pass on.
    pub(super) fn note_secret_variables(&self, root: &DeTable<'_>) {
        let of_agents = tables(root.get("agents")).flat_map(|agent| tables(agent.get("hooks")));
        let hooks = tables(root.get("hooks")).chain(of_agents);
        let names = hooks.filter_map(|hook| hook.get("secret_env")?.get_ref().as_str().map(str::to_owned));
        self.secret_variables.borrow_mut().extend(names);
    }

    pub(super) fn secret_variables(&self) -> Vec<String> {
        self.secret_variables.borrow().iter().cloned().collect()
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
    pub(super) fn set_checks(&self, checks: ProgramChecks) {
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

    /// Set once what the file says was judged, before the hooks are read. Until then nothing connects to a server that it names.
    pub(super) fn set_gate(&self, gate: Gate) {
        self.gate.set(gate);
    }

    pub(super) fn gate(&self) -> Gate {
        self.gate.get()
    }

    pub(super) fn ignores_project(&self) -> bool {
        self.ignores_project
    }

    /// Of the `index`-th element of a list such as `hooks`.
    pub(super) fn check_of(&self, section: &str, index: usize) -> Option<ProgramCheck> {
        self.checks.get()?.get(&(section.to_owned(), index)).cloned()
    }

    /// Set once, before the hooks are read.
    pub(super) fn set_read_by_others(&self, files: ReadByOthers) {
        let _already_set = self.read_by_others.set(files);
    }

    /// Of the `index`-th hook.
    pub(super) fn read_by_others(&self, index: usize) -> Vec<PathBuf> {
        self.read_by_others.get().and_then(|all| all.get(&index)).cloned().unwrap_or_default()
    }

    /// The line of a byte.
    pub(super) fn place(&self, offset: usize) -> Place {
        let at = Some(Spot { text: self.text.clone(), offset });
        Place { file: self.name.clone(), line: self.lines.partition_point(|begin| *begin <= offset), at }
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
