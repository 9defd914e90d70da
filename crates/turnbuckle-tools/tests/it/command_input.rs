//! What a program is told, at each point.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnbuckle::hook::{HookEntry, Point};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::PermissionMode;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder};
use turnbuckle_tools::{CommandHook, CommandLine, CommandPoint};

use crate::desk::listen;

fn agent(hook: CommandHook) -> AgentBuilder {
    let call = ScriptReply::calls("c1", "echo", json!({"text": "hi"}));
    let script = Script::of([call, ScriptReply::says("done").costing(10, 5)]);
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let echo = function_with_schema("echo", "Echoes.", schema, Effect::Pure, |turn, arguments| async move {
        turn.touch("src/a.rs");
        Ok(arguments["text"].as_str().unwrap().to_owned())
    });
    Agent::builder("coder", script).tool(echo).hook(hook)
}

/// The last input of a hook that runs here, without what is left of the budget.
async fn told(on: CommandPoint) -> Value {
    told_with_budget(on).await.0
}

async fn told_with_budget(on: CommandPoint) -> (Value, Option<Value>) {
    let folder = TempDir::new().unwrap();
    let line = CommandLine::Shell("cat > input.part; mv input.part input.json".into());
    let hook = CommandHook::new("spy", on, line, folder.path());
    let mut rig = Rig::new(agent(hook).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().text(), "done");
    let text = fs::read_to_string(folder.path().join("input.json")).unwrap();
    assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
    let mut input: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(input["cwd"], json!(folder.path()));
    let keys = input.as_object_mut().unwrap();
    keys.remove("cwd");
    let budget = keys.remove("budget");
    (input, budget)
}

fn with(event: &str, more: Value) -> Value {
    let mut input = json!({
        "conversation": "c_1", "turn": "t_1", "hook_event_name": event, "agent": "coder", "permission_mode": "interactive",
    });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    input
}

#[tokio::test]
async fn each_is_told_what_is_left_of_the_budget_while_the_turn_runs() {
    let left = [
        (CommandPoint::BeforeAgent, 50),
        (CommandPoint::BeforeTool, 49),
        (CommandPoint::AfterTool, 49),
        (CommandPoint::AfterModel, 48),
        (CommandPoint::Stop, 48),
    ];
    for (point, calls) in left {
        assert_eq!(told_with_budget(point).await.1, Some(json!({"model_calls": calls})), "{point:?}");
    }
    assert_eq!(told_with_budget(CommandPoint::Ended).await.1, None);
}

#[tokio::test]
async fn before_agent_is_told_the_prompt() {
    assert_eq!(told(CommandPoint::BeforeAgent).await, with("UserPromptSubmit", json!({"prompt": "go"})));
}

#[tokio::test]
async fn before_tool_is_told_the_call() {
    let call = json!({"tool_name": "echo", "tool_input": {"text": "hi"}, "tool_use_id": "c1"});
    assert_eq!(told(CommandPoint::BeforeTool).await, with("PreToolUse", call));
}

#[tokio::test]
async fn after_tool_is_told_the_call_and_its_result() {
    let call = json!({
        "tool_name": "echo", "tool_input": {"text": "hi"}, "tool_use_id": "c1", "tool_response": "hi", "ok": true,
    });
    assert_eq!(told(CommandPoint::AfterTool).await, with("PostToolUse", call));
}

#[tokio::test]
async fn after_model_is_told_the_message() {
    assert_eq!(told(CommandPoint::AfterModel).await, with("AfterModel", json!({"message": "done"})));
}

#[tokio::test]
async fn stop_is_told_what_was_done() {
    let done = json!({
        "stop_active": false, "last_assistant_message": "done", "tools_used": ["echo"], "touched": ["src/a.rs"],
    });
    assert_eq!(told(CommandPoint::Stop).await, with("Stop", done));
}

#[tokio::test]
async fn ended_is_told_the_outcome() {
    let folder = TempDir::new().unwrap();
    let ear = listen(&folder.path().join("pipe"));
    let hook = CommandHook::new("spy", CommandPoint::Ended, CommandLine::Shell("cat > pipe".into()), folder.path());
    let mut rig = Rig::new(agent(hook).build().unwrap());
    rig.ended("go").await.unwrap();
    let input: Value = serde_json::from_str(&ear.heard.await.unwrap()).unwrap();
    let usage = json!({"input": 10, "output": 5, "cache_read": 0, "cache_write": 0});
    assert_eq!(input["hook_event_name"], "TurnEnded");
    assert_eq!((&input["outcome"], &input["usage"]), (&json!("completed"), &usage));
    assert_eq!(
        (&input["conversation"], &input["turn"], &input["agent"]),
        (&json!("c_1"), &json!("t_1"), &json!("coder"))
    );
}

#[tokio::test]
async fn a_program_is_told_when_nobody_watches() {
    let folder = TempDir::new().unwrap();
    let line = CommandLine::Shell("grep -q '\"permission_mode\":\"headless\"' || { echo watched >&2; exit 2; }".into());
    let hook = CommandHook::new("spy", CommandPoint::BeforeAgent, line, folder.path());
    let agent = agent(hook).build().unwrap();
    let headless =
        |builder: turnbuckle::conversation::ConversationsBuilder| builder.permission_mode(PermissionMode::Headless);
    let mut rig = Rig::with(agent, MemoryStore::default(), headless);
    assert_eq!(rig.ended("go").await.unwrap().text(), "done");
}

#[test]
fn a_command_hook_is_asked_at_its_point_only() {
    let points =
        [Point::BeforeAgent, Point::BeforeTool, Point::AfterTool, Point::AfterModel, Point::OnStop, Point::OnEnded];
    for (on, point) in CommandPoint::ALL.into_iter().zip(points) {
        let entry = HookEntry::from(CommandHook::new("h", on, CommandLine::Argv(vec!["true".into()]), "."));
        assert!(entry.points().iter().eq([point]), "{on}");
        assert_eq!(entry.name(), "h");
    }
}
