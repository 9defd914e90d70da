//! What a call of an MCP tool costs, against the same call with the bare client of `rmcp`.
//!
//! Both speak to a server of this executable over pipes. Wall time, since a part of it is spent in the server: each kind takes turns, and the median
//! and the worst of each are printed. A turn with a tool that does nothing is subtracted from the turns with the MCP tool.

use std::io::{BufRead as _, Write as _};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder, ConversationId, Conversations, Scope, TurnStatus};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::measure::median;
use turnbuckle_mcp::{McpServer, ServerOptions};

const ROUNDS: usize = 2000;
/// The first argument of the server.
const SERVER: &str = "server";

fn main() -> Result<ExitCode, BoxError> {
    if let Some(code) = turnbuckle_tools::watch_programs() {
        return Ok(code);
    }
    if std::env::args().nth(1).as_deref() == Some(SERVER) {
        return serve();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure())?;
    Ok(ExitCode::SUCCESS)
}

/// The least that an MCP server does.
fn serve() -> Result<ExitCode, BoxError> {
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let result = match request["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": { "tools": {} }, "serverInfo": { "name": "bench", "version": "1" } }),
            Some("tools/list") => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
            Some("tools/call") => {
                json!({ "content": [{ "type": "text", "text": request["params"]["arguments"]["text"] }] })
            }
            _ => continue,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn agent(builder: impl FnOnce(AgentBuilder) -> AgentBuilder, tool: &str) -> Result<Conversations, BoxError> {
    let replies = [ScriptReply::calls("c", tool, json!({ "text": "hello" })), ScriptReply::says("done")];
    let agent = builder(Agent::builder("bench", Script::of(replies).when_exhausted(OnExhausted::Error)));
    Ok(Conversations::builder(agent.build()?, MemoryStore::default()).build())
}

async fn turn(conversations: &Conversations, number: usize) -> Result<f64, BoxError> {
    let id: ConversationId = format!("c_{number:04}").into();
    let began = Instant::now();
    match conversations.turn(&id, "go", Scope::local()).await? {
        TurnStatus::Ended(ended) if ended.is_completed() => Ok(began.elapsed().as_secs_f64() * 1e6),
        other => Err(format!("the turn did not complete: {other:?}").into()),
    }
}

async fn bare(client: &RunningService<RoleClient, ()>) -> Result<f64, BoxError> {
    let mut params = CallToolRequestParams::new("echo");
    params.arguments = json!({ "text": "hello" }).as_object().cloned();
    let began = Instant::now();
    client.call_tool(params).await?;
    Ok(began.elapsed().as_secs_f64() * 1e6)
}

async fn measure() -> Result<(), BoxError> {
    let this = std::env::current_exe()?;
    let mut command = tokio::process::Command::new(&this);
    command.arg(SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut program = command.spawn()?;
    let pipes = program.stdout.take().zip(program.stdin.take()).ok_or("no pipes")?;
    let client = ().serve(pipes).await?;

    let mut options = ServerOptions::program("bench", [this.display().to_string(), SERVER.to_owned()], ".");
    options.approve = Vec::new();
    let server = McpServer::new(options);
    let server = server.pinned(server.list().await?);
    let nothing = |_, _| async { Ok("hello".to_owned()) };
    let schema = json!({ "type": "object" });
    let nothing = function_with_schema("nothing", "Does nothing.", schema, Effect::Pure, nothing);
    let without = agent(|builder| builder.tool(nothing), "nothing")?;
    let with = agent(
        |builder| server.tools().into_iter().fold(builder, |builder, tool| builder.shared_tool(tool)),
        "mcp__bench__echo",
    )?;

    let (mut bares, mut plain, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        bares.push(bare(&client).await?);
        plain.push(turn(&without, round).await?);
        calls.push(turn(&with, round).await?);
    }
    let worst = |times: &[f64]| times.iter().skip(1).copied().fold(0.0, f64::max);
    let (base, call) = (median(bares.clone()), median(calls.clone()) - median(plain));
    let mut out = std::io::stdout();
    writeln!(out, "a call of an MCP tool, median (worst) of {ROUNDS}")?;
    writeln!(out, "bare client   {base:.0} µs ({:.0})", worst(&bares))?;
    writeln!(out, "in a turn     {call:.0} µs ({:.0})   {:.2} ×", worst(&calls), call / base)?;
    drop(client);
    Ok(())
}
