//! Streams that are cut, stall, make no sense or have no end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use turnbuckle::model::{Model, ModelError, Retry, Sink};
use turnbuckle::testing::PausedClock;
use turnbuckle_models::Timeouts;

use crate::kit::{Ear, anthropic, anthropic_events, ask, asking, delta, finish, openai, openai_chunks};
use crate::stand_in::{StandIn, Step, streaming};

fn anthropic_stream() -> String {
    let block = json!({ "type": "text", "text": "" });
    let call = json!({ "type": "tool_use", "id": "c", "name": "f", "input": {} });
    anthropic_events(&[
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "né 😀" } }),
        json!({ "type": "content_block_start", "index": 1, "content_block": call }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "{}" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 3 } }),
        json!({ "type": "message_stop" }),
    ])
}

fn openai_stream() -> String {
    let call = json!([{ "index": 0, "id": "c", "function": { "name": "f", "arguments": "{}" } }]);
    openai_chunks(&[delta(json!({ "content": "né 😀" })), delta(json!({ "tool_calls": call })), finish("tool_calls")])
}

/// Cuts a stream behind every byte: what does not say why it ends is an error, and nothing in between is half a reply.
async fn cut_everywhere(stream: String, whole_from: usize, wire: fn(&str) -> Box<dyn Model>) {
    let answers = (0..=stream.len()).map(|cut| {
        let head = streaming("");
        let [Step::Write(head)] = &head[..] else { panic!() };
        vec![Step::Write([head.as_slice(), &stream.as_bytes()[..cut]].concat())]
    });
    let server = StandIn::playing(answers.collect()).await;
    let model = wire(&server.url);
    let whole = model_reply(&*model, &stream).await;
    for cut in 0..=stream.len() {
        match model.stream(&asking("hi"), &mut Ear::default()).await {
            Ok(reply) => {
                assert!(cut >= whole_from, "half a reply was taken for a whole one at {cut}");
                assert_eq!((&reply.content, &reply.calls), (&whole.content, &whole.calls), "cut at {cut}");
            }
            Err(error) => {
                assert!(cut < stream.len(), "the whole stream: {error}");
                assert!(matches!(error, ModelError::Transport { .. }), "cut at {cut}: {error}");
                assert_eq!(error.retry(), Retry::Soon);
            }
        }
    }
}

async fn model_reply(like: &dyn Model, stream: &str) -> turnbuckle::Reply {
    let server = StandIn::playing(vec![streaming(stream)]).await;
    let model: Box<dyn Model> = if like.name().starts_with("anthropic") {
        Box::new(anthropic(&server.url))
    } else {
        Box::new(openai(&server.url))
    };
    ask(&*model, &asking("hi")).await.unwrap()
}

#[tokio::test]
async fn an_anthropic_stream_cut_anywhere_is_never_half_a_reply() {
    let stream = anthropic_stream();
    let whole = stream.find("\"stop_reason\"").unwrap();
    cut_everywhere(stream, whole, |url| Box::new(anthropic(url))).await;
}

#[tokio::test]
async fn a_chat_completion_cut_anywhere_is_never_half_a_reply() {
    let stream = openai_stream();
    let whole = stream.find("\"finish_reason\":\"tool_calls\"").unwrap();
    cut_everywhere(stream, whole, |url| Box::new(openai(url))).await;
}

fn held(before: &str) -> Vec<Step> {
    let mut steps = streaming(before);
    steps.push(Step::AwaitClose);
    steps
}

#[tokio::test]
async fn a_stream_that_stalls_is_given_up_after_the_idle_time_and_its_socket_closed() {
    let start = format!("data: {}\n\n", delta(json!({ "content": "Well" })));
    let mut server = StandIn::playing(vec![held(&start)]).await;
    let clock = Arc::new(PausedClock::default());
    let timeouts = Timeouts { idle: Duration::from_secs(30), ..Timeouts::default() };
    let model = openai(&server.url).timeouts(timeouts).with_clock(clock.clone());
    let (request, bell) = (asking("hi"), Bell::default());
    let mut sink = &bell;
    let stream = model.stream(&request, &mut sink);
    let error = while_time_passes(stream, &clock, Duration::from_secs(10), || bell.rang()).await.unwrap_err();
    assert!(matches!(error, ModelError::Stalled { idle } if idle == Duration::from_secs(30)), "{error}");
    assert_eq!(error.retry(), Retry::Soon);
    server.closed.recv().await.expect("the server saw no close");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_the_first_byte_time() {
    let mut server = StandIn::playing(vec![vec![Step::AwaitClose]]).await;
    let clock = Arc::new(PausedClock::default());
    let model = anthropic(&server.url).with_clock(clock.clone());
    let (request, mut ear) = (asking("hi"), Ear::default());
    let (stream, asked) = (model.stream(&request, &mut ear), || !server.received.lock().unwrap().is_empty());
    let error = while_time_passes(stream, &clock, Duration::from_secs(100), asked).await.unwrap_err();
    assert!(matches!(error, ModelError::Stalled { idle } if idle == Timeouts::default().first_byte), "{error}");
    server.closed.recv().await.expect("the server saw no close");
}

/// Drives the future, and lets this much time pass whenever it waits and `ready` says so.
async fn while_time_passes<T>(
    future: impl Future<Output = T>,
    clock: &PausedClock,
    step: Duration,
    ready: impl Fn() -> bool,
) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        tokio::select! {
            biased;
            value = &mut future => return value,
            () = tokio::task::yield_now() => {
                if ready() && clock.sleepers() > 0 {
                    clock.advance(step);
                }
            }
        }
    }
}

/// A sink that says when it heard something.
#[derive(Default)]
struct Bell(AtomicBool);

impl Sink for &Bell {
    fn text(&mut self, _: &str) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn thinking(&mut self, _: &str) {}
}

impl Bell {
    fn rang(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_reply_that_is_whole_does_not_wait_for_a_server_that_keeps_the_line_open() {
    let stream = openai_chunks(&[delta(json!({ "content": "hi" })), finish("stop")]).replace("data: [DONE]\n\n", "");
    let server = StandIn::playing(vec![held(&stream)]).await;
    let clock = Arc::new(PausedClock::default());
    let model = openai(&server.url).with_clock(clock.clone());
    let (request, bell) = (asking("hi"), Bell::default());
    let mut sink = &bell;
    let stream = model.stream(&request, &mut sink);
    let reply = while_time_passes(stream, &clock, Duration::from_secs(1), || bell.rang()).await.unwrap();
    assert_eq!(reply.content.text(), "hi");
}

fn is_garbled(error: &ModelError) -> bool {
    error.to_string().contains("garbled") && error.retry() == Retry::Soon
}

#[tokio::test]
async fn a_chunk_that_is_no_json_is_an_error_and_not_a_gap() {
    let good = delta(json!({ "content": "a" }));
    for bad in ["{\"choices\":[{\"del", "{]", "hello", "\u{fffd}"] {
        let stream = format!("data: {good}\n\ndata: {bad}\n\ndata: {}\n\ndata: [DONE]\n\n", finish("stop"));
        let server = StandIn::playing(vec![streaming(&stream)]).await;
        let error = openai(&server.url).stream(&asking("hi"), &mut Ear::default()).await.unwrap_err();
        assert!(is_garbled(&error), "{error}");
        let error = anthropic(&server.url).stream(&asking("hi"), &mut Ear::default()).await.unwrap_err();
        assert!(is_garbled(&error), "{error}");
    }
    let mut broken = b"data: {\"choices\":[{\"delta\":{\"content\":\"".to_vec();
    broken.extend([0xff, 0xfe]);
    broken.extend(b"\"}}]}\n\n");
    let mut steps = streaming("");
    steps.push(Step::Write(broken));
    let server = StandIn::playing(vec![steps]).await;
    let error = openai(&server.url).stream(&asking("hi"), &mut Ear::default()).await.unwrap_err();
    assert!(is_garbled(&error), "{error}");
}

#[tokio::test]
async fn a_line_without_end_is_refused_and_its_socket_closed() {
    let mut steps = streaming("data: ");
    steps.extend((0..10).map(|_| Step::Write(vec![b'x'; 1024 * 1024])));
    steps.push(Step::AwaitClose);
    let server = StandIn::playing(vec![steps]).await;
    for model in [&anthropic(&server.url) as &dyn Model, &openai(&server.url)] {
        let error = model.stream(&asking("hi"), &mut Ear::default()).await.unwrap_err();
        assert!(matches!(&error, ModelError::Protocol(words) if words.contains("more than")), "{error}");
    }
}

#[tokio::test]
async fn events_of_tomorrow_and_deltas_for_nobody_are_skipped() {
    let stream = anthropic_events(&[
        json!({ "type": "content_block_delta", "index": 9, "delta": { "type": "text_delta", "text": "lost" } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": "no object" }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "a" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "new_delta", "text": "lost" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": "{" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": null }),
        json!({ "type": "tomorrow", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
    ]);
    let server = StandIn::playing(vec![streaming(&stream)]).await;
    assert_eq!(ask(&anthropic(&server.url), &asking("hi")).await.unwrap().content.text(), "a");
    let odd = openai_chunks(&[
        json!({ "object": "new.thing" }),
        json!({ "choices": [{ "index": 1, "delta": { "content": "other choice" } }] }),
        delta(json!({ "content": [{ "type": "text", "text": "list" }], "new": {} })),
        delta(json!({ "content": "a", "tool_calls": null })),
        finish("stop"),
    ]);
    let server = StandIn::playing(vec![streaming(&odd)]).await;
    assert_eq!(ask(&openai(&server.url), &asking("hi")).await.unwrap().content.text(), "a");
}
