//! What the audit adds to a durable turn: `audit [--json]`.
//!
//! Three conversations of 200 turns go on beside each other on SQLite, a turn each in every round: one without an audit, one with,
//! and one with an audit that may have no more than the requests of 50 turns, so that old ones go. Each turn has two model calls and
//! a tool whose result has 2 KB. Wall time and the CPU time of the whole process are compared round by round; bytes are those of
//! the stored texts, and of the files after both were closed.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant as Clock;

use cpu_time::ProcessTime;
use rusqlite::Connection;
use serde_json::json;
use turnbuckle::audit::{AuditLimits, AuditOptions};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, ConversationId, Conversations, Scope, TurnStatus};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::measure::median;
use turnbuckle_bench::model::Instant;
use turnbuckle_bench::report::Report;
use turnbuckle_hooks::Redact;
use turnbuckle_stores::SqliteStore;

const TURNS: usize = 200;
/// Bytes of a tool's result.
const RESULT: usize = 2_000;

/// How many requests the audit that is full may have: those of 50 turns.
const MOST_CALLS: u64 = 100;

/// Wall and CPU time of a turn without audit, of one with it, and of one with an audit that is full.
type Round = [(f64, f64); 3];

fn agent() -> Result<Agent, BoxError> {
    let number = json!({"type": "integer"});
    let schema = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
    let add = function_with_schema("add", "Adds two numbers.", schema, Effect::Pure, |_, arguments| async move {
        let sum = arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0);
        Ok(format!("{sum} {}", "as the table of sums says, ".repeat(RESULT / 27)))
    });
    Ok(Agent::builder("calculator", Instant::default()).system("You are a careful calculator.").tool(add).build()?)
}

async fn turn(conversations: &Conversations, number: usize) -> Result<(f64, f64), BoxError> {
    let (wall, cpu) = (Clock::now(), ProcessTime::try_now()?);
    let message = format!("What is two and three? I ask for the {number}th time.");
    match conversations.turn(&ConversationId::from("c"), message, Scope::local()).await? {
        TurnStatus::Ended(ended) if ended.is_completed() => {}
        other => return Err(format!("the turn did not complete: {other:?}").into()),
    }
    let micros = |time: std::time::Duration| time.as_nanos() as f64 / 1000.0;
    Ok((micros(wall.elapsed()), micros(cpu.try_elapsed()?)))
}

fn sum(file: &Path, query: &str) -> Result<f64, BoxError> {
    let bytes: i64 = Connection::open(file)?.query_row(query, [], |row| row.get(0))?;
    Ok(bytes as f64)
}

/// The mean over the second half of the rounds, in which the audit with few calls is full. Requests go several at once, so a median
/// would not show what that takes.
fn mean(rounds: &[Round], number: fn(&Round) -> f64) -> f64 {
    let late = &rounds[rounds.len() / 2..];
    late.iter().map(number).sum::<f64>() / late.len() as f64
}

fn main() -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let folder = tempfile::tempdir_in(std::env::var_os("BENCH_FOLDER").unwrap_or_else(|| ".".into()))?;
    let [plain, audited, full] = ["plain.db", "audited.db", "full.db"].map(|name| folder.path().join(name));
    let redact = Arc::new(Redact::builder().keys().marked().build()?);
    let options = |limits: AuditLimits| {
        let redact = redact.clone();
        AuditOptions::new(limits, move |text| match redact.apply(text) {
            std::borrow::Cow::Owned(redacted) => Some(redacted),
            std::borrow::Cow::Borrowed(_) => None,
        })
    };
    let few = AuditLimits { calls: MOST_CALLS, ..AuditLimits::default() };
    let mut rounds: Vec<Round> = Vec::new();
    runtime.block_on(async {
        let without = Conversations::builder(agent()?, SqliteStore::open(&plain)?).build();
        let with = |file: &Path, limits: AuditLimits| {
            Ok::<_, BoxError>(Conversations::builder(agent()?, SqliteStore::open(file)?).audit(options(limits)).build())
        };
        let (with, at_limit) = (with(&audited, AuditLimits::default())?, with(&full, few)?);
        for number in 0..TURNS {
            rounds.push([turn(&without, number).await?, turn(&with, number).await?, turn(&at_limit, number).await?]);
        }
        for conversations in [without, with, at_limit] {
            conversations.drain(std::time::Duration::from_secs(10)).await;
        }
        Ok::<_, BoxError>(())
    })?;
    drop(runtime);
    let of = |number: fn(&Round) -> f64| median(rounds.iter().map(number).collect());
    let mut report = Report::default();
    report.part(format!("{TURNS} turns on SQLite, 2 model calls and a result of {RESULT} bytes each"));
    report.row("a turn", of(|round| round[0].0), "µs");
    report.row("a turn with audit", of(|round| round[1].0), "µs");
    report.row("a turn with an audit that is full", mean(&rounds, |round| round[2].0), "µs, mean");
    report.row("CPU: a turn", of(|round| round[0].1), "µs");
    report.row("CPU: a turn with audit", of(|round| round[1].1), "µs");
    report.row("  of a turn without", of(|round| round[1].1 / round[0].1), "×");
    report.row("CPU: a turn with an audit that is full", mean(&rounds, |round| round[2].1), "µs, mean");
    report.row("  the mean of one with audit", mean(&rounds, |round| round[1].1), "µs");
    let log = sum(&audited, "SELECT sum(length(CAST(body AS BLOB))) FROM event")?;
    let contents = sum(&audited, "SELECT sum(length(CAST(body AS BLOB)) + length(digest)) FROM audit_content")?;
    let calls = sum(&audited, "SELECT sum(length(CAST(body AS BLOB))) FROM audit_call")?;
    report.part("bytes");
    report.row("the log", log / 1024.0, "KiB");
    report.row("the audit, texts and digests", (contents + calls) / 1024.0, "KiB");
    report.row("  of the log", (contents + calls) / log, "×");
    let size = |file: &Path| Ok::<_, BoxError>(std::fs::metadata(file)?.len() as f64);
    report.row("the file without audit", size(&plain)? / 1024.0, "KiB");
    report.row("the file with audit", size(&audited)? / 1024.0, "KiB");
    let mut out = std::io::stdout();
    match std::env::args().any(|argument| argument == "--json") {
        true => writeln!(out, "{}", report.json())?,
        false => report.print(&mut out)?,
    }
    Ok(())
}
