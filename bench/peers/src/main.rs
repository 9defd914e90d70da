//! CPU time and allocations of the same turn on each library. `--json` for programs.
//!
//! Kinds take turns in small batches, so that a slow moment of the machine hits all of them alike; the median is reported.

use std::io::Write;

use cpu_time::ThreadTime;
use serde_json::Value;
use turnbuckle_peers::BoxError;
use turnbuckle_peers::measure::median;
use turnbuckle_peers::report::Report;
use turnbuckle_peers::turns::{Kind, Turns};

/// How many batches of each kind.
const ROUNDS: usize = 200;
/// Turns of a batch.
const TURNS: usize = 50;
/// Turns before a batch that do not count.
const WARMING_TURNS: usize = 10;

fn main() -> Result<(), BoxError> {
    let allocations = allocations();
    let turns = Turns::new()?;
    let batch = |kind: &Kind| {
        // The library that ran before has filled the caches with its own code and data.
        turns.measure(*kind, WARMING_TURNS, &cpu_ns)?;
        turns.measure(*kind, TURNS, &cpu_ns)
    };
    let round = |_| Kind::ALL.iter().map(batch).collect();
    let rounds = (0..ROUNDS).map(round).collect::<Result<Vec<Vec<f64>>, BoxError>>()?;
    let mut report = Report::default();
    report.part("CPU time of a turn: 2 instant model calls, 1 tool call");
    for (index, kind) in Kind::ALL.iter().enumerate() {
        report.row(kind.name(), median(rounds.iter().map(|round| round[index]).collect()), "ns");
    }
    report.part("the same, of the loop by hand");
    for (index, kind) in Kind::ALL.iter().enumerate().skip(1) {
        report.row(kind.name(), median(rounds.iter().map(|round| round[index] / round[0]).collect()), "×");
    }
    report.part("allocations of a turn");
    for kind in Kind::ALL {
        if let Some(count) = allocations.as_ref().and_then(|counts| counts.get(kind.name())?.as_f64()) {
            report.row(kind.name(), count, "");
        }
    }
    let mut out = std::io::stdout();
    if std::env::args().any(|argument| argument == "--json") {
        writeln!(out, "{}", report.json())?;
    } else {
        report.print(&mut out)?;
    }
    Ok(())
}

fn cpu_ns(work: &mut dyn FnMut() -> Result<(), BoxError>) -> Result<f64, BoxError> {
    let began = ThreadTime::try_now()?;
    work()?;
    Ok(began.try_elapsed()?.as_nanos() as f64)
}

/// What the program next to this one counts.
fn allocations() -> Option<Value> {
    let counter = std::env::current_exe().ok()?.with_file_name("allocations");
    let output = std::process::Command::new(counter).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}
