//! `write_file`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::task::Poll;

use serde_json::json;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, TurnStatus};
use turnbuckle_tools::Workspace;

use crate::desk::Desk;

#[tokio::test]
async fn a_file_is_made_with_the_folders_on_the_way() {
    let desk = Desk::new().await;
    let said = desk.ok("write_file", json!({"path": "a/b/c.txt", "content": "hi"})).await;
    assert_eq!(said, "created a/b/c.txt (2 bytes)");
    assert_eq!(desk.text("a/b/c.txt"), "hi");
    assert_eq!(desk.turn.touched(), ["a/b/c.txt"]);
}

#[tokio::test]
async fn a_replaced_file_keeps_its_permissions_and_leaves_nothing_behind() {
    let desk = Desk::new().await;
    desk.put("run.sh", "old");
    fs::set_permissions(desk.inside("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    desk.ok("write_file", json!({"path": "run.sh", "content": "new"})).await;
    assert_eq!(desk.text("run.sh"), "new");
    assert_eq!(fs::metadata(desk.inside("run.sh")).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_dir(desk.inside("")).unwrap().count(), 1);
}

/// A temporary file as a write makes it, last changed so many seconds ago.
fn temporary(desk: &Desk, process: u32, seconds: u64) -> std::path::PathBuf {
    let name = format!("a/.turnbuckle-{process}-{seconds}.tmp");
    desk.put(&name, "half");
    let written = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
    fs::File::options().write(true).open(desk.inside(&name)).unwrap().set_modified(written).unwrap();
    desk.inside(&name)
}

#[tokio::test]
async fn what_a_killed_process_left_is_removed_and_nothing_else() {
    let desk = Desk::new().await;
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let left_over = temporary(&desk, ended.id(), 3_600);
    let of_another_container = temporary(&desk, ended.id(), 5);
    let under_way = temporary(&desk, std::process::id(), 7_200);
    desk.put("a/.turnbuckle-1-2.tmp.md", "mine");
    desk.ok("write_file", json!({"path": "a/b.txt", "content": "hi"})).await;
    assert!(!left_over.exists());
    assert!(of_another_container.exists() && under_way.exists() && desk.inside("a/.turnbuckle-1-2.tmp.md").exists());
}

#[tokio::test]
async fn a_reader_of_the_old_file_keeps_the_old_content() {
    let desk = Desk::new().await;
    desk.put("a", "old");
    let open = fs::File::open(desk.inside("a")).unwrap();
    desk.ok("write_file", json!({"path": "a", "content": "longer and new"})).await;
    assert_eq!(std::io::read_to_string(open).unwrap(), "old");
}

#[tokio::test]
async fn a_hard_link_to_the_outside_is_never_written_through() {
    let desk = Desk::new().await;
    fs::write(desk.outside("theirs"), "theirs").unwrap();
    fs::hard_link(desk.outside("theirs"), desk.inside("link")).unwrap();
    desk.ok("write_file", json!({"path": "link", "content": "mine"})).await;
    assert_eq!(fs::read_to_string(desk.outside("theirs")).unwrap(), "theirs");
}

#[tokio::test]
async fn a_link_inside_is_written_through_and_the_real_file_is_what_was_touched() {
    let desk = Desk::new().await;
    desk.put("real.md", "old");
    symlink("real.md", desk.inside("link.md")).unwrap();
    desk.ok("write_file", json!({"path": "link.md", "content": "new"})).await;
    assert_eq!(desk.text("real.md"), "new");
    assert!(fs::symlink_metadata(desk.inside("link.md")).unwrap().is_symlink());
    assert_eq!(desk.turn.touched(), ["real.md"]);
}

#[test]
fn a_call_that_nobody_waits_for_changes_nothing() {
    // One thread for blocking work, held until the call is dropped: the write comes after that.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let desk = Desk::new().await;
        desk.put("a", "old");
        let (release, held) = std::sync::mpsc::channel::<()>();
        let holder = tokio::task::spawn_blocking(move || held.recv());
        let mut call = Box::pin(desk.call("write_file", json!({"path": "a", "content": "new"})));
        let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
        assert!(polled, "the write did not wait");
        drop(call);
        release.send(()).unwrap();
        holder.await.unwrap().unwrap();
        // Queued behind the write: when this has run, the write has, too.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(desk.text("a"), "old");
        assert_eq!(fs::read_dir(desk.inside("")).unwrap().count(), 1);
    });
}

#[tokio::test]
async fn an_agent_with_these_tools_writes_and_a_gated_one_asks_first() {
    let desk = Desk::new().await;
    let script = || {
        let arguments = json!({"path": "a.txt", "content": "hi"});
        Script::of([ScriptReply::calls("c1", "write_file", arguments), ScriptReply::says("written")])
    };
    let equipped = |mut agent: turnbuckle::AgentBuilder| {
        for name in Workspace::NAMES {
            agent = agent.shared_tool(desk.workspace.tool(name).unwrap());
        }
        agent
    };
    let gated = equipped(Agent::builder("coder", script())).approve(Workspace::CHANGING).build().unwrap();
    assert!(matches!(Rig::new(gated).run("go").await, Ok(TurnStatus::Waiting(_))));
    assert!(!desk.inside("a.txt").exists());

    let free = equipped(Agent::builder("coder", script())).build().unwrap();
    assert_eq!(Rig::new(free).ended("go").await.unwrap().text(), "written");
    assert_eq!(desk.text("a.txt"), "hi");
    assert!(desk.workspace.tool("shell").is_none());
}
