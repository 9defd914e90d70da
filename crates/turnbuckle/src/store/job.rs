//! The outbox: work that a turn leaves behind.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::TurnId;
use crate::message::Text;
use crate::scope::Actor;

/// Work that a turn leaves: written with `turn_ended`, done at least once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Of which turn: with the hook and the kind the key of the job.
    pub turn: TurnId,
    /// Of the event that ended the turn.
    pub seq: u64,
    /// Whose hook: the agent's name.
    #[serde(default)]
    pub agent: Text,
    /// Which hook.
    pub hook: Text,
    /// At which point.
    pub kind: JobKind,
    /// Who sent the message.
    pub actor: Actor,
    /// How often it was begun. The writer of a job begins it at once and counts that; after that the store counts.
    pub tries: u32,
    /// How it failed last.
    pub error: Option<String>,
    /// When it may be tried next. `None`: it is parked, and only looked at.
    pub due: Option<Timestamp>,
}

impl Job {
    /// Whether both are the same piece of work.
    pub fn same_job(&self, other: &Self) -> bool {
        (&self.turn, &self.hook, self.kind) == (&other.turn, &other.hook, other.kind)
    }
}

/// What a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// A hook's `on_ended`.
    Ended,
    /// A hook's `background`.
    Background,
}

impl JobKind {
    /// As it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Background => "background",
        }
    }
}

/// Selects the jobs that one hook does. A job of a hook that no agent of this process has waits for a process that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSelector {
    /// The hook's name.
    pub hook: Text,
    /// At which point.
    pub kind: JobKind,
}

impl JobSelector {
    /// Whether it does this job.
    pub fn matches(&self, job: &Job) -> bool {
        self.kind == job.kind && self.hook == job.hook
    }
}

/// Who works on jobs, and how long nobody else may.
#[derive(Clone, Copy, Debug)]
pub struct JobLease<'a> {
    /// By which the store knows the process.
    pub writer: &'a Text,
    /// When the lease begins: now.
    pub from: Timestamp,
    /// From now on.
    pub lasts: Duration,
}

impl JobLease<'_> {
    /// When others may take them.
    pub fn until(&self) -> Timestamp {
        self.from.after(self.lasts)
    }
}

/// How a try at a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobDisposition {
    /// The job goes.
    Remove,
    /// The job stays, with its tries, its error and when it is due next; nobody holds it.
    Keep,
}
