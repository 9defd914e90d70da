//! The temporary folder of one command.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use tempfile::TempDir;

/// A folder that nobody else sees, deleted with everything in it when the command has ended.
pub(in crate::shell) struct PrivateTmp(TempDir);

impl PrivateTmp {
    pub(in crate::shell) fn make() -> io::Result<Self> {
        let own = Self(tempfile::Builder::new().prefix("turnbuckle-").tempdir()?);
        let private = |path| fs::DirBuilder::new().mode(0o700).create(path);
        private(own.folder())?;
        private(own.shared_memory())?;
        private(own.empty())?;
        Ok(own)
    }

    /// What `TMPDIR` names.
    pub(in crate::shell) fn folder(&self) -> PathBuf {
        self.0.path().join("tmp")
    }

    /// What is mounted over `/dev/shm`.
    pub(super) fn shared_memory(&self) -> PathBuf {
        self.0.path().join("shm")
    }

    /// An empty folder that is mounted over those that must not be reached.
    pub(super) fn empty(&self) -> PathBuf {
        self.0.path().join("empty")
    }
}
