//! A provider on loopback: it answers every question with the same stream, on a thread of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::BoxError;

/// Which wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic's Messages.
    Anthropic,
    /// Chat completions.
    OpenAi,
}

/// How the chunks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One write for each, with a moment between them, as a model speaks: every chunk wakes the client.
    OneByOne,
    /// As fast as the socket takes them: the client reads many at once.
    Burst,
}

/// What it says in a chunk.
pub const WORD: &str = "rope ";

fn events(wire: Wire, chunks: usize) -> Vec<String> {
    let named = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    match wire {
        Wire::Anthropic => {
            let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
            let text = json!({ "type": "text_delta", "text": WORD });
            let mut events = vec![
                named(
                    json!({ "type": "message_start", "message": { "id": "m", "role": "assistant", "usage": usage } }),
                ),
                named(
                    json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
                ),
            ];
            let chunk = named(json!({ "type": "content_block_delta", "index": 0, "delta": text }));
            events.extend(std::iter::repeat_n(chunk, chunks));
            events.push(named(json!({ "type": "content_block_stop", "index": 0 })));
            events.push(named(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } })));
            events.push(named(json!({ "type": "message_stop" })));
            events
        }
        Wire::OpenAi => {
            let chunk = |delta: Value, finish: Value| {
                let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
                let chunk = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_762_000_000,
                                    "model": "gpt-bench", "system_fingerprint": "fp_1", "choices": [choice] });
                format!("data: {chunk}\n\n")
            };
            let mut events = vec![chunk(json!({ "role": "assistant", "content": "" }), Value::Null)];
            events.extend(std::iter::repeat_n(chunk(json!({ "content": WORD }), Value::Null), chunks));
            events.push(chunk(json!({}), json!("stop")));
            events.push("data: [DONE]\n\n".to_owned());
            events
        }
    }
}

/// Starts it; gives back its address. It lives as long as the process.
pub fn serve(wire: Wire, pace: Pace, chunks: usize) -> Result<String, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let events = events(wire, chunks);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has gone is nothing to a server.
            let _ = answer(stream, &events, pace);
        }
    });
    Ok(url)
}

fn answer(mut stream: TcpStream, events: &[String], pace: Pace) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    read_request(&stream)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    match pace {
        Pace::Burst => stream.write_all(events.concat().as_bytes()),
        Pace::OneByOne => events.iter().try_for_each(|event| {
            stream.write_all(event.as_bytes())?;
            std::thread::sleep(Duration::from_micros(1));
            Ok(())
        }),
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    reader.read_exact(&mut vec![0; length])
}
