//! Questions in a real terminal: all of what is approved can be seen, in any width, and somebody who looks elsewhere is told.

use std::fs;

use crate::program::Folder;
use crate::tmux_pane::{READ, Tmux};

/// Asks for one call, and says so when it is done.
fn asking(tool: &str, arguments: &serde_json::Value) -> Folder {
    Folder::with_script(&format!(
        r#"{{ "tool_calls": [{{ "id": "c1", "name": "{tool}", "arguments": {arguments} }}] }}, {{ "text": "all done" }}"#
    ))
}

fn chat(folder: &Folder, size: (u16, u16), env: &[(&str, &str)]) -> Option<Tmux> {
    let tmux = Tmux::open(folder, &["chat", "-c", "w"], size, env)?;
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    Some(tmux)
}

#[test]
fn what_is_too_long_for_a_question_is_shown_by_a_key_and_not_approved_unseen_by_one() {
    let command: String = (0..100).map(|number| format!("echo line-{number} >> out.txt\n")).collect();
    let folder = asking("shell", &serde_json::json!({ "command": command }));
    let Some(tmux) = chat(&folder, (100, 40), &[]) else { return };
    tmux.shows("40 more lines, NOT shown");
    tmux.shows("v views all of it");
    tmux.lacks("echo line-99");
    std::thread::sleep(READ);
    tmux.types("a");
    tmux.shows("not all of it was shown: v shows the whole");
    assert!(!folder.path().join("out.txt").exists());
    tmux.types("v");
    tmux.shows("echo line-99");
    tmux.lacks("v views all of it");
    tmux.types("a");
    tmux.shows("agent     all done");
    assert_eq!(folder.read("out.txt").lines().count(), 100);
}

#[test]
fn one_key_does_not_approve_a_single_line_whose_beginning_is_off_the_screen() {
    let command = format!("echo begin > out.txt; echo {}", "word ".repeat(400));
    let folder = asking("shell", &serde_json::json!({ "command": command }));
    let Some(tmux) = chat(&folder, (60, 20), &[]) else { return };
    tmux.shows("v views all of it");
    std::thread::sleep(READ);
    tmux.types("a");
    tmux.shows("not all of it is on the screen");
    assert!(!folder.path().join("out.txt").exists());
    tmux.types("a");
    tmux.shows("agent     all done");
    assert_eq!(folder.read("out.txt"), "begin\n");
}

#[test]
fn a_long_diff_is_shown_whole_and_the_second_key_approves_it_as_it_is() {
    let content: String = (0..1000).map(|number| format!("line-{number}\n")).collect();
    let folder = asking("write_file", &serde_json::json!({ "path": "a.txt", "content": content }));
    let Some(tmux) = chat(&folder, (100, 40), &[]) else { return };
    tmux.shows("more lines, NOT shown");
    tmux.shows("v views all of it");
    tmux.lacks("+line-999");
    std::thread::sleep(READ);
    tmux.types("v");
    tmux.shows("+line-999");
    assert!(!folder.path().join("a.txt").exists());
    tmux.types("A");
    tmux.shows("rule 1 of");
    tmux.presses(&["Escape"]);
    tmux.shows("a approves");
    tmux.types("a");
    tmux.shows("agent     all done");
    assert_eq!(folder.read("a.txt").lines().count(), 1000);
    // Unseen, the same key twice says that it is meant.
    let folder = asking("write_file", &serde_json::json!({ "path": "a.txt", "content": content }));
    let Some(tmux) = chat(&folder, (100, 40), &[]) else { return };
    tmux.shows("v views all of it");
    std::thread::sleep(READ);
    tmux.types("a");
    tmux.shows("not all of it was shown");
    tmux.types("a");
    tmux.shows("agent     all done");
}

#[test]
fn all_keys_of_a_question_are_on_the_screen_in_40_columns() {
    let folder = asking("write_file", &serde_json::json!({ "path": "a.txt", "content": "x\n" }));
    let Some(tmux) = chat(&folder, (40, 20), &[]) else { return };
    for key in ["a approves", "d denies", "e edits", "A always"] {
        tmux.shows(key);
    }
    std::thread::sleep(READ);
    tmux.types("a");
    tmux.shows("all done");
}

#[test]
fn the_keys_of_a_question_are_on_a_small_screen_also_beside_a_long_plan() {
    let items: Vec<_> =
        (1..=9).map(|step| serde_json::json!({ "text": format!("step {step}"), "done": false })).collect();
    let calls = serde_json::json!([
        { "id": "c1", "name": "todo", "arguments": { "items": items } },
        { "id": "c2", "name": "write_file", "arguments": { "path": "a.txt", "content": "x\n" } },
    ]);
    let folder = Folder::with_script(&format!(r#"{{ "tool_calls": {calls} }}, {{ "text": "all done" }}"#));
    let Some(tmux) = chat(&folder, (80, 9), &[]) else { return };
    tmux.shows("step 1");
    tmux.shows("a approves · d denies · e edits · A always");
    std::thread::sleep(READ);
    tmux.types("a");
    // The beginning of the question has scrolled away.
    tmux.shows("not all of it is on the screen");
    tmux.types("a");
    tmux.shows("all done");
}

#[test]
fn a_padded_value_looks_like_no_other_field_in_any_width() {
    for width in [40, 100] {
        for filler in [" ".repeat(200), format!("{} ", "x".repeat(width - 20)), "word ".repeat(60)] {
            let value = format!("touch bad #{filler}timeout: 1");
            let folder = asking("shell", &serde_json::json!({ "command": value }));
            let Some(tmux) = chat(&folder, (u16::try_from(width).unwrap(), 40), &[]) else { return };
            tmux.shows("d denies");
            // Each row of the screen as it is, not joined with the one above.
            let rows = String::from_utf8(tmux.tmux(&["capture-pane", "-p", "-S", "-"]).stdout).unwrap();
            let forged = rows.lines().any(|row| row.trim_start().starts_with("timeout"));
            assert!(!forged && rows.contains("│"), "{rows}");
        }
    }
}

#[test]
fn the_diff_of_an_approved_edit_is_shown_once() {
    let folder = asking("edit_file", &serde_json::json!({ "path": "a.txt", "old": "two", "new": "TWO" }));
    fs::write(folder.path().join("a.txt"), "one\ntwo\n").unwrap();
    let Some(tmux) = chat(&folder, (100, 40), &[]) else { return };
    tmux.shows("+TWO");
    std::thread::sleep(READ);
    tmux.types("a");
    tmux.shows("all done");
    let pane = tmux.all();
    assert_eq!(pane.matches("+TWO").count(), 1, "{pane}");
    assert!(pane.contains("+1 −1"), "{pane}");
}

/// Two calls, one after the other, each followed by words.
fn asking_twice(tool: &str, first: &serde_json::Value, second: &serde_json::Value) -> Folder {
    let call = |id: &str, arguments: &serde_json::Value| {
        format!(r#"{{ "tool_calls": [{{ "id": "{id}", "name": "{tool}", "arguments": {arguments} }}] }}"#)
    };
    let (first, second) = (call("c1", first), call("c2", second));
    Folder::with_script(&format!(r#"{first}, {{ "text": "all done" }}, {second}, {{ "text": "done again" }}"#))
}

#[test]
fn always_offers_rules_from_narrow_to_broad_and_stores_the_one_that_is_chosen() {
    for width in [40, 100] {
        let file = |name: &str| serde_json::json!({ "path": format!("src/{name}"), "content": "x\n" });
        let folder = asking_twice("write_file", &file("a.txt"), &file("b.txt"));
        let Some(tmux) = chat(&folder, (width, 40), &[]) else { return };
        tmux.shows("A always");
        std::thread::sleep(READ);
        tmux.types("A");
        tmux.shows("rule 1 of 4 ›");
        tmux.presses(&["Escape"]);
        tmux.shows("A always");
        assert!(!folder.path().join("src/a.txt").exists());
        tmux.types("A");
        tmux.shows("rule 1 of 4 ›");
        if width == 100 {
            tmux.shows("› 1 this file, whatever is written into it: path = \"src/a.txt\"");
            tmux.shows("2 files of its folder: what write_file(src/*) allows");
            tmux.shows("3 files of its folder and of the folders below: what");
            tmux.shows("4 any file of the project: what write_file(**) allows");
        }
        tmux.presses(&["Down"]);
        tmux.shows("rule 2 of 4 ›");
        tmux.presses(&["Enter"]);
        tmux.shows("all done");
        let listed = folder.run(&["approvals"]).exits(0).out;
        assert!(listed.contains("may call write_file with what write_file(src/*) allows for user"), "{listed}");
        tmux.rests();
        tmux.types("again");
        tmux.presses(&["Enter"]);
        tmux.shows("done again");
        assert_eq!(tmux.all().matches("may write_file run?").count(), 1, "it was not asked about again");
    }
}

#[test]
fn a_command_is_offered_with_its_parsed_rule_and_a_trick_is_asked_about() {
    let command = |command: &str| serde_json::json!({ "command": command });
    let folder = asking_twice("shell", &command("echo one"), &command("echo one; touch bad"));
    let Some(tmux) = chat(&folder, (100, 40), &[]) else { return };
    tmux.shows("A always");
    std::thread::sleep(READ);
    tmux.types("A");
    tmux.shows("what shell(echo *) allows");
    tmux.types("2");
    tmux.shows("rule 2 of 2 ›");
    tmux.presses(&["Enter"]);
    tmux.shows("all done");
    tmux.rests();
    tmux.types("again");
    tmux.presses(&["Enter"]);
    tmux.until("it is asked about", |pane| pane.matches("may shell run?").count() == 2);
    assert!(!folder.path().join("bad").exists());
}

#[test]
fn a_conversation_is_picked_from_the_last_ones() {
    let folder = Folder::with_script(r#"{ "text": "hello" }, { "text": "hello again" }"#);
    for (id, words) in [("old", "mend the parser"), ("new", "write the manual")] {
        folder.run(&["run", "-c", id, words]).exits(0);
    }
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c"], (100, 30), &[]) else { return };
    tmux.shows("1  new  write the manual");
    tmux.shows("2  old  mend the parser");
    tmux.shows("number, or Esc for a new one ›");
    tmux.types("2");
    tmux.presses(&["Enter"]);
    tmux.shows("conversation old.");
    tmux.rests();
    tmux.types("go on");
    tmux.presses(&["Enter"]);
    tmux.shows("hello again");
    let shown = folder.run(&["show", "old", "--json"]).exits(0);
    assert!(shown.out.contains("go on"), "{}", shown.out);
    folder.run(&["chat", "-c"]).exits(2).says("`-c` without an id lets you choose, and there is no terminal for that");
}

#[test]
fn the_choice_of_a_conversation_shows_which_waits_and_picking_none_is_said() {
    let call =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } }] }"#;
    let folder = Folder::with_script(call);
    folder.run(&["run", "-c", "till", "pay it back"]).exits(4);
    for key in ["Enter", "Escape"] {
        let Some(tmux) = Tmux::open(&folder, &["chat", "-c"], (100, 30), &[]) else { return };
        tmux.shows("1  till  pay it back  [waits for an answer]");
        tmux.shows("number, or Esc for a new one ›");
        tmux.presses(&[key]);
        tmux.shows("a new conversation: c_");
        tmux.rests();
        tmux.presses(&["C-d"]);
        tmux.exits(0);
    }
    let folder = Folder::with_script(r#"{ "text": "hello" }"#);
    for id in ["old", "new"] {
        folder.run(&["run", "-c", id, "hi"]).exits(0);
    }
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "new"], (100, 30), &[]) else { return };
    tmux.rests();
    tmux.types("/resume");
    tmux.presses(&["Enter"]);
    tmux.shows("number, or Esc to stay here ›");
    tmux.presses(&["Escape"]);
    tmux.shows("this conversation goes on: new");
}

#[test]
fn the_desktop_is_told_that_somebody_is_waited_for_only_if_the_terminal_lost_the_focus() {
    for (focus, expected) in [("\u{1b}[O", true), ("\u{1b}[O\u{1b}[I", false)] {
        let slow = r#"{ "chunks": ["one ", "two "], "delay_ms": 1500, "tool_calls": [ { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }"#;
        let folder = Folder::with_script(slow);
        let env = [("TURNBUCKLE_NOTIFY", "osc9")];
        let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (100, 30), &env) else { return };
        tmux.rests();
        let raw = folder.path().join("raw.txt");
        let pipe = format!("cat > '{}'", raw.display());
        assert!(tmux.tmux(&["pipe-pane", "-o", &pipe]).status.success());
        tmux.types("go");
        tmux.presses(&["Enter"]);
        tmux.shows("agent     one");
        tmux.types(focus);
        tmux.shows("a approves");
        let written = || String::from_utf8_lossy(&fs::read(&raw).unwrap_or_default()).into_owned();
        tmux.until("the terminal was told", |_| written().contains(if expected { "\u{1b}]9;" } else { "\u{7}" }));
        assert_eq!(written().contains("\u{1b}]9;Turnbuckle waits for your answer\u{1b}\\"), expected);
        // The answer is typed as before: what the terminal reports is no key.
        std::thread::sleep(READ);
        tmux.types("d");
        tmux.shows("why not ›");
    }
}

#[test]
fn what_an_mcp_server_asks_is_answered_in_the_chat_and_sent_only_when_it_was_seen() {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/../turnbuckle-mcp/tests/it/server.py");
    let script = r#"{ "tool_calls": [{ "id": "c1", "name": "mcp__test__echo", "arguments": { "text": "ask" } }] }, { "text": "all done" },
        { "tool_calls": [{ "id": "c2", "name": "mcp__test__echo", "arguments": { "text": "ask" } }] }, { "text": "done again" }"#;
    let config =
        format!("[[tools.mcp]]\nname = \"test\"\ncommand = [\"python3\", {server:?}, \"good\"]\napprove = []\n");
    let folder = Folder::with_config(script, &config);
    let Some(tmux) = chat(&folder, (100, 40), &[]) else { return };
    tmux.shows("the MCP server test asks you: What is your password?");
    tmux.shows("p ›");
    tmux.types("not a real one");
    tmux.presses(&["Enter"]);
    tmux.shows(r#"test would get {"p":"not a real one"}"#);
    tmux.types("y");
    tmux.presses(&["Enter"]);
    tmux.shows("sent to the MCP server test");
    tmux.shows("agent     all done");
    tmux.rests();
    tmux.types("again");
    tmux.presses(&["Enter"]);
    tmux.until("it asks again", |pane| pane.matches("asks you: What is your password?").count() == 2);
    tmux.presses(&["Escape"]);
    tmux.shows("declined to answer the MCP server test");
    tmux.shows("agent     done again");
    tmux.rests();
    let shown = folder.run(&["show", "w", "--json"]).exits(0).out;
    assert!(shown.contains("the answer was accept") && shown.contains("not a real one"), "{shown}");
    assert!(shown.contains("the answer was decline"), "{shown}");
}

#[test]
fn a_stray_key_at_a_question_denies_nothing_and_escape_clears_what_was_typed() {
    let folder = asking("write_file", &serde_json::json!({ "path": "a.txt", "content": "x" }));
    let Some(tmux) = chat(&folder, (100, 40), &[]) else { return };
    tmux.shows("a approves");
    std::thread::sleep(READ);
    tmux.types("v");
    tmux.shows("all of it is shown already");
    tmux.types("no, not ther");
    tmux.shows("Enter denies with this reason");
    tmux.shows("Esc clears");
    tmux.presses(&["Escape"]);
    tmux.lacks("no, not ther");
    tmux.shows("a approves");
    tmux.types("yes");
    tmux.shows("Enter approves");
    tmux.presses(&["Escape"]);
    tmux.lacks("Enter approves");
    tmux.types("a");
    tmux.shows("agent     all done");
    assert_eq!(folder.read("a.txt"), "x");
}
