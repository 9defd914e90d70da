//! Conversations at rest: they cost little, come back whole, and read only what they need.

use serde_json::json;
use turnbuckle::event::EventKind;
use turnbuckle::feed::Delivery;
use turnbuckle::hook::{BeforeModelContext, pre};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Store;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, ConversationId, Conversations, Limits, Scope, TurnStatus};

use crate::kit::{add, adder, assert_valid};

fn echo() -> Script {
    Script::of([ScriptReply::says("yes")]).when_exhausted(turnbuckle::models::OnExhausted::Repeat)
}

#[tokio::test]
async fn cells_at_rest_are_let_go_and_come_back_with_their_history() {
    let model = Recorder::of(echo());
    let agent = Agent::builder("a", model.clone()).build().unwrap();
    let door = Conversations::builder(agent, MemoryStore::default()).max_idle(16).build();
    let id = |n: u32| ConversationId::from(format!("c{n}"));
    for n in 0..200 {
        door.turn(&id(n), "first", Scope::local()).await.unwrap();
    }
    tokio::task::yield_now().await;
    assert!(door.resident_count() <= 17, "{} are still there", door.resident_count());
    door.turn(&id(0), "second", Scope::local()).await.unwrap();
    let last = model.requests().pop().unwrap();
    assert_eq!(last.messages.len(), 3, "{:?}", last.messages);
}

#[tokio::test]
async fn a_conversation_that_somebody_watches_or_that_waits_with_a_scope_of_its_own_stays() {
    let script = Script::of([ScriptReply::calls("c1", "add", json!({"a": 1, "b": 1})), ScriptReply::says("2")])
        .when_exhausted(turnbuckle::models::OnExhausted::Repeat);
    let agent = Agent::builder("a", script).tool(add()).approve(["add"]).build().unwrap();
    let door = Conversations::builder(agent, MemoryStore::default()).max_idle(4).build();
    for n in 0..40 {
        let id = ConversationId::from(format!("c{n}"));
        assert!(matches!(door.turn(&id, "go", Scope::local()).await.unwrap(), TurnStatus::Waiting(_)));
    }
    tokio::task::yield_now().await;
    assert_eq!(door.resident_count(), 40, "their scopes are nowhere else");
}

#[tokio::test]
async fn conversations_that_had_to_stay_are_let_go_when_they_need_not() {
    for delivery in [Delivery::Lossy, Delivery::Lossless] {
        watched_conversations_are_let_go(delivery).await;
    }
}

#[tokio::test]
async fn observers_do_not_keep_conversations_in_memory() {
    let seen = turnbuckle::hook::observe("seen", |_: turnbuckle::feed::FeedEvent| async { Ok(()) });
    let agent = Agent::builder("a", echo()).hook(seen).build().unwrap();
    let door = Conversations::builder(agent, MemoryStore::default()).max_idle(4).build();
    for name in 0..40 {
        door.turn(&format!("c_{name}").into(), "hi", Scope::local()).await.unwrap();
        // The observers' task ends by itself.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    assert!(door.resident_count() <= 5, "{} are still there", door.resident_count());
}

async fn watched_conversations_are_let_go(delivery: Delivery) {
    let agent = Agent::builder("a", echo()).build().unwrap();
    let door = Conversations::builder(agent, MemoryStore::default()).max_idle(4).build();
    let mut watched = Vec::new();
    for name in 0..40 {
        let id = format!("c_{name}").into();
        watched.push(door.subscribe(&id, delivery, Scope::local()).await.unwrap());
        door.turn(&id, "hi", Scope::local()).await.unwrap();
    }
    assert_eq!(door.resident_count(), 40, "somebody watches them");
    drop(watched);
    // Not at the next turn's end, but soon.
    for _ in 0..40 {
        door.turn(&"c_0".into(), "again", Scope::local()).await.unwrap();
    }
    assert!(door.resident_count() <= 5, "{} are still there", door.resident_count());
}

#[tokio::test]
async fn a_call_id_that_was_used_before_the_window_is_still_told_apart() {
    let reply = |n: usize| ScriptReply::calls("c1", "add", json!({"a": n, "b": 1}));
    let script = (0..60).flat_map(|n| [reply(n), ScriptReply::says("so ".repeat(40))]);
    let limits = || Limits { context_tokens: 400, injection_reserve: 100, ..Limits::default() };
    let store = MemoryStore::default();
    let script: Vec<_> = script.collect();
    let mut ids = Vec::new();
    for _ in 0..3 {
        // Every so often the process is a new one.
        let mut rig = Rig::on(adder(Script::of(script.clone())).limits(limits()).build().unwrap(), store.clone());
        for _ in 0..20 {
            rig.ended("again").await.unwrap();
        }
    }
    let log = store.log(&"c_1".into(), 1, usize::MAX).await.unwrap();
    for event in &log {
        if let EventKind::ToolCall { call, .. } = &event.kind {
            ids.push(call.to_string());
        }
    }
    let expected: Vec<_> = (1..=60).map(|n| if n == 1 { "c1".to_owned() } else { format!("c1~{n}") }).collect();
    assert_eq!(ids, expected);
    assert_eq!(log.len(), 60 * 7);
}

#[tokio::test]
async fn a_revived_conversation_sends_what_a_live_one_would() {
    let limits = || Limits { context_tokens: 600, injection_reserve: 100, ..Limits::default() };
    let (live, revived) = (Recorder::of(echo()), Recorder::of(echo()));
    let mut staying = Rig::new(Agent::builder("a", live.clone()).limits(limits()).build().unwrap());
    let store = MemoryStore::default();
    for n in 0..60 {
        let words = format!("{n} {}", "word ".repeat(n * 7 % 50));
        staying.ended(words.clone()).await.unwrap();
        let agent = Agent::builder("a", revived.clone()).limits(limits()).build().unwrap();
        Rig::on(agent, store.clone()).ended(words).await.unwrap();
    }
    let sent = |model: &Recorder| model.requests().iter().map(|request| request.messages.to_vec()).collect::<Vec<_>>();
    assert_eq!(sent(&live), sent(&revived));
    assert!(sent(&live).iter().any(|messages| messages.len() < 20 && messages.len() > 3), "nothing fell out");
    assert_valid(&staying.log().await.unwrap());
}

#[tokio::test]
async fn a_long_turn_that_was_halted_leaves_the_next_one_the_same_history_live_and_revived() {
    let limits = || Limits { context_tokens: 600, injection_reserve: 100, ..Limits::default() };
    let halt = || {
        pre("halt", |turn: BeforeModelContext| async move {
            let long = turn.user_message().text().len() > 900;
            if long { turn.halt("too long") } else { turn.proceed() }
        })
        .every_call()
    };
    let (live, revived) = (Recorder::of(echo()), Recorder::of(echo()));
    let agent = |model: &Recorder| Agent::builder("a", model.clone()).limits(limits()).hook(halt()).build().unwrap();
    let mut staying = Rig::new(agent(&live));
    let store = MemoryStore::default();
    for n in 0..40 {
        let words = format!("{n} {}", "word ".repeat(if n % 4 == 3 { 200 } else { 20 }));
        staying.ended(words.clone()).await.unwrap();
        Rig::on(agent(&revived), store.clone()).ended(words).await.unwrap();
    }
    let sent = |model: &Recorder| model.requests().iter().map(|request| request.messages.to_vec()).collect::<Vec<_>>();
    assert_eq!(sent(&live).len(), 30);
    assert_eq!(sent(&live), sent(&revived));
}
