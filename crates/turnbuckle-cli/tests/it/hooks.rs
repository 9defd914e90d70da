//! `turnbuckle hooks` tells what runs where, in order, and what a failure would mean.

use serde_json::Value;

use crate::program::Folder;

const TWO: &str = r#"default_retry = false
[[hooks]]
use = "redact"
strategy = "mask"
[[hooks]]
use = "command"
name = "build"
on = "stop"
run = "touch ran"
timeout = "5m"
"#;

#[test]
fn every_hook_stands_at_its_points_with_its_options() {
    let folder = Folder::with_config(r#"{ "text": "x" }"#, TWO);
    let ran = folder.run(&["hooks"]).exits(0);
    let expected = "stream
  redact  use = \"redact\", strategy = \"mask\"
          from turnbuckle.toml:4, accepted
          if it fails: the turn ends failed
on_stop
  build   use = \"command\", on = \"stop\", run = \"touch ran\"
          from turnbuckle.toml:7, accepted
          if it fails: ignored: nobody judges in its place, and the turn may end
";
    ran.prints(expected);
    assert!(!folder.path().join("ran").exists(), "nothing is run");
}

#[test]
fn an_audit_log_that_blocks_is_told_as_such_and_does_so() {
    let audit =
        "default_retry = false\n[[hooks]]\nuse = \"audit_log\"\nname = \"books\"\nfile = \"script.json/audit.jsonl\"\n";
    let folder = Folder::with_config(r#"{ "text": "x" }"#, &format!("{audit}on_failure = \"block\"\n"));
    folder.run(&["hooks"]).exits(0).prints(
        "on_event\n  books  use = \"audit_log\", file = \"script.json/audit.jsonl\"\n         from turnbuckle.toml:4, accepted\n         if it fails: the turn ends failed\n",
    );
    folder.run(&["run", "hi"]).exits(1).prints("").says("hook books failed at on_event: could not write to");
    let folder = Folder::with_config(r#"{ "text": "x" }"#, audit);
    folder.run(&["run", "--quiet", "hi"]).exits(0).prints("x\n").says("warning: hook books failed at on_event");
}

#[test]
fn as_json_it_is_one_line_a_hook_and_point() {
    let ran = Folder::with_config(r#"{ "text": "x" }"#, TWO).run(&["hooks", "--json"]).exits(0);
    let lines = ran.events();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["point"], &lines[0]["hook"]), (&Value::from("stream"), &Value::from("redact")));
    assert_eq!((&lines[1]["use"], &lines[1]["on_failure"]), (&Value::from("command"), &Value::from("ignore")));
    assert_eq!(lines[1]["options"]["run"], "touch ran");
    assert_eq!(lines[1]["at"], "turnbuckle.toml:7");
}

#[test]
fn a_default_retry_is_added_innermost_unless_one_is_named_or_it_is_switched_off() {
    let slow = r#"{ "error": { "status": 429, "retry_after": 0.01, "message": "slow down" } }, { "text": "fine" }"#;
    let run = |config: &str| Folder::with_config(slow, config).run(&["run", "hi"]);
    run("").exits(0).prints("fine\n");
    run("[[hooks]]\nuse = \"redact\"\n").exits(0).prints("fine\n");
    run("[[hooks]]\nuse = \"redact\"\nname = \"retry\"\n").exits(0).prints("fine\n");
    run("default_retry = false\n").exits(1).says("slow down");
    run("[[hooks]]\nuse = \"retry\"\nmax_attempts = 1\n").exits(1).says("slow down");
    let folder =
        Folder::with_config(slow, "[[hooks]]\nuse = \"timeout\"\n[[hooks]]\nuse = \"retry\"\nname = \"mine\"\n");
    let names = |ran: crate::program::Ran| -> Vec<String> {
        let at_model = ran.events().into_iter().filter(|line| line["point"] == "wrap_model_call");
        at_model.map(|line| line["hook"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(folder.run(&["hooks", "--json"])), ["timeout", "mine"]);
    let folder = Folder::with_config(slow, "[[hooks]]\nuse = \"timeout\"\nname = \"retry\"\n");
    assert_eq!(names(folder.run(&["hooks", "--json"])), ["retry", "retry-2"], "the last wrap is the innermost");
    let listed = folder.run(&["hooks"]).exits(0);
    assert!(listed.out.contains("use = \"retry\" (added by default; `default_retry = false`"), "{}", listed.out);
    let checked = folder.run(&["check"]).exits(0);
    assert!(checked.out.contains("wrap_model_call: retry, retry-2 (added by default)"), "{}", checked.out);
}

#[test]
fn a_sub_agent_has_the_default_retry_as_well() {
    let call = r#"{ "tool_calls": [{ "id": "r", "name": "reviewer", "arguments": { "task": "look" } }] }"#;
    let slow = r#"{ "error": { "status": 429, "retry_after": 0.01, "message": "slow down" } }, { "text": "fine" }"#;
    let config = "[[agents]]\nname = \"reviewer\"\nsystem = \"Review.\"\n[[hooks]]\nuse = \"redact\"\n";
    let folder = Folder::with_config("", config);
    let script =
        format!(r#"{{ "replies": [ {call}, {{ "text": "over" }} ], "agents": {{ "reviewer": [ {slow} ] }} }}"#);
    folder.file("script.json", &script);
    let ran = folder.run(&["run", "--json", "review"]).exits(0);
    assert_eq!(ran.event("tool_result")["content"][0]["text"], "fine", "{}", ran.out);
}

#[test]
fn a_secret_option_is_not_shown() {
    let config = "[[hooks]]\nuse = \"redact\"\nstrategy = \"hash\"\nsalt = \"hunter22\"\n";
    for arguments in [&["hooks"][..], &["hooks", "--json"], &["check"]] {
        let ran = Folder::with_config(r#"{ "text": "x" }"#, config).run(arguments).exits(0);
        assert!(!ran.out.contains("hunter22") && !ran.err.contains("hunter22"), "{}", ran.out);
    }
}

#[test]
fn what_use_can_name_is_told_with_what_it_does() {
    let ran = Folder::new().run(&["hooks", "--available"]).exits(0);
    assert!(ran.out.lines().any(|line| line.starts_with("redact ") && line.contains("secrets")), "{}", ran.out);
    Folder::with_config("", "[[hooks]]\nuse = \"zzzz\"\n").run(&["hooks"]).exits(2).prints("").says("redact");
}

#[test]
fn what_a_ready_made_hook_refuses_has_its_line() {
    let refused = |config: &str, told: &str| {
        let folder = Folder::new();
        folder.file("turnbuckle.toml", config);
        folder.run(&["check"]).exits(2).says(told);
    };
    refused(
        "[[hooks]]\nuse = \"retry\"\nmax_attempts = 99\n",
        "turnbuckle.toml:3: `max_attempts` in [[hooks]] must be 1 to 20",
    );
    refused(
        "[[hooks]]\nuse = \"retry\"\nbackoff = \"soon\"\n",
        "turnbuckle.toml:3: `backoff` in [[hooks]] must be a duration like \"30s\"",
    );
    refused(
        "[[hooks]]\nuse = \"retry\"\nmax_attemps = 2\n",
        "unknown key `max_attemps` in [[hooks]]\n  3 | max_attemps = 2\n    | ^^^^^^^^^^^\nhint: did you mean `max_attempts`?",
    );
    refused(
        "[[hooks]]\nuse = \"retry\"\nmax_attempts = \"3\"\n",
        ":3: `max_attempts` in [[hooks]] must be a whole number, not \"3\"",
    );
    refused(
        "[[hooks]]\nuse = \"retry\"\naround = \"modle\"\n",
        ":3: `around` in [[hooks]] is \"modle\", which is none of: model_calls, tool_calls, both",
    );
    let rule = "[[hooks]]\nuse = \"guard\"\n[[hooks.rules]]\nforbid = \"a\"\n[[hooks.rules]]\nforbid = \"(\"\n";
    refused(rule, "turnbuckle.toml:5: `rules` in [[hooks]] is not a pattern that can be used");
    refused(
        "[[hooks]]\nuse = \"fallback\"\nmodels = [\"demo\",\n\"gpt\"]\n",
        "turnbuckle.toml:4: `models` in [[hooks]] names \"gpt\": there is no model",
    );
    refused("[[hooks]]\nuse = \"guard\"\n", "turnbuckle.toml:1: `rules` in [[hooks]] is missing");
}

#[test]
fn the_hooks_of_a_point_can_be_tried_on_an_event() {
    let config = r#"[[hooks]]
use = "approval"
rules = [ { tool = "write_file", where = { "/path" = "[.]git" }, then = "deny", explain = "not {/path}" } ]
[[hooks]]
use = "command"
name = "shout"
on = "before_tool"
tools = ["read_*"]
run = "touch ran"
[[hooks]]
use = "guard"
rules = [ { forbid = "secret", reason = "tell no secrets" } ]
[[hooks]]
use = "lint"
run = "exit 1"
"#;
    let folder = Folder::with_config(r#"{ "text": "x" }"#, config);
    let test = |event: &str, json: &str| folder.run_with_stdin(&["hooks", "test", event], json.as_bytes());
    let ran = test("before_tool", r#"{"tool_name": "write_file", "tool_input": {"path": ".git/config"}}"#).exits(0);
    assert!(ran.out.starts_with("hook      before_tool approval for c1: deny, "), "{}", ran.out);
    assert!(ran.out.contains("not .git/config") && !folder.path().join("ran").exists(), "{}", ran.out);
    let ran = test("before_tool", r#"{"tool_name": "read_file", "hook_event_name": "PreToolUse"}"#).exits(0);
    assert!(ran.out.contains("shout") && folder.path().join("ran").exists(), "{}", ran.out);
    let ran = test("after_model", r#"{"message": "the secret is out"}"#).exits(0);
    assert!(ran.out.contains("guard: regenerate") && ran.out.contains("tell no secrets"), "{}", ran.out);
    folder.file("a.rs", "");
    let ran = test("stop", r#"{"last_assistant_message": "done", "touched": ["a.rs"]}"#).exits(0);
    assert!(ran.out.contains("lint: refuse") && ran.out.contains("exit code 1"), "{}", ran.out);
    let ran = folder.run_with_stdin(&["hooks", "test", "after_model", "--json"], br#"{"message": "fine"}"#).exits(0);
    assert_eq!(ran.events()[0]["decision"], "continue");
    test("before_agent", "{}").exits(2).says("no hook runs at before_agent");
    test("before_tool", "nonsense").exits(2).says("the event on stdin makes no sense");
    test("before_tool", "[]").exits(2).says("the event on stdin makes no sense");
    test("on_tool", "{}").exits(2).says("after_model, stop, ended");
}

#[test]
fn a_point_is_named_as_it_is_printed_or_as_in_the_configuration() {
    let refuses = |on: &str| {
        format!("default_retry = false\n[[hooks]]\nuse = \"command\"\nname = \"no\"\non = \"{on}\"\nrun = \"exit 2\"\n")
    };
    for (on, point) in [("stop", "on_stop"), ("on_stop", "on_stop"), ("ended", "on_ended"), ("on_ended", "on_ended")] {
        let folder = Folder::with_config(r#"{ "text": "x" }"#, &refuses(on));
        let listed = folder.run(&["hooks"]).exits(0);
        assert!(listed.out.starts_with(&format!("{point}\n")), "{}", listed.out);
        for event in [point, point.trim_start_matches("on_")] {
            // At `ended` there is nothing to refuse: exit code 2 is the hook's failure there.
            let code = i32::from(point == "on_ended");
            let ran = folder.run_with_stdin(&["hooks", "test", event], b"{}").exits(code);
            assert!(ran.out.contains(&format!("{point} no")), "{}", ran.out);
        }
    }
}

#[test]
fn what_no_run_could_have_is_refused_in_a_test() {
    let hook = "[[hooks]]\nuse = \"command\"\nname = \"gate\"\non = \"before_tool\"\nrun = \"touch ran\"\n";
    let folder = Folder::with_config(r#"{ "text": "x" }"#, hook);
    let test = |event: &str| folder.run_with_stdin(&["hooks", "test", "before_tool"], event.as_bytes());
    test(r#"{"tool_nam": "read_file"}"#).exits(2).says("unknown key `tool_nam`").says("did you mean `tool_name`?");
    test(r#"{"tool_name": "raed_file"}"#).exits(2).says("no tool \"raed_file\"").says("did you mean `read_file`?");
    test("{}").exits(2).says("the event names no tool");
    test("[]").exits(2).says("the event on stdin makes no sense");
    assert!(!folder.path().join("ran").exists(), "no hook was run for these");
    let ran = test(r#"{"tool_name": "read_file", "tool_input": {"pth": "x"}}"#).exits(0);
    ran.says("warning: `tool_input` does not fit the schema of read_file");
    let whole = r#"{"conversation":"c_1","turn":"t_1","cwd":"/x","hook_event_name":"PreToolUse","agent":"turnbuckle","permission_mode":"headless","tool_name":"read_file","tool_input":{"path":"a.txt"},"tool_use_id":"c1"}"#;
    assert_eq!(test(whole).exits(0).err, "");
}

#[test]
fn a_test_ends_with_1_where_a_run_would_fail_because_of_the_hook() {
    let hook =
        |on: &str, run: &str| format!("[[hooks]]\nuse = \"command\"\nname = \"h\"\non = \"{on}\"\nrun = '{run}'\n");
    let test = |on: &str, run: &str, event: &str| {
        let folder = Folder::with_config(r#"{ "text": "x" }"#, &hook(on, run));
        folder.run_with_stdin(&["hooks", "test", on], event.as_bytes())
    };
    let read = r#"{"tool_name": "read_file", "tool_input": {"path": "x"}}"#;
    let rewrites =
        |input: &str| format!(r#"echo "{{\"decision\":\"allow\",\"input\":{}}}""#, input.replace('"', "\\\""));
    let ran = test("before_tool", &rewrites(r#"{"pth":"x"}"#), read).exits(1);
    let ran = ran.says("hook h rewrote the arguments, and the arguments do not fit the tool's schema");
    assert!(ran.out.contains("before_tool h for c1: rewrite"), "{}", ran.out);
    test("before_tool", &rewrites(r#"{"path":"y"}"#), read).exits(0);
    test("before_tool", "exit 7", read).exits(1).says("error: hook h failed at before_tool");
    // Its failure is ignored in a run, and is a failure all the same.
    test("stop", "exit 7", "{}").exits(1).says("error: hook h failed at on_stop");
    for (on, event) in [("before_tool", read), ("stop", "{}"), ("after_model", "{}"), ("before_agent", "{}")] {
        test(on, "echo no >&2; exit 2", event).exits(0);
    }
}

/// A worker that names every point it is asked at, and lets everything go on.
const EVERYWHERE: &str = r#"
import json, sys
def send(**message):
    print(json.dumps(dict(message, jsonrpc="2.0")), flush=True)
wraps = {}
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params")
    if id is not None and method:
        print(method, file=open("asked", "a"))
    if method == "initialize":
        send(id=id, result={"protocol": 1, "hooks": [{"name": "h", "point": point} for point in params["points"]]})
    elif method in ("wrap_model_call", "wrap_tool_call"):
        wraps[id] = id
        send(id=id, method="next", params={"call": id})
    elif method is None:
        result = message["result"]
        send(id=wraps.pop(id), result={"decision": "reply"} if "reply" in result else dict(result["result"], decision="result"))
    elif method == "stream":
        send(id=id, result={"decision": "pass", "text": "".join(params["chunks"])})
    elif id is not None:
        send(id=id, result={"decision": "accept" if method == "on_stop" else "continue"})
"#;

#[test]
fn a_worker_can_be_tried_at_every_point_that_one_turn_leads_to() {
    let points = [
        "on_conversation",
        "before_agent",
        "before_model",
        "wrap_model_call",
        "stream",
        "after_model",
        "before_tool",
        "wrap_tool_call",
        "after_tool",
        "on_stop",
        "after_agent",
        "background",
        "on_ended",
        "on_event",
    ];
    let config = format!("[[hooks]]\nuse = \"worker\"\nname = \"w\"\non = {points:?}\nrun = [\"python3\", \"w.py\"]\n");
    let folder = Folder::with_config(r#"{ "text": "x" }"#, &config);
    folder.file("w.py", EVERYWHERE);
    folder.run(&["trust", "--yes"]).exits(0);
    for point in points {
        let at_tool = point.ends_with("tool") || point == "wrap_tool_call";
        let event = if at_tool {
            r#"{"tool_name": "read_file", "tool_input": {"path": "a"}}"#
        } else {
            r#"{"last_assistant_message": "done"}"#
        };
        folder.run_with_stdin(&["hooks", "test", point], event.as_bytes()).exits(0);
        assert!(folder.read("asked").lines().any(|asked| asked == point), "{point}: {}", folder.read("asked"));
    }
    for point in ["before_compaction", "on_logged"] {
        folder.run_with_stdin(&["hooks", "test", point], b"{}").exits(2).says("one turn does not lead to");
    }
}

#[test]
fn a_worker_at_other_points_than_its_configuration_says_is_not_blamed_on_a_change() {
    let config = "[[hooks]]\nuse = \"worker\"\nname = \"w\"\non = [\"before_agent\", \"on_stop\"]\nrun = [\"python3\", \"w.py\"]\n";
    let folder = Folder::with_config(r#"{ "text": "x" }"#, config);
    folder.file("w.py", &EVERYWHERE.replace("params[\"points\"]", "[\"before_agent\"]"));
    folder.run(&["trust", "--yes"]).exits(0);
    let ran = folder.run(&["run", "hi"]).exits(1).says("serves before_agent, and `on` says before_agent, on_stop");
    assert!(ran.err.contains("exactly the points of its `on`"), "{}", ran.err);
}
