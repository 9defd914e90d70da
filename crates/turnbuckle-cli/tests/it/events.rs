//! `--json`: every event of the conversation, in the shapes other programs read.

use serde_json::{Value, json};

use crate::program::{Folder, Ran};

const STORY: &str = r#"
    { "thinking": "hm", "text": "Looking. ", "usage": { "input": 10, "output": 5 }, "tool_calls": [
        { "id": "c1", "name": "read_file", "arguments": { "path": "a.txt" } },
        { "id": "c1", "name": "read_file", "arguments": { "path": "gone.txt" } } ] },
    { "chunks": ["Do", "ne"] }, { "text": "Really done" }"#;

const STOP: &str = r#"
[[hooks]]
use = "command"
name = "lint"
on = "stop"
run = "cat >/dev/null; test -e seen && exit 0; touch seen; echo fix it >&2; exit 2"
"#;

fn story() -> Ran {
    let folder = Folder::with_config(STORY, STOP);
    folder.file("a.txt", "contents");
    folder.run(&["run", "--json", "-c", "talk", "hi"]).exits(0)
}

#[test]
fn every_line_has_its_envelope() {
    let events = story().events();
    let (mut seq, mut cursor) = (0, (0, 0));
    for event in &events {
        assert_eq!(event["conversation"], "talk", "{event}");
        let at = event["at"].as_str().unwrap();
        assert!(at.len() == 24 && at.ends_with('Z') && at.as_bytes()[10] == b'T', "{event}");
        assert!(event["type"].is_string() && event.get("turn").is_some(), "{event}");
        let (epoch, position) = event["cursor"].as_str().unwrap().split_once('-').unwrap();
        let next = (epoch.parse::<u64>().unwrap(), position.parse::<u64>().unwrap());
        assert!(next > cursor, "cursors increase: {event}");
        cursor = next;
        match event["plane"].as_str().unwrap() {
            "log" => {
                assert_eq!(event["seq"], seq + 1, "gapless: {event}");
                seq += 1;
            }
            "live" => assert!(event.get("seq").is_none(), "{event}"),
            other => panic!("plane {other}"),
        }
    }
    assert!(seq > 0);
}

#[test]
fn the_log_tells_the_story_in_order() {
    let ran = story();
    let log: Vec<Value> = ran.events().into_iter().filter(|event| event["plane"] == "log").collect();
    let kinds: Vec<&str> = log.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"user_message"));
    assert_eq!(kinds.last(), Some(&"turn_ended"));
    let count = |kind: &str| kinds.iter().filter(|found| **found == kind).count();
    for (kind, times) in [
        ("assistant_message", 3),
        ("tool_call", 2),
        ("tool_started", 2),
        ("tool_result", 2),
        ("stop_feedback", 1),
        ("turn_ended", 1),
    ] {
        assert_eq!(count(kind), times, "{kind} in {kinds:?}");
    }
}

#[test]
fn events_have_the_shapes_of_the_design() {
    let ran = story();
    let user = ran.event("user_message");
    assert_eq!(user["content"], json!([{ "type": "text", "text": "hi" }]));
    assert_eq!(user["by"], json!({ "user": "local" }));
    let reply = ran.event("assistant_message");
    assert_eq!(reply["attempt"], 1);
    assert_eq!(reply["stop_reason"], "tool_calls");
    assert_eq!(reply["usage"], json!({ "input": 10, "output": 5, "cache_read": 0, "cache_write": 0 }));
    assert!(reply.get("object").is_some_and(Value::is_null));
    assert_eq!(reply["content"][0]["type"], "thinking");
    let call = ran.event("tool_call");
    assert_eq!(
        (&call["call"], &call["name"], &call["executor"]),
        (&json!("c1"), &json!("read_file"), &json!("server"))
    );
    assert_eq!(call["arguments"], json!({ "path": "a.txt" }));
    let started = ran.event("tool_started");
    assert!(started["digest"].is_string() && started["arguments"].is_object() && started["approved_by"].is_null());
    let results: Vec<Value> = ran.events().into_iter().filter(|event| event["type"] == "tool_result").collect();
    let of = |call: &str| results.iter().find(|result| result["call"] == call).unwrap();
    assert_eq!(of("c1")["ok"], true);
    assert_eq!(of("c1")["content"][0]["type"], "text");
    assert_eq!(of("c1~2")["ok"], false, "a repeated call id is told apart");
    assert_eq!(ran.event("stop_feedback")["refusals"], json!([{ "hook": "lint", "feedback": "fix it" }]));
    let ended = ran.event("turn_ended");
    assert_eq!(ended["outcome"], "completed");
    assert_eq!(ended["model_calls"], 3);
    assert!(ended["ms"].is_u64() && ended["warnings"].is_array() && ended["usage"].is_object());
    for key in ["reason", "cause", "by", "result"] {
        assert!(ended.get(key).is_some_and(Value::is_null), "{key}");
    }
}

#[test]
fn live_events_have_the_shapes_of_the_design() {
    let ran = story();
    assert_eq!(ran.event("thinking_delta")["text"], "hm");
    let deltas: Vec<Value> = ran.events().into_iter().filter(|event| event["type"] == "text_delta").collect();
    let said: String = deltas.iter().map(|delta| delta["text"].as_str().unwrap()).collect();
    assert_eq!(said, "Looking. DoneReally done");
    assert!(deltas.iter().all(|delta| delta["attempt"] == 1));
    let finished = ran.event("hook_finished");
    assert_eq!((&finished["hook"], &finished["point"]), (&json!("lint"), &json!("on_stop")));
    assert_eq!((&finished["decision"], &finished["reason"]), (&json!("refuse"), &json!("fix it")));
    assert!(finished["ms"].is_f64() && finished["tokens"].is_u64() && finished["error"].is_null());
    let states: Vec<Value> = ran.events().into_iter().filter(|event| event["type"] == "state_changed").collect();
    assert_eq!(states.first().unwrap()["state"], "accept");
    assert_eq!(states.last().unwrap()["state"], "idle");
}

#[test]
fn a_text_that_was_told_and_not_kept_is_taken_back() {
    let folder = Folder::with_script(r#"{ "chunks": ["par", "tial"], "fail_after_chunks": 1 }"#);
    let ran = folder.run(&["run", "--json", "hi"]).exits(1);
    assert_eq!(ran.event("attempt_discarded")["attempt"], 1);
    assert!(!ran.types().contains(&"assistant_message".to_owned()));
    assert_eq!(ran.event("turn_ended")["outcome"], "failed");
}

#[test]
fn redaction_stands_between_the_model_and_everyone() {
    let replies = r#"{ "chunks": ["mail an", "n@example.com or TCK-12", "3456"] }"#;
    let hook = "[[hooks]]\nuse = \"redact\"\npatterns = [{ name = \"ticket\", pattern = \"TCK-[0-9]{6}\" }]\n";
    let folder = Folder::with_config(replies, hook);
    folder.run(&["run", "hi"]).exits(0).prints("mail [email] or [ticket]\n");
    assert!(!folder.run(&["run", "--json", "hi"]).out.contains("ann@"));
    let masked = Folder::with_config(replies, "[[hooks]]\nuse = \"redact\"\nstrategy = \"mask\"\ncards = false\n");
    masked.run(&["run", "hi"]).exits(0).prints("mail ***********.com or TCK-123456\n");
}

/// A program need not read the English of a reason: `cause` says the same in words that do not change.
#[test]
fn why_a_turn_ended_is_told_to_programs_as_well() {
    let hook = |on: &str, run: &str| {
        format!("[[hooks]]\nuse = \"command\"\nname = \"h\"\non = \"{on}\"\nrun = \"cat >/dev/null; {run}\"\n")
    };
    let by_hook = |kind: &str, point: &str| json!({ "kind": kind, "hook": "h", "point": point });
    let says = r#"{ "text": "hi" }"#;
    for (replies, config, code, outcome, cause) in [
        (says, hook("before_agent", "exit 2"), 3, "halted", by_hook("hook_decided", "before_agent")),
        (says, hook("before_agent", "exit 1"), 1, "failed", by_hook("hook_failed", "before_agent")),
        (
            r#"{ "text": "1" }, { "text": "2" }, { "text": "3" }"#,
            hook("after_model", "echo no >&2; exit 2"),
            3,
            "rejected",
            json!({ "kind": "regenerations", "hook": "h", "limit": 2 }),
        ),
        (
            r#"{ "tool_calls": [{ "id": "c", "name": "list_files", "arguments": {} }] }, { "text": "x" }"#,
            "[limits]\nmax_model_calls = 1\n".to_owned(),
            5,
            "exhausted",
            json!({ "kind": "limit", "limit": "max_model_calls" }),
        ),
        (
            r#"{ "error": { "status": 401, "message": "who?" } }"#,
            String::new(),
            1,
            "failed",
            json!({ "kind": "model", "status": 401, "error": "status" }),
        ),
        ("", String::new(), 1, "failed", json!({ "kind": "model", "status": null, "error": "script_exhausted" })),
    ] {
        let folder = Folder::with_config(replies, &config);
        let told = folder.run(&["run", "-c", "talk", "--json", "hi"]).exits(code).event("turn_ended");
        assert_eq!((&told["outcome"], &told["cause"]), (&json!(outcome), &cause), "{told}");
        assert!(told["reason"].is_string(), "{told}");
        let shown = folder.run(&["show", "talk", "--json"]).exits(0).event("turn_ended");
        assert_eq!(shown["cause"], cause);
    }
}

#[test]
fn a_warning_says_what_it_is_about_to_programs_as_well() {
    let config = "[[hooks]]\nuse = \"command\"\nname = \"h\"\non = \"stop\"\nrun = \"echo again >&2; exit 2\"\n";
    let folder = Folder::with_config(r#"{ "text": "1" }, { "text": "2" }"#, config);
    let ended = folder.run(&["run", "--json", "hi"]).exits(0).event("turn_ended");
    assert_eq!(ended["warnings"][0]["cause"], json!({ "kind": "overruled", "hook": "h" }), "{ended}");
}

#[test]
fn why_a_hook_decided_is_told_also_of_a_reply_that_was_held_back() {
    let config = "[[hooks]]\nuse = \"command\"\nname = \"h\"\non = \"after_model\"\nrelease = \"on_accept\"\n\
                  run = \"test -e seen && exit 0; touch seen; echo too short >&2; exit 2\"\n";
    let told = |options: &[&str]| {
        let folder = Folder::with_config(r#"{ "text": "1" }, { "text": "longer" }"#, config);
        let ran = folder.run(&[&["run", "-c", "talk"], options, &["hi"]].concat()).exits(0);
        (folder, ran)
    };
    let (_, ran) = told(&["--json"]);
    let finished = ran.event("hook_finished");
    assert_eq!((&finished["decision"], &finished["reason"]), (&json!("regenerate"), &json!("too short")));
    assert!(!ran.types().contains(&"attempt_discarded".to_owned()), "nothing of it was told");
    let (folder, ran) = told(&[]);
    ran.says("hook      h: regenerate: too short (after_model, ");
    let trace = folder.run(&["trace", "talk"]).exits(0).out;
    assert!(
        trace
            .lines()
            .any(|line| line.starts_with("hook      after_model h: regenerate, ") && line.ends_with(" ms: too short")),
        "{trace}"
    );
}

#[test]
fn a_reply_says_which_model_gave_it() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    assert_eq!(folder.run(&["run", "--json", "hi"]).exits(0).event("assistant_message")["model"], "script:script.json");
}
