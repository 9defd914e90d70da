//! Messages that are sent again, meet a turn that runs, or a conversation of another agent.

use serde_json::{Value, json};
use turnbuckle::conversation::OtherAgents;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations};
use turnbuckle_server::Server;

use crate::client::{Client, Running};

/// A server of this agent on the store, as `serve` makes it.
async fn serving(agent: Agent, store: &MemoryStore) -> Running {
    let conversations = Conversations::builder(agent, store.clone()).other_agents(OtherAgents::Refuse).build();
    Running::start(Server::builder(conversations).build().unwrap()).await
}

fn plain(name: &str) -> Agent {
    Agent::builder(name, Script::says(["hello", "again"])).build().unwrap()
}

/// Asks whether it may pay.
fn payer() -> Agent {
    let schema = json!({ "type": "object" });
    let pay = function_with_schema("pay", "Pays.", schema, Effect::Idempotent, async |_, _| Ok("paid"));
    let script = Script::of([ScriptReply::calls("c1", "pay", json!({})), ScriptReply::says("done")]);
    Agent::builder("payer", script).tool(pay.requires_approval()).build().unwrap()
}

async fn create(client: &Client, id: &str) {
    assert_eq!(client.post("/v1/conversations", json!({ "id": id })).await.status, 201);
}

async fn send(client: &Client, id: &str, message: Value) -> crate::client::Answer {
    client.post(&format!("/v1/conversations/{id}/messages"), message).await
}

#[tokio::test]
async fn a_message_that_is_sent_again_is_answered_with_its_turn_also_when_that_is_left() {
    let store = MemoryStore::default();
    let first = serving(payer(), &store).await;
    create(&first.client(), "c").await;
    let (hi, key) = (json!({ "content": "hi" }), "idempotency-key: k");
    let sent = send(&first.client().with(key), "c", hi.clone()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    first.client().until("/v1/conversations/c", "\"waiting\"").await;
    first.stopped().await;
    // The same agent without its tool, and another one.
    for agent in [plain("payer"), plain("other")] {
        let next = serving(agent, &store).await;
        let again = send(&next.client().with(key), "c", hi.clone()).await;
        assert_eq!((again.status, &again.body), (202, &sent.body));
        let accepting = json!({ "content": "hi", "accept_changes": true });
        assert_eq!(
            send(&next.client().with(key), "c", accepting).await.body,
            sent.body,
            "nothing is carried on for it"
        );
        let other = send(&next.client().with(key), "c", json!({ "content": "ho" })).await;
        assert_eq!(other.code(), (400, "bad_request".to_owned()));
        assert_eq!(send(&next.client(), "c", hi.clone()).await.code(), (409, "changed".to_owned()));
        next.stopped().await;
    }
}

#[tokio::test]
async fn a_conversation_of_another_agent_takes_no_message_until_its_sender_accepts_that() {
    let store = MemoryStore::default();
    let first = serving(plain("a"), &store).await;
    for id in ["c", "empty"] {
        create(&first.client(), id).await;
    }
    assert_eq!(send(&first.client(), "c", json!({ "content": "hi" })).await.status, 202);
    first.client().until("/v1/conversations/c", "\"turn_ended\"").await;
    first.stopped().await;
    let other = serving(plain("b"), &store).await;
    let client = other.client();
    for more in [json!({}), json!({ "while_busy": "queue" }), json!({ "while_busy": "interrupt" })] {
        let mut message = json!({ "content": "hi" });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(send(&client, "c", message).await.code(), (409, "changed".to_owned()));
    }
    assert_eq!(client.get("/v1/conversations/c").await.status, 200);
    let page = client.with("accept: text/html").get("/page/c/c").await.body;
    assert!(page.contains("No messages can be sent here: conversation c is with agent a"), "{page}");
    assert!(!page.contains("id=\"composer\""), "what is refused is not offered: {page}");
    assert!(client.get("/page/c/empty").await.body.contains("id=\"composer\""));
    assert_eq!(send(&client, "empty", json!({ "content": "hi" })).await.status, 202);
    assert_eq!(send(&client, "c", json!({ "content": "hi", "accept_changes": true })).await.status, 202);
    client.until("/page/c/c", "id=\"composer\"").await;
    other.stopped().await;
}

#[tokio::test]
async fn accepting_changes_where_nothing_changed_does_not_wait_for_the_turn_that_runs() {
    let slow = r#"{"replies":[{"chunks":["a","b","c"],"delay_ms":30000},{"text":"second"}]}"#;
    let agent = Agent::builder("a", Script::from_json(slow).unwrap()).build().unwrap();
    let running = serving(agent, &MemoryStore::default()).await;
    let client = running.client();
    create(&client, "c").await;
    assert_eq!(send(&client, "c", json!({ "content": "hi" })).await.status, 202);
    let accepting = |while_busy: &str| json!({ "content": "more", "accept_changes": true, "while_busy": while_busy });
    // The client's patience is shorter than the turn.
    assert_eq!(send(&client, "c", accepting("reject")).await.code(), (409, "busy".to_owned()));
    assert_eq!(send(&client, "c", accepting("queue")).await.status, 202);
    assert_eq!(client.request("POST", "/v1/conversations/c/cancel", None).await.status, 200);
    running.stopped().await;
}
