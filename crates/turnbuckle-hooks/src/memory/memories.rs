//! The file: memories by user, with a full-text index.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use turnbuckle::{Timestamp, TurnId};

/// Something worth knowing about a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Identifies the memory in its file.
    pub id: i64,
    /// The text, one line.
    pub text: String,
    /// When it was stored.
    pub at: Timestamp,
}

/// Why memories could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The database could not be read or written.
    #[error("the memories in {} cannot be used", .file.display())]
    Database {
        /// The database file.
        file: PathBuf,
        /// The error of the library or the system.
        #[source]
        source: rusqlite::Error,
    },
    /// The folder of the file could not be created.
    #[error("there is no folder for the memories in {}", .file.display())]
    Folder {
        /// The database file.
        file: PathBuf,
        /// The error of the library or the system.
        #[source]
        source: std::io::Error,
    },
    /// The file was written by a later version.
    #[error("the memories in {} have format {found}, and this is version {FORMAT}", .file.display())]
    Newer {
        /// The database file.
        file: PathBuf,
        /// The format number in the file.
        found: i64,
    },
    /// The thread that worked on the file is gone.
    #[error("the memories' thread is gone")]
    Gone,
}

const FORMAT: i64 = 1;

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
    PRAGMA user_version = 1;";

/// A file of memories. Cheap to clone; opened when it is first needed.
#[derive(Clone, Debug)]
pub struct Memories {
    file: Arc<Path>,
    open: Arc<Mutex<Option<Connection>>>,
}

impl Memories {
    /// Uses this file, which is created if it does not exist.
    pub fn in_file(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into().into(), open: Arc::default() }
    }

    /// Stores memories of a user, without duplicates, and drops all but the newest `keep`.
    pub async fn keep(&self, user: &str, texts: Vec<String>, at: Timestamp, keep: usize) -> Result<(), MemoryError> {
        let user = user.to_owned();
        self.work(move |db| {
            let write = db.transaction()?;
            for text in &texts {
                let stamp = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
                write.execute(
                    "INSERT OR IGNORE INTO memory (user, text, at) VALUES (?1, ?2, ?3)",
                    params![user, text, stamp],
                )?;
            }
            let most = i64::try_from(keep).unwrap_or(i64::MAX);
            write.execute(
                "DELETE FROM memory WHERE user = ?1 AND id NOT IN
                     (SELECT id FROM memory WHERE user = ?1 ORDER BY id DESC LIMIT ?2)",
                params![user, most],
            )?;
            write.commit()
        })
        .await
    }

    /// The memories of a user that share words with `words`, the best first.
    pub async fn find(&self, user: &str, words: &str, most: usize) -> Result<Vec<Memory>, MemoryError> {
        let Some(query) = query(words) else { return Ok(Vec::new()) };
        let user = user.to_owned();
        self.work(move |db| {
            let mut find = db.prepare_cached(
                "SELECT memory.id, memory.text, memory.at FROM found JOIN memory ON memory.id = found.rowid
                 WHERE found MATCH ?1 AND memory.user = ?2 ORDER BY found.rank LIMIT ?3",
            )?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            find.query_map(params![query, user, most], memory)?.collect()
        })
        .await
    }

    /// The oldest memories of a user.
    pub async fn oldest(&self, user: &str, most: usize) -> Result<Vec<Memory>, MemoryError> {
        let user = user.to_owned();
        self.work(move |db| {
            let mut list = db.prepare_cached("SELECT id, text, at FROM memory WHERE user = ?1 ORDER BY id LIMIT ?2")?;
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            list.query_map(params![user, most], memory)?.collect()
        })
        .await
    }

    /// Replaces memories by others in one transaction.
    pub async fn replace(
        &self,
        user: &str,
        gone: BTreeSet<i64>,
        texts: Vec<String>,
        at: Timestamp,
    ) -> Result<(), MemoryError> {
        let user = user.to_owned();
        self.work(move |db| {
            let write = db.transaction()?;
            for id in &gone {
                write.execute("DELETE FROM memory WHERE id = ?1 AND user = ?2", params![id, user])?;
            }
            for text in &texts {
                let stamp = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
                write.execute(
                    "INSERT OR IGNORE INTO memory (user, text, at) VALUES (?1, ?2, ?3)",
                    params![user, text, stamp],
                )?;
            }
            write.commit()
        })
        .await
    }

    /// Records that a turn of the user ended, and returns how long after the previous turn that was; `None` for the first.
    /// The same turn gets the same answer again; if the clock went back the pause is zero.
    pub(super) async fn pause_before(
        &self,
        user: &str,
        turn: &TurnId,
        at: Timestamp,
    ) -> Result<Option<Duration>, MemoryError> {
        let (user, turn) = (user.to_owned(), turn.to_string());
        let now = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        self.work(move |db| {
            let write = db.transaction()?;
            let seen: Option<(String, i64, Option<i64>)> = write
                .query_row("SELECT turn, at, before FROM seen WHERE user = ?1", [&user], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .optional()?;
            let before = match seen {
                Some((same, _, before)) if same == turn => before,
                Some((_, at, _)) => Some(at),
                None => None,
            };
            write.execute(
                "INSERT INTO seen (user, turn, at, before) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (user) DO UPDATE SET turn = ?2, at = ?3, before = ?4",
                params![user, turn, now, before],
            )?;
            write.commit()?;
            let since = |before: i64| Duration::from_millis(u64::try_from(now.saturating_sub(before)).unwrap_or(0));
            Ok(before.map(since))
        })
        .await
    }

    /// Runs on a blocking thread, because SQLite blocks.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let Self { file, open } = self.clone();
        let run = move || {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            let db = match &mut *open {
                Some(db) => db,
                none => none.insert(connect(&file)?),
            };
            work(db).map_err(|source| MemoryError::Database { file: file.to_path_buf(), source })
        };
        tokio::task::spawn_blocking(run).await.map_err(|_| MemoryError::Gone)?
    }
}

fn connect(file: &Path) -> Result<Connection, MemoryError> {
    if let Some(folder) = file.parent() {
        let refused = |source| MemoryError::Folder { file: file.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(refused)?;
    }
    let refused = |source| MemoryError::Database { file: file.to_owned(), source };
    let db = Connection::open(file).map_err(refused)?;
    db.busy_timeout(Duration::from_secs(5)).map_err(refused)?;
    let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(refused)?;
    if found > FORMAT {
        return Err(MemoryError::Newer { file: file.to_owned(), found });
    }
    if found < FORMAT {
        db.pragma_update(None, "journal_mode", "wal").map_err(refused)?;
        db.execute_batch(SCHEMA).map_err(refused)?;
    }
    Ok(db)
}

fn memory(row: &rusqlite::Row<'_>) -> rusqlite::Result<Memory> {
    let at: i64 = row.get(2)?;
    let at = Timestamp::from_millis(u64::try_from(at).unwrap_or(0));
    Ok(Memory { id: row.get(0)?, text: row.get(1)?, at })
}

/// A full-text query for any of the words of a text. Only letters and digits are kept, so that the text cannot contain
/// query syntax. Of a long text only the beginning is used.
fn query(words: &str) -> Option<String> {
    const MOST: usize = 32;
    let mut query = String::new();
    let mut seen = BTreeSet::new();
    for word in words.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.chars().count() > 2) {
        if seen.len() == MOST {
            break;
        }
        if seen.insert(word.to_lowercase()) {
            query.push_str(if query.is_empty() { "\"" } else { " OR \"" });
            query.push_str(word);
            query.push('"');
        }
    }
    (!query.is_empty()).then_some(query)
}
