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

/// An address on which nobody listens.
fn deserted() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/x", listener.local_addr().unwrap())
}

#[test]
fn a_webhook_that_reaches_nobody_is_reported_everywhere_and_tried_again() {
    let url = deserted();
    let notify =
        |more: &str| format!("[[hooks]]\nuse = \"notify\"\nurl = \"{url}\"\nsecret_env = \"PATH\"\ntries = 1\n{more}");
    let write =
        r#"{ "tool_calls": [ { "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } } ] }"#;
    let replies = format!("{write}, {{ \"text\": \"done\" }}");
    let folder = Folder::with_config(&replies, &notify("reminders = [0.5, 0.9]\n"));
    let began = std::time::Instant::now();
    let ran = folder.run(&["run", "-v", "-c", "x", "go"]).exits(4);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "nobody waits for the next try");
    let kept = "was not delivered: 127.0.0.1 did not answer";
    let ran = ran.says(kept).says("it is kept and tried again (try 1 of 8)").says("a job failed and is tried again");
    // The reminders are not due yet, and `run` would be refused while the question is open.
    ran.says("work that is not done stays in the outbox: notify\n").says("hint: `turnbuckle chat -c x` takes them up");
    let show = folder.run(&["show", "x"]).exits(0).out;
    assert!(show.contains("failed, will be tried again: 127.0.0.1 did not answer"), "{show}");
    assert!(show.contains("notify (reminder at 50 %, event "), "{show}");
    let trace = folder.run(&["trace", "x"]).exits(0).out;
    assert!(trace.contains("outbox    notify (event ") && trace.contains("reminder at 90 %"), "{trace}");
    let list = folder.run(&["list"]).exits(0).out;
    assert!(list.trim_end().ends_with("[1 job failing]"), "{list}");
    assert_eq!(folder.run(&["list", "--json"]).events()[0]["jobs"]["failing"], 1);
    let json = folder.run(&["run", "--json", "-c", "y", "go"]).exits(4);
    let notice = json.events().into_iter().find(|event| event["type"] == "notice").unwrap_or_default();
    assert!(notice["text"].as_str().is_some_and(|text| text.contains(kept)), "{}", json.out);
    // The answer takes the reminders away.
    folder.run(&["resolve", "x", "c1", "--approve"]).exits(0);
    let show = folder.run(&["show", "x"]).exits(0).out;
    assert!(!show.contains("reminder"), "{show}");
}
