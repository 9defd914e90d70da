//! Against servers that we did not write: a real model, and two mocks. `scripts/model-servers` starts them and sets where they
//! are; without it these tests are ignored, and the harness says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use turnbuckle::hook::{Hook, ModelNext};
use turnbuckle::message::{Part, Reply, StopReason};
use turnbuckle::model::{Model, ModelError, Request, Retry, Sink};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Message, Outcome, Scope, ToolCall, Turn};
use turnbuckle_models::{Anthropic, Key, OpenAi, Timeouts};

use crate::kit::{Ear, ask, asking, tool};

fn server(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this under scripts/model-servers"))
}

/// The same address over both wires.
fn both(base: &str, model: &str, most: u32) -> [Box<dyn Model>; 2] {
    let key = || Some(Key::new("test"));
    [
        Box::new(Anthropic::at(base, model, key()).unwrap().max_tokens(most)),
        Box::new(OpenAi::at(&format!("{base}/v1"), model, key()).unwrap().max_tokens(most)),
    ]
}

async fn call(method: reqwest::Method, url: &str, body: Option<Value>) -> Value {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap();
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let response = client.request(method, url).body(body).send().await.unwrap();
    serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default()
}

async fn get(url: &str) -> Value {
    call(reqwest::Method::GET, url, None).await
}

async fn post(url: &str, body: Value) -> Value {
    call(reqwest::Method::POST, url, Some(body)).await
}

/// A sink that says when it heard something.
struct Bell<'a>(&'a tokio::sync::Notify);

impl Sink for Bell<'_> {
    fn text(&mut self, _: &str) {
        self.0.notify_one();
    }
    fn thinking(&mut self, _: &str) {}
}

/// The real model answers one request at a time.
static LLAMA: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn a_real_model_streams_over_both_wires() {
    let _alone = LLAMA.lock().await;
    for model in both(&server("TURNBUCKLE_TEST_LLAMA"), "smollm2", 24) {
        let (request, mut ear) = (asking("Count from one to twenty, in words."), Ear::default());
        let reply = model.stream(&request, &mut ear).await.unwrap();
        assert!(ear.pieces > 3, "{} came in {} pieces", model.name(), ear.pieces);
        assert_eq!(ear.text, reply.content.text());
        assert!(reply.usage.input > 5 && (1..=24).contains(&reply.usage.output), "{:?}", reply.usage);
        println!("{}: {:?} {:?} {:?}", model.name(), reply.content.text(), reply.stop_reason, reply.usage);
    }
}

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn a_real_model_is_held_to_a_schema() {
    let _alone = LLAMA.lock().await;
    let schema = json!({ "type": "object", "additionalProperties": false, "required": ["city", "people"],
                         "properties": { "city": { "enum": ["Paris", "Rome"] }, "people": { "type": "integer" } } });
    let mut request = asking("Name a city and how many people live there, as JSON.");
    request.schema = Some(schema.into());
    let [anthropic, openai] = both(&server("TURNBUCKLE_TEST_LLAMA"), "smollm2", 60);
    let reply = ask(&*openai, &request).await.unwrap();
    println!("{}: {:?}", openai.name(), reply.content.text());
    let object = reply.object.unwrap_or_else(|| panic!("{:?} is no object", reply.content.text()));
    assert!(object["people"].is_i64() && ["Paris", "Rome"].contains(&object["city"].as_str().unwrap()), "{object}");
    // Over the other wire the server takes the forced tool, but a model of this size is free not to call it.
    let reply = ask(&*anthropic, &request).await.unwrap();
    assert!(reply.usage.output > 0, "{reply:?}");
}

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn an_object_comes_by_schema_or_by_a_forced_tool() {
    let mut request = asking("an object please");
    request.schema = Some(json!({ "type": "object", "properties": { "n": { "type": "integer" } } }).into());
    for model in both(&server("TURNBUCKLE_TEST_AIMOCK"), "claude-sonnet-4-5", 60) {
        let reply = ask(&*model, &request).await.unwrap();
        assert_eq!((reply.object.as_deref(), reply.calls.len()), (Some(&json!({ "n": 7 })), 0), "{}", model.name());
        assert_eq!(reply.stop_reason, StopReason::End);
    }
}

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn a_real_server_takes_tools_calls_and_results_over_both_wires() {
    let _alone = LLAMA.lock().await;
    let spoken = ToolCall { call: "c~2".into(), name: "weather".into(), arguments: json!({ "city": "Rome" }).into() };
    let messages = vec![
        Message::User("How is the weather in Rome?".into()),
        Message::Assistant { content: "Let me look.".into(), calls: vec![spoken] },
        Message::Result { call: "c~2".into(), name: "weather".into(), ok: true, content: "Sunny.".into() },
        Message::Note("Answer in one word.".into()),
    ];
    for model in both(&server("TURNBUCKLE_TEST_LLAMA"), "smollm2", 8) {
        let mut request = Request::of("a", messages.clone(), [tool("weather"), tool("now")]);
        request.system = "You are brief.".into();
        let reply = ask(&*model, &request).await.unwrap();
        assert!(reply.usage.output > 0, "{reply:?}");
    }
}

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn a_real_server_stops_working_when_the_stream_is_dropped() {
    let _alone = LLAMA.lock().await;
    let base = server("TURNBUCKLE_TEST_LLAMA");
    let slots = format!("{base}/slots");
    for model in both(&base, "smollm2", 3000) {
        let request = asking("Write a very long story about a rope. Do not stop.");
        let bell = tokio::sync::Notify::new();
        let mut sink = Bell(&bell);
        tokio::select! {
            biased;
            () = bell.notified() => {}
            reply = model.stream(&request, &mut sink) => panic!("it said nothing, or all at once: {reply:?}"),
        }
        let mut working = true;
        for _ in 0..100 {
            working = get(&slots).await[0]["is_processing"] != json!(false);
            if !working {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!working, "{}: the server still works for nobody", model.name());
    }
}

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn an_agent_thinks_and_calls_in_parallel_over_both_wires() {
    let base = server("TURNBUCKLE_TEST_AIMOCK");
    for (model, path) in both(&base, "claude-sonnet-4-5", 500).into_iter().zip(["/v1/messages", "/v1/chat/completions"])
    {
        let looked = Arc::new(AtomicU32::new(0));
        let counted = looked.clone();
        let parameters =
            json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
        let weather = function_with_schema("weather", "The weather.", parameters, Effect::Pure, move |_, _| {
            let counted = counted.clone();
            async move {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok("fine")
            }
        });
        let agent = Agent::builder("a", Shared(model)).tool(weather).build().unwrap();
        let ended = agent.run("how is the weather?").await.unwrap();
        assert_eq!((ended.outcome, ended.text().as_str()), (Outcome::Completed, "Rain in Köln, sun in Rome."));
        assert_eq!(looked.load(Ordering::Relaxed), 2, "both calls ran");
        let journal = get(&format!("{base}/__aimock/journal?path={path}")).await;
        let asked = journal.as_array().and_then(|entries| entries.last()).expect("the mock saw no request");
        let body = asked["body"].to_string();
        assert!(body.contains("call_koeln") && body.contains("call_rome"), "{body}");
        assert!(body.contains("fine"), "the results went back: {body}");
    }
}

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn thoughts_and_errors_of_a_mock_come_through_on_both_wires() {
    for model in both(&server("TURNBUCKLE_TEST_AIMOCK"), "claude-sonnet-4-5", 500) {
        let reply = ask(&*model, &asking("think aloud")).await.unwrap();
        assert!(
            matches!(&reply.content.parts()[0], Part::Thinking(thought) if &*thought.text == "Six times nine, or so.")
        );
        assert_eq!((reply.content.text().as_str(), reply.stop_reason), ("Forty-two.", StopReason::End));
        let error = ask(&*model, &asking("too fast")).await.unwrap_err();
        assert!(matches!(&error, ModelError::Status { status: 429, message, .. } if message == "Slow down"), "{error}");
        assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
        let error = ask(&*model, &asking("too many")).await.unwrap_err();
        assert!(matches!(error, ModelError::Status { status: 529, .. }), "{error}");
        let error = ask(&*model, &asking("break off")).await.unwrap_err();
        assert!(matches!(error, ModelError::Transport { .. }), "{error}");
    }
}

/// Does what errors advise, and no more; sleeps, since a real server measures it.
struct AsAdvised;

impl Hook for AsAdvised {
    async fn wrap_model_call<'a>(
        &self,
        _: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let mut backoff = Duration::from_millis(100);
        for _ in 0..3 {
            let error = match next.run(request, out).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match error.retry() {
                Retry::Never => return Err(error),
                Retry::Soon => tokio::time::sleep(backoff).await,
                Retry::After(wait) => tokio::time::sleep(wait).await,
            }
            backoff *= 2;
        }
        next.run(request, out).await
    }
}

/// A model in a box is a model.
struct Shared(Box<dyn Model>);

impl Model for Shared {
    fn stream<'a>(
        &'a self,
        request: &'a Request,
        out: &'a mut dyn Sink,
    ) -> turnbuckle::BoxFuture<'a, Result<Reply, ModelError>> {
        self.0.stream(request, out)
    }
}

#[tokio::test]
#[ignore = "needs scripts/model-servers"]
async fn a_judge_of_clients_finds_nothing_to_object_to_whatever_it_breaks() {
    let base = server("TURNBUCKLE_TEST_LLMOCK");
    let timeouts = Timeouts { idle: Duration::from_millis(500), ..Timeouts::default() };
    let key = || Some(Key::new("test"));
    let faults = [
        json!([{ "type": "fail", "status": 429, "retry_after": 0.5, "times": 2 }]),
        json!([{ "type": "fail", "status": 529 }, { "type": "fail", "status": 503 }]),
        json!([{ "type": "fail", "status": 400 }]),
        json!([{ "type": "fail", "status": 401 }]),
        json!([{ "type": "stream_fault", "kind": "disconnect", "after_chunks": 3 }]),
        json!([{ "type": "stream_fault", "kind": "truncate", "after_chunks": 3 }]),
        json!([{ "type": "stream_fault", "kind": "malformed", "after_chunks": 3 }]),
        json!([{ "type": "stream_fault", "kind": "stall", "after_chunks": 3, "stall_seconds": 5 }]),
    ];
    let words = |index: usize, wire: &str| format!("fault {index} over {wire}");
    for (index, behaviors) in faults.into_iter().enumerate() {
        let models: [(&str, Shared); 2] = [
            (
                "anthropic",
                Shared(Box::new(
                    Anthropic::at(&format!("{base}/anthropic"), "claude-sonnet-4-5", key()).unwrap().timeouts(timeouts),
                )),
            ),
            (
                "openai",
                Shared(Box::new(OpenAi::at(&format!("{base}/v1"), "gpt-4o", key()).unwrap().timeouts(timeouts))),
            ),
        ];
        for (wire, model) in models {
            post(&format!("{base}/_llmock/reset"), json!({})).await;
            let queued = post(&format!("{base}/_llmock/scenario"), json!({ "behaviors": behaviors })).await;
            assert!(queued["queued"].as_u64().unwrap_or_default() > 0, "{queued}");
            let agent = Agent::builder("a", model).hook(AsAdvised).build().unwrap();
            let conversations = Conversations::in_memory(agent);
            let ended = conversations.run(words(index, wire), Scope::local()).await.unwrap();
            let hopeless = [2, 3].contains(&index);
            let outcome = if hopeless { Outcome::Failed } else { Outcome::Completed };
            assert_eq!(ended.outcome, outcome, "{}: {:?}", words(index, wire), ended.reason);
            let verdict = get(&format!("{base}/_llmock/verdict")).await;
            let findings = verdict["findings"].as_array().cloned().unwrap_or_default();
            assert!(verdict.is_object() && findings.is_empty(), "{}: {verdict:#}", words(index, wire));
        }
    }
}
