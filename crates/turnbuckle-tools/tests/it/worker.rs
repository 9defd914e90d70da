//! What hooks in a worker decide, with the Python SDK: scripts and traces.

use std::path::Path;

use expect_test::{Expect, expect};
use serde_json::json;
use tempfile::TempDir;
use turnbuckle::hook::{HookExt as _, OnFailure, Point};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder};
use turnbuckle_tools::{CommandLine, WorkerHook};

/// A folder with `hooks.py`, and the worker that runs it.
pub(crate) fn python(points: &[Point], script: &str) -> (TempDir, WorkerHook) {
    let folder = TempDir::new().unwrap();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/src");
    std::fs::write(folder.path().join("hooks.py"), script).unwrap();
    let line = format!("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='{}' exec python3 hooks.py", sdk.display());
    let hook = WorkerHook::new("policy", points.iter().copied(), CommandLine::Shell(line), folder.path()).unwrap();
    (folder, hook)
}

pub(crate) fn agent(replies: impl IntoIterator<Item = ScriptReply>) -> AgentBuilder {
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
    let shell = function_with_schema("shell", "Runs.", schema, Effect::Pure, |_, arguments| async move {
        match arguments["command"].as_str().unwrap() {
            "fail" => Err("it broke".into()),
            command => Ok(format!("ran {command}")),
        }
    });
    Agent::builder("coder", Script::of(replies)).tool(shell)
}

pub(crate) fn call(command: &str) -> ScriptReply {
    ScriptReply::calls("c1", "shell", json!({ "command": command }))
}

async fn check(points: &[Point], script: &str, replies: impl IntoIterator<Item = ScriptReply>, expected: Expect) {
    let (_folder, hook) = python(points, &format!("from turnbuckle_hooks import *\n{script}\nrun()\n"));
    // What is injected durably is in the trace.
    let hook = match points.contains(&Point::BeforeAgent) {
        true => hook.durable(),
        false => hook.into(),
    };
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    expected.assert_eq(&rig.trace("go").await);
}

#[tokio::test]
async fn the_example_of_the_sdk_denies_a_forced_push() {
    let readme = include_str!("../../../../sdk/python/README.md");
    let script = readme.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let (_folder, hook) = python(&[Point::BeforeTool], script);
    let replies = [call("git push --force"), call("git push"), ScriptReply::says("well")];
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      shell("git push --force")
        dispatch  shell("git push --force") ! [denied by policy] force pushes are for people
        build     3 messages, 1 tool
        call      shell("git push")
        dispatch  shell("git push") = ran git push
        build     5 messages, 1 tool
        call      "well"
        end       completed
    "#]]
    .assert_eq(&rig.trace("go").await);
}

#[tokio::test]
async fn edits_of_several_hooks_at_a_point_add_up() {
    let script = r#"
@hook("before_agent")
def monday(turn, prompt):
    return go_on(inject="it is Monday", prompt=prompt + " slowly")
@hook("before_agent")
async def again(turn, prompt):
    return go_on(prompt=prompt + " and well")
@hook("before_model")
def tail(turn, request):
    assert request.messages[-1]["role"] in ("user", "result") and request.tools == ["shell"]
    return go_on(messages=request.messages)
@hook("before_tool", tools=["sh*"])
def first(turn, call):
    return rewrite({"command": call.arguments["command"] + "1"})
@hook("before_tool", tools=["other"])
def unconcerned(turn, call):
    return deny("never asked")
@hook("before_tool")
def second(turn, call):
    return rewrite({"command": call.arguments["command"] + "2"})
@hook("after_tool")
def shout(turn, call, result):
    return modify(result.text.upper())
@hook("after_agent")
def show(turn, reply, result):
    return go_on(result=reply.text + "!")
"#;
    let points = [Point::BeforeAgent, Point::BeforeModel, Point::BeforeTool, Point::AfterTool, Point::AfterAgent];
    let replies = [call("x"), ScriptReply::says("gone")];
    check(
        &points,
        script,
        replies,
        expect![[r#"
            accept    "go slowly and well"
            inject    policy: "it is Monday"
            build     1 message, 1 tool
            call      shell("x")
            dispatch  shell("x12") = RAN X12
            build     3 messages, 1 tool
            call      "gone"
            end       completed
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_reply_is_regenerated_and_a_stop_refused() {
    let script = r#"
@hook("after_model")
def guard(turn, reply):
    if reply.text == "bad":
        return regenerate("be good")
    if reply.text == "good":
        return modify("better")
@hook("on_stop")
async def judge(turn):
    progress("looking")
    if not turn.stop_active:
        return refuse("again")
    return advise("next time at once")
"#;
    let replies = [ScriptReply::says("bad"), ScriptReply::says("good"), ScriptReply::says("done")];
    check(
        &[Point::AfterModel, Point::OnStop],
        script,
        replies,
        expect![[r#"
            accept    "go"
            build     1 message, 1 tool
            discard   attempt 1 by hook policy: be good
            modify    attempt 2 by hook policy
            build     3 messages, 1 tool
            call      "better"
            refuse    policy: "again"
            build     3 messages, 1 tool
            call      "done"
            inject    policy: "next time at once"
            end       completed
        "#]],
    )
    .await;
}

#[tokio::test]
async fn an_exception_is_the_failure_of_that_call_and_follows_on_failure() {
    let script = "from turnbuckle_hooks import *\n@hook('before_tool')\ndef broken(turn, call):\n    if call.arguments['command'] == 'x':\n        raise ValueError('no such thing')\nrun()\n";
    for (policy, text) in [(OnFailure::Block, "ValueError: no such thing"), (OnFailure::Ignore, "= ran x")] {
        let (_folder, hook) = python(&[Point::BeforeTool], script);
        let replies = [call("x"), call("y"), ScriptReply::says("well")];
        let mut rig = Rig::new(agent(replies).hook(hook.on_failure(policy)).build().unwrap());
        let trace = rig.trace("go").await;
        assert!(trace.contains(text) && trace.contains("= ran y"), "{trace}");
    }
}

#[tokio::test]
async fn a_person_is_asked() {
    let script = "@hook('before_tool')\ndef careful(turn, call):\n    return ask('sure?')\n";
    check(
        &[Point::BeforeTool],
        script,
        [call("x")],
        expect![[r#"
            accept    "go"
            build     1 message, 1 tool
            call      shell("x")
            wait      c1: approval of shell("x")
        "#]],
    )
    .await;
}

#[tokio::test]
async fn the_end_of_a_turn_is_told() {
    let script = "from turnbuckle_hooks import *\n@hook('on_ended')\ndef note(ended):\n    open('ended', 'w').write(ended.outcome)\nrun()\n";
    let (folder, hook) = python(&[Point::OnEnded], script);
    let mut rig = Rig::new(agent([ScriptReply::says("done")]).hook(hook).build().unwrap());
    rig.ended("go").await.unwrap();
    rig.settle().await;
    assert_eq!(std::fs::read_to_string(folder.path().join("ended")).unwrap(), "completed");
}

#[tokio::test]
async fn a_wrap_around_a_tool_runs_it_again_and_changes_its_result() {
    let script = r#"
tries = 0
@hook("wrap_tool_call", tools=["shell"])
async def again(turn, call, next):
    try:
        first = await next()
    except NextFailed:
        return answer("still broken", ok=False) if call.id == "c1" else None
    second = await next()
    return answer(first.text + ", " + second.text)
"#;
    let replies = [call("fail"), ScriptReply::calls("c2", "shell", json!({"command": "x"})), ScriptReply::says("done")];
    check(
        &[Point::WrapToolCall],
        script,
        replies,
        expect![[r#"
            accept    "go"
            build     1 message, 1 tool
            call      shell("fail")
            dispatch  shell("fail") ! still broken
            build     3 messages, 1 tool
            call      shell("x")
            dispatch  shell("x") = ran x, ran x
            build     5 messages, 1 tool
            call      "done"
            end       completed
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_wrap_around_a_model_call_changes_the_request_and_passes_failures_on() {
    let script = r#"
@hook("wrap_model_call")
async def patient(turn, request, next):
    try:
        return await next(tools=[])
    except NextFailed:
        pass
    return await next()
"#;
    let fails = || ScriptReply::fails(503);
    for (replies, says) in [
        (vec![fails(), ScriptReply::says("at last")], "call      \"at last\"\nend       completed"),
        (vec![fails(), fails()], "the model answered with status 503"),
    ] {
        let (_folder, hook) =
            python(&[Point::WrapModelCall], &format!("from turnbuckle_hooks import *\n{script}\nrun()\n"));
        let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
        let trace = rig.trace("go").await;
        assert!(trace.contains(says), "{trace}");
    }
}

#[test]
fn every_line_of_the_protocols_page_fits_the_schema() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/hook-workers.schema.json")).unwrap();
    let schema = turnbuckle::json_schema::JsonSchema::compile(&schema).unwrap();
    let page = include_str!("../../../../docs/hook-workers.md");
    let blocks = page.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(lines.len() >= 10);
    for line in lines {
        let complaint = schema.complaint(&serde_json::from_str(line).unwrap());
        assert_eq!(complaint, None, "{line}");
    }
    let refused = json!({"jsonrpc": "2.0", "id": 1, "result": {"decision": "deny"}});
    assert!(!schema.accepts(&refused), "a denial needs a reason");
}
