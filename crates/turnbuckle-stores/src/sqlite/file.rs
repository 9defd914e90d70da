//! Which file is at a path, whatever it is called.

use std::path::Path;

/// A file. The writer looks before each commit whether it is still where it was.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|about| Self(about.dev(), about.ino()))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_path: &Path) -> Option<Self> {
        // An open file cannot be moved there.
        None
    }

    pub(super) fn is_at(&self, path: &Path) -> bool {
        Self::of(path).as_ref() == Some(self)
    }
}
