//! A store that forgets when the process ends, and keeps every other promise.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Timestamp;
use crate::event::Event;
use crate::hook::Record;
use crate::id::{ConversationId, TurnId};
use crate::message::Text;
use crate::scope::Actor;
use crate::store::{
    Batch, Beside, BesideWrite, Claim, InboxMessage, Job, JobDone, LEASE, Lease, Store, StoreError, Stored,
};

/// Conversations in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryStore {
    rows: Arc<Mutex<HashMap<ConversationId, Row>>>,
}

struct Row {
    owner: Actor,
    log: Vec<Arc<Event>>,
    inbox: Vec<InboxMessage>,
    beside: Option<Beside>,
    records: Vec<(TurnId, Record)>,
    jobs: Vec<Job>,
    epoch: u64,
    /// Who writes, and until when nobody else may.
    writer: Option<(Text, Timestamp)>,
    /// Orders the list.
    made: usize,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        id: &ConversationId,
        work: impl FnOnce(&mut Row) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self.lock().get_mut(id) {
            Some(row) => work(row),
            None => Err(StoreError::NotFound { id: id.clone() }),
        }
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("conversations", &self.lock().len()).finish()
    }
}

impl Row {
    fn new(owner: Actor, made: usize) -> Self {
        Self {
            owner,
            log: Vec::with_capacity(8),
            inbox: Vec::new(),
            beside: None,
            records: Vec::new(),
            jobs: Vec::new(),
            epoch: 0,
            writer: None,
            made,
        }
    }

    fn last_seq(&self) -> u64 {
        self.log.last().map_or(0, |event| event.seq)
    }

    fn check_epoch(&self, id: &ConversationId, epoch: u64) -> Result<(), StoreError> {
        if self.epoch == epoch && self.writer.is_some() {
            return Ok(());
        }
        Err(StoreError::Fenced { id: id.clone(), epoch })
    }

    fn append(&mut self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.check_epoch(batch.conversation, batch.epoch)?;
        let (expected, actual) = (batch.expected_seq, self.last_seq());
        let gapless = batch.events.iter().zip(expected + 1..).all(|(event, seq)| event.seq == seq);
        if expected != actual || !gapless {
            return Err(StoreError::WrongSeq { id: batch.conversation.clone(), expected, actual });
        }
        self.log.extend_from_slice(batch.events);
        if let Some(turn) = batch.take {
            self.inbox.retain(|message| message.turn != *turn);
        }
        match batch.beside {
            BesideWrite::Keep => {}
            BesideWrite::Put(beside) => self.beside = Some(beside.clone()),
            BesideWrite::Delete => self.beside = None,
        }
        if let Some(turn) = batch.turn {
            self.records.extend(batch.records.into_iter().map(|record| (turn.clone(), record)));
        }
        self.jobs.extend(batch.jobs);
        if batch.lease == Lease::Release {
            self.writer = None;
        }
        Ok(())
    }
}

impl Store for MemoryStore {
    fn open<'a>(&'a self, id: &'a ConversationId, owner: &'a Actor) -> Stored<'a, Actor> {
        let mut rows = self.lock();
        let made = rows.len();
        let row = rows.entry(id.clone()).or_insert_with(|| Row::new(owner.clone(), made));
        Stored::now(Ok(row.owner.clone()))
    }

    fn owner<'a>(&'a self, id: &'a ConversationId) -> Stored<'a, Option<Actor>> {
        Stored::now(Ok(self.lock().get(id).map(|row| row.owner.clone())))
    }

    fn deliver<'a>(&'a self, id: &'a ConversationId, message: InboxMessage) -> Stored<'a, ()> {
        Stored::now(self.with(id, |row| {
            row.inbox.push(message);
            Ok(())
        }))
    }

    fn claim<'a>(&'a self, id: &'a ConversationId, writer: &'a Text, now: Timestamp) -> Stored<'a, Claim> {
        Stored::now(self.with(id, |row| {
            if row.writer.as_ref().is_some_and(|(holder, until)| holder != writer && *until > now) {
                return Err(StoreError::InUse { id: id.clone() });
            }
            row.epoch += 1;
            row.writer = Some((writer.clone(), now.after(LEASE)));
            Ok(Claim { epoch: row.epoch, seq: row.last_seq(), inbox: row.inbox.clone(), beside: row.beside.clone() })
        }))
    }

    fn renew<'a>(&'a self, id: &'a ConversationId, epoch: u64, now: Timestamp) -> Stored<'a, ()> {
        Stored::now(self.with(id, |row| {
            row.check_epoch(id, epoch)?;
            if let Some((_, until)) = &mut row.writer {
                *until = now.after(LEASE);
            }
            Ok(())
        }))
    }

    fn append<'a>(&'a self, batch: Batch<'a>) -> Stored<'a, ()> {
        let id = batch.conversation;
        Stored::now(self.with(id, |row| row.append(batch)))
    }

    fn log<'a>(&'a self, id: &'a ConversationId, from: u64) -> Stored<'a, Vec<Arc<Event>>> {
        Stored::now(self.with(id, |row| Ok(row.log.iter().skip(from.saturating_sub(1) as usize).cloned().collect())))
    }

    fn records<'a>(&'a self, id: &'a ConversationId, turn: &'a TurnId) -> Stored<'a, Vec<Record>> {
        Stored::now(self.with(id, |row| {
            Ok(row.records.iter().filter(|(of, _)| of == turn).map(|(_, record)| record.clone()).collect())
        }))
    }

    fn jobs<'a>(&'a self, id: &'a ConversationId) -> Stored<'a, Vec<Job>> {
        Stored::now(self.with(id, |row| Ok(row.jobs.clone())))
    }

    fn settle_job<'a>(&'a self, id: &'a ConversationId, job: Job, done: JobDone) -> Stored<'a, ()> {
        let same = |other: &Job| other.turn == job.turn && other.hook == job.hook && other.kind == job.kind;
        Stored::now(self.with(id, |row| {
            match done {
                JobDone::Removed => row.jobs.retain(|other| !same(other)),
                JobDone::Kept => row.jobs.iter_mut().filter(|other| same(other)).for_each(|old| *old = job.clone()),
            }
            Ok(())
        }))
    }

    fn list<'a>(&'a self) -> Stored<'a, Vec<ConversationId>> {
        let rows = self.lock();
        let mut ids: Vec<_> = rows.iter().map(|(id, row)| (std::cmp::Reverse(row.made), id.clone())).collect();
        ids.sort();
        Stored::now(Ok(ids.into_iter().map(|(_, id)| id).collect()))
    }

    fn is_durable(&self) -> bool {
        false
    }
}
