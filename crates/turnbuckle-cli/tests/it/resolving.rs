//! An approval given later, by another process: the tool runs once.

use crate::program::Folder;

const STORE: &str = "[store]\nurl = \"sqlite:t.db\"\n";
const WRITE: &str = r#"{ "text": "I will write it. ", "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

fn waiting() -> Folder {
    let folder = Folder::with_config(WRITE, STORE);
    let ran = folder.run(&["run", "-c", "w", "write it"]).exits(4).prints("");
    let ran = ran.says("c1 (approval of write_file(a.txt, x))").says("hint: `turnbuckle resolve w c1 --approve`");
    assert!(!ran.err.contains("forgets"));
    folder
}

#[test]
fn approved_it_runs_once_and_the_turn_goes_on() {
    let folder = waiting();
    assert_eq!(folder.read("a.txt"), "");
    folder
        .run(&["resolve", "w", "c1", "--approve"])
        .exits(0)
        .prints("done\n")
        .says("c1: approved by user local")
        .says("dispatch  write_file(a.txt, …) = ")
        .says("build     3 messages");
    assert_eq!(folder.read("a.txt"), "x");
    folder.run(&["resolve", "w", "c1", "--approve"]).exits(1).prints("").says("stale").says("hint: ");
    let events = folder.run(&["show", "w", "--json"]).exits(0).types();
    assert_eq!(events.iter().filter(|kind| *kind == "tool_started").count(), 1);
}

#[test]
fn denied_it_does_not_run_and_the_model_reads_why() {
    let folder = waiting();
    let ran = folder.run(&["resolve", "w", "c1", "--deny", "not today", "--json"]).exits(0);
    assert_eq!(ran.event("resolution")["decision"], "denied");
    assert_eq!(ran.event("tool_result")["ok"], false);
    assert!(ran.event("tool_result").to_string().contains("not today"));
    assert_eq!(folder.read("a.txt"), "");
    waiting().run(&["resolve", "w", "c1", "--deny"]).exits(0).prints("done\n");
}

#[test]
fn a_question_is_answered_with_json() {
    let ask = r#"{ "tool_calls": [{ "id": "q", "name": "ask_human", "arguments": { "question": "Which?" } }] }"#;
    let folder = Folder::with_script(&format!(r#"{ask}, {{ "text": "so be it" }}"#));
    let store = "sqlite:t.db";
    let ran = folder.run(&["run", "-c", "w", "--store", store, "choose"]).exits(4);
    ran.says("`turnbuckle resolve w q --answer JSON --store sqlite:t.db`");
    folder.run(&["resolve", "w", "q", "--answer", "blue", "--store", store]).exits(2).says("not JSON").says("quotes");
    folder.run(&["resolve", "w", "q", "--approve", "--store", store]).exits(1).says("wants an answer");
    let ran = folder.run(&["resolve", "w", "q", "--answer", "\"blue\"", "--store", store]).exits(0);
    ran.prints("so be it\n").says("blue");
}

#[test]
fn a_waiting_turn_is_busy() {
    let folder = waiting();
    for more in [&["run", "-c", "w", "more"][..], &["run", "-c", "w"]] {
        let ran = folder.run(more).exits(1).prints("");
        ran.says("w is busy: its turn waits for c1").says("hint: `turnbuckle resolve w c1 --approve`");
    }
    folder.run(&["resolve", "w", "c1", "--approve"]).exits(0).prints("done\n");
}

#[test]
fn what_is_not_there_cannot_be_resolved() {
    let folder = waiting();
    folder.run(&["resolve", "w", "c9", "--approve"]).exits(1).says("stale");
    folder.run(&["resolve", "nobody", "c1", "--approve"]).exits(1).says("there is no conversation nobody");
    let ran = folder.run(&["resolve", "w", "c1", "--approve", "--store", "sqlite:gone.db"]).exits(1);
    ran.says("there is no database gone.db");
    assert!(!folder.path().join("gone.db").exists());
    folder.run(&["resolve", "w", "c1", "--approve", "--store", "memory:"]).exits(1).says("keeps nothing");
    for bad in [&["resolve", "w", "c1"][..], &["resolve", "w", "c1", "--approve", "--deny"], &["resolve", "w"]] {
        folder.run(bad).exits(2).prints("").says("error: ");
    }
}
