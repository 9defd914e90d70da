//! A conversation that has been at rest for a while takes less memory, and nobody can tell.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::feed::Delivery;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Recorder;
use turnbuckle::{Agent, ConversationId, Conversations, Message, Scope};

use crate::kit::add;

/// What each request of the conversation `c` had.
async fn sent(others: usize, reads: bool) -> (Vec<Vec<Message>>, Vec<String>) {
    let reply = |n: usize| ScriptReply::calls("c1", "add", json!({ "a": n, "b": 1 }));
    let script =
        Script::of((0..8).flat_map(|n| [reply(n), ScriptReply::says("so")])).when_exhausted(OnExhausted::Repeat);
    let model = Recorder::of(script);
    let agent = Agent::builder("a", model.clone()).tool(add()).build().unwrap();
    let door = Conversations::builder(agent, MemoryStore::default()).build();
    let id = ConversationId::from("c");
    for n in 0..6 {
        door.turn(&id, format!("message {n}"), Scope::local()).await.unwrap();
        for other in 0..others {
            door.turn(&format!("o_{other}").as_str().into(), "other", Scope::local()).await.unwrap();
        }
        if reads {
            drop(door.subscribe(&id, Delivery::Lossless, Scope::local()).await.unwrap());
        }
    }
    let asked: Vec<_> = model
        .requests()
        .into_iter()
        .map(|request| request.messages.to_vec())
        .filter(|messages| messages[0].content().text().contains("message"))
        .collect();
    let shown = door.snapshot(&id, Scope::local()).await.unwrap();
    (asked, shown.events.iter().map(|event| serde_json::to_string(&Arc::clone(event)).unwrap()).collect())
}

#[tokio::test]
async fn a_conversation_that_rested_while_many_others_ran_sends_and_shows_the_same() {
    for reads in [false, true] {
        let (warm, packed) = (sent(0, reads).await, sent(70, reads).await);
        assert_eq!(warm.0, packed.0);
        assert_eq!(warm.1.len(), packed.1.len());
        let text = |line: &str| line.contains("message 5");
        assert!(packed.1.iter().any(|line| text(line)));
    }
}
