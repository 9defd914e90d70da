//! An approval given later, by another process: the tool runs once.

use std::io::{BufRead, BufReader, Read};

use turnbuckle::store::Store;

use crate::program::{Folder, Ran};

const STORE: &str = "[store]\nurl = \"sqlite:t.db\"\n";
const WRITE: &str = r#"{ "text": "I will write it. ", "tool_calls": [
    { "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } } ] }, { "text": "done" }"#;

fn waiting() -> Folder {
    let folder = Folder::with_config(WRITE, STORE);
    let ran = folder.run(&["run", "-c", "w", "write it"]).exits(4).prints("");
    let ran = ran.says("c1 (approval of write_file(a.txt, x))").says("hint: `turnbuckle resolve w c1 --digest ");
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
    let again = folder.run(&["resolve", "w", "c1", "--approve"]).exits(1).prints("").says("stale").says("hint: ");
    again.says("it was answered before: approved by user local at 2");
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
    ran.says("`turnbuckle resolve w q --answer '\"…\"' --store sqlite:t.db`");
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
        ran.says("w is busy: its turn waits for c1").says("hint: `turnbuckle resolve w c1 --digest ");
    }
    folder.run(&["resolve", "w", "c1", "--approve"]).exits(0).prints("done\n");
}

#[test]
fn what_is_not_there_cannot_be_resolved() {
    let folder = waiting();
    let unknown = folder.run(&["resolve", "w", "c9", "--approve"]).exits(1).says("stale");
    unknown.says("conversation w has no call c9");
    folder.run(&["resolve", "nobody", "c1", "--approve"]).exits(1).says("there is no conversation nobody");
    let ran = folder.run(&["resolve", "w", "c1", "--approve", "--store", "sqlite:gone.db"]).exits(1);
    ran.says("there is no database gone.db");
    assert!(!folder.path().join("gone.db").exists());
    folder.run(&["resolve", "w", "c1", "--approve", "--store", "memory:"]).exits(1).says("keeps nothing");
    for bad in [&["resolve", "w", "c1"][..], &["resolve", "w", "c1", "--approve", "--deny"], &["resolve", "w"]] {
        folder.run(bad).exits(2).prints("").says("error: ");
    }
}

#[test]
fn an_answer_that_comes_too_late_is_stale_and_the_turn_goes_on_without_it() {
    let folder = Folder::with_config(WRITE, "[limits]\napproval_timeout = \"1s\"\n");
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let ran = folder.run(&["resolve", "w", "c1", "--approve"]).exits(1).prints("done\n");
    ran.says("error: the answer to call c1 is stale: nobody answered in time").says("the turn goes on without it");
    assert_eq!(folder.read("a.txt"), "", "nothing was approved in time");
    folder.run(&["run", "-c", "w"]).exits(0).says("has no open turn");
}

#[test]
fn a_late_answer_that_is_only_recorded_leaves_the_turn_expired_until_its_agent_takes_it_up() {
    let folder = Folder::with_config(WRITE, "[limits]\napproval_timeout = \"1s\"\n");
    folder.run(&["run", "-c", "w", "write it"]).exits(4);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let ran = folder.run(&["answer", "w", "c1", "--approve"]).exits(1).prints("").says("nobody answered in time");
    let result = folder.run(&["show", "w", "--json"]).event("tool_result");
    assert_eq!(result["ok"], false, "the call has its result without the agent: {result}");
    assert_eq!(folder.run(&["list", "--json"]).exits(0).events()[0]["left_reason"], "expired");
    folder.paste(&ran.command_shown("run -c w")).exits(0).prints("done\n");
    assert_eq!(folder.read("a.txt"), "");
}

#[test]
fn an_answer_to_a_call_that_was_answered_runs_nothing() {
    for second in [&["--deny", "no no"][..], &["--approve"], &["--approve", "--model", "demo"]] {
        let folder = waiting();
        folder.run(&["answer", "w", "c1", "--approve"]).exits(0);
        let before = folder.run(&["show", "w", "--json"]).exits(0).out;
        let ran = folder.run(&[&["resolve", "w", "c1"], second].concat()).exits(1).prints("");
        assert!(!ran.err.contains("dispatch"), "{}", ran.err);
        let ran = ran.says("error: the answer to call c1 is stale").says("agent turnbuckle carries the turn on: ");
        assert_eq!(folder.read("a.txt"), "");
        assert_eq!(folder.run(&["show", "w", "--json"]).exits(0).out, before, "nothing was written");
        assert!(folder.run(&["list"]).exits(0).out.contains("[answered, and not taken up yet]"));
        if !second.contains(&"demo") {
            folder.paste(&ran.command_shown("run -c w")).exits(0).prints("done\n");
            assert_eq!(folder.read("a.txt"), "x");
        }
    }
}

#[test]
fn an_answer_from_stdin_is_bounded() {
    let ask = r#"{ "tool_calls": [{ "id": "q", "name": "ask_human", "arguments": { "question": "Which?" } }] }"#;
    let folder = Folder::with_script(&format!(r#"{ask}, {{ "text": "so be it" }}"#));
    folder.run(&["run", "-c", "w", "choose"]).exits(4);
    let resolve = &["resolve", "w", "q", "--answer", "-"][..];
    let huge = format!("\"{}\"", "x".repeat(10 << 20));
    folder.run_with_stdin(resolve, huge.as_bytes()).exits(2).prints("").says("longer than 1 MiB").says("hint: ");
    folder.run_with_stdin(resolve, b"{rubbish").exits(2).prints("").says("not JSON");
    folder.run_with_stdin(resolve, b"").exits(2).says("not JSON");
    folder.run_with_stdin(resolve, b"[\"blue\"]\n").exits(0).prints("so be it\n");
}

#[test]
fn while_another_process_has_the_conversation_the_answer_is_handed_over() {
    let folder = Folder::new();
    let calls = r#"{ "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } },
                   { "id": "c2", "name": "reviewer", "arguments": { "task": "look" } }"#;
    // The sub-agent speaks until the file is there: that is, until the answer has arrived.
    let slow = format!(r#"{{ "chunks": [{}"fine"], "delay_ms": 100 }}"#, "\"x \",".repeat(100));
    let script = format!(
        r#"{{ "replies": [{{ "tool_calls": [{calls}] }}, {{ "text": "both" }}], "agents": {{ "reviewer": [{slow}] }} }}"#
    );
    folder.file("script.json", &script);
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n[[agents]]\nname = \"reviewer\"\n");
    let mut child = folder.command(&["run", "-c", "w", "--json", "go"]).spawn().unwrap();
    let (mut lines, mut out) = (BufReader::new(child.stdout.take().unwrap()), String::new());
    while !(out.contains("\"suspension\"") && out.contains("tool_progress")) {
        assert_ne!(lines.read_line(&mut out).unwrap(), 0, "{out}");
    }
    folder.run(&["resolve", "w", "c9", "--approve"]).exits(1).says("stale");
    let resolved = folder.run(&["resolve", "w", "c1", "--approve", "--json"]).exits(0);
    let resolved = resolved.says("handed over: another process has").events();
    let is = |key: &str, value: serde_json::Value| assert_eq!(resolved[0][key], value, "{resolved:?}");
    is("handed_over", true.into());
    is("decision", "approved".into());
    is("by", serde_json::json!({ "user": "local" }));
    lines.read_to_string(&mut out).unwrap();
    let output = child.wait_with_output().unwrap();
    let ran = Ran { code: output.status.code().unwrap_or(-1), out, err: String::new() }.exits(0);
    assert_eq!(ran.event("resolution")["decision"], "approved");
    assert_eq!(folder.read("a.txt"), "x");
}

#[test]
fn what_belongs_to_another_is_not_there() {
    let folder = waiting();
    let store = turnbuckle_stores::SqliteStore::open(folder.path().join("t.db")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ann = turnbuckle::Scope::user("ann");
    runtime.block_on(store.open(&"hers".into(), ann.actor(), turnbuckle::Timestamp::default())).unwrap();
    for refused in [
        &["resolve", "hers", "c1", "--approve"][..],
        &["cancel", "hers"],
        &["show", "hers"],
        &["trace", "hers"],
        &["run", "-c", "hers", "hi"],
    ] {
        folder.run(refused).exits(1).prints("").says("there is no conversation hers");
    }
    assert!(!folder.run(&["list"]).exits(0).out.contains("hers"));
}

/// A model chooses the ids and arguments of its calls; a person reads them and pastes the command.
#[test]
fn what_a_call_is_named_steers_neither_the_terminal_nor_the_shell() {
    let call = |id: &str| {
        let call = serde_json::json!({ "id": id, "name": "write_file",
            "arguments": { "path": "a.txt", "content": "x\r\u{1b}[8mhidden\u{202e}" } });
        Folder::with_config(&format!(r#"{{ "tool_calls": [{call}] }}, {{ "text": "done" }}"#), STORE)
    };
    for (id, answered_by) in [
        ("$(touch pwned)", "`turnbuckle resolve w '$(touch pwned)' --digest "),
        ("-x", " -- -x`"),
        ("a'b", r"`turnbuckle resolve w 'a'\''b' --digest "),
    ] {
        let folder = call(id);
        let ran = folder.run(&["run", "-c", "w", "go"]).exits(4).says(answered_by);
        assert!(!ran.err.contains(['\u{1b}', '\r', '\u{202e}']), "{:?}", ran.err);
        let shown = folder.run(&["show", "w"]).exits(0);
        assert!(shown.out.contains(answered_by) && !shown.out.contains('\u{1b}'), "{}", shown.out);
        folder.run(&["resolve", "w", "--approve", "--", id]).exits(0).prints("done\n");
    }
}

/// A conversation `w` that the returned process of ann's keeps: a sub-agent speaks for ten seconds while call c1 waits for two
/// managers.
fn kept_by_another() -> (Folder, std::process::Child) {
    let folder = Folder::new();
    let calls = r#"{ "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } },
                   { "id": "c2", "name": "reviewer", "arguments": { "task": "look" } }"#;
    let slow = format!(r#"{{ "chunks": [{}"fine"], "delay_ms": 100 }}"#, "\"x \",".repeat(100));
    let script = format!(
        r#"{{ "replies": [{{ "tool_calls": [{calls}] }}, {{ "text": "both" }}], "agents": {{ "reviewer": [{slow}] }} }}"#
    );
    folder.file("script.json", &script);
    let rule = "[access]\napprove = [ { tool = \"write_file\", by = [\"manager\"], n = 2 } ]\n";
    let config = format!("[agent]\nmodel = \"script:script.json\"\n{rule}[[agents]]\nname = \"reviewer\"\n");
    folder.file("turnbuckle.toml", &config);
    let mut child = folder.command_as(("ann", ""), &["run", "-c", "w", "--json", "go"]).spawn().unwrap();
    let (mut lines, mut out) = (BufReader::new(child.stdout.as_mut().unwrap()), String::new());
    while !(out.contains("\"suspension\"") && out.contains("tool_progress")) {
        assert_ne!(lines.read_line(&mut out).unwrap(), 0, "{out}");
    }
    (folder, child)
}

#[test]
fn an_approval_that_is_handed_over_and_not_enough_is_reported_when_it_is_recorded() {
    let (folder, mut owner) = kept_by_another();
    let began = std::time::Instant::now();
    let ran = folder.run_as(("mia", "manager"), &["resolve", "w", "c1", "--approve"]).exits(0).prints("");
    ran.says("recorded: the approval of user mia; others must approve it as well");
    assert!(began.elapsed() < std::time::Duration::from_secs(8), "{:?}", began.elapsed());
    let second = ["answer", "w", "c1", "--approve", "--json"];
    let line = folder.run_as(("max", "manager"), &second).exits(0).events().remove(0);
    assert_eq!((&line["handed_over"], &line["open"]), (&true.into(), &false.into()), "{line}");
    folder.run_as(("kim", "manager"), &["answer", "w", "c1", "--deny"]).exits(1).says("stale");
    owner.kill().unwrap();
    owner.wait().unwrap();
    let first = folder.run_as(("kim", "manager"), &["answer", "w", "c1", "--approve"]).exits(1);
    first.says("stale");
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_they_are_handed_over() {
    let (folder, mut owner) = kept_by_another();
    let unfit = ["w", "c1", "--approve", "--arguments", r#"{ "nope": 1 }"#];
    let began = std::time::Instant::now();
    let ran = folder.run_as(("mia", "manager"), &[&["resolve"][..], &unfit].concat()).exits(1).prints("");
    ran.says("error: ").says("path");
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    // Without the tool at hand it cannot be told: the answer counts, and the call is asked about again.
    let line =
        folder.run_as(("max", "manager"), &[&["answer", "--json"][..], &unfit].concat()).exits(0).events().remove(0);
    assert_eq!((&line["handed_over"], &line["open"]), (&true.into(), &true.into()), "{line}");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(8);
    let shown = || folder.run_as(("mia", "manager"), &["show", "w", "--json"]).exits(0).out;
    while !shown().contains("\"resolution\"") {
        assert!(std::time::Instant::now() < deadline, "{}", shown());
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
}

#[test]
fn strangers_are_told_the_same_of_what_is_there_was_deleted_or_never_was() {
    let folder = waiting();
    folder.run(&["run", "-c", "gone", "hello"]);
    folder.run(&["cancel", "gone"]);
    folder.run(&["delete", "gone", "--yes"]).exits(0);
    for how in [&["--approve"][..], &["--deny"], &["--approve", "--always"]] {
        for command in ["answer", "resolve"] {
            let told = |id: &str| {
                let ran = folder.run_as(("zed", ""), &[&[command, id, "c1"], how].concat()).exits(1).prints("");
                ran.err.replace(&format!("conversation {id}"), "conversation ID")
            };
            let there = told("w");
            assert!(there.contains("there is no conversation ID"), "{there}");
            assert_eq!(told("gone"), there, "{command} {how:?}");
            assert_eq!(told("none"), there, "{command} {how:?}");
        }
    }
}
