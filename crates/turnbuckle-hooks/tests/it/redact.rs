//! `redact` beyond replacing on the stream: hashes, blocking, user messages and tool results.

use expect_test::expect;
use serde_json::json;
use turnbuckle::hook::{HookEntry, Point};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Outcome};
use turnbuckle_hooks::Redact;
use turnbuckle_hooks::redact::{RedactBuilder, RedactError, Strategy};

const ALL: [Point; 3] = [Point::BeforeAgent, Point::Stream, Point::AfterTool];

fn redact(change: impl FnOnce(RedactBuilder) -> RedactBuilder) -> Redact {
    change(Redact::builder().emails()).build().unwrap()
}

#[test]
fn a_hash_tells_whether_two_are_the_same_and_not_what_they_are() {
    let hashing = |salt: &str| redact(|builder| builder.strategy(Strategy::Hash).salt(salt));
    let text = "ann@example.com, bob@example.com, ann@example.com";
    let hashed = hashing("a long secret").apply(text).into_owned();
    let hashes: Vec<&str> = hashed.split(", ").collect();
    assert!(hashes[0].starts_with("[email:") && hashes[0].len() == "[email:1f0c6d2a9b3e]".len(), "{hashed}");
    assert!(hashes[0] == hashes[2] && hashes[0] != hashes[1]);
    assert_ne!(hashing("another secret").apply(text), hashed);
    let refused = Redact::builder().emails().strategy(Strategy::Hash).salt("short").build();
    assert!(refused.unwrap_err().to_string().contains("salt"));
    assert!(!format!("{:?}", hashing("a long secret")).contains("long secret"));
}

#[tokio::test]
async fn a_hash_does_not_depend_on_how_the_stream_was_cut() {
    let mut said = Vec::new();
    for chunks in [vec!["to ann@example.com."], vec!["to an", "n@exam", "ple.c", "om", "."]] {
        let hook = redact(|builder| builder.strategy(Strategy::Hash).salt("a long secret"));
        let script = Script::of([ScriptReply::chunks(chunks)]);
        said.push(Rig::new(Agent::builder("a", script).hook(hook).build().unwrap()).ended("hi").await.unwrap().text());
    }
    assert!(said[0] == said[1] && said[0].starts_with("to [email:") && said[0].ends_with("]."), "{said:?}");
}

fn agent(hook: Redact) -> (Agent, Recorder) {
    let tool = function_with_schema("look", "", json!({"type": "object"}), Effect::Pure, |_, _| async {
        Ok("found ann@example.com")
    });
    let script = Script::of([ScriptReply::calls("c1", "look", json!({})), ScriptReply::says("it is eve@example.com")]);
    let model = Recorder::of(script);
    (Agent::builder("a", model.clone()).tool(tool).hook(hook).build().unwrap(), model)
}

#[tokio::test]
async fn messages_and_results_are_redacted_before_the_log_if_it_is_told_to() {
    let (agent, model) = agent(redact(|builder| builder.on(ALL)));
    let mut rig = Rig::new(agent);
    assert_eq!(rig.ended("I am bob@example.com").await.unwrap().text(), "it is [email]");
    let seen = format!("{:?}{:?}", model.requests(), rig.log().await.unwrap());
    assert!(
        seen.contains("I am [email]") && seen.contains("found [email]") && !seen.contains("@example.com"),
        "{seen}"
    );
}

#[tokio::test]
async fn without_it_only_the_stream_is_redacted() {
    assert!(HookEntry::from(redact(|builder| builder)).points().iter().eq([Point::Stream]));
    let (agent, model) = agent(redact(|builder| builder));
    Rig::new(agent).ended("I am bob@example.com").await.unwrap();
    assert!(format!("{:?}", model.requests()).contains("bob@example.com"));
}

#[tokio::test]
async fn blocking_lets_nothing_through_at_any_point() {
    let block = |point| redact(|builder| builder.strategy(Strategy::Block).on([point]));
    let (input, model) = agent(block(Point::BeforeAgent));
    let mut rig = Rig::new(input);
    let ended = rig.ended("I am bob@example.com").await.unwrap();
    assert_eq!(
        (ended.outcome, ended.reason.as_deref()),
        (Outcome::Halted, Some("the message is not kept: it holds [email]"))
    );
    assert!(model.requests().is_empty() && !format!("{:?}", rig.log().await.unwrap()).contains("bob"));

    let (results, model) = agent(block(Point::AfterTool));
    Rig::new(results).ended("go").await.unwrap();
    let seen = format!("{:?}", model.requests()[1].messages);
    assert!(seen.contains("[the result is withheld: it holds [email]]") && !seen.contains("ann"), "{seen}");

    let (stream, _) = agent(block(Point::Stream));
    let mut rig = Rig::new(stream);
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(!format!("{:?}", rig.told()).contains("eve"));
    assert_eq!(block(Point::Stream).apply("x@example.com"), "[redacted]");
}

#[test]
fn a_redaction_pattern_without_a_longest_match_is_refused() {
    let error = Redact::builder().emails().pattern("digits", "[0-9]+").build().expect_err("unbounded");
    assert!(matches!(&error, RedactError::Unbounded { name, pattern } if name == "digits" && pattern == "[0-9]+"));
    expect!["pattern `digits` has no longest match; give `[0-9]+` bounds, as in `[0-9]{1,20}`"]
        .assert_eq(&error.to_string());
    let error = Redact::builder().pattern("long", "x{1,5000}").build().expect_err("too long");
    assert!(matches!(&error, RedactError::TooLong { name, limit: 4096, .. } if name == "long"), "{error}");
    let error = Redact::builder().pattern("empty", "x{0,3}").build().expect_err("matches nothing");
    assert!(matches!(&error, RedactError::MatchesNothing { name, .. } if name == "empty"), "{error}");
    let error = Redact::builder().pattern("broken", "(").build().expect_err("no pattern");
    assert!(matches!(&error, RedactError::Syntax { name, .. } if name == "broken"), "{error}");
}

/// The log, and the arguments that the tool was given.
async fn call_with(arguments: serde_json::Value, strategy: Strategy) -> (String, Vec<serde_json::Value>) {
    let given = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = given.clone();
    let tool = function_with_schema("send", "", json!({"type": "object"}), Effect::Pure, move |_, arguments| {
        keep.lock().unwrap().push(arguments);
        async { Ok("sent") }
    });
    let script = Script::of([ScriptReply::calls("c1", "send", arguments), ScriptReply::says("done")]);
    let hook = Redact::builder().emails().cards().strategy(strategy).tool_arguments().build().unwrap();
    let mut rig = Rig::new(Agent::builder("a", script).tool(tool).hook(hook).build().unwrap());
    rig.ended("go").await.unwrap();
    let log = rig.conversations.log(&rig.id, turnbuckle::Scope::local()).await.unwrap();
    let given = given.lock().unwrap().clone();
    (serde_json::to_string(&log).unwrap(), given)
}

#[tokio::test]
async fn arguments_of_calls_are_redacted_in_the_log_wherever_they_hold_something_and_the_tool_gets_them() {
    let arguments = json!({
        "to": ["ann@example.com", "nobody"],
        "eve@example.com": {"deep": [["bob@example.com"]]},
        "card": 4_111_111_111_111_111_u64,
        "count": 3,
        "flag": true,
    });
    let (log, given) = call_with(arguments.clone(), Strategy::Replace).await;
    assert_eq!(given, [arguments]);
    assert!(!log.contains("example.com") && !log.contains("4111111111111111"), "{log}");
    let redacted =
        r#"{"[email]":{"deep":[["[email]"]]},"card":"[card]","count":3,"flag":true,"to":["[email]","nobody"]}"#;
    assert_eq!(log.matches(redacted).count(), 2, "tool_call and tool_started: {log}");
}

#[tokio::test]
async fn arguments_that_must_not_pass_are_neither_stored_nor_given_to_the_tool() {
    let (log, given) = call_with(json!({"to": "ann@example.com"}), Strategy::Block).await;
    assert!(given.is_empty());
    assert!(!log.contains("example.com") && log.contains("[denied by redact]"), "{log}");
    let (log, given) = call_with(json!({"to": "nobody"}), Strategy::Block).await;
    assert_eq!(given, [json!({"to": "nobody"})]);
    assert!(log.contains("nobody"));
}
