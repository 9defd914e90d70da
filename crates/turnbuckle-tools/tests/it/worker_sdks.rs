//! The TypeScript SDK, and what both SDKs do when a call is cancelled.

use std::path::Path;
use std::time::Duration;

use expect_test::expect;
use serde_json::json;
use tempfile::TempDir;
use turnbuckle::hook::Point;
use turnbuckle::models::ScriptReply;
use turnbuckle::testing::Rig;
use turnbuckle::{Outcome, Scope};
use turnbuckle_tools::{CommandLine, WorkerHook};

use crate::worker::{agent, call, python};

/// A folder with `hooks.mjs`, where the SDK is installed, and the worker that runs it.
pub(crate) fn node(points: &[Point], script: &str) -> (TempDir, WorkerHook) {
    let folder = TempDir::new().unwrap();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/typescript").canonicalize().unwrap();
    std::fs::create_dir(folder.path().join("node_modules")).unwrap();
    std::os::unix::fs::symlink(sdk, folder.path().join("node_modules/turnbuckle-hooks")).unwrap();
    std::fs::write(folder.path().join("hooks.mjs"), script).unwrap();
    let line = CommandLine::Argv(vec!["node".into(), "hooks.mjs".into()]);
    let hook = WorkerHook::new("policy", points.iter().copied(), line, folder.path()).unwrap();
    (folder, hook)
}

#[tokio::test]
async fn the_example_of_the_typescript_sdk_denies_a_forced_push() {
    let readme = include_str!("../../../../sdk/typescript/README.md");
    let script = readme.split("```js\n").nth(1).unwrap().split("```").next().unwrap();
    let (_folder, hook) = node(&[Point::BeforeTool], script);
    let mut rig = Rig::new(agent([call("git push --force"), ScriptReply::says("well")]).hook(hook).build().unwrap());
    expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      shell("git push --force")
        dispatch  shell("git push --force") ! [denied by policy] force pushes are for people
        build     3 messages, 1 tool
        call      "well"
        end       completed
    "#]]
    .assert_eq(&rig.trace("go").await);
}

#[tokio::test]
async fn typescript_hooks_decide_and_wrap() {
    let script = r#"
import { advise, goOn, hook, modifyResult, NextFailed, progress, refuse, run, textOf } from "turnbuckle-hooks";
hook("before_agent", { name: "slow" }, (turn, prompt) => goOn({ prompt: prompt + " slowly" }));
hook("wrap_model_call", { name: "patient" }, async (turn, request, next) => {
  try { return await next({ tools: [] }); } catch (error) { if (!(error instanceof NextFailed)) throw error; }
  return await next();
});
hook("wrap_tool_call", { name: "twice" }, async (turn, call, next) =>
  textOf((await next()).content) + ", " + textOf((await next()).content));
hook("after_tool", { name: "shout" }, (turn, call, result) => modifyResult(textOf(result.content).toUpperCase()));
hook("on_stop", { name: "judge" }, async (turn) => {
  console.log("stdout is not for logs");
  progress("looking");
  return turn.stop_active ? advise("next time at once") : refuse("again");
});
run();
"#;
    let points = [Point::BeforeAgent, Point::WrapModelCall, Point::WrapToolCall, Point::AfterTool, Point::OnStop];
    let (_folder, hook) = node(&points, script);
    let replies = [ScriptReply::fails(503), call("x"), ScriptReply::says("one"), ScriptReply::says("two")];
    let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
    expect![[r#"
        accept    "go slowly"
        build     1 message, 1 tool
        call      shell("x")
        dispatch  shell("x") = RAN X, RAN X
        build     3 messages, 1 tool
        call      "one"
        refuse    policy: "again"
        build     5 messages, 1 tool
        call      "two"
        inject    policy: "next time at once"
        end       completed
    "#]]
    .assert_eq(&rig.trace("go").await);
    let told: Vec<_> = rig.told().iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let said =
        |event: &&serde_json::Value| event["type"] == json!("hook_progress") && event["text"] == json!("looking");
    assert_eq!(told.iter().filter(said).count(), 2);
}

#[tokio::test]
async fn a_python_hook_that_exits_fails_its_call_and_keeps_the_worker() {
    for (start, name) in [("def", "plain"), ("async def", "waiting")] {
        let script = format!(
            "import sys\nfrom turnbuckle_hooks import *\nopen('starts', 'a').write('x')\n@hook('before_tool')\n{start} {name}(turn, call):\n    if call.arguments['command'] == 'exit':\n        sys.exit(3)\nrun()\n"
        );
        let (folder, hook) = python(&[Point::BeforeTool], &script);
        let replies = [call("exit"), ScriptReply::says("one"), call("ls"), ScriptReply::says("two")];
        let mut rig = Rig::new(agent(replies).hook(hook).build().unwrap());
        let first = rig.trace("go").await;
        assert!(first.contains("SystemExit: 3"), "{first}");
        let second = rig.trace("go").await;
        assert!(second.contains("ran ls"), "{second}");
        assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), "x");
    }
}

#[tokio::test]
async fn a_cancelled_turn_cancels_its_call_and_keeps_the_worker() {
    let in_python = "import asyncio\nfrom turnbuckle_hooks import *\nopen('starts', 'a').write('x')\n@hook('before_agent')\nasync def wait(turn, prompt):\n    if prompt == 'wait':\n        open('asked', 'w')\n        try:\n            await asyncio.sleep(1000)\n        finally:\n            open('cancelled', 'w')\nrun()\n";
    let in_node = "import { appendFileSync, writeFileSync } from 'node:fs';\nimport { hook, run, signal } from 'turnbuckle-hooks';\nappendFileSync('starts', 'x');\nhook('before_agent', async function wait(turn, prompt) {\n  if (prompt !== 'wait') return;\n  writeFileSync('asked', '');\n  await new Promise((done) => signal().addEventListener('abort', done));\n  writeFileSync('cancelled', '');\n});\nrun();\n";
    for (folder, hook) in [python(&[Point::BeforeAgent], in_python), node(&[Point::BeforeAgent], in_node)] {
        let mut rig = Rig::new(agent([ScriptReply::says("done")]).hook(hook).build().unwrap());
        let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
        let exists = async |name: &str| {
            while !folder.path().join(name).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let (ended, ()) = tokio::join!(rig.ended("wait"), async {
            exists("asked").await;
            conversations.cancel(&id, Scope::local()).await.unwrap();
        });
        assert_eq!(ended.unwrap().outcome, Outcome::Cancelled);
        exists("cancelled").await;
        assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
        assert_eq!(std::fs::read_to_string(folder.path().join("starts")).unwrap(), "x");
    }
}
