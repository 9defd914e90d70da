//! Rubbish in: a clear outcome or error result out. Nothing hangs, nothing is lost, the log stays valid.

use serde_json::json;
use turnbuckle::context::tokens;
use turnbuckle::conversation::SendError;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Content, ConversationId, Limits, Outcome, Part, Scope};

use crate::kit::{adder, assert_valid};

#[tokio::test]
async fn an_empty_message_is_refused() {
    let mut rig = Rig::new(adder(Script::says(["hi"])).build().unwrap());
    for empty in [Content::from(""), Content::from(" \n\t"), Content::default(), Content::from(vec![Part::text("")])] {
        assert!(matches!(rig.send(empty).await, Err(SendError::Empty)));
    }
    assert!(rig.log().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_message_that_no_context_can_hold_is_refused_before_it_is_stored() {
    let mut rig = Rig::new(adder(Script::says(["hi", "fine"])).build().unwrap());
    for large in ["x".repeat(5_000_000), "word ".repeat(40_000)] {
        let refused = rig.send(large).await;
        assert!(matches!(refused, Err(SendError::TooLarge { limit: 32_000, size }) if size > 32_000), "{refused:?}");
    }
    assert!(rig.log().await.unwrap().is_empty());
    let ended = rig.ended("short").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed, "the conversation goes on: {:?}", ended.reason);
}

#[tokio::test]
async fn a_script_that_runs_out_fails_the_turn() {
    let mut rig = Rig::new(adder(Script::of([])).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("the script has 0 replies and this is model call 1"));
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn a_model_that_calls_tools_for_ever_is_exhausted_and_every_call_has_its_result() {
    let script =
        Script::of([ScriptReply::calls("c", "add", json!({"a": 1, "b": 1}))]).when_exhausted(OnExhausted::Repeat);
    let mut rig = Rig::new(adder(script).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(
        (ended.outcome, ended.reason.as_deref(), ended.model_calls),
        (Outcome::Exhausted, Some("max_model_calls"), 50)
    );
    let log = rig.log().await.unwrap();
    assert_valid(&log);
    assert!(serde_json::to_string(&log).unwrap().contains("[not run: limit]"));
}

#[tokio::test]
async fn tokens_are_a_limit_too() {
    let script = Script::of([ScriptReply::calls("c", "add", json!({"a": 1, "b": 1})).costing(80, 30)])
        .when_exhausted(OnExhausted::Repeat);
    let limits = Limits { max_tokens: 100, ..Limits::default() };
    let mut rig = Rig::new(adder(script).limits(limits).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(
        (ended.outcome, ended.reason.as_deref(), ended.model_calls),
        (Outcome::Exhausted, Some("max_tokens"), 1)
    );
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn a_stream_that_ends_inside_a_tool_call_is_an_error_result() {
    let cut = ScriptReply::calls("c", "add", json!("{\"a\": 1, \"b"));
    let mut rig = Rig::new(adder(Script::of([cut, ScriptReply::says("sorry")])).build().unwrap());
    let trace = rig.trace("go").await;
    assert!(trace.contains("! the arguments are not a JSON object: {\"a\": 1, \"b"), "{trace}");
    assert!(trace.ends_with("call      \"sorry\"\nend       completed\n"), "{trace}");
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn another_users_conversation_does_not_exist() {
    let mut rig = Rig::new(adder(Script::says(["hi"])).build().unwrap());
    rig.run("mine").await.unwrap();
    let eve = || Scope::user("eve");
    let id: &ConversationId = &rig.id;
    assert!(matches!(rig.conversations.send(id, "x", eve()).await, Err(SendError::NotFound { .. })));
    assert!(matches!(rig.conversations.log(id, eve()).await, Err(SendError::NotFound { .. })));
    assert!(matches!(rig.conversations.cancel(id, eve()).await, Err(SendError::NotFound { .. })));
    assert!(matches!(rig.conversations.snapshot(id, eve()).await, Err(SendError::NotFound { .. })));
}

#[tokio::test]
async fn long_conversations_lose_whole_old_turns_and_go_on() {
    let script = Script::says(["ok"]).when_exhausted(OnExhausted::Repeat);
    let model = turnbuckle::testing::Recorder::of(script);
    let limits = Limits { context_tokens: 2_000, injection_reserve: 100, ..Limits::default() };
    let mut rig = Rig::new(Agent::builder("a", model.clone()).limits(limits).build().unwrap());
    for turn in 0..40 {
        let ended = rig.ended(format!("message {turn} {}", "word ".repeat(140))).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    }
    let last = model.requests().last().unwrap().clone();
    assert!(matches!(&last.messages[0], turnbuckle::Message::User(_)), "a context begins with a user");
    assert!((5..30).contains(&last.messages.len()), "{}", last.messages.len());
    assert!(last.messages.last().unwrap().content().text().starts_with("message 39"));
}

/// A tool whose description alone has 800 tokens.
fn wordy() -> impl turnbuckle::tool::Tool {
    let schema = serde_json::json!({"type": "object"});
    function_with_schema("wordy", "word ".repeat(800), schema, Effect::Pure, |_, _| async { Ok("done") })
}

#[tokio::test]
async fn tools_and_system_prompt_count_against_the_context_and_history_makes_room_for_them() {
    let limits = Limits { context_tokens: 3_000, injection_reserve: 100, ..Limits::default() };
    let script = || Script::says(["ok"]).when_exhausted(OnExhausted::Repeat);
    let agent = |model| Agent::builder("a", model).system("word ".repeat(800)).limits(limits.clone());
    let model = turnbuckle::testing::Recorder::of(script());
    let mut rig = Rig::new(agent(model.clone()).tool(wordy()).build().unwrap());
    for turn in 0..40 {
        let ended = rig.ended(format!("message {turn} {}", "word ".repeat(100))).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    }
    let last = model.requests().last().unwrap().clone();
    let standing = tokens::of_text(&last.system) + tokens::of_definition(&last.tools()[0]);
    let size = standing + tokens::of_messages(&last.messages);
    assert!(standing > 1_400 && size <= 3_000, "{standing} of {size}");

    let message = "word ".repeat(1_500);
    let mut without = Rig::new(agent(turnbuckle::testing::Recorder::of(script())).build().unwrap());
    assert_eq!(without.ended(message.as_str()).await.unwrap().outcome, Outcome::Completed);
    let mut with = Rig::new(agent(turnbuckle::testing::Recorder::of(script())).tool(wordy()).build().unwrap());
    let refused = with.send(message.as_str()).await;
    assert!(matches!(refused, Err(SendError::TooLarge { limit: 3_000, .. })), "{refused:?}");
}

#[test]
fn a_script_with_an_unknown_key_is_refused() {
    let error = Script::from_json(r#"{"replies": [{"txt": "hi"}]}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `txt`"), "{error}");
    assert!(
        Script::from_json(r#"{"replies": [], "on_exhausted": "repeat", "agents": {"r": [{"text": "x"}]}}"#).is_ok()
    );
}
