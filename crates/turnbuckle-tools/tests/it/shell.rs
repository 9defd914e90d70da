//! Commands that do not behave, and what the model reads of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnbuckle::event::EventKind;
use turnbuckle::models::Script;
use turnbuckle::store::SideStore as _;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Tool as _;
use turnbuckle::{Agent, Outcome, Scope};
use turnbuckle_tools::{SandboxMode, Shell, ShellOptions, ShellOutputs};

use crate::desk::listen;

fn options(folder: &Path) -> ShellOptions {
    let mut options = ShellOptions::in_folder(folder);
    options.outputs = Some(ShellOutputs::below(folder, ".turnbuckle"));
    options
}

/// An agent whose model calls the shell once. Nobody is asked.
fn rig(options: ShellOptions, arguments: Value) -> Rig {
    let script = json!({ "replies": [
        { "tool_calls": [{ "id": "c1", "name": "shell", "arguments": arguments }] }, { "text": "done" }
    ] });
    let script = Script::from_json(&script.to_string()).unwrap();
    Rig::new(Agent::builder("coder", script).tool(Shell::new(options).without_approval()).build().unwrap())
}

async fn result(options: ShellOptions, command: &str) -> (bool, String) {
    let mut rig = rig(options, json!({ "command": command }));
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    result_of(&rig).await
}

async fn result_of(rig: &Rig) -> (bool, String) {
    let log = rig.log().await.unwrap();
    let result = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolResult { ok, content, .. } => Some((*ok, content.text())),
        _ => None,
    });
    result.unwrap()
}

#[tokio::test]
async fn both_outputs_come_in_the_order_in_which_they_were_written() {
    let folder = TempDir::new().unwrap();
    let told = result(options(folder.path()), "echo one; echo two >&2; echo three; pwd -P").await;
    let cwd = folder.path().canonicalize().unwrap();
    assert_eq!(told, (true, format!("one\ntwo\nthree\n{}\n", cwd.display())));
}

#[tokio::test]
async fn a_command_that_fails_says_how() {
    let folder = TempDir::new().unwrap();
    for (command, expected) in [
        ("exit 3", "[exit status: 3]"),
        ("printf half; exit 1", "half\n[exit status: 1]"),
        ("kill -9 $$", "[signal: 9 (SIGKILL)]"),
        ("true", "[no output]"),
        ("cat; echo empty", "empty\n"),
    ] {
        assert_eq!(result(options(folder.path()), command).await.1, expected, "{command}");
    }
}

/// Everybody in the group holds the pipe; its end is heard when the last of them is gone.
const FAMILY: &str = "exec 3>pipe; (sleep 1000; true) & echo begun; echo ready >&3; wait";

#[tokio::test]
async fn when_the_time_is_up_the_whole_group_is_killed_and_the_output_is_kept() {
    let folder = TempDir::new().unwrap();
    let ear = listen(&folder.path().join("pipe"));
    let mut rig = rig(options(folder.path()), json!({ "command": FAMILY, "timeout": 7 }));
    let clock = rig.clock.clone();
    let (ended, ()) = tokio::join!(rig.ended("go"), async {
        ear.ready.await.unwrap();
        clock.advance(std::time::Duration::from_secs(7));
    });
    assert_eq!(ended.unwrap().outcome, Outcome::Completed);
    assert_eq!(result_of(&rig).await, (false, "begun\n[killed: it took longer than 7 s]".to_owned()));
    assert_eq!(ear.heard.await.unwrap(), "ready\n");
}

#[tokio::test]
async fn when_the_turn_is_cancelled_the_whole_group_is_killed() {
    let folder = TempDir::new().unwrap();
    let ear = listen(&folder.path().join("pipe"));
    let mut rig = rig(options(folder.path()), json!({ "command": FAMILY }));
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let (ended, ()) = tokio::join!(rig.ended("go"), async {
        ear.ready.await.unwrap();
        conversations.cancel(&id, Scope::local()).await.unwrap();
    });
    assert_eq!(ended.unwrap().outcome, Outcome::Cancelled);
    assert_eq!(ear.heard.await.unwrap(), "ready\n");
}

#[tokio::test]
async fn a_command_that_writes_for_ever_is_stopped_when_its_time_is_up() {
    let folder = TempDir::new().unwrap();
    let mut rig = rig(options(folder.path()), json!({ "command": "touch begun; yes", "timeout": 1 }));
    let (clock, begun) = (rig.clock.clone(), folder.path().join("begun"));
    let (ended, ()) = tokio::join!(rig.ended("go"), async {
        while !begun.exists() {
            tokio::task::yield_now().await;
        }
        clock.advance(std::time::Duration::from_secs(1));
    });
    assert_eq!(ended.unwrap().outcome, Outcome::Completed);
    assert!(result_of(&rig).await.1.ends_with("[killed: it took longer than 1 s]"));
}

#[tokio::test]
async fn a_long_output_keeps_both_ends_and_is_whole_in_a_private_file_that_is_erased_with_the_conversation() {
    let folder = TempDir::new().unwrap();
    let mut rig = rig(options(folder.path()), json!({ "command": "echo first; seq 100000; echo last" }));
    rig.ended("go").await.unwrap();
    let (ok, text) = result_of(&rig).await;
    assert!(ok && text.starts_with("first\n1\n2\n") && text.ends_with("100000\nlast\n"), "{}", &text[..100]);
    assert!(text.len() < 34_000 && text.contains("of 588906 bytes left out; all of it is in .turnbuckle/output/"));
    let kept = folder.path().join(".turnbuckle/output").join(rig.id.to_string());
    let file = kept.join("c1.txt");
    let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("first\n{expected}last\n"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let outputs = ShellOutputs::below(folder.path(), ".turnbuckle");
    assert_eq!(outputs.count(&rig.id).await.unwrap(), 1);
    outputs.erase(&rig.id).await.unwrap();
    assert!(!kept.exists());
    outputs.erase(&rig.id).await.unwrap();
}

#[tokio::test]
async fn a_link_does_not_lead_the_output_out_of_the_project() {
    let (folder, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    symlink(outside.path(), folder.path().join(".turnbuckle")).unwrap();
    let (ok, text) = result(options(folder.path()), "seq 100000").await;
    assert!(ok && text.contains("it could not be kept"), "{}", &text[text.len() / 2 - 100..text.len() / 2 + 200]);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_a_command_left_in_the_background_is_neither_waited_for_nor_killed() {
    let folder = TempDir::new().unwrap();
    let (_, text) = result(options(folder.path()), "sleep 1000 & echo $!").await;
    let pid = text.trim().to_owned();
    assert!(Path::new("/proc").join(&pid).exists(), "{text}");
    std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
}

#[tokio::test]
async fn where_nothing_is_enforced_each_question_says_so_and_require_refuses() {
    let folder = TempDir::new().unwrap();
    let mut options = options(folder.path());
    options.sandbox = SandboxMode::On;
    let note = Shell::new(options.clone()).spec().approval_note.clone().unwrap();
    assert!(note.contains("no sandbox"), "{note}");
    options.sandbox = SandboxMode::Off;
    assert_eq!(Shell::new(options.clone()).spec().approval_note, None);
    options.sandbox = SandboxMode::Require;
    let (ok, text) = result(options, "touch ran").await;
    assert!(!ok && text.contains("cannot be enforced here"), "{text}");
    assert!(!folder.path().join("ran").exists());
}
