//! Marks for Anthropic's prompt cache stand where the stable segments of a context end, through a whole conversation.

use serde_json::{Value, json};
use turnbuckle::hook::{BeforeAgentContext, BeforeModelContext, pre};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Scope};

use crate::kit::{anthropic, anthropic_events};
use crate::stand_in::{StandIn, streaming};

fn saying(text: &str) -> String {
    anthropic_events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": text } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
        json!({ "type": "message_stop" }),
    ])
}

fn calling(id: &str) -> String {
    let block = json!({ "type": "tool_use", "id": id, "name": "look", "input": {} });
    anthropic_events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        json!({ "type": "message_stop" }),
    ])
}

/// What bears a mark, in order: the text, or the kind of the block.
fn marked(body: &Value) -> Vec<String> {
    let shown = |block: &Value| block["text"].as_str().or(block["type"].as_str()).unwrap().to_owned();
    let system = body["system"].as_array().unwrap().iter();
    let messages =
        body["messages"].as_array().unwrap().iter().flat_map(|message| message["content"].as_array().unwrap());
    system.chain(messages).filter(|block| block.get("cache_control").is_some()).map(shown).collect()
}

fn unmarked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| *name != "cache_control")
            .map(|(name, value)| (name.clone(), unmarked(value)))
            .collect(),
        Value::Array(items) => items.iter().map(unmarked).collect(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn marks_stand_behind_system_history_opening_and_calls_and_never_behind_a_calls_own_injection() {
    let answers = [calling("t1"), saying("a1"), calling("t2"), saying("a2")];
    let server = StandIn::playing(answers.iter().map(|answer| streaming(answer)).collect()).await;
    let look =
        function_with_schema("look", "Looks.", json!({"type": "object"}), Effect::Pure, |_, _| async { Ok("seen") });
    let once = pre("once", |mut turn: BeforeAgentContext| async move {
        turn.inject("for the turn");
        turn.proceed()
    });
    let tail = pre("tail", |mut turn: BeforeModelContext| async move {
        turn.inject("for the call");
        turn.proceed()
    })
    .every_call();
    let agent = Agent::builder("a", anthropic(&server.url)).system("Be brief.").tool(look).hook(once).hook(tail);
    let conversations = Conversations::in_memory(agent.build().unwrap());
    let id = "c".into();
    for message in ["first", "second"] {
        conversations.turn(&id, message, Scope::local()).await.unwrap();
    }
    let bodies = server.bodies();
    assert_eq!(marked(&bodies[0]), ["Be brief.", "for the turn"]);
    assert_eq!(marked(&bodies[1]), ["Be brief.", "for the turn", "tool_result"]);
    assert_eq!(marked(&bodies[2]), ["Be brief.", "a1", "for the turn"]);
    assert_eq!(marked(&bodies[3]), ["Be brief.", "a1", "for the turn", "tool_result"]);
    for body in &bodies {
        assert!(marked(body).len() <= 4, "Anthropic allows four");
    }
    // What a mark covered is sent again, byte for byte.
    let opening = |body: &Value| unmarked(&body["messages"][0]["content"][1]);
    assert_eq!(opening(&bodies[0]), opening(&bodies[1]));
}
