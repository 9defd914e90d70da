//! A turn, as a script and a trace.

use expect_test::{Expect, expect};
use serde_json::json;
use turnbuckle::hook::{OnStop, Stopping, stop};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder};

fn adder(script: Script) -> AgentBuilder {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]});
    Agent::builder("adder", script).tool(function_with_schema(
        "add",
        "Adds.",
        schema,
        Effect::Pure,
        |_, args| async move { Ok((args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap()).to_string()) },
    ))
}

async fn check(agent: AgentBuilder, message: &str, expected: Expect) {
    let mut rig = Rig::new(agent.build().unwrap());
    expected.assert_eq(&rig.trace(message).await);
}

#[tokio::test]
async fn a_turn_calls_a_tool_and_answers() {
    let script = Script::of([ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2})), ScriptReply::says("4")]);
    check(
        adder(script),
        "what is 2+2?",
        expect![[r#"
        accept    "what is 2+2?"
        build     1 message, 1 tool
        call      add(2, 2)
        dispatch  add(2, 2) = 4
        build     3 messages, 1 tool
        call      "4"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_refused_stop_goes_back_to_the_model() {
    let script = Script::says(["done", "really done"]);
    let hook = stop("lint", |turn: Stopping| async move {
        Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Refuse("fix it".into()) })
    });
    check(
        adder(script).hook(hook),
        "do it",
        expect![[r#"
        accept    "do it"
        build     1 message, 1 tool
        call      "done"
        refuse    lint: "fix it"
        build     3 messages, 1 tool
        call      "really done"
        end       completed
    "#]],
    )
    .await;
}
