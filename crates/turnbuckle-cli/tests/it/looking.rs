//! What is kept can be looked at, and looking changes nothing.

use std::io::{BufRead as _, BufReader};

use serde_json::json;

use crate::program::{Folder, Ran};

const CONFIG: &str = r#"[store]
url = "sqlite:t.db"
[[hooks]]
use = "command"
name = "lint"
on = "stop"
run = "test -e ok || { touch ok; echo make it nicer >&2; exit 2; }"
on_failure = "block"
"#;
const REPLIES: &str = r#"{ "text": "rough" }, { "text": "nicer\nnow" }, { "text": "bye" }"#;

fn talked() -> Folder {
    let folder = Folder::with_config(REPLIES, CONFIG);
    folder.run(&["run", "-c", "first", "do it"]).exits(0).prints("nicer\nnow\n");
    folder.run(&["run", "-c", "first", "thanks"]).exits(0).prints("bye\n");
    folder
}

#[test]
fn show_reads_well() {
    let ran = talked().run(&["show", "first"]).exits(0);
    let expected = [
        "user      do it\n",
        "agent     rough\n",
        "refuse    lint: make it nicer\n",
        "agent     nicer\n          now\n",
        "end       completed",
        "user      thanks\n",
        "agent     bye\n",
    ];
    let mut rest = ran.out.as_str();
    for text in expected {
        let at = rest.find(text).unwrap_or_else(|| panic!("{text:?} is not in its place:\n{}", ran.out));
        rest = &rest[at + text.len()..];
    }
}

#[test]
fn show_json_has_the_log_as_run_told_it() {
    let folder = Folder::with_config(REPLIES, CONFIG);
    let plain = |ran: &crate::program::Ran| {
        let mut events = ran.events();
        events.retain(|event| event["plane"] == "log");
        events.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("cursor")));
        events
    };
    let told = folder.run(&["run", "-c", "first", "--json", "do it"]).exits(0);
    let shown = folder.run(&["show", "first", "--json"]).exits(0);
    assert_eq!(plain(&told), plain(&shown));
    assert_eq!(shown.events()[0]["cursor"], "0-1");
}

#[test]
fn show_says_how_to_answer_what_is_open() {
    let call =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } }] }"#;
    let folder = Folder::with_config(call, "[store]\nurl = \"sqlite:t.db\"\n");
    folder.run(&["run", "-c", "w", "write"]).exits(4);
    let ran = folder.run(&["show", "w"]).exits(0);
    assert!(ran.out.contains("open      c1 (approval of write_file(a, x)), until 20"), "{}", ran.out);
    assert!(ran.out.contains("          `turnbuckle resolve w c1 --digest "), "{}", ran.out);
    assert!(ran.out.contains("` (or --deny [REASON])\n"), "{}", ran.out);
}

#[test]
fn the_command_that_show_prints_can_be_run_as_it_stands() {
    let folder = Folder::new();
    let call =
        r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a", "content": "x" } }] }"#;
    folder.file("script.json", &format!(r#"{{ "replies": [{call}, {{ "text": "written" }}] }}"#));
    folder.run(&["run", "-c", "w", "--model", "script:script.json", "--store", "sqlite:t.db", "write"]).exits(4);
    let shown = folder.run(&["show", "w", "--store", "sqlite:t.db"]).exits(0).out;
    let command = shown.split('`').find(|part| part.starts_with("turnbuckle resolve")).unwrap();
    assert!(command.ends_with(" --model script:script.json"), "the turn's own model is named: {command}");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    folder.run(&words).exits(0).prints("written\n");
}

#[test]
fn a_turn_that_a_crash_left_is_listed_as_left() {
    let folder = Folder::with_script(&format!(r#"{{ "chunks": [{}"end"], "delay_ms": 100 }}"#, "\"x \",".repeat(300)));
    let mut child = folder.command(&["run", "-c", "w", "--json", "go"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("text_delta")), "it did not begin");
    let listed = |json: bool| folder.run(if json { &["list", "--json"] } else { &["list"] }).exits(0);
    assert!(listed(false).out.contains(" running  go"), "{}", listed(false).out);
    assert_eq!(listed(true).events()[0].get("left"), None);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(listed(false).out.contains(" left     go"), "{}", listed(false).out);
    let one = listed(true).events().remove(0);
    assert_eq!((&one["state"], &one["left"]), (&"running".into(), &true.into()));
}

#[test]
fn trace_has_stages_and_hooks_turn_by_turn() {
    let folder = talked();
    let ran = folder.run(&["trace", "first"]).exits(0);
    for text in [
        "accept    \"do it\"\n",
        "build     1 message\n",
        "refuse    lint",
        "hook      on_stop lint: refuse, ",
        " ms: make it nicer\n",
    ] {
        assert!(ran.out.contains(text), "{text:?} is not in:\n{}", ran.out);
    }
    let headers: Vec<&str> = ran.out.lines().filter_map(|line| line.strip_prefix("turn      ")).collect();
    assert_eq!(headers.len(), 2);
    let second = headers[1].split(',').next().unwrap();
    let one = folder.run(&["trace", "first", second]).exits(0);
    assert!(ran.out.ends_with(&one.out) && one.out.contains("accept    \"thanks\""), "{}", one.out);
    folder.run(&["trace", "first", "t_none"]).exits(1).prints("").says("has no turn t_none");
}

#[test]
fn trace_says_which_model_answered() {
    let call = r#"{ "tool_calls": [{ "id": "c1", "name": "list_files", "arguments": {} }] }"#;
    let down = r#"{ "error": { "status": 503, "message": "down" } }"#;
    let config = "[[hooks]]\nuse = \"fallback\"\nmodels = [\"script:other.json\"]\n";
    let folder = Folder::with_config(&format!(r#"{call}, {down}, {down}, {down}"#), config);
    folder.file("other.json", r#"{ "replies": [], "on_exhausted": "echo" }"#);
    let own = "model     reply 1: script:script.json\n";
    folder.run(&["run", "-c", "x", "mixed"]).exits(0);
    let trace = folder.run(&["trace", "x"]).exits(0).out;
    assert!(trace.contains(own) && trace.contains("model     reply 2: script:other.json\n"), "{trace}");
    folder.run(&["run", "-c", "x", "only the other"]).exits(0);
    let trace = folder.run(&["trace", "x"]).exits(0).out;
    let headers: Vec<&str> = trace.lines().filter(|line| line.starts_with("turn      ")).collect();
    assert!(headers[0].ends_with(" at work") && headers[1].ends_with(" at work, by script:other.json"), "{trace}");
}

#[test]
fn list_has_the_newest_first() {
    let folder = talked();
    folder.run(&["run", "-c", "second", "hi"]).exits(0);
    let ran = folder.run(&["list"]).exits(0);
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let shown: Vec<_> = lines.iter().map(|line| (line[0], &line[2..])).collect();
    assert_eq!(shown, [("second", &["s", "ago", "idle", "hi"][..]), ("first", &["s", "ago", "idle", "do", "it"])]);
}

#[test]
fn list_json_is_one_object_a_line() {
    let folder = talked();
    let ran = folder.run(&["list", "--json"]).exits(0);
    let [one] = &ran.events()[..] else { panic!("{}", ran.out) };
    assert_eq!((&one["id"], &one["state"], &one["message"]), (&"first".into(), &"idle".into(), &"thanks".into()));
    assert!(one["opened"].as_str().unwrap() < one["written"].as_str().unwrap());
    assert_eq!(one["seq"], folder.run(&["show", "first", "--json"]).events().len());
}

#[test]
fn list_says_what_waits_and_what_was_said_last_however_long_ago() {
    let call = r#"{ "tool_calls": [{ "id": "c1", "name": "list_files", "arguments": {} }] }"#;
    let ask = r#"{ "tool_calls": [{ "id": "q", "name": "ask_human", "arguments": { "question": "Which?" } }] }"#;
    let calls = format!("{call},").repeat(30);
    let folder = Folder::with_script(&format!("{calls}{ask}"));
    folder.run(&["run", "-c", "w", &format!("first\nwords {}", "and more ".repeat(20))]).exits(4);
    let ran = folder.run(&["list"]).exits(0);
    assert!(ran.out.contains("waiting  first words and more") && ran.out.ends_with("…\n"), "{}", ran.out);
}

#[test]
fn looking_makes_nothing() {
    let folder = Folder::with_config(REPLIES, CONFIG);
    for look in [&["list"][..], &["show", "first"], &["trace", "first"]] {
        folder.run(look).exits(1).prints("").says("there is no database t.db").says("hint: ");
        let memory = [look, &["--store", "memory:"]].concat();
        folder.run(&memory).exits(1).prints("").says("the store `memory:` keeps nothing").says("hint: ");
        folder.file("empty.db", "");
        folder.run(&[look, &["--store", "sqlite:empty.db"]].concat()).exits(1).says("is empty");
    }
    assert!(!folder.path().join("t.db").exists());
    assert_eq!(folder.read("empty.db"), "");
    let talked = talked();
    talked.run(&["show", "nobody"]).exits(1).prints("").says("there is no conversation nobody");
    for command in [
        &["show", "nobody"][..],
        &["trace", "nobody"],
        &["cancel", "nobody"],
        &["resolve", "nobody", "c1", "--approve"],
    ] {
        let ran = talked.run(&[command, &["--store", "sqlite:./t.db"]].concat()).exits(1).prints("");
        ran.says("hint: `turnbuckle list --store sqlite:./t.db` says which there are");
    }
    assert_eq!(talked.run(&["list"]).exits(0).out.lines().count(), 1, "nobody was made by being looked for");
    for bad in ["a b", "ä", "../x", &"x".repeat(65)] {
        for look in ["show", "trace", "cancel"] {
            talked.run(&[look, bad]).exits(2).prints("").says("hint: ");
        }
        talked.run(&["resolve", bad, "c1", "--approve"]).exits(2).prints("").says("hint: ");
        talked.run(&["chat", "-c", bad]).exits(2).prints("").says("hint: ");
    }
}

#[test]
fn a_sub_agent_is_part_of_its_parent() {
    let folder = Folder::new();
    folder.file(
        "script.json",
        r#"{ "replies": [ { "tool_calls": [{ "id": "c2", "name": "reviewer", "arguments": { "task": "look" } }] }, { "text": "ok" } ],
             "agents": { "reviewer": [ { "text": "fine" } ] } }"#,
    );
    let config =
        "[agent]\nmodel = \"script:script.json\"\n[store]\nurl = \"sqlite:t.db\"\n[[agents]]\nname = \"reviewer\"\n";
    folder.file("turnbuckle.toml", config);
    folder.run(&["run", "-c", "x", "go"]).exits(0).prints("ok\n");
    let listed = folder.run(&["list"]).exits(0).out;
    assert!(listed.starts_with("x ") && listed.lines().count() == 1, "{listed}");
    assert!(folder.run(&["show", "x/c2"]).exits(0).out.contains("agent     fine\n"));
    assert!(folder.run(&["trace", "x/c2"]).exits(0).out.contains("call      \"fine\""));
}

/// Someone whom the project lets in, and who has not accepted its file, is not told that a conversation is there, but why nothing is.
#[test]
fn roles_of_a_file_that_was_not_accepted_are_told_not_to_count() {
    let folder = Folder::with_config(r#"{ "text": "hi" }"#, "[access]\nread = [\"support\"]\n");
    folder.run(&["run", "-c", "till", "hello"]).exits(0);
    folder.file("sue/.config/turnbuckle/turnbuckle.toml", "[scope]\nuser = \"sue\"\nroles = [\"support\"]\n");
    let as_sue = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env("HOME", folder.path().join("sue"));
        Ran::of(command)
    };
    for id in ["till", "none"] {
        let shown = as_sue(&["show", id]).exits(1).says(&format!("there is no conversation {id}"));
        shown.says("`[access]` of turnbuckle.toml is not accepted, so it is not used").says("turnbuckle trust");
    }
    as_sue(&["list"]).exits(0).prints("").says("is not accepted, so it is not used");
    as_sue(&["trust", "--yes"]).exits(0);
    let shown = as_sue(&["show", "till"]).exits(0);
    assert!(shown.out.contains("hello") && !shown.err.contains("[access]"), "{shown:?}");
}

#[test]
fn a_chat_in_which_nothing_was_said_is_not_listed() {
    let folder = Folder::with_script(r#"{ "text": "hi" }"#);
    folder.run_with_stdin(&["chat", "-c", "empty"], b"").exits(0);
    folder.run(&["list"]).exits(0).prints("");
    folder.run(&["list", "--json"]).exits(0).prints("");
    folder.run_with_stdin(&["chat", "-c", "empty"], b"hello\n").exits(0);
    assert!(folder.run(&["list"]).exits(0).out.contains("hello"));
}

#[test]
fn trace_and_why_tell_what_hooks_changed() {
    let call = r#"{ "tool_calls": [{ "id": "c1", "name": "read_file", "arguments": { "path": "a.txt" } }] }"#;
    let hook = |name: &str, on: &str, more: &str, answer: &str| {
        format!("[[hooks]]\nuse = \"command\"\nname = \"{name}\"\non = \"{on}\"\n{more}run = '''echo '{answer}''''\n")
    };
    let config = hook("rewriter", "before_agent", "", r#"{"prompt": "read it now", "context": "Be brief."}"#)
        + &hook("adder", "after_tool", "", r#"{"context": "mind the gap"}"#)
        + &hook("hider", "before_agent", "hides_changes = true\n", r#"{"prompt": "read"}"#);
    let folder = Folder::with_config(&format!(r#"{call}, {{ "text": "done" }}"#), &config);
    folder.file("a.txt", "contents");
    folder.run(&["run", "-c", "w", "please read it"]).exits(0);
    let trace = folder.run(&["trace", "w"]).exits(0).out;
    for line in [
        "          added for this turn: \"Be brief.\"\n",
        "          changed the message: (not kept) -> (not kept)\n",
        "          changed the message: (not kept) -> \"read\"\n",
        "          changed the result: \"contents",
        "mind the gap",
    ] {
        assert!(trace.contains(line), "{line:?} is not in:\n{trace}");
    }
    assert!(!trace.contains("please read it"), "a hook hides it: {trace}");
    let one = folder.run(&["trace", "w", "--json"]).exits(0).events().remove(0);
    let change =
        |name: &str| &one["hooks"].as_array().unwrap().iter().find(|hook| hook["hook"] == name).unwrap()["change"];
    assert_eq!(change("rewriter")["injected"], json!([{ "text": "Be brief.", "for": "this_turn" }]));
    assert_eq!(change("adder")["edit"]["of"], "result");
    let why = folder.run(&["why", "w"]).exits(0).out;
    assert!(why.contains("    hook    rewriter added ") && why.contains("            \"Be brief.\"\n"), "{why}");
    let calls = folder.run(&["why", "w", "--json"]).exits(0).events();
    assert_eq!(calls[0]["injected"][0]["texts"], json!(["Be brief."]));
}

#[test]
fn no_record_has_the_value_of_a_providers_key() {
    let config = "[[hooks]]\nuse = \"command\"\non = \"before_agent\"\nrun = '''echo '{\"context\": \"it is hunter2hunter2, not AKIAABCDEFGHIJKLMNOP\"}''''\n";
    let folder = Folder::with_config(r#"{ "text": "done" }"#, config);
    let ran = folder.command(&["run", "-c", "w", "hi"]).env("OPENAI_API_KEY", "hunter2hunter2").output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let one = folder.run(&["trace", "w", "--json"]).exits(0).events().remove(0);
    let text = one["hooks"][0]["change"]["injected"][0]["text"].as_str().unwrap();
    assert_eq!(text, "it is [redacted: OPENAI_API_KEY], not [redacted: key]");
}
