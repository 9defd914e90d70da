//! A call that needs approval waits, and the program says for what.

use crate::program::Folder;

const WRITE: &str = r#"{ "text": "I will write it. ", "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

#[test]
fn changing_tools_need_approval_unless_the_configuration_says_otherwise() {
    let folder = Folder::with_script(WRITE);
    let ran = folder.run(&["run", "write it"]).exits(4).prints("");
    ran.says("c1 (approval of write_file(a.txt, x))").says("hint: `turnbuckle resolve c_").says(" c1 --digest ");
    let ran = folder.run(&["run", "--store", "memory:", "write it"]).exits(4).prints("");
    ran.says("c1 (approval of write_file(a.txt, x))").says("hint: the store `memory:` forgets");
    assert_eq!(folder.read("a.txt"), "");
}

#[test]
fn the_events_of_a_waiting_turn_end_with_the_question() {
    let ran = Folder::with_script(WRITE).run(&["run", "--json", "write it"]).exits(4);
    let suspension = ran.event("suspension");
    assert_eq!(suspension["kind"], "approval");
    assert_eq!(suspension["prompt"]["tool"], "write_file");
    assert!(suspension["prompt"]["digest"].is_string());
    let last = ran.events().pop().unwrap();
    assert_eq!((&last["type"], &last["state"]), (&"state_changed".into(), &"waiting".into()));
}

#[test]
fn an_empty_approve_asks_for_none() {
    let folder = Folder::with_config(WRITE, "[tools]\napprove = []\n");
    folder.run(&["run", "write it"]).exits(0).prints("done\n").says("dispatch  write_file(a.txt, …) = ");
    assert_eq!(folder.read("a.txt"), "x");
}

#[test]
fn reading_can_be_gated_too() {
    let call = r#"{ "tool_calls": [{ "id": "c1", "name": "list_files", "arguments": {} }] }"#;
    let folder = Folder::with_config(call, "[tools]\napprove = [\"list_files\"]\n");
    folder.run(&["run", "look"]).exits(4).says("approval of list_files");
}

#[test]
fn a_question_to_a_person_waits() {
    let call = r#"{ "tool_calls": [{ "id": "q", "name": "ask_human", "arguments": { "question": "Which one?" } }] }"#;
    Folder::with_script(call).run(&["run", "choose"]).exits(4).says("q (an answer to: Which one?)");
}
