//! Hooks with dependencies of their own, by name in the configuration: built, used, and done with when the program ends.

use serde_json::Value;

use crate::program::Folder;

#[test]
fn an_audit_log_is_complete_when_the_program_ends() {
    let config = "[[hooks]]\nuse = \"audit_log\"\nfile = \"logs/audit.jsonl\"\n";
    let folder = Folder::with_config(r#"{ "text": "fine" }"#, config);
    folder.run(&["run", "hi"]).exits(0).prints("fine\n");
    let log = folder.read("logs/audit.jsonl");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["type"], "turn_ended", "{log}");
    assert_eq!(lines.last().unwrap()["outcome"], "completed");
}

#[test]
fn what_one_run_remembers_another_recalls() {
    let config = r#"[[hooks]]
use = "recall"
[[hooks]]
use = "remember"
model = "script:notary.json"
"#;
    let folder = Folder::with_config(r#"{ "text": "noted" }"#, config);
    folder.file("notary.json", r#"{"replies": [{"text": "[\"The user is allergic to nuts.\"]"}]}"#);
    folder.run(&["run", "I cannot eat nuts"]).exits(0);
    let told = folder.run(&["run", "--json", "a cake with nuts, please"]).exits(0);
    let recalled = |event: &Value| event["type"] == "hook_finished" && event["hook"] == "recall";
    let event = told.events().into_iter().find(recalled);
    assert!(event.is_some_and(|event| event["tokens"].as_u64() > Some(5)), "{}", told.out);
}

#[test]
fn a_misspelt_option_of_theirs_is_refused_with_its_line() {
    let config = "[[hooks]]\nuse = \"rate_limit\"\nlimitt = 3\n";
    let ran = Folder::with_config(r#"{ "text": "x" }"#, config).run(&["check"]).exits(2);
    assert!(ran.err.contains("turnbuckle.toml:5") && ran.err.contains("limitt"), "{}", ran.err);
    let config = "[[hooks]]\nuse = \"cache\"\nttl = \"0s\"\n";
    let ran = Folder::with_config(r#"{ "text": "x" }"#, config).run(&["check"]).exits(2);
    assert!(ran.err.contains("turnbuckle.toml:5") && ran.err.contains("more than 0s"), "{}", ran.err);
}

#[test]
fn a_check_builds_them_and_leaves_nothing_behind() {
    let config = r#"[[hooks]]
use = "audit_log"
[[hooks]]
use = "recall"
[[hooks]]
use = "telemetry"
"#;
    let folder = Folder::with_config(r#"{ "text": "x" }"#, config);
    folder.run(&["check"]).exits(0);
    let listed = folder.run(&["hooks"]).exits(0);
    assert!(listed.out.contains("on_event") && listed.out.contains("audit_log"), "{}", listed.out);
    assert!(!folder.path().join(".turnbuckle").exists(), "no file is made by looking");
}
