//! What can be wrong with a database file, by what a person would do about it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use turnbuckle::store::StoreError;

/// Why a SQLite store could not be opened, read or written. Each says what was being done, and to which file.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// Its folder could not be made, or the file not be looked at.
    #[error("cannot get at {} while {doing}", path.display())]
    Unreachable {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Arc<std::io::Error>,
    },
    /// There is something else in place of the file: a folder, a device.
    #[error("{} is not a file", path.display())]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// The file is another program's.
    #[error("{} is not a Turnbuckle database ({found}); it was left as it is", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// A newer Turnbuckle made its tables. Nothing is written to it any more.
    #[error("{} has schema version {found}; this program knows up to {known}: use a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// As the file has it.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// An older Turnbuckle made its tables, and whoever only looks does not change them.
    #[error("{} has schema version {found}; to be read it must be brought to {known}: open it once to write", path.display())]
    Older {
        /// The file.
        path: PathBuf,
        /// As the file has it.
        found: i64,
        /// The version that this program reads.
        known: i64,
    },
    /// A newer Turnbuckle wrote this row; others may be readable.
    #[error("{} holds something in format {found}, found while {doing}; this program knows up to {known}", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// As the row has it.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// The file is well, and a row in it is not JSON of the kind it should be; others may be readable.
    #[error("a row of {} cannot be understood, found while {doing}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// What is in the file makes no sense. Nothing is written to it any more.
    #[error("the database {} is damaged, found while {doing}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// The file was moved or deleted under the store: what is written now could not be found again.
    #[error("the database {} was moved or deleted while it was open, found while {doing}", path.display())]
    Moved {
        /// Where it was.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// The file may not be written.
    #[error("the database {} is read-only, found while {doing}", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// The store was opened to look only.
    #[error("the database {} was opened only to be read; {doing} would write to it", path.display())]
    OpenedToRead {
        /// The file.
        path: PathBuf,
        /// What would have been done.
        doing: &'static str,
    },
    /// There is no room. Nothing was written; when there is room again, writes succeed again.
    #[error("no room for the database {} while {doing}", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// Another process kept the file locked for too long.
    #[error("another process keeps the database {} locked; gave up while {doing}", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// Anything else that SQLite reports: the disk, mostly.
    #[error("the database {} failed while {doing}", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// The store's thread is gone: the store is being dropped, or the thread panicked.
    #[error("the store of {} is closed", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
}

/// A cause that many callers are told: those whose writes shared a commit.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

impl SqliteError {
    /// Sorts SQLite's own errors by what a person would do.
    pub(super) fn of(path: &Path, doing: &'static str, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let code = error.sqlite_error_code();
        if code == Some(ErrorCode::ReadOnly) {
            return Self::ReadOnly { path, doing };
        }
        let source: Cause = Arc::new(error);
        match code {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { path, doing, source },
            Some(ErrorCode::DiskFull) => Self::Full { path, doing, source },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked { path, doing, source },
            _ => Self::Failed { path, doing, source },
        }
    }

    /// Whether the file must not be touched any more.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Moved { .. } | Self::Newer { .. })
    }

    /// What was being done.
    fn doing(&self) -> &'static str {
        match self {
            Self::Unreachable { doing, .. }
            | Self::NewerFormat { doing, .. }
            | Self::Unreadable { doing, .. }
            | Self::Damaged { doing, .. }
            | Self::Moved { doing, .. }
            | Self::ReadOnly { doing, .. }
            | Self::OpenedToRead { doing, .. }
            | Self::Full { doing, .. }
            | Self::Locked { doing, .. }
            | Self::Failed { doing, .. } => doing,
            Self::NotAFile { .. } | Self::Foreign { .. } => "opening it",
            Self::Newer { .. } | Self::Older { .. } => "comparing its schema version",
            Self::Closed { .. } => "handing it work",
        }
    }
}

impl From<SqliteError> for StoreError {
    fn from(error: SqliteError) -> Self {
        Self::Failed { doing: error.doing().to_owned(), source: error.into() }
    }
}

/// Why one piece of work on a connection came to nothing, before the file and the work are named.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store refuses; the database is well.
    Refused(StoreError),
    /// SQLite says no.
    Sql(rusqlite::Error),
    /// A row holds what cannot be read.
    Unreadable(serde_json::Error),
    /// A row has a format that only a newer program knows.
    Newer(i64),
    /// The file could not be opened again.
    Opening(SqliteError),
}

impl Fault {
    /// With the file and the work.
    pub(super) fn at(self, path: &Path, doing: &'static str) -> Result<StoreError, SqliteError> {
        let path_buf = || path.to_owned();
        Err(match self {
            Self::Refused(error) => return Ok(error),
            Self::Sql(error) => SqliteError::of(path, doing, error),
            Self::Opening(error) => error,
            Self::Unreadable(error) => SqliteError::Unreadable { path: path_buf(), doing, source: Arc::new(error) },
            Self::Newer(found) => {
                let known = i64::from(turnbuckle::event::FORMAT);
                SqliteError::NewerFormat { path: path_buf(), doing, found, known }
            }
        })
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}
impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}
impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error)
    }
}
impl From<SqliteError> for Fault {
    fn from(error: SqliteError) -> Self {
        Self::Opening(error)
    }
}
