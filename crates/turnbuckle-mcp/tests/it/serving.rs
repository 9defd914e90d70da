//! Conversations over `/mcp` of a server, as MCP's own client finds them: over real sockets, as several users.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Scope};
use turnbuckle_mcp::{Approvals, HttpConversationServer, NewIds};
use turnbuckle_server::{Server, Token, Tokens};

/// Talks once, and then asks to be allowed something.
fn conversations(first: ScriptReply) -> Conversations {
    let pay =
        function_with_schema("pay", "Pays.", json!({ "type": "object" }), Effect::Never, |_, _: Value| async move {
            Ok("paid")
        });
    let script = Script::of([first, ScriptReply::calls("p1", "pay", json!({})), ScriptReply::says("it is paid")]);
    Conversations::in_memory(Agent::builder("payer", script).tool(pay.requires_approval()).build().unwrap())
}

struct Running {
    url: String,
    address: std::net::SocketAddr,
    _stop: oneshot::Sender<()>,
}

async fn serve(conversations: Conversations, tokens: Option<Tokens>, approvals: Approvals) -> Running {
    let new_ids = if tokens.is_some() { NewIds::Made } else { NewIds::Chosen };
    let mcp = HttpConversationServer::new(conversations.clone(), approvals, new_ids, 64 << 10);
    let mut server = Server::builder(conversations).mount("/mcp", move |scope, request| {
        let mcp = mcp.clone();
        async move { mcp.handle(scope, request).await }
    });
    if let Some(tokens) = tokens {
        server = server.tokens(tokens);
    }
    let server = server.build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move { server.serve(listener, async { drop(stopped.await) }).await });
    Running { url: format!("http://{address}/mcp"), address, _stop: stop }
}

fn tokens() -> Tokens {
    Tokens::new([Token::of_text("ann-secret", "ann"), Token::of_text("bob-secret", "bob")])
}

struct Client(RunningService<RoleClient, ()>);

impl Client {
    async fn open(running: &Running, token: Option<&str>) -> Result<Self, Box<dyn std::error::Error>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let http = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build()?;
        let mut config = StreamableHttpClientTransportConfig::with_uri(running.url.clone());
        if let Some(token) = token {
            config = config.auth_header(token);
        }
        Ok(Self(().serve(StreamableHttpClientTransport::with_client(http, config)).await?))
    }

    /// The result, or what the tool says went wrong.
    async fn call(&self, tool: &'static str, arguments: Value) -> Result<Value, String> {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self.0.call_tool(request).await.unwrap();
        let result = serde_json::to_value(&result).unwrap();
        match result["isError"].as_bool() {
            Some(true) => Err(result["content"][0]["text"].as_str().unwrap().to_owned()),
            _ => Ok(result["structuredContent"].clone()),
        }
    }
}

#[tokio::test]
async fn each_caller_acts_as_themselves_and_anothers_conversation_does_not_exist() {
    let running = serve(conversations(ScriptReply::says("hello")), Some(tokens()), Approvals::Refused).await;
    assert!(Client::open(&running, None).await.is_err(), "a token is needed");
    assert!(Client::open(&running, Some("wrong")).await.is_err());
    let ann = Client::open(&running, Some("ann-secret")).await.unwrap();
    let bob = Client::open(&running, Some("bob-secret")).await.unwrap();
    let tools = ann.0.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["send", "list", "watch", "pending", "answer", "cancel"]);

    let said = ann.call("send", json!({ "message": "hi" })).await.unwrap();
    assert_eq!((&said["outcome"], &said["answer"]), (&json!("completed"), &json!("hello")));
    let id = said["conversation"].as_str().unwrap().to_owned();
    assert_eq!(ann.call("list", json!({})).await.unwrap()["conversations"][0]["conversation"], id);
    assert_eq!(bob.call("list", json!({})).await.unwrap()["conversations"], json!([]));
    for (tool, more) in [("send", json!({ "message": "hi" })), ("watch", json!({})), ("cancel", json!({}))] {
        let with = |id: &str| {
            let mut arguments = more.clone();
            arguments["conversation"] = json!(id);
            arguments
        };
        let anothers = bob.call(tool, with(&id)).await.unwrap_err();
        let nobodys = bob.call(tool, with("nobodys")).await.unwrap_err();
        assert_eq!(anothers.replace(&id, "nobodys"), nobodys, "{tool} tells one from the other");
    }
}

#[tokio::test]
async fn calls_are_approved_only_if_whoever_started_the_server_allowed_it() {
    for approvals in [Approvals::Refused, Approvals::Allowed] {
        let conversations = conversations(ScriptReply::says("hello"));
        let running = serve(conversations.clone(), None, approvals).await;
        let client = Client::open(&running, None).await.unwrap();
        // Without tokens ids can be chosen, as over the API.
        client.call("send", json!({ "message": "hi", "conversation": "c" })).await.unwrap();
        let waits = client.call("send", json!({ "message": "pay", "conversation": "c" })).await.unwrap();
        assert_eq!(waits["state"], "waiting");
        let approved = client.call("answer", json!({ "conversation": "c", "call": "p1", "approve": true })).await;
        if approvals == Approvals::Refused {
            assert!(approved.unwrap_err().contains("--allow-approvals"));
            let result = json!({ "conversation": "c", "call": "p1", "answer": "paid" });
            assert!(client.call("answer", result).await.is_err(), "a result is no way around it");
            continue;
        }
        assert_eq!(approved.unwrap()["answer"], "it is paid");
        let log = conversations.log(&"c".into(), Scope::system()).await.unwrap();
        let log = serde_json::to_value(&log).unwrap();
        let resolution = log.as_array().unwrap().iter().find(|event| event["type"] == "resolution").unwrap();
        assert_eq!(resolution["via"], "mcp");
    }
}

fn post(running: &Running, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST /mcp HTTP/1.1\r\n{headers}content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .replace("HOST", &running.address.to_string())
}

async fn raw(running: &Running, request: String) -> String {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer).await);
    answer
}

#[tokio::test]
async fn pages_of_other_sites_other_hosts_and_large_bodies_are_refused() {
    let running = serve(conversations(ScriptReply::says("hello")), None, Approvals::Refused).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let own = raw(&running, post(&running, "host: HOST\r\n", &list)).await;
    assert!(own.starts_with("HTTP/1.1 200 "), "{own}");
    let foreign = raw(&running, post(&running, "host: HOST\r\norigin: http://evil.example\r\n", &list)).await;
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
    let rebound = raw(&running, post(&running, "host: evil.example\r\n", &list)).await;
    assert!(rebound.starts_with("HTTP/1.1 421 "), "{rebound}");
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "x": "x".repeat(70 << 10) } });
    let large = raw(&running, post(&running, "host: HOST\r\n", &large)).await;
    assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
    let got = raw(&running, "GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned()).await;
    assert!(got.starts_with("HTTP/1.1 405 "), "{got}");
}

#[tokio::test]
async fn a_turn_goes_on_when_the_connection_of_its_request_is_lost() {
    let slow: ScriptReply = serde_json::from_value(json!({ "chunks": ["a", "b", "c"], "delay_ms": 300 })).unwrap();
    let conversations = conversations(slow);
    let running = serve(conversations.clone(), None, Approvals::Refused).await;
    let arguments = json!({ "message": "hi", "conversation": "c" });
    let send = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "send", "arguments": arguments } });
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(post(&running, "host: HOST\r\n", &send).as_bytes()).await.unwrap();
    while conversations.running_count() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(stream);
    while conversations.running_count() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = conversations.log(&"c".into(), Scope::system()).await.unwrap();
    let ended = serde_json::to_value(log.last().unwrap()).unwrap();
    assert_eq!((&ended["type"], &ended["outcome"]), (&json!("turn_ended"), &json!("completed")));
}
