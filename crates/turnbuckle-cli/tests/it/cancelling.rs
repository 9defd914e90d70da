//! A turn is cancelled from another terminal, wherever it is.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;

use crate::program::{Folder, Ran};

fn slow() -> Folder {
    Folder::with_script(&format!(
        r#"{{ "chunks": [{}"x"], "delay_ms": 50 }}, {{ "text": "on" }}"#,
        "\"x \",".repeat(2000)
    ))
}

/// A `run --json` whose model speaks already, and what it has said.
fn speaking(folder: &Folder) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = folder.command(&["run", "-c", "talk", "--json", "hi"]).spawn().unwrap();
    let (mut lines, mut out) = (BufReader::new(child.stdout.take().unwrap()), String::new());
    while !out.contains("text_delta") {
        assert_ne!(lines.read_line(&mut out).unwrap(), 0, "{out}");
    }
    (child, lines, out)
}

#[test]
fn a_turn_that_streams_in_another_process_is_cancelled_there() {
    let folder = slow();
    let (child, mut lines, mut out) = speaking(&folder);
    let asked = folder.run(&["cancel", "talk"]).exits(0).prints("");
    asked.says("of conversation talk was cancelled by the process that has it");
    lines.read_to_string(&mut out).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let ran = Ran { code: output.status.code().unwrap_or(-1), out, err }.exits(130);
    assert_eq!(ran.event("turn_ended")["outcome"], "cancelled");
    assert_eq!(ran.event("turn_ended")["by"], serde_json::json!({ "user": "local" }));
    folder.run(&["run", "-c", "talk", "go on"]).exits(0).prints("on\n");
}

#[test]
fn a_turn_that_a_crash_left_is_cancelled_here() {
    let folder = slow();
    let (mut child, _, _) = speaking(&folder);
    child.kill().unwrap();
    child.wait().unwrap();
    folder.run(&["cancel", "talk"]).exits(0).says("of conversation talk was cancelled\n");
    folder.run(&["run", "-c", "talk"]).exits(0).says("has no open turn");
}

#[test]
fn a_turn_that_waits_is_cancelled_and_its_call_gets_its_one_result() {
    let write =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } }] }"#;
    let folder = Folder::with_script(write);
    folder.run(&["run", "-c", "w", "write"]).exits(4);
    folder.run(&["cancel", "w"]).exits(0).says("was cancelled");
    let ran = folder.run(&["show", "w", "--json"]).exits(0);
    assert_eq!(ran.event("resolution")["decision"], "cancelled");
    assert_eq!(ran.types().iter().filter(|kind| *kind == "tool_result").count(), 1);
    folder.run(&["resolve", "w", "c1", "--approve"]).exits(1).says("stale");
    assert!(!folder.path().join("a").exists());
}

#[test]
fn nothing_to_cancel_is_said_and_what_is_not_there_is_an_error() {
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    folder.run(&["cancel", "talk"]).exits(1).says("there is no database");
    folder.run(&["run", "-c", "talk", "hi"]).exits(0);
    folder.run(&["cancel", "talk"]).exits(0).prints("").says("talk has no open turn: there is nothing to cancel");
    folder.run(&["cancel", "nobody"]).exits(1).says("there is no conversation nobody").says("hint: ");
    folder.run(&["cancel"]).exits(2).says("error: ");
}
