//! Nothing leads out of the folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use turnbuckle_tools::{Workspace, WorkspaceError};

use crate::desk::{Desk, fifo};

/// Every tool on this path, or one below it.
fn calls(path: &str) -> [(&'static str, Value); 5] {
    [
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "mine"})),
        ("edit_file", json!({"path": path, "old": "theirs", "new": "mine"})),
        ("list_files", json!({"path": path})),
        ("search_files", json!({"path": path, "pattern": "."})),
    ]
}

async fn nothing_gets_through(desk: &Desk, path: &str) {
    for (tool, arguments) in calls(path) {
        let said = desk.refused(tool, arguments).await;
        assert!(!said.contains("theirs"), "{tool} {path}: {said}");
    }
    assert!(desk.turn.touched().is_empty());
}

#[tokio::test]
async fn no_absolute_path_and_no_way_up() {
    let desk = Desk::new().await;
    fs::write(desk.outside("f"), "theirs").unwrap();
    let absolute = desk.outside("f").to_str().unwrap().to_owned();
    for path in [&*absolute, "../outside/f", "..", "/", "a/../../outside/f", "\0"] {
        nothing_gets_through(&desk, path).await;
    }
    let said = desk.refused("read_file", json!({"path": "../outside/f"})).await;
    assert!(said.contains("relative to the folder, without `..`"), "{said}");
    assert_eq!(fs::read_to_string(desk.outside("f")).unwrap(), "theirs");
}

#[tokio::test]
async fn no_symbolic_link_leads_out() {
    let desk = Desk::new().await;
    fs::write(desk.outside("f"), "theirs").unwrap();
    symlink(desk.outside("f"), desk.inside("absolute")).unwrap();
    symlink("../outside/f", desk.inside("relative")).unwrap();
    symlink(desk.outside(""), desk.inside("folder")).unwrap();
    symlink("folder", desk.inside("twice")).unwrap();
    for path in ["absolute", "relative", "folder/f", "twice/f"] {
        nothing_gets_through(&desk, path).await;
    }
    let said = desk.refused("read_file", json!({"path": "relative"})).await;
    assert!(said.contains("leads out of the folder"), "{said}");
    assert_eq!(fs::read_to_string(desk.outside("f")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(desk.outside("")).unwrap().count(), 1);
}

#[tokio::test]
async fn nothing_is_made_where_a_dangling_link_points() {
    let desk = Desk::new().await;
    symlink(desk.outside("new"), desk.inside("out")).unwrap();
    symlink(desk.outside("folder"), desk.inside("dir")).unwrap();
    symlink("nowhere", desk.inside("in")).unwrap();
    for path in ["out", "dir/new", "in", "in/new"] {
        desk.refused("write_file", json!({"path": path, "content": "mine"})).await;
    }
    assert_eq!(fs::read_dir(desk.outside("")).unwrap().count(), 0);
    assert!(!desk.inside("nowhere").exists());
    let said = desk.refused("write_file", json!({"path": "in", "content": "mine"})).await;
    assert!(said.contains("symbolic link to nothing"), "{said}");
}

#[tokio::test]
async fn links_that_stay_inside_are_followed() {
    let desk = Desk::new().await;
    desk.put("real/f", "mine");
    symlink("real", desk.inside("link")).unwrap();
    assert_eq!(desk.ok("read_file", json!({"path": "link/f"})).await, "mine");
    desk.ok("write_file", json!({"path": "link/g", "content": "x"})).await;
    assert_eq!(desk.turn.touched(), ["real/g"]);
}

#[tokio::test]
async fn pipes_sockets_and_loops_are_refused_and_never_waited_for() {
    let desk = Desk::new().await;
    fifo(&desk.inside("pipe"));
    let _socket = UnixListener::bind(desk.inside("socket")).unwrap();
    symlink("loop", desk.inside("loop")).unwrap();
    for path in ["pipe", "socket", "loop"] {
        nothing_gets_through(&desk, path).await;
    }
    let said = desk.refused("read_file", json!({"path": "pipe"})).await;
    assert!(said.contains("not a regular file"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_becomes_a_link_under_way_lets_nothing_through() {
    let desk = Desk::new().await;
    fs::write(desk.outside("f"), "theirs").unwrap();
    desk.put("d/f", "mine");
    symlink(desk.outside(""), desk.inside("out")).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (d, out) = (desk.inside("d"), desk.inside("out"));
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &d, CWD, &out, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let racing = async {
            for _ in 0..500 {
                let read = desk.call("read_file", json!({"path": "d/f"})).await;
                assert!(!read.content.text().contains("theirs"), "{read:?}");
                desk.call("write_file", json!({"path": "d/f", "content": "mine"})).await;
            }
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(racing));
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(desk.outside("f")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(desk.outside("")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_workspace_is_a_folder_that_is_there() {
    let desk = Desk::new().await;
    desk.put("f", "");
    let Err(WorkspaceError::Open { path, .. }) = Workspace::open(desk.inside("f")) else { panic!("a file was opened") };
    assert_eq!(path, desk.inside("f"));
    let error = Workspace::open(desk.inside("none")).unwrap_err().to_string();
    assert!(error.contains("could not open the folder") && error.contains("none"), "{error}");
}

#[tokio::test]
async fn a_closed_file_is_reached_by_no_name() {
    let mut desk = Desk::new().await;
    desk.put("my.db", "theirs");
    symlink("my.db", desk.inside("link")).unwrap();
    fs::hard_link(desk.inside("my.db"), desk.inside("twin")).unwrap();
    desk.workspace = Workspace::open_without(desk.inside(""), vec![desk.inside("my.db")]).unwrap();
    for name in ["my.db", "./my.db", "link", "twin"] {
        for (tool, arguments) in calls(name).into_iter().take(3) {
            let said = desk.refused(tool, arguments).await;
            assert!(said.contains("keeps its conversations"), "{tool} {name}: {said}");
        }
    }
    assert!(!desk.ok("search_files", json!({"pattern": "theirs"})).await.contains("my.db:"));
    assert_eq!(desk.text("my.db"), "theirs");
}
