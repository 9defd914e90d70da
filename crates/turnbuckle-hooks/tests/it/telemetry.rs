//! Telemetry: a tree of spans for each turn, nothing of what was said unless asked, and a real collector that gets it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use serde_json::json;
use turnbuckle::hook::{AfterModel, guard};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tools::SubAgent;
use turnbuckle::{Agent, AgentBuilder};
use turnbuckle_hooks::Telemetry;
use turnbuckle_hooks::telemetry::TelemetryOptions;

use super::kit::{Act, Puppet, add, adding, begin, built, end, settle};

/// Keeps every span.
#[derive(Clone, Debug, Default)]
struct Keeper(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Keeper {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Keeper {
    fn hook(&self, content: bool) -> Telemetry {
        let traces = SdkTracerProvider::builder().with_simple_exporter(self.clone()).build();
        let options = TelemetryOptions { content, ..Default::default() };
        Telemetry::with_providers(&traces, &SdkMeterProvider::default(), options)
    }

    /// The spans as a tree, in order of their beginning, two blanks a level.
    fn tree(&self) -> String {
        let spans = self.0.lock().unwrap();
        let mut below: BTreeMap<String, Vec<&SpanData>> = BTreeMap::new();
        let known: Vec<SpanId> = spans.iter().map(|span| span.span_context.span_id()).collect();
        for span in spans.iter() {
            let parent = if known.contains(&span.parent_span_id) { span.parent_span_id } else { SpanId::INVALID };
            below.entry(parent.to_string()).or_default().push(span);
        }
        let mut out = String::new();
        write_below(&below, SpanId::INVALID, 0, &mut out);
        out
    }

    fn attribute(&self, span: &str, key: &str) -> Option<String> {
        let spans = self.0.lock().unwrap();
        let span = spans.iter().find(|found| found.name == span)?;
        Some(span.attributes.iter().find(|found| found.key.as_str() == key)?.value.as_str().into_owned())
    }
}

fn write_below(below: &BTreeMap<String, Vec<&SpanData>>, parent: SpanId, depth: usize, out: &mut String) {
    let mut spans = below.get(&parent.to_string()).cloned().unwrap_or_default();
    spans.sort_by_key(|span| span.start_time);
    for span in spans {
        let failed = if matches!(span.status, Status::Error { .. }) { " !" } else { "" };
        out.push_str(&format!("{}{}{failed}\n", "  ".repeat(depth), span.name));
        write_below(below, span.span_context.span_id(), depth + 1, out);
    }
}

async fn run(agent: AgentBuilder) -> Rig {
    let mut rig = Rig::new(agent.build().unwrap());
    rig.ended("what is 40+2? my secret").await.unwrap();
    rig.conversations.drain(Duration::from_secs(1)).await;
    rig
}

#[tokio::test]
async fn a_turn_is_a_trace_of_stages_model_calls_tools_and_hooks() {
    let keeper = Keeper::default();
    let strict = guard("strict", |_, reply: Arc<turnbuckle::Reply>| async move {
        let bad = reply.content.text() == "bad";
        Ok(if bad { AfterModel::Regenerate("better".into()) } else { AfterModel::Continue })
    });
    let script = Script::of([
        ScriptReply::calls("c1", "add", json!({"a": 40, "b": 2})),
        ScriptReply::says("bad"),
        ScriptReply::says("42"),
    ]);
    run(Agent::builder("adder", script).tool(add()).hook(strict).hook(keeper.hook(false))).await;
    let expected = "invoke_agent adder\n  accept\n  build\n  call\n    chat script\n  dispatch\n    execute_tool add\n  build\n  \
                    call\n    hook strict\n    chat script\n  build\n  call\n    chat script\n  end\n";
    assert_eq!(keeper.tree(), expected);
    assert_eq!(keeper.attribute("invoke_agent adder", "gen_ai.operation.name").unwrap(), "invoke_agent");
    assert_eq!(keeper.attribute("invoke_agent adder", "turnbuckle.outcome").unwrap(), "completed");
    assert_eq!(keeper.attribute("chat script", "gen_ai.request.model").unwrap(), "script");
    assert_eq!(keeper.attribute("execute_tool add", "gen_ai.tool.call.id").unwrap(), "c1");
    for span in ["invoke_agent adder", "chat script", "execute_tool add", "call", "hook strict"] {
        assert_eq!(keeper.attribute(span, "gen_ai.conversation.id").unwrap(), "c_1", "{span}");
    }
}

#[tokio::test]
async fn nothing_that_was_said_is_sent_unless_it_is_asked_for() {
    for content in [false, true] {
        let keeper = Keeper::default();
        run(Agent::builder("a", adding(40, "the secret answer")).tool(add()).hook(keeper.hook(content))).await;
        let all = format!("{:?}", keeper.0.lock().unwrap());
        assert_eq!(all.contains("secret"), content);
        assert_eq!(keeper.attribute("execute_tool add", "gen_ai.tool.call.result").is_some(), content);
        let messages = keeper.attribute("chat script", "gen_ai.input.messages");
        assert_eq!(messages.is_some(), content);
        if let Some(messages) = messages {
            let messages: serde_json::Value = serde_json::from_str(&messages).unwrap();
            assert_eq!(messages[0]["role"], "user");
            assert_eq!(messages[0]["parts"][0]["content"], "what is 40+2? my secret");
        }
    }
}

#[tokio::test]
async fn failures_are_marked_where_they_happened() {
    let keeper = Keeper::default();
    run(Agent::builder("a", Puppet::new([Act::Fails(503)])).hook(keeper.hook(false))).await;
    assert_eq!(keeper.tree(), "invoke_agent a !\n  accept\n  build\n  call\n    chat puppet !\n  end\n");
    assert_eq!(keeper.attribute("chat puppet", "error.type").unwrap(), "5xx");
    let keeper = Keeper::default();
    run(Agent::builder("a", adding(13, "oh")).tool(add()).hook(keeper.hook(false))).await;
    assert!(keeper.tree().contains("execute_tool add !"), "{}", keeper.tree());
}

#[tokio::test]
async fn a_cancelled_model_call_has_a_span_too() {
    let keeper = Keeper::default();
    let agent = Agent::builder("a", Puppet::new([Act::HangsAfter("…")])).hook(keeper.hook(false));
    let rig = Rig::new(agent.build().unwrap());
    let handle = begin(&rig, "talk", "hi").await;
    settle().await;
    rig.conversations.cancel(&"talk".into(), turnbuckle::Scope::local()).await.unwrap();
    end(handle).await;
    rig.conversations.drain(Duration::from_secs(1)).await;
    settle().await;
    assert_eq!(keeper.attribute("chat puppet", "error.type").unwrap(), "cancelled", "{}", keeper.tree());
    assert_eq!(keeper.attribute("invoke_agent a", "turnbuckle.outcome").unwrap(), "cancelled");
}

#[tokio::test]
async fn a_sub_agents_turn_stands_below_the_call_that_started_it() {
    let keeper = Arc::new(keeper_shared());
    let child = Agent::builder("child", Script::says(["done"])).hook(Shared(keeper.1.clone())).build().unwrap();
    let script = Script::of([ScriptReply::calls("c1", "child", json!({"task": "go"})), ScriptReply::says("ok")]);
    let tool = SubAgent::new(child, "Does it.");
    run(Agent::builder("parent", script).tool(tool).hook(Shared(keeper.1.clone()))).await;
    let tree = keeper.0.tree();
    assert!(tree.contains("    execute_tool child\n      invoke_agent child\n        accept\n"), "{tree}");
}

fn keeper_shared() -> (Keeper, Arc<Telemetry>) {
    let keeper = Keeper::default();
    let hook = Arc::new(keeper.hook(false));
    (keeper, hook)
}

/// One hook of two agents.
struct Shared(Arc<Telemetry>);

impl turnbuckle::hook::Hook for Shared {
    fn name(&self) -> String {
        "telemetry".into()
    }
    async fn on_event(&self, told: &turnbuckle::feed::FeedEvent) -> Result<(), turnbuckle::BoxError> {
        self.0.on_event(told).await
    }
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_spans_and_not_time() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = TelemetryOptions { endpoint: format!("http://127.0.0.1:{port}"), ..Default::default() };
    let agent = Agent::builder("a", Script::says(["fine"])).hook(Telemetry::new(options).unwrap()).build().unwrap();
    let began = Instant::now();
    assert_eq!(agent.run("hi").await.unwrap().text(), "fine");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[test]
fn bad_options_are_refused() {
    for (options, word) in [
        (json!({"endpoint": "localhost:4318"}), "endpoint"),
        (json!({"endpoint": ""}), "endpoint"),
        (json!({"sample": 1.5}), "sample"),
        (json!({"sample": -0.1}), "sample"),
        (json!({"service": " "}), "service"),
        (json!({"export_every": "0s"}), "export_every"),
        (json!({"contents": true}), "contents"),
    ] {
        let refusal = built::<Telemetry>(options).unwrap_err();
        assert!(refusal.contains(word), "{refusal}");
    }
}

/// A receiver of its own, killed at the end.
struct Receiver {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Receiver {
    fn start(program: &str, port: u16, grpc: u16) -> Self {
        let folder = std::env::temp_dir();
        let mut child = Command::new(program)
            .arg("start")
            .args(["--debug-log", "traces", "--debug-log", "metrics", "--debug-log-verbosity", "detailed"])
            .args(["--exporter", "blackhole"])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{port}")])
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")])
            .env("ROTEL_PID_FILE", folder.join(format!("rotel-{port}.pid")))
            .env("ROTEL_LOG_FILE", folder.join(format!("rotel-{port}.log")))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (heard, out) = (said.clone(), child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let mut heard = heard.lock().unwrap();
                heard.push_str(&line);
                heard.push('\n');
            }
        });
        let receiver = Self { child, said };
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return receiver;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("rotel does not listen on {port}");
    }

    /// What it logged, once it holds all of these.
    fn heard(&self, words: &[&str]) -> String {
        for _ in 0..500 {
            let said = self.said.lock().unwrap().clone();
            if words.iter().all(|word| said.contains(word)) {
                return said;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("not all of {words:?} arrived:\n{}", self.said.lock().unwrap());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_real_collector_gets_spans_and_metrics() {
    let Ok(program) = std::env::var("TURNBUCKLE_ROTEL") else {
        // Past the capture: whoever reads the output should know.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED a_real_collector_gets_spans_and_metrics: set TURNBUCKLE_ROTEL=$(scripts/rotel)"
        );
        return;
    };
    let port = free_port();
    let receiver = Receiver::start(&program, port, free_port());
    let options = TelemetryOptions {
        endpoint: format!("http://127.0.0.1:{port}"),
        service: "the-test".into(),
        ..TelemetryOptions::default()
    };
    let usage = turnbuckle::message::Usage { input: 123, output: 45, ..Default::default() };
    let mut script = adding(40, "42");
    script.replies[0].usage = usage;
    let agent = Agent::builder("adder", script).tool(add()).hook(Telemetry::new(options).unwrap());
    drop(run(agent).await);
    let spans = ["invoke_agent adder", "chat script", "execute_tool add", "the-test", "gen_ai.conversation.id", "123"];
    let metrics = ["gen_ai.client.operation.duration", "gen_ai.client.token.usage", "gen_ai.invoke_agent.duration"];
    let heard = receiver.heard(&[&spans[..], &metrics[..]].concat());
    assert!(!heard.contains("my secret"), "{heard}");
}
