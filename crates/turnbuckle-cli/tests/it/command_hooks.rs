//! `use = "command"`: any program, at each of its points, from the file to the outcome.

use serde_json::Value;

use crate::program::Folder;

const READ: &str =
    r#"{ "tool_calls": [{ "id": "c1", "name": "read_file", "arguments": { "path": "a.txt" } }] }, { "text": "read" }"#;

fn hook(on: &str, run: &str) -> String {
    format!("[[hooks]]\nuse = \"command\"\nname = \"h\"\non = \"{on}\"\nrun = '''{run}'''\n")
}

fn folder(replies: &str, on: &str, run: &str) -> Folder {
    let folder = Folder::with_config(replies, &hook(on, run));
    folder.file("a.txt", "contents");
    folder
}

#[test]
fn before_agent_rewrites_injects_and_halts() {
    let rewrite = folder(r#"{ "text": "ok" }"#, "before_agent", r#"echo '{"prompt": "other words"}'"#);
    let ran = rewrite.run(&["run", "--json", "hi"]).exits(0);
    assert_eq!(ran.event("user_message")["content"][0]["text"], "other words");
    let halt =
        folder(r#"{ "text": "never" }"#, "before_agent", "grep -q secret && { echo no secrets >&2; exit 2; }; exit 0");
    halt.run(&["run", "a secret"]).exits(3).says("no secrets");
    halt.run(&["run", "nothing"]).exits(0);
}

#[test]
fn before_tool_denies() {
    let folder = folder(READ, "before_tool", "echo hands off >&2; exit 2");
    let ran = folder.run(&["run", "--json", "read"]).exits(0);
    let result = ran.event("tool_result");
    assert_eq!(result["ok"], false);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("hands off"), "{result}");
    assert!(!ran.types().contains(&"tool_started".to_owned()), "a denied call does not start");
}

#[test]
fn before_tool_asks() {
    let folder = folder(READ, "before_tool", r#"echo '{"decision": "ask", "reason": "sure?"}'"#);
    folder.run(&["run", "read"]).exits(4).says("c1 (approval of read_file(a.txt))");
}

#[test]
fn after_tool_adds_to_the_result() {
    let folder = folder(READ, "after_tool", r#"echo '{"context": "mind the gap"}'"#);
    let ran = folder.run(&["run", "--json", "read"]).exits(0);
    let said = ran.event("tool_result")["content"].to_string();
    assert!(said.contains("contents") && said.contains("mind the gap"), "{said}");
}

#[test]
fn after_model_asks_for_another_reply() {
    let folder = folder(
        r#"{ "text": "bad" }, { "text": "good" }"#,
        "after_model",
        "grep -q good && exit 0; echo be good >&2; exit 2",
    );
    folder.run(&["run", "hi"]).exits(0).prints("good\n").says("discard   attempt 1 is taken back by hook h");
}

#[test]
fn stop_refuses_until_it_is_satisfied() {
    let folder = folder(
        r#"{ "text": "done" }, { "text": "really done" }"#,
        "stop",
        "test -e x && exit 0; touch x; echo again >&2; exit 2",
    );
    let ran = folder.run(&["run", "hi"]).exits(0).prints("really done\n");
    // The lines are in the order of the events: the reply, the hook that refuses it, what it said.
    let at = |text: &str| ran.err.find(text).unwrap_or_else(|| panic!("{text:?} is not in:\n{}", ran.err));
    assert!(at("call      done") < at("hook      h: refuse (on_stop"), "{}", ran.err);
    assert!(at("hook      h: refuse (on_stop") < at("refuse    h: again"), "{}", ran.err);
}

#[test]
fn ended_is_told_every_outcome() {
    let folder = folder("", "ended", "cat > told.json");
    folder.run(&["run", "hi"]).exits(1);
    let told: Value = serde_json::from_str(&folder.read("told.json")).unwrap();
    assert_eq!(told["outcome"], "failed");
    assert_eq!(told["hook_event_name"], "TurnEnded");
    assert_eq!(told["permission_mode"], "headless");
}

#[test]
fn an_array_is_a_program_and_its_arguments() {
    let config = "[[hooks]]\nuse = \"command\"\nname = \"h\"\non = \"before_agent\"\nrun = [\"sh\", \"-c\", \"echo \\\"$1\\\" >&2; exit 2\", \"-\", \"two  words\"]\n";
    Folder::with_config("", config).run(&["run", "hi"]).exits(3).says("halted by hook h: two  words");
}

#[test]
fn a_hook_that_breaks_follows_on_failure() {
    let broken = hook("before_agent", "exit 7");
    let reply = r#"{ "text": "ok" }"#;
    Folder::with_config(reply, &broken)
        .run(&["run", "hi"])
        .exits(1)
        .says("error: the turn failed: hook h failed")
        .says("on_failure");
    Folder::with_config(reply, &format!("{broken}on_failure = \"ignore\"\n"))
        .run(&["run", "hi"])
        .exits(0)
        .prints("ok\n");
}

#[test]
fn a_hook_that_takes_too_long_fails() {
    let slow = format!("{}timeout = \"200ms\"\n", hook("before_agent", "sleep 30"));
    Folder::with_config(r#"{ "text": "ok" }"#, &slow)
        .run(&["run", "hi"])
        .exits(1)
        .says("hook h failed at before_agent");
}

#[test]
fn a_hook_may_mind_some_tools_only() {
    let deny = format!("[tools]\napprove = []\n{}tools = [\"write_*\"]\n", hook("before_tool", "exit 2"));
    let folder = Folder::with_config(READ, &deny);
    folder.file("a.txt", "contents");
    assert_eq!(folder.run(&["run", "--json", "read"]).exits(0).event("tool_result")["ok"], true);
}

#[test]
fn hooks_of_a_project_run_with_and_without_trust() {
    let folder = folder(r#"{ "text": "ok" }"#, "before_agent", "touch ran");
    folder.run(&["run", "--trust-hooks", "--bare", "hi"]).exits(0).prints("ok\n");
    assert!(folder.path().join("ran").exists());
}

#[test]
fn a_guard_may_hold_the_stream_until_it_has_judged() {
    let replies = r#"{ "chunks": ["b", "ad"] }, { "chunks": ["go", "od"] }"#;
    let guard = hook("after_model", "grep -q good && exit 0; echo be good >&2; exit 2");
    let ran = Folder::with_config(replies, &format!("{guard}release = \"on_accept\"\n"))
        .run(&["run", "--json", "hi"])
        .exits(0);
    let told: String = ran.events().iter().filter_map(|event| event["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(told, "good", "no byte of the rejected attempt is told");
    Folder::with_config(replies, &guard).run(&["run", "--json", "hi"]).exits(0).out.find("\"text\":\"b\"").unwrap();
}

#[test]
fn the_start_of_a_program_is_always_told() {
    let folder = folder(r#"{ "text": "ok" }"#, "before_agent", "true");
    for _ in 0..20 {
        let types = folder.run(&["run", "--json", "hi"]).exits(0).types();
        let count = |name: &str| types.iter().filter(|kind| *kind == name).count();
        assert_eq!((count("hook_started"), count("hook_finished")), (1, 1));
    }
}
