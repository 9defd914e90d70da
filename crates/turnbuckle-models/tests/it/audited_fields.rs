//! What the audit is told of a body is what was sent.

use serde_json::{Value, json};
use turnbuckle::Message;
use turnbuckle::model::{Model, Request};
use turnbuckle_models::{Key, ObjectBy, OpenAi};

use crate::kit::{anthropic, anthropic_events, asking, delta, finish, openai, openai_chunks, tool};
use crate::stand_in::{StandIn, streaming};

/// A body without messages and system prompt. Those of chat completions have the system prompt among the messages.
fn rest_of(mut body: Value) -> Value {
    let fields = body.as_object_mut().unwrap();
    assert!(fields.remove("messages").is_some(), "{body}");
    body.as_object_mut().unwrap().remove("system");
    body
}

/// Requests of each kind: with tools, with tools that are withheld, and for an object.
fn requests() -> Vec<Request> {
    let with_tools = Request::of("a", vec![Message::User("hi".into())], [tool("weather"), tool("now")]);
    let mut last = with_tools.clone();
    last.withhold_tools();
    let mut object = asking("hi");
    object.schema = Some(json!({ "type": "object", "properties": { "city": { "type": "string" } } }).into());
    vec![with_tools, last, object]
}

async fn compare(model: &dyn Model, server: &StandIn) -> Vec<Value> {
    let mut all = Vec::new();
    for mut request in requests() {
        request.system = "Be brief.".into();
        let told = model.body_fields(&request).unwrap();
        model.stream(&request, &mut crate::kit::Ear::default()).await.unwrap();
        let sent = server.received.lock().unwrap().last().unwrap().body.clone();
        assert_eq!(told, rest_of(sent));
        assert!(!told.to_string().contains(crate::kit::SECRET) && !told.to_string().contains("Be brief."), "{told}");
        all.push(told);
    }
    all
}

#[tokio::test]
async fn what_is_told_of_a_body_of_the_messages_api_is_what_was_sent() {
    let ok = anthropic_events(&[
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 1, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "{}" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ]);
    let server = StandIn::playing(vec![streaming(&ok)]).await;
    let model = anthropic(&server.url).option("temperature", json!(0.25)).max_tokens(333);
    let model = model.server_tool(json!({ "type": "web_search_20250305", "name": "web_search" }));
    let told = compare(&model.clone().object_by(ObjectBy::Format), &server).await;
    assert_eq!((&told[0]["temperature"], &told[0]["max_tokens"]), (&json!(0.25), &json!(333)));
    assert_eq!(told[1]["tool_choice"], json!({ "type": "none" }));
    compare(&model.object_by(ObjectBy::ForcedTool), &server).await;
}

#[tokio::test]
async fn what_is_told_of_a_body_of_chat_completions_is_what_was_sent() {
    let ok = openai_chunks(&[delta(json!({ "content": "{}" })), finish("stop")]);
    let server = StandIn::playing(vec![streaming(&ok)]).await;
    let told = compare(&openai(&server.url).option("temperature", json!(0.25)).max_tokens(333), &server).await;
    assert_eq!((&told[0]["temperature"], &told[0]["max_tokens"]), (&json!(0.25), &json!(333)));
    assert_eq!((told[0]["tools"].as_array().map(Vec::len), &told[1]["tools"]), (Some(2), &Value::Null));
    let original = OpenAi::new("gpt-4o", Key::new("k")).unwrap();
    assert_eq!(original.body_fields(&requests()[1]).unwrap()["tool_choice"], "none", "OpenAI itself is told of them");
}

#[test]
fn options_that_replace_fields_of_the_body_are_told_as_they_are_sent() {
    let model = openai("http://127.0.0.1:9").option("stream_options", Value::Null).option("messages", json!([]));
    let told = model.body_fields(&asking("hi")).unwrap();
    assert_eq!((&told["stream_options"], &told["messages"]), (&Value::Null, &json!([])));
}
