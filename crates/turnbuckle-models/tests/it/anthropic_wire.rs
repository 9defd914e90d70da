//! Anthropic's streams as they come, the replies they make, and what goes back.

use expect_test::expect;
use serde_json::{Value, json};
use turnbuckle::message::{File, Image, Part, ProviderBlock, StopReason, Usage};
use turnbuckle::model::Request;
use turnbuckle::{Message, ToolCall};
use turnbuckle_models::{Anthropic, ObjectBy};

use crate::kit::{anthropic, anthropic_events, ask, asking, tool};
use crate::stand_in::{StandIn, streaming};

/// As Anthropic documents and sends it: a ping in between, counts at both ends.
const TEXT: &str = r#"event: message_start
data: {"type":"message_start","message":{"model":"claude-sonnet-4-5-20250929","id":"msg_01","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":2048,"cache_read_input_tokens":1024,"cache_creation":{"ephemeral_5m_input_tokens":2048,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}}           }

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}    }

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Grüß"}  }

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" Gott \ud83d\ude00"}  }

event: content_block_stop
data: {"type":"content_block_stop","index":0 }

event: an_event_of_tomorrow
data: {"type":"an_event_of_tomorrow","payload":[1,2,3]}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}            }

event: message_stop
data: {"type":"message_stop"    }

"#;

/// A thought with its signature, one that is sealed, text, and two calls at once, their arguments in pieces.
const CALLS: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_02","type":"message","role":"assistant","content":[],"usage":{"input_tokens":400,"output_tokens":2}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Two cities,"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" two calls."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCgIYAhIM"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3p"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Let me look."}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_01","name":"weather","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"K\u00f6"}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"ln\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_02","name":"now","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_stop
data: {"type":"content_block_stop","index":4}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}

event: message_stop
data: {"type":"message_stop"}

"#;

#[tokio::test]
async fn text_is_told_as_it_comes_and_usage_counts_the_cache_as_input() {
    let server = StandIn::playing(vec![streaming(TEXT)]).await;
    let reply = ask(&anthropic(&server.url), &asking("hi")).await.unwrap();
    assert_eq!(reply.content.text(), "Grüß Gott 😀");
    assert_eq!(reply.stop_reason, StopReason::End);
    assert_eq!(reply.usage, Usage { input: 3084, output: 9, cache_read: 1024, cache_write: 2048 });
    let head = server.head();
    assert!(head.starts_with("POST /v1/messages HTTP/1.1"), "{head}");
    assert!(head.contains("anthropic-version: 2023-06-01") && head.contains("x-api-key: sk-very"), "{head}");
}

#[tokio::test]
async fn thoughts_and_parallel_calls_come_whole_and_go_back_as_they_came() {
    let server = StandIn::playing(vec![streaming(CALLS), streaming(TEXT)]).await;
    let model = anthropic(&server.url);
    let tools = [tool("weather"), tool("now")];
    let question = Message::User("And in Köln?".into());
    let reply = ask(&model, &Request::of("a", vec![question.clone()], tools.clone())).await.unwrap();
    assert_eq!(reply.stop_reason, StopReason::ToolCalls);
    let call = |id: &str, name: &str, arguments: serde_json::Value| ToolCall {
        call: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    assert_eq!(reply.calls, [call("toolu_01", "weather", json!({"city": "Köln"})), call("toolu_02", "now", json!({}))]);
    let result = |id: &str, ok: bool, text: &str| Message::Result {
        call: id.into(),
        name: "x".into(),
        ok,
        content: text.into(),
    };
    let spoken = Message::Assistant { content: reply.content, calls: reply.calls };
    let results = [result("toolu_01", true, "rain"), result("toolu_02", false, "no clock")];
    let messages = [question, spoken].into_iter().chain(results).collect();
    ask(&model, &Request::of("a", messages, tools)).await.unwrap();
    let body = serde_json::to_string_pretty(&server.bodies()[1]["messages"]).unwrap();
    expect![[r#"
        [
          {
            "content": [
              {
                "text": "And in Köln?",
                "type": "text"
              }
            ],
            "role": "user"
          },
          {
            "content": [
              {
                "signature": "EqQBCgIYAhIM",
                "thinking": "Two cities, two calls.",
                "type": "thinking"
              },
              {
                "data": "EmwKAhgBEgy3va3p",
                "type": "redacted_thinking"
              },
              {
                "text": "Let me look.",
                "type": "text"
              },
              {
                "id": "toolu_01",
                "input": {
                  "city": "Köln"
                },
                "name": "weather",
                "type": "tool_use"
              },
              {
                "id": "toolu_02",
                "input": {},
                "name": "now",
                "type": "tool_use"
              }
            ],
            "role": "assistant"
          },
          {
            "content": [
              {
                "content": [
                  {
                    "text": "rain",
                    "type": "text"
                  }
                ],
                "tool_use_id": "toolu_01",
                "type": "tool_result"
              },
              {
                "cache_control": {
                  "type": "ephemeral"
                },
                "content": [
                  {
                    "text": "no clock",
                    "type": "text"
                  }
                ],
                "is_error": true,
                "tool_use_id": "toolu_02",
                "type": "tool_result"
              }
            ],
            "role": "user"
          }
        ]"#]]
    .assert_eq(&body);
}

/// A search that Anthropic ran: its request in pieces, its sealed result whole, and text with citations.
fn search(stop: &str) -> String {
    let found = json!([{ "type": "web_search_result", "url": "https://example.com", "title": "T",
                         "encrypted_content": "EqgfCioIARgB" }]);
    anthropic_events(&[
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 10, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block":
                { "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {} } }),
        json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "input_json_delta", "partial_json": "{\"query\":" } }),
        json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "input_json_delta", "partial_json": " \"rope\"}" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "content_block_start", "index": 1, "content_block":
                { "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found } }),
        json!({ "type": "content_block_start", "index": 2, "content_block": { "type": "text", "text": "", "citations": [] } }),
        json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "text_delta", "text": "Rope is strong." } }),
        json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "citations_delta", "citation":
                { "type": "web_search_result_location", "cited_text": "strong", "encrypted_index": "Eo8B" } } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": stop },
                "usage": { "output_tokens": 20, "server_tool_use": { "web_search_requests": 1 } } }),
        json!({ "type": "message_stop" }),
    ])
}

#[tokio::test]
async fn what_the_provider_ran_itself_goes_back_unchanged_and_in_its_place() {
    let server = StandIn::playing(vec![streaming(&search("end_turn")), streaming(TEXT)]).await;
    let model = anthropic(&server.url).server_tool(json!({ "type": "web_search_20250305", "name": "web_search" }));
    let reply = ask(&model, &asking("rope?")).await.unwrap();
    assert!(reply.calls.is_empty(), "nobody here runs it");
    let [hosted] = &reply.hosted[..] else { panic!("{:?}", reply.hosted) };
    assert_eq!((hosted.call.name.as_ref(), &*hosted.call.arguments), ("web_search", &json!({ "query": "rope" })));
    assert_eq!((hosted.ok, hosted.content.text().as_str()), (true, "T https://example.com\n"));
    assert_eq!(reply.content.text(), "Rope is strong.");
    let kept = serde_json::to_string(&reply.content).unwrap();
    let content = serde_json::from_str(&kept).unwrap();
    assert_eq!(reply.content, content, "the log keeps it");
    let said = Message::Assistant { content, calls: Vec::new() };
    let again = Request::of("a", vec![Message::User("rope?".into()), said, Message::User("more".into())], []);
    ask(&model, &again).await.unwrap();
    let bodies = server.bodies();
    assert_eq!(bodies[0]["tools"][0]["type"], "web_search_20250305");
    let blocks = &bodies[1]["messages"][1]["content"];
    assert_eq!(blocks[0]["input"], json!({ "query": "rope" }));
    assert_eq!(blocks[1]["content"][0]["encrypted_content"], "EqgfCioIARgB");
    assert_eq!(blocks[2]["text"], "Rope is strong.");
    assert_eq!(blocks[2]["citations"][0]["encrypted_index"], "Eo8B");
    assert_eq!(blocks.as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_reply_that_its_host_paused_is_gone_on_with() {
    let server = StandIn::playing(vec![streaming(&search("pause_turn")), streaming(TEXT)]).await;
    let reply = ask(&anthropic(&server.url), &asking("rope?")).await.unwrap();
    assert_eq!(reply.content.text(), "Rope is strong.Grüß Gott 😀");
    assert_eq!(reply.usage.output, 29);
    let second = &server.bodies()[1]["messages"];
    assert_eq!(second[1]["role"], "assistant");
    assert_eq!(second[1]["content"][0]["type"], "server_tool_use");
    let endless = StandIn::playing(vec![streaming(&search("pause_turn"))]).await;
    let error = ask(&anthropic(&endless.url), &asking("rope?")).await.unwrap_err();
    assert!(error.to_string().contains("paused more than"), "{error}");
}

#[tokio::test]
async fn the_reason_to_stop_is_passed_on() {
    for (wire, reason) in [
        ("end_turn", StopReason::End),
        ("stop_sequence", StopReason::End),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("refusal", StopReason::Refusal),
        ("a_reason_of_tomorrow", StopReason::End),
    ] {
        let server = StandIn::playing(vec![streaming(&TEXT.replace("end_turn", wire))]).await;
        assert_eq!(ask(&anthropic(&server.url), &asking("hi")).await.unwrap().stop_reason, reason, "{wire}");
    }
}

#[tokio::test]
async fn a_refusal_that_says_nothing_is_told_in_the_providers_words() {
    let refused = |text: &str| {
        let details = json!({ "type": "refusal", "category": "cyber", "explanation": "It could do harm." });
        anthropic_events(&[
            json!({ "type": "message_start", "message": { "usage": { "input_tokens": 3 } } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": text } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "refusal", "stop_details": details } }),
            json!({ "type": "message_stop" }),
        ])
    };
    for (said, told) in [("", "It could do harm."), ("I had begun.", "I had begun.")] {
        let server = StandIn::playing(vec![streaming(&refused(said))]).await;
        let reply = ask(&anthropic(&server.url), &asking("hi")).await.unwrap();
        assert_eq!((reply.stop_reason, reply.content.text().as_str()), (StopReason::Refusal, told));
    }
}

#[tokio::test]
async fn an_object_is_asked_for_natively_or_by_a_tool_and_is_the_text_either_way() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let mut request = asking("a number");
    request.schema = Some(schema.clone().into());
    let native =
        StandIn::playing(vec![streaming(&TEXT.replace("Grüß", "{\\\"n\\\":").replace(" Gott \\ud83d\\ude00", "7}"))])
            .await;
    let reply = ask(&anthropic(&native.url).object_by(ObjectBy::Format), &request).await.unwrap();
    assert_eq!(reply.object.as_deref(), Some(&json!({ "n": 7 })));
    let mut closed = schema.clone();
    closed["additionalProperties"] = false.into();
    assert_eq!(native.bodies()[0]["output_config"]["format"], json!({ "type": "json_schema", "schema": closed }));
    let mut map = asking("numbers");
    map.schema = Some(json!({ "type": "object", "additionalProperties": { "type": "integer" } }).into());
    ask(&anthropic(&native.url).object_by(ObjectBy::Format), &map).await.unwrap();
    assert_eq!(native.bodies()[1]["tool_choice"]["type"], "tool", "what cannot be said natively is asked by a tool");
    ask(&Anthropic::at(&native.url, "claude-sonnet-5-5", None).unwrap(), &map).await.unwrap();
    assert_eq!(native.bodies()[2]["tool_choice"]["type"], "auto", "which this model does not let be forced");

    let forced = CALLS.replace("\"name\":\"weather\"", "\"name\":\"reply_with_object\"").replace("city", "n");
    let forced = StandIn::playing(vec![streaming(&forced)]).await;
    let reply = ask(&anthropic(&forced.url), &request).await.unwrap();
    assert_eq!(reply.content.text(), "{\"n\": \"Köln\"}", "what is said around the object is not the answer");
    assert_eq!(reply.calls.len(), 1, "the forced tool is no call of anybody's: {:?}", reply.calls);
    let body = &forced.bodies()[0];
    assert_eq!(body["tool_choice"], json!({ "type": "tool", "name": "reply_with_object" }));
    assert_eq!(body["tools"][0]["input_schema"], schema);
}

#[tokio::test]
async fn models_that_bind_thoughts_are_asked_to_leave_a_stale_one_out_and_are_never_forced_to_a_tool() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let mut request = asking("a number");
    request.schema = Some(schema.into());
    let made = |url: &str, model: &str| Anthropic::at(url, model, None).unwrap();
    for model in
        ["claude-sonnet-5-5", "claude-opus-5-5-20260922", "claude-haiku-5-5", "claude-fable-5-2", "claude-opus-6"]
    {
        let server = StandIn::playing(vec![streaming(TEXT)]).await;
        ask(&made(&server.url, model), &request).await.unwrap();
        let body = &server.bodies()[0];
        let binding = json!({ "prefix_mismatch_behavior": "drop_block" });
        let thinking = json!({ "type": "adaptive", "display": "summarized", "block_binding": binding });
        assert_eq!(body["thinking"], thinking, "{model}");
        assert!(server.head().contains("anthropic-beta: thinking-binding-controls-2026-08-01"), "{}", server.head());
        assert_eq!(
            (&body["tool_choice"], &body["output_config"]["format"]["type"]),
            (&Value::Null, &json!("json_schema"))
        );
        let own = json!({ "type": "adaptive", "display": "omitted" });
        ask(&made(&server.url, model).option("thinking", own.clone()), &request).await.unwrap();
        assert_eq!(server.bodies()[1]["thinking"], own, "what the caller says wins");
    }
    for model in ["claude-opus-5", "claude-sonnet-4-5-20250929", "claude-3-haiku-20240307", "claude-test"] {
        let server = StandIn::playing(vec![streaming(TEXT)]).await;
        ask(&made(&server.url, model), &request).await.unwrap();
        assert_eq!(server.bodies()[0]["thinking"], Value::Null, "{model}");
        assert!(!server.head().contains("anthropic-beta"), "{}", server.head());
        assert_eq!(server.bodies()[0]["tool_choice"]["type"], "tool", "{model}");
    }
}

#[tokio::test]
async fn what_the_wire_refuses_is_not_sent() {
    let server = StandIn::playing(vec![streaming(TEXT)]).await;
    let foreign = Part::from(ProviderBlock { provider: "openai".into(), block: json!({ "x": 1 }).into() });
    let unsigned = Part::thinking("hm");
    let bad = ToolCall { call: "a~2".into(), name: "f".into(), arguments: json!("{\"x\":").into() };
    let spoken = Message::Assistant { content: vec![foreign, unsigned, Part::text(" \n")].into(), calls: vec![bad] };
    let result = Message::Result { call: "a~2".into(), name: "f".into(), ok: true, content: "".into() };
    let messages = vec![Message::User("q".into()), spoken, result, Message::Note("[note]".into())];
    ask(&anthropic(&server.url), &Request::of("a", messages, [])).await.unwrap();
    let sent = &server.bodies()[0]["messages"];
    assert_eq!(
        sent[1]["content"],
        json!([{ "type": "tool_use", "id": "a_2", "name": "f",
                                            "input": { "invalid_arguments": "{\"x\":" } }])
    );
    assert_eq!(sent[2]["content"][0], json!({ "type": "tool_result", "tool_use_id": "a_2" }));
    assert_eq!(sent[2]["content"][1]["text"], "[note]");
    assert_eq!(sent.as_array().unwrap().len(), 3, "of one role together");
}

#[tokio::test]
async fn pictures_documents_and_own_options_are_sent() {
    let server = StandIn::playing(vec![streaming(TEXT)]).await;
    let picture = Part::from(Image { media_type: "image/png".into(), data: Some("AA==".into()), url: None });
    let document = Part::from(File {
        media_type: "application/pdf".into(),
        name: Some("a.pdf".into()),
        data: None,
        url: Some("https://example.com/a.pdf".into()),
    });
    let request = Request::of("a", vec![Message::User(vec![picture, document].into())], []);
    let model = anthropic(&server.url).option("temperature", json!(0.5)).max_tokens(77);
    ask(&model, &request).await.unwrap();
    let body = &server.bodies()[0];
    assert_eq!((&body["temperature"], &body["max_tokens"], &body["stream"]), (&json!(0.5), &json!(77), &json!(true)));
    let blocks = &body["messages"][0]["content"];
    assert_eq!(blocks[0]["source"], json!({ "type": "base64", "media_type": "image/png", "data": "AA==" }));
    assert_eq!(blocks[1]["source"], json!({ "type": "url", "url": "https://example.com/a.pdf" }));
    assert_eq!(blocks[1]["title"], "a.pdf");
}
