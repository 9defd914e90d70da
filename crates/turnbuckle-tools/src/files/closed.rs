//! Files that are closed to the tools: Turnbuckle's own folder and the files of a store.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cap_std::fs::{Metadata, MetadataExt as _};

/// What SQLite puts beside a database, and the database itself.
const BESIDE: [&str; 4] = ["", "-wal", "-shm", "-journal"];
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// What is closed at one moment: links that lead to it may change.
pub(super) struct Closed {
    /// In normal form, below the folder.
    paths: Vec<PathBuf>,
    /// Device and inode of those that are there, wherever they are.
    files: Vec<(u64, u64)>,
}

impl Closed {
    /// `root` is the folder, with links resolved; `own` a folder in it, `files` are absolute and need not be there.
    pub(super) fn now(root: &Path, own: &str, files: &[PathBuf]) -> Self {
        let located: Vec<PathBuf> =
            files.iter().flat_map(|file| BESIDE.map(|end| with_end(&resolved_path(file), end))).collect();
        let id = |path: &PathBuf| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let inside = |path: &PathBuf| path.strip_prefix(root).ok().map(Path::to_owned);
        let own = resolved_path(&root.join(own));
        Self {
            paths: located.iter().chain([&own]).filter_map(inside).collect(),
            files: located.iter().filter_map(id).collect(),
        }
    }

    /// Whether a path in normal form is one of them or below one, on every file system: whether capitals are told apart is
    /// not asked.
    pub(super) fn has(&self, path: &Path) -> bool {
        let begins_with = |closed: &PathBuf| {
            let mut names = path.components();
            closed
                .components()
                .all(|closed| names.next().is_some_and(|name| name.as_os_str().eq_ignore_ascii_case(closed)))
        };
        self.paths.iter().any(begins_with)
    }

    /// Whether a file is one of them by another name: a hard link, or one that was moved.
    pub(super) fn is(&self, file: &Metadata) -> bool {
        self.files.contains(&(file.dev(), file.ino()))
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Where a path leads, links resolved, also if nothing is there: then as far as there is something. A link to nothing leads to
/// its target.
pub fn resolved_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(real) = path.canonicalize() {
            return real;
        }
        // A link to nothing: what is made through it is made at its target.
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or(target.clone(), |parent| parent.join(&target));
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if parent != path => resolved_path(parent).join(name),
        // It ends in `..` below what is not there: that would be made as a folder, so it leads back.
        (Some(parent), None) if path.ends_with("..") => {
            let mut above = resolved_path(parent);
            above.pop();
            above
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_path_leads_is_known_before_anything_is_there() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        std::os::unix::fs::symlink("../b", root.join("a/link")).unwrap();
        for (path, leads_to) in [
            ("a/x", "a/x"),
            ("a/../y", "y"),
            ("x/../../y", "../y"),
            ("a/x/../../../y", "../y"),
            ("x/./y/..", "x"),
            ("a/link", "b"),
            ("a/link/c", "b/c"),
            ("a/link/../c", "c"),
        ] {
            let expected = match leads_to.strip_prefix("../") {
                Some(above) => root.parent().unwrap().join(above),
                None => root.join(leads_to),
            };
            assert_eq!(resolved_path(&root.join(path)), expected, "{path}");
        }
    }
}
