//! How a worker, or one call of it, fails.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use turnbuckle::BoxError;
use turnbuckle::hook::{Mismatched, Point};

use crate::command::CommandError;

/// The failure of a worker or of one of its calls. It follows the hook's `on_failure`.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The program could not be started, or may not be.
    #[error("the worker could not be started: {0}")]
    Start(#[source] Arc<CommandError>),
    /// It answered `initialize` in another way than the protocol says.
    #[error("the worker `{command}` did not begin as it should: {why}")]
    Handshake {
        /// What runs.
        command: String,
        /// What is wrong.
        why: String,
    },
    /// It said nothing.
    #[error("the worker `{command}` did not answer `initialize` for {} s", limit.as_secs_f64())]
    Silent {
        /// What runs.
        command: String,
        /// How long it had.
        limit: Duration,
    },
    /// It serves other points than the configuration says.
    #[error("the worker `{command}` serves {served}, and `on` says {declared}")]
    Points {
        /// What runs.
        command: String,
        /// The points of its hooks.
        served: String,
        /// Those of the option `on`.
        declared: String,
    },
    /// A service did not answer as the protocol says.
    #[error("the service {host} {why}")]
    Service {
        /// The host.
        host: String,
        /// What is wrong, as the rest of a sentence.
        why: String,
    },
    /// The process ended.
    #[error("the worker `{command}` ended{}{}", with_status(*status), after_colon(stderr))]
    Died {
        /// What ran.
        command: String,
        /// How it ended, if that is known.
        status: Option<ExitStatus>,
        /// The last lines of stderr.
        stderr: String,
    },
    /// It said something that the protocol does not have. It is ended and started again.
    #[error("the worker `{command}` broke the protocol: {why}")]
    Protocol {
        /// What ran.
        command: String,
        /// What is wrong.
        why: String,
    },
    /// A call was cancelled and the worker did not answer it, or it does not read its stdin. It is ended and started again.
    #[error("the worker `{command}` does not react any more")]
    Hung {
        /// What ran.
        command: String,
    },
    /// It failed several times in a row, and is not started again yet.
    #[error("the worker is started again in {} s at the earliest: {last}", rest.as_secs_f64())]
    Resting {
        /// How long it still rests.
        rest: Duration,
        /// Why it rests.
        #[source]
        last: Box<WorkerError>,
    },
    /// Too many calls are open.
    #[error("the worker `{command}` has {most} calls to answer already")]
    Busy {
        /// What runs.
        command: String,
        /// The most calls that may be open.
        most: usize,
    },
    /// What a hook is to be told cannot be written as JSON.
    #[error("a call of a hook cannot be written as JSON: {why}")]
    Unwritable {
        /// What is wrong.
        why: String,
    },
    /// The hook itself failed: the worker answered with an error.
    #[error("{hook} in the worker failed: {message}")]
    Failed {
        /// The name that the worker gave the hook.
        hook: String,
        /// What it said.
        message: String,
    },
    /// An answer that the point does not take.
    #[error("{hook} in the worker gave an answer that `{point}` does not take: {why}")]
    Answer {
        /// The name that the worker gave the hook.
        hook: String,
        /// The point at which it was asked.
        point: Point,
        /// What is wrong with it.
        why: String,
    },
    /// The agent that it belongs to is gone, or the runtime shuts down.
    #[error("the worker `{command}` was stopped")]
    Stopped {
        /// What ran.
        command: String,
    },
}

impl WorkerError {
    /// As the failure of a hook. That a worker serves other points than the configuration says, or introduces itself in a way that
    /// does not tell which, blocks whatever `on_failure` says: a guard may be missing.
    pub(super) fn boxed(self) -> BoxError {
        match self.must_block() {
            true => Mismatched(self.into()).into(),
            false => self.into(),
        }
    }

    fn must_block(&self) -> bool {
        match self {
            Self::Points { .. } | Self::Handshake { .. } => true,
            Self::Resting { last, .. } => last.must_block(),
            _ => false,
        }
    }
}

fn with_status(status: Option<ExitStatus>) -> String {
    status.map(|status| format!(" with {status}")).unwrap_or_default()
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}
