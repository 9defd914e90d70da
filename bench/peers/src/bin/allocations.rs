//! How often each kind of turn asks the allocator for memory. Prints one JSON object.
//!
//! A program of its own, since counting would slow down what `peers` times. A reallocation counts as an allocation.

use std::alloc::System;
use std::io::Write;

use serde_json::{Map, Value};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use turnbuckle_peers::BoxError;
use turnbuckle_peers::turns::{Kind, Turns};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Turns to take the average of.
const TURNS: usize = 200;

fn main() -> Result<(), BoxError> {
    let turns = Turns::new()?;
    let mut counts = Map::new();
    for kind in Kind::ALL {
        turns.measure(kind, 3, &allocations)?;
        counts.insert(kind.name(), Value::from(turns.measure(kind, TURNS, &allocations)?));
    }
    writeln!(std::io::stdout(), "{}", Value::Object(counts))?;
    Ok(())
}

fn allocations(work: &mut dyn FnMut() -> Result<(), BoxError>) -> Result<f64, BoxError> {
    let region = Region::new(COUNTED);
    work()?;
    let change = region.change();
    Ok((change.allocations + change.reallocations) as f64)
}
