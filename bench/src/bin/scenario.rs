//! `scenario NAME COUNT` runs that many turns of a scenario, `scenario growth/NAME SIZE` one turn of that size. Every run
//! takes the same steps.
//!
//! `bench/instructions` runs it under callgrind, which counts only inside [`measured`].

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Runtime;
use turnbuckle_bench::BoxError;
use turnbuckle_bench::agents::{calculator, speaker};
use turnbuckle_bench::batch::{Batch, MESSAGE, Source, Viewers};
use turnbuckle_bench::growth;
use turnbuckle_bench::hand::Loop;
use turnbuckle_bench::hooks::interested;
use turnbuckle_bench::measure::runtime;
use turnbuckle_bench::model::Instant;
use turnbuckle_bench::tool::Add;

/// How many chunks a streamed turn has.
const CHUNKS: usize = 1_000;

fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: scenario NAME COUNT | growth/NAME SIZE".into());
    };
    let count: usize = count.parse()?;
    let runtime = runtime()?;
    if let Some(name) = name.strip_prefix("growth/") {
        let batch = runtime.block_on(growth::prepare(name, count))?;
        measured(&runtime, batch.fresh_turns())?;
        return all_read(batch);
    }
    let model = Instant::default();
    if name == "hand" {
        let hand = runtime.block_on(Loop::new(Arc::new(model), Add::default()))?;
        let turns = async |count: usize| {
            for _ in 0..count {
                hand.turn(MESSAGE).await?;
            }
            Ok(())
        };
        runtime.block_on(turns(10))?;
        return measured(&runtime, turns(count));
    }
    let agent = match name.as_str() {
        "turn" => calculator(&model, Vec::new())?,
        "turn_1_hook" => calculator(&model, interested(1))?,
        "turn_5_hooks" => calculator(&model, interested(5))?,
        "stream_0" => speaker(CHUNKS, 0)?,
        "stream_3" => speaker(CHUNKS, 3)?,
        _ => return Err(format!("there is no scenario {name}").into()),
    };
    let warm = runtime.block_on(Batch::new(&agent, 10, Viewers::Lossy(1), Source::Exact))?;
    runtime.block_on(warm.fresh_turns())?;
    let batch = runtime.block_on(Batch::new(&agent, count, Viewers::Lossy(1), Source::Exact))?;
    measured(&runtime, batch.fresh_turns())?;
    // Only now: maps are dropped in an order that differs from run to run, and the allocator would remember it.
    warm.finish();
    all_read(batch)
}

/// Whether every viewer saw the turn to its end.
fn all_read(batch: Batch) -> Result<(), BoxError> {
    let all_read = batch.finish().iter().all(|seen| seen.turns == 1 && seen.missed == 0);
    if all_read { Ok(()) } else { Err("a viewer missed something".into()) }
}

/// What is counted, by this name: nothing before and nothing after.
#[inline(never)]
fn measured(runtime: &Runtime, work: impl Future<Output = Result<(), BoxError>>) -> Result<(), BoxError> {
    std::hint::black_box(runtime.block_on(work))
}
