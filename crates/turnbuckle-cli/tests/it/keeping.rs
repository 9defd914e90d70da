//! A store in a file: conversations go on in another process, and what a crash left open is finished.

use std::time::{Duration, Instant};

use crate::program::{Folder, Ran};

const STORE: &str = "[store]\nurl = \"sqlite:kept/here.db\"\n";

#[test]
fn a_conversation_goes_on_in_another_process() {
    let folder = Folder::with_config(r#"{ "text": "one" }, { "text": "two" }"#, STORE);
    folder.run(&["run", "-c", "talk", "first"]).exits(0).prints("one\n");
    assert!(folder.path().join("kept/here.db").is_file());
    let ran = folder.run(&["run", "-c", "talk", "--json", "second"]).exits(0);
    // The earlier turn is not told again.
    assert_eq!(ran.event("user_message")["seq"], 4);
    assert_eq!(ran.event("assistant_message")["content"][0]["text"], "two");
}

#[test]
fn the_option_wins_over_the_file() {
    let folder = Folder::with_config(r#"{ "text": "one" }"#, STORE);
    folder.run(&["run", "--store", "sqlite:other.db", "hi"]).exits(0);
    assert!(folder.path().join("other.db").is_file() && !folder.path().join("kept").exists());
    folder.run(&["run", "--store", "memory:", "hi"]).exits(0);
    assert!(!folder.path().join("kept").exists());
}

#[test]
fn by_default_conversations_are_kept_in_a_folder_that_keeps_itself_out_of_git() {
    let folder = Folder::with_script(r#"{ "text": "one" }, { "text": "two" }"#);
    folder.run(&["list"]).exits(1).says("there is no database .turnbuckle/turnbuckle.db");
    assert!(!folder.path().join(".turnbuckle").exists(), "looking makes nothing");
    folder.run(&["run", "-c", "talk", "first"]).exits(0).prints("one\n");
    assert!(folder.path().join(".turnbuckle/turnbuckle.db").is_file());
    assert_eq!(folder.read(".turnbuckle/.gitignore"), "*\n");
    folder.run(&["run", "-c", "talk", "second"]).exits(0).prints("two\n");
    let mine = Folder::with_script(r#"{ "text": "one" }"#);
    mine.file(".turnbuckle/notes", "");
    mine.run(&["run", "hi"]).exits(0);
    assert!(!mine.path().join(".turnbuckle/.gitignore").exists(), "a folder that was there is left alone");
}

#[test]
fn of_two_at_once_one_is_told_that_the_conversation_is_busy() {
    let folder = Folder::with_script(r#"{ "chunks": ["a", "b"], "delay_ms": 1000 }, { "text": "never" }"#);
    let both = [(); 2].map(|()| folder.command(&["run", "-c", "talk", "hi"]).spawn().unwrap());
    let mut ran = both.map(|child| Ran::from(child.wait_with_output().unwrap()));
    ran.sort_by_key(|ran| ran.code);
    let [won, lost] = ran;
    won.exits(0).prints("ab\n");
    lost.exits(1).prints("").says("talk is busy").says("hint: ");
    let events = folder.run(&["show", "talk", "--json"]).exits(0).types();
    assert_eq!(events.iter().filter(|kind| *kind == "user_message").count(), 1);
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = Folder::with_script(r#"{ "text": "one" }"#);
    folder.file("notes.txt", "mine");
    folder.run(&["run", "--store", "sqlite:notes.txt", "hi"]).exits(1).says("is not a Turnbuckle database");
    assert_eq!(folder.read("notes.txt"), "mine");
}

#[test]
fn without_a_message_nothing_is_done_where_nothing_is_open() {
    let folder = Folder::with_config(r#"{ "text": "one" }"#, STORE);
    folder.run(&["run", "-c", "talk"]).exits(1).says("there is no database");
    assert!(!folder.path().join("kept").exists());
    folder.run(&["run", "-c", "talk", "hi"]).exits(0);
    folder.run(&["run", "-c", "talk"]).exits(0).prints("").says("talk has no open turn");
    folder.run(&["run", "-c", "other"]).exits(1).says("there is no conversation other");
    folder.run(&["run", "-c", "talk", ""]).exits(2).says("the message is empty");
}

/// A turn killed while its second model call hangs.
fn killed() -> Folder {
    let call = r#"{ "tool_calls": [{ "id": "c1", "name": "list_files", "arguments": {} }] }"#;
    let folder = Folder::with_config(&format!(r#"{call}, {{ "text": "slow", "delay_ms": 60000 }}"#), STORE);
    let mut child = folder.command(&["run", "-c", "talk", "hi"]).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while !folder.run(&["show", "talk", "--json"]).out.contains("tool_result") {
        assert!(Instant::now() < patience, "the tool never ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    let busy = folder.run(&["run", "-c", "talk", "more"]).exits(1);
    busy.says("talk is busy: another process carries its turn on").says("hint: try again").says("cancel talk`");
    child.kill().unwrap();
    child.wait().unwrap();
    folder.file(
        "script.json",
        &format!(r#"{{"replies": [{call}, {{ "text": "finished" }}, {{ "text": "and more" }}]}}"#),
    );
    folder
}

#[test]
fn a_turn_that_a_crash_left_open_is_finished() {
    let folder = killed();
    folder.run(&["run", "-c", "talk"]).exits(0).prints("finished\n");
    folder.run(&["run", "-c", "talk"]).exits(0).prints("").says("has no open turn");
}

#[test]
fn a_message_waits_until_the_open_turn_is_finished() {
    let folder = killed();
    let ran = folder.run(&["run", "-c", "talk", "--json", "more"]).exits(0);
    let kinds = ran.types();
    let logged: Vec<&str> = kinds.iter().map(String::as_str).filter(|kind| kind.contains("message")).collect();
    assert_eq!(logged, ["assistant_message", "user_message", "assistant_message"]);
    assert_eq!(kinds.iter().filter(|kind| *kind == "turn_ended").count(), 2);
}
