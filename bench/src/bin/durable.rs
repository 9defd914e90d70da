//! What a turn costs on SQLite, beside what was promised of it: `durable [turn] [many] [length] [--json]`.
//!
//! A durable turn waits for the disk, and its work is done by several threads. So there are two measures: wall time, which
//! is what a caller waits, and the CPU time of the whole process, which other programs on the machine do not change.
//! What is compared takes turns, one turn each. CPU time is compared round by round, and the median reported; of wall time
//! medians are compared, for the disk's bursts hit one of two neighbours and not both. In a folder in memory
//! (`BENCH_FOLDER=/dev/shm`) the disk costs nothing, and what is left is what the runtime and the store do.

use std::io::Write;
use std::path::Path;
use std::time::Instant as Clock;

use cpu_time::ProcessTime;
use futures_util::future::try_join_all;
use tokio::runtime::Runtime;
use turnbuckle::{Agent, ConversationId, Conversations, Scope, TurnStatus};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::agents::calculator;
use turnbuckle_bench::batch::MESSAGE;
use turnbuckle_bench::hooks::interested;
use turnbuckle_bench::long::Template;
use turnbuckle_bench::measure::median;
use turnbuckle_bench::model::Instant;
use turnbuckle_bench::report::Report;
use turnbuckle_bench::tape::{ByHand, Tape, Taped};
use turnbuckle_stores::SqliteStore;

/// How often each kind of work is done.
const ROUNDS: usize = 200;

fn main() -> Result<(), BoxError> {
    let bench = Bench {
        runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?,
        folder: tempfile::tempdir_in(std::env::var_os("BENCH_FOLDER").unwrap_or_else(|| ".".into()))?,
        model: Instant::default(),
    };
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--json").collect();
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|asked| asked == part);
    let mut report = Report::default();
    if wanted("turn") {
        bench.turn_and_hooks(&mut report)?;
    }
    if wanted("many") {
        bench.many(&mut report)?;
    }
    if wanted("length") {
        bench.length(&mut report)?;
    }
    let mut out = std::io::stdout();
    if std::env::args().any(|argument| argument == "--json") {
        writeln!(out, "{}", report.json())?;
    } else {
        report.print(&mut out)?;
    }
    Ok(())
}

struct Bench {
    runtime: Runtime,
    /// On the disk that is measured: the current folder's, or that of `BENCH_FOLDER`.
    folder: tempfile::TempDir,
    model: Instant,
}

/// What a piece of work took, in microseconds.
#[derive(Clone, Copy, Default)]
struct Took {
    wall: f64,
    cpu: f64,
}

impl Took {
    fn of<T>(work: impl FnOnce() -> Result<T, BoxError>) -> Result<Self, BoxError> {
        let (wall, cpu) = (Clock::now(), ProcessTime::try_now()?);
        work()?;
        let each = |time: std::time::Duration| time.as_nanos() as f64 / 1000.0;
        Ok(Self { wall: each(wall.elapsed()), cpu: each(cpu.try_elapsed()?) })
    }
}

/// By round and kind.
struct Rounds(Vec<Vec<Took>>);

impl Rounds {
    /// Every kind of work once a round.
    fn of(rounds: usize, kinds: &[&dyn Fn(usize) -> Result<Took, BoxError>]) -> Result<Self, BoxError> {
        for kind in kinds {
            kind(rounds)?;
        }
        let round = |round| kinds.iter().map(|kind| kind(round)).collect::<Result<Vec<_>, BoxError>>();
        Ok(Self((0..rounds).map(round).collect::<Result<_, _>>()?))
    }
    fn over(&self, number: impl Fn(&[Took]) -> f64) -> f64 {
        median(self.0.iter().map(|round| number(round)).collect())
    }
    fn wall(&self, kind: usize) -> f64 {
        self.over(|round| round[kind].wall)
    }
    fn cpu(&self, kind: usize) -> f64 {
        self.over(|round| round[kind].cpu)
    }
    fn cpu_ratio(&self, kind: usize, to: usize) -> f64 {
        self.over(|round| round[kind].cpu / round[to].cpu)
    }
}

async fn turn(conversations: &Conversations, id: &ConversationId) -> Result<(), BoxError> {
    match conversations.turn(id, MESSAGE, Scope::local()).await? {
        TurnStatus::Ended(ended) if ended.is_completed() => Ok(()),
        other => Err(format!("the turn did not complete: {other:?}").into()),
    }
}

impl Bench {
    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn conversations(&self, agent: &Agent, file: &str) -> Result<Conversations, BoxError> {
        Ok(Conversations::builder(agent.clone(), SqliteStore::open(self.file(file))?).build())
    }

    /// What one turn writes.
    fn tape(&self, agent: &Agent) -> Result<Tape, BoxError> {
        let store = Taped::new(SqliteStore::open(self.file("tape.db"))?);
        let conversations = Conversations::builder(agent.clone(), store.clone()).build();
        self.runtime.block_on(turn(&conversations, &"c".into()))?;
        Ok(store.tape())
    }

    /// A turn of a fresh conversation.
    fn fresh(&self, conversations: &Conversations, round: usize) -> Result<Took, BoxError> {
        let id = ConversationId::from(format!("c_{round}"));
        Took::of(|| self.runtime.block_on(turn(conversations, &id)))
    }

    fn by_hand(&self, hand: &ByHand, tape: &Tape, round: usize) -> Result<Took, BoxError> {
        Took::of(|| hand.turn(tape, hand.conversation(&format!("c_{round}"))?))
    }

    /// a and c: a durable turn against the same rows by hand, and what hooks add to it.
    fn turn_and_hooks(&self, report: &mut Report) -> Result<(), BoxError> {
        let agents = [0, 1, 5].map(|hooks| calculator(&self.model, interested(hooks)));
        let [none, one, five] = agents;
        let (none, one, five) = (none?, one?, five?);
        let tape = self.tape(&none)?;
        drop(SqliteStore::open(self.file("hand.db"))?);
        let hand = ByHand::open(Path::new(&self.file("hand.db")))?;
        let [none, one, five] = [(none, "none.db"), (one, "one.db"), (five, "five.db")]
            .map(|(agent, file)| self.conversations(&agent, file));
        let (none, one, five) = (none?, one?, five?);
        let all = Rounds::of(
            ROUNDS,
            &[
                &|round| self.by_hand(&hand, &tape, round),
                &|round| self.fresh(&none, round),
                &|round| self.fresh(&one, round),
                &|round| self.fresh(&five, round),
            ],
        )?;
        report
            .part("a durable turn: 2 instant model calls, 1 tool call, SQLite, every write on disk before it goes on");
        report.row("transactions that a turn writes (and one for the conversation)", tape.transactions() as f64, "");
        for (what, kind) in [("the same rows by hand, in as many transactions", 0), ("the turn", 1)] {
            report.row(what, all.wall(kind), "µs");
        }
        report.promised("  of the same by hand", all.wall(1) / all.wall(0), "×", 1.3);
        report.row("CPU: the same by hand", all.cpu(0), "µs");
        report.row("CPU: the turn, all threads", all.cpu(1), "µs");
        report.row("  of the same by hand", all.cpu_ratio(1, 0), "×");
        report.part("hooks at all six lifecycle points on the durable turn");
        for (kind, hooks, most) in [(2, 1, 5.0), (3, 5, 10.0)] {
            report.promised(
                format!("{hooks} of them add to its CPU"),
                100.0 * (all.cpu_ratio(kind, 1) - 1.0),
                "%",
                most,
            );
            report.row("  to the time that it takes", 100.0 * (all.wall(kind) / all.wall(1) - 1.0), "%");
        }
        Ok(())
    }

    /// b: many conversations at once share commits.
    fn many(&self, report: &mut Report) -> Result<(), BoxError> {
        let agent = calculator(&self.model, Vec::new())?;
        report.part("turns of many conversations at once");
        for (at_once, turns) in [(1, 20), (100, 5), (1_000, 3)] {
            let store = SqliteStore::open(self.file(&format!("many_{at_once}.db")))?;
            let conversations = Conversations::builder(agent.clone(), store.clone()).max_idle(2 * at_once).build();
            let before = store.commits();
            let talk = async |n: usize| {
                let (conversations, id) = (conversations.clone(), ConversationId::from(format!("c_{n}")));
                let task = tokio::spawn(async move {
                    for _ in 0..turns {
                        turn(&conversations, &id).await?;
                    }
                    Ok::<_, BoxError>(())
                });
                task.await?
            };
            let took = Took::of(|| self.runtime.block_on(try_join_all((0..at_once).map(talk))))?;
            let all = (at_once * turns) as f64;
            let commits = (store.commits() - before) as f64 / all;
            let what = format!("{at_once} at once: commits a turn");
            if at_once == 1_000 {
                report.promised(what, commits, "", 0.25);
            } else {
                report.row(what, commits, "");
            }
            report.row("  turns a second", all / took.wall * 1e6, "");
            report.row("  CPU a turn", took.cpu / all, "µs");
        }
        Ok(())
    }

    /// d: how long the log is does not matter.
    fn length(&self, report: &mut Report) -> Result<(), BoxError> {
        const LENGTHS: [usize; 3] = [100, 1_000, 10_000];
        let agent = calculator(&self.model, Vec::new())?;
        let store = SqliteStore::open(self.file("long.db"))?;
        let ids = LENGTHS.map(|events| ConversationId::from(format!("c_{events}")));
        self.runtime.block_on(async {
            let template = Template::of(&agent, 8_000).await?;
            for (id, events) in ids.iter().zip(LENGTHS) {
                template.fill(&store, id, events).await?;
            }
            Ok::<_, BoxError>(())
        })?;
        let revive = |id: &ConversationId| {
            let conversations = Conversations::builder(agent.clone(), store.clone()).build();
            let took = Took::of(|| Ok(self.runtime.block_on(conversations.resume(id, Scope::local()))?));
            // Its driver gives the claim back after it answered.
            self.runtime.block_on(conversations.close(id, Scope::local()))?;
            took
        };
        let all = Rounds::of(ROUNDS, &[&|_| revive(&ids[0]), &|_| revive(&ids[1]), &|_| revive(&ids[2])])?;
        report.part("reviving a conversation with a full window of 32,000 tokens");
        for (kind, events) in LENGTHS.iter().enumerate() {
            report.row(format!("{events} events"), all.wall(kind), "µs");
            report.row("  CPU", all.cpu(kind), "µs");
            if kind > 0 {
                report.promised("  CPU, of 100 events", all.cpu_ratio(kind, 0), "×", 1.2);
            }
        }
        let live = Conversations::builder(agent.clone(), store.clone()).build();
        let next = |id: &ConversationId| Took::of(|| self.runtime.block_on(turn(&live, id)));
        let all = Rounds::of(10, &[&|_| next(&ids[0]), &|_| next(&ids[1]), &|_| next(&ids[2])])?;
        report.part("the next turn of such a conversation: assembling two calls, writing seven events");
        for (kind, events) in LENGTHS.iter().enumerate() {
            report.row(format!("{events} events: CPU"), all.cpu(kind), "µs");
            if kind > 0 {
                report.promised("  of 100 events", all.cpu_ratio(kind, 0), "×", 1.2);
            }
        }
        Ok(())
    }
}
