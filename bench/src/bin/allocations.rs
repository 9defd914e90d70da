//! How often a turn, the hand-written loop and a chunk ask the allocator for memory. Prints one JSON object.
//!
//! A program of its own, since counting would slow down what `turn` times. A reallocation counts as an allocation.

use std::alloc::System;
use std::future::Future;
use std::io::Write;
use std::sync::Arc;

use serde_json::{Map, Value};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Runtime;
use turnbuckle::Agent;
use turnbuckle_bench::BoxError;
use turnbuckle_bench::agents::{calculator, speaker};
use turnbuckle_bench::batch::{Batch, MESSAGE, Source, Viewers};
use turnbuckle_bench::hand::Loop;
use turnbuckle_bench::hooks::{interested, uninterested};
use turnbuckle_bench::measure::runtime;
use turnbuckle_bench::model::Instant;
use turnbuckle_bench::tool::Add;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Turns to take the average of.
const TURNS: usize = 200;
const CHUNKS: usize = 10_000;

fn main() -> Result<(), BoxError> {
    let runtime = runtime()?;
    let model = Instant::default();
    let mut counts = Map::new();
    let mut put = |name: &str, count: f64| counts.insert(name.to_owned(), Value::from(count));

    let hand = runtime.block_on(Loop::new(Arc::new(model.clone()), Add::default()))?;
    let by_hand = async {
        for _ in 0..TURNS {
            hand.turn(MESSAGE).await?;
        }
        Ok(())
    };
    put("hand", counted(&runtime, by_hand)? / TURNS as f64);

    let plain = calculator(&model, Vec::new())?;
    let one_viewer = Viewers::Lossy(1);
    put("turn", fresh(&runtime, &plain, TURNS, one_viewer)?);
    put("turn_unwatched", fresh(&runtime, &plain, TURNS, Viewers::None)?);
    put("turn_lossless", fresh(&runtime, &plain, TURNS, Viewers::Lossless(1))?);
    put("turn_1_hook", fresh(&runtime, &calculator(&model, interested(1))?, TURNS, one_viewer)?);
    put("turn_5_hooks", fresh(&runtime, &calculator(&model, interested(5))?, TURNS, one_viewer)?);
    put("turn_5_uninterested", fresh(&runtime, &calculator(&model, uninterested(5))?, TURNS, one_viewer)?);

    let batch = runtime.block_on(Batch::new(&plain, 1, one_viewer, Source::System))?;
    runtime.block_on(batch.next_turns(10))?;
    put("next_turn", counted(&runtime, batch.next_turns(TURNS))? / TURNS as f64);
    batch.finish();

    for transformers in [0, 3] {
        let agent = speaker(CHUNKS, transformers)?;
        let each = fresh(&runtime, &agent, 3, Viewers::None)? / CHUNKS as f64;
        put(&format!("chunk_{transformers}"), each);
        let watched = fresh(&runtime, &agent, 3, one_viewer)? / CHUNKS as f64;
        put(&format!("chunk_{transformers}_watched"), watched);
    }
    writeln!(std::io::stdout(), "{}", Value::Object(counts))?;
    Ok(())
}

/// Allocations of a turn in a fresh conversation.
fn fresh(runtime: &Runtime, agent: &Agent, turns: usize, viewers: Viewers) -> Result<f64, BoxError> {
    let warm = runtime.block_on(Batch::new(agent, 3, viewers, Source::System))?;
    runtime.block_on(warm.fresh_turns())?;
    warm.finish();
    let batch = runtime.block_on(Batch::new(agent, turns, viewers, Source::System))?;
    let count = counted(runtime, batch.fresh_turns())?;
    batch.finish();
    Ok(count / turns as f64)
}

fn counted<T>(runtime: &Runtime, work: impl Future<Output = Result<T, BoxError>>) -> Result<f64, BoxError> {
    let region = Region::new(COUNTED);
    runtime.block_on(work)?;
    let change = region.change();
    Ok((change.allocations + change.reallocations) as f64)
}
