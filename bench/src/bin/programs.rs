//! What hooks in other programs cost: a command hook against starting the same program, fifty handlers at once, a worker's round
//! trip against a ping-pong of the same lines, and what a transformer in a worker adds to a chunk. `--json` for programs.
//!
//! What a hook costs is measured from outside: the time of a whole turn with it, from sending the message to the report, less that of
//! the same turn without it. The kinds take turns within one run, in another order each round, so that whatever else the machine does
//! meets all of them; medians and the slowest are shown. Programs are watched as in the `turnbuckle` program; what that adds to a
//! command hook is measured by this program again, started with `--unwatched`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::hook::{HookEntry, Point};
use turnbuckle::message::Reply;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxFuture, ConversationId, Conversations, Scope};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::measure::median;
use turnbuckle_bench::report::Report;
use turnbuckle_tools::claude::{ClaudePlaces, ClaudeSettings};
use turnbuckle_tools::{ClaudeHooks, CommandHook, CommandLine, CommandPoint, WorkerHook};

const ROUNDS: usize = 1000;
const WARM_UP: usize = 50;
const HANDLERS: usize = 50;
const SLEEP: Duration = Duration::from_millis(200);
const CHUNKS: usize = 300;
const CHUNK_TIME: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let is_unwatched = std::env::args().nth(1).is_some_and(|argument| argument == UNWATCHED);
    // Nothing may come before it, since the watching process is this program, too.
    if let Some(code) = (!is_unwatched).then(turnbuckle_tools::watch_programs).flatten() {
        return code;
    }
    match measure(is_unwatched) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nobody else to tell.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How this program is started to measure a command hook without the watcher.
const UNWATCHED: &str = "--unwatched";

fn measure(is_unwatched: bool) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let mut report = Report::default();
    if is_unwatched {
        let ratio = command_times(&runtime, folder.path())?.ratio();
        return Ok(writeln!(std::io::stdout(), "{}", json!({ "ratio": ratio }))?);
    }
    commands(&runtime, folder.path(), &mut report)?;
    handlers(&runtime, folder.path(), &mut report)?;
    workers(&runtime, folder.path(), &mut report)?;
    streams(&runtime, folder.path(), &mut report)?;
    let mut out = std::io::stdout();
    if std::env::args().any(|argument| argument == "--json") {
        writeln!(out, "{}", report.json())?;
    } else {
        report.print(&mut out)?;
    }
    Ok(())
}

/// An agent whose model calls `shell` once a turn, and then says that it is done.
fn agent(hook: Option<HookEntry>) -> Result<Agent, BoxError> {
    // A script counts the calls of each conversation by itself.
    let replies = (0..64).flat_map(|_| {
        [
            ScriptReply::calls("c1", "shell", json!({"command": "git push --force origin main"})),
            ScriptReply::says("done"),
        ]
    });
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let shell = function_with_schema("shell", "Runs.", schema, Effect::Pure, |_, _| async { Ok("ran") });
    let script = Script::of(replies).when_exhausted(OnExhausted::Repeat);
    let builder = Agent::builder("bench", script).tool(shell);
    Ok(hook.into_iter().fold(builder, turnbuckle::AgentBuilder::hook).build()?)
}

/// One turn of a new conversation, from the message to the report, in seconds.
async fn turn_time(conversations: &Conversations, id: String) -> Result<f64, BoxError> {
    let id = ConversationId::from(id.as_str());
    let began = Instant::now();
    let handle = conversations.send(&id, "go", Scope::local()).await?;
    handle.wait().await?;
    Ok(began.elapsed().as_secs_f64())
}

/// The times of turns with a hook and without it, and of what the hook is compared with. Round by round, in turns.
struct Compared {
    with: Vec<f64>,
    without: Vec<f64>,
    bare: Vec<f64>,
}

impl Compared {
    /// Takes `ROUNDS` of each; the first ones, which start programs and warm everything up, do not count.
    fn measure(
        runtime: &tokio::runtime::Runtime,
        hook: HookEntry,
        mut bare: impl FnMut() -> Result<f64, BoxError>,
    ) -> Result<Self, BoxError> {
        let of =
            |hook| -> Result<_, BoxError> { Ok(Conversations::builder(agent(hook)?, MemoryStore::default()).build()) };
        let (hooked, unhooked) = (of(Some(hook))?, of(None)?);
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..ROUNDS + WARM_UP {
            for place in 0..3 {
                let kind = (round + place) % 3;
                let took = match kind {
                    0 => runtime.block_on(turn_time(&hooked, format!("w{round}")))?,
                    1 => runtime.block_on(turn_time(&unhooked, format!("o{round}")))?,
                    _ => bare()?,
                };
                if round >= WARM_UP {
                    times[kind].push(took);
                }
            }
        }
        let [with, without, bare] = times;
        Ok(Self { with, without, bare })
    }

    /// What the hook adds to a turn, round by round.
    fn added(&self) -> Vec<f64> {
        self.with.iter().zip(&self.without).map(|(with, without)| with - without).collect()
    }

    fn ratio(&self) -> f64 {
        (median(self.with.clone()) - median(self.without.clone())) / median(self.bare.clone())
    }
}

/// What a hook left as its record says.
async fn hook_time(conversations: &Conversations, id: &ConversationId, hook: &str) -> Result<f64, BoxError> {
    let handle = conversations.send(id, "go", Scope::local()).await?;
    let turn = handle.turn().clone();
    handle.wait().await?;
    let records = conversations.records(id, &turn, Scope::local()).await?;
    let took = records.iter().find(|record| *record.hook == *hook).map(|record| record.took);
    Ok(took.ok_or("the hook left no record")?.as_secs_f64())
}

/// The line that a command hook is given, nearly.
const INPUT: &str = r#"{"conversation":"c","turn":"t_1","cwd":"/","hook_event_name":"PreToolUse","agent":"bench","permission_mode":"headless","tool_name":"shell","tool_input":{"command":"git push --force origin main"},"tool_use_id":"c1"}"#;

/// Starts the program as the standard library does (posix_spawn), with three pipes, and reads what it says.
fn spawned() -> Result<f64, BoxError> {
    let began = Instant::now();
    let mut child =
        Command::new("/bin/true").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // It need not read it.
        let _ = writeln!(stdin, "{INPUT}");
    }
    let mut said = Vec::new();
    child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut said)).transpose()?;
    child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut said)).transpose()?;
    child.wait()?;
    Ok(began.elapsed().as_secs_f64())
}

/// Adds the median and the slowest of some times, in seconds.
fn times(report: &mut Report, what: &str, times: &[f64]) {
    let slowest = times.iter().copied().fold(f64::NAN, f64::max);
    report.row(what, median(times.to_vec()) * 1e6, "µs");
    report.row(format!("{what}, the slowest"), slowest * 1e6, "µs");
}

/// A command hook that runs `/bin/true`, and the same program started without it.
fn command_times(runtime: &tokio::runtime::Runtime, folder: &Path) -> Result<Compared, BoxError> {
    let line = CommandLine::Argv(vec!["/bin/true".into()]);
    let hook = CommandHook::new("true", CommandPoint::BeforeTool, line, folder);
    Compared::measure(runtime, hook.into(), spawned)
}

fn commands(runtime: &tokio::runtime::Runtime, folder: &Path, report: &mut Report) -> Result<(), BoxError> {
    let compared = command_times(runtime, folder)?;
    let unwatched = Command::new(std::env::current_exe()?).arg(UNWATCHED).stderr(Stdio::inherit()).output()?;
    let unwatched: Value = serde_json::from_slice(&unwatched.stdout)?;
    report.part("a command hook");
    times(report, "posix_spawn of /bin/true, pipes and wait", &compared.bare);
    times(report, "a turn without a hook", &compared.without);
    times(report, "the turn with a command hook that runs it", &compared.with);
    times(report, "the hook adds", &compared.added());
    report.promised("ratio", compared.ratio(), "×", 1.2);
    report.promised("ratio without the watcher", unwatched["ratio"].as_f64().unwrap_or(f64::NAN), "×", 1.2);
    let handler = json!({"type": "command", "command": "/bin/true", "args": []});
    let compared = Compared::measure(runtime, claude_hook(&folder.join("one"), &[handler])?, spawned)?;
    report.part("a Claude-style handler that runs it: the transcript is written before");
    times(report, "the hook adds", &compared.added());
    report.row("ratio", compared.ratio(), "×");
    Ok(())
}

/// A Claude-style hook with these handlers at `PreToolUse`.
fn claude_hook(project: &Path, handlers: &[Value]) -> Result<HookEntry, BoxError> {
    std::fs::create_dir_all(project.join(".claude"))?;
    let settings = json!({"hooks": {"PreToolUse": [{"hooks": handlers}]}});
    std::fs::write(project.join(".claude/settings.json"), settings.to_string())?;
    let project = project.to_owned();
    let places =
        ClaudePlaces { project: project.clone(), reads_project: true, home: None, managed: None, plugins: Vec::new() };
    Ok(ClaudeHooks::new(ClaudeSettings::load(&places), &project, project.join(".turnbuckle")).into())
}

fn handlers(runtime: &tokio::runtime::Runtime, folder: &Path, report: &mut Report) -> Result<(), BoxError> {
    let command = format!("sleep {}", SLEEP.as_secs_f64());
    // Each is another command: the same one would run once.
    let all: Vec<Value> =
        (0..HANDLERS).map(|n| json!({"type": "command", "command": format!("{command} # {n}")})).collect();
    let hook = claude_hook(&folder.join("handlers"), &all)?;
    let conversations = Conversations::builder(agent(Some(hook))?, MemoryStore::default()).build();
    let id = ConversationId::from("c");
    let (mut together, mut alone, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        together.push(runtime.block_on(hook_time(&conversations, &id, "claude"))?);
        let began = Instant::now();
        Command::new("sh").args(["-c", &command]).status()?;
        alone.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        let all: Vec<_> = (0..HANDLERS)
            .map(|_| Command::new("sh").args(["-c", &command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn())
            .collect::<Result<_, _>>()?;
        for mut child in all {
            child.wait()?;
        }
        bare.push(began.elapsed().as_secs_f64());
    }
    let slowest = together.iter().copied().fold(f64::NAN, f64::max);
    let (together, alone, bare) = (median(together), median(alone), median(bare));
    report.part(format!("{HANDLERS} handlers at once, each `{command}`"));
    report.row("one alone, without a hook", alone * 1e3, "ms");
    report.row("all together, without a hook", bare * 1e3, "ms");
    report.row("all together, as handlers", together * 1e3, "ms");
    report.row("all together, as handlers, the slowest round", slowest * 1e3, "ms");
    report.row("beyond the slowest handler, for each start", (together - alone) / HANDLERS as f64 * 1e3, "ms");
    Ok(())
}

const PING_PONG: &str = "import json,sys\nfor line in sys.stdin:\n    m=json.loads(line)\n    sys.stdout.write(json.dumps({'jsonrpc':'2.0','id':m['id'],'result':{'decision':'continue'}})+'\\n')\n    sys.stdout.flush()\n";
const WORKER: &str = "from turnbuckle_hooks import deny, hook, run\n@hook('before_tool', tools=['shell'])\nasync def no_force_push(turn, call):\n    if 'push --farce' in call.arguments['command']:\n        return deny('x')\nrun()\n";

fn python(folder: &Path, script: &str) -> Result<CommandLine, BoxError> {
    std::fs::write(folder.join("hooks.py"), script)?;
    let sdk = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../sdk/python/src");
    Ok(CommandLine::Shell(format!("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='{}' exec python3 hooks.py", sdk.display())))
}

fn workers(runtime: &tokio::runtime::Runtime, folder: &Path, report: &mut Report) -> Result<(), BoxError> {
    let hook = WorkerHook::new("worker", [Point::BeforeTool], python(folder, WORKER)?, folder)?;
    std::fs::write(folder.join("pong.py"), PING_PONG)?;
    let mut pong =
        Command::new("python3").arg(folder.join("pong.py")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = pong.stdin.take().ok_or("no stdin")?;
    let mut stdout = BufReader::new(pong.stdout.take().ok_or("no stdout")?);
    let turn = json!({"conversation": "c", "id": "t_1", "agent": "bench", "parent_agent": null, "permission_mode": "headless",
        "actor": {"user": "local"}, "user_message": [{"type": "text", "text": "go"}], "stop_active": false, "touched": []});
    let call = json!({"id": "c1", "name": "shell", "arguments": {"command": "git push --force origin main"}});
    let mut round = 0;
    let play = || {
        round += 1;
        let request = json!({"jsonrpc": "2.0", "id": round, "method": "before_tool", "params": {"turn": turn, "call": call, "hook": "no_force_push"}});
        // Written at once: the program wakes up once.
        let request = format!("{request}\n");
        let began = Instant::now();
        stdin.write_all(request.as_bytes())?;
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let _answer: Value = serde_json::from_str(&line)?;
        Ok(began.elapsed().as_secs_f64())
    };
    let compared = Compared::measure(runtime, hook.into(), play)?;
    drop(stdin);
    pong.wait()?;
    report.part("a worker in Python");
    times(report, "ping-pong of the same lines, in Python", &compared.bare);
    times(report, "a turn without a hook", &compared.without);
    times(report, "the turn with before_tool in a worker", &compared.with);
    times(report, "the hook adds", &compared.added());
    report.promised("ratio", compared.ratio(), "×", 3.0);
    Ok(())
}

/// Says a chunk every 10 ms, and notes when.
#[derive(Clone, Default)]
struct Steady(Arc<Mutex<Vec<Instant>>>);

impl Model for Steady {
    fn stream<'a>(&'a self, _: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            for number in 0..CHUNKS {
                tokio::time::sleep(CHUNK_TIME).await;
                self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                out.text(&format!("chunk {number} "));
            }
            let text: String = (0..CHUNKS).map(|number| format!("chunk {number} ")).collect();
            Ok(Reply { content: text.into(), ..Reply::default() })
        })
    }
}

/// The time from each chunk to its delta, in seconds.
async fn delays(hook: Option<HookEntry>) -> Result<Vec<f64>, BoxError> {
    let model = Steady::default();
    let said = model.0.clone();
    let builder = Agent::builder("bench", model);
    let agent = hook.into_iter().fold(builder, turnbuckle::AgentBuilder::hook).build()?;
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let id = ConversationId::from("c");
    let handle = conversations.send(&id, "go", Scope::local()).await?;
    let mut viewer = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await?;
    let mut delays = Vec::new();
    let mut seen = 0;
    while let Some(event) = viewer.next().await {
        match event.item {
            FeedItem::Live(LiveEvent::TextDelta { text, .. }) => {
                let now = Instant::now();
                let chunks = text.matches("chunk ").count();
                let said = said.lock().unwrap_or_else(PoisonError::into_inner);
                for number in seen..seen + chunks {
                    delays.extend(said.get(number).map(|said| now.duration_since(*said).as_secs_f64()));
                }
                seen += chunks;
            }
            FeedItem::Log(logged) if matches!(logged.kind, turnbuckle::event::EventKind::TurnEnded(_)) => break,
            _ => {}
        }
    }
    handle.wait().await?;
    Ok(delays)
}

const TRANSFORMER: &str =
    "from turnbuckle_hooks import hook, run\n@hook('stream')\ndef same(text):\n    return text\nrun()\n";

fn streams(runtime: &tokio::runtime::Runtime, folder: &Path, report: &mut Report) -> Result<(), BoxError> {
    let bare = runtime.block_on(delays(None))?;
    let hook = WorkerHook::new("worker", [Point::Stream], python(folder, TRANSFORMER)?, folder)?;
    let mut through = runtime.block_on(delays(Some(hook.into())))?;
    // The first chunks wait for the program to start.
    through.drain(..through.len().min(CHUNKS / 3));
    report.part("a transformer in a worker, at 100 chunks a second");
    times(report, "from the model to the viewer without it", &bare);
    times(report, "with it", &through);
    report.row("it adds", (median(through) - median(bare)) * 1e6, "µs");
    Ok(())
}
