//! What a turn costs, beside what was promised of it. `--json` for programs.
//!
//! Everything runs on one thread, and its CPU time is what counts. Kinds of turns that are compared take turns in small
//! batches, so that a slow moment of the machine hits all of them alike; the median of the batches is reported.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::runtime::Runtime;
use turnbuckle::Agent;
use turnbuckle_bench::BoxError;
use turnbuckle_bench::agents::{calculator, speaker};
use turnbuckle_bench::batch::{Batch, MESSAGE, Source, Viewers};
use turnbuckle_bench::chunks::Chunks;
use turnbuckle_bench::hand::Loop;
use turnbuckle_bench::hooks::{CALLS, interested, uninterested};
use turnbuckle_bench::measure::{cpu_ns, median, runtime};
use turnbuckle_bench::model::Instant;
use turnbuckle_bench::report::Report;
use turnbuckle_bench::tool::Add;

/// How many batches of each kind.
const ROUNDS: usize = 300;
/// Turns of a batch.
const TURNS: usize = 50;
/// Turns of the hand-written loop in a batch: it is so much faster.
const HAND_TURNS: usize = 500;
/// Chunks of a stream.
const CHUNKS: usize = 10_000;
/// Chunks of the stream that a thousand viewers see.
const SHOWN_CHUNKS: usize = 1_000;
const ONE: Viewers = Viewers::Lossy(1);

fn main() -> Result<(), BoxError> {
    let counts = allocations();
    let mut report = Report::default();
    let bench = Bench { runtime: runtime()?, model: Instant::default(), allocations: counts.as_ref() };
    bench.turn(&mut report)?;
    bench.hooks(&mut report)?;
    bench.stream(&mut report)?;
    bench.viewers(&mut report)?;
    let mut out = std::io::stdout();
    if std::env::args().any(|argument| argument == "--json") {
        writeln!(out, "{}", report.json())?;
    } else {
        report.print(&mut out)?;
        if counts.is_none() {
            writeln!(out, "\nallocations: not counted; build the whole package first (`bench/run` does)")?;
        }
    }
    Ok(())
}

/// What the program next to this one counts.
fn allocations() -> Option<Value> {
    let counter = std::env::current_exe().ok()?.with_file_name("allocations");
    let output = std::process::Command::new(counter).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

struct Bench<'a> {
    runtime: Runtime,
    model: Instant,
    allocations: Option<&'a Value>,
}

impl Bench<'_> {
    /// a: a turn against the hand-written loop.
    fn turn(&self, report: &mut Report) -> Result<(), BoxError> {
        let hand = self.runtime.block_on(Loop::new(Arc::new(self.model.clone()), Add::default()))?;
        let agent = calculator(&self.model, Vec::new())?;
        let by_hand = || -> Result<f64, BoxError> {
            let work = async {
                for _ in 0..HAND_TURNS {
                    std::hint::black_box(hand.turn(MESSAGE).await?);
                }
                Ok(())
            };
            Ok(cpu_ns(&self.runtime, work)? / HAND_TURNS as f64)
        };
        let all = self.rounds(&[
            &by_hand,
            &|| self.fresh(&agent, TURNS, ONE),
            &|| self.fresh(&agent, TURNS, Viewers::None),
            &|| self.fresh(&agent, TURNS, Viewers::Lossless(1)),
            &|| self.next(&agent),
            &|| self.whole(&agent),
        ])?;
        report.part("a turn: 2 instant model calls, 1 tool call, memory store, log and live feed");
        report.row("the same by hand, without a log", all.median(0), "ns");
        report.row("turn in a fresh conversation, one viewer", all.median(1), "ns");
        report.row("  of the hand-written loop", all.ratio(1, 0), "×");
        report.row("turn in a fresh conversation, no viewer", all.median(2), "ns");
        report.row("  of the hand-written loop", all.ratio(2, 0), "×");
        report.row("turn in a fresh conversation, one lossless viewer", all.median(3), "ns");
        report.row("  of the hand-written loop", all.ratio(3, 0), "×");
        report.row(format!("the first {TURNS} turns of one conversation, one viewer"), all.median(4), "ns");
        report.row("  of the hand-written loop", all.ratio(4, 0), "×");
        report.row("`agent.run`: store and conversation made and dropped, no viewer", all.median(5), "ns");
        report.row("  of the hand-written loop", all.ratio(5, 0), "×");
        if let Some(turn) = instructions().and_then(|counts| counts("turn")) {
            report.promised("one viewer (bench/instructions.txt)", turn, "instructions", 42_000.0);
        }
        self.counted(report, "allocations: by hand", "hand", None);
        self.counted(report, "allocations: turn, one viewer", "turn", Some(50.0));
        self.counted(report, "allocations: turn, no viewer", "turn_unwatched", None);
        self.counted(report, "allocations: turn, one lossless viewer", "turn_lossless", None);
        self.counted(report, "allocations: next turn, one viewer", "next_turn", None);
        Ok(())
    }

    /// b: what hooks add to it.
    fn hooks(&self, report: &mut Report) -> Result<(), BoxError> {
        let none = calculator(&self.model, Vec::new())?;
        let [one, five] = [calculator(&self.model, interested(1))?, calculator(&self.model, interested(5))?];
        let idle = calculator(&self.model, uninterested(5))?;
        self.calls_are(&one, CALLS)?;
        self.calls_are(&five, 5 * CALLS)?;
        let all = self.rounds(&[
            &|| self.fresh(&none, TURNS, ONE),
            &|| self.fresh(&one, TURNS, ONE),
            &|| self.fresh(&five, TURNS, ONE),
            &|| self.fresh(&idle, TURNS, ONE),
        ])?;
        let calls = CALLS as f64;
        report.part(format!("hooks on that turn: each is called {CALLS} times, at all six lifecycle points"));
        report.row("1 hook adds", 100.0 * (all.ratio(1, 0) - 1.0), "%");
        report.row("5 hooks add", 100.0 * (all.ratio(2, 0) - 1.0), "%");
        report.row("5 hooks without a point add", 100.0 * (all.ratio(3, 0) - 1.0), "%");
        report.row("one call, of 1 hook", all.more(1, 0) / calls, "ns");
        report.row("one call, of 5 hooks", all.more(2, 0) / calls / 5.0, "ns");
        report.row("one of 5 hooks without a point", all.more(3, 0) / 5.0, "ns");
        if let Some(counts) = instructions() {
            let more = |name: &str, hooks: f64| Some((counts(name)? - counts("turn")?) / calls / hooks);
            if let (Some(one), Some(five)) = (more("turn_1_hook", 1.0), more("turn_5_hooks", 5.0)) {
                report.promised("one call, of 1 hook (bench/instructions.txt)", one, "instructions", 400.0);
                report.promised("one call, of 5 hooks (bench/instructions.txt)", five, "instructions", 400.0);
            }
        }
        if let [Some(none), Some(five), Some(idle)] =
            ["turn", "turn_5_hooks", "turn_5_uninterested"].map(|name| self.count(name))
        {
            report.row("allocations: one call, of 5 hooks", (five - none) / calls / 5.0, "");
            report.promised("allocations: 5 hooks without a point", idle - none, "", 0.0);
        }
        Ok(())
    }

    /// c: what a chunk costs.
    fn stream(&self, report: &mut Report) -> Result<(), BoxError> {
        let [plain, redacted] = [speaker(CHUNKS, 0)?, speaker(CHUNKS, 3)?];
        let all = self.rounds(&[
            &|| self.fresh(&plain, 1, Viewers::None),
            &|| self.fresh(&redacted, 1, Viewers::None),
            &|| self.fresh(&plain, 1, ONE),
            &|| self.fresh(&redacted, 1, ONE),
        ])?;
        let each = CHUNKS as f64;
        report.part(format!("a stream of {CHUNKS} chunks of 5 bytes"));
        report.row("a chunk, no viewer", all.median(0) / each, "ns");
        report.row("a chunk through 3 transformers, no viewer", all.median(1) / each, "ns");
        report.promised("  3 transformers alone", all.more(1, 0) / each, "ns", 250.0);
        report.row("a chunk, one viewer", all.median(2) / each, "ns");
        report.row("a chunk through 3 transformers, one viewer", all.median(3) / each, "ns");
        self.counted(report, "allocations: a chunk, no viewer", "chunk_0", None);
        self.counted(report, "allocations: a chunk through 3, no viewer", "chunk_3", None);
        self.counted(report, "allocations: a chunk, one viewer", "chunk_0_watched", None);
        self.counted(report, "allocations: a chunk through 3, one viewer", "chunk_3_watched", None);
        Ok(())
    }

    /// d: many viewers.
    fn viewers(&self, report: &mut Report) -> Result<(), BoxError> {
        const MANY: usize = 1_000;
        let model = Chunks::new(SHOWN_CHUNKS);
        let pushing = model.pushing();
        let agent = Agent::builder("speaker", model).build()?;
        let (mut events, mut missed, mut behind) = (0, 0, 0);
        // CPU time of the whole turn and of the pushes alone: without viewers, with one, with many.
        let mut took: [(Vec<f64>, Vec<f64>); 3] = Default::default();
        for _ in 0..10 {
            for (kind, viewers) in [Viewers::None, ONE, Viewers::Lossy(MANY)].into_iter().enumerate() {
                // What the thousand left behind in the caches is not the next one's cost.
                self.fresh(&agent, 1, Viewers::None)?;
                let batch = self.runtime.block_on(Batch::new(&agent, 1, viewers, Source::System))?;
                pushing.store(0, Ordering::Relaxed);
                took[kind].0.push(cpu_ns(&self.runtime, batch.fresh_turns())?);
                took[kind].1.push(pushing.load(Ordering::Relaxed) as f64);
                let seen = batch.finish();
                events = seen.iter().map(|one| one.events).max().unwrap_or_default();
                missed += seen.iter().map(|one| one.missed).sum::<u64>();
                behind += seen.iter().filter(|one| one.events < events).count();
            }
        }
        let [none, one, many] = took.map(|(turn, pushes)| (median(turn), median(pushes)));
        report.part(format!("{MANY} lossy viewers that keep up with {events} events"));
        report.promised("events that any of them lost", missed as f64, "", 0.0);
        report.promised("viewers that saw fewer than others", behind as f64, "", 0.0);
        let each = events as f64;
        report.row("an event, without viewers", none.0 / each, "ns");
        report.row("an event, with all of them", many.0 / each, "ns");
        report.row("  for each viewer", (many.0 - none.0) / each / MANY as f64, "ns");
        report.row("telling an event, without viewers", none.1 / each, "ns");
        report.row("telling an event, one viewer", one.1 / each, "ns");
        report.row("telling an event, all of them (waking them included)", many.1 / each, "ns");
        Ok(())
    }

    /// One turn in each of so many new conversations.
    fn fresh(&self, agent: &Agent, turns: usize, viewers: Viewers) -> Result<f64, BoxError> {
        let batch = self.runtime.block_on(Batch::new(agent, turns, viewers, Source::System))?;
        let took = cpu_ns(&self.runtime, batch.fresh_turns())?;
        let short = batch.finish().iter().any(|seen| seen.turns != 1 || seen.missed > 0);
        if short { Err("a viewer missed something".into()) } else { Ok(took / turns as f64) }
    }

    /// A whole program: its own store, one conversation, one turn.
    fn whole(&self, agent: &Agent) -> Result<f64, BoxError> {
        let work = async {
            for _ in 0..TURNS {
                std::hint::black_box(agent.run(MESSAGE).await?);
            }
            Ok(())
        };
        Ok(cpu_ns(&self.runtime, work)? / TURNS as f64)
    }

    /// The first turns of one conversation.
    fn next(&self, agent: &Agent) -> Result<f64, BoxError> {
        let batch = self.runtime.block_on(Batch::new(agent, 1, ONE, Source::System))?;
        let took = cpu_ns(&self.runtime, batch.next_turns(TURNS))?;
        batch.finish();
        Ok(took / TURNS as f64)
    }

    fn calls_are(&self, agent: &Agent, expected: usize) -> Result<(), BoxError> {
        let batch = self.runtime.block_on(Batch::new(agent, 1, Viewers::None, Source::System))?;
        self.runtime.block_on(batch.fresh_turns())?;
        let calls = self.runtime.block_on(batch.records())?;
        if calls == expected { Ok(()) } else { Err(format!("{calls} hook calls instead of {expected}").into()) }
    }

    /// Every kind of work once a round.
    fn rounds(&self, kinds: &[&dyn Fn() -> Result<f64, BoxError>]) -> Result<Rounds, BoxError> {
        for kind in kinds {
            kind()?;
        }
        let round = |_| kinds.iter().map(|kind| kind()).collect::<Result<Vec<f64>, BoxError>>();
        Ok(Rounds((0..ROUNDS).map(round).collect::<Result<_, _>>()?))
    }

    fn count(&self, name: &str) -> Option<f64> {
        self.allocations?.get(name)?.as_f64()
    }

    fn counted(&self, report: &mut Report, what: &str, name: &str, promise: Option<f64>) {
        match (self.count(name), promise) {
            (Some(count), Some(most)) => report.promised(what, count, "", most),
            (Some(count), None) => report.row(what, count, ""),
            (None, _) => {}
        }
    }
}

/// Nanoseconds, by round and kind.
struct Rounds(Vec<Vec<f64>>);

impl Rounds {
    fn over(&self, number: impl Fn(&[f64]) -> f64) -> f64 {
        median(self.0.iter().map(|round| number(round)).collect())
    }
    fn median(&self, kind: usize) -> f64 {
        self.over(|round| round[kind])
    }
    fn ratio(&self, kind: usize, to: usize) -> f64 {
        self.over(|round| round[kind] / round[to])
    }
    fn more(&self, kind: usize, than: usize) -> f64 {
        self.over(|round| round[kind] - round[than])
    }
}

/// The committed counts, by scenario.
fn instructions() -> Option<impl Fn(&str) -> Option<f64>> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let text = std::fs::read_to_string(file).ok()?;
    Some(move |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line?.trim().parse().ok()
    })
}
