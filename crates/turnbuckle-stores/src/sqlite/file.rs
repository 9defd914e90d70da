//! Where a file is, and its identity, which stays the same when the file is renamed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SqliteError;

/// A file by device and inode. Before each commit the writer checks that its file is still at its path: a deleted or moved file
/// can be written to, and what is written to it is lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// The file at `path`; `None` on systems where its identity is not needed.
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> io::Result<Option<Self>> {
        use std::os::unix::fs::MetadataExt;
        let about = std::fs::metadata(path)?;
        Ok(Some(Self(about.dev(), about.ino())))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_path: &Path) -> io::Result<Option<Self>> {
        // An open file cannot be moved or deleted on these systems.
        Ok(None)
    }

    /// Whether this file is at `path`. One that cannot be looked at counts as moved: nothing is written to it any more.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        Self::of(path).is_ok_and(|found| found.as_ref() == Some(self))
    }
}

/// Made absolute once: the working directory of the process may change.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, SqliteError> {
    std::path::absolute(path).map_err(|error| SqliteError::Unreachable {
        path: path.to_owned(),
        doing: "finding out where it is",
        source: Arc::new(error),
    })
}
