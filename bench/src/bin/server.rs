//! What the server adds to a turn, and what viewers cost it. `server [first] [viewers] [conversations] [idle] [page] [start]`, all if not said.
//!
//! The server is a process of its own (this executable), so that its memory and CPU are its own. Viewers are sockets of this process. Each
//! viewer counts every chunk that it is sent: one that was told `lagged` has lost some.

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::models::Script;
use turnbuckle::{Agent, ConversationId, Conversations, Scope};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::measure::median;
use turnbuckle_server::{Server, ServerLimits};

/// What each chunk has once, and nothing else that is sent.
const MARK: char = '@';
/// The first argument of the server.
const SERVE: &str = "serve";

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let [first, chunks, delay] = &arguments[..]
        && first == SERVE
    {
        return runtime.block_on(serve(chunks.parse()?, delay.parse()?));
    }
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|one| one == name);
    runtime.block_on(async {
        if wanted("first") {
            first(300).await?;
        }
        if wanted("viewers") {
            viewers(1_000, 300, 10).await?;
        }
        if wanted("conversations") {
            conversations(1_000, 30, 100).await?;
        }
        if wanted("idle") {
            idle(10_000).await?;
        }
        if wanted("page") {
            page().await?;
        }
        if wanted("start") {
            start(10).await?;
        }
        Ok(())
    })
}

/// Replies of so many chunks, so many milliseconds apart.
fn talker(chunks: usize, delay: u64) -> Result<Conversations, BoxError> {
    let reply = json!({ "chunks": vec![format!("word{MARK} "); chunks], "delay_ms": delay });
    let script = json!({ "on_exhausted": "repeat", "replies": [reply] });
    let agent = Agent::builder("talker", Script::from_json(&script.to_string())?).build()?;
    Ok(Conversations::in_memory(agent))
}

async fn serve(chunks: usize, delay: u64) -> Result<(), BoxError> {
    let mut limits = ServerLimits::default();
    (limits.requests_per_second, limits.burst) = (1_000_000, 1_000_000);
    (limits.streams_per_caller, limits.streams) = (100_000, 100_000);
    let server = Server::builder(talker(chunks, delay)?).limits(limits).build()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    server.serve(listener, std::future::pending()).await?;
    Ok(())
}

/// A server that runs. It is killed in the end.
struct Serving {
    child: Child,
    address: SocketAddr,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Serving {
    fn begin(chunks: usize, delay: u64) -> Result<Self, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        let command = command.args([SERVE, &chunks.to_string(), &delay.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }

    /// What it has used of the processors, in seconds. The kernel counts in hundredths.
    fn cpu(&self) -> Result<f64, BoxError> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks: Option<(f64, f64)> =
            fields.get(11).zip(fields.get(12)).and_then(|(user, system)| user.parse().ok().zip(system.parse().ok()));
        ticks.map(|(user, system)| (user + system) / 100.0).ok_or_else(|| "no times".into())
    }

    /// What it has in memory, in KiB.
    fn memory(&self) -> Result<f64, BoxError> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// Everything that is answered. HTTP/1.0, so that it comes as it is and ends with the connection.
    async fn ask(&self, method: &str, path: &str, header: &str, body: &str) -> Result<Vec<u8>, BoxError> {
        let mut stream = self.open(method, path, header, body).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        match answer.starts_with(b"HTTP/1.0 2") {
            true => Ok(answer),
            false => Err(String::from_utf8_lossy(&answer).into_owned().into()),
        }
    }

    async fn open(&self, method: &str, path: &str, header: &str, body: &str) -> Result<TcpStream, BoxError> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (host, length) = (self.address, body.len());
        let head = format!("{method} {path} HTTP/1.0\r\nhost: {host}\r\n{header}content-length: {length}\r\n");
        stream.write_all(format!("{head}content-type: application/json\r\n\r\n{body}").as_bytes()).await?;
        Ok(stream)
    }

    async fn create(&self, id: &str) -> Result<(), BoxError> {
        self.ask("POST", "/v1/conversations", "", &json!({ "id": id }).to_string()).await.map(drop)
    }

    async fn send(&self, id: &str) -> Result<(), BoxError> {
        let path = format!("/v1/conversations/{id}/messages");
        self.ask("POST", &path, "", r#"{"content":"go"}"#).await.map(drop)
    }

    /// Opens a stream, and waits until it has begun.
    async fn watch(&self, id: &str) -> Result<Viewer, BoxError> {
        let stream = self.open("GET", &format!("/v1/conversations/{id}/events"), "", "").await?;
        let mut viewer = Viewer { lines: BufReader::with_capacity(4_096, stream), line: String::new() };
        while !viewer.next().await?.starts_with("id: ") {}
        Ok(viewer)
    }
}

struct Viewer {
    lines: BufReader<TcpStream>,
    line: String,
}

impl Viewer {
    async fn next(&mut self) -> Result<&str, BoxError> {
        self.line.clear();
        match self.lines.read_line(&mut self.line).await? {
            0 => Err("the stream ended".into()),
            _ => Ok(&self.line),
        }
    }

    /// How many chunks came until the turn was over.
    async fn chunks(mut self) -> Result<usize, BoxError> {
        let mut chunks = 0;
        loop {
            let line = self.next().await?;
            if line.starts_with("event: turn_ended") {
                return Ok(chunks);
            }
            if line.starts_with("data: ") && line.contains("\"type\":\"text_delta\"") {
                chunks += line.matches(MARK).count();
            }
        }
    }
}

fn say(what: &str, value: &str) -> Result<(), BoxError> {
    Ok(writeln!(std::io::stdout(), "{what:<58}{value}")?)
}

fn worst(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

/// From a message to the first piece of its reply: in one process, and over the server.
async fn first(rounds: usize) -> Result<(), BoxError> {
    let (here, there) = (talker(1, 0)?, Serving::begin(1, 0)?);
    let (mut inside, mut over) = (Vec::new(), Vec::new());
    // The first rounds warm up both.
    for round in 0..rounds + 20 {
        let id = here.create(Some(ConversationId::from(format!("c{round}"))), &Scope::local()).await?;
        let mut feed = here.subscribe(&id, Delivery::Lossy, Scope::local()).await?;
        let began = Instant::now();
        let turn = here.send(&id, "go", Scope::local()).await?;
        while let Some(event) = feed.next().await {
            if matches!(event.item, FeedItem::Live(LiveEvent::TextDelta { .. })) {
                break;
            }
        }
        inside.push(began.elapsed().as_secs_f64() * 1e3);
        turn.wait().await?;

        let id = format!("c{round}");
        there.create(&id).await?;
        let mut viewer = there.watch(&id).await?;
        let began = Instant::now();
        let sending = there.send(&id);
        let seeing = async {
            while !viewer.next().await?.contains("\"type\":\"text_delta\"") {}
            Ok(began.elapsed().as_secs_f64() * 1e3)
        };
        let (_, seen) = tokio::try_join!(sending, seeing)?;
        over.push(seen);
    }
    let (inside, over) = (inside.split_off(20), over.split_off(20));
    let (base, with) = (median(inside.clone()), median(over.clone()));
    say("message to first piece, in one process", &format!("{base:.3} ms, worst {:.3}", worst(&inside)))?;
    say("message to first byte at a viewer of the server", &format!("{with:.3} ms, worst {:.3}", worst(&over)))?;
    say("the server adds", &format!("{:.3} ms ({:.1} ×)", with - base, with / base))
}

/// Many viewers of one conversation.
async fn viewers(count: usize, chunks: usize, delay: u64) -> Result<(), BoxError> {
    let serving = Serving::begin(chunks, delay)?;
    serving.create("c").await?;
    // What the first ones cost once is not counted.
    let first = try_join_all((0..20).map(|_| serving.watch("c"))).await?;
    let memory = serving.memory()?;
    let mut all = first;
    for _ in 0..count / 100 {
        all.extend(try_join_all((0..100).map(|_| serving.watch("c"))).await?);
    }
    let each = (serving.memory()? - memory) / count as f64;
    say(&format!("memory of an idle stream, of {count}"), &format!("{each:.1} KiB"))?;
    let (viewers, cpu, began) = (all.len(), serving.cpu()?, Instant::now());
    let watching: Vec<_> = all
        .into_iter()
        .map(|viewer| tokio::spawn(async { viewer.chunks().await.map_err(|error| error.to_string()) }))
        .collect();
    serving.send("c").await?;
    let seen = try_join_all(watching).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (took, cpu) = (began.elapsed().as_secs_f64(), serving.cpu()? - cpu);
    let lost: usize = seen.iter().map(|seen| chunks.abs_diff(*seen)).sum();
    say(&format!("{viewers} viewers of {chunks} chunks, {} a second: lost", 1_000 / delay), &lost.to_string())?;
    say("  time, against the model's own", &format!("{:.2} ×", took / (chunks as f64 * delay as f64 / 1e3)))?;
    say("  CPU for each event and viewer", &format!("{:.1} µs", cpu * 1e6 / (chunks * viewers) as f64))
}

/// Many conversations with one viewer each.
async fn conversations(count: usize, chunks: usize, delay: u64) -> Result<(), BoxError> {
    let serving = Serving::begin(chunks, delay)?;
    let ids: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
    serving.create("warm").await?;
    drop(serving.watch("warm").await?);
    let memory = serving.memory()?;
    let mut all = Vec::new();
    for some in ids.chunks(100) {
        try_join_all(some.iter().map(|id| serving.create(id))).await?;
        all.extend(try_join_all(some.iter().map(|id| serving.watch(id))).await?);
    }
    let each = (serving.memory()? - memory) / count as f64;
    say(&format!("memory of a conversation with an idle stream, of {count}"), &format!("{each:.1} KiB"))?;
    let (cpu, began) = (serving.cpu()?, Instant::now());
    let watching: Vec<_> = all
        .into_iter()
        .map(|viewer| tokio::spawn(async { viewer.chunks().await.map_err(|error| error.to_string()) }))
        .collect();
    for some in ids.chunks(100) {
        try_join_all(some.iter().map(|id| serving.send(id))).await?;
    }
    let seen = try_join_all(watching).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (took, cpu) = (began.elapsed().as_secs_f64(), serving.cpu()? - cpu);
    let lost: usize = seen.iter().map(|seen| chunks.abs_diff(*seen)).sum();
    say(&format!("{count} conversations, {} chunks a second each: lost", 1_000 / delay), &lost.to_string())?;
    say("  time, against the model's own", &format!("{:.2} ×", took / (chunks as f64 * delay as f64 / 1e3)))?;
    say("  CPU for each chunk, its turn included", &format!("{:.1} µs", cpu * 1e6 / (chunks * count) as f64))
}

/// Streams on which nothing happens.
async fn idle(count: usize) -> Result<(), BoxError> {
    let serving = Serving::begin(1, 0)?;
    serving.create("c").await?;
    let health = async || -> Result<f64, BoxError> {
        let mut times = Vec::new();
        for _ in 0..200 {
            let began = Instant::now();
            serving.ask("GET", "/healthz", "", "").await?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(times))
    };
    let (before, memory) = (health().await?, serving.memory()?);
    let mut all = Vec::new();
    for _ in 0..count / 100 {
        all.extend(try_join_all((0..100).map(|_| serving.watch("c"))).await?);
    }
    let each = (serving.memory()? - memory) / count as f64;
    let with = health().await?;
    say(&format!("{count} idle streams: memory of each"), &format!("{each:.1} KiB"))?;
    say("  another request, against one before they came", &format!("{:.2} ×", with / before))?;
    // Long enough for a heartbeat to each.
    let cpu = serving.cpu()?;
    tokio::time::sleep(Duration::from_secs(16)).await;
    say("  CPU of 16 s, with a heartbeat to each", &format!("{:.0} ms", (serving.cpu()? - cpu) * 1e3))
}

/// What a browser loads before the list of conversations can be used.
async fn page() -> Result<(), BoxError> {
    let serving = Serving::begin(1, 0)?;
    let gzip = "accept-encoding: gzip\r\n";
    let plain = String::from_utf8(serving.ask("GET", "/", "", "").await?)?;
    let files = plain.split('"').filter(|part| part.starts_with("/page/page-"));
    let mut bytes = serving.ask("GET", "/", gzip, "").await?.len();
    for file in files {
        bytes += serving.ask("GET", file, gzip, "").await?.len();
    }
    say("bytes of the page with its files, compressed", &format!("{:.1} KB", bytes as f64 / 1e3))
}

/// From starting `turnbuckle serve` until `/readyz` says yes, against the program's least.
async fn start(rounds: usize) -> Result<(), BoxError> {
    let program = std::env::current_exe()?.with_file_name("turnbuckle");
    if !program.exists() {
        return say("cold start", "not measured: the program is not built beside this one");
    }
    let folder = tempfile::tempdir()?;
    let (mut least, mut ready) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        command(&program, folder.path()).arg("--version").stdout(Stdio::null()).status()?;
        least.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        let mut serve = command(&program, folder.path());
        let serve = serve.args(["serve", "--listen", "127.0.0.1:0", "--model", "demo"]);
        let mut child = serve.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let errors = child.stderr.take().ok_or("no pipe")?;
        let mut lines = std::io::BufReader::new(errors).lines();
        let address = loop {
            let line = lines.next().ok_or("the program ended")??;
            if let Some(address) = line.strip_prefix("listening on http://") {
                break address.trim().parse()?;
            }
        };
        let serving = Serving { child, address };
        serving.ask("GET", "/readyz", "", "").await?;
        ready.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let (base, with) = (median(least), median(ready.clone()));
    say(
        "cold start of serve until it is ready",
        &format!("{with:.1} ms, worst {:.1}; {:.1} × of --version", worst(&ready), with / base),
    )
}

fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env_clear().env("HOME", folder);
    command
}
