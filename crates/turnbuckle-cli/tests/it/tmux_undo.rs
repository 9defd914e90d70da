//! `/undo` in a real terminal.

use crate::program::Folder;
use crate::tmux_pane::{READ, Tmux};

#[test]
fn undo_takes_the_folders_along_that_were_made_and_says_when_nothing_is_left() {
    let call = |id: &str, path: &str| {
        format!(r#"{{ "id": "{id}", "name": "write_file", "arguments": {{ "path": "{path}", "content": "x" }} }}"#)
    };
    let calls = format!("{}, {}", call("c1", "new/deep/a.txt"), call("c2", "kept/b.txt"));
    let script = format!(r#"{{ "tool_calls": [ {calls} ] }}, {{ "text": "done" }}"#);
    let folder = Folder::with_config(&script, "[tools]\napprove = []\n");
    std::fs::create_dir(folder.path().join("kept")).unwrap();
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     done");
    tmux.rests();
    assert!(folder.path().join("new/deep/a.txt").exists());
    std::thread::sleep(READ);
    tmux.types("/undo");
    tmux.presses(&["Enter"]);
    tmux.shows("put back: kept/b.txt, new/deep/a.txt");
    assert!(!folder.path().join("new").exists(), "it was made for the file");
    assert!(folder.path().join("kept").exists(), "it was there before");
    tmux.types("/undo");
    tmux.presses(&["Enter"]);
    tmux.shows("there is nothing to put back");
}

#[test]
fn a_later_chat_puts_back_what_an_earlier_one_or_a_run_changed_and_deleting_forgets_it() {
    let call = r#"{ "tool_calls": [ { "id": "c1", "name": "edit_file", "arguments": { "path": "a.txt", "old": "two", "new": "TWO" } } ] }"#;
    let script = format!(r#"{call}, {{ "text": "done" }}"#);
    let folder = Folder::with_config(&script, "[tools]\napprove = []\n");
    folder.file("a.txt", "one\ntwo\n");
    folder.run(&["run", "-c", "w", "go"]).exits(0);
    assert_eq!(folder.read("a.txt"), "one\nTWO\n");
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    tmux.types("/undo");
    tmux.presses(&["Enter"]);
    tmux.shows("put back: a.txt");
    assert_eq!(folder.read("a.txt"), "one\ntwo\n");
    tmux.presses(&["C-d"]);
    tmux.exits(0);
    folder.run(&["run", "-c", "v", "go"]).exits(0);
    let kept = folder.path().join(".turnbuckle/undo/v");
    assert!(kept.exists());
    folder.run(&["delete", "v", "--yes"]).exits(0);
    assert!(!kept.exists(), "it has the text of the file");
    folder.run(&["run", "--store", "memory:", "go"]).exits(0);
    assert!(!folder.path().join(".turnbuckle/undo").read_dir().is_ok_and(|mut files| files.next().is_some()));
}
