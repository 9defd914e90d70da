//! `[[agents]]`: offered as tools, with the same model and the tools that only read.

use std::io::{BufRead as _, BufReader};

use crate::program::Folder;

const CONFIG: &str = r#"
[agent]
model = "script:script.json"
[[agents]]
name = "reviewer"
system = "You review."
[[hooks]]
use = "command"
name = "gate"
on = "before_tool"
run = "cat >> gated.txt"
tools = ["write_*", "read_*"]
"#;

const SCRIPT: &str = r#"{
  "replies": [
    { "tool_calls": [{ "id": "r", "name": "reviewer", "arguments": { "task": "look at a.txt" } }] },
    { "text": "reviewed" } ],
  "agents": { "reviewer": [
    { "tool_calls": [{ "id": "c", "name": "read_file", "arguments": { "path": "a.txt" } },
                     { "id": "w", "name": "write_file", "arguments": { "path": "b.txt", "content": "x" } }] },
    { "text": "looks good" } ] } }"#;

#[test]
fn a_sub_agent_reads_but_does_not_write_and_its_work_shows_as_progress() {
    let folder = Folder::new();
    folder.file("script.json", SCRIPT);
    folder.file("turnbuckle.toml", CONFIG);
    folder.file("a.txt", "contents");
    let ran = folder.run(&["run", "--json", "review"]).exits(0);
    assert!(ran.events().iter().all(|event| !event["conversation"].as_str().unwrap().contains('/')));
    assert_eq!(ran.event("tool_progress")["call"], "r");
    let result = ran.event("tool_result");
    assert_eq!((&result["call"], &result["content"][0]["text"]), (&"r".into(), &"looks good".into()));
    assert!(folder.read("gated.txt").contains("\"read_file\""), "hooks stand in sub-agents too");
    assert!(!folder.path().join("b.txt").exists());
    let ran = folder.run(&["run", "review"]).exits(0).prints("reviewed\n");
    ran.says("dispatch  reviewer → read_file(a.txt)").says("dispatch  reviewer(\"look at a.txt\") = looks good");
}

#[test]
fn a_sub_agent_without_replies_of_its_own_does_not_say_its_parents() {
    let call = r#"{ "tool_calls": [{ "id": "r", "name": "reviewer", "arguments": { "task": "look" } }] }"#;
    let folder = Folder::with_config(&format!("{call}, {{ \"text\": \"over\" }}"), "[[agents]]\nname = \"reviewer\"\n");
    let ran = folder.run(&["run", "--json", "review"]).exits(0);
    let result = ran.event("tool_result");
    assert_eq!(result["ok"], false);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("the script has 0 replies"), "{result}");
}

#[test]
fn a_tool_that_needs_approval_needs_it_in_a_sub_agent_as_well() {
    let folder = Folder::new();
    folder.file("script.json", SCRIPT);
    let config =
        CONFIG.replace("[[agents]]", "[tools]\napprove = [\"read_file\", \"write_file\", \"edit_file\"]\n[[agents]]");
    folder.file("turnbuckle.toml", &config);
    folder.file("a.txt", "contents");
    let checked = folder.run(&["check"]).exits(0).out;
    assert!(
        checked.contains("approve   read_file, write_file, edit_file, shell, fetch; in sub-agents, too: read_file\n"),
        "{checked}"
    );
    let ran = folder.run(&["run", "-c", "w", "review"]).exits(4).says("r (approval of read_file(a.txt))");
    let started = || folder.run(&["show", "w/r", "--json"]).exits(0).event("tool_started");
    assert!(started().is_null(), "nothing was read before someone approved");
    folder.paste(&ran.command_shown("resolve")).exits(0).prints("reviewed\n");
    assert_eq!(started()["approved_by"]["user"], "local");
    // Without the name in `approve` the sub-agent reads unasked.
    folder.file("turnbuckle.toml", CONFIG);
    folder.run(&["run", "review"]).exits(0).prints("reviewed\n");
}

const ASKS: &str = "[[hooks]]\nuse = \"approval\"\nrules = [ { tool = \"read_file\" } ]\n\
                    [[agents]]\nname = \"reviewer\"\n";

/// `show` printed a command with the id of the sub-agent's conversation, which no command answers.
#[test]
fn what_a_sub_agent_asks_is_shown_with_the_command_that_answers_it() {
    let folder = Folder::new();
    let script = r#"{ "replies": [
        { "tool_calls": [{ "id": "r", "name": "reviewer", "arguments": { "task": "look" } }] }, { "text": "reviewed" } ],
      "agents": { "reviewer": [
        { "tool_calls": [{ "id": "c", "name": "read_file", "arguments": { "path": "a.txt" } },
                         { "id": "d", "name": "read_file", "arguments": { "path": "b.txt" } }] },
        { "text": "looks good" } ] } }"#;
    folder.file("script.json", script);
    folder.file("turnbuckle.toml", &format!("[agent]\nmodel = \"script:script.json\"\n{ASKS}"));
    folder.run(&["run", "-c", "w", "review"]).exits(4);
    let first = folder.run(&["show", "w/r"]).exits(0);
    assert!(first.out.contains("open      c (approval of read_file(a.txt))"), "{}", first.out);
    // The second is asked when the first is answered.
    assert!(first.out.contains("open      d (approval of read_file(b.txt))"), "{}", first.out);
    assert_eq!(first.out.matches("it is asked in conversation w: `turnbuckle show w` says how it stands").count(), 1);
    let command = first.command_shown("resolve");
    assert!(command.starts_with("turnbuckle resolve w r --digest "), "{command}");
    // Whoever may not answer is told so here as well.
    folder.run_as(("eve", ""), &["show", "w/r"]).exits(1).says("there is no conversation w/r");
    folder.paste(&command.replace("resolve", "answer")).exits(0);
    let left = folder.run(&["show", "w/r"]).exits(0);
    assert!(!left.out.contains("turnbuckle resolve") && !left.out.contains("turnbuckle answer"), "{}", left.out);
    folder.run(&["run", "-c", "w"]).exits(4);
    let second = folder.run(&["show", "w/r"]).exits(0);
    assert!(!second.out.contains("open      c "), "{}", second.out);
    folder.paste(&second.command_shown("resolve")).exits(0).prints("reviewed\n");
    let over = folder.run(&["show", "w/r"]).exits(0).out;
    assert!(over.contains("end       completed") && !over.contains("open "), "{over}");
    folder.run(&["show", "w/zz"]).exits(1).says("there is no conversation w/zz");
}

#[test]
fn a_sub_agents_turn_that_a_crash_left_goes_on_with_the_conversation_it_works_for() {
    let folder = Folder::new();
    let slow = format!(r#"{{ "chunks": [{}"fine"], "delay_ms": 50 }}"#, "\"x \",".repeat(200));
    let call = r#"{ "tool_calls": [{ "id": "r", "name": "reviewer", "arguments": { "task": "look" } }] }"#;
    let script = format!(
        r#"{{ "replies": [{call}, {{ "text": "done" }}], "agents": {{ "reviewer": [{slow}, {{ "text": "ok" }}] }} }}"#
    );
    folder.file("script.json", &script);
    folder.file("turnbuckle.toml", "[agent]\nmodel = \"script:script.json\"\n[[agents]]\nname = \"reviewer\"\n");
    let mut child = folder.command(&["run", "-c", "w", "--json", "go"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Its model answers: the message that opened its turn is in the log.
    let answers = |line: &str| line.contains("tool_progress") && line.contains("text_delta");
    assert!(lines.any(|line| answers(&line.unwrap())), "it did not begin");
    child.kill().unwrap();
    child.wait().unwrap();
    let shown = folder.run(&["show", "w/r"]).exits(0).out;
    assert!(shown.contains("the turn is not over: it goes on with that of conversation w"), "{shown}");
    assert!(shown.contains("`turnbuckle show w` says how it stands") && !shown.contains("w/r`"), "{shown}");
}
