//! What hooks and MCP servers say steers no terminal.

use serde_json::json;

use crate::program::Folder;
use crate::tmux_pane::Tmux;

/// Sets the title, clears the screen, colours, moves the cursor with a control character of one byte, and turns the writing
/// around.
const EVIL: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mred\u{9b}5A\u{202e}right";

/// A chat of one message. Nothing of what was said to the terminal meanwhile was a sequence of [`EVIL`].
#[track_caller]
fn harmless(folder: &Folder, shown: &[&str]) {
    let Some(tmux) = Tmux::open(folder, &["chat", "-c", "w"], (100, 40), &[]) else { return };
    tmux.rests();
    let raw = folder.path().join("raw.txt");
    assert!(tmux.tmux(&["pipe-pane", "-o", &format!("cat > '{}'", raw.display())]).status.success());
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     done");
    tmux.rests();
    shown.iter().for_each(|text| tmux.shows(text));
    tmux.shows("user      go");
    let title = tmux.tmux(&["display-message", "-p", "#{pane_title}"]);
    assert!(!String::from_utf8_lossy(&title.stdout).contains("owned"));
    tmux.presses(&["C-d"]);
    tmux.exits(0);
    let raw = String::from_utf8_lossy(&std::fs::read(raw).unwrap()).into_owned();
    for sequence in ["\u{1b}]0;owned", "\u{1b}[31mred", "\u{9b}", "\u{202e}"] {
        assert!(!raw.contains(sequence), "{sequence:?} is in what the terminal got");
    }
}

#[test]
fn a_hook_that_refuses_fails_or_adds_text() {
    // Once for each point: what it refuses with, what it fails with, and what it adds.
    let hook = |name: &str, on: &str, end: &str| {
        let run = format!("[ -e {name}.seen ] && exit 0; : >{name}.seen; {end}");
        format!("[[hooks]]\nuse = \"command\"\nname = \"{name}\"\non = \"{on}\"\nrun = {}\n", json!(run))
    };
    let config = [
        hook("adds", "before_agent", "cat evil.txt"),
        hook("fails", "ended", "cat evil.txt >&2; exit 7"),
        hook("discards", "after_model", "cat evil.json"),
        hook("refuses", "stop", "cat evil.txt >&2; exit 2"),
    ];
    let folder =
        Folder::with_config(r#"{ "text": "first" }, { "text": "second" }, { "text": "done" }"#, &config.concat());
    folder.file("evil.txt", EVIL);
    folder.file("evil.json", &json!({ "decision": "regenerate", "reason": EVIL }).to_string());
    harmless(&folder, &["refuses", "discards", "red"]);
}

#[test]
fn a_tool_of_an_mcp_server() {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/../turnbuckle-mcp/tests/it/server.py");
    let call = json!({ "tool_calls": [{ "id": "c1", "name": "mcp__test__echo", "arguments": { "text": EVIL } }] });
    let folder = Folder::with_config(
        &format!(r#"{call}, {{ "text": "done" }}"#),
        &format!("[[tools.mcp]]\nname = \"test\"\ncommand = [\"python3\", \"{server}\", \"good\"]\napprove = []\n"),
    );
    harmless(&folder, &["mcp__test__echo"]);
    let shown = folder.run(&["show", "w", "--json"]).exits(0).event("tool_result");
    assert!(shown["content"][0]["text"].as_str().unwrap().contains(EVIL), "the model gets it as it is: {shown}");
}
