//! `apply_patch` and gates that were written for `Edit` and `Write`: each file of a patch is judged as scripts expect it.

use std::fs;

use serde_json::{Value, json};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations};
use turnbuckle_tools::ClaudeHooks;
use turnbuckle_tools::claude::ClaudeEvent;

use crate::claude::{Played, Project};

const PATCH: &str = "*** Begin Patch\n*** Add File: new.txt\n+first\n+second\n*** Update File: src/a.rs\n@@\n-old\n+new\n\
                     *** Update File: b.rs\n*** Move to: moved/b.rs\n@@\n-x\n+y\n*** Delete File: gone.txt\n*** End Patch\n";

fn gated(matcher: &str, more: Value) -> Project {
    let mut handler = json!({"type": "command", "command": "./gate"});
    handler.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Project::new(json!({"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [handler]}]}}))
}

/// A turn in which the model calls `apply_patch`, which waits for a person unless somebody allows it.
async fn played(project: &Project) -> Played {
    let schema = json!({"type": "object", "properties": {"patch": {"type": "string"}}, "required": ["patch"]});
    let tool = function_with_schema("apply_patch", "Patches.", schema, Effect::Pure, |_, _: Value| async {
        Ok("patched".to_owned())
    });
    let step = ScriptReply::calls("c1", "apply_patch", json!({ "patch": PATCH }));
    let model = Script::of([step, ScriptReply::says("done")]).when_exhausted(OnExhausted::Repeat);
    let agent =
        Agent::builder("coder", model).tool(tool).approve(["apply_patch"]).hook(project.hook()).build().unwrap();
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    project.play_in(&conversations).await
}

/// What the handlers read, by `file_path`.
fn seen(project: &Project) -> Vec<Value> {
    let text = fs::read_to_string(project.path().join("seen")).unwrap_or_default();
    let mut seen: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    seen.sort_by_key(|event| event["tool_input"]["file_path"].to_string());
    seen
}

const NOTES: &str = "read -r line; flock seen.lock sh -c 'printf \"%s\\n\" \"$1\" >> seen' sh \"$line\"";

#[tokio::test]
async fn a_gate_for_files_reads_each_file_of_a_patch_in_the_shape_of_its_tool() {
    let project = gated("Edit|Write", json!({}));
    project.script("gate", &format!("#!/bin/sh\n{NOTES}\n"));
    let played = played(&project).await;
    assert_eq!(played.end().0, "waiting", "who says nothing allows nothing");
    let root = project.path().display().to_string();
    let told: Vec<Value> = seen(&project)
        .into_iter()
        .map(|event| {
            assert_eq!(event["tool_use_id"], "c1");
            json!([event["tool_name"], event["tool_input"]])
        })
        .collect();
    let edit = |path: &str, old: &str, new: &str| {
        let path = format!("{root}/{path}");
        json!(["Edit", {"file_path": path, "old_string": old, "new_string": new, "replace_all": false}])
    };
    let write =
        |path: &str, content: &str| json!(["Write", {"file_path": format!("{root}/{path}"), "content": content}]);
    let expected = [
        edit("b.rs", "x\n", "y\n"),
        write("gone.txt", ""),
        write("moved/b.rs", "y\n"),
        write("new.txt", "first\nsecond\n"),
        edit("src/a.rs", "old\n", "new\n"),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_patch_is_denied_if_one_of_its_files_is_and_a_rule_chooses_the_files() {
    let project = gated("Edit|Write", json!({"if": "Edit(src/**)"}));
    project.script("gate", &format!("#!/bin/sh\n{NOTES}\necho 'src is closed' >&2\nexit 2\n"));
    let (ok, text) = played(&project).await.result();
    assert!(!ok && text.contains("src is closed"), "{text}");
    assert_eq!(seen(&project).len(), 1, "the rule is for one file of the patch");
    let project = gated("Write", json!({}));
    project.script("gate", "#!/bin/sh\ngrep -q 'src/a.rs' && { echo 'not this one' >&2; exit 2; }\nexit 0\n");
    let (ok, text) = played(&project).await.result();
    assert!(!ok && text.contains("not this one"), "a gate for Write alone must hold for patches as well: {text}");
}

#[tokio::test]
async fn a_patch_is_allowed_only_if_each_of_its_files_is() {
    let allow = r#"echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'"#;
    let project = gated("Edit|Write", json!({"if": "Edit(src/**)"}));
    project.script("gate", &format!("#!/bin/sh\n{allow}\n"));
    assert_eq!(played(&project).await.end().0, "waiting", "one file was allowed, and not the others");
    for matcher in ["Edit|Write", "apply_patch"] {
        let project = gated(matcher, json!({}));
        project.script("gate", &format!("#!/bin/sh\n{allow}\n"));
        assert_eq!(played(&project).await.end().0, "completed", "{matcher}");
    }
}

#[tokio::test]
async fn a_change_of_one_file_that_cannot_be_made_blocks_the_patch_and_hooks_test_says_the_same() {
    let project = gated("Edit", json!({}));
    let answer = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"file_path":"x"}}}"#;
    project.script("gate", &format!("#!/bin/sh\necho '{answer}'\n"));
    let (ok, text) = played(&project).await.result();
    assert!(!ok && text.contains("`updatedInput` cannot change one file of a patch"), "{text}");
    let hooks = ClaudeHooks::new(project.settings(), project.path(), project.path().join(".turnbuckle"));
    let payload = json!({"tool_name": "apply_patch", "tool_input": {"patch": PATCH}});
    let trial = hooks.try_event(ClaudeEvent::PreToolUse, payload.as_object().unwrap().clone()).await.unwrap();
    assert_eq!(trial.runs.len(), 5, "{:?}", trial.runs);
    assert!(trial.verdict[0].contains("denied") && trial.verdict[0].contains("updatedInput"), "{:?}", trial.verdict);
}

#[tokio::test]
async fn a_patch_with_more_files_than_can_be_judged_is_denied() {
    let project = gated("Edit|Write", json!({}));
    project.script("gate", "#!/bin/sh\nexit 0\n");
    let files: String = (0..300).map(|at| format!("*** Add File: f{at}\n+x\n")).collect();
    let patch = format!("*** Begin Patch\n{files}*** End Patch\n");
    let hooks = ClaudeHooks::new(project.settings(), project.path(), project.path().join(".turnbuckle"));
    let payload = json!({"tool_name": "apply_patch", "tool_input": {"patch": patch}});
    let trial = hooks.try_event(ClaudeEvent::PreToolUse, payload.as_object().unwrap().clone()).await.unwrap();
    assert!(trial.runs.is_empty() && trial.verdict[0].contains("too many files"), "{:?}", trial.verdict);
}
