//! Counts of the calls in a sliding window, in constant time and memory.

use std::time::Duration;

/// The window is kept as this many slots; the oldest slot is dropped as a whole.
const SLOTS: u64 = 10;

/// The outcome of one model or tool call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) latency: Duration,
    pub(super) failed: bool,
    pub(super) refused: bool,
    pub(super) cost: f64,
}

/// Sums over several calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) calls: u32,
    failed: u32,
    refused: u32,
    latency: Duration,
    pub(super) cost: f64,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.refused = self.refused.saturating_add(other.refused);
        self.latency = self.latency.saturating_add(other.latency);
        self.cost += other.cost;
    }

    pub(super) fn error_rate(&self) -> f64 {
        self.rate(self.failed)
    }

    /// At most 1, though a reply may be refused both by the model and by a stop hook.
    pub(super) fn refusal_rate(&self) -> f64 {
        self.rate(self.refused).min(1.0)
    }

    pub(super) fn average_latency(&self) -> Duration {
        self.latency / self.calls.max(1)
    }

    fn rate(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.calls.max(1))
    }
}

/// The calls of the last `length`, or since it was cleared.
#[derive(Clone, Debug)]
pub(super) struct Window {
    slot_nanos: u64,
    slots: [Totals; SLOTS as usize],
    /// The number of the newest slot since the start of the clock.
    newest: u64,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self { slot_nanos: (nanos / SLOTS).max(1), slots: Default::default(), newest: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.slots = Default::default();
    }

    pub(super) fn add(&mut self, sample: &Sample, now: Duration) {
        self.advance(now);
        let one = |yes: bool| u32::from(yes);
        let Sample { latency, failed, refused, cost } = *sample;
        self.newest_slot().add(&Totals { calls: 1, failed: one(failed), refused: one(refused), latency, cost });
    }

    /// Counts a refusal of a reply that was added before.
    pub(super) fn add_refusal(&mut self) {
        self.newest_slot().refused += 1;
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.slots.iter().for_each(|slot| totals.add(slot));
        totals
    }

    fn newest_slot(&mut self) -> &mut Totals {
        &mut self.slots[(self.newest % SLOTS) as usize]
    }

    /// Makes the slot of `now` the newest. Drops everything if the clock went back, because the age of the samples is
    /// then unknown.
    fn advance(&mut self, now: Duration) {
        let slot = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX) / self.slot_nanos;
        if slot < self.newest || slot - self.newest >= SLOTS {
            self.clear();
            self.newest = slot;
        }
        while self.newest < slot {
            self.newest += 1;
            *self.newest_slot() = Totals::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(window: &mut Window, at: u64) -> u32 {
        window.add(&Sample { failed: true, ..Sample::default() }, Duration::from_secs(at));
        window.totals().calls
    }

    #[test]
    fn calls_are_dropped_when_they_are_older_than_the_window() {
        let mut window = Window::new(Duration::from_secs(10));
        assert_eq!([0, 5, 9].map(|at| calls(&mut window, at)), [1, 2, 3]);
        assert_eq!(calls(&mut window, 10), 3, "the first is out");
        assert_eq!(calls(&mut window, 1000), 1);
        assert!((window.totals().error_rate() - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_clock_that_goes_back_starts_anew() {
        let mut window = Window::new(Duration::from_secs(10));
        assert_eq!([1000, 0, 1].map(|at| calls(&mut window, at)), [1, 1, 2]);
    }
}
