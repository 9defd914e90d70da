//! What became of the files that a hook names since it was accepted.

use std::fmt;
use std::path::Path;

use super::items::Item;
use super::records::AcceptedItem;
use super::show::plain_name;

/// A file that is not what it was when it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileChange<'a> {
    pub(super) path: &'a Path,
    pub(super) kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Changed,
    New,
    Gone,
}

impl ChangeKind {
    /// Behind the name of the file.
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::Changed => "changed since it was accepted",
            Self::New => "is new: it was not there when the hook was accepted",
            Self::Gone => "is gone since it was accepted",
        }
    }
}

impl fmt::Display for FileChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", plain_name(&self.path.display().to_string()), self.kind.told())
    }
}

/// The files of an item that was accepted before under the same title, and that are not what they were then. A new file is one of
/// them only if the item is otherwise the same: another command names other files.
pub(super) fn changed_files<'a>(known: &'a [AcceptedItem], item: &'a Item, folder: &Path) -> Vec<FileChange<'a>> {
    let Some(known) = known.iter().find(|known| known.title == item.title) else { return Vec::new() };
    let since = |path: &'a Path, digest: &String| {
        let kind = match item.files.get(path) {
            Some(state) if state.digest == *digest => return None,
            Some(_) => ChangeKind::Changed,
            None if folder.join(path).exists() => return None,
            None => ChangeKind::Gone,
        };
        Some(FileChange { path, kind })
    };
    let mut changes: Vec<_> = known.files.iter().filter_map(|(path, digest)| since(path, digest)).collect();
    if known.definition.as_ref() == Some(&item.definition) {
        let new = item.files.keys().filter(|path| !known.files.contains_key(*path));
        changes.extend(new.map(|path| FileChange { path, kind: ChangeKind::New }));
    }
    changes
}
