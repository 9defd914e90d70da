//! The circuits: closed, open, half-open.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::around::Key;

/// What a call says about whom it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Worked,
    Failed,
    /// Nobody was called, or nobody knows.
    Unknown,
}

/// What a call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Opened { for_: Duration },
    Closed,
}

/// A circuit that is closed without a failure is not kept.
#[derive(Clone, Copy, Debug)]
enum Circuit {
    /// So many failures in a row.
    Closed(u32),
    /// Since when.
    Open(Duration),
    /// So many calls are on their way through.
    HalfOpen(u32),
}

/// More than so many failing keys at once are not told apart: calls for further ones pass uncounted.
const MOST_CIRCUITS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Circuits {
    failures: u32,
    open_for: Duration,
    probes: u32,
    circuits: Mutex<HashMap<Key, Circuit>>,
}

impl Circuits {
    pub(super) fn new(failures: u32, open_for: Duration, probes: u32) -> Self {
        Self { failures, open_for, probes, circuits: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Circuit>> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A way through; `Err` if the circuit is open for so long.
    pub(super) fn enter(&self, key: &Key, now: Duration) -> Result<Passage<'_>, Duration> {
        let mut circuits = self.lock();
        let mut passage = Passage { circuits: self, key: key.clone(), probe: false };
        let Some(circuit) = circuits.get_mut(key) else { return Ok(passage) };
        if let Circuit::Open(since) = circuit {
            // From the future: a clock went back. It opens anew, from now, and so never stays open for ever.
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

/// One call on its way through a circuit. Dropped without a verdict, a probe gives its place back.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    circuits: &'a Circuits,
    key: Key,
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

    fn count(&self, circuits: &mut HashMap<Key, Circuit>, failures: u32, now: Duration) -> Option<Change> {
        if failures >= self.circuits.failures {
            return Some(self.open(circuits, now));
        }
        if circuits.len() < MOST_CIRCUITS || circuits.contains_key(&self.key) {
            circuits.insert(self.key.clone(), Circuit::Closed(failures));
        }
        None
    }

    fn open(&self, circuits: &mut HashMap<Key, Circuit>, now: Duration) -> Change {
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
