//! Reading: two threads with a connection each. In WAL mode a writer does not block them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use turnbuckle::store::StoreError;

use super::SqliteError;
use super::error::Fault;
use super::read_connection::ReadConnection;
use super::writer::Shared;
use crate::json::STACK;

/// How many reads may be queued. A caller beyond that waits until one is done.
const QUEUE: usize = 256;
const THREADS: usize = 2;

type Work = Box<dyn FnOnce(&mut ReadConnection) + Send>;

/// The queue of reads and the threads that work on it.
#[derive(Debug)]
pub(super) struct Readers {
    /// `None` only while the store is dropped: the threads end when the queue is closed and empty.
    queue: Option<mpsc::Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Readers {
    /// Starts the threads, with connections that `connect` makes.
    pub(super) fn start(
        shared: Arc<Shared>,
        connect: impl Fn(&Path) -> Result<ReadConnection, SqliteError>,
    ) -> Result<Self, SqliteError> {
        let (queue, work) = mpsc::channel::<Work>(QUEUE);
        // The lock is held while a thread waits for work: the other threads wait for the lock instead of the queue.
        let work = Arc::new(Mutex::new(work));
        let mut readers = Self { queue: Some(queue), threads: Vec::new(), shared: shared.clone() };
        for _ in 0..THREADS {
            let (mut db, work) = (connect(&shared.path)?, work.clone());
            let next = move || work.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let thread =
                std::thread::Builder::new().name("turnbuckle-read".to_owned()).stack_size(STACK).spawn(move || {
                    while let Some(work) = next() {
                        work(&mut db);
                    }
                });
            readers.threads.push(thread.map_err(|error| super::no_thread(&shared.path, error))?);
        }
        Ok(readers)
    }

    /// Runs `work` in a read transaction on one of the threads. A read whose caller is gone before it begins is skipped.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::from(SqliteError::Closed { path: self.shared.path.clone() });
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        let task = Box::new(move |db: &mut ReadConnection| {
            if reply.is_closed() {
                return;
            }
            // The caller may have been dropped meanwhile. A read changes nothing, so nothing is lost.
            let _caller_left = reply.send(db.read(work).map_err(|fault| shared.explain(fault, doing)));
        });
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(task).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has told its message already, and its caller got `Closed`.
            let _panicked = thread.join();
        }
    }
}
