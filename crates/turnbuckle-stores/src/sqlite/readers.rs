//! Reading: threads with connections of their own, which a writer never blocks.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use turnbuckle::store::StoreError;

use super::SqliteError;
use super::error::Fault;
use super::json::STACK;
use super::look::Looking;
use super::writer::Shared;

/// Reads that may wait; the next caller waits for a place.
const QUEUE: usize = 256;
const THREADS: usize = 2;

type Work = Box<dyn FnOnce(&mut Looking) + Send>;

/// Where reads go in.
#[derive(Debug)]
pub(super) struct Readers {
    /// `None` once closed.
    queue: Option<mpsc::Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Readers {
    /// With connections that `connect` makes.
    pub(super) fn start(
        shared: Arc<Shared>,
        connect: impl Fn(&Path) -> Result<Looking, SqliteError>,
    ) -> Result<Self, SqliteError> {
        let (queue, work) = mpsc::channel::<Work>(QUEUE);
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

    /// Does `work` on one state of the database.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::from(SqliteError::Closed { path: self.shared.path.clone() });
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        let task = Box::new(move |db: &mut Looking| {
            if reply.is_closed() {
                return;
            }
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
            let _panicked = thread.join();
        }
    }
}
