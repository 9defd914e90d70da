//! The chat in a real terminal with real key strokes: tmux types, and its pane is what a person would see.

use crate::program::Folder;
use crate::tmux_pane::{READ, Tmux};

const EDIT: &str = r#"{ "text": "I will.", "tool_calls": [ { "id": "c1", "name": "edit_file",
    "arguments": { "path": "a.txt", "old": "two", "new": "TWO" } } ] }, { "text": "done" }, { "text": "again" }"#;

fn editor() -> Folder {
    let folder = Folder::with_script(EDIT);
    folder.file("a.txt", "one\ntwo\nthree\n");
    folder
}

fn chat(folder: &Folder) -> Option<Tmux> {
    Tmux::open(folder, &["chat", "-c", "w"], (100, 40), &[])
}

/// Up to the question.
#[track_caller]
fn asked(tmux: &Tmux, text: &str) {
    tmux.rests();
    tmux.types(text);
    tmux.presses(&["Enter"]);
    tmux.shows("a approves");
    std::thread::sleep(READ);
}

#[test]
fn the_program_alone_plays_its_story_and_then_chats() {
    let folder = Folder::new();
    let Some(tmux) = Tmux::open(&folder, &[], (100, 50), &[("TURNBUCKLE_DEMO_PACE", "0")]) else { return };
    tmux.shows("the turn and the hooks on it");
    tmux.shows("refuse");
    tmux.rests();
    tmux.types("hi");
    tmux.presses(&["Enter"]);
    tmux.shows("I am the demo model");
    tmux.rests();
    tmux.presses(&["C-d"]);
    tmux.exits(0);
}

#[test]
fn an_edit_is_approved_by_a_key_after_its_diff_was_shown() {
    let folder = editor();
    let Some(tmux) = chat(&folder) else { return };
    asked(&tmux, "edit it");
    for line in ["may edit_file run?", "--- a/a.txt", "-two", "+TWO"] {
        tmux.shows(line);
    }
    assert_eq!(folder.read("a.txt"), "one\ntwo\nthree\n", "looking changes nothing");
    // With something typed, no key is an answer.
    tmux.types("x");
    tmux.types("a");
    tmux.shows("› xa");
    tmux.presses(&["BSpace", "BSpace"]);
    tmux.lacks("› xa");
    tmux.types("a");
    tmux.shows("c1: approved by user local");
    tmux.shows("✓ edit_file(a.txt, two, TWO)");
    tmux.shows("agent     done");
    assert_eq!(folder.read("a.txt"), "one\nTWO\nthree\n");
    tmux.rests();
    tmux.types("/undo");
    tmux.presses(&["Enter"]);
    tmux.shows("put back: a.txt");
    assert_eq!(folder.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn a_call_is_denied_with_a_reason() {
    let folder = editor();
    let Some(tmux) = chat(&folder) else { return };
    asked(&tmux, "edit it");
    tmux.types("d");
    tmux.shows("why not ›");
    tmux.types("not today");
    tmux.presses(&["Enter"]);
    tmux.shows("c1: denied by user local");
    tmux.shows("not today");
    tmux.shows("agent     done");
    assert_eq!(folder.read("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn arguments_are_edited_before_they_run() {
    let folder = editor();
    let Some(tmux) = chat(&folder) else { return };
    asked(&tmux, "edit it");
    tmux.types("e");
    tmux.shows("arguments ›");
    tmux.shows("\"new\": \"TWO\"");
    tmux.presses(&["-N", "200", "BSpace"]);
    tmux.lacks("\"new\": \"TWO\"");
    tmux.types(r#"{"path": "a.txt", "old": "one", "new": "ONE"}"#);
    tmux.presses(&["Enter"]);
    tmux.shows("with other arguments");
    tmux.shows("✓ edit_file(a.txt, one, ONE)");
    tmux.shows("agent     done");
    assert_eq!(folder.read("a.txt"), "ONE\ntwo\nthree\n");
}

#[test]
fn a_command_that_fails_shows_how_it_ended() {
    let command = "seq 1 100; echo error: no such thing; exit 3";
    let call = format!(r#"{{ "id": "c1", "name": "shell", "arguments": {{ "command": "{command}" }} }}"#);
    let folder = Folder::with_script(&format!(r#"{{ "tool_calls": [{call}] }}, {{ "text": "done" }}"#));
    let Some(tmux) = chat(&folder) else { return };
    asked(&tmux, "run it");
    tmux.types("a");
    tmux.shows("… 96 lines before");
    tmux.shows("          error: no such thing");
    tmux.shows("          [exit status: 3]");
    let again = Folder::with_script(&format!(r#"{{ "tool_calls": [{call}] }}, {{ "text": "done" }}"#));
    let ran = again.run(&["run", "--allow", "shell", "go"]).exits(0);
    ran.says("! 1 … error: no such thing⏎[exit status: 3] (102 lines)");
}

#[test]
fn a_rule_approves_always_and_is_listed_and_revoked() {
    let write = |id: &str| {
        format!(
            r#"{{ "tool_calls": [ {{ "id": "{id}", "name": "write_file", "arguments": {{ "path": "b.txt", "content": "1" }} }} ] }}"#
        )
    };
    let folder = Folder::with_script(&format!(
        r#"{}, {{ "text": "first" }}, {}, {{ "text": "second" }}"#,
        write("c1"),
        write("c2")
    ));
    let Some(tmux) = chat(&folder) else { return };
    asked(&tmux, "write");
    tmux.types("A");
    tmux.shows("always    ");
    tmux.shows("rule 1 of 3 ›");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     first");
    tmux.rests();
    tmux.types("again");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     second");
    assert_eq!(tmux.all().matches("may write_file run?").count(), 1, "it was not asked about again");
    tmux.rests();
    tmux.types("/permissions");
    tmux.presses(&["Enter"]);
    tmux.until("the rule is listed", |pane| pane.matches("write_file").count() > 4 || pane.contains("always    s"));
}

fn slow(chunks: usize) -> String {
    format!(r#"{{ "chunks": [{}"end"], "delay_ms": 60 }}"#, "\"word \",".repeat(chunks))
}

#[test]
fn ctrl_c_cancels_the_turn_and_again_leaves() {
    let folder = Folder::with_script(&slow(3000));
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("word word");
    tmux.presses(&["C-c"]);
    tmux.shows("cancelling the turn");
    tmux.shows("cancelled by user local");
    tmux.presses(&["C-c"]);
    tmux.exits(130);
}

#[test]
fn escape_interrupts_and_what_is_queued_comes_back() {
    let folder = Folder::with_script(&format!(r#"{}, {{ "text": "second answer" }}"#, slow(3000)));
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("word word");
    tmux.types("and then");
    tmux.presses(&["Enter"]);
    tmux.shows("queued    and then");
    tmux.presses(&["Up"]);
    tmux.lacks("queued    and then");
    tmux.shows("› and then");
    tmux.presses(&["Enter"]);
    tmux.shows("queued    and then");
    tmux.presses(&["Escape"]);
    tmux.shows("interrupting the turn");
    tmux.shows("cancelled by user local");
    tmux.shows("› and then");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     second answer");
}

#[test]
fn escape_brings_back_what_was_meant_for_the_turn_that_runs() {
    let folder = Folder::with_script(&format!(r#"{}, {{ "text": "second answer" }}"#, slow(3000)));
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("word word");
    tmux.types("not there");
    tmux.presses(&["C-s"]);
    tmux.shows("steering  not there");
    tmux.types("and then");
    tmux.presses(&["Enter"]);
    tmux.shows("queued    and then");
    tmux.presses(&["Escape"]);
    tmux.shows("cancelled by user local");
    tmux.shows("› not there");
    tmux.shows("and then");
    tmux.lacks("steering  not there");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let said = folder.run(&["show", "w", "--json"]).exits(0).out;
    assert_eq!(said.matches(r#""type":"user_message""#).count(), 1, "no turn began with it: {said}");
}

/// Sends a reply back once, and lets the next one stand.
const ONCE: &str = r#"if [ -e seen ]; then exit 0; fi
: >seen
printf '{"decision":"regenerate","reason":"say please"}'"#;

#[test]
fn a_discarded_attempt_is_struck_out_and_then_removed() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"manners\"\non = \"after_model\"\nrun = \"sh once.sh\"\n";
    let folder = Folder::with_config(
        r#"{ "text": "give me that" }, { "chunks": ["please, ", "that"], "delay_ms": 2000 }"#,
        hook,
    );
    folder.file("once.sh", ONCE);
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     give me that");
    tmux.shows("attempt 1 is taken back by hook manners: say please");
    tmux.lacks("give me that");
    tmux.shows("agent     please, that");
    tmux.rests();
    let pane = tmux.all();
    let place = |text: &str| pane.find(text).unwrap_or_else(|| panic!("{text:?} is not in\n{pane}"));
    assert!(place("manners: regenerate") < place("attempt 1 is taken back"), "{pane}");
    assert!(place("attempt 1 is taken back") < place("agent     please, that"), "{pane}");
}

#[test]
fn the_plan_is_shown_while_it_is_carried_out() {
    let todo = |id: &str, done: bool| {
        format!(
            r#"{{ "chunks": ["well "], "delay_ms": 900, "tool_calls": [ {{ "id": "{id}", "name": "todo", "arguments": {{ "items": [
                {{ "text": "read the code", "done": true }}, {{ "text": "write the tests", "done": {done} }} ] }} }} ] }}"#
        )
    };
    let slow = slow(12);
    let folder = Folder::with_script(&format!(
        r#"{}, {slow}, {}, {{ "text": "all done" }}"#,
        todo("c1", false),
        todo("c2", true)
    ));
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("plan      ☐ write the tests");
    tmux.shows("1 of 2 done");
    tmux.rests();
    tmux.types("on");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     all done");
    tmux.lacks("☐ write the tests");
}

#[test]
fn ctrl_s_gives_a_message_to_the_turn_that_runs() {
    let call = r#"{ "chunks": ["one ", "two ", "three "], "delay_ms": 700, "tool_calls": [ { "id": "c1", "name": "list_files", "arguments": {} } ] }"#;
    let folder = Folder::with_script(&format!(r#"{call}, {{ "text": "as you wish" }}"#));
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     one");
    tmux.types("be brief");
    tmux.presses(&["C-s"]);
    tmux.shows("agent     as you wish");
    tmux.rests();
    let shown = folder.run(&["show", "w", "--json"]).exits(0).events();
    let messages: Vec<_> = shown.iter().filter(|event| event["type"] == "user_message").collect();
    assert_eq!(messages.len(), 2);
    assert_eq!(messages[0]["turn"], messages[1]["turn"], "it is part of the turn: {messages:?}");
}

#[test]
fn a_chat_that_was_killed_is_resumed_with_its_question() {
    let folder = editor();
    let Some(tmux) = chat(&folder) else { return };
    asked(&tmux, "edit it");
    tmux.kills();
    drop(tmux);
    let Some(tmux) = chat(&folder) else { return };
    tmux.shows("may edit_file run?");
    tmux.shows("+TWO");
    tmux.shows("a approves");
    std::thread::sleep(READ);
    tmux.types("a");
    tmux.shows("✓ edit_file(a.txt, two, TWO)");
    tmux.shows("agent     done");
    assert_eq!(folder.read("a.txt"), "one\nTWO\nthree\n");
}

#[test]
fn a_paste_of_ten_thousand_lines_is_folded_and_sent_whole() {
    let folder = Folder::with_script(r#"{ "text": "thank you" }"#);
    let file = folder.file("paste.txt", &"a\n".repeat(10_000));
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    assert!(tmux.tmux(&["load-buffer", file.to_str().unwrap()]).status.success());
    assert!(tmux.tmux(&["paste-buffer", "-p"]).status.success());
    tmux.shows("[10000 pasted lines]");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     thank you");
    let shown = folder.run(&["show", "w", "--json"]).exits(0);
    assert_eq!(shown.event("user_message")["content"][0]["text"].as_str().unwrap().lines().count(), 10_000);
}

#[test]
fn it_works_in_40_columns_and_when_the_terminal_changes_its_size_in_mid_stream() {
    let text = "A paragraph of some length, which is wrapped in a narrow terminal.";
    let folder = Folder::with_script(&format!(
        r#"{{ "chunks": ["{text} ", "{text}\n\n", "| left | right |\n|---|---|\n", "| one | two |\n\n", "The end."], "delay_ms": 600 }}"#
    ));
    let Some(tmux) = Tmux::open(&folder, &["chat", "-c", "w"], (40, 20), &[]) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("A paragraph of some");
    assert!(tmux.tmux(&["resize-window", "-x", "70", "-y", "25"]).status.success());
    tmux.shows("left");
    assert!(tmux.tmux(&["resize-window", "-x", "30", "-y", "15"]).status.success());
    tmux.shows("The end.");
    tmux.rests();
    tmux.until("the prompt stands there once", |_| {
        let pane = tmux.pane(&[]);
        pane.lines().filter(|line| line.trim_end() == "›").count() == 1
    });
    tmux.types("x");
    tmux.shows("› x");
}

#[test]
fn nothing_is_coloured_where_nobody_wants_colours() {
    let text = r##"{ "text": "# Title\n\n**bold** `code`\n\n```rust\nfn main() {}\n```\n" }"##;
    let folder = Folder::with_script(text);
    let coloured = |env: &[(&str, &str)]| {
        let tmux = Tmux::open(&folder, &["chat"], (80, 30), env)?;
        tmux.rests();
        tmux.types("go");
        tmux.presses(&["Enter"]);
        tmux.shows("fn main() {}");
        tmux.rests();
        Some(tmux.pane(&["-e"]).contains("\u{1b}["))
    };
    assert_ne!(coloured(&[("NO_COLOR", "1")]), Some(true));
    assert_ne!(coloured(&[("TERM", "xterm-256color")]), Some(false));
}

#[test]
fn what_a_model_or_a_file_says_does_not_steer_the_terminal() {
    let evil = r"\u001b]0;owned\u0007\u001b[2J\u001b[31mred\u009b5A\u202eright";
    let folder = Folder::with_script(&format!(
        r#"{{ "chunks": ["{evil} ", "{evil}"], "thinking": "{evil}", "tool_calls": [ {{ "id": "c1", "name": "read_file", "arguments": {{ "path": "a\nb\u001b[2J.txt" }} }} ] }}, {{ "text": "fine {evil}" }}"#
    ));
    folder.file("a\nb\u{1b}[2J.txt", "\u{1b}[2J\u{1b}]0;owned\u{7}");
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("go");
    tmux.presses(&["Enter"]);
    tmux.shows("fine");
    tmux.rests();
    let title = tmux.tmux(&["display-message", "-p", "#{pane_title}"]);
    assert!(!String::from_utf8_lossy(&title.stdout).contains("owned"));
    tmux.shows("user      go");
}

#[test]
fn files_and_commands_are_completed_and_searched() {
    let folder = Folder::with_script(r#"{ "text": "hello" }, { "text": "hello again" }"#);
    folder.file("src/deep/unusual_name.rs", "fn main() {}");
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.types("look at @unus");
    tmux.shows("@src/deep/unusual_name.rs");
    tmux.presses(&["Tab"]);
    tmux.shows("› look at @src/deep/unusual_name.rs");
    tmux.presses(&["Enter"]);
    tmux.shows("agent     hello");
    tmux.rests();
    tmux.types("/to");
    tmux.shows("/tools");
    tmux.presses(&["Tab", "Enter"]);
    tmux.shows("read_file");
    tmux.presses(&["C-r"]);
    tmux.types("unusual");
    tmux.shows("search \"unusual\"");
    tmux.shows("› look at @src/deep/unusual_name.rs");
    tmux.presses(&["Escape"]);
    tmux.lacks("search \"unusual\"");
    tmux.types("!echo out-$((40+2))");
    tmux.presses(&["Enter"]);
    tmux.shows("out-42");
    tmux.shows("the next message has this output");
    tmux.types("what was that?");
    tmux.presses(&["Enter"]);
    tmux.shows("hello again");
    let shown = folder.run(&["show", "w", "--json"]).exits(0);
    assert!(shown.out.contains("I ran `echo out-"), "{}", shown.out);
    // In the next session it is still known.
    drop(tmux);
    let Some(tmux) = chat(&folder) else { return };
    tmux.rests();
    tmux.presses(&["Up"]);
    tmux.shows("› what was that?");
}

#[test]
fn long_output_goes_through_a_pager_and_short_output_does_not() {
    let lines = "line\\n\\n".repeat(40);
    let folder = Folder::with_script(&format!(r#"{{ "text": "{lines}" }}"#));
    folder.run(&["run", "-c", "w", "go"]).exits(0);
    for (command, height, is_long) in [("show", 12, true), ("show", 200, false), ("list", 12, false)] {
        let arguments = if command == "list" { vec!["list"] } else { vec![command, "w"] };
        let pager = [("TURNBUCKLE_PAGER", "sed s/^/paged:/"), ("TERM", "xterm-256color")];
        let Some(tmux) = Tmux::open(&folder, &arguments, (80, height), &pager) else { return };
        tmux.shows("go");
        tmux.exits(0);
        assert_eq!(tmux.all().contains("paged:"), is_long, "{command} in {height} rows\n{}", tmux.all());
    }
}
