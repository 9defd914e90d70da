//! Rows, made in the caller's task so that the one writer only writes.

use std::time::Duration;

use turnbuckle::context::tokens;
use turnbuckle::event::Event;
use turnbuckle::message::Text;
use turnbuckle::store::{Batch, ConversationStatus, InboxItem, Lease, ScratchWrite, StoreError, Totals};
use turnbuckle::{CallId, ConversationId, TurnId};

use super::jobs::{JobKey, JobRow};
use super::json::json;
use super::number;

/// A [`Batch`] that needs nothing of the caller's any more.
pub(super) struct Owned {
    pub(super) conversation: ConversationId,
    pub(super) epoch: u64,
    pub(super) expected_seq: u64,
    pub(super) events: Vec<EventRow>,
    pub(super) take: Vec<Text>,
    pub(super) scratch: ScratchRow,
    pub(super) records: Option<(TurnId, String)>,
    pub(super) jobs: Vec<JobRow>,
    pub(super) hold: Duration,
    pub(super) done: Vec<JobKey>,
    pub(super) totals: Option<Totals>,
    pub(super) standing: Option<ConversationStatus>,
    pub(super) lease: Lease,
}

pub(super) struct EventRow {
    pub(super) seq: u64,
    pub(super) turn: TurnId,
    pub(super) at: i64,
    /// Stands in the body too; here for people who look into the table.
    pub(super) kind: &'static str,
    pub(super) call: Option<CallId>,
    pub(super) tokens: i64,
    pub(super) body: String,
}

pub(super) enum ScratchRow {
    Keep,
    Put(String),
    Delete,
}

/// A letter as it is stored.
pub(super) struct InboxRow {
    pub(super) id: Text,
    pub(super) opens: bool,
    pub(super) body: String,
}

impl InboxRow {
    pub(super) fn of(item: InboxItem) -> Result<Self, StoreError> {
        let body = json(&item, "writing an inbox item as JSON")?;
        Ok(Self { opens: item.opens().is_some(), id: item.id, body })
    }
}

impl EventRow {
    fn of(event: &Event) -> Result<Self, StoreError> {
        Ok(Self {
            seq: event.seq,
            turn: event.turn.clone(),
            at: number(event.at.as_millis()),
            kind: event.kind.name(),
            call: event.kind.names_call().cloned(),
            tokens: number(tokens::of_event(event)),
            body: json(event, "writing an event as JSON")?,
        })
    }
}

impl Owned {
    pub(super) fn of(batch: Batch<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            conversation: batch.conversation.clone(),
            epoch: batch.epoch,
            expected_seq: batch.expected_seq,
            events: batch.events.iter().map(|event| EventRow::of(event)).collect::<Result<_, _>>()?,
            take: batch.take.to_vec(),
            scratch: match batch.scratch {
                ScratchWrite::Keep => ScratchRow::Keep,
                ScratchWrite::Put(scratch) => ScratchRow::Put(json(scratch, "writing the scratch of a turn as JSON")?),
                ScratchWrite::Delete => ScratchRow::Delete,
            },
            records: match batch.turn.filter(|_| !batch.records.is_empty()) {
                Some(turn) => Some((turn.clone(), json(&batch.records, "writing hook records as JSON")?)),
                None => None,
            },
            jobs: batch.jobs.iter().map(JobRow::of).collect::<Result<_, _>>()?,
            hold: batch.hold,
            done: batch.done.iter().map(JobKey::of).collect(),
            totals: batch.totals,
            standing: batch.standing,
            lease: batch.lease,
        })
    }

    /// Whether the events follow each other and the log as the writer knows it.
    pub(super) fn is_gapless(&self) -> bool {
        self.events.iter().zip(1..).all(|(row, past)| row.seq == self.expected_seq.saturating_add(past))
    }
}

/// A standing as it is stored: its name, and when the turn is due.
pub(super) fn standing(standing: ConversationStatus) -> (&'static str, Option<i64>) {
    match standing {
        ConversationStatus::Idle => ("idle", None),
        ConversationStatus::Running => ("running", Some(0)),
        ConversationStatus::Waiting { until } => ("waiting", Some(number(until.as_millis()))),
    }
}
