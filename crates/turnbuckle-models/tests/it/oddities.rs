//! Answers that no description of a wire foresees.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use turnbuckle::clock::Clock;
use turnbuckle::message::{Part, StopReason};
use turnbuckle::model::{Model, ModelError, Retry, Sink};
use turnbuckle::testing::PausedClock;

use crate::kit::{Ear, anthropic, anthropic_events, ask, asking, delta, finish, openai, openai_chunks};
use crate::stand_in::{StandIn, Step, answering, streaming};

async fn both(answer: Vec<Step>) -> [Result<turnbuckle::Reply, ModelError>; 2] {
    let server = StandIn::playing(vec![answer]).await;
    let (one, other) = (anthropic(&server.url), openai(&server.url));
    [one.stream(&asking("hi"), &mut Ear::default()).await, other.stream(&asking("hi"), &mut Ear::default()).await]
}

#[tokio::test]
async fn a_web_page_with_status_200_is_told_to_be_one_and_the_base_url_is_doubted() {
    let page = "<!doctype html><title>Welcome</title>";
    for answer in both(answering(200, "Content-Type: Text/HTML; charset=utf-8\r\n", page)).await {
        let error = answer.unwrap_err();
        assert!(error.to_string().contains("web page") && error.to_string().contains("base URL"), "{error}");
        assert!(error.to_string().contains("127.0.0.1:"), "{error}");
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[tokio::test]
async fn a_compressed_answer_is_told_to_be_one() {
    let headers = "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n";
    for answer in both(answering(200, headers, "\u{1f}\u{8b}...")).await {
        let error = answer.unwrap_err();
        assert!(matches!(&error, ModelError::Protocol(words) if words.contains("compressed (gzip)")), "{error}");
    }
}

#[tokio::test]
async fn a_byte_order_mark_and_every_kind_of_line_end_change_nothing() {
    let text = |text: &str| {
        anthropic_events(&[
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": text } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
        ])
    };
    let chunks = openai_chunks(&[delta(json!({ "content": "né" })), finish("stop")]);
    for end in ["\n", "\r\n", "\r"] {
        let marked = |stream: &str| format!("\u{feff}{}", stream.replace('\n', end));
        let server = StandIn::playing(vec![streaming(&marked(&text("né"))), streaming(&marked(&chunks))]).await;
        assert_eq!(ask(&anthropic(&server.url), &asking("hi")).await.unwrap().content.text(), "né", "{end:?}");
        assert_eq!(ask(&openai(&server.url), &asking("hi")).await.unwrap().content.text(), "né", "{end:?}");
    }
}

#[tokio::test]
async fn an_error_without_a_type_is_an_error_on_both_wires() {
    let stream = format!("data: {}\n\n", json!({ "error": { "message": "Overloaded", "code": 529 } }));
    for answer in both(streaming(&stream)).await {
        assert_eq!(answer.unwrap_err().to_string(), "the model answered with status 529: Overloaded");
    }
}

#[tokio::test]
async fn a_call_that_the_length_cut_off_before_its_arguments_does_not_run_without_them() {
    let call = |id: &str| json!({ "index": 0, "id": id, "function": { "name": "delete", "arguments": "" } });
    let stream = openai_chunks(&[delta(json!({ "tool_calls": [call("a")] })), finish("length")]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    let reply = ask(&openai(&server.url), &asking("t")).await.unwrap();
    assert_eq!((reply.stop_reason, &*reply.calls[0].arguments), (StopReason::Length, &json!("")));
    let block = json!({ "type": "tool_use", "id": "c", "name": "delete", "input": {} });
    let stream = anthropic_events(&[
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "max_tokens" } }),
    ]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    let reply = ask(&anthropic(&server.url), &asking("t")).await.unwrap();
    assert_eq!((reply.stop_reason, &*reply.calls[0].arguments), (StopReason::Length, &json!("")));
}

#[tokio::test]
async fn counts_that_are_no_whole_numbers_do_not_break_a_reply() {
    let usage =
        json!({ "prompt_tokens": 5.0, "completion_tokens": -1, "prompt_tokens_details": { "cached_tokens": "x" } });
    let odd = json!({ "choices": [{ "index": null, "delta": { "content": "hi" }, "finish_reason": "stop" }], "usage": usage });
    let server = StandIn::playing(vec![streaming(&openai_chunks(&[odd]))]).await;
    let reply = ask(&openai(&server.url), &asking("hi")).await.unwrap();
    assert_eq!((reply.content.text().as_str(), reply.usage.input, reply.usage.output), ("hi", 5, 0));
}

#[tokio::test]
async fn a_server_that_never_stops_after_the_end_is_left_after_the_grace() {
    let stream = openai_chunks(&[delta(json!({ "content": "hi" })), finish("stop")]).replace("data: [DONE]\n\n", "");
    let mut steps = streaming(&stream);
    steps.push(Step::Flood(b": still here\n\n".to_vec()));
    let mut server = StandIn::playing(vec![steps]).await;
    let clock = Arc::new(PausedClock::default());
    let model = openai(&server.url).with_clock(clock.clone());
    let ticking = async {
        loop {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(20));
        }
    };
    let (request, mut ear) = (asking("hi"), Ear::default());
    let began = clock.elapsed();
    let reply = tokio::select! {
        reply = model.stream(&request, &mut ear) => reply.unwrap(),
        () = ticking => unreachable!(),
    };
    assert_eq!(reply.content.text(), "hi");
    assert!(clock.elapsed() - began >= Duration::from_secs(5));
    server.closed.recv().await.expect("the server saw no close");
}

/// What is pushed, piece by piece.
#[derive(Default)]
struct Pieces(Vec<String>);

impl Sink for Pieces {
    fn text(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
    fn thinking(&mut self, text: &str) {
        self.0.push(format!("({text})"));
    }
}

#[tokio::test]
async fn texts_find_their_places_whatever_is_escaped_and_however_blocks_take_turns() {
    let words = ["plain", "né 😀", "line\n", "\"quoted\"", "back\\slash", "", "tab\t", "plain", "}}", "\u{1}", "x"];
    let start = |index: usize| json!({ "type": "content_block_start", "index": index, "content_block": { "type": "text", "text": "" } });
    let mut events = vec![start(0), start(1), start(2)];
    let mut expected = [const { String::new() }; 3];
    // Every word follows every other, in the same block and in another.
    for step in 0..600 {
        let (index, word) = (step * 7 % 13 % 3, words[(step * step + step / 11) % words.len()]);
        expected[index].push_str(word);
        let delta = json!({ "type": "text_delta", "text": word });
        events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
    let server = StandIn::playing(vec![streaming(&anthropic_events(&events))]).await;
    let reply = anthropic(&server.url).stream(&asking("hi"), &mut Ear::default()).await.unwrap();
    let texts: Vec<_> = reply.content.parts().iter().filter_map(Part::as_text).collect();
    assert_eq!(texts, expected);

    let chunks: Vec<Value> =
        (0..300).map(|step| delta(json!({ "content": words[step * step % words.len()] }))).collect();
    let whole: Vec<Value> = chunks.iter().cloned().chain([finish("stop")]).collect();
    let server = StandIn::playing(vec![streaming(&openai_chunks(&whole))]).await;
    let expected: String =
        chunks.iter().map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(ask(&openai(&server.url), &asking("hi")).await.unwrap().content.text(), expected);
}

async fn pieces(model: &dyn Model) -> Vec<String> {
    let mut pieces = Pieces::default();
    let _ = model.stream(&asking("hi"), &mut pieces).await;
    pieces.0
}

#[tokio::test]
async fn what_comes_in_one_piece_is_told_in_one_and_in_its_order() {
    let said = |lane: &str, text: &str| delta(json!({ lane: text }));
    let chunks = [
        said("reasoning_content", "a"),
        said("reasoning_content", "b"),
        said("content", "c"),
        said("content", "d"),
        said("reasoning_content", "e"),
        said("content", "f"),
    ];
    let whole: Vec<Value> = chunks.iter().cloned().chain([finish("stop")]).collect();
    let server = StandIn::playing(vec![streaming(&openai_chunks(&whole))]).await;
    let told = pieces(&openai(&server.url)).await;
    assert_eq!(told.concat(), "(ab)cd(e)f", "{told:?}");
    // What came before an error is told, however the bytes were packed.
    let broken = format!("{}data: {{]\n\n", openai_chunks(&chunks).replace("data: [DONE]\n\n", ""));
    let server = StandIn::playing(vec![streaming(&broken)]).await;
    assert_eq!(pieces(&openai(&server.url)).await.concat(), "(ab)cd(e)f");

    let start = |index: u64, kind: &str| json!({ "type": "content_block_start", "index": index, "content_block": { "type": kind, kind: "<" } });
    let add = |index: u64, kind: &str, field: &str, text: &str| json!({ "type": "content_block_delta", "index": index, "delta": { "type": kind, field: text } });
    let stream = anthropic_events(&[
        start(0, "thinking"),
        add(0, "thinking_delta", "thinking", "a"),
        start(1, "text"),
        add(1, "text_delta", "text", "b"),
        add(1, "text_delta", "text", "c"),
        add(0, "thinking_delta", "thinking", "d"),
        add(1, "text_delta", "text", "e"),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
    ]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    assert_eq!(pieces(&anthropic(&server.url)).await.concat(), "(<a)<bc(d)e");
}
