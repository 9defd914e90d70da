//! Errors: typed, with their advice, and without the key.

use std::time::Duration;

use serde_json::json;
use turnbuckle::model::{Model, ModelError, Retry};
use turnbuckle_models::{Anthropic, Key, OpenAi, SetupError};

use crate::kit::{Ear, SECRET, anthropic, anthropic_events, ask, asking, delta, openai};
use crate::stand_in::{StandIn, answering, streaming};

async fn both(answer: Vec<crate::stand_in::Step>) -> [ModelError; 2] {
    let server = StandIn::playing(vec![answer]).await;
    let (one, other) = (anthropic(&server.url), openai(&server.url));
    [ask(&one, &asking("hi")).await.unwrap_err(), ask(&other, &asking("hi")).await.unwrap_err()]
}

#[tokio::test]
async fn a_status_keeps_the_providers_words_and_says_whether_to_try_again() {
    let body = |kind: &str| json!({ "type": "error", "error": { "type": kind, "message": "slow down" } }).to_string();
    for (status, headers, advice) in [
        (400, "", Retry::Never),
        (401, "", Retry::Never),
        (404, "", Retry::Never),
        (429, "", Retry::Soon),
        (429, "retry-after: 3\r\n", Retry::After(Duration::from_secs(3))),
        (429, "retry-after: 999999\r\n", Retry::After(Duration::from_secs(600))),
        (500, "", Retry::Soon),
        (503, "retry-after-ms: 1500\r\n", Retry::After(Duration::from_millis(1500))),
        (529, "", Retry::Soon),
    ] {
        for error in both(answering(status, headers, &body("some_error"))).await {
            assert_eq!(error.to_string(), format!("the model answered with status {status}: slow down"));
            assert_eq!(error.retry(), advice, "{status} {headers}");
        }
    }
}

#[tokio::test]
async fn a_wait_until_a_date_is_counted_from_the_clock() {
    let clock = turnbuckle::testing::PausedClock::default();
    let then =
        std::time::UNIX_EPOCH + Duration::from_millis(turnbuckle::clock::Clock::now(&clock).as_millis() + 42_000);
    let header = format!("retry-after: {}\r\n", httpdate(then));
    let server = StandIn::playing(vec![answering(429, &header, "")]).await;
    let error = ask(&openai(&server.url).with_clock(std::sync::Arc::new(clock)), &asking("hi")).await.unwrap_err();
    let Retry::After(wait) = error.retry() else { panic!("{error}") };
    assert!((41..=42).contains(&wait.as_secs()), "{wait:?}");
}

/// RFC 9110, by hand: the tests name no crate for it.
fn httpdate(time: std::time::SystemTime) -> String {
    let seconds = time.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let names = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (mut year, mut day) = (1970, days);
    let length = |year: u64| {
        if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) { 366 } else { 365 }
    };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = length(year) - 337;
    let mut month = 0;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let name = names[usize::try_from(days % 7).unwrap()];
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{name}, {:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT", day + 1, months[month])
}

#[tokio::test]
async fn words_in_every_form_are_found() {
    for (body, words) in [
        (json!({ "error": { "message": "a" } }).to_string(), "a"),
        (json!({ "error": "b" }).to_string(), "b"),
        (json!({ "object": "error", "message": "c", "code": 404 }).to_string(), "c"),
        (json!({ "detail": "d" }).to_string(), "d"),
        ("<html>e</html>".to_owned(), "<html>e</html>"),
        (String::new(), "Bad Request"),
    ] {
        for error in both(answering(400, "", &body)).await {
            assert_eq!(error.to_string(), format!("the model answered with status 400: {words}"));
        }
    }
}

#[tokio::test]
async fn an_endless_error_is_cut() {
    for error in both(answering(500, "", &"x".repeat(1_000_000))).await {
        assert!(error.to_string().len() < 3000);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_it_is_said_where_it_leads() {
    let target = StandIn::playing(vec![streaming("")]).await;
    for status in [301, 302, 307, 308] {
        let location = format!("location: {}/v1?token=secret\r\n", target.url);
        for error in both(answering(status, &location, "")).await {
            assert!(matches!(error, ModelError::Status { status: told, .. } if told == status), "{error}");
            assert_eq!(error.retry(), Retry::Never);
            let words = error.to_string();
            assert!(words.contains("at http://127.0.0.1") && !words.contains("secret"), "{words}");
        }
    }
    assert!(target.received.lock().unwrap().is_empty(), "the key would have gone along");
}

#[tokio::test]
async fn an_overloaded_provider_in_the_middle_of_a_stream_is_worth_another_try() {
    for (kind, status, advice) in [
        ("overloaded_error", 529, Retry::Soon),
        ("rate_limit_error", 429, Retry::Soon),
        ("api_error", 500, Retry::Soon),
        ("an_error_of_tomorrow", 500, Retry::Soon),
        ("invalid_request_error", 400, Retry::Never),
    ] {
        let block = json!({ "type": "text", "text": "" });
        let stream = anthropic_events(&[
            json!({ "type": "message_start", "message": { "usage": { "input_tokens": 1 } } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "Well" } }),
            json!({ "type": "error", "error": { "type": kind, "message": "Overloaded" } }),
        ]);
        let server = StandIn::playing(vec![streaming(&stream)]).await;
        let mut ear = Ear::default();
        let error = anthropic(&server.url).stream(&asking("hi"), &mut ear).await.unwrap_err();
        assert_eq!(ear.text, "Well");
        assert_eq!(error.to_string(), format!("the model answered with status {status}: Overloaded"));
        assert_eq!(error.retry(), advice);
    }
    for (error, status) in [
        (json!({ "message": "m", "code": 502 }), 502),
        (json!({ "message": "m", "type": "rate_limit_exceeded" }), 429),
        (json!({ "message": "m", "code": "server_error" }), 500),
        (json!("m"), 500),
    ] {
        let stream =
            format!("data: {}\n\ndata: {}\n\n", delta(json!({ "content": "Well" })), json!({ "error": error }));
        let server = StandIn::playing(vec![streaming(&stream)]).await;
        let error = openai(&server.url).stream(&asking("hi"), &mut Ear::default()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("the model answered with status {status}: m"));
    }
}

#[tokio::test]
async fn a_dead_port_says_what_was_tried_and_is_worth_another_try() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = ask(&openai(&format!("http://{gone}")), &asking("hi")).await.unwrap_err();
    let words = error.to_string();
    assert!(words.contains("asking 127.0.0.1") && words.contains("refused"), "{words}");
    assert_eq!(error.retry(), Retry::Soon);
}

#[tokio::test]
async fn the_key_is_in_no_error_and_in_no_debug() {
    let echo = json!({ "error": { "message": format!("Incorrect API key provided: {SECRET}.") } }).to_string();
    let mut shown = Vec::new();
    for error in both(answering(401, "", &echo)).await {
        shown.extend([error.to_string(), format!("{error:?}")]);
    }
    let stream = format!("data: {}\n\n", json!({ "type": "error", "error": { "message": SECRET } }));
    for error in both(streaming(&stream)).await {
        shown.extend([error.to_string(), format!("{error:?}")]);
    }
    let address = format!("http://user:{SECRET}@127.0.0.1:1");
    let error = ask(&anthropic(&address), &asking("hi")).await.unwrap_err();
    shown.extend([error.to_string(), format!("{error:?}")]);
    shown.push(format!("{:?} {:?} {:?}", anthropic(&address), openai(&address), Key::new(SECRET)));
    for text in shown {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn what_cannot_work_is_refused_when_the_model_is_made() {
    let key = || Some(Key::new("k"));
    for bad in ["", "localhost:80", "ftp://host", "http://", "nonsense"] {
        assert!(matches!(OpenAi::at(bad, "m", key()), Err(SetupError::BaseUrl)), "{bad}");
        assert!(matches!(Anthropic::at(bad, "m", key()), Err(SetupError::BaseUrl)), "{bad}");
    }
    assert!(matches!(OpenAi::at("http://h", "m", Some(Key::new("a\nb"))), Err(SetupError::Key)));
}

#[tokio::test]
async fn a_request_that_is_too_long_is_told_apart_with_what_the_provider_said_of_its_length() {
    let openai = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5,120 tokens.";
    for (status, error, limit, size) in [
        (
            400,
            json!({"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}),
            Some(200_000),
            Some(210_000),
        ),
        (400, json!({"message": openai, "code": "context_length_exceeded"}), Some(4096), Some(5120)),
        (400, json!({"message": "no", "code": "context_length_exceeded"}), None, None),
        (
            400,
            json!({"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error",
                "n_prompt_tokens": 9000, "n_ctx": 8192}),
            Some(8192),
            Some(9000),
        ),
        (413, json!({"type": "request_too_large", "message": "Request exceeds the maximum size"}), None, None),
    ] {
        for failed in both(answering(status, "", &json!({ "error": error }).to_string())).await {
            let ModelError::TooLong { status: told, limit: most, size: had, .. } = &failed else {
                panic!("{failed:?}")
            };
            assert_eq!((*told, *most, *had), (Some(status), limit, size), "{failed}");
            assert_eq!(failed.retry(), Retry::Never);
        }
    }
    for other in ["max_tokens is too large", "tools: too many", "slow down, the prompt was fine"] {
        for failed in both(answering(400, "", &json!({"error": {"message": other}}).to_string())).await {
            assert!(matches!(failed, ModelError::Status { .. }), "{failed:?}");
        }
    }
}

#[tokio::test]
async fn a_server_says_how_many_tokens_its_model_takes_in_one_of_several_ways() {
    let no = || answering(404, "", "");
    let list = |model: serde_json::Value| answering(200, "", &json!({"data": [{"id": "other"}, model]}).to_string());
    let props = json!({"default_generation_settings": {"n_ctx": 16_384}}).to_string();
    let loaded = json!({"models": [{"name": "m", "context_length": 4096}]}).to_string();
    for (answers, window) in [
        (vec![list(json!({"id": "m", "max_model_len": 40_960}))], Some(40_960)),
        (vec![list(json!({"id": "m", "context_length": 131_072}))], Some(131_072)),
        (vec![list(json!({"id": "m"})), answering(200, "", &props)], Some(16_384)),
        (vec![list(json!({"id": "m"})), no(), answering(200, "", &loaded)], Some(4096)),
        (vec![list(json!({"id": "m", "max_model_len": 1})), no(), no()], None),
        (vec![no()], None),
        (vec![answering(200, "", "<html>")], None),
    ] {
        let server = StandIn::playing(answers).await;
        let found = turnbuckle_models::window_at(&server.url, "m", Duration::from_secs(20)).await;
        assert_eq!(found, window);
    }
}
