//! Chat completions as they come, the replies they make, and what goes back.

use expect_test::expect;
use serde_json::{Value, json};
use turnbuckle::message::{Image, Part, StopReason, Usage};
use turnbuckle::model::{Model, Request};
use turnbuckle::{Message, ToolCall};
use turnbuckle_models::OpenAi;

use crate::kit::{ask, asking, delta, finish, openai, openai_chunks, tool};
use crate::stand_in::{StandIn, streaming};

/// As OpenAI sends it: role first, padding, usage in a last chunk without choices.
const TEXT: &str = r#"data: {"id":"chatcmpl-C","object":"chat.completion.chunk","created":1762000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}],"usage":null,"obfuscation":"Xk2"}

data: {"id":"chatcmpl-C","object":"chat.completion.chunk","created":1762000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":"Grüß"},"finish_reason":null}],"usage":null,"obfuscation":"9"}

data: {"id":"chatcmpl-C","object":"chat.completion.chunk","created":1762000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":" Gott \ud83d\ude00"},"finish_reason":null}],"usage":null,"obfuscation":""}

data: {"id":"chatcmpl-C","object":"chat.completion.chunk","created":1762000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null,"obfuscation":"Pqr"}

data: {"id":"chatcmpl-C","object":"chat.completion.chunk","created":1762000000,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":null,"choices":[],"usage":{"prompt_tokens":1100,"completion_tokens":9,"total_tokens":1109,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"obfuscation":""}

data: [DONE]

"#;

fn calls() -> String {
    let call = |piece: Value| delta(json!({ "tool_calls": [piece] }));
    openai_chunks(&[
        delta(json!({ "role": "assistant", "content": null })),
        delta(json!({ "reasoning_content": "Two cities, two calls." })),
        call(
            json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": "weather", "arguments": "" } }),
        ),
        call(json!({ "index": 0, "function": { "arguments": "{\"city\":" } })),
        call(json!({ "index": 0, "function": { "arguments": "\"Köln\"}" } })),
        call(json!({ "index": 1, "id": "call_2", "type": "function", "function": { "name": "now", "arguments": "" } })),
        finish("tool_calls"),
    ])
}

#[tokio::test]
async fn text_is_told_as_it_comes_and_usage_is_taken_from_the_last_chunk() {
    let server = StandIn::playing(vec![streaming(TEXT)]).await;
    let reply = ask(&openai(&server.url), &asking("hi")).await.unwrap();
    assert_eq!(reply.content.text(), "Grüß Gott 😀");
    assert_eq!(reply.stop_reason, StopReason::End);
    assert_eq!(reply.usage, Usage { input: 1100, output: 9, cache_read: 1024, cache_write: 0 });
    let head = server.head();
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1"), "{head}");
    assert!(head.contains("authorization: Bearer sk-very"), "{head}");
}

#[tokio::test]
async fn parallel_calls_come_whole_and_go_back_with_the_thoughts_that_led_to_them() {
    let server = StandIn::playing(vec![streaming(&calls()), streaming(TEXT)]).await;
    let model = openai(&server.url);
    let tools = [tool("weather"), tool("now")];
    let question = Message::User(vec![Part::text("And in Köln?"), Part::text("[today is Monday]")].into());
    let reply = ask(&model, &Request::of("a", vec![question.clone()], tools.clone())).await.unwrap();
    assert_eq!(reply.stop_reason, StopReason::ToolCalls);
    let names: Vec<_> = reply.calls.iter().map(|call| (&*call.name, call.arguments.to_string())).collect();
    assert_eq!(names, [("weather", "{\"city\":\"Köln\"}".to_owned()), ("now", "{}".to_owned())]);
    let spoken = Message::Assistant { content: reply.content, calls: reply.calls };
    let result = |id: &str, ok: bool, text: &str| Message::Result {
        call: id.into(),
        name: "x".into(),
        ok,
        content: text.into(),
    };
    let before = [
        Message::User("Hello".into()),
        Message::Assistant { content: vec![Part::thinking("old"), Part::text("Hi.")].into(), calls: Vec::new() },
    ];
    let now = [question, spoken, result("call_1", true, "rain"), result("call_2", false, "no clock")];
    let mut request = Request::of("a", before.into_iter().chain(now).collect(), tools);
    request.system = "Be brief.".into();
    ask(&model, &request).await.unwrap();
    let body = serde_json::to_string_pretty(&server.bodies()[1]).unwrap();
    expect![[r#"
        {
          "messages": [
            {
              "content": "Be brief.",
              "role": "system"
            },
            {
              "content": "Hello",
              "role": "user"
            },
            {
              "content": "Hi.",
              "role": "assistant"
            },
            {
              "content": "And in Köln?\n\n[today is Monday]",
              "role": "user"
            },
            {
              "content": null,
              "reasoning_content": "Two cities, two calls.",
              "role": "assistant",
              "tool_calls": [
                {
                  "function": {
                    "arguments": "{\"city\":\"Köln\"}",
                    "name": "weather"
                  },
                  "id": "call_1",
                  "type": "function"
                },
                {
                  "function": {
                    "arguments": "{}",
                    "name": "now"
                  },
                  "id": "call_2",
                  "type": "function"
                }
              ]
            },
            {
              "content": "rain",
              "role": "tool",
              "tool_call_id": "call_1"
            },
            {
              "content": "Error: no clock",
              "role": "tool",
              "tool_call_id": "call_2"
            }
          ],
          "model": "gpt-test",
          "stream": true,
          "stream_options": {
            "include_usage": true
          },
          "tools": [
            {
              "function": {
                "description": "Does weather.",
                "name": "weather",
                "parameters": {
                  "properties": {
                    "city": {
                      "type": "string"
                    }
                  },
                  "type": "object"
                }
              },
              "type": "function"
            },
            {
              "function": {
                "description": "Does now.",
                "name": "now",
                "parameters": {
                  "properties": {
                    "city": {
                      "type": "string"
                    }
                  },
                  "type": "object"
                }
              },
              "type": "function"
            }
          ]
        }"#]]
    .assert_eq(&body);
}

#[tokio::test]
async fn what_a_gateway_sealed_goes_back_as_it_came() {
    let detail = |text: &str, more: Value| {
        let mut detail = json!({ "type": "reasoning.text", "text": text, "index": 0, "format": "anthropic-claude-v1" });
        detail.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        delta(json!({ "reasoning": text, "reasoning_details": [detail] }))
    };
    let call = json!({ "index": 0, "id": "c", "function": { "name": "f", "arguments": "{}" } });
    let stream = openai_chunks(&[
        detail("Let me ", json!({})),
        detail("think.", json!({})),
        detail("", json!({ "signature": "sig" })),
        delta(json!({ "tool_calls": [call] })),
        finish("tool_calls"),
    ]);
    let server =
        StandIn::playing(vec![streaming(&[": OPENROUTER PROCESSING\n\n", &stream].concat()), streaming(TEXT)]).await;
    let model = openai(&server.url);
    let reply = ask(&model, &asking("q")).await.unwrap();
    let spoken = Message::Assistant { content: reply.content, calls: reply.calls };
    let result = Message::Result { call: "c".into(), name: "f".into(), ok: true, content: "1".into() };
    ask(&model, &Request::of("a", vec![Message::User("q".into()), spoken, result], [])).await.unwrap();
    let details = &server.bodies()[1]["messages"][1]["reasoning_details"];
    assert_eq!(
        *details,
        json!([{ "type": "reasoning.text", "text": "Let me think.", "index": 0,
                                  "format": "anthropic-claude-v1", "signature": "sig" }])
    );
}

#[tokio::test]
async fn the_reason_to_stop_and_a_refusal_are_passed_on() {
    for (wire, reason) in [
        ("stop", StopReason::End),
        ("length", StopReason::Length),
        ("content_filter", StopReason::Refusal),
        ("a_reason_of_tomorrow", StopReason::End),
    ] {
        let server = StandIn::playing(vec![streaming(&TEXT.replace("\"stop\"", &format!("{wire:?}")))]).await;
        assert_eq!(ask(&openai(&server.url), &asking("hi")).await.unwrap().stop_reason, reason, "{wire}");
    }
    let refusing = openai_chunks(&[delta(json!({ "refusal": "I cannot." })), finish("stop")]);
    let server = StandIn::playing(vec![streaming(&refusing)]).await;
    let reply = ask(&openai(&server.url), &asking("hi")).await.unwrap();
    assert_eq!((reply.stop_reason, reply.content.text()), (StopReason::Refusal, "I cannot.".to_owned()));
}

#[tokio::test]
async fn an_object_is_asked_for_by_schema_and_filled_in_when_it_is_one() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
                         "additionalProperties": false });
    let mut request = asking("a number");
    request.schema = Some(schema.clone().into());
    let object =
        openai_chunks(&[delta(json!({ "content": "{\"n\":" })), delta(json!({ "content": "7}" })), finish("stop")]);
    let server = StandIn::playing(vec![streaming(&object), streaming(TEXT)]).await;
    let model = openai(&server.url);
    assert_eq!(ask(&model, &request).await.unwrap().object.as_deref(), Some(&json!({ "n": 7 })));
    assert_eq!(ask(&model, &request).await.unwrap().object, None, "what is no JSON is no object");
    let format = json!({ "type": "json_schema", "json_schema": { "name": "reply", "strict": true, "schema": schema } });
    assert_eq!(server.bodies()[0]["response_format"], format);
}

#[tokio::test]
async fn pictures_of_a_tool_stand_behind_its_results() {
    let server = StandIn::playing(vec![streaming(TEXT)]).await;
    let picture = Part::from(Image { media_type: "image/png".into(), data: Some("AA==".into()), url: None });
    let call = |id: &str| ToolCall { call: id.into(), name: "f".into(), arguments: json!({}).into() };
    let result = |id: &str| Message::Result {
        call: id.into(),
        name: "f".into(),
        ok: true,
        content: vec![Part::text("see"), picture.clone()].into(),
    };
    let spoken = Message::Assistant { content: "".into(), calls: vec![call("a"), call("b")] };
    let messages = vec![Message::User("q".into()), spoken, result("a"), result("b"), Message::Note("n".into())];
    ask(&openai(&server.url), &Request::of("a", messages, [])).await.unwrap();
    let sent = &server.bodies()[0]["messages"];
    let roles: Vec<_> = sent.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user", "user"]);
    assert_eq!(sent[4]["content"].as_array().unwrap().len(), 2);
    assert_eq!(sent[4]["content"][0]["image_url"]["url"], "data:image/png;base64,AA==");
}

#[tokio::test]
async fn ollama_costs_nothing_and_an_unknown_model_has_no_price() {
    let usage = Usage { input: 1000, output: 1000, ..Usage::default() };
    assert_eq!(OpenAi::ollama("http://127.0.0.1:11434", "llama3:8b").unwrap().price(&usage), Some(0.0));
    assert_eq!(openai("http://127.0.0.1:1").price(&usage), None);
}
