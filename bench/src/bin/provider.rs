//! What a provider's client costs: streams over loopback through it and a whole turn to the live plane, against a bare loop
//! that only reads the same bytes. `--json` for programs.
//!
//! The client runs on one thread, whose CPU time is what counts; the server has a thread of its own. The kinds take turns.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::{Agent, ConversationId, Conversations, Scope, TurnStatus};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::measure::{cpu_ns, median};
use turnbuckle_bench::report::Report;
use turnbuckle_bench::streams::{Pace, WORD, Wire, serve};
use turnbuckle_models::{Anthropic, OpenAi};

/// Chunks of a stream.
const CHUNKS: usize = 2_000;
/// Streams of each kind.
const ROUNDS: usize = 30;
/// Streams of one chunk, for the time to the first.
const FIRSTS: usize = 400;

fn main() -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut report = Report::default();
    for wire in [Wire::Anthropic, Wire::OpenAi] {
        for (pace, promise) in [(Pace::OneByOne, true), (Pace::Burst, false)] {
            let name = format!("{wire:?}, {}", if promise { "a write for each chunk" } else { "in a burst" });
            let bench = Bench::new(&runtime, wire, pace, CHUNKS)?;
            bench.chunks(&mut report, &name, promise)?;
        }
        Bench::new(&runtime, wire, Pace::OneByOne, 1)?.first(&mut report, wire)?;
    }
    let mut out = std::io::stdout();
    if std::env::args().any(|argument| argument == "--json") {
        writeln!(out, "{}", report.json())?;
    } else {
        report.print(&mut out)?;
    }
    Ok(())
}

struct Bench<'a> {
    runtime: &'a Runtime,
    url: String,
    client: reqwest::Client,
    agent: Agent,
}

impl<'a> Bench<'a> {
    fn new(runtime: &'a Runtime, wire: Wire, pace: Pace, chunks: usize) -> Result<Self, BoxError> {
        let url = serve(wire, pace, chunks)?;
        let agent = match wire {
            Wire::Anthropic => Agent::builder("a", Anthropic::at(&url, "bench", None)?).build()?,
            Wire::OpenAi => Agent::builder("a", OpenAi::at(&url, "bench", None)?).build()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build()?;
        Ok(Self { runtime, url, client, agent })
    }

    /// Only reads; gives back when the first byte of the body came.
    async fn bare(&self) -> Result<Instant, BoxError> {
        let mut response = self.client.post(&self.url).body("{}").send().await?;
        let mut first = None;
        while let Some(piece) = response.chunk().await? {
            first.get_or_insert_with(Instant::now);
            black_box(piece);
        }
        Ok(first.ok_or("nothing came")?)
    }

    /// A turn with one viewer; gives back when the viewer saw the first text, and how many bytes of it in all: what one read
    /// brings is told in one piece.
    async fn turn(&self) -> Result<(Instant, usize), BoxError> {
        let conversations = Conversations::in_memory(self.agent.clone());
        let id = ConversationId::from("c");
        let mut tail = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await?;
        let viewer = tokio::spawn(async move {
            let (mut first, mut bytes) = (None, 0);
            while let Some(told) = tail.next().await {
                match &told.item {
                    FeedItem::Live(LiveEvent::TextDelta { text, .. }) => {
                        first.get_or_insert_with(Instant::now);
                        bytes += text.len();
                    }
                    FeedItem::Log(event) if matches!(event.kind, turnbuckle::event::EventKind::TurnEnded(_)) => break,
                    _ => {}
                }
            }
            (first, bytes)
        });
        match conversations.turn(&id, "Speak.", Scope::local()).await? {
            TurnStatus::Ended(ended) if ended.is_completed() => {}
            other => return Err(format!("the turn did not complete: {other:?}").into()),
        }
        let (first, bytes) = viewer.await?;
        Ok((first.ok_or("nothing was told")?, bytes))
    }

    fn chunks(&self, report: &mut Report, name: &str, promise: bool) -> Result<(), BoxError> {
        let (mut bare, mut turns, mut walls) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(cpu_ns(self.runtime, self.bare())? / CHUNKS as f64);
            let began = Instant::now();
            let turn = async {
                let (said, (_, told)) = (CHUNKS * WORD.len(), self.turn().await?);
                if told == said { Ok(()) } else { Err(format!("{told} of {said} bytes were told").into()) }
            };
            turns.push(cpu_ns(self.runtime, turn)? / CHUNKS as f64);
            walls.push(CHUNKS as f64 / began.elapsed().as_secs_f64());
        }
        let (bare, turn) = (median(bare), median(turns));
        report.part(name);
        report.row("bare reqwest loop, CPU of a chunk", bare, "ns");
        report.row("client, turn, live plane and viewer, CPU of a chunk", turn, "ns");
        report.row("chunks a second, by the clock", median(walls), "chunks/s");
        match promise {
            true => report.promised("of the bare loop", turn / bare, "x", 2.0),
            false => report.row("of the bare loop", turn / bare, "x"),
        }
        Ok(())
    }

    fn first(&self, report: &mut Report, wire: Wire) -> Result<(), BoxError> {
        let (mut bare, mut turns) = (Vec::new(), Vec::new());
        let micros = |began: Instant, first: Instant| first.duration_since(began).as_nanos() as f64 / 1000.0;
        for _ in 0..FIRSTS {
            let began = Instant::now();
            bare.push(micros(began, self.runtime.block_on(self.bare())?));
            let began = Instant::now();
            turns.push(micros(began, self.runtime.block_on(self.turn())?.0));
        }
        let (bare, turn) = (median(bare), median(turns));
        report.part(format!("{wire:?}, time to the first piece, by the clock"));
        report.row("bare reqwest loop, first byte", bare, "us");
        report.row("turn, first text seen by a viewer", turn, "us");
        report.promised("added", turn - bare, "us", 1000.0);
        Ok(())
    }
}
