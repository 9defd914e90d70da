//! The file of memories: whose it is, how it is opened, and how its tables are migrated.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use turnbuckle::hooks::KnownDatabases;
use turnbuckle::store::PrivateFile;

use super::MemoryError;

/// How long a connection waits for the lock of another process.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) const FORMAT: i64 = 3;
/// The first format with an id.
const FIRST_WITH_ID: i64 = 3;

/// Formats 1 and 2.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS memory (
        id INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, text TEXT NOT NULL, at INTEGER NOT NULL,
        UNIQUE (user, text));
    CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(
        text, content = 'memory', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
    CREATE TRIGGER IF NOT EXISTS memory_made AFTER INSERT ON memory BEGIN
        INSERT INTO found (rowid, text) VALUES (new.id, new.text);
    END;
    CREATE TRIGGER IF NOT EXISTS memory_gone AFTER DELETE ON memory BEGIN
        INSERT INTO found (found, rowid, text) VALUES ('delete', old.id, old.text);
    END;
    CREATE TABLE IF NOT EXISTS seen (user TEXT PRIMARY KEY, turn TEXT NOT NULL, at INTEGER NOT NULL, before INTEGER);

    -- Format 2. Which conversations a memory comes from. A memory that was made more than once, in different conversations,
    -- has several numbers in `made`; one that was made of others has all their conversations under one number. It stays as
    -- long as all conversations of one number are there.
    CREATE TABLE made_from (
        memory INTEGER NOT NULL, made INTEGER NOT NULL, conversation TEXT NOT NULL,
        PRIMARY KEY (memory, made, conversation)) WITHOUT ROWID;
    CREATE INDEX made_from_conversation ON made_from (conversation);
    CREATE TRIGGER memory_forgets_source AFTER DELETE ON memory BEGIN
        DELETE FROM made_from WHERE memory = old.id;
    END;
    -- Words of a memory that goes are removed from the index at once, not when its segments are merged; and what went before
    -- this was set is removed now.
    INSERT INTO found (found, rank) VALUES ('secure-delete', 1);
    INSERT INTO found (found) VALUES ('rebuild');";

/// Format 3: the file has an id, by which its user knows it.
const IDENTITY: &str = "CREATE TABLE database (id TEXT NOT NULL);";

/// A file, and who knows whether it is the user's own.
#[derive(Clone, Debug)]
pub(super) struct MemoryFile {
    pub(super) file: PrivateFile,
    pub(super) databases: Option<Arc<dyn KnownDatabases>>,
}

/// Which files are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those of the user.
    Known,
    /// Every one, to erase from it.
    Any,
    /// Every one: it is the user's from now on.
    Accepted,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) db: Connection,
    pub(super) is_known: bool,
}

impl MemoryFile {
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn database(&self, source: rusqlite::Error) -> MemoryError {
        MemoryError::Database { file: self.path().to_owned(), source }
    }

    pub(super) fn not_known(&self) -> MemoryError {
        MemoryError::NotKnown { file: self.path().to_owned() }
    }

    /// The file that SQLite keeps beside it.
    fn beside(&self, end: &str) -> PrivateFile {
        let mut name = self.path().file_name().unwrap_or_default().to_owned();
        name.push(end);
        self.file.beside(name)
    }

    /// All files that may hold something of it.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let beside = ["-wal", "-shm"].map(|end| self.beside(end).path().to_owned());
        std::iter::once(self.path().to_owned()).chain(beside).collect()
    }

    /// Whether there is something in it. Fails if it cannot be reached.
    pub(super) fn is_there(&self) -> Result<bool, MemoryError> {
        Ok(self.file.about()?.is_some_and(|about| about.len() > 0))
    }

    /// A connection that changes nothing.
    pub(super) fn read_only(&self) -> rusqlite::Result<Connection> {
        Connection::open_with_flags(self.path(), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
    }

    /// Opens it. One that is not there is made and noted.
    pub(super) fn open(&self, whose: Whose) -> Result<Opened, MemoryError> {
        let is_there = self.is_there()?;
        self.close_siblings(whose)?;
        let mut is_known = true;
        let mut chosen = None;
        if let Some(databases) = &self.databases {
            let id = if is_there { self.id()? } else { None };
            // SQLite opens the file by its path, so the folder is there from here on, and the path has no links.
            let path = self.file.make()?;
            is_known = !is_there || whose == Whose::Accepted || databases.is_known(&path, id.as_deref());
            if !is_known && whose == Whose::Known {
                return Err(self.not_known());
            }
            if is_known && id.is_none() {
                let new = random_id().map_err(|error| self.database(error))?;
                databases.note(&path, &new);
                chosen = Some(new);
            }
        }
        let path = self.file.make()?;
        let db = self.connect(&path, chosen.as_deref())?;
        if let Some(databases) = self.databases.as_ref().filter(|_| is_known) {
            // Another process may have made the file in the same moment, with an id of its own.
            let id = read_id(&db).map_err(|error| self.database(error))?;
            if whose == Whose::Accepted || (chosen.is_some() && chosen != id) {
                id.iter().for_each(|id| databases.note(&path, id));
            }
        }
        Ok(Opened { db, is_known })
    }

    /// What SQLite finds beside a database it takes in. Where the user's own files are told from others, one that others may
    /// read or write was put there, by a checkout for instance: this program makes none such.
    fn close_siblings(&self, whose: Whose) -> Result<(), MemoryError> {
        for end in ["-wal", "-shm", "-journal"] {
            let beside = self.beside(end);
            if self.databases.is_some() && whose == Whose::Known && is_open_to_others(beside.path()) {
                return Err(MemoryError::NotKnown { file: beside.path().to_owned() });
            }
            beside.close_to_others()?;
        }
        Ok(())
    }

    /// Whether it would not be opened for its user.
    pub(super) fn is_foreign(&self) -> Result<bool, MemoryError> {
        let Some(databases) = &self.databases else { return Ok(false) };
        if !self.is_there()? {
            return Ok(false);
        }
        if ["-wal", "-shm", "-journal"].into_iter().any(|end| is_open_to_others(self.beside(end).path())) {
            return Ok(true);
        }
        Ok(!databases.is_known(&self.file.real_path()?, self.id()?.as_deref()))
    }

    /// The id in the file. It is read without SQLite's making files beside a database that may be another's: where there is no
    /// write-ahead log, everything is in the file itself.
    fn id(&self) -> Result<Option<String>, MemoryError> {
        let db = match self.beside("-wal").about()? {
            Some(_) => self.read_only(),
            None => self.immutable(),
        };
        db.and_then(|db| read_id(&db)).map_err(|error| self.database(error))
    }

    fn immutable(&self) -> rusqlite::Result<Connection> {
        let mut uri = String::from("file:");
        for byte in self.path().as_os_str().as_encoded_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(char::from(*byte)),
                _ => uri.push_str(&format!("%{byte:02x}")),
            }
        }
        uri.push_str("?immutable=1");
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(uri, flags)
    }

    fn connect(&self, path: &Path, id: Option<&str>) -> Result<Connection, MemoryError> {
        let refused = |source| self.database(source);
        let flags =
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut db = Connection::open_with_flags(path, flags).map_err(refused)?;
        db.busy_timeout(BUSY_TIMEOUT).map_err(refused)?;
        db.execute_batch("PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF;").map_err(refused)?;
        let version = |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
        let found = version(&db).map_err(refused)?;
        if found > FORMAT {
            return Err(MemoryError::Newer { file: self.path().to_owned(), found });
        }
        if found < FORMAT {
            db.pragma_update(None, "journal_mode", "wal").map_err(refused)?;
            let migration = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
            // Another process may have been first.
            let found = version(&migration).map_err(refused)?;
            if found < 2 {
                migration.execute_batch(SCHEMA).map_err(refused)?;
            }
            if found < FIRST_WITH_ID {
                migration.execute_batch(IDENTITY).map_err(refused)?;
                let insert = "INSERT INTO database (id) VALUES (coalesce(?1, lower(hex(randomblob(16)))))";
                migration.execute(insert, [id]).map_err(refused)?;
            }
            migration.pragma_update(None, "user_version", FORMAT).map_err(refused)?;
            migration.commit().map_err(refused)?;
        }
        Ok(db)
    }
}

/// The id; `None` in a file of a format without ids.
fn read_id(db: &Connection) -> rusqlite::Result<Option<String>> {
    db.busy_timeout(BUSY_TIMEOUT)?;
    let format: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match format < FIRST_WITH_ID {
        true => Ok(None),
        false => db.query_row("SELECT id FROM database", [], |row| row.get(0)).map(Some),
    }
}

/// SQLite's generator is seeded by the operating system.
fn random_id() -> rusqlite::Result<String> {
    Connection::open_in_memory()?.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))
}

#[cfg(unix)]
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    path.symlink_metadata().is_ok_and(|about| about.mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}
