//! Deleting a conversation reaches the memories that were made from it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use turnbuckle::store::SideStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId};

use super::Memories;
use super::connection::{BUSY_TIMEOUT, Whose};

/// How long cleaning the file waits for others who use it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The condition that a memory comes from the conversation `?1` or one of its sub-agents'. `0` is the character after `/`.
const WITHIN: &str = "(conversation = ?1 OR (conversation >= ?1 || '/' AND conversation < ?1 || '0'))";

impl Memories {
    /// Removes the memories that come from this conversation and from no other.
    async fn forget(&self, conversation: &ConversationId) -> Result<(), BoxError> {
        let id = conversation.to_string();
        let forget = move |db: &mut Connection| {
            let write = db.transaction()?;
            let ids: Vec<i64> = {
                let mut touched = write.prepare(&format!("SELECT DISTINCT memory FROM made_from WHERE {WITHIN}"))?;
                touched.query_map([&id], |row| row.get(0))?.collect::<Result<_, _>>()?
            };
            write.execute(
                &format!(
                    "DELETE FROM made_from
                      WHERE (memory, made) IN (SELECT memory, made FROM made_from WHERE {WITHIN})"
                ),
                [&id],
            )?;
            for memory in ids {
                write.execute(
                    "DELETE FROM memory WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM made_from WHERE memory = ?1)",
                    [memory],
                )?;
            }
            write.commit()?;
            purge(db)
        };
        cleaned(self.work_on(Whose::Any, forget).await?)
    }

    /// False if there is no file: then nothing is to be erased, and no file is made. Something else than memories is not touched.
    async fn is_there(&self) -> Result<bool, BoxError> {
        let file = self.file.clone();
        let look = move || -> Result<bool, BoxError> {
            if !file.is_there()? {
                return Ok(false);
            }
            let db = file.read_only()?;
            db.busy_timeout(PATIENCE)?;
            let query = "SELECT 1 FROM sqlite_schema WHERE name = 'memory' AND type = 'table'";
            match db.query_row(query, [], |_| Ok(())).optional()? {
                Some(()) => Ok(true),
                None => Err(format!("{} is no file of memories", file.path().display()).into()),
            }
        };
        tokio::task::spawn_blocking(look).await?
    }
}

fn cleaned(is_clean: bool) -> Result<(), BoxError> {
    match is_clean {
        true => Ok(()),
        false => Err("another process uses the file".into()),
    }
}

/// Cleans the file of what was deleted: unused space in its pages, and the write-ahead log. False if others prevent it.
fn purge(db: &mut Connection) -> rusqlite::Result<bool> {
    db.busy_timeout(PATIENCE)?;
    let vacuumed = db.execute_batch("VACUUM");
    let truncated = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0));
    db.busy_timeout(BUSY_TIMEOUT)?;
    match vacuumed {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
        Err(error) => Err(error),
        Ok(()) => truncated,
    }
}

impl SideStore for Memories {
    fn what(&self) -> &'static str {
        "memories"
    }

    fn name(&self) -> String {
        let file = std::path::absolute(self.file.path()).unwrap_or_else(|_| self.file.path().to_owned());
        format!("{} in {}", self.what(), file.display())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.file.all()
    }

    fn count<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<u64, BoxError>> {
        Box::pin(async move {
            if !self.is_there().await? {
                return Ok(0);
            }
            let id = conversation.to_string();
            let count = move |db: &mut Connection| {
                let query = format!("SELECT count(DISTINCT memory) FROM made_from WHERE {WITHIN}");
                db.query_row(&query, [&id], |row| row.get::<_, i64>(0))
            };
            Ok(self.work_on(Whose::Any, count).await?.unsigned_abs())
        })
    }

    fn erase<'a>(&'a self, conversation: &'a ConversationId) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            match self.is_there().await? {
                true => self.forget(conversation).await,
                false => Ok(()),
            }
        })
    }

    fn erase_user<'a>(&'a self, user: &'a str, kept: &'a [ConversationId]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            if !self.is_there().await? {
                return Ok(());
            }
            let (user, kept) = (user.to_owned(), kept.to_vec());
            let erase = move |db: &mut Connection| {
                let write = db.transaction()?;
                let mut spared = BTreeSet::new();
                {
                    let mut from = write.prepare(&format!("SELECT memory FROM made_from WHERE {WITHIN}"))?;
                    for id in &kept {
                        for memory in from.query_map([id.as_str()], |row| row.get::<_, i64>(0))? {
                            spared.insert(memory?);
                        }
                    }
                    let mut of_user = write.prepare("SELECT id FROM memory WHERE user = ?1")?;
                    let ids: Vec<i64> = of_user.query_map([&user], |row| row.get(0))?.collect::<Result<_, _>>()?;
                    let mut delete = write.prepare("DELETE FROM memory WHERE id = ?1")?;
                    for id in ids.into_iter().filter(|id| !spared.contains(id)) {
                        delete.execute([id])?;
                    }
                }
                write.execute("DELETE FROM seen WHERE user = ?1", params![user])?;
                write.commit()?;
                purge(db)
            };
            cleaned(self.work_on(Whose::Any, erase).await?)
        })
    }
}
