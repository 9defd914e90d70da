//! Bugs that others have had on these wires, and that are not to be ours.

use serde_json::json;
use turnbuckle::message::{StopReason, Usage};
use turnbuckle::model::{ModelError, Retry};

use crate::kit::{anthropic, anthropic_events, ask, asking, delta, finish, openai, openai_chunks};
use crate::stand_in::{StandIn, answering, streaming};

fn call(id: &str, name: &str, arguments: &str) -> serde_json::Value {
    let function = json!({ "name": name, "arguments": arguments });
    delta(json!({ "tool_calls": [{ "index": 0, "id": id, "type": "function", "function": function }] }))
}

#[tokio::test]
async fn deltas_that_repeat_id_and_name_in_every_chunk_are_one_call() {
    let stream = openai_chunks(&[
        call("call_1", "add", "{\"a\":"),
        call("call_1", "add", "2,"),
        call("call_1", "add", "\"b\":2}"),
        finish("tool_calls"),
    ]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    let reply = ask(&openai(&server.url), &asking("2+2")).await.unwrap();
    assert_eq!(reply.calls.len(), 1);
    assert_eq!(&*reply.calls[0].name, "add");
    assert_eq!(*reply.calls[0].arguments, json!({ "a": 2, "b": 2 }));
}

#[tokio::test]
async fn an_empty_200_body_is_an_error_worth_another_try_on_both_wires() {
    for answer in [answering(200, "content-type: text/event-stream\r\n", ""), streaming("")] {
        let server = StandIn::playing(vec![answer]).await;
        let errors = [
            ask(&openai(&server.url), &asking("hi")).await.unwrap_err(),
            ask(&anthropic(&server.url), &asking("hi")).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, ModelError::Transport { .. }), "{error}");
            assert!(error.to_string().contains("empty"), "{error}");
            assert_eq!(error.retry(), Retry::Soon);
        }
    }
}

#[tokio::test]
async fn usage_in_a_last_chunk_without_choices_is_counted() {
    for choices in [json!([]), json!(null)] {
        let last = json!({ "choices": choices, "usage": { "prompt_tokens": 5, "completion_tokens": 2 } });
        let stream = openai_chunks(&[delta(json!({ "content": "hi" })), finish("stop"), last]);
        let server = StandIn::playing(vec![streaming(&stream)]).await;
        let reply = ask(&openai(&server.url), &asking("hi")).await.unwrap();
        assert_eq!(reply.usage, Usage { input: 5, output: 2, ..Usage::default() });
    }
}

#[tokio::test]
async fn arguments_as_one_empty_string_are_an_empty_object_on_both_wires() {
    let stream = openai_chunks(&[call("c", "now", ""), finish("tool_calls")]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    assert_eq!(*ask(&openai(&server.url), &asking("t")).await.unwrap().calls[0].arguments, json!({}));

    let block = json!({ "type": "tool_use", "id": "c", "name": "now", "input": {} });
    let stream = anthropic_events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": "" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        json!({ "type": "message_stop" }),
    ]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    assert_eq!(*ask(&anthropic(&server.url), &asking("t")).await.unwrap().calls[0].arguments, json!({}));
}

#[tokio::test]
async fn a_stream_without_done_is_whole_if_it_said_why_it_ends() {
    let stream = openai_chunks(&[delta(json!({ "content": "hi" })), finish("stop")]).replace("data: [DONE]\n\n", "");
    for stream in [stream.clone(), stream.trim_end().to_owned() + "\n"] {
        let server = StandIn::playing(vec![streaming(&stream)]).await;
        assert_eq!(ask(&openai(&server.url), &asking("hi")).await.unwrap().content.text(), "hi");
    }
    let silent = openai_chunks(&[delta(json!({ "content": "hi" }))]);
    let server = StandIn::playing(vec![streaming(&silent)]).await;
    let error = ask(&openai(&server.url), &asking("hi")).await.unwrap_err();
    assert!(error.to_string().contains("broke off"), "[DONE] alone is no reason to end: {error}");
}

#[tokio::test]
async fn a_stop_that_calls_is_a_call() {
    let server = StandIn::playing(vec![streaming(&openai_chunks(&[call("c", "f", "{}"), finish("stop")]))]).await;
    assert_eq!(ask(&openai(&server.url), &asking("t")).await.unwrap().stop_reason, StopReason::ToolCalls);
}

#[tokio::test]
async fn arguments_that_come_whole_are_taken_on_both_wires() {
    let function = json!({ "name": "f", "arguments": { "x": 1 } });
    let whole = delta(json!({ "tool_calls": [{ "id": "c", "function": function }] }));
    let server = StandIn::playing(vec![streaming(&openai_chunks(&[whole, finish("stop")]))]).await;
    assert_eq!(*ask(&openai(&server.url), &asking("t")).await.unwrap().calls[0].arguments, json!({ "x": 1 }));
    let block = json!({ "type": "tool_use", "id": "c", "name": "f", "input": { "x": 1 } });
    let stream = anthropic_events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
    ]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    assert_eq!(*ask(&anthropic(&server.url), &asking("t")).await.unwrap().calls[0].arguments, json!({ "x": 1 }));
}
