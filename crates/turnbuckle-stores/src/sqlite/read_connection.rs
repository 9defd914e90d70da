//! A connection that reads. For a store that was opened read-only it writes nothing at all, not even the `-wal` and `-shm`
//! files that SQLite makes next to a database in WAL mode.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::Fault;
use super::file::FileId;
use super::{SqliteError, schema};

const READING_WAL: &str = "opening its write-ahead log, which takes a folder that may be written";

/// A connection for reading.
pub(super) struct ReadConnection {
    db: Connection,
    path: PathBuf,
    /// `Some` while the file is read without locks, on the assumption that no process writes to it: how it looked then.
    unlocked: Option<FileState>,
}

/// How the file of a database looks while no process has it open for writing. If it looks different after a read, a process
/// may have written meanwhile.
#[derive(PartialEq, Eq)]
struct FileState {
    file: Option<FileId>,
    length: u64,
    written: Option<SystemTime>,
}

impl FileState {
    /// `None` if a process has the database open for writing, or died while it had: SQLite makes the `-wal` file first and
    /// removes it last. Also `None` if the file cannot be looked at: the read with locks then reports why.
    fn of(path: &Path) -> Option<Self> {
        if ["-wal", "-journal"].iter().any(|end| sibling(path, end).exists()) {
            return None;
        }
        let about = fs::metadata(path).ok()?;
        Some(Self { file: FileId::of(path).ok()?, length: about.len(), written: about.modified().ok() })
    }
}

impl ReadConnection {
    /// For a store that also writes.
    pub(super) fn with_writer(path: &Path) -> Result<Self, SqliteError> {
        Ok(Self { db: schema::reader(path)?, path: path.to_owned(), unlocked: None })
    }

    /// For a store that was opened read-only.
    pub(super) fn read_only(path: &Path) -> Result<Self, SqliteError> {
        let unlocked = FileState::of(path);
        let db = if unlocked.is_some() { schema::immutable(path) } else { locking(path) }?;
        Ok(Self { db, path: path.to_owned(), unlocked })
    }

    /// Runs `work` in a read transaction. If it ran without locks and a process began to write meanwhile, what it read may
    /// be torn: then it is discarded and read again, with locks. That happens at most once, for locks are kept from then on.
    pub(super) fn read<T>(&mut self, work: impl Fn(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        loop {
            let done = self.db.transaction().map_err(Fault::from).and_then(|state| work(&state));
            if self.unlocked.is_none() || self.unlocked == FileState::of(&self.path) {
                return done;
            }
            self.reopen_with_locks()?;
        }
    }
}

impl ReadConnection {
    /// The file at the path may be another one by now, so it is examined again.
    fn reopen_with_locks(&mut self) -> Result<(), SqliteError> {
        if !self.path.exists() {
            return Err(SqliteError::Moved { path: self.path.clone(), doing: "reading it" });
        }
        schema::examine(&self.path)?;
        self.db = locking(&self.path)?;
        self.unlocked = None;
        schema::check_tables(&self.path, &self.db)
    }
}

/// Reads while other processes write. SQLite needs the index of the write-ahead log (`-shm`) for that, and makes it if it is
/// missing.
fn locking(path: &Path) -> Result<Connection, SqliteError> {
    let db = schema::connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, path.as_os_str())?;
    match db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())) {
        Ok(()) => Ok(db),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
            Err(SqliteError::Failed { path: path.to_owned(), doing: READING_WAL, source: std::sync::Arc::new(error) })
        }
        Err(error) => Err(SqliteError::of(path, READING_WAL, error)),
    }
}

/// The file that SQLite keeps next to `path` under the same name with `end` behind it.
fn sibling(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
