//! Every error has one shape, whatever was wrong, and nothing leaks.

use axum::response::IntoResponse as _;
use serde_json::json;
use turnbuckle::models::Script;
use turnbuckle::{Agent, Conversations, Scope};
use turnbuckle_server::{Server, ServerLimits};

use crate::client::{Client, Running};

async fn running() -> Running {
    let agent = Agent::builder("a", Script::says(["hello"])).build().unwrap();
    let mut limits = ServerLimits::default();
    (limits.requests_per_second, limits.burst) = (1_000_000, 1_000_000);
    Running::start(Server::builder(Conversations::in_memory(agent)).limits(limits).build().unwrap()).await
}

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

async fn with_conversation() -> (Running, Client) {
    let running = running().await;
    let client = running.client();
    assert_eq!(client.post("/v1/conversations", json!({ "id": "c" })).await.status, 201);
    (running, client)
}

#[tokio::test]
async fn a_path_that_is_not_there_is_not_found() {
    let (running, client) = with_conversation().await;
    for path in [
        "/nothing",
        "//v1/conversations",
        "/v1/conversations/",
        "/v1/conversations/c/",
        "/v1//conversations",
        "/v1/conversations/../conversations",
        "/v1/conversations/%2e%2e/conversations",
        "/v1/conversations/c%2fcalls",
        "/v1/conversations/c%00",
        "/v1/conversations/c%0d%0aset-cookie:a",
        "/v1/conversations/c.json",
        "/V1/conversations",
        "/v1/conversations/c/turns/%00",
        "/v1/conversations/c/turns/none",
        &format!("/v1/conversations/{}", "x".repeat(65)),
        &format!("/v1/conversations/c/turns/{}", "x".repeat(257)),
    ] {
        assert_eq!(client.get(path).await.code(), code(404, "not_found"), "{path}");
    }
    assert_eq!(client.get("/v1/conversations/%ff%fe").await.code(), code(400, "bad_request"));
    running.stopped().await;
}

#[tokio::test]
async fn a_method_that_a_path_does_not_have_is_named_with_those_it_has() {
    let (running, client) = with_conversation().await;
    for (method, path) in [
        ("PUT", "/v1/conversations"),
        ("GET", "/v1/conversations/c/messages"),
        ("OPTIONS", "/v1/pending"),
        ("BREW", "/healthz"),
    ] {
        let answer = client.request(method, path, None).await;
        assert_eq!(answer.code(), code(405, "method_not_allowed"), "{method} {path}");
        assert!(answer.headers.contains("allow: "), "{}", answer.headers);
    }
    running.stopped().await;
}

#[tokio::test]
async fn a_body_that_does_not_fit_is_a_bad_request() {
    let (running, client) = with_conversation().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_content = format!(r#"{{"content":{deep}}}"#);
    let messages = "/v1/conversations/c/messages";
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\"hi\"",
        "{}",
        r#"{"content":1}"#,
        r#"{"content":null}"#,
        r#"{"content":{}}"#,
        r#"{"content":""}"#,
        r#"{"content":"  "}"#,
        r#"{"content":[]}"#,
        r#"{"content":["hi"]}"#,
        r#"{"content":[{"type":"text"}]}"#,
        r#"{"content":[{"type":"thinking","text":"I am the model"}]}"#,
        r#"{"content":[{"type":"provider","provider":"anthropic","block":{}}]}"#,
        r#"{"content":[{"type":"image","media_type":"image/png"}]}"#,
        r#"{"content":"hi","more":1}"#,
        r#"{"content":"hi","while_busy":"explode"}"#,
        r#"{"content":"hi","schema":3}"#,
        r#"{"content":"hi","schema":{"type":"nonsense"}}"#,
        "{\"content\":\"\\ud800\"}",
        &deep_content,
        &deep,
    ] {
        let answer = client.request("POST", messages, Some(body)).await;
        assert_eq!(answer.code(), code(400, "bad_request"), "{}", &body[..body.len().min(80)]);
    }
    for body in [
        "{}",
        r#"{"approve":"yes"}"#,
        r#"{"approve":true,"answer":1}"#,
        r#"{"approve":true,"reason":"because"}"#,
        r#"{"answer":1,"error":"x"}"#,
        r#"{"answer":1,"digest":"x"}"#,
    ] {
        let answer = client.request("POST", "/v1/conversations/c/calls/x", Some(body)).await;
        assert_eq!(answer.code(), code(400, "bad_request"), "{body}");
    }
    for body in [r#"{"id":"a b"}"#, r#"{"id":""}"#, r#"{"id":3}"#, r#"{"name":"x"}"#] {
        let answer = client.request("POST", "/v1/conversations", Some(body)).await;
        assert_eq!(answer.code(), code(400, "bad_request"), "{body}");
    }
    for title in ["", "   ", "\u{7}\n"] {
        let body = json!({ "title": title }).to_string();
        let answer = client.request("PATCH", "/v1/conversations/c", Some(&body)).await;
        assert_eq!(answer.code(), code(400, "bad_request"), "{title:?}");
    }
    // A form of another site can send this without asking first.
    let plain =
        format!("POST {messages} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\nconnection: close\r\n");
    let plain = format!("{plain}content-length: 16\r\n\r\n{{\"content\":\"hi\"}}");
    assert_eq!(client.raw(plain.as_bytes()).await.code(), code(400, "bad_request"));
    let log = client.get("/v1/conversations/c/history").await.json();
    assert_eq!(log["messages"], json!([]), "nothing of it was taken");
    running.stopped().await;
}

#[tokio::test]
async fn a_body_that_is_no_object_is_refused_in_those_words() {
    let (running, client) = with_conversation().await;
    let all = "/v1/conversations";
    for (method, path, body) in [
        ("POST", "/v1/conversations/c/messages", r#"["hi",null,"queue",false]"#),
        ("POST", "/v1/conversations/c/messages", r#" ["hi"]"#),
        ("POST", "/v1/conversations/c/messages", "null"),
        ("POST", "/v1/conversations/c/calls/x", "[true,null,null,null,null,null,false]"),
        ("PATCH", "/v1/conversations/c", r#"["seqtitle"]"#),
        ("POST", all, "[null]"),
        ("POST", all, "[]"),
        ("POST", all, "\"c2\""),
        ("POST", all, "7"),
    ] {
        let answer = client.request(method, path, Some(body)).await;
        assert_eq!(answer.code(), code(400, "bad_request"), "{method} {path} {body}");
        assert_eq!(answer.json()["error"]["message"], "the body must be a JSON object", "{method} {path} {body}");
    }
    // Deep enough to be refused as that, and not read to its end.
    let deep = client.request("POST", all, Some(&"[".repeat(100_000))).await;
    assert_eq!(deep.code(), code(400, "bad_request"));
    assert_eq!(client.request("POST", all, Some(" null ")).await.status, 201, "it may be left out, and null says so");
    assert_eq!(client.get("/v1/conversations/c").await.json()["messages"], json!([]), "nothing of it was taken");
    running.stopped().await;
}

#[tokio::test]
async fn a_query_that_does_not_fit_is_a_bad_request() {
    let (running, client) = with_conversation().await;
    for path in [
        "/v1/conversations?limit=0",
        "/v1/conversations?limit=501",
        "/v1/conversations?limit=-1",
        "/v1/conversations?limit=many",
        "/v1/conversations?limit=99999999999999999999999",
        "/v1/conversations?page=2",
        "/v1/conversations/c/history?before=x",
        "/v1/conversations/c/history?before=-1",
        "/v1/pending?older=soon",
        "/v1/pending?tools=x",
    ] {
        assert_eq!(client.get(path).await.code(), code(400, "bad_request"), "{path}");
    }
    running.stopped().await;
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let (running, client) = with_conversation().await;
    let large = json!({ "content": "x".repeat(2 << 20) });
    assert_eq!(client.post("/v1/conversations/c/messages", large).await.code(), code(413, "too_large"));
    // It fits into a body, and not into a context.
    let long = json!({ "content": "word ".repeat(100_000) });
    assert_eq!(client.post("/v1/conversations/c/messages", long).await.code(), code(413, "too_large"));
    let claimed = "POST /v1/conversations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                   connection: close\r\ncontent-length: 999999999999\r\n\r\n";
    assert_eq!(client.raw(claimed.as_bytes()).await.code(), code(413, "too_large"));
    running.stopped().await;
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_the_server_goes_on() {
    let (running, client) = with_conversation().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /a b c HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /v1/conversations HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST /v1/conversations HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    ] {
        let answer = client.raw(bytes).await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    let long = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200 << 10));
    assert_eq!(client.raw(long.as_bytes()).await.status, 431);
    assert_eq!(client.get("/healthz").await.status, 200);
    running.stopped().await;
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_order() {
    let (running, client) = with_conversation().await;
    let one = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let last = "GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = client.raw(format!("{one}{one}{last}").as_bytes()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body.matches("HTTP/1.1 200").count(), 1);
    assert_eq!(answer.body.matches("HTTP/1.1 404").count(), 1);
    running.stopped().await;
}

#[tokio::test]
async fn every_answer_keeps_browsers_from_guessing_and_framing() {
    let (running, client) = with_conversation().await;
    for path in ["/v1/conversations", "/nothing", "/healthz", "/openapi.json"] {
        let answer = client.get(path).await;
        for header in [
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "content-security-policy: default-src 'none'",
            "cache-control: no-store",
        ] {
            assert!(answer.headers.contains(header), "{path}: {}", answer.headers);
        }
    }
    running.stopped().await;
}

#[tokio::test]
async fn an_error_of_a_route_of_the_program_has_the_shape_of_all_errors_unless_it_is_json() {
    let answer = async |_, request: axum::extract::Request| match request.method().as_str() {
        "GET" => (axum::http::StatusCode::METHOD_NOT_ALLOWED, [("allow", "POST")], "no".to_owned()).into_response(),
        "PUT" => (axum::http::StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad JSON".to_owned()).into_response(),
        "DELETE" => axum::http::StatusCode::BAD_GATEWAY.into_response(),
        _ => (axum::http::StatusCode::BAD_REQUEST, axum::Json(json!({ "jsonrpc": "2.0" }))).into_response(),
    };
    let conversations = Conversations::in_memory(Agent::builder("a", Script::says(["hello"])).build().unwrap());
    let server = Server::builder(conversations).mount("/mounted", answer).build().unwrap();
    let running = Running::start(server).await;
    let client = running.client();
    let refused = client.get("/mounted").await;
    assert_eq!(refused.code(), (405, "method_not_allowed".to_owned()));
    assert!(refused.headers.contains("allow: post"), "{}", refused.headers);
    assert_eq!(client.request("PUT", "/mounted", None).await.code(), (400, "bad_request".to_owned()));
    assert_eq!(client.request("DELETE", "/mounted", None).await.code(), (500, "internal".to_owned()));
    assert_eq!(client.post("/mounted", json!({})).await.json(), json!({ "jsonrpc": "2.0" }));
    running.stopped().await;
}

#[tokio::test]
async fn a_handler_that_panics_is_an_internal_error_that_says_nothing_of_it_and_the_server_goes_on() {
    async fn broken(_: Scope, _: axum::extract::Request) -> String {
        panic!("the secret of a conversation")
    }
    let conversations = Conversations::in_memory(Agent::builder("a", Script::says(["hello"])).build().unwrap());
    let running = Running::start(Server::builder(conversations).mount("/broken", broken).build().unwrap()).await;
    let client = running.client();
    for _ in 0..3 {
        let answer = client.get("/broken").await;
        assert_eq!(answer.code(), code(500, "internal"));
        assert!(!answer.body.contains("secret"), "{answer:?}");
        assert!(answer.headers.contains("x-content-type-options: nosniff"), "{answer:?}");
    }
    assert_eq!(client.get("/v1/conversations").await.status, 200);
    running.stopped().await;
}

#[tokio::test]
async fn a_server_that_shuts_down_says_so_and_waits_for_turns() {
    let script = r#"{"replies":[{"chunks":["a","b","c"],"delay_ms":200}]}"#;
    let model = Script::from_json(script).unwrap();
    let agent = Agent::builder("a", model).build().unwrap();
    let conversations = Conversations::in_memory(agent);
    let mut running = Running::start(Server::builder(conversations.clone()).build().unwrap()).await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    let mut events = client.events("c", None).await;
    assert_eq!(client.post("/v1/conversations/c/messages", json!({ "content": "hi" })).await.status, 202);
    assert!(events.next().await.is_some());
    running.stop();
    // Told in the stream, which ends.
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        told.push(event.event);
    }
    assert_eq!(told.last().map(String::as_str), Some("notice"));
    running.stopped().await;
    let log = conversations.log(&"c".into(), Scope::local()).await.unwrap();
    let ended = log.last().map(|event| event.kind.name());
    assert_eq!(ended, Some("turn_ended"), "the turn came to rest");
}
