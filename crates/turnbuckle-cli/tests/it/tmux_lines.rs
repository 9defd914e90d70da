//! A chat for somebody who listens to the screen: line by line, nothing is drawn twice, and everything can be done that a drawn chat can do.

use std::time::Duration;

use crate::program::Folder;
use crate::tmux_pane::Tmux;

fn chat(folder: &Folder) -> Option<Tmux> {
    let tmux = Tmux::open(folder, &["chat", "-c", "w"], (100, 40), &[("TURNBUCKLE_SCREEN_READER", "1")])?;
    tmux.shows("A line is a message, /help says more.");
    Some(tmux)
}

fn enters(tmux: &Tmux, line: &str) {
    tmux.types(line);
    tmux.presses(&["Enter"]);
}

/// A line that was typed before the question could be read is no answer.
fn answers(tmux: &Tmux, line: &str) {
    std::thread::sleep(Duration::from_millis(700));
    enters(tmux, line);
}

fn write(id: &str, name: &str) -> String {
    let arguments = format!(r#"{{ "path": "{name}", "content": "1" }}"#);
    format!(r#"{{ "tool_calls": [{{ "id": "{id}", "name": "write_file", "arguments": {arguments} }}] }}"#)
}

#[test]
fn somebody_who_listens_has_the_commands_and_the_answers_of_a_drawn_chat() {
    let (first, second) = (write("c1", "a.txt"), write("c2", "a.txt"));
    let folder =
        Folder::with_script(&format!(r#"{first}, {{ "text": "all done" }}, {second}, {{ "text": "done again" }}"#));
    let Some(tmux) = chat(&folder) else { return };
    enters(&tmux, "/tools");
    tmux.shows("write_file (asks first)");
    enters(&tmux, "write it");
    tmux.shows("a approves, d denies, e edits the arguments, A approves always");
    answers(&tmux, "A");
    tmux.shows("1  this file, whatever is written into it");
    tmux.shows("3  any file of the project");
    answers(&tmux, "1");
    tmux.shows("all done");
    enters(&tmux, "again");
    tmux.shows("done again");
    assert_eq!(tmux.all().matches("may write_file run?").count(), 1, "{}", tmux.all());
    enters(&tmux, "/permissions");
    tmux.shows("always    s_");
    enters(&tmux, "/cost");
    tmux.shows("2 turns shown here");
    enters(&tmux, "/undo");
    tmux.shows("put back: a.txt");
    enters(&tmux, "!echo from the shell");
    tmux.shows("the next message has this output");
    enters(&tmux, "/clear");
    tmux.shows("conversation c_");
    enters(&tmux, "/resume");
    tmux.shows("1  w  write it");
    enters(&tmux, "what was it?");
    tmux.shows("not sent: what was it?");
    enters(&tmux, "1");
    tmux.until("the first conversation is back", |pane| pane.matches("conversation w").count() == 2);
    enters(&tmux, "/exit");
    tmux.exits(0);
}

#[test]
fn somebody_who_listens_denies_with_a_reason_and_edits_arguments() {
    let folder = Folder::with_script(&format!(
        r#"{}, {{ "text": "all done" }}, {}, {{ "text": "done again" }}"#,
        write("c1", "a.txt"),
        write("c2", "b.txt")
    ));
    let Some(tmux) = chat(&folder) else { return };
    enters(&tmux, "write it");
    tmux.shows("a approves, d denies");
    answers(&tmux, "d");
    tmux.shows("why not?");
    enters(&tmux, "not today");
    tmux.shows("c1: denied by user local");
    tmux.shows("all done");
    enters(&tmux, "again");
    tmux.until("the second question stands", |pane| pane.matches("a approves, d denies").count() == 2);
    answers(&tmux, "e");
    tmux.shows("the next line is the arguments as JSON");
    enters(&tmux, r#"{"path": "c.txt", "content": "2"}"#);
    tmux.shows("done again");
    assert_eq!(
        (folder.read("a.txt"), folder.read("b.txt"), folder.read("c.txt")),
        (String::new(), String::new(), "2".to_owned())
    );
}

#[test]
fn ctrl_c_cancels_the_turn_of_somebody_who_listens_and_the_chat_goes_on() {
    let words = "\"word \",".repeat(2000);
    let folder =
        Folder::with_script(&format!(r#"{{ "chunks": [{words}"end"], "delay_ms": 60 }}, {{ "text": "all done" }}"#));
    let Some(tmux) = chat(&folder) else { return };
    enters(&tmux, "go");
    tmux.shows("word word");
    tmux.presses(&["C-c"]);
    tmux.shows("cancelled by user local");
    enters(&tmux, "again");
    tmux.shows("all done");
    tmux.presses(&["C-c"]);
    tmux.shows("Ctrl-C again leaves");
    tmux.presses(&["C-c"]);
    tmux.exits(130);
}

#[test]
fn what_was_typed_before_a_question_was_shown_is_no_answer_to_it() {
    let call = write("c1", "a.txt").replacen('{', r#"{ "delay_ms": 1500, "#, 1);
    let folder = Folder::with_script(&format!(r#"{call}, {{ "text": "all done" }}"#));
    let Some(tmux) = chat(&folder) else { return };
    for line in ["write it", "yes", "a"] {
        enters(&tmux, line);
    }
    tmux.shows("typed before this was asked, so it is no answer and was not sent: yes");
    tmux.shows("typed before this was asked, so it is no answer and was not sent: a");
    assert_eq!(folder.read("a.txt"), "");
    answers(&tmux, "a");
    tmux.shows("all done");
    assert_eq!(folder.read("a.txt"), "1");
}

#[test]
fn a_ctrl_c_that_came_too_late_to_cancel_the_turn_is_forgotten_and_a_sigterm_is_not() {
    let hook =
        "[[hooks]]\nuse = \"command\"\nname = \"slow\"\non = \"ended\"\nrun = \"touch ending; sleep 2; touch over\"\n";
    let folder = Folder::with_config(r#"{ "text": "one" }, { "text": "two" }"#, hook);
    let Some(tmux) = chat(&folder) else { return };
    enters(&tmux, "go");
    tmux.until("the hook runs", |_| folder.path().join("ending").exists());
    tmux.presses(&["C-c"]);
    tmux.shows("waiting for hooks that run after the turn");
    tmux.until("the hook is done", |_| folder.path().join("over").exists());
    std::thread::sleep(Duration::from_millis(500));
    tmux.presses(&["C-c"]);
    tmux.shows("Ctrl-C again leaves");
    for made in ["ending", "over"] {
        std::fs::remove_file(folder.path().join(made)).unwrap();
    }
    enters(&tmux, "again");
    tmux.until("the hook runs again", |_| folder.path().join("ending").exists());
    tmux.sends("-TERM");
    tmux.exits(130);
}

#[test]
fn after_a_turn_that_was_cancelled_another_conversation_can_be_begun() {
    let words = "\"word \",".repeat(2000);
    let folder = Folder::with_script(&format!(r#"{{ "chunks": [{words}"end"], "delay_ms": 60 }}"#));
    let Some(tmux) = chat(&folder) else { return };
    enters(&tmux, "go");
    tmux.shows("word word");
    tmux.presses(&["C-c"]);
    tmux.shows("cancelled by user local");
    enters(&tmux, "/clear");
    tmux.shows("conversation c_");
    enters(&tmux, "/exit");
    tmux.exits(130);
}
