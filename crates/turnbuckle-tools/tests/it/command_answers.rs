//! What a program's answer does to a turn: scripts and traces.

use expect_test::{Expect, expect};
use serde_json::json;
use turnbuckle::Agent;
use turnbuckle::hook::{HookExt, OnFailure};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle_tools::{CommandHook, CommandLine, CommandPoint};

fn agent(replies: impl IntoIterator<Item = ScriptReply>) -> turnbuckle::AgentBuilder {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let echo = function_with_schema("echo", "Echoes.", schema, Effect::Pure, |_, arguments| async move {
        Ok(arguments["text"].as_str().unwrap().to_owned())
    });
    Agent::builder("coder", Script::of(replies)).tool(echo)
}

fn hook(on: CommandPoint, line: &str) -> CommandHook {
    CommandHook::new("lint", on, CommandLine::Shell(line.into()), std::env::temp_dir())
}

fn call() -> ScriptReply {
    ScriptReply::calls("c1", "echo", json!({"text": "hi"}))
}

async fn check(agent: turnbuckle::AgentBuilder, expected: Expect) {
    let mut rig = Rig::new(agent.build().unwrap());
    expected.assert_eq(&rig.trace("go").await);
}

#[tokio::test]
async fn before_agent_exit_2_halts() {
    let hook = hook(CommandPoint::BeforeAgent, "echo 'not today' >&2; exit 2");
    check(
        agent([]).hook(hook),
        expect![[r#"
        accept    "go"
        end       halted by hook lint: not today
    "#]],
    )
    .await;
}

#[tokio::test]
async fn before_agent_injects_and_rewrites() {
    let answer = r#"echo '{"context": "it is Monday", "prompt": "go slowly"}'"#;
    let hook = hook(CommandPoint::BeforeAgent, answer).durable();
    check(
        agent([ScriptReply::says("gone")]).hook(hook),
        expect![[r#"
        accept    "go slowly"
        inject    lint: "it is Monday"
        build     1 message, 1 tool
        call      "gone"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn before_tool_exit_2_denies() {
    let hook = hook(CommandPoint::BeforeTool, "echo 'not this' >&2; exit 2");
    check(
        agent([call(), ScriptReply::says("well")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("hi")
        dispatch  echo("hi") ! [denied by lint] not this
        build     3 messages, 1 tool
        call      "well"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn before_tool_rewrites() {
    let hook = hook(CommandPoint::BeforeTool, r#"echo '{"decision": "allow", "input": {"text": "bye"}}'"#);
    check(
        agent([call(), ScriptReply::says("well")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("hi")
        dispatch  echo("bye") = bye
        build     3 messages, 1 tool
        call      "well"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn before_tool_asks() {
    let hook = hook(CommandPoint::BeforeTool, r#"echo '{"decision": "ask", "reason": "sure?"}'"#);
    check(
        agent([call(), ScriptReply::says("well")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("hi")
        wait      c1: approval of echo("hi")
    "#]],
    )
    .await;
}

#[tokio::test]
async fn before_tool_that_allows_does_not_open_a_gate() {
    let hook = hook(CommandPoint::BeforeTool, r#"echo '{"decision": "allow"}'"#);
    check(
        agent([call(), ScriptReply::says("well")]).hook(hook).approve(["echo"]),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("hi")
        wait      c1: approval of echo("hi")
    "#]],
    )
    .await;
}

#[tokio::test]
async fn before_tool_that_makes_no_sense_blocks_the_call() {
    let hook = hook(CommandPoint::BeforeTool, r#"echo '{"decision": "maybe"}'"#);
    check(agent([call(), ScriptReply::says("well")]).hook(hook), expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("hi")
        dispatch  echo("hi") ! [blocked] hook lint failed: `echo '{"decision": "maybe"}'` gave an answer that `before_tool` does not take: unknown vari…
        build     3 messages, 1 tool
        call      "well"
        end       completed
    "#]]).await;
}

#[tokio::test]
async fn after_tool_exit_2_stands_beside_the_result() {
    let hook = hook(CommandPoint::AfterTool, "echo 'unformatted' >&2; exit 2");
    check(
        agent([call(), ScriptReply::says("well")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("hi")
        dispatch  echo("hi") = hi\n[lint] unformatted
        build     3 messages, 1 tool
        call      "well"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn after_tool_adds_context() {
    let hook = hook(CommandPoint::AfterTool, r#"echo '{"context": "by the way"}'"#);
    check(
        agent([call(), ScriptReply::says("well")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      echo("hi")
        dispatch  echo("hi") = hi\n[lint] by the way
        build     3 messages, 1 tool
        call      "well"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn after_model_exit_2_regenerates() {
    let hook = hook(CommandPoint::AfterModel, "grep -q polite || { echo 'be polite' >&2; exit 2; }");
    check(
        agent([ScriptReply::says("what"), ScriptReply::says("polite")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        discard   attempt 1 by hook lint: be polite
        build     3 messages, 1 tool
        call      "polite"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn after_model_rejects() {
    let hook = hook(CommandPoint::AfterModel, r#"echo '{"decision": "reject", "reason": "rude"}'"#);
    check(
        agent([ScriptReply::says("what")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        discard   attempt 1 by hook lint: rude
        end       rejected by hook lint: rude
    "#]],
    )
    .await;
}

#[tokio::test]
async fn after_model_modifies() {
    let hook = hook(CommandPoint::AfterModel, r#"echo '{"decision": "modify", "text": "pardon"}'"#);
    check(
        agent([ScriptReply::says("what")]).hook(hook),
        expect![[r#"
        accept    "go"
        modify    attempt 1 by hook lint
        build     1 message, 1 tool
        call      "pardon"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn stop_exit_2_refuses_and_knows_that_it_did() {
    let hook = hook(CommandPoint::Stop, r#"grep -q '"stop_active":true' || { echo 'test it' >&2; exit 2; }"#);
    check(
        agent([ScriptReply::says("done"), ScriptReply::says("tested")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      "done"
        refuse    lint: "test it"
        build     3 messages, 1 tool
        call      "tested"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn stop_is_prevented_though_the_reason_is_cut_in_the_middle_of_a_sign() {
    let hook = hook(CommandPoint::Stop, r#"printf '%s' '{"decision": "prevent", "reason": "not \ud83d"}'"#);
    check(
        agent([ScriptReply::says("done")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      "done"
        end       halted by hook lint: not �
    "#]],
    )
    .await;
}

#[tokio::test]
async fn stop_prevents() {
    let hook = hook(CommandPoint::Stop, r#"echo '{"decision": "prevent", "reason": "enough"}'"#);
    check(
        agent([ScriptReply::says("done")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      "done"
        end       halted by hook lint: enough
    "#]],
    )
    .await;
}

#[tokio::test]
async fn stop_pauses() {
    let hook = hook(CommandPoint::Stop, r#"echo '{"decision": "pause", "reason": "look"}'"#);
    check(
        agent([ScriptReply::says("done")]).hook(hook),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      "done"
        wait      pause_1: paused by lint: look
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_failure_follows_on_failure() {
    let fails = || hook(CommandPoint::BeforeAgent, "echo 'no database' >&2; exit 3");
    check(agent([]).hook(fails()), expect![[r#"
        accept    "go"
        end       failed by hook lint: hook lint failed at before_agent: `echo 'no database' >&2; exit 3` ended with exit status: 3: no database
    "#]]).await;
    check(
        agent([ScriptReply::says("gone")]).hook(fails().on_failure(OnFailure::Ignore)),
        expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      "gone"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_failure() {
    let line = CommandLine::Argv(vec!["./no-such-program".into()]);
    let hook = CommandHook::new("lint", CommandPoint::BeforeAgent, line.clone(), "/");
    check(agent([]).hook(hook), expect![[r#"
        accept    "go"
        end       failed by hook lint: hook lint failed at before_agent: could not start `./no-such-program`: No such file or directory (os error 2)
    "#]]).await;
    let hook = CommandHook::new("lint", CommandPoint::BeforeAgent, line, "/no-such-folder");
    check(agent([]).hook(hook), expect![[r#"
        accept    "go"
        end       failed by hook lint: hook lint failed at before_agent: could not start `./no-such-program`: there is no folder /no-such-folder
    "#]]).await;
    let hook = CommandHook::new("lint", CommandPoint::BeforeAgent, CommandLine::Argv(Vec::new()), "/");
    check(
        agent([]).hook(hook),
        expect![[r#"
        accept    "go"
        end       failed by hook lint: hook lint failed at before_agent: the command is empty
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_signal_is_a_failure() {
    check(
        agent([]).hook(hook(CommandPoint::BeforeAgent, "kill -TERM $$")),
        expect![[r#"
        accept    "go"
        end       failed by hook lint: hook lint failed at before_agent: `kill -TERM $$` ended with signal: 15 (SIGTERM)
    "#]],
    )
    .await;
}
