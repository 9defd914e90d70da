//! Objects by a forced tool, through a whole turn.

use serde_json::{Value, json};
use turnbuckle::{Agent, Conversations, Outcome, OutputSchema, Scope, TurnReport, TurnStatus, UserInput};

use crate::kit::{anthropic, anthropic_events};
use crate::stand_in::{StandIn, streaming};

fn saying(text: &str) -> String {
    anthropic_events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": text } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
        json!({ "type": "message_stop" }),
    ])
}

/// Some words, and the forced tool called so often.
fn calling(words: &str, objects: &[Value]) -> String {
    let block =
        |block: Value, index: usize| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let mut events = vec![block(json!({ "type": "text", "text": words }), 0)];
    for (at, object) in objects.iter().enumerate() {
        let tool = json!({ "type": "tool_use", "id": format!("c{at}"), "name": "reply_with_object", "input": {} });
        events.push(block(tool, at + 1));
        events.push(json!({ "type": "content_block_delta", "index": at + 1,
                            "delta": { "type": "input_json_delta", "partial_json": object.to_string() } }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }));
    anthropic_events(&events)
}

async fn turn(answers: &[String]) -> (TurnReport, Vec<Value>) {
    let server = StandIn::playing(answers.iter().map(|answer| streaming(answer)).collect()).await;
    let shape = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let conversations = Conversations::in_memory(Agent::builder("a", anthropic(&server.url)).build().unwrap());
    let say = UserInput::new("how many?").with_schema(OutputSchema::new(shape).unwrap());
    let TurnStatus::Ended(ended) = conversations.turn(&"c".into(), say, Scope::local()).await.unwrap() else {
        panic!()
    };
    (*ended, server.bodies())
}

#[tokio::test]
async fn what_a_model_says_around_the_object_does_not_spoil_it() {
    for objects in [&[json!({ "n": 3 })][..], &[json!({ "n": 3 }), json!({ "n": 4 })]] {
        let (ended, bodies) = turn(&[calling("Let me count.", objects)]).await;
        assert_eq!(ended.object(), Some(&json!({ "n": 3 })), "{ended:?}");
        assert_eq!(bodies.len(), 1);
    }
}

#[tokio::test]
async fn a_reply_that_ignores_the_forced_tool_is_asked_for_once_more_and_then_the_turn_is_rejected() {
    let (ended, bodies) = turn(&[saying("Three."), calling("", &[json!({ "n": 3 })])]).await;
    assert_eq!((ended.outcome, ended.object()), (Outcome::Completed, Some(&json!({ "n": 3 }))));
    let last = bodies[1]["messages"].to_string();
    assert!(last.contains("Three.") && last.contains("must be JSON"), "the model hears what was wrong: {last}");
    assert_eq!(bodies[1]["tool_choice"]["name"], "reply_with_object");

    let (ended, bodies) = turn(&[saying("Three."), saying("Still three.")]).await;
    assert_eq!((ended.outcome, ended.object(), bodies.len()), (Outcome::Rejected, None, 2));
    assert!(ended.reason.as_deref().is_some_and(|reason| reason.contains("must be JSON")), "{:?}", ended.reason);
}

#[tokio::test]
async fn an_object_of_the_forced_tool_is_validated_like_any_other() {
    let (ended, bodies) = turn(&[calling("", &[json!({ "n": "three" })]), calling("", &[json!({ "m": 1 })])]).await;
    assert_eq!((ended.outcome, bodies.len()), (Outcome::Rejected, 2));
    assert!(ended.reason.as_deref().is_some_and(|reason| reason.contains("schema")), "{:?}", ended.reason);
}
