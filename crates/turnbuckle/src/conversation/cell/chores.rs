//! What this process has in hand for a conversation beside its turn: letters it was told of, jobs it does.

use super::Cell;
use crate::message::Text;
use crate::store::Job;

/// Whether a task takes up the conversation's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Jobs {
    /// None does.
    #[default]
    Left,
    /// One does.
    TakenUp,
    /// One does, and must look once more.
    AskedAgain,
}

impl Cell {
    /// Notes a letter that the turn under way is told of; false if it was noted before.
    pub(crate) fn hear(&self, item: &Text) -> bool {
        let mut inner = self.lock();
        let new = !inner.heard.contains(item);
        if new {
            inner.heard.push(item.clone());
        }
        new
    }

    /// Letters that the turn was told of.
    pub(crate) fn take_heard(&self) -> Vec<Text> {
        std::mem::take(&mut self.lock().heard)
    }

    pub(crate) fn do_jobs(&self, jobs: &[Job]) {
        self.lock().doing.extend_from_slice(jobs);
    }

    pub(crate) fn did_jobs(&self, jobs: &[Job]) {
        self.lock().doing.retain(|doing| !jobs.iter().any(|job| job.same_job(doing)));
    }

    pub(crate) fn is_doing(&self, job: &Job) -> bool {
        self.lock().doing.iter().any(|doing| doing.same_job(job))
    }

    /// True once.
    pub(crate) fn sweeps_first(&self) -> bool {
        !std::mem::replace(&mut self.lock().swept, true)
    }

    /// Whether the caller is to take up the conversation's jobs; whoever does so already looks once more.
    pub(crate) fn begin_jobs(&self) -> bool {
        let mut inner = self.lock();
        let free = inner.jobs == Jobs::Left;
        inner.jobs = if free { Jobs::TakenUp } else { Jobs::AskedAgain };
        free
    }

    /// Whether somebody came along meanwhile. If not, the jobs are left.
    pub(crate) fn jobs_go_on(&self) -> bool {
        let mut inner = self.lock();
        let again = inner.jobs == Jobs::AskedAgain;
        inner.jobs = if again { Jobs::TakenUp } else { Jobs::Left };
        again
    }

    /// Whoever took up the jobs goes without having looked to the end.
    pub(crate) fn leave_jobs(&self) {
        self.lock().jobs = Jobs::Left;
    }
}
