//! A batch as rows. They are made in the task of the caller, so that the writer's thread, which all conversations share, only
//! writes.

use std::time::Duration;

use turnbuckle::context::tokens;
use turnbuckle::event::Event;
use turnbuckle::id::ItemId;
use turnbuckle::message::Text;
use turnbuckle::store::{Batch, Calibration, ConversationStatus, Lease, ScratchWrite, StoreError, Totals};
use turnbuckle::{CallId, ConversationId, TurnId};

use super::audit::AuditRows;
use super::jobs::{JobKey, JobRow};
use super::sql_integer;
use super::standing::StandingRow;
use crate::json::json;

/// A [`Batch`] that borrows nothing, so that it can be sent to the writer's thread.
pub(super) struct OwnedBatch {
    pub(super) conversation: ConversationId,
    pub(super) epoch: u64,
    pub(super) expected_seq: u64,
    pub(super) events: Vec<EventRow>,
    /// Ids of the inbox items that this write takes up.
    pub(super) take: Vec<ItemId>,
    /// The inbox item that the answer of this write came in.
    pub(super) answer: Option<ItemId>,
    /// Calls that are answered with this write.
    pub(super) answers: Vec<CallId>,
    pub(super) scratch: ScratchRow,
    /// Standing approvals that events of this write use, and when.
    pub(super) uses: Vec<(Text, i64)>,
    /// The standing approval that begins with this write.
    pub(super) standing: Option<StandingRow>,
    /// Hook records of a turn, as one body.
    pub(super) records: Option<(TurnId, String)>,
    /// A cut of the context, as a body.
    pub(super) cut: Option<String>,
    /// The last request that a model answered, as a body.
    pub(super) sent: Option<String>,
    /// Requests that did not begin like the ones before them, as bodies.
    pub(super) breaks: Vec<String>,
    pub(super) audit: Option<AuditRows>,
    /// What was learned about the estimates of tokens: models, each with a body.
    pub(super) calibrations: Vec<(Text, String)>,
    pub(super) jobs: Vec<JobRow>,
    /// How long this process keeps the new jobs to itself.
    pub(super) job_lease: Duration,
    pub(super) done: Vec<JobKey>,
    pub(super) totals: Option<Totals>,
    pub(super) status: Option<ConversationStatus>,
    pub(super) lease: Lease,
}

/// An event as a row.
pub(super) struct EventRow {
    pub(super) seq: u64,
    pub(super) turn: TurnId,
    pub(super) at: i64,
    /// The event's type. It is in the body, too; the column is for queries, and for people who look at the table.
    pub(super) kind: &'static str,
    /// The call that the event brings into the log.
    pub(super) call: Option<CallId>,
    /// Estimated, so that the end of a log can be read up to a number of tokens.
    pub(super) tokens: i64,
    pub(super) body: String,
}

/// What becomes of the scratch of the open turn.
pub(super) enum ScratchRow {
    Keep,
    Put(String),
    Delete,
}

impl EventRow {
    fn of(event: &Event) -> Result<Self, StoreError> {
        Ok(Self {
            seq: event.seq,
            turn: event.turn.clone(),
            at: sql_integer(event.at.as_millis()),
            kind: event.kind.name(),
            call: event.kind.names_call().cloned(),
            tokens: sql_integer(tokens::of_event(event)),
            body: json(event, "writing an event as JSON")?,
        })
    }
}

impl OwnedBatch {
    pub(super) fn of(batch: Batch<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            conversation: batch.conversation.clone(),
            epoch: batch.epoch,
            expected_seq: batch.expected_seq,
            events: batch.events.iter().map(|event| EventRow::of(event)).collect::<Result<_, _>>()?,
            take: batch.take.to_vec(),
            answer: batch.answer.cloned(),
            answers: batch.follows_answers_to().cloned().collect(),
            scratch: match batch.scratch {
                ScratchWrite::Keep => ScratchRow::Keep,
                ScratchWrite::Put(scratch) => {
                    ScratchRow::Put(json(&**scratch, "writing the scratch of a turn as JSON")?)
                }
                ScratchWrite::Delete => ScratchRow::Delete,
            },
            uses: batch.events.iter().filter_map(|event| use_of_standing(event)).collect(),
            standing: batch.standing.map(StandingRow::of).transpose()?,
            records: match batch.turn.filter(|_| !batch.records.is_empty()) {
                Some(turn) => Some((turn.clone(), json(&batch.records, "writing hook records as JSON")?)),
                None => None,
            },
            cut: batch.cut.map(|cut| json(cut, "writing a cut as JSON")).transpose()?,
            sent: batch.sent.map(|sent| json(sent, "writing the last request as JSON")).transpose()?,
            breaks: batch
                .breaks
                .iter()
                .map(|found| json(found, "writing a cache break as JSON"))
                .collect::<Result<_, _>>()?,
            audit: batch.audit.map(AuditRows::of).transpose()?,
            calibrations: batch.calibrations.iter().map(calibration_row).collect::<Result<_, _>>()?,
            jobs: batch.jobs.iter().map(JobRow::of).collect::<Result<_, _>>()?,
            job_lease: batch.job_lease,
            done: batch.done.iter().map(JobKey::of).collect(),
            totals: batch.totals,
            status: batch.status,
            lease: batch.lease,
        })
    }

    /// Whether the seqs of the events follow each other and the end of the log that the writer expects.
    pub(super) fn is_gapless(&self) -> bool {
        self.events.iter().zip(1..).all(|(row, past)| row.seq == self.expected_seq.saturating_add(past))
    }
}

fn calibration_row(calibration: &Calibration) -> Result<(Text, String), StoreError> {
    Ok((calibration.model.clone(), json(calibration, "writing a calibration as JSON")?))
}

fn use_of_standing(event: &Event) -> Option<(Text, i64)> {
    event.kind.uses_standing().map(|approval| (approval.clone(), sql_integer(event.at.as_millis())))
}

/// The columns `standing` and `due` of a status: its name, and when the turn must be taken up if no process has it.
pub(super) fn status_columns(status: ConversationStatus) -> (&'static str, Option<i64>) {
    match status {
        ConversationStatus::Idle => ("idle", None),
        ConversationStatus::Running => ("running", Some(0)),
        ConversationStatus::Waiting { until } => ("waiting", Some(sql_integer(until.as_millis()))),
    }
}
