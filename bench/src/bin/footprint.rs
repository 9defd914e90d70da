//! What a live conversation takes in memory. Prints one JSON object. `footprint [CONVERSATIONS]`, 10,000 if not said.
//!
//! A program of its own: the allocator counts. Needs about 120 KB of memory and of disk for each conversation.

use std::alloc::System;
use std::io::Write;
use std::time::Duration;

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use turnbuckle::event::{Event, EventKind};
use turnbuckle::message::Content;
use turnbuckle::models::{OnExhausted, Script};
use turnbuckle::store::Store;
use turnbuckle::{Agent, ConversationId, Conversations, Part, Scope};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::agents::calculator;
use turnbuckle_bench::long::Template;
use turnbuckle_bench::model::Instant;
use turnbuckle_stores::SqliteStore;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PROMISED: f64 = 1.15;
const EACH: f64 = 4096.0;

fn main() -> Result<(), BoxError> {
    let count: usize = std::env::args().nth(1).map_or(Ok(10_000), |count| count.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let talker =
        Agent::builder("talker", Script::says(["dolor sit amet ".repeat(270)]).when_exhausted(OnExhausted::Repeat))
            .build()?;
    let calculator = calculator(&Instant::default(), Vec::new())?;
    // As many events as a live conversation holds whose window of 32,000 tokens is full: 27,000 tokens beside reserve and margin.
    let kinds = [
        ("talk", &talker, 4_000, 51, Turns::ReadBack),
        ("tools", &calculator, 8_000, 119, Turns::ReadBack),
        // So many that no cut is made: then there is as much text in memory as in the log.
        ("talk, run here", &talker, 4_000, 24, Turns::RunHere),
        ("tools, run here", &calculator, 8_000, 56, Turns::RunHere),
    ];
    let mut figures = json!({ "conversations": count });
    for (name, agent, bytes, events, turns) in kinds {
        figures[name] = runtime.block_on(footprint(agent, (bytes, events), turns, count))?;
    }
    writeln!(std::io::stdout(), "{figures}")?;
    Ok(())
}

/// Where the turns of a conversation ran.
#[derive(Clone, Copy)]
enum Turns {
    /// In another process.
    ReadBack,
    RunHere,
}

/// Of one of so many conversations of so many events, whose turns begin with a message of so many bytes.
async fn footprint(
    agent: &Agent,
    (bytes, events): (usize, usize),
    turns: Turns,
    count: usize,
) -> Result<Value, BoxError> {
    let folder = tempfile::tempdir_in(std::env::var_os("BENCH_FOLDER").unwrap_or_else(|| ".".into()))?;
    let store = SqliteStore::open(folder.path().join("footprint.db"))?;
    let template = Template::of(agent, bytes).await?;
    let ids: Vec<_> = (0..count).map(|n| ConversationId::from(format!("c_{n}"))).collect();
    if let Turns::ReadBack = turns {
        for some in ids.chunks(100) {
            try_join_all(some.iter().map(|id| template.fill(&store, id, events))).await?;
        }
    }
    let conversations = Conversations::builder(agent.clone(), store.clone()).max_idle(2 * count).build();
    // What is made once is not one conversation's.
    let first = ids.first().ok_or("there are no conversations")?;
    let message = "lorem ipsum ".repeat(bytes / 12);
    let live = async |id: &ConversationId| -> Result<(), BoxError> {
        match turns {
            Turns::ReadBack => drop(conversations.resume(id, Scope::local()).await?),
            Turns::RunHere => {
                for _ in 0..events.div_ceil(template.len()) {
                    conversations.turn(id, message.clone(), Scope::local()).await?;
                }
            }
        }
        Ok(())
    };
    live(first).await?;
    let region = Region::new(COUNTED);
    for some in ids[1..].chunks(50) {
        try_join_all(some.iter().map(&live)).await?;
    }
    // Its driver gives the claim back after it answered.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let change = region.change();
    let bytes = (change.bytes_allocated as f64 - change.bytes_deallocated as f64) / (count - 1) as f64;
    if !store.cuts(first).await?.is_empty() {
        return Err("a cut was made, and the text that is in memory is not known".into());
    }
    let window = store.log(first, 1, usize::MAX).await?;
    let text: usize = window.iter().map(|event| text_of(event)).sum();
    let promised = PROMISED * text as f64 + EACH;
    Ok(json!({ "events": window.len(), "text": text, "bytes": bytes, "promised": promised, "kept": bytes <= promised }))
}

/// Bytes of what an event says.
fn text_of(event: &Event) -> usize {
    let of = |content: &Content| {
        let part = |part: &Part| match part {
            Part::Text { text } => text.len(),
            Part::Thinking(thought) => thought.text.len(),
            _ => 0,
        };
        content.parts().iter().map(part).sum::<usize>()
    };
    match &event.kind {
        EventKind::UserMessage { content, .. }
        | EventKind::Injection { content, .. }
        | EventKind::AssistantMessage { content, .. }
        | EventKind::ToolResult { content, .. } => of(content),
        EventKind::ToolCall { arguments, .. } => arguments.to_string().len(),
        _ => 0,
    }
}
