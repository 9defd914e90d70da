//! Holding a conversation: the claim and what it reads back, writes outside a turn, and giving the claim back.

use std::sync::Arc;

use super::driver::Sitting;
use super::outbox::last_words;
use super::outcome::{TurnError, TurnReport, TurnStatus};
use crate::event::{Event, EventKind, InjectionTarget};
use crate::id::TurnId;
use crate::message::Text;
use crate::store::{Batch, Claim, ConversationStatus, InboxKind, Lease, StoreError};
use crate::turn::{JobResults, State};

impl Sitting {
    pub(super) async fn claim(&mut self) -> Result<(), StoreError> {
        if self.epoch.is_some() {
            return Ok(());
        }
        let claim = self.runtime.store.claim(&self.cell.id, &self.runtime.writer, self.runtime.clock.now()).await?;
        let current = self.state.as_ref().is_some_and(|state| state.seq == claim.seq);
        if !current || !self.cell.is_shown() {
            let (state, log) = self.revive(&claim).await?;
            self.state = Some(state);
            self.cell.show(claim.epoch, &log);
        } else {
            self.cell.feed.begin_epoch(claim.epoch, None);
        }
        (self.epoch, self.scratch) = (Some(claim.epoch), claim.scratch);
        self.inbox.clear();
        self.orders.clear();
        let mut noted = Vec::new();
        for item in claim.inbox {
            match item.kind {
                InboxKind::Message { .. } => self.inbox.push(item),
                InboxKind::Notes { turn, notes, records, done } => {
                    noted.push((item.id, turn, JobResults { notes, records, done, ..JobResults::default() }));
                }
                _ => self.orders.push_back(item),
            }
        }
        self.cell.take_heard();
        self.tell_of_turns_elsewhere();
        for (item, turn, results) in noted {
            self.note(turn, results, &[item]).await?;
        }
        self.sweep();
        Ok(())
    }

    /// Turns that were queued here and that another process took up: whoever waits for them is told, as far as the log
    /// tells it.
    fn tell_of_turns_elsewhere(&self) {
        let Some(state) = &self.state else { return };
        let is_left = |turn: &TurnId| {
            let open = state.turn.as_ref().is_some_and(|open| open.id == *turn);
            open || self.inbox.iter().any(|item| *item.id == *turn.as_str())
        };
        for turn in self.cell.taken_elsewhere(is_left) {
            let ended = state.history.iter().rev().find_map(|event| match &event.kind {
                EventKind::TurnEnded(ended) if event.turn == turn => Some(ended.clone()),
                _ => None,
            });
            let rest = ended.map(|ended| {
                let (reply, agent) = (last_words(&state.history, &turn), self.cell.agent.shared_name().clone());
                let ended = TurnReport::new(self.cell.id.clone(), turn.clone(), agent, self.runtime.mode, ended, reply);
                TurnStatus::Ended(Box::new(ended))
            });
            self.cell.drop_scope(&turn);
            self.cell.tell_rest(Some(&turn), rest.ok_or(TurnError::Remote));
        }
    }

    /// Reads the log backwards until it tells the state: the window and all of the open turn, however long the log is.
    async fn revive(&self, claim: &Claim) -> Result<(Box<State>, Vec<Arc<Event>>), StoreError> {
        let room = self.cell.agent.room();
        let (mut log, mut enough): (Vec<Arc<Event>>, u64) = (Vec::new(), room);
        loop {
            if let Some(state) = State::revive(room, claim.totals, &log).filter(|state| state.seq == claim.seq) {
                return Ok((state, log));
            }
            let before = log.first().map_or(claim.seq + 1, |first| first.seq);
            let mut older = self.runtime.store.tail(&self.cell.id, before, enough).await?;
            if older.is_empty() {
                let doing = format!("reading the log of conversation {} back from {before}", self.cell.id);
                return Err(StoreError::Failed { doing, source: "events are missing".into() });
            }
            older.append(&mut log);
            (log, enough) = (older, enough.saturating_mul(2));
        }
    }

    /// Gives the claim back, and says where the conversation stands.
    pub(super) async fn release(&mut self) -> Result<(), StoreError> {
        if !self.read.is_empty() {
            self.claim().await?;
        }
        let (Some(epoch), Some(state)) = (self.epoch.take(), &self.state) else { return Ok(()) };
        let first = state.turn.as_ref().and_then(|turn| turn.open_questions().map(|question| question.expires).min());
        let standing = match (&state.turn, first) {
            (None, _) => ConversationStatus::Idle,
            (Some(_), Some(until)) => ConversationStatus::Waiting { until },
            (Some(_), None) => ConversationStatus::Running,
        };
        let read = std::mem::take(&mut self.read);
        let batch = Batch::new(&self.cell.id, epoch, state.seq);
        let batch = Batch { take: &read, standing: Some(standing), lease: Lease::Release, ..batch };
        self.runtime.store.append(batch).await
    }

    /// What jobs came to: their notes become history for the turn that comes next, in the write that removes them.
    pub(super) async fn note(&mut self, turn: TurnId, results: JobResults, take: &[Text]) -> Result<(), StoreError> {
        let JobResults { notes, records, done, failed: _, doing: _doing } = results;
        let (Some(epoch), Some(mut state)) = (self.epoch, self.state.take()) else { return Ok(()) };
        let at = self.runtime.clock.now();
        let stamp = |((hook, content), seq)| {
            let kind = EventKind::Injection { hook, content, place: InjectionTarget::NextTurn };
            Arc::new(Event { seq, turn: turn.clone(), at, kind })
        };
        let events: Vec<_> = notes.into_iter().zip(state.seq + 1..).map(stamp).collect();
        let batch = Batch::new(&self.cell.id, epoch, state.seq);
        let batch = Batch { events: &events, take, records, turn: Some(&turn), done: &done, ..batch };
        let written = self.runtime.store.append(batch).await;
        if written.is_ok() {
            for event in &events {
                state.apply(event);
                self.cell.feed.publish_log(event);
            }
        }
        self.state = Some(state);
        written
    }
}
