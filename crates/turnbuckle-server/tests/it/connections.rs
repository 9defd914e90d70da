//! Connections of clients that say nothing, or too slowly, or of which there are too many.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use turnbuckle::models::Script;
use turnbuckle::{Agent, Conversations};
use turnbuckle_server::{Server, ServerBuilder, ServerLimits};

use crate::client::Running;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn server() -> ServerBuilder {
    Server::builder(Conversations::in_memory(Agent::builder("a", Script::says(["hello"])).build().unwrap()))
}

/// How long a connection stays open that begins with these bytes and goes on as `keep_up` does, and what is said on it.
async fn open_for(
    running: &Running,
    begin: &[u8],
    keep_up: impl AsyncFn(&mut TcpStream, &[u8]),
) -> (Duration, Vec<u8>) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(begin).await.unwrap();
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        // Time is paused: it goes on when nothing else can happen.
        let read = tokio::time::timeout(Duration::from_secs(600), stream.read(&mut buffer)).await;
        match read.expect("it is closed").unwrap_or(0) {
            0 => return (begun.elapsed(), said),
            read => {
                said.extend_from_slice(&buffer[..read]);
                keep_up(&mut stream, &buffer[..read]).await;
            }
        }
    }
}

async fn nothing(_: &mut TcpStream, _: &[u8]) {}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_or_half_of_something_is_let_go() {
    let running = Running::start(server().build().unwrap()).await;
    let half_a_head = b"GET /healthz HTTP/1.1\r\nhost: loc".as_slice();
    let asked = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".as_slice();
    for begin in [b"".as_slice(), b"P", b"PRI * HTTP/2", PREFACE, half_a_head, asked] {
        let (open, _) = open_for(&running, begin, nothing).await;
        assert!(open <= Duration::from_secs(90), "{open:?}: {}", String::from_utf8_lossy(begin));
    }
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_pings_and_asks_nothing_is_let_go() {
    let running = Running::start(server().build().unwrap()).await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let pings = std::cell::Cell::new(0);
    // Frames are a length of three bytes, a kind, flags, four bytes for the stream, and the rest. A ping has eight bytes.
    let answer = async |stream: &mut TcpStream, mut frames: &[u8]| {
        while let [_, _, length, kind, flags, ..] = *frames {
            let (frame, rest) = frames.split_at(9 + usize::from(length));
            if (kind, flags) == (6, 0) {
                pings.set(pings.get() + 1);
                let mut pong = frame.to_vec();
                pong[4] = 1;
                stream.write_all(&pong).await.unwrap();
            }
            frames = rest;
        }
    };
    let (open, _) = open_for(&running, &[PREFACE, &settings].concat(), answer).await;
    assert!(pings.get() > 0 && open <= Duration::from_secs(90), "{open:?}, {pings:?}");
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_for_a_route_of_the_program_has_a_deadline_and_a_limit() {
    let mut limits = ServerLimits::default();
    limits.body_bytes = 1_000;
    let mounted = server().limits(limits).mount("/mounted", async |_, request: axum::extract::Request| {
        axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap()
    });
    let running = Running::start(mounted.build().unwrap()).await;
    let slow = b"POST /mounted HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf".as_slice();
    let (open, said) = open_for(&running, slow, nothing).await;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("\"bad_request\""), "{said}");
    assert!(open <= Duration::from_secs(60), "{open:?}");
    let client = running.client();
    assert_eq!(client.post("/mounted", json!("whole")).await.body, "\"whole\"");
    assert_eq!(client.post("/mounted", json!("x".repeat(2_000))).await.code(), (413, "too_large".to_owned()));
    running.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn those_for_whom_there_is_no_room_are_told_when_to_come_back() {
    let mut limits = ServerLimits::default();
    limits.connections = 3;
    let running = Running::start(server().limits(limits).build().unwrap()).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(running.address).await.unwrap());
    }
    let refused = running.client().get("/healthz").await;
    assert_eq!(refused.code(), (503, "in_use".to_owned()));
    assert!(refused.headers.contains("retry-after: "), "{}", refused.headers);
    // Those that say nothing are gone after their deadline.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(running.client().get("/healthz").await.status, 200);
    drop(silent);
    running.stopped().await;
}
