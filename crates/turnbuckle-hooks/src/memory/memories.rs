//! The file: memories by user, with a full-text index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use turnbuckle::hooks::KnownDatabases;
use turnbuckle::store::{PrivateFile, PrivateFileError};
use turnbuckle::{ConversationId, Timestamp, TurnId};

use super::connection::{FORMAT, MemoryFile, Opened, Whose};

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

/// Memories that become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedMemories {
    /// The memories that go.
    pub ids: BTreeSet<i64>,
    /// What comes in their place.
    pub text: String,
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
    /// The file cannot be reached or made, or must not be.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The file came from somewhere else: whoever made it would be taken for the user.
    #[error("{} was not made by your Turnbuckle, or was moved here, so its memories are not used (`turnbuckle trust` asks)", .file.display())]
    NotKnown {
        /// The database file, or one beside it.
        file: PathBuf,
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

/// A file of memories. Cheap to clone; opened when it is first needed.
#[derive(Clone, Debug)]
pub struct Memories {
    pub(super) file: Arc<MemoryFile>,
    open: Arc<Mutex<Option<Opened>>>,
}

impl Memories {
    /// Uses this file, which is created if it does not exist.
    pub fn in_file(file: impl Into<PrivateFile>) -> Self {
        Self { file: Arc::new(MemoryFile { file: file.into(), databases: None }), open: Arc::default() }
    }

    /// Uses the file only if it is one of these; one that is made is noted there.
    #[must_use]
    pub fn known_by(self, databases: Arc<dyn KnownDatabases>) -> Self {
        let file = MemoryFile { file: self.file.file.clone(), databases: Some(databases) };
        Self { file: Arc::new(file), open: Arc::default() }
    }

    /// Stores memories of a user that were made from a conversation, without duplicates, and drops all but the newest `keep`.
    pub async fn keep(
        &self,
        user: &str,
        from: &ConversationId,
        texts: Vec<String>,
        at: Timestamp,
        keep: usize,
    ) -> Result<(), MemoryError> {
        let (user, from) = (user.to_owned(), BTreeSet::from([from.to_string()]));
        self.work(move |db| {
            let write = db.transaction()?;
            for text in &texts {
                add(&write, &user, text, at, &from)?;
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

    /// Drops memories, and makes one of each group of others, in one transaction. What is made of several comes from all
    /// their conversations.
    pub async fn replace(
        &self,
        user: &str,
        dropped: BTreeSet<i64>,
        merged: Vec<MergedMemories>,
        at: Timestamp,
    ) -> Result<(), MemoryError> {
        let user = user.to_owned();
        self.work(move |db| {
            let write = db.transaction()?;
            let forget =
                |id: &i64| write.execute("DELETE FROM memory WHERE id = ?1 AND user = ?2", params![id, user]).map(drop);
            dropped.iter().try_for_each(forget)?;
            for MergedMemories { ids, text } in &merged {
                let from = sources(&write, ids)?;
                ids.iter().try_for_each(forget)?;
                add(&write, &user, text, at, &from)?;
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

    /// Makes the file, as it is now, the user's own: it is noted where known files are. Blocks.
    pub fn accept(&self) -> Result<(), MemoryError> {
        self.file.open(Whose::Accepted).map(drop)
    }

    /// Whether there is a file that would not be used, because it is not the user's own. Nothing is changed. Blocks.
    pub fn is_foreign(&self) -> Result<bool, MemoryError> {
        self.file.is_foreign()
    }

    /// Runs on a blocking thread, because SQLite blocks. A file that is not the user's own is not used.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, MemoryError> {
        self.work_on(Whose::Known, work).await
    }

    /// The same with a file that may be another's: what is erased need not be trusted.
    pub(super) async fn work_on<T: Send + 'static>(
        &self,
        whose: Whose,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, MemoryError> {
        let Self { file, open } = self.clone();
        let run = move || {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = match &mut *open {
                Some(opened) => opened,
                none => none.insert(file.open(whose)?),
            };
            if !opened.is_known && whose == Whose::Known {
                return Err(file.not_known());
            }
            work(&mut opened.db).map_err(|source| file.database(source))
        };
        tokio::task::spawn_blocking(run).await.map_err(|_| MemoryError::Gone)?
    }
}

/// Adds a memory, if the user has none of this text, and notes where it comes from.
fn add(db: &Connection, user: &str, text: &str, at: Timestamp, from: &BTreeSet<String>) -> rusqlite::Result<()> {
    let stamp = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    db.execute("INSERT OR IGNORE INTO memory (user, text, at) VALUES (?1, ?2, ?3)", params![user, text, stamp])?;
    let id: i64 =
        db.query_row("SELECT id FROM memory WHERE user = ?1 AND text = ?2", params![user, text], |row| row.get(0))?;
    let mut known = db.prepare_cached("SELECT made, conversation FROM made_from WHERE memory = ? ORDER BY made")?;
    let mut all: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for row in known.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))? {
        let (made, conversation) = row?;
        all.entry(made).or_default().insert(conversation);
    }
    if all.values().any(|known| known == from) {
        return Ok(());
    }
    let made = all.last_key_value().map_or(1, |(made, _)| made + 1);
    for conversation in from {
        db.execute("INSERT INTO made_from (memory, made, conversation) VALUES (?, ?, ?)", (id, made, conversation))?;
    }
    Ok(())
}

/// All conversations that these memories come from.
fn sources(db: &Connection, ids: &BTreeSet<i64>) -> rusqlite::Result<BTreeSet<String>> {
    let mut query = db.prepare_cached("SELECT conversation FROM made_from WHERE memory = ?")?;
    let mut found = BTreeSet::new();
    for id in ids {
        for conversation in query.query_map([id], |row| row.get(0))? {
            found.insert(conversation?);
        }
    }
    Ok(found)
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
