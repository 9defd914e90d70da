//! The outbox: work that a turn leaves behind.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::TurnId;
use crate::limits::UsedBudget;
use crate::message::Text;
use crate::scope::Actor;

/// Work that a turn leaves: written with the event it is about, done at least once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Of which turn: with the hook and the kind the key of the job; of a [`JobKind::Logged`] with `seq` and `reminder`, too.
    pub turn: TurnId,
    /// Of the event that it is about: the one that ended the turn, unless it is a [`JobKind::Logged`].
    pub seq: u64,
    /// Whose hook: the agent's name.
    #[serde(default)]
    pub agent: Text,
    /// Which hook.
    pub hook: Text,
    /// What `use` says of the hook, if a configuration made it. A hook of the same name and another `use` does not do the job.
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub used: Option<Text>,
    /// At which point.
    pub kind: JobKind,
    /// Who sent the message.
    pub actor: Actor,
    /// How often it was begun. A writer that begins its job at once counts that, and holds the job; after that the store
    /// counts. A job that is written with 0 is for whoever takes it first.
    pub tries: u32,
    /// How it failed last.
    pub error: Option<String>,
    /// When it may be tried next. `None`: it is parked, and only looked at.
    pub due: Option<Timestamp>,
    /// For a reminder: how many percent of a question's time have passed when it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder: Option<u8>,
    /// For a summary: what tries that failed have taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<UsedBudget>,
    /// For a summary that is made in pieces: what tries that failed have made of the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialSummary>,
}

/// Notes about the beginning of what a summary is to cover. The next try goes on from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialSummary {
    /// The seq of the first event that the summary adds.
    pub first_new: u64,
    /// How many tokens a piece has at most. So the next try finds the same pieces.
    pub piece: u64,
    /// How many pieces the notes cover.
    pub pieces: usize,
    /// The notes.
    pub text: Text,
}

impl Job {
    /// Whether both are the same piece of work.
    pub fn same_job(&self, other: &Self) -> bool {
        let same_event = self.kind != JobKind::Logged || (self.seq, self.reminder) == (other.seq, other.reminder);
        same_event && (&self.turn, &self.hook, self.kind) == (&other.turn, &other.hook, other.kind)
    }

    /// What tells the jobs that a hook has of one turn apart, as text: the kind, and what else belongs to the key.
    pub fn key(&self) -> Cow<'static, str> {
        match (self.kind, self.reminder) {
            (JobKind::Logged, None) => format!("logged {}", self.seq).into(),
            (JobKind::Logged, Some(percent)) => format!("logged {} {percent}%", self.seq).into(),
            (kind, _) => kind.name().into(),
        }
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
    /// A hook's `on_logged`: a log event, or a reminder of a question.
    Logged,
    /// A summary of the turns up to `seq`. No hook does it: `hook` is `summary`.
    Summary,
}

impl JobKind {
    /// As it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Background => "background",
            Self::Logged => "logged",
            Self::Summary => "summary",
        }
    }
}

/// Selects the jobs that one hook does. A job of a hook that no agent of this process has waits for a process that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSelector {
    /// The hook's name.
    pub hook: Text,
    /// What `use` says of it, if a configuration made it.
    pub used: Option<Text>,
    /// At which point.
    pub kind: JobKind,
}

impl JobSelector {
    /// Whether it does this job.
    pub fn matches(&self, job: &Job) -> bool {
        self.kind == job.kind && self.hook == job.hook && (job.used.is_none() || self.used == job.used)
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
