//! Conversations in one SQLite file, shared by the processes of one machine.
//!
//! An append that returned is on disk: it survives `kill -9` and power loss. All conversations of a process write through one
//! thread, and writes that are queued share a commit. The conditions of a write (the claim's epoch, the end of the log) are part
//! of the statement that changes the row, so the database itself refuses a writer whose conversation was taken over.
//!
//! ```no_run
//! # async fn shown() -> Result<(), turnbuckle::BoxError> {
//! use turnbuckle::{Scope, store::Store};
//! use turnbuckle_stores::SqliteStore;
//!
//! let store = SqliteStore::open(".turnbuckle/turnbuckle.db")?;
//! let now = turnbuckle::Timestamp::from_millis(0);
//! store.open(&"c_1".into(), Scope::local().actor(), now).await?;
//! # Ok(()) }
//! ```

mod append;
mod audit;
mod backup;
mod claim;
mod deletion;
mod due;
mod error;
mod file;
mod identity;
mod inbox;
mod jobs;
mod lease;
mod list;
mod log;
mod message_key;
mod process;
mod purge;
mod read;
mod read_connection;
mod readers;
mod rows;
mod schema;
mod standing;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use turnbuckle::event::Event;
use turnbuckle::hook::Record;
use turnbuckle::message::Text;
use turnbuckle::scope::Author;
use turnbuckle::store::{
    Act, ActKind, AuditLimits, AuditWrite, AuditedCall, Batch, CacheBreak, Calibration, Claim, ConversationSummary,
    Cut, Deletion, Hold, InboxFilter, InboxItem, Job, JobDisposition, JobLease, JobSelector, KeyedMessage, ListPart,
    PurgeLimits, Purged, Scratch, SentRequest, StandingApproval, Store, StoreError, StoreFuture, Summary, Tombstone,
};
use turnbuckle::{Actor, CallId, ConversationId, Timestamp, TurnId};

use crate::json::json;
use deletion::{ActRow, DeletionRow, HoldRow};
pub use error::{Cause, SqliteError};
use error::{Fault, no_thread};
use file::absolute;
pub use identity::DatabaseId;
use inbox::InboxRow;
use jobs::JobRow;
pub use list::{FailedJobs, Listing, UnreadableConversation};
use process::Process;
use read_connection::ReadConnection;
use readers::Readers;
use rows::OwnedBatch;
use schema::Prepared;
use writer::{Shared, Writer};

/// Conversations in a SQLite file. Clones share one writer's thread and two readers' threads. Dropping the last clone blocks
/// until all queued writes are done.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    readers: Readers,
    /// Dropped after the readers, so that the writer's connection is the last one: SQLite then moves the write-ahead log into
    /// the file. `None` for a store that was opened read-only.
    writer: Option<Writer>,
    /// Of a store that writes.
    id: Option<DatabaseId>,
    shared: Arc<Shared>,
    /// This process, as it is stored with every lease.
    process: Option<Arc<Process>>,
    /// The copy that was made of an older version.
    backup: Option<PathBuf>,
}

impl SqliteStore {
    /// The schema version of the files that this release writes. Older files are migrated when they are opened, newer ones are
    /// refused.
    pub const SCHEMA_VERSION: i64 = schema::VERSION;

    /// Opens the file. Makes it and its folder if they are missing, and migrates its tables; before that, a file of an older version
    /// is copied to `NAME.bak-VERSION` beside it ([`backup`](Self::backup)), and without a copy nothing is migrated. Blocks for some
    /// milliseconds, for as long as the copy takes, or for up to ten seconds while another process keeps the file locked.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteError> {
        Self::prepare(path.as_ref(), None)
    }

    /// Like [`open`](Self::open), and the id of a new database is chosen by the caller: so it can be noted before there is a
    /// file. A database that has an id keeps it; [`id`](Self::id) says which.
    pub fn open_as(path: impl AsRef<Path>, id: &DatabaseId) -> Result<Self, SqliteError> {
        Self::prepare(path.as_ref(), Some(id))
    }

    /// The id of the database in a file, without opening it to write or migrating it; `None` if a version made it that gave
    /// no ids.
    pub fn id_of(path: impl AsRef<Path>) -> Result<Option<DatabaseId>, SqliteError> {
        identity::of_file(path.as_ref())
    }

    /// Takes back what a process left half done that died while it made or migrated the tables. Until then
    /// [`id_of`](Self::id_of) and [`open_read_only`](Self::open_read_only) fail with [`SqliteError::ReadOnly`]; [`open`](Self::open)
    /// does it by itself. SQLite believes the `-journal` file that it finds, so it should be the user's own.
    pub fn roll_back(path: impl AsRef<Path>) -> Result<(), SqliteError> {
        schema::roll_back(&absolute(path.as_ref())?)
    }

    /// Takes the rights of others away from the files of a database of this user; [`open`](Self::open) does it by itself. Does
    /// nothing to those of another user.
    pub fn close_to_others(path: impl AsRef<Path>) -> Result<(), SqliteError> {
        schema::close(&absolute(path.as_ref())?)
    }

    fn prepare(path: &Path, id: Option<&DatabaseId>) -> Result<Self, SqliteError> {
        let path = absolute(path)?;
        let Prepared { db, backup } = schema::prepare(&path, id)?;
        Self::with_connection(db, path, backup)
    }

    /// A store that writes through `db`.
    fn with_connection(db: rusqlite::Connection, path: PathBuf, backup: Option<PathBuf>) -> Result<Self, SqliteError> {
        let id = identity::of_tables(&path, &db).map_err(|fault| identity::named(&path, fault))?;
        let shared = Arc::new(Shared::of(path));
        let readers = Readers::start(shared.clone(), ReadConnection::with_writer)?;
        let writer = Writer::start(db, shared.clone()).map_err(|error| no_thread(&shared.path, error))?;
        Ok(Self::of(readers, Some((writer, id)), shared, backup))
    }

    /// Opens an existing file for reading only. Nothing is written to it, and no file is made next to it as long as no process
    /// has it open for writing. While one has, or after one died, SQLite needs the index of the write-ahead log and makes it
    /// if it is missing: only then must the folder be writable. Methods that would write fail with
    /// [`SqliteError::OpenedToRead`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, SqliteError> {
        let path = absolute(path.as_ref())?;
        schema::examine(&path)?;
        let shared = Arc::new(Shared::of(path));
        let readers = Readers::start(shared.clone(), |path| {
            let mut connection = ReadConnection::read_only(path)?;
            let check = |db: &_| Ok(schema::check_tables(path, db)?);
            connection.read(check).map_err(|fault| shared.name(fault, "opening it"))?;
            Ok(connection)
        })?;
        Ok(Self::of(readers, None, shared, None))
    }

    fn of(
        readers: Readers,
        writer: Option<(Writer, DatabaseId)>,
        shared: Arc<Shared>,
        backup: Option<PathBuf>,
    ) -> Self {
        let (writer, id) = writer.unzip();
        Self { inner: Arc::new(Inner { readers, writer, id, shared, process: Process::this().map(Arc::new), backup }) }
    }

    /// The copy of the file as it was, if opening it migrated its tables: `NAME.bak-VERSION`, for its owner alone. It holds all
    /// conversations of that time; nothing deletes it, and nothing is deleted from it.
    pub fn backup(&self) -> Option<&Path> {
        self.inner.backup.as_deref()
    }

    /// The copies of older versions that were made of the database in a file, and what an interrupted copy left.
    pub fn backups_of(path: impl AsRef<Path>) -> std::io::Result<Vec<PathBuf>> {
        backup::list(path.as_ref())
    }

    /// The id of the database; `None` for a store that was opened read-only.
    pub fn id(&self) -> Option<&DatabaseId> {
        self.inner.id.as_ref()
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.inner.shared.path
    }

    fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        id: &ConversationId,
        query: impl Fn(&rusqlite::Connection, &ConversationId) -> Result<T, Fault> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let id = id.clone();
        StoreFuture::later(self.inner.readers.read(doing, move |db| query(db, &id)))
    }

    async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.inner.writer {
            Some(writer) => writer.write(doing, work).await,
            None => Err(SqliteError::OpenedToRead { path: self.path().to_owned(), doing }.into()),
        }
    }

    /// How many transactions this store has committed. Many writes may share one.
    pub fn commits(&self) -> u64 {
        self.inner.shared.commits.load(Ordering::Relaxed)
    }

    /// All conversations that can be read, the newest first, and apart from them those that cannot. [`Store::list`] fails as a
    /// whole if there is one that cannot.
    pub async fn list_with_errors(&self) -> Result<Listing, StoreError> {
        self.listing(list::Part::All).await
    }

    async fn listing(&self, part: list::Part) -> Result<Listing, StoreError> {
        const LISTING: &str = "listing conversations";
        let me = self.inner.process.clone();
        let list = move |db: &_| list::list(db, me.as_deref(), &part);
        let (conversations, faults) = self.inner.readers.read(LISTING, list).await?;
        let unreadable = |(id, fault)| UnreadableConversation { id, error: self.inner.shared.name(fault, LISTING) };
        Ok(Listing { conversations, unreadable: faults.into_iter().map(unreadable).collect() })
    }

    /// Conversations with jobs that failed or were given up, for an operator.
    pub async fn failed_jobs(&self) -> Result<Vec<FailedJobs>, StoreError> {
        self.inner.readers.read("counting failed jobs", list::failed_jobs).await
    }
}

/// SQLite's integers are signed. A number beyond them becomes the largest one: no time, seq or count that is stored reaches it.
fn sql_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Store for SqliteStore {
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor, now: Timestamp) -> StoreFuture<'a, Actor> {
        StoreFuture::later(async move {
            // If the conversation exists, the transaction writes nothing, and its commit does not wait for the disk.
            let (id, owner) = (id.clone(), json(owner, "writing an owner as JSON")?);
            self.write("opening a conversation", move |db| append::open(db, &id, &owner, now)).await
        })
    }

    fn owner<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Actor>> {
        self.read("reading a conversation's owner", id, read::owner)
    }

    fn deliver<'a>(&'a self, id: &'a ConversationId, item: InboxItem) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let (id, item) = (id.clone(), InboxRow::of(item)?);
            self.write("adding to an inbox", move |db| inbox::deliver(db, &id, &item)).await
        })
    }

    fn keyed_message<'a>(
        &'a self,
        id: &'a ConversationId,
        user: &'a str,
        key: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Option<KeyedMessage>> {
        let (user, key) = (user.to_owned(), key.to_owned());
        self.read("reading the key of a message", id, move |db, id| {
            message_key::find(db, read::key(db, id)?, (&user, &key), now)
        })
    }

    fn inbox<'a>(&'a self, id: &'a ConversationId, which: InboxFilter) -> StoreFuture<'a, Vec<InboxItem>> {
        self.read("reading an inbox", id, move |db, id| inbox::inbox(db, read::key(db, id)?, which))
    }

    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> StoreFuture<'a, Claim> {
        let (id, writer, me) = (id.clone(), writer.clone(), self.inner.process.clone());
        let work = move |db: &_| claim::claim(db, &id, &writer, me.as_deref(), now);
        StoreFuture::later(self.write("claiming a conversation", work))
    }

    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> StoreFuture<'a, ()> {
        let id = id.clone();
        let work = move |db: &_| claim::renew(db, &id, epoch, now);
        StoreFuture::later(self.write("renewing a claim", work))
    }

    fn append<'a>(&'a self, batch: Batch<'a>) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let (batch, me) = (OwnedBatch::of(batch)?, self.inner.process.clone());
            self.write("appending to a log", move |db| batch.write(db, me.as_deref())).await
        })
    }

    fn log<'a>(&'a self, id: &'a ConversationId, from: u64, most: usize) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.read("reading a log", id, move |db, id| log::log(db, id, from, most))
    }

    fn tail<'a>(&'a self, id: &'a ConversationId, before: u64, tokens: u64) -> StoreFuture<'a, Vec<Arc<Event>>> {
        self.read("reading the end of a log", id, move |db, id| log::tail(db, id, before, tokens))
    }

    fn has_call<'a>(&'a self, id: &'a ConversationId, call: &'a CallId) -> StoreFuture<'a, bool> {
        let call = call.clone();
        self.read("looking for a call", id, move |db, id| log::has_call(db, id, &call))
    }

    fn scratch<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Scratch>> {
        self.read("reading the scratch of a turn", id, read::scratch)
    }

    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> StoreFuture<'a, Vec<Record>> {
        let turn = turn.clone();
        self.read("reading hook records", id, move |db, id| read::records(db, id, &turn))
    }

    fn cuts<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Cut>> {
        self.read("reading cuts", id, read::cuts)
    }

    fn sent<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Arc<SentRequest>>> {
        self.read("reading the last request", id, read::sent_of)
    }

    fn cache_breaks<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<CacheBreak>> {
        self.read("reading cache breaks", id, read::cache_breaks)
    }

    fn audited_calls<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<AuditedCall>> {
        self.read("reading the audit", id, audit::calls)
    }

    fn audit_contents<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, HashMap<Text, Text>> {
        self.read("reading the audit", id, audit::contents)
    }

    fn expire_audit<'a>(&'a self, limits: AuditLimits, now: Timestamp) -> StoreFuture<'a, u64> {
        StoreFuture::later(self.write("removing old parts of the audit", move |db| audit::expire(db, limits, now)))
    }

    fn add_audited<'a>(&'a self, id: &'a ConversationId, audit: &'a AuditWrite) -> StoreFuture<'a, ()> {
        let id = id.clone();
        StoreFuture::later(async move {
            let rows = audit::AuditRows::of(audit)?;
            self.write("adding to an audit", move |db: &_| audit::add(db, &id, &rows)).await
        })
    }

    fn summaries<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Arc<Summary>>> {
        self.read("reading summaries", id, read::summaries)
    }

    fn add_summary<'a>(&'a self, id: &'a ConversationId, summary: Summary, job: &'a Job) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let (id, job) = (id.clone(), jobs::JobKey::of(job));
            let body = json(&summary, "writing a summary as JSON")?;
            let work = move |db: &_| read::add_summary(db, &id, (summary.version, &body), &job);
            self.write("adding a summary", work).await
        })
    }

    fn title<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Text>> {
        self.read("reading a title", id, read::title)
    }

    fn set_title<'a>(&'a self, id: &'a ConversationId, title: &'a Text) -> StoreFuture<'a, ()> {
        let (id, title) = (id.clone(), title.clone());
        StoreFuture::later(self.write("writing a title", move |db| read::set_title(db, &id, &title)))
    }

    fn calibrations<'a>(&'a self) -> StoreFuture<'a, Vec<Calibration>> {
        StoreFuture::later(self.inner.readers.read("reading calibrations", read::calibrations))
    }

    fn jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Job>> {
        self.read("reading jobs", id, jobs::jobs)
    }

    fn take_job<'a>(
        &'a self,
        id: &'a ConversationId,
        hooks: &'a [JobSelector],
        lease: JobLease<'a>,
    ) -> StoreFuture<'a, Option<Job>> {
        let (id, hooks, me) = (id.clone(), hooks.to_vec(), self.inner.process.clone());
        let lease = (sql_integer(lease.from.as_millis()), sql_integer(lease.until().as_millis()));
        let work = move |db: &_| jobs::take(db, &id, &hooks, me.as_deref(), lease);
        StoreFuture::later(self.write("taking a job", work))
    }

    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDisposition) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let (id, job) = (id.clone(), JobRow::of(&job)?);
            self.write("settling a job", move |db| jobs::settle(db, &id, &job, done)).await
        })
    }

    fn due<'a>(
        &'a self,
        now: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        let (me, after) = (self.inner.process.clone(), after.map_or_else(String::new, ToString::to_string));
        let work = move |db: &_| due::due(db, me.as_deref(), now, &after, most);
        StoreFuture::later(self.inner.readers.read("looking for work that is due", work))
    }

    fn sub_agents_with_jobs<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<ConversationId>> {
        self.read("looking for jobs of sub-agents", id, due::sub_agents_with_jobs)
    }

    fn list<'a>(&'a self) -> StoreFuture<'a, Vec<ConversationSummary>> {
        StoreFuture::later(async move { self.listing(list::Part::All).await?.all_or_error() })
    }

    fn list_part<'a>(&'a self, part: ListPart<'a>) -> StoreFuture<'a, Vec<ConversationSummary>> {
        StoreFuture::later(async move { self.listing(part.into()).await?.all_or_error() })
    }

    fn standing<'a>(&'a self) -> StoreFuture<'a, Vec<StandingApproval>> {
        StoreFuture::later(self.inner.readers.read("reading standing approvals", standing::standing))
    }

    fn revoke_standing<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        let id = id.to_owned();
        StoreFuture::later(self.write("revoking a standing approval", move |db| standing::revoke(db, &id)))
    }

    fn delete<'a>(&'a self, deletion: Deletion<'a>) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let (row, me) = (DeletionRow::of(deletion)?, self.inner.process.clone());
            self.write("deleting a conversation", move |db| row.write(db, me.as_deref())).await
        })
    }

    fn tombstone<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Option<Tombstone>> {
        self.read("looking for a tombstone", id, deletion::tombstone)
    }

    fn unfinished_deletions<'a>(&'a self) -> StoreFuture<'a, Vec<Tombstone>> {
        StoreFuture::later(self.inner.readers.read("looking for unfinished deletions", deletion::unfinished))
    }

    fn note_erased<'a>(&'a self, id: &'a ConversationId, name: &'a str) -> StoreFuture<'a, ()> {
        let (id, name) = (id.clone(), name.to_owned());
        StoreFuture::later(self.write("noting what was erased", move |db| deletion::note_erased(db, &id, &name)))
    }

    /// Copies all rows into new pages, and waits for readers and writers of the file, in a thread of its own.
    fn purge<'a>(&'a self, limits: PurgeLimits) -> StoreFuture<'a, Purged> {
        StoreFuture::later(async move {
            if self.inner.writer.is_none() {
                let doing = "cleaning it of what was deleted";
                return Err(SqliteError::OpenedToRead { path: self.path().to_owned(), doing }.into());
            }
            let (shared, (reply, answer)) = (self.inner.shared.clone(), tokio::sync::oneshot::channel());
            let path = shared.path.clone();
            // The caller may have been dropped meanwhile.
            let work = move || drop(reply.send(purge::purge(&shared.path, limits)));
            std::thread::Builder::new()
                .name("turnbuckle-purge".to_owned())
                .spawn(work)
                .map_err(|error| no_thread(&path, error))?;
            Ok(answer.await.map_err(|_| SqliteError::Closed { path })??)
        })
    }

    fn place_hold<'a>(&'a self, id: &'a ConversationId, hold: &'a Hold) -> StoreFuture<'a, bool> {
        StoreFuture::later(async move {
            let row = HoldRow::of(id, hold)?;
            self.write("holding a conversation", move |db| row.add(db)).await
        })
    }

    fn lift_hold<'a>(&'a self, id: &'a ConversationId, by: &'a Author, now: Timestamp) -> StoreFuture<'a, bool> {
        StoreFuture::later(async move {
            let act = ActRow::of(&Act::new(ActKind::Released, id.as_str(), by.clone(), now))?;
            let id = id.clone();
            self.write("releasing a conversation", move |db| deletion::lift_hold(db, &id, &act)).await
        })
    }

    fn unused_since<'a>(
        &'a self,
        before: Timestamp,
        after: Option<&'a ConversationId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<ConversationId>> {
        let after = after.map_or_else(String::new, ToString::to_string);
        let work = move |db: &_| deletion::unused_since(db, before, &after, most);
        StoreFuture::later(self.inner.readers.read("looking for unused conversations", work))
    }

    fn record_act<'a>(&'a self, act: Act) -> StoreFuture<'a, ()> {
        StoreFuture::later(async move {
            let row = ActRow::of(&act)?;
            self.write("recording an act", move |db| row.add(db)).await
        })
    }

    fn acts<'a>(&'a self, most: usize) -> StoreFuture<'a, Vec<Act>> {
        StoreFuture::later(self.inner.readers.read("reading acts", move |db| deletion::acts(db, most)))
    }

    fn is_durable(&self) -> bool {
        true
    }
}
