//! Who may do what.

use serde_json::json;
use turnbuckle::access::RoleAccess;
use turnbuckle::models::Script;
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, Conversations};
use turnbuckle_server::{ClientIds, ServeError, Server, ServerLimits, Token, Tokens};

use crate::client::Running;

fn agent() -> Agent {
    Agent::builder("a", Script::says(["hello"])).build().unwrap()
}

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn tokens() -> Tokens {
    Tokens::new([
        Token::of_text("ann-secret", "ann"),
        Token::of_text("bob-secret", "bob"),
        Token::of_text("sue-secret", "sue").role("support"),
    ])
}

async fn with_tokens(tokens: Tokens) -> Running {
    let access = RoleAccess { read: vec!["support".into()], ..RoleAccess::default() };
    let conversations = Conversations::builder(agent(), MemoryStore::default()).access(access).build();
    let server = Server::builder(conversations).tokens(tokens).client_ids(ClientIds::Allowed).build().unwrap();
    Running::start(server).await
}

#[tokio::test]
async fn without_tokens_there_is_one_user_and_pages_of_other_sites_are_refused() {
    let running = Running::start(Server::builder(Conversations::in_memory(agent())).build().unwrap()).await;
    let client = running.client();
    let list = "/v1/conversations";
    assert_eq!(client.get(list).await.status, 200);
    assert_eq!(client.with("host: evil.example").get(list).await.code(), code(421, "misdirected"));
    assert_eq!(client.with("origin: http://evil.example").get(list).await.code(), code(403, "forbidden"));
    let forged = client.with("origin: null").post(list, json!({})).await;
    assert_eq!(forged.code(), code(403, "forbidden"));
    let own = client.with(&format!("origin: http://{}", running.address));
    assert_eq!(own.post(list, json!({ "id": "mine" })).await.status, 201);
    running.stopped().await;
}

#[tokio::test]
async fn without_tokens_no_route_at_all_answers_pages_of_other_sites() {
    let running = Running::start(Server::builder(Conversations::in_memory(agent())).build().unwrap()).await;
    let client = running.client();
    let page = client.get("/").await.body;
    let asset = page.split('"').find(|part| part.starts_with("/page/page-")).unwrap();
    for (method, path) in [
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/openapi.json"),
        ("GET", "/metrics"),
        ("GET", "/login"),
        ("GET", "/"),
        ("GET", asset),
        ("GET", "/nothing"),
        ("GET", "/v1/answers/x"),
        ("PUT", "/v1/conversations"),
    ] {
        let to = client.with("host: evil.example").request(method, path, None).await;
        assert_eq!(to.status, 421, "{method} {path}: {to:?}");
        let from = client.with("origin: http://evil.example").request(method, path, None).await;
        assert_eq!(from.status, 403, "{method} {path}: {from:?}");
        assert_ne!(client.request(method, path, None).await.status, 421, "{method} {path}");
    }
    let refused = client.with("host: evil.example").get("/nothing").await;
    assert_eq!(refused.code(), code(421, "misdirected"));
    assert!(refused.headers.contains("x-content-type-options: nosniff"), "{refused:?}");
    let person = client.with("host: evil.example").with("accept: text/html").get("/").await;
    assert!(
        person.body.contains("this server answers for localhost only") && person.body.contains("<html"),
        "{person:?}"
    );
    running.stopped().await;
}

#[tokio::test]
async fn without_tokens_nothing_but_loopback_is_listened_on() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let server = Server::builder(Conversations::in_memory(agent())).build().unwrap();
    let refused = server.serve(listener, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::NotLoopback { .. })));
}

#[tokio::test]
async fn a_token_is_needed_and_removing_it_ends_it() {
    let tokens = tokens();
    let running = with_tokens(tokens.clone()).await;
    let client = running.client();
    let list = "/v1/conversations";
    for wrong in [
        client.clone(),
        client.bearer("ann"),
        client.bearer(""),
        client.with("authorization: Basic YW5uOmFubg=="),
        client.with("authorization: ann-secret"),
        client.bearer("ann-secret").bearer("bob-secret"),
    ] {
        let answer = wrong.get(list).await;
        assert_eq!(answer.code(), code(401, "unauthorized"));
        assert!(answer.headers.contains("www-authenticate: bearer"));
    }
    let ann = client.bearer("ann-secret").with("host: agents.example");
    assert_eq!(ann.get(list).await.status, 200, "behind a proxy the host is another");
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(client.get(open).await.status, 200, "{open}");
    }
    tokens.replace([Token::of_text("bob-secret", "bob")]);
    assert_eq!(ann.get(list).await.code(), code(401, "unauthorized"));
    running.stopped().await;
}

#[tokio::test]
async fn anothers_conversation_does_not_exist_for_those_who_may_not_read_it() {
    let running = with_tokens(tokens()).await;
    let client = running.client();
    let (ann, bob, sue) = (client.bearer("ann-secret"), client.bearer("bob-secret"), client.bearer("sue-secret"));
    assert_eq!(ann.post("/v1/conversations", json!({ "id": "anns" })).await.status, 201);
    let say = json!({ "content": "hi" });
    assert_eq!(ann.post("/v1/conversations/anns/messages", say.clone()).await.status, 202);
    for (method, path, body) in [
        ("GET", "/v1/conversations/anns", None),
        ("GET", "/v1/conversations/anns/history", None),
        ("GET", "/v1/conversations/anns/events", None),
        ("GET", "/v1/conversations/anns/turns/t_1", None),
        ("POST", "/v1/conversations/anns/messages", Some(say.clone())),
        ("POST", "/v1/conversations/anns/cancel", None),
        ("POST", "/v1/conversations/anns/calls/c1", Some(json!({ "approve": true }))),
        ("PATCH", "/v1/conversations/anns", Some(json!({ "title": "mine" }))),
        ("DELETE", "/v1/conversations/anns", None),
    ] {
        let body = body.map(|body| body.to_string());
        let anothers = bob.request(method, path, body.as_deref()).await;
        assert_eq!(anothers.code(), code(404, "not_found"), "{method} {path}");
        let missing = bob.request(method, &path.replace("anns", "none"), body.as_deref()).await;
        assert_eq!(missing.body, anothers.body, "the answer does not tell one from the other: {method} {path}");
    }
    assert_eq!(bob.get("/v1/conversations").await.json()["conversations"], json!([]));
    assert_eq!(bob.post("/v1/conversations", json!({ "id": "anns" })).await.code(), code(409, "exists"));
    // Support may read, and is told what others may do.
    assert_eq!(sue.get("/v1/conversations/anns").await.status, 200);
    assert_eq!(sue.post("/v1/conversations/anns/messages", say).await.code(), code(403, "forbidden"));
    assert_eq!(sue.request("DELETE", "/v1/conversations/anns", None).await.code(), code(403, "forbidden"));
    running.stopped().await;
}

#[tokio::test]
async fn a_server_with_tokens_makes_all_ids_unless_it_is_told_otherwise() {
    let server = Server::builder(Conversations::in_memory(agent())).tokens(tokens()).build().unwrap();
    let running = Running::start(server).await;
    let ann = running.client().bearer("ann-secret");
    assert_eq!(ann.post("/v1/conversations", json!({ "id": "mine" })).await.code(), code(400, "bad_request"));
    assert_eq!(ann.request("POST", "/v1/conversations", None).await.status, 201);
    running.stopped().await;
}

#[tokio::test]
async fn a_caller_that_asks_too_much_is_told_when_to_come_back() {
    let mut limits = ServerLimits::default();
    (limits.requests_per_second, limits.burst, limits.streams_per_caller) = (1, 5, 1);
    let server = Server::builder(Conversations::in_memory(agent())).tokens(tokens()).limits(limits).build().unwrap();
    let running = Running::start(server).await;
    let (ann, bob) = (running.client().bearer("ann-secret"), running.client().bearer("bob-secret"));
    let id = ann.request("POST", "/v1/conversations", None).await.json()["id"].as_str().unwrap().to_owned();
    let mut open = ann.events(&id, Some("0-0")).await;
    assert_eq!(open.next().await.unwrap().event, "lagged");
    let second = ann.get(&format!("/v1/conversations/{id}/events")).await;
    assert_eq!(second.code(), code(429, "rate_limited"));
    let mut refused = ann.get("/v1/conversations").await;
    for _ in 0..1_000 {
        if refused.status != 200 {
            break;
        }
        refused = ann.get("/v1/conversations").await;
    }
    assert_eq!(refused.code(), code(429, "rate_limited"));
    assert!(refused.headers.contains("retry-after: 1"), "{}", refused.headers);
    assert_eq!(bob.get("/v1/conversations").await.status, 200);
    running.stopped().await;
}

#[tokio::test]
async fn logging_in_counts_as_a_request_of_the_token() {
    let mut limits = ServerLimits::default();
    (limits.requests_per_second, limits.burst) = (1, 5);
    let server = Server::builder(Conversations::in_memory(agent())).tokens(tokens()).limits(limits).build().unwrap();
    let running = Running::start(server).await;
    let client = running.client();
    let csrf = client.get("/login").await.field("csrf");
    let mut answers = Vec::new();
    for _ in 0..100 {
        answers.push(client.form("/login", &[("token", "ann-secret"), ("csrf", &csrf)]).await.status);
        if answers.last() != Some(&303) {
            break;
        }
    }
    assert_eq!((answers.first(), answers.last()), (Some(&303), Some(&429)), "{answers:?}");
    assert_eq!(client.form("/login", &[("token", "bob-secret"), ("csrf", &csrf)]).await.status, 303);
    running.stopped().await;
}

#[tokio::test]
async fn those_without_a_token_share_a_limit_that_holds_up_nobody_else() {
    let mut limits = ServerLimits::default();
    (limits.requests_per_second, limits.burst) = (1, 2);
    let server = Server::builder(Conversations::in_memory(agent())).tokens(tokens()).limits(limits).build().unwrap();
    let running = Running::start(server).await;
    let client = running.client();
    for path in ["/v1/conversations", "/login"] {
        let mut last = client.get(path).await;
        for _ in 0..1_000 {
            if last.status == 429 {
                break;
            }
            last = client.get(path).await;
        }
        assert_eq!(last.code(), code(429, "rate_limited"), "{path}");
        assert!(last.headers.contains("retry-after: "), "{}", last.headers);
    }
    assert_eq!(client.bearer("ann-secret").get("/v1/conversations").await.status, 200);
    for _ in 0..100 {
        for health in ["/healthz", "/readyz"] {
            assert_eq!(client.get(health).await.status, 200);
        }
    }
    running.stopped().await;
}
