//! The model that is there when no other is: it says so, word by word, and plays the demo's story.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Script, ScriptReply};
use crate::BoxFuture;
use crate::clock::{Clock, SystemClock};
use crate::message::{Message, Reply};
use crate::model::{Model, ModelError, Request, Sink};

/// A stand-in that knows it is one.
#[derive(Clone)]
pub struct Demo {
    clock: Arc<dyn Clock>,
    pace: Duration,
}

impl Default for Demo {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock::default()), pace: Duration::from_millis(15) }
    }
}

/// The file of the story as the person finds it.
const STORY_BEFORE: &str = "def total(prices):\n    t = 0\n    for p in prices:\n        t = t + p\n    return t\n";
const STORY_BROKEN: &str = "def total(prices):\n    \"\"\"The sum of all prices.\"\"\"\n    return sum(prices\n";
const STORY_FIXED: &str = "def total(prices):\n    \"\"\"The sum of all prices.\"\"\"\n    return sum(prices)\n";

impl Demo {
    /// Asked to refactor `prices.py`, the model breaks its syntax and says it is done; refused, it fixes it.
    pub fn story(pace: Duration) -> Script {
        let delay_ms = u64::try_from(pace.as_millis()).unwrap_or(u64::MAX);
        let slow = |reply: ScriptReply| ScriptReply { delay_ms, ..reply };
        let words = |text: &str| slow(ScriptReply::chunks(text.split_inclusive(' ')));
        let path = "prices.py";
        Script::of([
            words("Let me look at the file first. ").and_calls("c1", "read_file", json!({ "path": path })),
            words("A loop that adds up: Python has a word for that. ").and_calls(
                "c2",
                "write_file",
                json!({ "path": path, "content": STORY_BROKEN }),
            ),
            words("Done! prices.py is now one line shorter and easier to read."),
            words("You are right, I left a parenthesis open. ").and_calls(
                "c3",
                "edit_file",
                json!({ "path": path, "old": "return sum(prices\n", "new": "return sum(prices)\n" }),
            ),
            words("Now it is done: prices.py uses sum(), and its syntax has been checked."),
        ])
    }

    /// The story's file as the person finds it.
    pub fn story_beginning() -> &'static str {
        STORY_BEFORE
    }

    /// What the story's file holds when all went well.
    pub fn story_end() -> &'static str {
        STORY_FIXED
    }

    async fn speak(&self, request: &Request, out: &mut dyn Sink) -> Reply {
        let said = request.messages.iter().rev().find_map(|message| match message {
            Message::User(content) => Some(content.text()),
            _ => None,
        });
        let said: String = said.unwrap_or_default().chars().take(200).collect();
        let text = format!(
            "I am the demo model, a stand-in: nobody clever is answering. You said: {said}\n\n\
             A real model answers with a key (ANTHROPIC_API_KEY, OPENAI_API_KEY) or with --model ollama:MODEL."
        );
        for word in text.split_inclusive(' ') {
            self.clock.sleep(self.pace).await;
            out.text(word);
        }
        Reply::text(text)
    }
}

impl Model for Demo {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move { Ok(self.speak(request, out).await) })
    }
    fn summarises(&self) -> bool {
        false
    }
    fn name(&self) -> &str {
        "demo"
    }
}

impl std::fmt::Debug for Demo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Demo")
    }
}
