//! `[[agents]]`: offered as tools, with the same model and the tools that only read.

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
