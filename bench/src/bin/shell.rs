//! What a call of the shell tool costs, against starting the same command: `shell [COMMAND]`.
//!
//! Wall time, since most of it is spent in other processes: each kind takes turns, and the median and the worst of each are printed. A turn
//! with a tool that does nothing is subtracted from the turns with the shell.
//!
//! Between two calls of an agent the model answers, which takes longer than to prepare the next command. So there is a pause before each
//! command, also before those that are started by hand. What calls without any pause take is printed as well.

use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, ConversationId, Conversations, Scope, TurnStatus};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::measure::median;
use turnbuckle_tools::{SandboxMode, Shell, ShellOptions};

const ROUNDS: usize = 200;
/// Much less than a model needs for an answer.
const PAUSE: Duration = Duration::from_millis(30);

fn main() -> Result<ExitCode, BoxError> {
    // Before anything else: the commands are started by this executable.
    if let Some(code) = turnbuckle_tools::watch_programs() {
        return Ok(code);
    }
    let command = std::env::args().nth(1).unwrap_or_else(|| "true".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(&command))?;
    Ok(ExitCode::SUCCESS)
}

fn agent(command: &str, sandbox: Option<SandboxMode>) -> Result<Conversations, BoxError> {
    let replies = [ScriptReply::calls("c", "shell", json!({ "command": command })), ScriptReply::says("done")];
    let builder = Agent::builder("bench", Script::of(replies).when_exhausted(OnExhausted::Error));
    let builder = match sandbox {
        Some(mode) => {
            let mut options = ShellOptions::in_folder(std::env::current_dir()?);
            options.sandbox = mode;
            builder.tool(Shell::new(options).without_approval())
        }
        None => {
            let schema = json!({ "type": "object" });
            let nothing = |_, _| async { Ok("done".to_owned()) };
            builder.tool(function_with_schema("shell", "Does nothing.", schema, Effect::Pure, nothing))
        }
    };
    Ok(Conversations::builder(builder.build()?, MemoryStore::default()).build())
}

async fn turn(conversations: &Conversations, number: usize) -> Result<f64, BoxError> {
    let id: ConversationId = format!("c_{number:04}").into();
    let began = Instant::now();
    match conversations.turn(&id, "go", Scope::local()).await? {
        TurnStatus::Ended(ended) if ended.is_completed() => Ok(began.elapsed().as_secs_f64() * 1e3),
        other => Err(format!("the turn did not complete: {other:?}").into()),
    }
}

fn bare(command: &str) -> Result<f64, BoxError> {
    let began = Instant::now();
    Command::new("/bin/sh").arg("-c").arg(command).stdin(Stdio::null()).output()?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

async fn measure(command: &str) -> Result<(), BoxError> {
    writeln!(std::io::stdout(), "{command:?}, median (worst) of {ROUNDS}")?;
    compare(command, "after a pause", PAUSE).await?;
    compare(command, "one right after the other", Duration::ZERO).await
}

async fn compare(command: &str, title: &str, pause: Duration) -> Result<(), BoxError> {
    let modes = [None, Some(SandboxMode::Off), Some(SandboxMode::On)];
    let agents: Vec<Conversations> = modes.iter().map(|mode| agent(command, *mode)).collect::<Result<_, _>>()?;
    let (mut spawned, mut turns) = (Vec::new(), vec![Vec::new(); agents.len()]);
    for round in 0..ROUNDS {
        std::thread::sleep(pause);
        spawned.push(bare(command)?);
        for (agent, times) in agents.iter().zip(&mut turns) {
            std::thread::sleep(pause);
            times.push(turn(agent, round).await?);
        }
    }
    let worst = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let (base, nothing) = (median(spawned.clone()), median(turns[0].clone()));
    let mut out = std::io::stdout();
    writeln!(out, "{title}:")?;
    writeln!(out, "  started by hand   {base:.2} ms ({:.2})", worst(&spawned))?;
    for (name, times) in [("without sandbox", &turns[1]), ("with sandbox", &turns[2])] {
        let (call, first) = (median(times.clone()) - nothing, times[0]);
        writeln!(
            out,
            "  {name:<17} {call:.2} ms ({:.2})   {:.2} ×   the first {first:.2} ms",
            worst(&times[1..]),
            call / base
        )?;
    }
    Ok(())
}
