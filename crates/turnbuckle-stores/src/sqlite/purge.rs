//! Cleaning the files of what was deleted.
//!
//! `secure_delete` overwrites deleted rows with zeros where they were. Copies stay in two other places. When SQLite moves rows
//! to another page, because rows beside them came or went, it leaves their old bytes in the unused part of the page; `VACUUM`
//! writes all rows that are left into new pages. And the write-ahead log has pages as they were before; a checkpoint that
//! truncates it moves the newest ones into the file and removes the log.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use turnbuckle::store::{PurgeLimits, Purged};

use super::{SqliteError, schema};

const PURGING: &str = "cleaning it of what was deleted";
/// How long to wait before another try at a checkpoint that a reader prevents.
const AGAIN: Duration = Duration::from_millis(20);

/// Blocks until it is done or the time is over. It uses a connection of its own: the writer's thread must not wait for readers.
pub(super) fn purge(path: &Path, limits: PurgeLimits) -> Result<Purged, SqliteError> {
    let give_up = Instant::now() + limits.wait;
    let failed = |error| SqliteError::of(path, PURGING, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(failed)?;
    schema::set_up(&db).map_err(failed)?;
    if let Some(most) = limits.max_bytes {
        let bytes = size(&db).map_err(failed)?;
        if bytes > most {
            return Ok(Purged::TooLarge { bytes });
        }
    }
    // First without `VACUUM`: while a reader prevents the checkpoint, it would only make the log longer.
    if !truncate(&db, give_up).map_err(failed)? {
        return Ok(Purged::InUse);
    }
    db.busy_timeout(give_up.saturating_duration_since(Instant::now())).map_err(failed)?;
    match db.execute_batch("VACUUM") {
        Ok(()) => {}
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return Ok(Purged::InUse),
        Err(error) => return Err(failed(error)),
    }
    Ok(if truncate(&db, give_up).map_err(failed)? { Purged::Done } else { Purged::InUse })
}

fn size(db: &Connection) -> rusqlite::Result<u64> {
    let number = |pragma: &str| db.query_row(pragma, [], |row| row.get::<_, i64>(0));
    Ok(number("PRAGMA page_count")?.unsigned_abs().saturating_mul(number("PRAGMA page_size")?.unsigned_abs()))
}

/// Moves the write-ahead log into the file and truncates it to nothing. False if somebody prevents that until `give_up`. It is
/// tried at least once.
fn truncate(db: &Connection, give_up: Instant) -> rusqlite::Result<bool> {
    db.busy_timeout(Duration::ZERO)?;
    loop {
        match db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error)
                if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= give_up {
            return Ok(false);
        }
        sleep(AGAIN);
    }
}
