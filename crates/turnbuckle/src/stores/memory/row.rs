//! One conversation in memory, and the rules that a database keeps by its rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::audit::Audit;
use crate::cache_break::{CacheBreak, SentRequest};
use crate::clock::Timestamp;
use crate::context::tokens;
use crate::cut::Cut;
use crate::event::{Event, EventKind};
use crate::id::{CallId, ConversationId, TurnId};
use crate::message::Text;
use crate::record::Record;
use crate::scope::Actor;
use crate::store::{
    AnswerTally, Batch, ConversationStatus, ConversationSummary, Hold, InboxItem, Job, JobDisposition, JobLease,
    JobSelector, KeyedMessage, Lease, MAX_INBOX, MessageKey, Scratch, ScratchWrite, StoreError, Totals,
};
use crate::summary::Summary;

pub(super) struct Row {
    pub(super) owner: Actor,
    pub(super) log: Vec<Arc<Event>>,
    pub(super) totals: Totals,
    pub(super) inbox: Vec<InboxItem>,
    /// Calls that wait for an answer.
    asked: BTreeMap<CallId, AnswerTally>,
    /// By user and key.
    pub(super) keys: BTreeMap<(Text, Text), KeyedMessage>,
    /// Shared with the turn, until the turn changes it.
    pub(super) scratch: Option<Arc<Scratch>>,
    /// By write.
    pub(super) records: Vec<(TurnId, Vec<Record>)>,
    /// Oldest first.
    pub(super) cuts: Vec<Arc<Cut>>,
    /// The last request that a model answered.
    pub(super) sent: Option<Arc<SentRequest>>,
    pub(super) breaks: Vec<CacheBreak>,
    pub(super) audit: Audit,
    pub(super) summaries: Vec<Arc<Summary>>,
    pub(super) title: Option<Text>,
    pub(super) jobs: Vec<HeldJob>,
    pub(super) epoch: u64,
    /// Who writes, and until when nobody else may.
    pub(super) writer: Option<(Text, Timestamp)>,
    pub(super) status: ConversationStatus,
    /// Orders the list.
    pub(super) made: usize,
    pub(super) opened: Timestamp,
    pub(super) written: Timestamp,
    /// Set while it must not be deleted.
    pub(super) hold: Option<Hold>,
}

/// A job, and until when a process holds it.
pub(super) struct HeldJob {
    pub(super) job: Job,
    held: Option<Timestamp>,
}

impl HeldJob {
    fn is_due(&self, now: Timestamp) -> bool {
        self.job.due.is_some_and(|due| due <= now) && self.held.is_none_or(|until| until <= now)
    }
}

impl Row {
    pub(super) fn new(owner: Actor, made: usize, now: Timestamp) -> Self {
        Self {
            owner,
            log: Vec::with_capacity(8),
            totals: Totals::default(),
            inbox: Vec::new(),
            asked: BTreeMap::new(),
            keys: BTreeMap::new(),
            scratch: None,
            records: Vec::new(),
            cuts: Vec::new(),
            sent: None,
            breaks: Vec::new(),
            audit: Audit::default(),
            summaries: Vec::new(),
            title: None,
            jobs: Vec::new(),
            epoch: 0,
            writer: None,
            status: ConversationStatus::Idle,
            made,
            opened: now,
            written: now,
            hold: None,
        }
    }

    /// The summary that the last cut shows.
    pub(super) fn shown_summary(&self) -> Option<Arc<Summary>> {
        let version = self.cuts.last()?.summary?;
        self.summaries.iter().find(|summary| summary.version == version).cloned()
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.log.last().map_or(0, |event| event.seq)
    }

    pub(super) fn check_epoch(&self, id: &ConversationId, epoch: u64) -> Result<(), StoreError> {
        if self.epoch == epoch && self.writer.is_some() {
            return Ok(());
        }
        Err(StoreError::Fenced { id: id.clone(), epoch })
    }

    pub(super) fn append(&mut self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.check_epoch(batch.conversation, batch.epoch)?;
        let (expected, actual) = (batch.expected_seq, self.last_seq());
        let gapless = batch.events.iter().zip(expected + 1..).all(|(event, seq)| event.seq == seq);
        if expected != actual || !gapless {
            return Err(StoreError::WrongSeq { id: batch.conversation.clone(), expected, actual });
        }
        self.check_answers(&batch)?;
        batch.events.iter().for_each(|event| self.note_question(&event.kind));
        self.log.extend_from_slice(batch.events);
        if let Some(last) = batch.events.last() {
            self.written = last.at;
        }
        if !batch.take.is_empty() {
            self.inbox.retain(|item| !batch.take.contains(&item.id));
        }
        match batch.scratch {
            ScratchWrite::Keep => {}
            ScratchWrite::Put(scratch) => self.scratch = Some(scratch.clone()),
            ScratchWrite::Delete => self.scratch = None,
        }
        if let (Some(turn), false) = (batch.turn, batch.records.is_empty()) {
            self.records.push((turn.clone(), batch.records));
        }
        self.cuts.extend(batch.cut.cloned());
        if let Some(sent) = batch.sent {
            self.sent = Some(sent.clone());
        }
        self.breaks.extend_from_slice(batch.breaks);
        if !batch.done.is_empty() {
            self.jobs.retain(|held| !batch.done.iter().any(|done| done.same_job(&held.job)));
        }
        if !batch.jobs.is_empty() {
            let until = self.written.after(batch.job_lease);
            let held = |job: Job| HeldJob { held: (job.tries > 0).then_some(until), job };
            self.jobs.extend(batch.jobs.into_iter().map(held));
        }
        self.totals = batch.totals.unwrap_or(self.totals);
        self.status = batch.status.unwrap_or(self.status);
        if batch.lease == Lease::Release {
            self.writer = None;
        }
        Ok(())
    }

    /// Answers to a call are written in the order in which they were stored.
    fn check_answers(&self, batch: &Batch<'_>) -> Result<(), StoreError> {
        if self.inbox.is_empty() && batch.answer.is_none() {
            return Ok(());
        }
        for call in batch.follows_answers_to() {
            let end = match batch.answer {
                Some(answer) => self.inbox.iter().position(|item| item.id == *answer),
                None => Some(self.inbox.len()),
            };
            let comes_first = |item: &InboxItem| item.answers() == Some(call) && !batch.take.contains(&item.id);
            if end.is_none_or(|end| self.inbox[..end].iter().any(comes_first)) {
                return Err(StoreError::AlreadyAnswered { id: batch.conversation.clone(), call: call.clone() });
            }
        }
        Ok(())
    }

    fn note_question(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Suspension { call, .. } => {
                self.asked.extend(AnswerTally::of_event(kind).map(|tally| (call.clone(), tally)));
            }
            EventKind::Resolution { call, evidence, .. } if evidence.open => {
                if let Some(asked) = self.asked.get_mut(call) {
                    asked.note(kind);
                }
            }
            EventKind::Resolution { call, .. } | EventKind::ToolResult { call, .. } => drop(self.asked.remove(call)),
            EventKind::TurnEnded(_) => self.asked.clear(),
            _ => {}
        }
    }

    /// Adds an item to the inbox, unless it is full, or is an answer that does not count.
    pub(super) fn deliver(&mut self, id: &ConversationId, item: InboxItem) -> Result<(), StoreError> {
        let alike = self.inbox.iter().filter(|other| other.opens().is_some() == item.opens().is_some());
        if alike.count() >= MAX_INBOX {
            return Err(StoreError::Full { id: id.clone() });
        }
        if let Some(call) = item.answers() {
            let asked = self.asked.get(call).cloned();
            let mut asked = asked.ok_or_else(|| StoreError::NotAsked { id: id.clone(), call: call.clone() })?;
            asked.count_waiting(self.inbox.iter().filter(|other| other.answers() == Some(call)));
            asked.count(&item).map_err(|stale| StoreError::stale_answer(id, call, stale))?;
        }
        if let Some((user, MessageKey { key, digest })) = item.key() {
            self.keys.retain(|_, sent| sent.is_known(item.at));
            let place = (Text::from(user), key.clone());
            if let Some(sent) = self.keys.get(&place) {
                return Err(StoreError::SentBefore { id: id.clone(), sent: sent.clone() });
            }
            let turn = item.id.clone().into();
            self.keys.insert(place, KeyedMessage { digest: digest.clone(), turn, at: item.at });
        }
        self.inbox.push(item);
        Ok(())
    }

    pub(super) fn tail(&self, before: u64, enough: u64) -> Vec<Arc<Event>> {
        let end = self.log.partition_point(|event| event.seq < before);
        let (mut begin, mut tokens) = (end, 0_u64);
        while begin > 0 && tokens < enough {
            begin -= 1;
            tokens = tokens.saturating_add(tokens::of_event(&self.log[begin]));
        }
        self.log[begin..end].to_vec()
    }

    pub(super) fn take_job(&mut self, hooks: &[JobSelector], lease: JobLease<'_>) -> Option<Job> {
        let fits = |held: &&mut HeldJob| held.is_due(lease.from) && hooks.iter().any(|hook| hook.matches(&held.job));
        let taken = self.jobs.iter_mut().find(fits)?;
        taken.held = Some(lease.until());
        taken.job.tries = taken.job.tries.saturating_add(1);
        Some(taken.job.clone())
    }

    pub(super) fn settle(&mut self, job: Job, done: JobDisposition) {
        let Some(place) = self.jobs.iter().position(|held| held.job.same_job(&job)) else { return };
        match done {
            JobDisposition::Remove => drop(self.jobs.remove(place)),
            JobDisposition::Keep => self.jobs[place] = HeldJob { job, held: None },
        }
    }

    /// Whether there are jobs that are not parked.
    pub(super) fn has_jobs(&self) -> bool {
        self.jobs.iter().any(|held| held.job.due.is_some())
    }

    /// Whether a process works on one of its jobs.
    pub(super) fn has_job_in_hand(&self, now: Timestamp) -> bool {
        self.jobs.iter().any(|job| job.held.is_some_and(|until| until > now))
    }

    pub(super) fn has_due_job(&self, now: Timestamp) -> bool {
        self.jobs.iter().any(|held| held.is_due(now))
    }

    /// Whether a process should take the conversation up: something is to be done, and no writer is at work.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        if self.has_due_job(now) {
            return true;
        }
        if self.writer.as_ref().is_some_and(|(_, until)| *until > now) {
            return false;
        }
        // A message behind a turn that waits must wait as well.
        let waits = matches!(self.status, ConversationStatus::Waiting { .. });
        let item = |item: &InboxItem| !waits || item.opens().is_none();
        match self.status {
            ConversationStatus::Running => true,
            ConversationStatus::Waiting { until } if until <= now => true,
            _ => self.inbox.iter().any(item),
        }
    }

    pub(super) fn listed(&self, id: &ConversationId) -> ConversationSummary {
        ConversationSummary {
            id: id.clone(),
            owner: self.owner.clone(),
            opened: self.opened,
            written: self.written,
            seq: self.last_seq(),
            status: self.status,
            claimed_until: self.writer.as_ref().map(|(_, until)| *until),
            hold: self.hold.clone(),
            title: self.title.clone(),
        }
    }
}
