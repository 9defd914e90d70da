//! A walk through the folder: nearest to the top first, in order of name, never through a symbolic link, without what
//! `.gitignore` names.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use cap_std::fs::Dir;

use super::blocking::CancelFlag;
use super::closed::Closed;
use super::folder::{Folder, is_own};
use super::ignored::{Chosen, Rules, is_ignored};
use super::refusal::Refusal;
use super::replace::is_temporary;

/// Not walked into unless asked for by path: what version control and packages keep there is not the project. The same
/// holds for folders that a `CACHEDIR.TAG` marks as a cache (cargo's `target` has one). Turnbuckle's own folder is closed
/// to tools altogether.
const CLOSED: [&str; 2] = [".git", "node_modules"];

/// What stands in a folder.
pub(super) struct Entry {
    /// Below the folder.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link,
    /// A pipe, a socket, a device.
    Special,
}

pub(super) struct Walk<'a> {
    folder: &'a Folder,
    cancel: &'a CancelFlag,
    /// What tools do not touch, when the walk began.
    closed_files: Closed,
    chosen: &'a Chosen,
    /// Folders to enter, with the rules that hold around them.
    queue: VecDeque<(PathBuf, Option<Arc<Rules>>)>,
    entries: vec::IntoIter<Entry>,
    /// The rules that hold for `entries`.
    rules: Option<Arc<Rules>>,
    /// Folders that were not walked into, and that can be given as a path.
    pub(super) closed: Vec<PathBuf>,
    /// Turnbuckle's own folder, if the walk met it.
    pub(super) own: Option<PathBuf>,
    /// Folders that could not be read.
    pub(super) unread: usize,
    /// What `.gitignore` names: the first, and how many.
    pub(super) ignored: Option<(Entry, usize)>,
}

impl<'a> Walk<'a> {
    /// From a folder that must be there, to the files that were chosen.
    pub(super) fn from(
        folder: &'a Folder,
        start: &Path,
        chosen: &'a Chosen,
        cancel: &'a CancelFlag,
    ) -> Result<Self, Refusal> {
        let dir = folder.subfolder(start)?;
        let closed_files = folder.closed_now();
        let rules = Rules::at(folder, &closed_files, start);
        let mut walk = Self {
            folder,
            cancel,
            closed_files,
            chosen,
            queue: VecDeque::new(),
            entries: Vec::new().into_iter(),
            rules: None,
            closed: Vec::new(),
            own: None,
            unread: 0,
            ignored: None,
        };
        let entries = entries(&dir, start, cancel)?;
        walk.take(start, entries, rules);
        Ok(walk)
    }

    /// The next entry that was chosen; an error only if the call was cancelled.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Refusal> {
        loop {
            self.cancel.check()?;
            let Some(entry) = self.entries.next() else {
                let Some((path, rules)) = self.queue.pop_front() else { return Ok(None) };
                self.enter(path, rules)?;
                continue;
            };
            let is_folder = entry.kind == Kind::Folder;
            if is_ignored(self.rules.as_deref(), &entry.path, is_folder) {
                match &mut self.ignored {
                    Some((_, count)) => *count += 1,
                    none => *none = Some((entry, 1)),
                }
                continue;
            }
            if is_folder && self.chosen.may_be_below(&entry.path) {
                self.queue.push_back((entry.path.clone(), self.rules.clone()));
            }
            if self.chosen.has(&entry.path, is_folder) {
                return Ok(Some(entry));
            }
        }
    }

    /// Goes on with the entries of a folder, with the rules above it.
    fn take(&mut self, path: &Path, entries: Vec<Entry>, rules: Option<Arc<Rules>>) {
        self.rules = Rules::below(rules, self.folder, &self.closed_files, path);
        self.entries = entries.into_iter();
    }

    fn enter(&mut self, path: PathBuf, rules: Option<Arc<Rules>>) -> Result<(), Refusal> {
        if path.file_name().is_some_and(is_own) || self.closed_files.has(&path) {
            self.own.get_or_insert(path);
            return Ok(());
        }
        let by_name = path.file_name().is_some_and(|name| CLOSED.iter().any(|closed| name == *closed));
        let Ok(dir) = self.folder.subfolder(&path) else {
            self.unread += 1;
            return Ok(());
        };
        if by_name || dir.exists("CACHEDIR.TAG") {
            self.closed.push(path);
            return Ok(());
        }
        match entries(&dir, &path, self.cancel) {
            Ok(entries) => self.take(&path, entries, rules),
            Err(Refusal::Cancelled) => return Err(Refusal::Cancelled),
            Err(_) => self.unread += 1,
        }
        Ok(())
    }
}

fn entries(dir: &Dir, path: &Path, cancel: &CancelFlag) -> Result<Vec<Entry>, Refusal> {
    let failed = |source| Refusal::of("list", path, source);
    let mut entries = Vec::new();
    for entry in dir.entries().map_err(failed)? {
        cancel.check()?;
        let entry = entry.map_err(failed)?;
        let kind = match entry.file_type().map_err(failed)? {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Special,
        };
        let name = entry.file_name();
        // A write under way: the file is about to be renamed.
        if kind == Kind::File && is_temporary(&name) {
            continue;
        }
        entries.push(Entry { path: path.join(name), kind });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}
