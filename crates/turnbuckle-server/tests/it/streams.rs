//! Streams of events: whatever is cut, the view is the same.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use turnbuckle::event::Event;
use turnbuckle::feed::{Cursor, FeedEvent, FeedItem, LiveEvent};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::projection::Projection;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Scope};
use turnbuckle_server::{Server, ServerLimits};

use crate::client::{Client, Running, Told};

/// A view as a client makes it: the snapshot of the API, and the events applied to it.
struct ClientView {
    view: Projection,
}

impl ClientView {
    async fn of(client: &Client, id: &str) -> Self {
        let json = client.get(&format!("/v1/conversations/{id}")).await.json();
        let events: Vec<Arc<Event>> = json["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| Arc::new(serde_json::from_value(event.clone()).unwrap()))
            .collect();
        let mut view = Projection::of_log(&events);
        view.state = serde_json::from_value(json["state"].clone()).unwrap();
        view.cursor = serde_json::from_value(json["cursor"].clone()).unwrap();
        if let Value::Object(streaming) = &json["streaming"] {
            let mut cursor = view.cursor;
            cursor.position += 1;
            let attempt = streaming["attempt"].as_u64().unwrap() as u32;
            let text = streaming["text"].as_str().unwrap().into();
            // The cursor is put back: this is not an event of the feed.
            let (now, at) = (view.cursor, Default::default());
            let item = FeedItem::Live(LiveEvent::TextDelta { attempt, text });
            view.apply(&FeedEvent { conversation: id.into(), turn: None, cursor, at, item });
            view.cursor = now;
        }
        Self { view }
    }

    fn cursor(&self) -> String {
        self.view.cursor.to_string()
    }

    /// False if the client must take a new snapshot.
    fn apply(&mut self, told: &Told) -> bool {
        if told.event == "lagged" {
            return false;
        }
        assert_eq!(told.data["type"], told.event.as_str());
        assert_eq!(told.data["cursor"], told.id.as_str());
        let item = match told.data["plane"].as_str().unwrap() {
            "log" => FeedItem::Log(Arc::new(serde_json::from_value(told.data.clone()).unwrap())),
            _ => FeedItem::Live(serde_json::from_value(told.data.clone()).unwrap()),
        };
        let cursor: Cursor = told.id.parse().unwrap();
        let conversation = told.data["conversation"].as_str().unwrap().into();
        self.view.apply(&FeedEvent { conversation, turn: None, cursor, at: Default::default(), item });
        true
    }

    /// Whether so many turns are over and nothing goes on.
    fn rests(&self, turns: usize) -> bool {
        let ended = self.view.events.iter().filter(|event| event.kind.name() == "turn_ended").count();
        ended == turns && self.view.state == turnbuckle::feed::ConversationState::Idle
    }

    /// What is compared: everything but the cursor, which says how it was seen and not what.
    fn seen(&self) -> Projection {
        Projection { cursor: Cursor::default(), ..self.view.clone() }
    }
}

fn agent() -> Agent {
    let add = function_with_schema("add", "Adds.", json!({ "type": "object" }), Effect::Pure, |_, _| async { Ok("4") });
    let chunks = |n: usize| (0..n).map(|n| format!("piece {n} of the answer, {} ", "é".repeat(n % 7)));
    let replies = [
        ScriptReply::chunks(chunks(40)).and_calls("c1", "add", json!({ "a": 2 })),
        ScriptReply::chunks(chunks(60)),
        ScriptReply::chunks(chunks(30)),
    ];
    Agent::builder("a", Script::of(replies)).tool(add).build().unwrap()
}

async fn start() -> (Running, Conversations) {
    let conversations = Conversations::in_memory(agent());
    let mut limits = ServerLimits::default();
    (limits.requests_per_second, limits.burst) = (1_000_000, 1_000_000);
    let server = Server::builder(conversations.clone()).limits(limits).build().unwrap();
    (Running::start(server).await, conversations)
}

/// Watches two turns over a stream that is cut after these many bytes, again and again. Between cuts it reads without an end.
async fn watched(cuts: &[usize]) -> (Projection, Projection) {
    let (running, conversations) = start().await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    let mut seen = ClientView::of(&client, "c").await;
    let talk = {
        let client = client.clone();
        tokio::spawn(async move {
            for text in ["one", "two"] {
                let path = "/v1/conversations/c/messages";
                let sent = client.post(path, json!({ "content": text, "while_busy": "queue" })).await;
                assert_eq!(sent.status, 202, "{sent:?}");
            }
        })
    };
    let mut last = seen.cursor();
    for cut in cuts {
        let (told, at) = client.events("c", Some(&last)).await.cut_after(*cut).await;
        for one in &told {
            if !seen.apply(one) {
                seen = ClientView::of(&client, "c").await;
            }
        }
        last = match told.iter().any(|one| one.event == "lagged") {
            true => seen.cursor(),
            false => at.unwrap_or(last),
        };
    }
    talk.await.unwrap();
    let mut events = client.events("c", Some(&last)).await;
    while !seen.rests(2) {
        let told = events.next().await.expect("the stream goes on");
        if !seen.apply(&told) {
            seen = ClientView::of(&client, "c").await;
        }
    }
    let whole = conversations.snapshot(&"c".into(), Scope::local()).await.unwrap();
    let whole = Projection { cursor: Cursor::default(), ..whole };
    drop(events);
    running.stopped().await;
    (seen.seen(), whole)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]
    #[test]
    fn any_cut_at_any_byte_gives_the_same_view_as_no_cut(cuts in proptest::collection::vec(0usize..6_000, 0..8)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (seen, whole) = runtime.block_on(watched(&cuts));
        prop_assert_eq!(seen, whole);
    }
}

#[tokio::test]
async fn without_a_cursor_a_stream_begins_now_and_says_where_that_is() {
    let (running, _) = start().await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    let (told, last) = client.events("c", None).await.cut_after(10_000).await;
    assert!(told.is_empty());
    let last = last.expect("the place is told before anything happens");
    client.post("/v1/conversations/c/messages", json!({ "content": "hi" })).await;
    let mut events = client.events("c", Some(&last)).await;
    let first = events.next().await.unwrap();
    assert_ne!(first.event, "lagged", "nothing was missed");
    running.stopped().await;
}

#[tokio::test]
async fn a_cursor_that_was_not_told_here_is_lagged() {
    let (running, _) = start().await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    for strange in ["0-0", "7-3", "nonsense", "18446744073709551615-1", "1-18446744073709551615"] {
        let mut events = client.events("c", Some(strange)).await;
        let told = events.next().await.unwrap();
        assert_eq!(told.event, "lagged", "{strange}");
        let view = client.get("/v1/conversations/c").await.json();
        assert_eq!(view["cursor"], told.id.as_str(), "a new snapshot is taken from here");
    }
    running.stopped().await;
}

#[tokio::test]
async fn a_deleted_conversation_ends_its_streams() {
    let (running, _) = start().await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    let mut events = client.events("c", Some("0-0")).await;
    assert_eq!(events.next().await.unwrap().event, "lagged");
    assert_eq!(client.request("DELETE", "/v1/conversations/c", None).await.status, 200);
    while events.next().await.is_some() {}
    assert_eq!(client.get("/v1/conversations/c/events").await.status, 404);
    running.stopped().await;
}

#[tokio::test]
async fn a_slow_reader_is_told_so_and_holds_nobody_up() {
    let (count, size) = (2_000, 4_000);
    let chunks = (0..count).map(|n| format!("{n} {}", "x".repeat(size)));
    let limits = turnbuckle::Limits { context_tokens: 100_000_000, ..turnbuckle::Limits::default() };
    let agent = Agent::builder("a", Script::of([ScriptReply::chunks(chunks)])).limits(limits).build().unwrap();
    let conversations = Conversations::in_memory(agent);
    let running = Running::start(Server::builder(conversations.clone()).build().unwrap()).await;
    let client = running.client();
    client.post("/v1/conversations", json!({ "id": "c" })).await;
    // It is open, and nobody reads from it.
    let mut slow = client.events("c", Some("0-0")).await;
    assert_eq!(slow.next().await.unwrap().event, "lagged");
    let status = conversations.turn(&"c".into(), "go", Scope::local()).await;
    assert!(status.is_ok(), "the turn did not wait for the reader");
    let mut lagged = false;
    while let Some(told) = slow.next().await {
        lagged |= told.event == "lagged";
        if told.event == "turn_ended" || lagged {
            break;
        }
    }
    assert!(lagged, "8 MB were told, and 1 MB is kept");
    running.stopped().await;
}
