//! `turnbuckle serve`: what a real MCP server asks in the middle of a call, answered over HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::{call, server};
use crate::program::Folder;
use crate::serving::{PATIENCE, Serving, sha256};

/// Ann's server: `boss` answers for others, `sue` reads.
fn folder(timeout: &str) -> Folder {
    let tokens: String = [("ann", ""), ("boss", "manager"), ("sue", "support"), ("eve", "")]
        .iter()
        .map(|(user, role)| {
            let digest = sha256(&format!("{user}-secret"));
            format!("[[serve.tokens]]\nsha256 = \"{digest}\"\nuser = \"{user}\"\nroles = [\"{role}\"]\n")
        })
        .collect();
    let tokens = tokens.replace("roles = [\"\"]\n", "");
    let config =
        format!("[access]\nanswer = [\"manager\"]\nread = [\"support\"]\n[serve]\nclient_ids = true\n{tokens}");
    let server = server("good", &format!("approve = []\ntimeout = \"{timeout}\"\n"));
    Folder::with_config(&call("echo", "ask"), &format!("{config}{server}"))
}

fn as_user(serving: &Serving, user: &str, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    serving.ask(method, path, &format!("authorization: Bearer {user}-secret\r\n"), body)
}

fn view(serving: &Serving) -> Value {
    as_user(serving, "ann", "GET", "/v1/conversations/c", None).1
}

fn until(serving: &Serving, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let view = view(serving);
        if is_so(&view) {
            return view;
        }
        assert!(begun.elapsed() < PATIENCE, "{view} {}", serving.later());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Begins a turn in which the server asks, and waits for the question.
fn asked(serving: &Serving) -> String {
    assert_eq!(as_user(serving, "ann", "POST", "/v1/conversations", Some(&json!({ "id": "c" }))).0, 201);
    let go = json!({ "content": "go" });
    assert_eq!(as_user(serving, "ann", "POST", "/v1/conversations/c/messages", Some(&go)).0, 202);
    let view = until(serving, |view| view["pending"][0]["call"].is_string());
    let asked = &view["pending"][0];
    assert_eq!(
        (&asked["kind"], &asked["prompt"]["question"]),
        (&json!("elicitation"), &json!("What is your password?"))
    );
    assert_eq!(asked["live"], json!({ "call": "c1", "tool": "mcp__test__echo", "asker": "the MCP server test" }));
    assert_ne!(asked["call"], "c1");
    // The call goes on meanwhile, and nothing is suspended.
    assert_eq!(view["state"], "dispatch");
    assert_eq!(view["in_flight_tools"][0]["call"], "c1");
    asked["call"].as_str().unwrap().to_owned()
}

fn answer(serving: &Serving, user: &str, call: &str, body: &Value) -> (u16, Value) {
    as_user(serving, user, "POST", &format!("/v1/conversations/c/calls/{call}"), Some(body))
}

fn pending(serving: &Serving, user: &str) -> Value {
    as_user(serving, user, "GET", "/v1/pending", None).1["pending"].clone()
}

fn event<'a>(view: &'a Value, kind: &str) -> Option<&'a Value> {
    view["messages"].as_array()?.iter().find(|event| event["type"] == kind)
}

/// What the call came to, once the turn is over.
fn result(serving: &Serving) -> String {
    let view = until(serving, |view| event(view, "turn_ended").is_some());
    assert_eq!(view["pending"], json!([]));
    event(&view, "tool_result").unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn the_first_of_two_answers_reaches_the_server_that_asked_and_nobody_else_may_answer() {
    let folder = folder("2m");
    let serving = Serving::start(&folder, &[]);
    let call = asked(&serving);
    assert_eq!(pending(&serving, "ann")[0]["call"], json!(call));
    assert_eq!(pending(&serving, "boss")[0]["live"]["tool"], "mcp__test__echo");
    assert_eq!((pending(&serving, "sue"), pending(&serving, "eve")), (json!([]), json!([])));
    let body = |word: &str| json!({ "answer": { "p": word } });
    assert_eq!(answer(&serving, "sue", &call, &body("green")).0, 403);
    assert_eq!(answer(&serving, "eve", &call, &body("green")).0, 404);
    assert_eq!(answer(&serving, "ann", &call, &json!({ "answer": { "p": 7 } })).0, 400);
    let (serving, call) = (&serving, &*call);
    let statuses = std::thread::scope(|scope| {
        let answers = [("ann", "blue"), ("boss", "red")];
        let threads = answers.map(|(user, word)| scope.spawn(move || answer(serving, user, call, &body(word))));
        threads.map(|thread| thread.join().unwrap())
    });
    let first = if statuses[0].0 == 200 { 0 } else { 1 };
    assert_eq!((statuses[first].0, statuses[1 - first].0), (200, 409), "{statuses:?}");
    assert_eq!(statuses[1 - first].1["error"]["code"], "stale");
    let word = ["blue", "red"][first];
    let result = result(serving);
    assert!(result.contains(&format!("the answer was accept {{\"p\": \"{word}\"}}")), "{result}");
    assert!(!result.contains("wanted to ask"), "{result}");
    let told = view(serving);
    assert_eq!(statuses[first].1["turn"], event(&told, "turn_ended").unwrap()["turn"]);
    assert!(event(&told, "suspension").is_none() && event(&told, "resolution").is_none(), "nothing is stored");
}

#[test]
fn when_the_time_of_the_call_is_up_the_server_is_told_no_and_the_question_is_gone() {
    let folder = folder("3s");
    let serving = Serving::start(&folder, &[]);
    let call = asked(&serving);
    let result = result(&serving);
    assert!(result.contains("the answer was decline"), "{result}");
    assert!(result.contains("nobody answered in time: What is your password?"), "{result}");
    assert_eq!(pending(&serving, "ann"), json!([]));
    assert_eq!(answer(&serving, "ann", &call, &json!({ "approve": false })).1["error"]["code"], "stale");
}

#[test]
fn a_cancelled_turn_takes_its_question_along() {
    let folder = folder("2m");
    let serving = Serving::start(&folder, &[]);
    let call = asked(&serving);
    assert_eq!(as_user(&serving, "ann", "POST", "/v1/conversations/c/cancel", Some(&json!({}))).0, 200);
    assert!(result(&serving).contains("[cancelled]"));
    assert_eq!(pending(&serving, "ann"), json!([]));
    assert_eq!(answer(&serving, "ann", &call, &json!({ "approve": false })).1["error"]["code"], "stale");
}

#[test]
fn a_server_that_is_asked_to_end_does_not_wait_for_an_answer() {
    let folder = folder("2m");
    let mut serving = Serving::start(&folder, &[]);
    asked(&serving);
    let begun = Instant::now();
    serving.signal(rustix::process::Signal::TERM);
    assert_eq!(serving.ends(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let serving = Serving::start(&folder, &[]);
    let result = result(&serving);
    assert!(result.contains("the answer was decline") && result.contains("nobody was asked"), "{result}");
}

#[test]
fn after_a_kill_nothing_of_the_question_is_left_and_the_call_is_what_its_effect_says() {
    let folder = folder("2m");
    let mut serving = Serving::start(&folder, &[]);
    let call = asked(&serving);
    serving.signal(rustix::process::Signal::KILL);
    serving.ends();
    let serving = Serving::start(&folder, &[]);
    // An MCP tool is never called again by itself: whether it happened is unknown.
    let begun = until(&serving, |view| event(view, "turn_ended").is_some() || view["pending"][0].is_object());
    assert_ne!(begun["pending"][0]["kind"], "elicitation", "{begun}");
    assert_eq!(answer(&serving, "ann", &call, &json!({ "approve": false })).1["error"]["code"], "stale");
}
