//! Durations in buckets.

use super::exposition::{Exposition, Kind};

/// The upper ends of the buckets, in seconds: from a write to memory to a turn that works for ten minutes.
const ENDS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

/// How many durations there were, by length.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Those up to each end and above the one before; the last bucket is what is longer than all of them.
    buckets: [u64; ENDS.len() + 1],
    seconds: f64,
}

impl Histogram {
    pub(super) fn add(&mut self, seconds: f64) {
        let place = ENDS.iter().position(|end| seconds <= *end).unwrap_or(ENDS.len());
        if let Some(bucket) = self.buckets.get_mut(place) {
            *bucket += 1;
        }
        self.seconds += seconds;
    }

    pub(super) fn write(&self, out: &mut Exposition, name: &'static str, help: &str) {
        out.family(name, Kind::Histogram, help);
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (end, of_bucket) in ENDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]).zip(self.buckets) {
            count += of_bucket;
            out.sample(&bucket, &[("le", &end)], count as f64);
        }
        out.sample(&format!("{name}_sum"), &[], self.seconds);
        out.sample(&format!("{name}_count"), &[], count as f64);
    }
}
