//! The circuits: closed, open, half-open.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::call_filter::LimitKey;

/// What a call says about the model or tool that it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Worked,
    Failed,
    /// It was not called, or the outcome is unknown.
    Unknown,
}

/// How a call changed the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Opened { for_: Duration },
    Closed,
}

/// The state of a circuit. One that is closed without failures has no entry.
#[derive(Clone, Copy, Debug)]
enum Circuit {
    /// Calls pass. Holds the number of failures in a row.
    Closed(u32),
    /// Calls are refused. Holds the time when it opened.
    Open(Duration),
    /// A few calls are let through as probes. Holds how many are running.
    HalfOpen(u32),
}

/// How many circuits are tracked. Failures of further models, tools or users are not counted.
const MOST_CIRCUITS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Circuits {
    failures: u32,
    open_for: Duration,
    probes: u32,
    circuits: Mutex<HashMap<LimitKey, Circuit>>,
}

impl Circuits {
    pub(super) fn new(failures: u32, open_for: Duration, probes: u32) -> Self {
        Self { failures, open_for, probes, circuits: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LimitKey, Circuit>> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call through; `Err` holds how long the circuit is still open.
    pub(super) fn enter(&self, key: &LimitKey, now: Duration) -> Result<Passage<'_>, Duration> {
        let mut circuits = self.lock();
        let mut passage = Passage { circuits: self, key: key.clone(), probe: false };
        let Some(circuit) = circuits.get_mut(key) else { return Ok(passage) };
        if let Circuit::Open(since) = circuit {
            // A time in the future means that the clock went back. Count from now, so that it does not stay open too long.
            *since = (*since).min(now);
            let left = self.open_for.saturating_sub(now.saturating_sub(*since));
            if !left.is_zero() {
                return Err(left);
            }
            *circuit = Circuit::HalfOpen(0);
        }
        match circuit {
            Circuit::HalfOpen(under_way) if *under_way >= self.probes => return Err(self.open_for),
            Circuit::HalfOpen(under_way) => {
                *under_way += 1;
                passage.probe = true;
            }
            Circuit::Closed(_) | Circuit::Open(_) => {}
        }
        Ok(passage)
    }
}

/// A call that was let through. If a probe is dropped without a verdict, another call may probe instead.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    circuits: &'a Circuits,
    key: LimitKey,
    probe: bool,
}

impl Passage<'_> {
    pub(super) fn leave(mut self, verdict: Verdict, now: Duration) -> Option<Change> {
        let mut circuits = self.circuits.lock();
        match (verdict, circuits.get(&self.key).copied()) {
            (Verdict::Unknown, _) => None,
            (Verdict::Worked, Some(Circuit::HalfOpen(_))) if self.probe => {
                circuits.remove(&self.key);
                self.probe = false;
                Some(Change::Closed)
            }
            (Verdict::Worked, Some(Circuit::Closed(_))) => {
                circuits.remove(&self.key);
                None
            }
            (Verdict::Failed, Some(Circuit::HalfOpen(_))) if self.probe => {
                self.probe = false;
                Some(self.open(&mut circuits, now))
            }
            (Verdict::Failed, Some(Circuit::Closed(failures))) => self.count(&mut circuits, failures + 1, now),
            (Verdict::Failed, None) => self.count(&mut circuits, 1, now),
            // A call that set out before the circuit opened says nothing new.
            (_, Some(Circuit::Open(_) | Circuit::HalfOpen(_))) | (Verdict::Worked, None) => None,
        }
    }

    fn count(&self, circuits: &mut HashMap<LimitKey, Circuit>, failures: u32, now: Duration) -> Option<Change> {
        if failures >= self.circuits.failures {
            return Some(self.open(circuits, now));
        }
        if circuits.len() < MOST_CIRCUITS || circuits.contains_key(&self.key) {
            circuits.insert(self.key.clone(), Circuit::Closed(failures));
        }
        None
    }

    fn open(&self, circuits: &mut HashMap<LimitKey, Circuit>, now: Duration) -> Change {
        circuits.insert(self.key.clone(), Circuit::Open(now));
        Change::Opened { for_: self.circuits.open_for }
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if !self.probe {
            return;
        }
        if let Some(Circuit::HalfOpen(under_way)) = self.circuits.lock().get_mut(&self.key) {
            *under_way = under_way.saturating_sub(1);
        }
    }
}
