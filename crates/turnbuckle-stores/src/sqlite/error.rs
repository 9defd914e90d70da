//! What can be wrong with a database file, sorted by what a person would do about it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use turnbuckle::ConversationId;
use turnbuckle::store::StoreError;

use crate::format::FormatError;

/// Why a SQLite store could not be opened, read or written. Each error names the file, and what was being done to it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The file, or its folder, could not be made or examined.
    #[error("cannot get at {} while {doing}", path.display())]
    Unreachable {
        /// The path of the file or folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Arc<std::io::Error>,
    },
    /// Something else is at the path of the file: a folder or a device.
    #[error("{} is not a file", path.display())]
    NotAFile {
        /// Its path.
        path: PathBuf,
    },
    /// The file belongs to another program.
    #[error("{} is not a Turnbuckle database ({found}); it was left as it is", path.display())]
    Foreign {
        /// Its path.
        path: PathBuf,
        /// What was found instead of a Turnbuckle database.
        found: String,
    },
    /// A newer Turnbuckle has migrated the tables. This store writes nothing to the file any more.
    #[error("{} has schema version {found}; this program knows up to {known}: use a newer one", path.display())]
    Newer {
        /// Its path.
        path: PathBuf,
        /// The schema version of the file.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// An older Turnbuckle made the tables, and a store that was opened read-only cannot migrate them.
    #[error("{} has schema version {found}; to be read it must be brought to {known}: open it once to write", path.display())]
    Older {
        /// Its path.
        path: PathBuf,
        /// The schema version of the file.
        found: i64,
        /// The version to which it would be migrated.
        known: i64,
    },
    /// A newer Turnbuckle wrote a row. Other rows may be readable.
    #[error("{} holds something in format {found}, found while {doing}; this program knows up to {known}", path.display())]
    NewerFormat {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The format of the row.
        found: i64,
        /// The newest format that this program knows.
        known: i64,
    },
    /// A log lacks an event that should be there: the file was changed by another program. The conversation cannot be resumed;
    /// others can.
    #[error("the log of conversation {conversation} in {} lacks event {seq}, found while {doing}", path.display())]
    MissingEvent {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The conversation whose log it is.
        conversation: ConversationId,
        /// The seq of the event that is missing.
        seq: u64,
    },
    /// A log has an event that should not be there: the file was changed by another program. The conversation cannot be
    /// resumed; others can.
    #[error("the log of conversation {conversation} in {} has an event {seq} where none should be, found while {doing}", path.display())]
    UnexpectedEvent {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The conversation whose log it is.
        conversation: ConversationId,
        /// The seq of the event, by its row or its body.
        seq: u64,
    },
    /// The file is sound, and a row in it does not contain what it should. Other rows may be readable.
    #[error("a row of {} cannot be understood, found while {doing}", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// SQLite finds the file damaged. This store writes nothing to it any more.
    #[error("the database {} is damaged, found while {doing}", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// The file was moved or deleted while the store was open. This store writes nothing any more: it could not be found again.
    #[error("the database {} was moved or deleted while it was open, found while {doing}", path.display())]
    Moved {
        /// The path at which it was opened.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// The file is read-only.
    #[error("the database {} is read-only, found while {doing}", path.display())]
    ReadOnly {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
    },
    /// The store was opened with [`SqliteStore::open_read_only`](super::SqliteStore::open_read_only).
    #[error("the database {} was opened only to be read; {doing} would write to it", path.display())]
    OpenedToRead {
        /// Its path.
        path: PathBuf,
        /// What would have been done.
        doing: &'static str,
    },
    /// The disk is full. Nothing was written. Once there is room, writes succeed again.
    #[error("no room for the database {} while {doing}", path.display())]
    Full {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// Another process kept the file locked for more than ten seconds.
    #[error("another process keeps the database {} locked; gave up while {doing}", path.display())]
    Locked {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// Any other error of SQLite, mostly of the disk below it.
    #[error("the database {} failed while {doing}", path.display())]
    Failed {
        /// Its path.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        source: Cause,
    },
    /// The thread that does the work has ended: the store is being dropped, or the thread panicked.
    #[error("the store of {} is closed", path.display())]
    Closed {
        /// Its path.
        path: PathBuf,
    },
}

/// The cause of an error. It is shared: all callers whose writes were in one transaction get the same one.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

impl SqliteError {
    /// Sorts an error of SQLite by its code.
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

    /// Whether the file must not be written any more.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Moved { .. } | Self::Newer { .. })
    }

    /// What was being done when the error was found.
    fn doing(&self) -> &'static str {
        match self {
            Self::Unreachable { doing, .. }
            | Self::MissingEvent { doing, .. }
            | Self::UnexpectedEvent { doing, .. }
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
        let doing = error.doing().to_owned();
        Self::failed(doing, error)
    }
}

/// Why work on a connection failed. Queries return it; [`Fault::at`] adds the file and the work.
#[derive(Debug)]
pub(super) enum Fault {
    /// The contract refuses what was asked; the database is sound.
    Refused(StoreError),
    /// SQLite reports an error.
    Sql(rusqlite::Error),
    /// The body of a row cannot be read.
    Body(FormatError),
    /// The column `standing` of a conversation has a value that this program does not know.
    UnknownStatus(String),
    /// A log lacks an event.
    MissingEvent { conversation: ConversationId, seq: u64 },
    /// A log has an event that should not be there.
    UnexpectedEvent { conversation: ConversationId, seq: u64 },
    /// The file could not be opened again.
    Opening(SqliteError),
}

impl Fault {
    /// Adds the file and the work. `Ok` is a refusal by the contract, which is no error of the file.
    pub(super) fn at(self, path: &Path, doing: &'static str) -> Result<StoreError, SqliteError> {
        let unreadable = |source: Cause| SqliteError::Unreadable { path: path.to_owned(), doing, source };
        Err(match self {
            Self::Refused(error) => return Ok(error),
            Self::Sql(error) => SqliteError::of(path, doing, error),
            Self::Opening(error) => error,
            Self::Body(FormatError::Newer { found }) => {
                let known = i64::from(turnbuckle::event::FORMAT);
                SqliteError::NewerFormat { path: path.to_owned(), doing, found, known }
            }
            Self::Body(error) => unreadable(Arc::new(error)),
            Self::UnknownStatus(status) => {
                let source = turnbuckle::BoxError::from(format!("there is no status {status:?}"));
                unreadable(Arc::from(source))
            }
            Self::MissingEvent { conversation, seq } => {
                SqliteError::MissingEvent { path: path.to_owned(), doing, conversation, seq }
            }
            Self::UnexpectedEvent { conversation, seq } => {
                SqliteError::UnexpectedEvent { path: path.to_owned(), doing, conversation, seq }
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
impl From<FormatError> for Fault {
    fn from(error: FormatError) -> Self {
        Self::Body(error)
    }
}
impl From<SqliteError> for Fault {
    fn from(error: SqliteError) -> Self {
        Self::Opening(error)
    }
}

/// A thread for the file at `path` could not be started.
pub(super) fn no_thread(path: &Path, error: std::io::Error) -> SqliteError {
    SqliteError::Failed { path: path.to_owned(), doing: "starting a thread for it", source: Arc::new(error) }
}
