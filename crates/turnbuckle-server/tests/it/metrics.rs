//! What `/metrics` says, and to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use turnbuckle::hook::{BeforeTool, gate};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Batch, Job, JobKind, Lease, Store as _};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, ConversationId, Conversations, Scope, Timestamp, ToolCall};
use turnbuckle_server::{Metrics, Server, Token, Tokens};

use crate::client::{Client, Running};

/// The samples of a text, by name and labels as they are written. Everything that the format (0.0.4) forbids fails the test.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'), "the last line ends");
    let is_name = |name: &str| {
        let is_letter = |one: char| one.is_ascii_alphabetic() || one == '_' || one == ':';
        name.starts_with(is_letter) && name.chars().all(|one| is_letter(one) || one.is_ascii_digit())
    };
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let mut family: Option<(String, Option<String>)> = None;
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').unwrap();
            assert!(is_name(name) && families.insert(name.to_owned()), "a second family, or no name: {line}");
            family = Some((name.to_owned(), None));
            continue;
        }
        let (name, kind) = family.as_mut().expect("a family begins with its help");
        if let Some(of_type) = line.strip_prefix("# TYPE ") {
            let (named, given) = of_type.split_once(' ').unwrap();
            assert!(named == name && kind.is_none(), "{line}");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&given), "{line}");
            *kind = Some(given.to_owned());
            continue;
        }
        let kind = kind.as_deref().expect("a type comes before samples");
        let (key, value) = line.rsplit_once(' ').unwrap();
        let (sample, labels) = key.split_once('{').map_or((key, None), |(name, rest)| (name, Some(rest)));
        let suffixes: &[&str] = match kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["", "_sum", "_count"],
            _ => &[""],
        };
        assert!(suffixes.iter().any(|suffix| sample == format!("{name}{suffix}")), "of another family: {line}");
        if let Some(labels) = labels {
            check_labels(labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}")), is_name);
        }
        let value: f64 = match value {
            "+Inf" => f64::INFINITY,
            value => value.parse().unwrap_or_else(|_| panic!("no number: {line}")),
        };
        assert!(kind != "counter" || value >= 0.0, "{line}");
        assert!(samples.insert(key.to_owned(), value).is_none(), "twice: {line}");
    }
    check_histograms(&samples);
    samples
}

fn check_labels(mut labels: &str, is_name: impl Fn(&str) -> bool) {
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").unwrap();
        assert!(is_name(name) && !name.contains(':'), "{name}");
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next().expect("a label ends") {
                (_, '\\') => assert!(matches!(characters.next(), Some((_, '\\' | '"' | 'n'))), "{rest}"),
                (end, '"') => break end,
                _ => {}
            }
        };
        labels = &rest[end + 1..];
        labels = labels.strip_prefix(',').unwrap_or_else(|| {
            assert!(labels.is_empty(), "{labels}");
            labels
        });
    }
}

/// Buckets grow, and the last one is the count.
fn check_histograms(samples: &BTreeMap<String, f64>) {
    for name in ["turnbuckle_turn_seconds", "turnbuckle_store_write_seconds"] {
        let Some(count) = samples.get(&format!("{name}_count")) else { continue };
        let prefix = format!("{name}_bucket{{le=\"");
        let mut buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.strip_suffix("\"}")?, *value)))
            .map(|(end, value)| (if end == "+Inf" { f64::INFINITY } else { end.parse().unwrap() }, value))
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(buckets.is_sorted_by_key(|(_, value)| *value), "{buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)));
    }
}

async fn read(client: &Client) -> BTreeMap<String, f64> {
    let answer = client.get("/metrics").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.headers.contains("content-type: text/plain; version=0.0.4"), "{}", answer.headers);
    parsed(&answer.body)
}

/// Its first turn is denied a call by a hook and talks, its second waits for an approval.
fn agent() -> Agent {
    let tool = |name: &str| {
        let schema = json!({ "type": "object" });
        function_with_schema(name, "Does it.", schema, Effect::Never, |_, _: Value| async move { Ok("done") })
    };
    let script = Script::of([
        ScriptReply::calls("c1", "rm", json!({})).costing(100, 7),
        ScriptReply::says("no").costing(200, 5),
        ScriptReply::calls("c2", "pay", json!({})).and_calls("c3", "pay", json!({})).costing(1, 1),
    ]);
    let judge = gate("no \"rm\"", |_, call: ToolCall| async move {
        Ok(if &*call.name == "rm" { BeforeTool::Deny("no".into()) } else { BeforeTool::Continue })
    });
    let agent = Agent::builder("a", script).tool(tool("rm")).tool(tool("pay").requires_approval()).hook(judge);
    agent.build().unwrap()
}

async fn until(client: &Client, id: &str, is_so: impl Fn(&Value) -> bool) {
    for _ in 0..3_000 {
        if is_so(&client.get(&format!("/v1/conversations/{id}")).await.json()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come to that");
}

#[tokio::test]
async fn the_numbers_are_those_of_the_turns_that_ran() {
    let metrics = Metrics::default();
    let conversations = Conversations::builder(agent(), metrics.measured(MemoryStore::default())).build();
    let server = Server::builder(conversations)
        .metrics(metrics)
        .gauge("store bytes", "Its size.", || Some(4096.0))
        .gauge("absent", "Not there.", || None)
        .build()
        .unwrap();
    let running = Running::start(server).await;
    let client = running.client();
    for state in ["idle", "waiting"] {
        // A script begins anew in each conversation.
        client.post("/v1/conversations", json!({ "id": "one" })).await;
        assert_eq!(client.post("/v1/conversations/one/messages", json!({ "content": "go" })).await.status, 202);
        until(&client, "one", |view| view["state"] == state).await;
    }
    let samples = read(&client).await;
    let is = |key: &str, expected: f64| assert_eq!(samples.get(key), Some(&expected), "{key} in {samples:#?}");
    is("turnbuckle_turns_total{outcome=\"completed\"}", 1.0);
    is("turnbuckle_turns_total{outcome=\"failed\"}", 0.0);
    is("turnbuckle_turn_seconds_count", 1.0);
    is("turnbuckle_model_calls_total", 2.0);
    is("turnbuckle_tokens_total{kind=\"input\"}", 300.0);
    is("turnbuckle_tokens_total{kind=\"output\"}", 12.0);
    is("turnbuckle_cost_dollars_total", 0.0);
    let hook = "hook=\"no \\\"rm\\\"\",point=\"before_tool\"";
    is(&format!("turnbuckle_hook_decisions_total{{{hook},decision=\"deny\"}}"), 1.0);
    is(&format!("turnbuckle_hook_decisions_total{{{hook},decision=\"continue\"}}"), 2.0);
    is(&format!("turnbuckle_hook_seconds_count{{{hook}}}"), 3.0);
    is("turnbuckle_conversations{state=\"idle\"}", 0.0);
    is("turnbuckle_conversations{state=\"waiting\"}", 1.0);
    is("turnbuckle_waiting_calls", 2.0);
    is("turnbuckle_left_turns", 0.0);
    is("turnbuckle_parked_jobs", 0.0);
    is("turnbuckle_open_streams", 0.0);
    is("turnbuckle_store_up", 1.0);
    is("turnbuckle_store_write_errors_total", 0.0);
    is("store_bytes", 4096.0);
    assert!(!samples.contains_key("absent"));
    is("turnbuckle_http_requests_total{method=\"POST\",route=\"/v1/conversations\",status=\"201\"}", 1.0);
    is("turnbuckle_http_requests_total{method=\"POST\",route=\"/v1/conversations\",status=\"409\"}", 1.0);
    is("turnbuckle_http_requests_total{method=\"POST\",route=\"/v1/conversations/{id}/messages\",status=\"202\"}", 2.0);
    assert!(samples["turnbuckle_store_write_seconds_count"] >= 2.0);

    // Whatever is asked for, there are no more series.
    for n in 0..50 {
        client.request(&format!("MADE{n}"), &format!("/made/{n}"), None).await;
    }
    let mut open = client.events("one", None).await;
    let later = read(&client).await;
    assert_eq!(later["turnbuckle_http_requests_total{method=\"other\",route=\"none\",status=\"404\"}"], 50.0);
    let new: Vec<_> = later.keys().filter(|key| !samples.contains_key(*key) && key.contains("made")).collect();
    assert_eq!(new, [""; 0]);
    assert_eq!(later["turnbuckle_waiting_calls"], 2.0, "remembered for some seconds");
    drop(tokio::time::timeout(Duration::from_millis(50), open.next()).await);
    assert_eq!(read(&client).await["turnbuckle_open_streams"], 1.0);
    running.stopped().await;
}

/// A job of the conversation that failed as often as it is tried.
async fn give_up_a_job(store: &MemoryStore, id: &ConversationId) {
    let now = Timestamp::from_millis(4_000_000_000_000);
    let claim = store.claim(id, &"w_test".into(), now).await.unwrap();
    let log = store.log(id, 1, usize::MAX).await.unwrap();
    let last = log.last().unwrap();
    let job = |hook: &str, due| Job {
        turn: last.turn.clone(),
        seq: last.seq,
        agent: "a".into(),
        hook: hook.into(),
        used: None,
        kind: JobKind::Background,
        actor: Scope::local().actor().clone(),
        tries: 3,
        error: Some("it failed".to_owned()),
        due,
        reminder: None,
        spent: None,
        partial: None,
    };
    let mut batch = Batch::new(id, claim.epoch, last.seq);
    batch.jobs = vec![job("given up", None), job("tried again", Some(now))];
    batch.lease = Lease::Release;
    store.append(batch).await.unwrap();
}

#[tokio::test]
async fn turns_of_another_agent_and_jobs_that_were_given_up_are_counted() {
    let store = MemoryStore::default();
    let first = Conversations::builder(agent(), store.clone()).build();
    let scope = Scope::local();
    for id in ["one", "one", "two"] {
        let handle = first.send(&id.into(), "go", scope.clone()).await.unwrap();
        drop(handle.wait().await);
    }
    drop(first);
    give_up_a_job(&store, &"two".into()).await;
    let other = Agent::builder("other", Script::says(["hi"])).build().unwrap();
    let server = Server::builder(Conversations::builder(other, store).build()).build().unwrap();
    let running = Running::start(server).await;
    let samples = read(&running.client()).await;
    assert_eq!(samples["turnbuckle_left_turns"], 1.0, "{samples:#?}");
    assert_eq!(samples["turnbuckle_waiting_calls"], 2.0);
    assert_eq!(samples["turnbuckle_parked_jobs"], 1.0);
    assert!(!samples.contains_key("turnbuckle_turns_total{outcome=\"completed\"}"), "nobody counts turns here");
    running.stopped().await;
}

#[tokio::test]
async fn with_tokens_metrics_are_for_the_role_and_for_programs_on_this_machine() {
    let tokens = Tokens::new([
        Token::of_text("ann-secret", "ann").role("manager"),
        Token::of_text("scraper-secret", "scraper").role("metrics"),
    ]);
    let conversations = Conversations::in_memory(Agent::builder("a", Script::says(["hi"])).build().unwrap());
    let running = Running::start(Server::builder(conversations).tokens(tokens).build().unwrap()).await;
    let client = running.client();
    read(&client).await;
    read(&client.bearer("scraper-secret").with("host: agents.example").with("x-forwarded-for: 9.9.9.9")).await;
    let code = |status, code: &str| (status, code.to_owned());
    let metrics = "/metrics";
    assert_eq!(client.bearer("ann-secret").get(metrics).await.code(), code(403, "forbidden"));
    assert_eq!(client.bearer("wrong").get(metrics).await.code(), code(401, "unauthorized"));
    for header in ["x-forwarded-for: 127.0.0.1", "forwarded: for=127.0.0.1", "via: 1.1 proxy", "x-real-ip: 127.0.0.1"] {
        assert_eq!(client.with(header).get(metrics).await.code(), code(401, "unauthorized"), "{header}");
    }
    let old = format!("GET /metrics HTTP/1.0\r\nhost: {}\r\n\r\n", running.address);
    assert_eq!(client.raw(old.as_bytes()).await.code(), code(401, "unauthorized"), "as nginx passes requests on");
    assert_eq!(client.with("host: agents.example").get(metrics).await.code(), code(421, "misdirected"));
    assert_eq!(client.with("origin: http://evil.example").get(metrics).await.code(), code(403, "forbidden"));
    running.stopped().await;
}

#[tokio::test]
async fn without_tokens_metrics_are_for_programs_on_this_machine() {
    let conversations = Conversations::in_memory(Agent::builder("a", Script::says(["hi"])).build().unwrap());
    let running = Running::start(Server::builder(conversations).build().unwrap()).await;
    let client = running.client();
    read(&client).await;
    let forwarded = client.with("x-forwarded-for: 9.9.9.9").get("/metrics").await;
    assert_eq!(forwarded.code(), (403, "forbidden".to_owned()));
    running.stopped().await;
}
