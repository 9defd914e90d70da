//! Nobody is handed a command that approves a call which they have not seen whole.

use serde_json::json;

use crate::program::Folder;

fn asked_about(command: &str, options: &[&str]) -> (Folder, String) {
    let call = json!({ "tool_calls": [{ "id": "c1", "name": "shell", "arguments": { "command": command } }] });
    let folder = Folder::with_config(&format!("{call}, {{ \"text\": \"done\" }}"), "[tools]\nbuiltin = [\"shell\"]\n");
    let arguments: Vec<&str> = ["run", "--quiet"].iter().chain(options).chain(&["go"]).copied().collect();
    let ran = folder.run(&arguments).exits(4);
    (folder, ran.err)
}

#[test]
fn run_shows_a_long_call_whole_before_the_command_that_approves_it() {
    let command = format!("echo {} && echo the end of it\u{1b}[2K", "x".repeat(200));
    let (_folder, err) = asked_about(&command, &["-c", "long"]);
    let text: String = err.split_whitespace().collect();
    let (shown, hint) = text.split_once("hint:").unwrap();
    assert!(shown.contains("theendofit") && !err.contains('\u{1b}'), "{err}");
    assert!(hint.contains("c1--digest"), "{err}");
}

#[test]
fn run_leaves_the_approval_of_a_call_that_is_too_long_to_show_to_the_command_that_shows_it() {
    let (folder, err) = asked_about(&format!("echo {}", "x".repeat(40_000)), &["-c", "long"]);
    assert!(!err.contains("--digest") && err.contains("`turnbuckle show long"), "{err}");
    let pending = folder.run(&["pending"]).exits(0);
    assert!(!pending.out.contains("--digest") && pending.out.contains("NOT shown"), "{}", pending.out);
    let shown = folder.run(&["show", "long"]).exits(0);
    assert!(shown.out.contains("--digest"), "{}", &shown.out[shown.out.len() - 500..]);
}

#[test]
fn where_nothing_is_kept_the_hint_names_the_option_that_allows_a_command() {
    let (_folder, err) = asked_about("ls", &["--store", "memory:"]);
    assert!(err.contains("--allow") && !err.contains("approve = []"), "{err}");
}
