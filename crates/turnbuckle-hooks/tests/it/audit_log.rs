//! The audit log: a line for each decision, rotated, and never a turn that waits for it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{BeforeTool, HookExt, OnFailure, Point, gate};
use turnbuckle::models::Script;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome};
use turnbuckle_hooks::AuditLog;
use turnbuckle_hooks::audit_log::AuditLogOptions;

use super::kit::{add, adding, built_in};

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn types(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["type"].as_str().unwrap()).collect()
}

/// Runs a turn whose tool call is denied, and drops everything, so that the file is complete.
async fn a_denied_turn(hook: AuditLog) {
    let deny = gate("no", |_, _| async { Ok(BeforeTool::Deny("not today".into())) });
    let agent = Agent::builder("a", adding(41, "my secret answer")).tool(add()).hook(deny).hook(hook).build().unwrap();
    let mut rig = Rig::new(agent);
    rig.ended("my secret question").await.unwrap();
    rig.conversations.drain(std::time::Duration::from_secs(1)).await;
}

#[tokio::test]
async fn every_decision_has_a_line_without_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    a_denied_turn(built_in(folder.path(), json!({"file": "logs/audit.jsonl"})).unwrap()).await;
    let file = folder.path().join("logs/audit.jsonl");
    let lines = lines(&file);
    assert_eq!(
        types(&lines),
        [
            "user_message",
            "assistant_message",
            "tool_call",
            "hook_finished",
            "tool_result",
            "assistant_message",
            "turn_ended"
        ]
    );
    let denied = &lines[3];
    assert_eq!((&denied["hook"], &denied["decision"]), (&json!("no"), &json!("deny")));
    assert_eq!(lines[0]["by"], json!({"user": "local"}));
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("secret") && !text.contains("41"), "{text}");
}

#[tokio::test]
async fn what_was_said_is_written_if_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    a_denied_turn(built_in(folder.path(), json!({"content": true})).unwrap()).await;
    let text = fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    assert!(text.contains("my secret question") && text.contains("41"), "{text}");
}

#[cfg(unix)]
#[tokio::test]
async fn others_may_not_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    a_denied_turn(built_in(folder.path(), json!({})).unwrap()).await;
    let mode = fs::metadata(folder.path().join("audit.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[tokio::test]
async fn a_full_file_makes_room_and_the_oldest_goes() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..6 {
        a_denied_turn(built_in(folder.path(), json!({"max_bytes": 1100, "keep": 2})).unwrap()).await;
    }
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]);
    for name in names {
        let file = folder.path().join(name);
        assert!(fs::metadata(&file).unwrap().len() <= 1100);
        assert!(!lines(&file).is_empty(), "whole lines");
    }
}

/// Its folder is a file: nobody can write there, not even root.
fn unwritable(folder: &Path) -> AuditLog {
    fs::write(folder.join("file"), "in the way").unwrap();
    AuditLog::new(folder.join("file/audit.jsonl"), AuditLogOptions::default()).unwrap()
}

/// What was told of the hook's failures.
fn failures(rig: &Rig) -> Vec<String> {
    let told = rig.told();
    let finished = told.iter().filter_map(|told| match &told.item {
        FeedItem::Live(LiveEvent::HookFinished { hook, point: Point::OnEvent, error: Some(error), .. }) => {
            Some(format!("{hook}: {error}"))
        }
        _ => None,
    });
    finished.collect()
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_told_once_a_turn_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Arc::new(unwritable(folder.path()));
    let agent = Agent::builder("a", Script::says(["fine", "again"])).hook(Shared(hook.clone())).build().unwrap();
    let mut rig = Rig::new(agent);
    for (nth, answer) in ["fine", "again"].into_iter().enumerate() {
        assert_eq!(rig.ended("hi").await.unwrap().text(), answer);
        rig.conversations.drain(std::time::Duration::from_secs(1)).await;
        rig.settle().await;
        let failures = failures(&rig);
        assert_eq!(failures.len(), nth + 1, "{failures:?}");
        assert!(failures[nth].starts_with("shared: could not write to "), "{failures:?}");
    }
    assert!(hook.lost() >= 6);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_ends_the_turn_where_that_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let hook = unwritable(folder.path()).on_failure(OnFailure::Block);
    let mut rig = Rig::new(Agent::builder("a", Script::says(["fine"])).hook(hook).build().unwrap());
    let ended = rig.ended("hi").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    let reason = ended.reason.clone().unwrap();
    assert!(reason.starts_with("hook audit_log failed at on_event: could not write to "), "{reason}");
}

#[tokio::test]
async fn where_it_blocks_a_turn_completes_when_its_lines_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let hook = AuditLog::new(&file, AuditLogOptions::default()).unwrap().on_failure(OnFailure::Block);
    let mut rig = Rig::new(Agent::builder("a", Script::says(["fine"])).hook(hook).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().outcome, Outcome::Completed);
    assert_eq!(types(&lines(&file))[..2], ["user_message", "assistant_message"]);
}

/// A hook that the test holds, too.
struct Shared(Arc<AuditLog>);

impl turnbuckle::hook::Hook for Shared {
    async fn on_event(&self, told: &turnbuckle::feed::FeedEvent) -> Result<(), turnbuckle::BoxError> {
        self.0.on_event(told).await
    }
}

#[tokio::test]
async fn what_finds_no_room_in_the_queue_is_counted_and_a_line_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Arc::new(
        AuditLog::new(folder.path().join("a.jsonl"), AuditLogOptions { queue: 1, ..Default::default() }).unwrap(),
    );
    let agent = Agent::builder("a", Script::says(["fine"])).hook(Shared(hook.clone())).build().unwrap();
    let mut rig = Rig::new(agent);
    rig.ended("hi").await.unwrap();
    let told = rig.told().iter().find(|told| format!("{:?}", told.item).contains("TurnEnded")).unwrap().clone();
    use turnbuckle::hook::Hook;
    let results = join_all((0..10_000).map(|_| hook.on_event(&told))).await;
    assert!(results.iter().any(Result::is_err));
    // One more, before which the loss is told.
    hook.on_event(&told).await.unwrap();
    assert_eq!(hook.lost(), 0);
    rig.conversations.drain(std::time::Duration::from_secs(1)).await;
    drop((rig, hook));
    let lines = lines(&folder.path().join("a.jsonl"));
    assert!(types(&lines).contains(&"lost"), "{:?}", types(&lines).len());
    let lost: u64 = lines.iter().filter_map(|line| line["count"].as_u64()).sum();
    assert!(lost > 0);
}
