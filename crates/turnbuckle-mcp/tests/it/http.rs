//! Servers that are reached over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle_mcp::{Endpoint, McpServer, ServerOptions};

use crate::desk::results;

/// Answers each request as a small MCP server does, and notes the header `x-token`.
fn serve() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let noted = tokens.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let noted = noted.clone();
            std::thread::spawn(move || answer(stream, &noted));
        }
    });
    (url, tokens)
}

fn answer(stream: TcpStream, tokens: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut line, mut first) = (0, String::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        let lower = line.to_ascii_lowercase();
        if first.is_empty() {
            first = line.clone();
        }
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let Some(value) = lower.strip_prefix("x-token:") {
            tokens.lock().unwrap().push(value.trim().to_owned());
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    if let Some(text) = request["params"]["arguments"]["text"].as_str()
        && let Some(kind) = text.strip_prefix("endless ")
    {
        return endless(&stream, kind, request["id"].as_u64().unwrap());
    }
    let result = match request["method"].as_str() {
        Some("initialize") => json!({ "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": { "tools": {} }, "serverInfo": { "name": "web", "version": "1" } }),
        Some("tools/list") => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        Some("tools/call") => {
            json!({ "content": [{ "type": "text", "text": request["params"]["arguments"]["text"] }] })
        }
        _ => Value::Null,
    };
    let (status, text) = match result {
        Value::Null if first.starts_with("GET") => ("405 Method Not Allowed", String::new()),
        Value::Null => ("202 Accepted", String::new()),
        result => ("200 OK", json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    (&stream).write_all((head + &text).as_bytes()).unwrap();
}

/// Answers without an end, until nobody reads any more.
fn endless(mut stream: &TcpStream, what: &str, id: u64) {
    let (status, kind, begin, piece) = match what {
        "json" => ("200 OK", "application/json", format!(r#"{{"jsonrpc":"2.0","id":{id},"result":""#), "x"),
        "error" => ("500 Internal Server Error", "application/json", r#"{"error":""#.to_owned(), "x"),
        "text" => ("400 Bad Request", "text/plain", "no such luck ".to_owned(), "x"),
        "event" => ("200 OK", "text/event-stream", "id: 1\ndata: ".to_owned(), "x"),
        "lines" => ("200 OK", "text/event-stream", String::new(), "data: x\r\n"),
        other => panic!("{other}"),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{begin}");
    let pieces = piece.repeat((1 << 20) / piece.len());
    let mut sent = stream.write_all(head.as_bytes()).map(|()| 0);
    while let Ok(mebibytes) = sent {
        assert!(mebibytes < 500, "{what} is read without end");
        sent = stream.write_all(pieces.as_bytes()).map(|()| mebibytes + 1);
    }
}

#[tokio::test]
async fn an_answer_without_an_end_ends_the_connection_and_nothing_else() {
    for what in ["json", "error", "event", "lines"] {
        let (url, _) = serve();
        let mut options = ServerOptions::at("test", Endpoint::Http { url, headers: Vec::new(), tokens: None });
        (options.approve, options.clock) = (Vec::new(), Arc::new(turnbuckle::clock::SystemClock::default()));
        let server = McpServer::new(options);
        let server = server.pinned(server.list().await.unwrap());
        let told = results(&server, &["fine", &format!("endless {what}"), "fine"]).await;
        assert!(told[0].0, "{}", told[0].1);
        assert!(!told[1].0 && told[1].1.contains("was lost in the middle of the call"), "{what}: {}", told[1].1);
        assert!(told[1].1.contains("a message of more than 64 MiB"), "{what}: {}", told[1].1);
        // It is reached again after a pause.
        assert!(told[2].1.contains("it is started again in"), "{what}: {}", told[2].1);
    }
}

#[tokio::test]
async fn of_a_refusal_without_an_end_only_the_beginning_is_read() {
    let (url, _) = serve();
    let mut options = ServerOptions::at("test", Endpoint::Http { url, headers: Vec::new(), tokens: None });
    options.approve = Vec::new();
    let server = McpServer::new(options);
    let server = server.pinned(server.list().await.unwrap());
    let told = results(&server, &["endless text", "fine"]).await;
    assert!(!told[0].0 && told[0].1.contains("400") && told[0].1.contains("no such luck"), "{}", told[0].1);
    assert!(told[0].1.len() < 5000 && told[1].0, "{}", told[1].1);
}

#[tokio::test]
async fn a_server_over_http_is_called_with_its_headers() {
    let (url, tokens) = serve();
    let headers = vec![("x-token".to_owned(), "hunter2".to_owned())];
    let mut options = ServerOptions::at("test", Endpoint::Http { url, headers, tokens: None });
    options.approve = Vec::new();
    assert!(!format!("{options:?}").contains("hunter2"));
    let server = McpServer::new(options);
    let server = server.pinned(server.list().await.unwrap());
    let told = results(&server, &["over the wire"]).await;
    assert!(told[0].0 && told[0].1.contains("over the wire"), "{}", told[0].1);
    assert!(tokens.lock().unwrap().iter().all(|token| token == "hunter2"));
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    assert!(McpServer::new(ServerOptions::http("test", url)).list().await.is_err());
}
