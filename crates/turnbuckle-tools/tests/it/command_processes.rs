//! Processes that do not behave.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use turnbuckle::hook::HookEntry;
use turnbuckle::hooks::{ConfigHook, HookBuildContext, ProgramCheck};
use turnbuckle::models::Script;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Limits, Outcome, Scope};
use turnbuckle_tools::{CommandHook, CommandLine, CommandOptions, CommandPoint, Persist};

use crate::desk::{fifo, listen};

fn rig(folder: &Path, on: CommandPoint, line: &str) -> Rig {
    let hook = CommandHook::new("odd", on, CommandLine::Shell(line.into()), folder);
    // Some of the messages are long, and one that no context can hold is refused before hooks see it.
    let limits = Limits { context_tokens: 2_000_000, ..Limits::default() };
    Rig::new(Agent::builder("coder", Script::says(["done"])).limits(limits).hook(hook).build().unwrap())
}

/// Everybody in the group holds the pipe; its end is heard when the last of them is gone.
const FAMILY: &str = "exec 3>pipe; (sleep 1000; true) & echo ready >&3; wait";

#[tokio::test]
async fn when_the_time_is_up_the_whole_group_is_killed() {
    let folder = TempDir::new().unwrap();
    let ear = listen(&folder.path().join("pipe"));
    let mut rig = rig(folder.path(), CommandPoint::BeforeAgent, FAMILY);
    let clock = rig.clock.clone();
    let (ended, ()) = tokio::join!(rig.ended("go"), async {
        ear.ready.await.unwrap();
        clock.advance(HookEntry::DEFAULT_TIMEOUT);
    });
    let ended = ended.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.reason.unwrap().contains("odd"));
    assert_eq!(ear.heard.await.unwrap(), "ready\n");
}

#[tokio::test]
async fn when_the_turn_is_cancelled_the_whole_group_is_killed() {
    let folder = TempDir::new().unwrap();
    let ear = listen(&folder.path().join("pipe"));
    let mut rig = rig(folder.path(), CommandPoint::Stop, FAMILY);
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let (ended, ()) = tokio::join!(rig.ended("go"), async {
        ear.ready.await.unwrap();
        conversations.cancel(&id, Scope::local()).await.unwrap();
    });
    assert_eq!(ended.unwrap().outcome, Outcome::Cancelled);
    assert_eq!(ear.heard.await.unwrap(), "ready\n");
}

#[tokio::test]
async fn a_background_child_that_holds_stdout_is_neither_waited_for_nor_killed() {
    let folder = TempDir::new().unwrap();
    fifo(&folder.path().join("hold"));
    let ear = listen(&folder.path().join("pipe"));
    let line = r#"(read word < hold; echo "$word" > pipe) & echo '{"decision": "prevent", "reason": "seen"}'"#;
    let ended = rig(folder.path(), CommandPoint::Stop, line).ended("go").await.unwrap();
    assert_eq!((ended.outcome, ended.reason.as_deref()), (Outcome::Halted, Some("seen")));
    let hold = folder.path().join("hold");
    let release = tokio::task::spawn_blocking(move || {
        fs::OpenOptions::new().write(true).open(hold).unwrap().write_all(b"alive\n").unwrap();
    });
    release.await.unwrap();
    assert_eq!(ear.heard.await.unwrap(), "alive\n");
}

#[tokio::test]
async fn a_program_need_not_read_its_stdin() {
    let folder = TempDir::new().unwrap();
    let long = "word ".repeat(200_000);
    for line in ["echo read nothing >&2; exit 2", "exec 0<&-; echo read nothing >&2; exit 2"] {
        let ended = rig(folder.path(), CommandPoint::BeforeAgent, line).ended(&*long).await.unwrap();
        assert_eq!((ended.outcome, ended.reason.as_deref()), (Outcome::Halted, Some("read nothing")), "{line}");
    }
}

#[tokio::test]
async fn a_long_input_arrives_whole() {
    let folder = TempDir::new().unwrap();
    let long = "word ".repeat(200_000);
    let line = "test $(wc -c) -gt 1000000 && { echo whole >&2; exit 2; }";
    let ended = rig(folder.path(), CommandPoint::BeforeAgent, line).ended(&*long).await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("whole"));
}

#[tokio::test]
async fn a_flood_of_output_is_drained_and_cut() {
    let folder = TempDir::new().unwrap();
    let line = "yes | head -c 3000000; yes | head -c 200000 >&2; exit 2";
    let ended = rig(folder.path(), CommandPoint::BeforeAgent, line).ended("go").await.unwrap();
    let reason = ended.reason.unwrap();
    assert!(reason.ends_with("y\n[… 134464 more bytes]"), "{}", &reason[reason.len() - 50..]);
}

#[tokio::test]
async fn an_answer_in_pieces_is_one_answer() {
    let folder = TempDir::new().unwrap();
    let line = r#"printf '{"decision": '; cat > /dev/null; printf '"prevent", "reason": "whole"}'"#;
    let ended = rig(folder.path(), CommandPoint::Stop, line).ended("go").await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("whole"));
}

#[tokio::test]
async fn argv_is_run_as_it_is_from_the_hooks_folder() {
    let folder = TempDir::new().unwrap();
    // A link, not a script written here: a program that another thread's child still holds for writing is busy.
    std::os::unix::fs::symlink("/bin/sh", folder.path().join("check")).unwrap();
    let words = ["./check", "-c", r#"echo "$PWD $1" >&2; exit 2"#, "check", "$HOME *"];
    let line = CommandLine::Argv(words.map(str::to_owned).into());
    let hook = CommandHook::new("odd", CommandPoint::BeforeAgent, line, folder.path());
    let agent = Agent::builder("coder", Script::says(["done"])).hook(hook).build().unwrap();
    let reason = Rig::new(agent).ended("go").await.unwrap().reason.unwrap();
    assert!(reason.ends_with("$HOME *") && reason.starts_with(folder.path().to_str().unwrap()), "{reason}");
}

#[tokio::test]
async fn a_program_that_may_not_start_is_not_started_and_blocks() {
    let folder = TempDir::new().unwrap();
    let open_model = |_: &str| Err("there are no models here".into());
    let refused: ProgramCheck = Arc::new(|| Err("it was changed".into()));
    let context = HookBuildContext {
        folder: folder.path(),
        data: folder.path(),
        withheld_env: &[],
        open_model: &open_model,
        program_check: Some(refused),
        databases: None,
        tool_servers: None,
        link_maker: None,
        ignores_project: false,
        read_by_others: &[],
    };
    let run = CommandLine::Shell("touch ran".into());
    let options = CommandOptions { on: CommandPoint::Stop, run, pass_env: Vec::new() };
    let command = CommandHook::from_options(options, &context).unwrap().entry("command".to_owned());
    let options = serde_json::from_value(serde_json::json!({ "run": "touch ran" })).unwrap();
    let persist = Persist::from_options(options, &context).unwrap();
    // At both points failures are ignored by default.
    for hook in [command, persist.entry("persist".to_owned())] {
        let agent = Agent::builder("coder", Script::says(["done"])).hook(hook).build().unwrap();
        let ended = Rig::new(agent).ended("go").await.unwrap();
        assert_eq!(ended.outcome, Outcome::Failed);
        assert!(ended.reason.unwrap().contains("was not started: it was changed"));
        assert!(!folder.path().join("ran").exists());
    }
}
