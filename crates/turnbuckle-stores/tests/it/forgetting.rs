//! The feed of a conversation at rest forgets events that it alone holds. Nobody who comes notices.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Semaphore;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::{Delivery, FeedItem};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::projection::Projection;
use turnbuckle::store::Store;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, ConversationId, Conversations, Scope};

use crate::kit::Place;

/// So many turns have events that are worth forgetting.
const TURNS: usize = 5;
const MANY: usize = 5 * TURNS;

/// An agent whose tool is called once in a turn and waits for a permit.
fn agent(permits: &Arc<Semaphore>) -> Agent {
    let permits = permits.clone();
    let schema = json!({ "type": "object" });
    let tool = function_with_schema("look", "Looks.", schema, Effect::Pure, move |_, _| {
        let permits = permits.clone();
        async move {
            permits.acquire().await?.forget();
            Ok("seen")
        }
    });
    let replies = (0..MANY).flat_map(|_| [ScriptReply::calls("c", "look", json!({})), ScriptReply::says("done")]);
    Agent::builder("a", Script::of(replies)).tool(tool).build().unwrap()
}

fn seqs(events: &[Arc<Event>]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn who_comes_to_a_conversation_that_forgot_events_sees_all_of_them() {
    let (place, permits, id) = (Place::new(), Arc::new(Semaphore::new(2 * TURNS)), ConversationId::from("c"));
    let store = place.store();
    let first = Conversations::builder(agent(&permits), store.clone()).build();
    for _ in 0..TURNS {
        first.send(&id, "look", Scope::local()).await.unwrap().wait().await.unwrap();
    }
    drop(first);

    // Another process reads the conversation back; nobody watches while turns run in it.
    let conversations = Conversations::builder(agent(&permits), store.clone()).build();
    for _ in 0..TURNS {
        conversations.send(&id, "look", Scope::local()).await.unwrap().wait().await.unwrap();
    }

    // Somebody comes in the middle of the next turn.
    let handle = conversations.send(&id, "look", Scope::local()).await.unwrap();
    loop {
        let log = store.log(&id, 1, usize::MAX).await.unwrap();
        if matches!(log.last().unwrap().kind, EventKind::ToolStarted { .. }) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut viewer = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await.unwrap();
    let stored = store.log(&id, 1, usize::MAX).await.unwrap();
    assert_eq!(viewer.snapshot.events, stored);
    assert_eq!(viewer.snapshot.in_flight_tools.len(), 1);
    permits.add_permits(1);
    handle.wait().await.unwrap();
    let mut view = viewer.snapshot.clone();
    while !view.events.last().is_some_and(|last| matches!(last.kind, EventKind::TurnEnded(_))) {
        let told = viewer.next().await.unwrap();
        view.apply(&told);
    }
    let stored = store.log(&id, 1, usize::MAX).await.unwrap();
    assert_eq!((view.events.clone(), seqs(&view.events)), (stored.clone(), (1..=stored.len() as u64).collect()));
    drop(viewer);

    // Turns that nobody watches, and a look at rest, again and again.
    for _ in 0..TURNS {
        permits.add_permits(2);
        for _ in 0..2 {
            conversations.send(&id, "look", Scope::local()).await.unwrap().wait().await.unwrap();
        }
        let view = conversations.snapshot(&id, Scope::local()).await.unwrap();
        let stored = store.log(&id, 1, usize::MAX).await.unwrap();
        assert_eq!(view.events, stored);
        let read_back = Projection { cursor: view.cursor, state: view.state, ..Projection::of_log(&stored) };
        assert_eq!(view, read_back);
    }
}
