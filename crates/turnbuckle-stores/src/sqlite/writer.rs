//! The one writer: a thread with a connection of its own. All writes that wait are done in one transaction, each in a
//! savepoint so that a refused one takes only itself back, and are answered when the transaction is on disk. A write that
//! is alone needs no savepoint: it takes the transaction back.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use turnbuckle::store::StoreError;

use super::error::Fault;
use super::file::FileId;
use super::json::STACK;
use super::{SqliteError, schema};

/// Writes that may wait; the next caller waits for a place.
const QUEUE: usize = 1024;
/// Writes that share a commit at most: bounds the memory and the time of one transaction.
const GROUP: usize = 1024;

/// What the store's threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) path: PathBuf,
    /// Set once by whoever finds that the file must not be touched any more; read before each write.
    pub(super) stopped: OnceLock<SqliteError>,
    /// Written by the writer, read by tests and measurements.
    pub(super) commits: AtomicU64,
}

impl Shared {
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, stopped: OnceLock::new(), commits: AtomicU64::new(0) }
    }

    /// Remembers an error after which nothing more is written.
    pub(super) fn note(&self, error: &SqliteError) {
        if error.is_final() {
            let _already = self.stopped.set(error.clone());
        }
    }

    /// Whether the file may still be written.
    fn go_on(&self) -> Result<(), SqliteError> {
        self.stopped.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// A fault with the file and the work named; noted if it is final.
    pub(super) fn explain(&self, fault: Fault, doing: &'static str) -> StoreError {
        match fault.at(&self.path, doing) {
            Ok(refusal) => refusal,
            Err(error) => {
                self.note(&error);
                error.into()
            }
        }
    }

    /// The same where a refusal makes no sense.
    pub(super) fn name(&self, fault: Fault, doing: &'static str) -> SqliteError {
        fault.at(&self.path, doing).map_or_else(
            |error| error,
            |refusal| SqliteError::Failed { path: self.path.clone(), doing, source: Arc::new(refusal) },
        )
    }
}

/// Where writes go in.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` once closed.
    queue: Option<mpsc::Sender<Box<dyn Write>>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Writer {
    pub(super) fn start(db: Connection, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (queue, writes) = mpsc::channel(QUEUE);
        let file = FileId::of(&shared.path);
        let its = shared.clone();
        let thread = std::thread::Builder::new()
            .name("turnbuckle-write".to_owned())
            .stack_size(STACK)
            .spawn(move || run(db, writes, file, &its))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), shared })
    }

    /// Does `work` in the next transaction. Once it is in the queue, dropping the caller changes nothing.
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
    /// Waits for what is queued: a write whose caller went away is done before the file is closed.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// A write, whatever it returns.
trait Write: Send {
    /// Whether the transaction may go on. If this is the only write of it, a refusal takes it back and ends it.
    fn perform(&mut self, db: &Connection, shared: &Shared, alone: bool) -> Result<(), Fault>;
    fn doing(&self) -> &'static str;
    /// Tells the caller; with an error if nothing was committed.
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
        // Some errors (no room, a failing disk) make SQLite take back the whole transaction.
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
            // Also for a refused one: it may have been refused for what another did and was taken back.
            (Err(error), _) => Err(error.into()),
            (Ok(()), Some(done)) => done,
            (Ok(()), None) => return,
        };
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

/// One transaction with all of them. An error means that nothing of it was written.
fn commit(
    db: &mut Connection,
    group: &mut [Box<dyn Write>],
    file: Option<&FileId>,
    shared: &Shared,
) -> Result<(), SqliteError> {
    const COMMITTING: &str = "committing a transaction";
    shared.go_on()?;
    let path: &Path = &shared.path;
    let failed = |doing| move |error| SqliteError::of(path, doing, error);
    db.prepare_cached("BEGIN IMMEDIATE")
        .and_then(|mut begin| begin.execute([]))
        .map_err(failed("beginning a transaction"))?;
    let before = db.total_changes();
    let mut written = schema::still_ours(path, db);
    let alone = group.len() == 1;
    for write in group {
        // One of them may have found damage.
        written = written.and_then(|()| shared.go_on());
        if written.is_err() {
            break;
        }
        if let Err(fault) = write.perform(db, shared, alone) {
            written = Err(shared.name(fault, write.doing()));
        }
    }
    written = written.and_then(|()| shared.go_on());
    // A file that is no longer where it was would be written, and never found again.
    if written.is_ok() && file.is_some_and(|file| !file.is_at(path)) {
        written = Err(SqliteError::Moved { path: path.to_owned(), doing: COMMITTING });
    }
    let committed = written.and_then(|()| match db.is_autocommit() {
        // The only write was refused, and has taken everything back.
        true => Ok(0),
        false => db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])).map_err(failed(COMMITTING)),
    });
    if committed.is_err() && !db.is_autocommit() {
        let _the_first_error_counts = db.execute_batch("ROLLBACK");
    }
    if committed.is_ok() && db.total_changes() != before {
        shared.commits.fetch_add(1, Ordering::Relaxed);
    }
    committed.map(drop)
}
