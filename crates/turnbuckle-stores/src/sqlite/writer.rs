//! Writing: one thread with the only connection that writes. All writes that are queued share a transaction, each in a savepoint
//! so that a refused one takes back only itself, and are answered when the transaction is on disk. A write that is alone needs
//! no savepoint: if it is refused, the transaction is rolled back.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use turnbuckle::store::StoreError;

use super::error::Fault;
use super::file::FileId;
use super::{SqliteError, schema};
use crate::json::STACK;

/// How many writes may be queued. A caller beyond that waits until one is done.
const QUEUE: usize = 1024;
/// How many writes may share a commit: a bound for the memory and the time of one transaction.
const GROUP: usize = 1024;

/// What the threads of a store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) path: PathBuf,
    /// The first error after which the file must not be written any more, from any thread. Checked before each write.
    pub(super) stopped: OnceLock<SqliteError>,
    /// How many transactions were committed. Written by the writer's thread, read by tests and benchmarks.
    pub(super) commits: AtomicU64,
}

impl Shared {
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, stopped: OnceLock::new(), commits: AtomicU64::new(0) }
    }

    /// Remembers an error after which nothing is written any more.
    pub(super) fn note(&self, error: &SqliteError) {
        if error.is_final() {
            // If another thread was first, its error is the one that is kept; this one is returned to its caller.
            let _already_set = self.stopped.set(error.clone());
        }
    }

    /// Fails if the file must not be written any more.
    fn check_not_stopped(&self) -> Result<(), SqliteError> {
        self.stopped.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Adds the file and the work to a fault, and remembers it if it is final.
    pub(super) fn explain(&self, fault: Fault, doing: &'static str) -> StoreError {
        match fault.at(&self.path, doing) {
            Ok(refusal) => refusal,
            Err(error) => {
                self.note(&error);
                error.into()
            }
        }
    }

    /// The same where a refusal by the contract cannot happen.
    pub(super) fn name(&self, fault: Fault, doing: &'static str) -> SqliteError {
        fault.at(&self.path, doing).map_or_else(
            |error| error,
            |refusal| SqliteError::Failed { path: self.path.clone(), doing, source: Arc::new(refusal) },
        )
    }
}

/// The queue of writes and the thread that works on it.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` only while the store is dropped: the thread ends when the queue is closed and empty.
    queue: Option<mpsc::Sender<Box<dyn Write>>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn start(db: Connection, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (queue, writes) = mpsc::channel(QUEUE);
        let file = FileId::of(&shared.path)?;
        let threads_share = shared.clone();
        let thread = std::thread::Builder::new()
            .name("turnbuckle-write".to_owned())
            .stack_size(STACK)
            .spawn(move || run(db, writes, file, &threads_share))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), shared })
    }

    /// Runs `work` in the next transaction and returns when that is on disk. Once the work is queued it is done, even if the
    /// future is dropped.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::from(SqliteError::Closed { path: self.shared.path.clone() });
        let (reply, answer) = oneshot::channel();
        let write = Task { doing, work: Some(work), done: None, reply };
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(Box::new(write)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl Drop for Writer {
    /// Waits for the queue: also a write whose caller is gone is done before the file is closed.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has told its message already, and its callers got `Closed`.
            let _panicked = thread.join();
        }
    }
}

/// A queued write. Its result type is erased, since all writes share a queue.
trait Write: Send {
    /// Does the work. An error ends the whole transaction; a refusal is kept for [`answer`](Self::answer). If the write is
    /// `alone` in its transaction, a refusal rolls that back.
    fn perform(&mut self, db: &Connection, shared: &Shared, alone: bool) -> Result<(), Fault>;
    fn doing(&self) -> &'static str;
    /// Sends the result to the caller; an error if the transaction was not committed.
    fn answer(self: Box<Self>, committed: Result<(), SqliteError>);
}

struct Task<T, F> {
    doing: &'static str,
    work: Option<F>,
    done: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnOnce(&Connection) -> Result<T, Fault> + Send> Write for Task<T, F> {
    fn perform(&mut self, db: &Connection, shared: &Shared, alone: bool) -> Result<(), Fault> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let run = |sql| db.prepare_cached(sql)?.execute([]).map(drop);
        if !alone {
            run("SAVEPOINT one")?;
        }
        let done = work(db);
        // After some errors (a full or failing disk) SQLite has rolled back the whole transaction.
        if db.is_autocommit() {
            return done.map(drop);
        }
        match (alone, done.is_err()) {
            (true, true) => run("ROLLBACK")?,
            (true, false) => {}
            (false, true) => run("ROLLBACK TO one").and_then(|()| run("RELEASE one"))?,
            (false, false) => run("RELEASE one")?,
        }
        self.done = Some(done.map_err(|fault| shared.explain(fault, self.doing)));
        Ok(())
    }

    fn doing(&self) -> &'static str {
        self.doing
    }

    fn answer(self: Box<Self>, committed: Result<(), SqliteError>) {
        let answer = match (committed, self.done) {
            // Also for a refused write: it may have been refused because of another write that was rolled back.
            (Err(error), _) => Err(error.into()),
            (Ok(()), Some(done)) => done,
            (Ok(()), None) => return,
        };
        // The caller may have been dropped meanwhile. The write counts all the same.
        let _caller_left = self.reply.send(answer);
    }
}

fn run(mut db: Connection, mut writes: mpsc::Receiver<Box<dyn Write>>, file: Option<FileId>, shared: &Shared) {
    let mut group = Vec::new();
    while let Some(first) = writes.blocking_recv() {
        group.push(first);
        while group.len() < GROUP {
            let Ok(next) = writes.try_recv() else { break };
            group.push(next);
        }
        let committed = commit(&mut db, &mut group, file.as_ref(), shared);
        if let Err(error) = &committed {
            shared.note(error);
        }
        for write in group.drain(..) {
            write.answer(committed.clone());
        }
    }
}

/// Commits a group of writes as one transaction. After an error nothing of it is in the file.
fn commit(
    db: &mut Connection,
    group: &mut [Box<dyn Write>],
    file: Option<&FileId>,
    shared: &Shared,
) -> Result<(), SqliteError> {
    const COMMITTING: &str = "committing a transaction";
    shared.check_not_stopped()?;
    let path: &Path = &shared.path;
    let failed = |doing| move |error| SqliteError::of(path, doing, error);
    db.prepare_cached("BEGIN IMMEDIATE")
        .and_then(|mut begin| begin.execute([]))
        .map_err(failed("beginning a transaction"))?;
    let before = db.total_changes();
    let mut written = schema::check_version_again(path, db);
    let alone = group.len() == 1;
    for write in group {
        // The write before may have found damage.
        written = written.and_then(|()| shared.check_not_stopped());
        if written.is_err() {
            break;
        }
        if let Err(fault) = write.perform(db, shared, alone) {
            written = Err(shared.name(fault, write.doing()));
        }
    }
    written = written.and_then(|()| shared.check_not_stopped());
    // A file that was moved or deleted can still be written, but nobody would find what is written.
    if written.is_ok() && file.is_some_and(|file| !file.is_at(path)) {
        written = Err(SqliteError::Moved { path: path.to_owned(), doing: COMMITTING });
    }
    let committed = written.and_then(|()| match db.is_autocommit() {
        // The only write was refused, and has rolled the transaction back.
        true => Ok(0),
        false => db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map_err(failed(COMMITTING)),
    });
    if committed.is_err() && !db.is_autocommit() {
        // The error that led here is the one to report. If the rollback fails as well, the next `BEGIN` does, too.
        let _reported_above = db.execute_batch("ROLLBACK");
    }
    if committed.is_ok() && db.total_changes() != before {
        shared.commits.fetch_add(1, Ordering::Relaxed);
    }
    committed.map(drop)
}
