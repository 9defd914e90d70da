//! The measured turn with one ready-made hook, so many times: `hook NAME COUNT`; `hook --list` names them.
//!
//! `bench/hooks` runs it under callgrind, which counts this thread only, inside [`measured`]: the turn, what runs beside
//! it, and what runs after it. Work on other threads (a file, a database, a socket) is not in it.

use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use turnbuckle::id::CountingIds;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::PausedClock;
use turnbuckle::{Agent, ConversationId, Conversations, Scope, TurnStatus};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::agents::calculator;
use turnbuckle_bench::batch::MESSAGE;
use turnbuckle_bench::measure::runtime;
use turnbuckle_bench::model::Instant;
use turnbuckle_bench::ready_made::ROWS;

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--list"] {
        let mut out = std::io::stdout();
        return Ok(ROWS.iter().try_for_each(|row| writeln!(out, "{}", row.name))?);
    }
    let [name, count] = &arguments[..] else { return Err("usage: hook NAME COUNT".into()) };
    let row = ROWS.iter().find(|row| row.name == *name).ok_or_else(|| format!("there is no row {name}"))?;
    let folder = tempfile::tempdir()?;
    let hooks = (row.make)(folder.path())?.into_iter().collect();
    let agent = calculator(&Instant::default(), hooks)?;
    let (runtime, count) = (runtime()?, count.parse()?);
    runtime.block_on(turns(&agent, "warm", 10, row.same))?;
    measured(&runtime, turns(&agent, "c", count, row.same))
}

/// Each the first of a new conversation, to the end of what runs beside and after it.
async fn turns(agent: &Agent, prefix: &str, count: usize, same: bool) -> Result<(), BoxError> {
    let builder = Conversations::builder(agent.clone(), MemoryStore::default());
    let conversations = builder.clock(Arc::new(PausedClock::default())).ids(Arc::new(CountingIds::default())).build();
    for number in 0..count {
        let id: ConversationId = format!("{prefix}_{number:04}").into();
        let message = if same { MESSAGE.to_owned() } else { format!("{MESSAGE} {prefix} {number:04}") };
        match conversations.turn(&id, message, Scope::local()).await? {
            TurnStatus::Ended(ended) if ended.is_completed() => {}
            other => return Err(format!("the turn did not complete: {other:?}").into()),
        }
        conversations.drain(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// What is counted, by this name: nothing before and nothing after.
#[inline(never)]
fn measured(runtime: &Runtime, work: impl Future<Output = Result<(), BoxError>>) -> Result<(), BoxError> {
    std::hint::black_box(runtime.block_on(work))
}
