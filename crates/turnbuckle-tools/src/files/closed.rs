//! Files that are closed to the tools: Turnbuckle's own folder and the files of a store.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cap_std::fs::{Metadata, MetadataExt as _};

/// What SQLite puts beside a database, and the database itself.
const BESIDE: [&str; 4] = ["", "-wal", "-shm", "-journal"];
/// What the name of a copy has behind the database's name, before the version.
const COPY: &str = ".bak-";
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// What is closed at one moment: links that lead to it may change.
pub(super) struct Closed {
    /// In normal form, below the folder.
    paths: Vec<PathBuf>,
    /// How the names of copies begin that are made of a store of an older version, with the folder, in normal form.
    copies: Vec<PathBuf>,
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
        let copies = files.iter().map(|file| with_end(&resolved_path(file), COPY));
        Self {
            copies: copies.filter_map(|copy| inside(&copy)).collect(),
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
        let is_copy = |begin: &PathBuf| {
            let (Some(begin), Some(name)) = (begin.file_name(), path.file_name()) else { return false };
            let (begin, name) = (begin.as_encoded_bytes(), name.as_encoded_bytes());
            name.get(..begin.len()).is_some_and(|name| name.eq_ignore_ascii_case(begin))
        };
        let beside = |begin: &&PathBuf| {
            let folders = begin.parent().zip(path.parent());
            folders.is_some_and(|(one, other)| one.as_os_str().eq_ignore_ascii_case(other.as_os_str()))
        };
        self.paths.iter().any(begins_with) || self.copies.iter().filter(beside).any(is_copy)
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
    fn copies_of_a_database_are_closed_as_the_database_is() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let closed = Closed::now(&root, ".turnbuckle", &[root.join("data/a.db")]);
        for path in ["data/a.db", "data/a.db-wal", "data/a.db.bak-8", "data/A.db.BAK-8", "data/a.db.bak-8.partial"] {
            assert!(closed.has(Path::new(path)), "{path}");
        }
        for path in ["a.db.bak-8", "data/a.db.bak", "data/a.db.txt", "other/a.db.bak-8"] {
            assert!(!closed.has(Path::new(path)), "{path}");
        }
    }

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
