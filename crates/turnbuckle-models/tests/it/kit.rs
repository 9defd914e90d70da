//! What the tests share: a sink that listens, and requests.

use serde_json::{Value, json};
use turnbuckle::message::Part;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::tool::Definition;
use turnbuckle::{Message, Reply};
use turnbuckle_models::{Anthropic, Key, OpenAi};

/// Writes down what is pushed.
#[derive(Debug, Default)]
pub struct Ear {
    pub text: String,
    pub thinking: String,
    pub pieces: usize,
}

impl Sink for Ear {
    fn text(&mut self, text: &str) {
        self.text.push_str(text);
        self.pieces += 1;
    }
    fn thinking(&mut self, text: &str) {
        self.thinking.push_str(text);
    }
}

pub const SECRET: &str = "sk-very-secret-0123456789";

pub fn anthropic(url: &str) -> Anthropic {
    Anthropic::at(url, "claude-test", Some(Key::new(SECRET))).unwrap()
}

pub fn openai(url: &str) -> OpenAi {
    OpenAi::at(&format!("{url}/v1"), "gpt-test", Some(Key::new(SECRET))).unwrap()
}

pub fn tool(name: &str) -> Definition {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    Definition { name: name.into(), description: format!("Does {name}.").into(), parameters: parameters.into() }
}

pub fn asking(text: &str) -> Request {
    Request::of("a", vec![Message::User(text.into())], [])
}

/// Asks, and checks that what was pushed is what the reply says.
pub async fn ask(model: &dyn Model, request: &Request) -> Result<Reply, ModelError> {
    let mut ear = Ear::default();
    let reply = model.stream(request, &mut ear).await?;
    let thought: String = reply
        .content
        .parts()
        .iter()
        .filter_map(|part| match part {
            Part::Thinking(thought) => Some(&*thought.text),
            _ => None,
        })
        .collect();
    assert_eq!((ear.text, ear.thinking), (reply.content.text(), thought), "what was told is what was said");
    Ok(reply)
}

/// An event of a stream for each value, as Anthropic writes them.
pub fn anthropic_events(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

/// A chunk of a stream for each value, and the end.
pub fn openai_chunks(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// A chunk with this delta.
pub fn delta(delta: Value) -> Value {
    json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

/// The chunk that says why it ends.
pub fn finish(reason: &str) -> Value {
    json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test",
            "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}
