//! Every route of the API does what its description says.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{function_with_schema, human};
use turnbuckle::{Agent, Conversations, Scope};
use turnbuckle_server::{AnswerLinks, Keys, Server};

use crate::client::{Answer, Client, Running};

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// An agent whose first turn asks for an approval and a person's answer, and whose later turns talk.
fn agent() -> Agent {
    let schema = json!({ "type": "object", "properties": { "euro": { "type": "integer" } }, "required": ["euro"] });
    let pay = function_with_schema("pay", "Pays.", schema, Effect::Never, |_, arguments: Value| async move {
        Ok(format!("paid {}", arguments["euro"]))
    });
    let asks = ScriptReply::calls("p1", "pay", json!({ "euro": 5 }))
        .and_calls("p2", "pay", json!({ "euro": 6 }))
        .and_calls("q1", "ask_human", json!({ "question": "Which?" }));
    let script = Script::of([asks, ScriptReply::says("done"), ScriptReply::says("again"), ScriptReply::says("more")]);
    let agent =
        Agent::builder("payer", script).tool(pay.requires_approval()).tool(human("ask_human", "Asks a person."));
    agent.build().unwrap()
}

/// What was asked of the server, and whether the answers fit their description.
struct Walk {
    client: Client,
    description: Value,
    seen: BTreeSet<String>,
}

impl Walk {
    async fn ask(&mut self, method: &str, route: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| body.to_string());
        let answer = self.client.request(method, path, body.as_deref()).await;
        self.seen.insert(format!("{method} {route}"));
        let responses = &self.description["paths"][route][method.to_ascii_lowercase()]["responses"];
        let response = match &responses[answer.status.to_string()] {
            Value::Null if answer.status < 500 => &responses["4XX"],
            response => response,
        };
        let response = match response["$ref"].as_str() {
            Some(reference) => self.description.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
            None => response,
        };
        if let Some(headers) = response["headers"].as_object() {
            assert!(headers.keys().all(|name| answer.headers.contains(&format!("{name}: "))), "{answer:?}");
        }
        let mut schema = response["content"]["application/json"]["schema"].clone();
        assert!(schema.is_object(), "{method} {route} has no {}: {responses}", answer.status);
        schema["components"] = self.description["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        if let Err(error) = validator.validate(&answer.json()) {
            panic!("{method} {route} {}: {error}: {}", answer.status, answer.body);
        }
        answer
    }

    /// Waits until the conversation is in this state.
    async fn until(&mut self, id: &str, state: &str) -> Value {
        loop {
            let path = format!("/v1/conversations/{id}");
            let view = self.ask("GET", "/v1/conversations/{id}", &path, None).await.json();
            if view["state"] == state {
                return view;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn every_route_does_what_its_description_says() {
    let (conversations, keys) = (Conversations::in_memory(agent()), Keys::random().unwrap());
    let server = Server::builder(conversations.clone()).keys(keys.clone()).build().unwrap();
    let running = Running::start(server.clone()).await;
    let client = running.client();
    let description = client.get("/openapi.json").await.json();
    let mut walk = Walk { client: client.clone(), description: description.clone(), seen: BTreeSet::new() };
    let (all, one) = ("/v1/conversations", "/v1/conversations/{id}");

    assert_eq!(walk.ask("GET", "/healthz", "/healthz", None).await.json(), json!({ "status": "ok" }));
    assert_eq!(walk.ask("GET", "/readyz", "/readyz", None).await.status, 200);
    assert_eq!(walk.ask("POST", all, all, Some(json!({ "id": "c" }))).await.json(), json!({ "id": "c" }));
    assert_eq!(walk.ask("POST", all, all, Some(json!({ "id": "c" }))).await.code(), code(409, "exists"));
    let other = walk.ask("POST", all, all, None).await;
    assert_eq!(other.status, 201);
    let listed = walk.ask("GET", all, "/v1/conversations?limit=1", None).await.json();
    assert_eq!((&listed["conversations"][0]["id"], &listed["more"]), (&other.json()["id"], &json!(true)));
    let older = format!("/v1/conversations?before={}", other.json()["id"].as_str().unwrap());
    let older = walk.ask("GET", all, &older, None).await.json();
    assert_eq!((&older["conversations"][0]["id"], &older["more"]), (&json!("c"), &json!(false)));

    let renamed = walk.ask("PATCH", one, "/v1/conversations/c", Some(json!({ "title": "Pay\n them" }))).await;
    assert_eq!(renamed.status, 200);
    let listed = walk.ask("GET", all, all, None).await.json();
    assert_eq!(listed["conversations"][1]["title"], "Pay them");

    let messages = "/v1/conversations/{id}/messages";
    let say = |text: &str| Some(json!({ "content": text }));
    let sent = walk.ask("POST", messages, "/v1/conversations/c/messages", say("pay them")).await;
    assert_eq!(sent.status, 202);
    let turn = sent.json()["turn"].as_str().unwrap().to_owned();
    let view = walk.until("c", "waiting").await;
    assert_eq!(view["pending"].as_array().unwrap().len(), 3);
    assert_eq!(view["messages"][0]["content"][0]["text"], "pay them");
    assert_eq!(walk.ask("POST", messages, "/v1/conversations/c/messages", say("more")).await.code(), code(409, "busy"));

    let pending = walk.ask("GET", "/v1/pending", "/v1/pending", None).await.json();
    let calls: Vec<_> = pending["pending"].as_array().unwrap().iter().map(|call| call["call"].clone()).collect();
    assert_eq!(calls, ["p1", "p2", "q1"]);
    for (query, expected) in [
        ("tool=pay", 2),
        ("tool=ask_*", 1),
        ("tool=none", 0),
        ("agent=payer", 3),
        ("agent=other", 0),
        ("older=0s", 3),
        ("older=1h", 0),
    ] {
        let found = walk.ask("GET", "/v1/pending", &format!("/v1/pending?{query}"), None).await.json();
        assert_eq!(found["pending"].as_array().unwrap().len(), expected, "{query}");
    }

    let call = "/v1/conversations/{id}/calls/{call}";
    let digest = &pending["pending"][0]["prompt"]["digest"];
    let path = "/v1/conversations/c/calls/p1";
    let wrong = walk.ask("POST", call, path, Some(json!({ "approve": true, "digest": "other" }))).await;
    assert_eq!(wrong.code(), code(409, "stale"));
    let unfit = walk.ask("POST", call, path, Some(json!({ "approve": true, "arguments": { "euro": "x" } }))).await;
    assert_eq!(unfit.code(), code(400, "bad_request"));
    let approved = json!({ "approve": true, "digest": digest, "arguments": { "euro": 4 } });
    let answered = walk.ask("POST", call, path, Some(approved)).await;
    assert_eq!(answered.json(), json!({ "turn": turn }));
    let again = walk.ask("POST", call, path, Some(json!({ "approve": true }))).await;
    assert_eq!(again.code(), code(409, "stale"));
    let denied = json!({ "approve": false, "reason": "too much" });
    let asked = conversations.question(&"c".into(), &"p2".into(), &Scope::local()).await.unwrap();
    let link = AnswerLinks::new(keys, "").link(&"c".into(), &asked, Some("local")).unwrap();
    let answers = "/v1/answers/{signed}";
    assert_eq!(walk.ask("GET", answers, &link, None).await.json()["call"], "p2");
    assert_eq!(walk.ask("POST", answers, &link, Some(denied)).await.json(), json!({ "turn": turn }));
    assert_eq!(walk.ask("GET", answers, &link, None).await.code(), code(404, "not_found"));
    let answer = json!({ "answer": "the left one" });
    assert_eq!(walk.ask("POST", call, "/v1/conversations/c/calls/q1", Some(answer)).await.status, 200);
    walk.until("c", "idle").await;

    let history = "/v1/conversations/{id}/history";
    let log = walk.ask("GET", history, "/v1/conversations/c/history", None).await.json();
    let of_type = |name: &str| -> Vec<Value> {
        log["messages"].as_array().unwrap().iter().filter(|event| event["type"] == name).cloned().collect()
    };
    let results: Vec<_> = of_type("tool_result").iter().map(|event| event["content"][0]["text"].clone()).collect();
    assert!(results.contains(&json!("paid 4")) && results.contains(&json!("the left one")), "{results:?}");
    assert!(of_type("resolution").iter().all(|event| event["by"] == json!({ "user": "local" })), "the log says who");
    let last = log["messages"].as_array().unwrap().last().unwrap()["seq"].as_u64().unwrap();
    let page = format!("/v1/conversations/c/history?limit=2&before={last}");
    let page = walk.ask("GET", history, &page, None).await.json();
    assert_eq!((page["messages"][1]["seq"].as_u64().unwrap(), &page["more"]), (last - 1, &json!(true)));

    let turns = "/v1/conversations/{id}/turns/{turn}";
    let trace = walk.ask("GET", turns, &format!("/v1/conversations/c/turns/{turn}"), None).await.json();
    assert_eq!(trace["outcome"], "completed");
    assert!(trace["trace"].as_str().unwrap().contains("pay(4)"), "{}", trace["trace"]);

    let approvals = walk.ask("GET", "/v1/approvals", "/v1/approvals", None).await.json();
    assert_eq!(approvals, json!({ "approvals": [] }));
    let revoked = walk.ask("DELETE", "/v1/approvals/{id}", "/v1/approvals/s_1", None).await;
    assert_eq!(revoked.code(), code(404, "not_found"));

    let cancel = "/v1/conversations/{id}/cancel";
    let idle = walk.ask("POST", cancel, "/v1/conversations/c/cancel", None).await;
    assert_eq!(idle.json(), json!({ "turn": null }));
    let deleted = walk.ask("DELETE", one, "/v1/conversations/c", None).await;
    assert_eq!(deleted.json(), json!({ "id": "c", "left": [] }));
    assert_eq!(walk.ask("GET", one, "/v1/conversations/c", None).await.code(), code(404, "not_found"));
    assert_eq!(walk.ask("POST", all, all, Some(json!({ "id": "c" }))).await.code(), code(409, "exists"));

    let mut described = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            described.insert(format!("{} {path}", method.to_ascii_uppercase()));
        }
    }
    // Neither is JSON; they have tests of their own.
    walk.seen.insert("GET /v1/conversations/{id}/events".to_owned());
    walk.seen.insert("GET /metrics".to_owned());
    assert_eq!(walk.seen, described);
    server.close();
    for (route, path) in [(all, all), (messages, "/v1/conversations/x/messages")] {
        let refused = walk.ask("POST", route, path, say("more").filter(|_| route != all)).await;
        assert_eq!(refused.code(), code(503, "in_use"));
    }
    assert_eq!(walk.ask("GET", "/readyz", "/readyz", None).await.code(), code(503, "in_use"));
    running.stopped().await;
}

#[test]
fn every_reference_of_the_description_leads_somewhere() {
    fn check(value: &Value, whole: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(whole.pointer(pointer).is_some(), "{reference}");
                }
                members.values().for_each(|value| check(value, whole));
            }
            Value::Array(items) => items.iter().for_each(|value| check(value, whole)),
            _ => {}
        }
    }
    let description = Server::openapi();
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
    check(&description, &description);
    assert_eq!(description["security"], json!([{ "token": [] }, {}]));
    assert_eq!(description["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_ne!(
        description["paths"]["/v1/conversations"]["post"]["requestBody"]["required"], true,
        "it may be left out"
    );
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["summary"].is_string(), "{method} {path} is not explained");
            let names: BTreeSet<_> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let in_path = parameters.iter().filter(|one| one["in"] == "path");
            let described: BTreeSet<_> = in_path.map(|one| one["name"].as_str().unwrap()).collect();
            assert_eq!(names, described, "{method} {path}");
            for status in ["429", "500", "503"] {
                assert!(operation["responses"][status].is_object(), "{method} {path}: {status}");
            }
            // What needs a token says nothing else than the whole; what needs none says so.
            let is_open = ["/healthz", "/readyz", "/v1/answers/{signed}"].contains(&path.as_str());
            assert_eq!(operation["security"], if is_open { json!([]) } else { Value::Null }, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_turn_that_runs_can_be_cancelled_queued_behind_and_steered() {
    let slow = r#"{"replies":[{"chunks":["a","b","c","d"],"delay_ms":30000},{"text":"second"},{"text":"third"}]}"#;
    let agent = Agent::builder("slow", Script::from_json(slow).unwrap()).build().unwrap();
    let running = Running::start(Server::builder(Conversations::in_memory(agent)).build().unwrap()).await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    let path = "/v1/conversations/c/messages";
    let first = client.post(path, json!({ "content": "one" })).await.json();
    assert_eq!(client.post(path, json!({ "content": "two" })).await.code(), code(409, "busy"));
    let queued = client.post(path, json!({ "content": "two", "while_busy": "queue" })).await;
    assert_eq!(queued.status, 202);
    assert_ne!(queued.json()["turn"], first["turn"]);
    assert_eq!(client.request("DELETE", "/v1/conversations/c", None).await.code(), code(409, "busy"));
    let cancelled = client.request("POST", "/v1/conversations/c/cancel", None).await;
    assert_eq!(cancelled.json()["turn"], first["turn"]);
    loop {
        let log = client.get("/v1/conversations/c/history").await.json();
        let ended = log["messages"].as_array().unwrap().iter().filter(|event| event["type"] == "turn_ended");
        let outcomes: Vec<_> = ended.map(|event| event["outcome"].clone()).collect();
        if outcomes.len() == 2 {
            assert_eq!(outcomes, ["cancelled", "completed"]);
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    running.stopped().await;
}

#[tokio::test]
async fn a_message_that_is_sent_twice_under_one_key_is_one_message() {
    let running = Running::start(Server::builder(Conversations::in_memory(agent())).build().unwrap()).await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    let path = "/v1/conversations/c/messages";
    let (one, other) = (client.with("idempotency-key: k 1"), client.with("idempotency-key: k2"));
    let first = one.post(path, json!({ "content": "pay" })).await;
    assert_eq!(first.status, 202);
    let again = one.post(path, json!({ "content": "pay" })).await;
    assert_eq!((again.status, again.json()), (202, first.json()), "while its turn runs or waits");
    assert_eq!(one.post(path, json!({ "content": "other" })).await.code(), code(400, "bad_request"));
    loop {
        let view = client.get("/v1/conversations/c").await.json();
        if view["state"] == "waiting" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(other.post(path, json!({ "content": "more" })).await.code(), code(409, "busy"));
    client.request("POST", "/v1/conversations/c/cancel", None).await;
    let mut sent = other.post(path, json!({ "content": "something else" })).await;
    while sent.status == 409 {
        sent = other.post(path, json!({ "content": "something else" })).await;
    }
    assert_eq!(sent.status, 202, "what was refused is not remembered: {sent:?}");
    let long = client.with(&format!("idempotency-key: {}", "x".repeat(256)));
    assert_eq!(long.post(path, json!({ "content": "x" })).await.code(), code(400, "bad_request"));
    running.stopped().await;
}

#[tokio::test]
async fn a_server_that_closes_is_not_ready_and_takes_no_work() {
    let server = Server::builder(Conversations::in_memory(agent())).build().unwrap();
    let running = Running::start(server.clone()).await;
    let client = running.client();
    assert_eq!(client.post("/v1/conversations", json!({ "id": "c" })).await.status, 201);
    server.close();
    assert_eq!(client.get("/readyz").await.code(), code(503, "in_use"));
    assert_eq!(client.get("/healthz").await.status, 200);
    assert_eq!(
        client.post("/v1/conversations/c/messages", json!({ "content": "hi" })).await.code(),
        code(503, "in_use")
    );
    assert_eq!(client.get("/v1/conversations/c").await.status, 200, "reading goes on");
    running.stopped().await;
}
