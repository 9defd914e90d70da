//! Conversations in one SQLite file, shared by the processes of one machine.
//!
//! An append that returned is on disk: it survives `kill -9` and power loss. All conversations of a process write through
//! one thread, and what waits is committed together. A claim, an epoch and a log's end are checked by the rows they
//! change, so that a writer that was taken over runs into the database and not into good manners.
//!
//! ```no_run
//! # async fn shown() -> Result<(), turnbuckle::Failure> {
//! use turnbuckle::{Scope, store::Store};
//! use turnbuckle_stores::SqliteStore;
//!
//! let store = SqliteStore::open(".turnbuckle/turnbuckle.db")?;
//! let now = turnbuckle::Timestamp::from_millis(0);
//! store.open(&"c_1".into(), Scope::local().actor(), now).await?;
//! # Ok(()) }
//! ```

mod append;
mod claim;
mod due;
mod error;
mod file;
mod jobs;
mod json;
mod process;
mod read;
mod readers;
mod rows;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use turnbuckle::event::Event;
use turnbuckle::hook::Record;
use turnbuckle::message::Text;
use turnbuckle::store::{Batch, Claim, Hold, Job, JobDone, Letter, Listed, Store, Stored};
use turnbuckle::{Actor, CallId, ConversationId, Timestamp, TurnId};

use error::Fault;
pub use error::{Cause, SqliteError};
use jobs::JobRow;
use process::Process;
use readers::Readers;
use rows::{LetterRow, Owned};
use writer::{Shared, Writer};

/// Conversations in a SQLite file. Clones share its threads; the last one dropped waits for the writes under way.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    readers: Readers,
    /// Dropped after the readers: the last connection moves what is in the write-ahead log into the file.
    writer: Writer,
    shared: Arc<Shared>,
    /// Stands in every claim.
    process: Option<Arc<Process>>,
}

impl SqliteStore {
    /// Opens the file, and makes it, its folder and its tables if need be. Blocks for some milliseconds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteError> {
        // A relative path would mean another file once somebody changes the folder.
        let path = std::path::absolute(path.as_ref()).map_err(|error| SqliteError::Unreachable {
            path: path.as_ref().to_owned(),
            doing: "finding out where it is",
            source: Arc::new(error),
        })?;
        let db = schema::prepare(&path)?;
        let shared = Arc::new(Shared { path, stopped: OnceLock::new(), commits: 0.into() });
        let readers = Readers::start(&shared.path, shared.clone())?;
        let writer = Writer::start(db, shared.clone()).map_err(|error| no_thread(&shared.path, error))?;
        Ok(Self { inner: Arc::new(Inner { writer, readers, shared, process: Process::this().map(Arc::new) }) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.inner.shared.path
    }

    fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        id: &ConversationId,
        query: impl FnOnce(&rusqlite::Connection, &ConversationId) -> Result<T, Fault> + Send + 'static,
    ) -> Stored<'_, T> {
        let id = id.clone();
        Stored::later(self.inner.readers.read(doing, move |db| query(db, &id)))
    }

    /// Transactions that this store has brought to disk, of which many writes may share one.
    pub fn commits(&self) -> u64 {
        self.inner.shared.commits.load(Ordering::Relaxed)
    }
}

fn no_thread(path: &Path, error: std::io::Error) -> SqliteError {
    SqliteError::Failed { path: path.to_owned(), doing: "starting a thread for it", source: Arc::new(error) }
}

/// SQLite's whole numbers end earlier; what lies beyond matches nothing.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Store for SqliteStore {
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> Stored<'a, Actor> {
        Stored::later(async move {
            let (id, owner) = (id.clone(), json::json(owner, "writing an owner as JSON")?);
            self.inner.writer.write("opening a conversation", move |db| append::open(db, &id, &owner, now)).await
        })
    }

    fn owner<'a>(&'a self, id: &'a ConversationId) -> Stored<'a, Option<Actor>> {
        self.read("reading a conversation's owner", id, read::owner)
    }

    fn deliver<'a>(&'a self, id: &'a ConversationId, letter: Letter) -> Stored<'a, ()> {
        Stored::later(async move {
            let (id, letter) = (id.clone(), LetterRow::of(letter)?);
            self.inner.writer.write("delivering a letter", move |db| append::deliver(db, &id, &letter)).await
        })
    }

    fn letters<'a>(&'a self, id: &'a ConversationId) -> Stored<'a, Vec<Letter>> {
        self.read("reading an inbox", id, |db, id| read::letters(db, read::key(db, id)?))
    }

    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> Stored<'a, Claim> {
        let (id, writer, me) = (id.clone(), writer.clone(), self.inner.process.clone());
        let work = move |db: &_| claim::claim(db, &id, &writer, me.as_deref(), now);
        Stored::later(self.inner.writer.write("claiming a conversation", work))
    }

    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> Stored<'a, ()> {
        let id = id.clone();
        let work = move |db: &_| claim::renew(db, &id, epoch, now);
        Stored::later(self.inner.writer.write("renewing a claim", work))
    }

    fn append<'a>(&'a self, batch: Batch<'a>) -> Stored<'a, ()> {
        Stored::later(async move {
            let (batch, me) = (Owned::of(batch)?, self.inner.process.clone());
            self.inner.writer.write("appending to a log", move |db| batch.write(db, me.as_deref())).await
        })
    }

    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> Stored<'a, Vec<Arc<Event>>> {
        self.read("reading a log", id, move |db, id| read::log(db, id, from, most))
    }

    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> Stored<'a, Vec<Arc<Event>>> {
        self.read("reading the end of a log", id, move |db, id| read::tail(db, id, before, tokens))
    }

    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> Stored<'a, bool> {
        let call = call.clone();
        self.read("looking for a call", id, move |db, id| read::has_call(db, id, &call))
    }

    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> Stored<'a, Vec<Record>> {
        let turn = turn.clone();
        self.read("reading hook records", id, move |db, id| read::records(db, id, &turn))
    }

    fn jobs<'a>(&'a self, id: &'a ConversationId) -> Stored<'a, Vec<Job>> {
        self.read("reading jobs", id, jobs::jobs)
    }

    fn take_jobs<'a>(&'a self, id: &'a ConversationId, hold: Hold<'a>) -> Stored<'a, Vec<Job>> {
        let (id, me) = (id.clone(), self.inner.process.clone());
        let (now, until) = (number(hold.from.as_millis()), number(hold.until().as_millis()));
        let work = move |db: &_| jobs::take(db, &id, me.as_deref(), now, until);
        Stored::later(self.inner.writer.write("taking jobs", work))
    }

    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDone) -> Stored<'a, ()> {
        Stored::later(async move {
            let (id, job) = (id.clone(), JobRow::of(&job)?);
            self.inner.writer.write("settling a job", move |db| jobs::settle(db, &id, &job, done)).await
        })
    }

    fn due<'a>(&'a self, now: Timestamp, most: usize) -> Stored<'a, Vec<ConversationId>> {
        let me = self.inner.process.clone();
        let work = move |db: &_| due::due(db, me.as_deref(), now, most);
        Stored::later(self.inner.readers.read("looking for what is due", work))
    }

    fn list<'a>(&'a self) -> Stored<'a, Vec<Listed>> {
        Stored::later(self.inner.readers.read("listing conversations", read::list))
    }

    fn is_durable(&self) -> bool {
        true
    }
}
