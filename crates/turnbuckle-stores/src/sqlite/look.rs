//! A connection that reads, and for those who only look one that writes nothing, not even the files that SQLite keeps
//! beside a database.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::Fault;
use super::file::FileId;
use super::{SqliteError, schema};

const READING_WAL: &str = "opening its write-ahead log, which takes a folder that may be written";

/// A connection for reading.
pub(super) struct Looking {
    db: Connection,
    path: PathBuf,
    /// `Some` while the file is read as if nobody ever wrote to it: without locks.
    still: Option<Still>,
}

/// How a file looks while nobody has it open for writing.
#[derive(PartialEq, Eq)]
struct Still {
    file: Option<FileId>,
    length: u64,
    written: Option<SystemTime>,
}

impl Still {
    /// `None` if somebody writes, or died while writing. Whoever opens the database to write makes the log beside it
    /// first and removes it last.
    fn of(path: &Path) -> Option<Self> {
        if ["-wal", "-journal"].iter().any(|end| sibling(path, end).exists()) {
            return None;
        }
        let about = fs::metadata(path).ok()?;
        Some(Self { file: FileId::of(path), length: about.len(), written: about.modified().ok() })
    }
}

impl Looking {
    /// For a store that also writes.
    pub(super) fn beside_a_writer(path: &Path) -> Result<Self, SqliteError> {
        Ok(Self { db: schema::reader(path)?, path: path.to_owned(), still: None })
    }

    /// For those who only look.
    pub(super) fn only(path: &Path) -> Result<Self, SqliteError> {
        let still = Still::of(path);
        let db = if still.is_some() { schema::immutable(path) } else { locking(path) }?;
        Ok(Self { db, path: path.to_owned(), still })
    }

    /// Does `work` on one state of the database; twice if somebody began to write meanwhile.
    pub(super) fn read<T>(&mut self, work: impl Fn(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        loop {
            let done = self.db.transaction().map_err(Fault::from).and_then(|state| work(&state));
            if self.still.is_none() || self.still == Still::of(&self.path) {
                return done;
            }
            self.open_again()?;
        }
    }
}

impl Looking {
    /// With locks; it need not be the same file any more.
    fn open_again(&mut self) -> Result<(), SqliteError> {
        if !self.path.exists() {
            return Err(SqliteError::Moved { path: self.path.clone(), doing: "looking at it" });
        }
        schema::examine(&self.path)?;
        self.db = locking(&self.path)?;
        self.still = None;
        schema::check_tables(&self.path, &self.db)
    }
}

/// Reads while others write. It needs the index of the write-ahead log, and makes it if it is not there.
fn locking(path: &Path) -> Result<Connection, SqliteError> {
    let db = schema::looker(path, OpenFlags::SQLITE_OPEN_READ_ONLY, path.as_os_str())?;
    match db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())) {
        Ok(()) => Ok(db),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
            Err(SqliteError::Failed { path: path.to_owned(), doing: READING_WAL, source: std::sync::Arc::new(error) })
        }
        Err(error) => Err(SqliteError::of(path, READING_WAL, error)),
    }
}

fn sibling(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
