//! Starts a worker when it is first needed, and again after it failed, with growing pauses.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use turnbuckle::hook::Points;

use super::connection::{Connection, Patience};
use super::error::WorkerError;
use super::message::PROTOCOL;
use crate::command::env::ProgramEnv;
use crate::command::{CommandLine, process};

/// The pause after the second failure in a row; it doubles with each further one. After the first there is none.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A caller waits so long for a pause to end; during a longer one its call fails at once.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// A worker that ran for so long has not failed "in a row".
const STEADY: Duration = Duration::from_secs(60);

/// What runs, and what it must serve.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) line: CommandLine,
    pub(super) cwd: PathBuf,
    pub(super) env: ProgramEnv,
    pub(super) points: Points,
    pub(super) patience: Patience,
}

/// A worker, running or not.
pub(crate) struct Worker {
    program: Program,
    /// Held only to look and to change, never across an await.
    state: Mutex<State>,
}

type Outcome = Option<Result<Arc<Connection>, WorkerError>>;

struct State {
    phase: Phase,
    /// Failures in a row, and the last of them.
    failures: u32,
    last: Option<WorkerError>,
    /// Not started again before this.
    rest_until: Option<Instant>,
}

enum Phase {
    Idle,
    /// A task starts it; it puts the outcome here. If the task is gone the channel is closed.
    Starting(watch::Receiver<Outcome>),
    Running(Arc<Connection>),
}

/// What a caller does next.
enum Step {
    Use(Arc<Connection>),
    Await(watch::Receiver<Outcome>),
    Rest(Instant),
    Fail(WorkerError),
}

impl Worker {
    pub(super) fn new(program: Program) -> Arc<Self> {
        let state = State { phase: Phase::Idle, failures: 0, last: None, rest_until: None };
        Arc::new(Self { program, state: Mutex::new(state) })
    }

    /// The running worker; starts it if there is none. Dropping the future does not disturb other callers.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, WorkerError> {
        loop {
            match self.step() {
                Step::Use(connection) => return Ok(connection),
                Step::Fail(error) => return Err(error),
                Step::Rest(until) => sleep_until(until).await,
                Step::Await(mut started) => {
                    match started.wait_for(Option::is_some).await.map(|outcome| outcome.clone()) {
                        Ok(Some(outcome)) => return outcome,
                        Ok(None) => {}
                        // The runtime that ran the task is gone.
                        Err(_) => self.forget_start(),
                    }
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(self: &Arc<Self>) -> Step {
        let mut state = self.state();
        if let Phase::Starting(started) = &state.phase {
            return Step::Await(started.clone());
        }
        if let Phase::Running(connection) = &state.phase {
            match connection.failure() {
                None => return Step::Use(connection.clone()),
                Some(failure) => {
                    let lived = connection.since.elapsed();
                    state.failed(failure, lived);
                }
            }
        }
        if let Some(until) = state.rest_until {
            let rest = until.saturating_duration_since(Instant::now());
            match &state.last {
                Some(last) if rest > LONGEST_WAIT => {
                    return Step::Fail(WorkerError::Resting { rest, last: Box::new(last.clone()) });
                }
                _ if !rest.is_zero() => return Step::Rest(until),
                _ => state.rest_until = None,
            }
        }
        let (tell, started) = watch::channel(None);
        state.phase = Phase::Starting(started.clone());
        drop(state);
        let worker = Arc::downgrade(self);
        let program = self.program.clone();
        tokio::spawn(async move {
            let outcome = program.start().await.map(Arc::new);
            if let Some(worker) = worker.upgrade() {
                worker.started(&outcome);
            }
            // Callers may all have gone.
            tell.send_replace(Some(outcome));
        });
        Step::Await(started)
    }

    fn started(&self, outcome: &Result<Arc<Connection>, WorkerError>) {
        let mut state = self.state();
        match outcome {
            Ok(connection) => state.phase = Phase::Running(connection.clone()),
            Err(error) => state.failed(error.clone(), Duration::ZERO),
        }
    }

    /// Only if no other start was begun meanwhile.
    fn forget_start(&self) {
        let mut state = self.state();
        if matches!(&state.phase, Phase::Starting(started) if started.has_changed().is_err()) {
            state.phase = Phase::Idle;
        }
    }
}

impl State {
    fn failed(&mut self, error: WorkerError, lived: Duration) {
        self.phase = Phase::Idle;
        self.failures = if lived >= STEADY { 1 } else { self.failures.saturating_add(1) };
        let pause = pause(self.failures);
        self.rest_until = (!pause.is_zero()).then(|| Instant::now() + pause);
        tracing::warn!(error = &error as &dyn std::error::Error, failures = self.failures, "a hook worker failed");
        self.last = Some(error);
    }
}

fn pause(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => FIRST_PAUSE.saturating_mul(1 << (more - 2).min(16)).min(LONGEST_PAUSE),
    }
}

impl Program {
    async fn start(&self) -> Result<Connection, WorkerError> {
        let started = process::start(&self.line, &self.cwd, &self.env)
            .await
            .map_err(|error| WorkerError::Start(Arc::new(error)))?;
        let names = |points: Points| points.iter().map(|point| point.name()).collect::<Vec<_>>();
        let initialize = json!({
            "protocol": PROTOCOL,
            "runtime": {"name": "turnbuckle", "version": env!("CARGO_PKG_VERSION")},
            "name": self.name,
            "points": names(self.points),
            "cwd": self.cwd.to_string_lossy(),
        });
        let command = self.line.to_string();
        let connection = Connection::open(started, command.clone(), initialize, self.patience).await?;
        let served: Points = connection.handshake.hooks.iter().map(|hook| hook.point).collect();
        if served != self.points {
            let served =
                if connection.handshake.hooks.is_empty() { "no point".to_owned() } else { names(served).join(", ") };
            let declared = names(self.points).join(", ");
            return Err(WorkerError::Points { command, served, declared });
        }
        Ok(connection)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("program", &self.program).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_none_to_half_a_minute() {
        let pauses: Vec<u128> = (1..=12).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
