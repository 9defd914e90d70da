//! The identity of a database: a random id that it gets when it is made, and keeps when the file is moved or copied.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _};

use super::error::Fault;
use super::read_connection::ReadConnection;
use super::{SqliteError, absolute, schema};

/// The schema version that introduced ids.
const FIRST_WITH_ID: i64 = 5;
const READING_ID: &str = "reading its id";

/// The id of a database: 32 hexadecimal digits, chosen at random when the database is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DatabaseId(String);

impl DatabaseId {
    /// A new one. SQLite's generator is seeded by the operating system.
    pub fn random() -> Result<Self, SqliteError> {
        let failed = |error| SqliteError::of(Path::new(":memory:"), "choosing an id", error);
        let db = Connection::open_in_memory().map_err(failed)?;
        db.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0)).map(Self).map_err(failed)
    }

    /// The id with this text; `None` if it is not 32 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 32 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the id from a file that nobody need trust: nothing is written, and no table is migrated. `None` for a file of a version
/// without ids.
pub(super) fn of_file(path: &Path) -> Result<Option<DatabaseId>, SqliteError> {
    let path = &absolute(path)?;
    schema::examine(path)?;
    let mut connection = ReadConnection::read_only(path)?;
    let read = |db: &Connection| match schema::version(db)? {
        older if older < FIRST_WITH_ID => Ok(None),
        _ => of_tables(path, db).map(Some),
    };
    connection.read(read).map_err(|fault| named(path, fault))
}

/// Reads the id of tables that have one.
pub(super) fn of_tables(path: &Path, db: &Connection) -> Result<DatabaseId, Fault> {
    let found: Option<String> = db.query_row("SELECT id FROM database", [], |row| row.get(0)).optional()?;
    let unfit = || {
        let source = Arc::from(turnbuckle::BoxError::from("it has no id, or one of another form"));
        SqliteError::Unreadable { path: path.to_owned(), doing: READING_ID, source }
    };
    Ok(found.and_then(|text| DatabaseId::parse(&text)).ok_or_else(unfit)?)
}

/// Gives migrated tables their id: `id`, or a random one.
pub(super) fn write(db: &Connection, id: Option<&DatabaseId>) -> rusqlite::Result<()> {
    let write = "INSERT INTO database (id) SELECT coalesce(?1, lower(hex(randomblob(16)))) \
                 WHERE NOT EXISTS (SELECT 1 FROM database)";
    db.execute(write, [id.map(DatabaseId::as_str)]).map(drop)
}

pub(super) fn named(path: &Path, fault: Fault) -> SqliteError {
    let refused = |refusal| SqliteError::Failed { path: path.to_owned(), doing: READING_ID, source: Arc::new(refusal) };
    fault.at(path, READING_ID).map_or_else(|error| error, refused)
}
