//! A server on this machine that answers as it is told, byte by byte, and sees what the client does.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What the server does, in order, with one connection.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Writes these bytes again and again until the client has closed, and says so.
    Flood(Vec<u8>),
    /// Waits until the client has closed, and says so.
    AwaitClose,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    pub head: String,
    pub body: Value,
}

pub struct StandIn {
    pub url: String,
    pub received: Arc<Mutex<Vec<Received>>>,
    pub closed: mpsc::Receiver<()>,
}

/// The head of an answer that streams; it ends with the connection.
pub fn streaming(body: &str) -> Vec<Step> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    vec![Step::Write([head, body].concat().into_bytes())]
}

pub fn answering(status: u16, headers: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}");
    vec![Step::Write(head.into_bytes())]
}

impl StandIn {
    /// One list of steps for each connection; the last one again for all that follow.
    pub async fn playing(answers: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (closing, closed) = mpsc::channel(16);
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let seen = received.clone();
        tokio::spawn(async move {
            let mut next = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let steps = answers[next.min(answers.len() - 1)].clone();
                next += 1;
                tokio::spawn(serve(stream, steps, seen.clone(), closing.clone()));
            }
        });
        Self { url, received, closed }
    }

    pub fn bodies(&self) -> Vec<Value> {
        self.received.lock().unwrap().iter().map(|request| request.body.clone()).collect()
    }

    pub fn head(&self) -> String {
        self.received.lock().unwrap()[0].head.clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    steps: Vec<Step>,
    received: Arc<Mutex<Vec<Received>>>,
    closing: mpsc::Sender<()>,
) {
    let Some(request) = request(&mut stream).await else { return };
    received.lock().unwrap().push(request);
    for step in steps {
        match step {
            Step::Write(bytes) => {
                if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                    break;
                }
            }
            Step::Flood(bytes) => {
                while stream.write_all(&bytes).await.is_ok() {
                    tokio::task::yield_now().await;
                }
                let _ = closing.send(()).await;
            }
            Step::AwaitClose => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|length| length > 0) {}
                let _ = closing.send(()).await;
            }
        }
    }
    let _ = stream.shutdown().await;
}

async fn request(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let whole = end + 4 + length.unwrap_or(0_usize);
            if bytes.len() >= whole {
                let body = serde_json::from_slice(&bytes[end + 4..whole]).unwrap_or_default();
                return Some(Received { head, body });
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
