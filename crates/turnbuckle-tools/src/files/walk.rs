//! A walk through the folder: nearest to the top first, in order of name, never through a symbolic link.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::vec;

use cap_std::fs::Dir;

use super::blocking::CancelFlag;
use super::closed::Closed;
use super::folder::{Folder, is_own};
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
    queue: VecDeque<PathBuf>,
    entries: vec::IntoIter<Entry>,
    /// Folders that were not walked into, and that can be given as a path.
    pub(super) closed: Vec<PathBuf>,
    /// Turnbuckle's own folder, if the walk met it.
    pub(super) own: Option<PathBuf>,
    /// Folders that could not be read.
    pub(super) unread: usize,
}

impl<'a> Walk<'a> {
    /// From a folder that must be there.
    pub(super) fn from(folder: &'a Folder, start: &Path, cancel: &'a CancelFlag) -> Result<Self, Refusal> {
        let dir = folder.subfolder(start)?;
        let entries = entries(&dir, start, cancel)?.into_iter();
        let (queue, closed_files) = (VecDeque::new(), folder.closed_now());
        Ok(Self { folder, cancel, closed_files, queue, entries, closed: Vec::new(), own: None, unread: 0 })
    }

    /// The next entry; an error only if the call was cancelled.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Refusal> {
        loop {
            self.cancel.check()?;
            if let Some(entry) = self.entries.next() {
                if entry.kind == Kind::Folder {
                    self.queue.push_back(entry.path.clone());
                }
                return Ok(Some(entry));
            }
            let Some(path) = self.queue.pop_front() else { return Ok(None) };
            self.enter(path)?;
        }
    }

    fn enter(&mut self, path: PathBuf) -> Result<(), Refusal> {
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
            Ok(entries) => self.entries = entries.into_iter(),
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
