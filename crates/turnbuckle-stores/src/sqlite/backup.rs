//! The copy that is made of a file before its tables are migrated: `NAME.bak-VERSION`, with the version that it had.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::{SqliteError, schema};

const COPYING: &str = "copying it before its tables are migrated";
/// Between the name of a database and the version of a copy.
const MARK: &str = ".bak-";

/// Copies the database while the caller holds the write lock: so nobody writes meanwhile, and nobody else makes a copy. What stands
/// in a write-ahead log is copied with it. The copy has its name only when it is complete and on disk; a copy of the same version that
/// is there already is replaced, since it is what an interrupted migration left, or older.
pub(super) fn make(path: &Path, version: i64) -> Result<PathBuf, SqliteError> {
    let copy = with_end(path, &format!("{MARK}{version}"));
    let partial = with_end(&copy, ".partial");
    let made = copy_to(path, &partial).and_then(|()| {
        let synced = File::open(&partial).and_then(|file| file.sync_all());
        let named = synced.and_then(|()| fs::rename(&partial, &copy)).and_then(|()| sync_folder(&copy));
        named.map_err(|error| unreachable(&copy, error))
    });
    if made.is_err() {
        // The first error counts. What cannot be removed now is removed before the next copy is made.
        let _left = fs::remove_file(&partial);
    }
    made.map(|()| copy)
}

fn copy_to(path: &Path, partial: &Path) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::of(path, COPYING, error);
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unreachable(partial, error)),
        _ => {}
    }
    // Made here, so that nobody else can read it at any time, and never through a link that somebody left.
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(partial).map(drop).map_err(|error| unreachable(partial, error))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(partial, flags).map_err(failed)?;
    // A copy that is interrupted is thrown away, so it needs no journal.
    target.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;").map_err(failed)?;
    // SQLite copies from no connection that is in a write transaction.
    let source = schema::reader(path)?;
    let copied = Backup::new(&source, &mut target).and_then(|backup| backup.step(-1)).map_err(failed)?;
    match copied {
        StepResult::Done => target.close().map_err(|(_, error)| failed(error)),
        _ => {
            let source = Arc::from(turnbuckle::BoxError::from("the copy is locked by another program"));
            Err(SqliteError::Locked { path: partial.to_owned(), doing: COPYING, source })
        }
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The copies of older versions beside a database, and what an interrupted one left, in the order of their names.
pub(super) fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let mut copies = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_copy_of(name, &entry.file_name()) {
            copies.push(entry.path());
        }
    }
    copies.sort();
    Ok(copies)
}

fn is_copy_of(database: &OsStr, name: &OsStr) -> bool {
    let rest = name.as_encoded_bytes().strip_prefix(database.as_encoded_bytes());
    let version = rest.and_then(|rest| rest.strip_prefix(MARK.as_bytes()));
    version.is_some_and(|version| {
        let version = version.strip_suffix(b".partial").unwrap_or(version);
        !version.is_empty() && version.iter().all(u8::is_ascii_digit)
    })
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn unreachable(path: &Path, error: io::Error) -> SqliteError {
    SqliteError::Unreachable { path: path.to_owned(), doing: COPYING, source: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_copies_of_this_very_database_are_listed() {
        let is = |name: &str| is_copy_of("a.db".as_ref(), name.as_ref());
        assert!(is("a.db.bak-8") && is("a.db.bak-12") && is("a.db.bak-8.partial"));
        assert!(!is("a.db") && !is("a.db.bak-") && !is("a.db.bak-x") && !is("b.db.bak-8") && !is("a.db.bak-8.old"));
    }
}
