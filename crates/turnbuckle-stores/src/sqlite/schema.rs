//! The file: whose it is, which schema version it has, how its tables are migrated, and how it is written to disk.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags, TransactionBehavior};

use super::SqliteError;
use super::backup;
use super::identity::{self, DatabaseId};

/// `TbKl`: tells this program, and the program `file`, that the database is Turnbuckle's.
const APPLICATION: i32 = 0x5462_4B6C;
/// How long a connection waits for the lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The step at index `n` brings schema version `n` to `n + 1`. Never edited once released.
const MIGRATIONS: &[&str] = &[
    include_str!("v1.sql"),
    include_str!("v2.sql"),
    include_str!("v3.sql"),
    include_str!("v4.sql"),
    include_str!("v5.sql"),
    include_str!("v6.sql"),
    include_str!("v7.sql"),
    include_str!("v8.sql"),
    include_str!("v9.sql"),
    include_str!("v10.sql"),
    include_str!("v11.sql"),
    include_str!("v12.sql"),
];
/// The version that [`prepare`] brings every file to.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;
/// The oldest version that can be read without being migrated: later steps only added what reading does not use.
const OLDEST_READABLE: i64 = 2;

const OPENING: &str = "opening it";
const MIGRATING: &str = "making or migrating its tables";

/// A file that can be written.
pub(super) struct Prepared {
    /// The connection of the writer.
    pub(super) db: Connection,
    /// The copy of the file as it was before its tables were migrated, if they were.
    pub(super) backup: Option<PathBuf>,
}

/// Makes the folder and the file if they are missing, and migrates the tables; those that have no id yet get `id`, or a random
/// one. A file of an older version is copied first.
pub(super) fn prepare(path: &Path, id: Option<&DatabaseId>) -> Result<Prepared, SqliteError> {
    make_folder(path)?;
    {
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        match read_header(path)? {
            // Root could write to it nevertheless, and the mark would be ignored.
            Some(about) if about.permissions().readonly() => {
                return Err(SqliteError::ReadOnly { path: path.to_owned(), doing: OPENING });
            }
            Some(_) => close(path)?,
            None => make_file(path)?,
        }
    }
    let failed = |error| SqliteError::of(path, OPENING, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags).map_err(failed)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    if db.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(SqliteError::ReadOnly { path: path.to_owned(), doing: OPENING });
    }
    // On macOS `fsync` leaves data in the cache of the disk; `fullfsync` writes it to the medium.
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")
        .map_err(failed)?;
    let backup = migrate(path, &mut db, id)?;
    use_wal(path, &db)?;
    set_up(&db).map_err(failed)?;
    Ok(Prepared { db, backup })
}

/// A connection for reading to a file that [`prepare`] has prepared. SQLite may write the `-wal` and `-shm` files through it.
pub(super) fn reader(path: &Path) -> Result<Connection, SqliteError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, path.as_os_str())
}

/// The first read of a connection that may write takes back what a dead process has not committed.
pub(super) fn roll_back(path: &Path) -> Result<(), SqliteError> {
    let db = reader(path)?;
    let read = db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    read.map_err(|error| SqliteError::of(path, "taking back what was not committed", error))
}

/// A connection that reads the file as it is, without locks. What it reads is right only as long as no process writes.
pub(super) fn immutable(path: &Path) -> Result<Connection, SqliteError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI, immutable_uri(path).as_ref())
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// A connection that changes no table. `name` is the path or a `file:` URI of it.
pub(super) fn connect(path: &Path, flags: OpenFlags, name: &OsStr) -> Result<Connection, SqliteError> {
    let failed = |error| SqliteError::of(path, OPENING, error);
    let db = Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    db.execute_batch("PRAGMA query_only = ON;").map_err(failed)?;
    set_up(&db).map_err(failed)?;
    Ok(db)
}

/// Checks by its header that the file is a Turnbuckle database which this program can read.
pub(super) fn examine(path: &Path) -> Result<(), SqliteError> {
    let Some(_) = read_header(path)? else {
        let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "there is nothing in it");
        return Err(SqliteError::Unreachable { path: path.to_owned(), doing: OPENING, source: Arc::new(missing) });
    };
    Ok(())
}

/// Checks that the tables can be read as they are: a read-only store cannot migrate them.
pub(super) fn check_tables(path: &Path, db: &Connection) -> Result<(), SqliteError> {
    let found = version(db).map_err(|error| SqliteError::of(path, OPENING, error))?;
    if found < OLDEST_READABLE {
        return Err(SqliteError::Older { path: path.to_owned(), found, known: VERSION });
    }
    check_version(path, found)
}

pub(super) fn set_up(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(64);
    // `secure_delete`: a message that a hook erased or redacted must not be found in the free pages of the file.
    // `cell_size_check`: damage is noticed when a page is read. `journal_size_limit`: the write-ahead log shrinks again after
    // many writes.
    db.execute_batch(
        "PRAGMA secure_delete = ON; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;
         PRAGMA journal_size_limit = 67108864;",
    )
}

/// Held from the moment in which a file is made until its descriptor is closed, and by everyone who looks whether there is a file.
/// Otherwise one thread could open the empty file and lock it while another, which made it, still has to close it: that would
/// drop the lock (see [`read_header`]).
static MAKING: Mutex<()> = Mutex::new(());

/// Makes the file readable by its owner alone: conversations are private. SQLite gives the `-wal` and `-shm` files the same
/// mode. An empty file that is there already is closed to others, too.
fn make_file(path: &Path) -> Result<(), SqliteError> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let made = match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => close_to_others(path),
        made => made.map(drop),
    };
    made.map_err(|error| SqliteError::Unreachable { path: path.to_owned(), doing: OPENING, source: Arc::new(error) })
}

/// Takes the rights of others away from a database that is there, and from what SQLite keeps beside it: it may have been copied
/// or unpacked. One of another user is theirs to close. The files are not opened, which would release the locks that other
/// connections of this process have on them.
pub(super) fn close(path: &Path) -> Result<(), SqliteError> {
    let failed = |error| SqliteError::Unreachable { path: path.to_owned(), doing: OPENING, source: Arc::new(error) };
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match close_to_others(Path::new(&name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}

fn close_to_others(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let about = fs::metadata(path)?;
        let is_own = about.uid() == rustix::process::geteuid().as_raw();
        if is_own && about.is_file() && about.mode() & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(about.mode() & 0o700))?;
        }
    }
    Ok(())
}

/// Makes the folder of the file. New folders are synced to disk, so that a power loss cannot remove the folder of a database
/// whose commits have returned.
fn make_folder(path: &Path) -> Result<(), SqliteError> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    let failed = |error| SqliteError::Unreachable {
        path: folder.to_owned(),
        doing: "making its folder",
        source: Arc::new(error),
    };
    let missing: Vec<_> =
        folder.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.exists()).collect();
    fs::create_dir_all(folder).map_err(failed)?;
    for made in missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(above).and_then(|above| above.sync_all()).map_err(failed)?;
    }
    Ok(())
}

/// Reads from the header of the file whose it is and which version it has. `None` if there is no file, or an empty one.
///
/// The file must not be opened and closed here: a process that closes any descriptor of a file loses all its POSIX locks on that
/// file, those of other connections in other threads included. Another process would then take itself for the last user of the
/// database, and remove the write-ahead log under this one. SQLite knows all its connections to a file and keeps such a descriptor
/// until the last lock is released, so the header is read through SQLite: as immutable, which takes no locks, makes no `-wal` and
/// `-shm` files next to a database of another program, and does not roll back what somebody left.
fn read_header(path: &Path) -> Result<Option<fs::Metadata>, SqliteError> {
    let failed = |error| SqliteError::Unreachable { path: path.to_owned(), doing: OPENING, source: Arc::new(error) };
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !about.is_file() {
        return Err(SqliteError::NotAFile { path: path.to_owned() });
    }
    if about.len() == 0 {
        return Ok(None);
    }
    let foreign = |found: String| SqliteError::Foreign { path: path.to_owned(), found };
    let (application, version) = match header_values(path) {
        Ok(values) => values,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            return Err(foreign("it is not a SQLite database".to_owned()));
        }
        // SQLite does not tell a file that may not be read from others that it cannot open.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
            let denied = rustix::fs::access(path, rustix::fs::Access::READ_OK).err();
            return Err(denied.map_or_else(|| SqliteError::of(path, OPENING, error), |errno| failed(errno.into())));
        }
        Err(error) => return Err(SqliteError::of(path, OPENING, error)),
    };
    if application != APPLICATION {
        return Err(foreign(format!("its application id is {application:#x}")));
    }
    check_version(path, version)?;
    Ok(Some(about))
}

/// The application id and the schema version in the file itself, whatever a write-ahead log beside it says.
fn header_values(path: &Path) -> rusqlite::Result<(i32, i64)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(immutable_uri(path), flags)?;
    // While another process moves its write-ahead log into the file, the header may already count pages that are not there yet.
    // With this SQLite does not take that for damage. Nothing can be written through the connection.
    db.execute_batch("PRAGMA writable_schema = ON;")?;
    let application = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    Ok((application, version(&db)?))
}

fn check_version(path: &Path, found: i64) -> Result<(), SqliteError> {
    if (0..=VERSION).contains(&found) {
        return Ok(());
    }
    Err(SqliteError::Newer { path: path.to_owned(), found, known: VERSION })
}

/// The schema version of the tables.
pub(super) fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

/// Checks in a write transaction that no newer program has migrated the tables since they were opened.
pub(super) fn check_version_again(path: &Path, db: &Connection) -> Result<(), SqliteError> {
    let found = version(db).map_err(|error| SqliteError::of(path, "comparing its schema version", error))?;
    check_version(path, found)
}

/// Migrates the tables in one transaction, after it copied a file of an older version; returns the copy. The version is read again
/// inside the transaction: two processes may open a file at once.
fn migrate(path: &Path, db: &mut Connection, id: Option<&DatabaseId>) -> Result<Option<PathBuf>, SqliteError> {
    let failed = |error| SqliteError::of(path, MIGRATING, error);
    let found = version(db).map_err(failed)?;
    check_version(path, found)?;
    if found == VERSION {
        return Ok(None);
    }
    let work = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&work).map_err(failed)?;
    check_version(path, found)?;
    if found == VERSION {
        return Ok(None);
    }
    let backup = (found > 0).then(|| backup::make(path, found)).transpose()?;
    for step in MIGRATIONS.iter().skip(found as usize) {
        work.execute_batch(step).map_err(failed)?;
    }
    identity::write(&work, id).map_err(failed)?;
    let stamp = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};");
    work.execute_batch(&stamp).map_err(failed)?;
    work.commit().map_err(failed)?;
    Ok(backup)
}

/// Turns WAL mode on. SQLite ignores the busy timeout when two connections do so at the same moment, so it is tried again for
/// as long.
fn use_wal(path: &Path, db: &Connection) -> Result<(), SqliteError> {
    let give_up = Instant::now() + BUSY_TIMEOUT;
    loop {
        match db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) || Instant::now() > give_up => {
                return Err(SqliteError::of(path, OPENING, error));
            }
            Ok(mode) if Instant::now() > give_up => {
                let source = Arc::from(turnbuckle::BoxError::from(format!("the journal mode stays {mode}")));
                return Err(SqliteError::Failed { path: path.to_owned(), doing: OPENING, source });
            }
            _ => sleep(Duration::from_millis(5)),
        }
    }
}
