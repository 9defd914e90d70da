//! Reading: threads with connections of their own, which a writer never blocks; and the queries.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use turnbuckle::event::{Event, FORMAT};
use turnbuckle::hook::Record;
use turnbuckle::store::{Job, StoreError};
use turnbuckle::{Actor, ConversationId, TurnId};

use super::error::Fault;
use super::json::{STACK, parsed};
use super::writer::Shared;
use super::{SqliteError, schema};

/// Reads that may wait; the next caller waits for a place.
const QUEUE: usize = 256;
const THREADS: usize = 2;

type Work = Box<dyn FnOnce(&mut Connection) + Send>;

/// Where reads go in.
#[derive(Debug)]
pub(super) struct Readers {
    /// `None` once closed.
    queue: Option<mpsc::Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Readers {
    pub(super) fn start(path: &Path, shared: Arc<Shared>) -> Result<Self, SqliteError> {
        let (queue, work) = mpsc::channel::<Work>(QUEUE);
        let work = Arc::new(Mutex::new(work));
        let mut readers = Self { queue: Some(queue), threads: Vec::new(), shared };
        for _ in 0..THREADS {
            let (mut db, work) = (schema::reader(path)?, work.clone());
            let next = move || work.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let thread =
                std::thread::Builder::new().name("turnbuckle-read".to_owned()).stack_size(STACK).spawn(move || {
                    while let Some(work) = next() {
                        work(&mut db);
                    }
                });
            readers.threads.push(thread.map_err(|error| super::no_thread(path, error))?);
        }
        Ok(readers)
    }

    /// Does `work` on one state of the database.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::from(SqliteError::Closed { path: self.shared.path.clone() });
        let (reply, answer) = oneshot::channel();
        let shared = self.shared.clone();
        let task = Box::new(move |db: &mut Connection| {
            if reply.is_closed() {
                return;
            }
            let done = db.transaction().map_err(Fault::from).and_then(|state| work(&state));
            let _caller_left = reply.send(done.map_err(|fault| shared.explain(fault, doing)));
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

/// The row's number, by which all tables know a conversation.
pub(super) fn key(db: &Connection, id: &ConversationId) -> Result<i64, Fault> {
    db.prepare_cached("SELECT made FROM conversation WHERE id = ?")?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::NotFound { id: id.clone() }.into())
}

/// A body, from a row that begins with its format and itself.
pub(super) fn body<T: DeserializeOwned>(row: &Row<'_>) -> Result<T, Fault> {
    let format: i64 = row.get(0)?;
    if format > i64::from(FORMAT) {
        return Err(Fault::Newer(format));
    }
    Ok(parsed(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?)
}

/// All bodies that a query finds.
pub(super) fn bodies<T: DeserializeOwned>(
    db: &Connection,
    query: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<T>, Fault> {
    let mut query = db.prepare_cached(query)?;
    let mut rows = query.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(body(row)?);
    }
    Ok(found)
}

pub(super) fn owner(db: &Connection, id: &ConversationId) -> Result<Option<Actor>, Fault> {
    Ok(bodies(db, "SELECT format, owner FROM conversation WHERE id = ?", [id.as_str()])?.pop())
}

pub(super) fn log(db: &Connection, id: &ConversationId, from: u64) -> Result<Vec<Arc<Event>>, Fault> {
    let from = super::number(from);
    bodies(db, "SELECT format, body FROM event WHERE conversation = ? AND seq >= ? ORDER BY seq", (key(db, id)?, from))
}

pub(super) fn records(db: &Connection, id: &ConversationId, turn: &TurnId) -> Result<Vec<Record>, Fault> {
    let query = "SELECT format, body FROM record WHERE conversation = ? AND turn = ? ORDER BY place";
    let batches: Vec<Vec<Record>> = bodies(db, query, (key(db, id)?, turn.as_str()))?;
    Ok(batches.into_iter().flatten().collect())
}

pub(super) fn jobs(db: &Connection, id: &ConversationId) -> Result<Vec<Job>, Fault> {
    bodies(db, "SELECT format, body FROM job WHERE conversation = ? ORDER BY place", [key(db, id)?])
}

pub(super) fn list(db: &Connection) -> Result<Vec<ConversationId>, Fault> {
    let mut query = db.prepare_cached("SELECT id FROM conversation ORDER BY made DESC")?;
    let ids = query.query_map([], |row| Ok(ConversationId::from(row.get_ref(0)?.as_str()?)))?;
    Ok(ids.collect::<Result<_, _>>()?)
}
