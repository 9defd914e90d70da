//! `use = "claude"`: from `.claude/settings.json` to the outcome, and what must be accepted before.

use serde_json::Value;

use crate::program::Folder;

const WRITE: &str = r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } }] }, { "text": "done" }"#;
const USE: &str = "[[hooks]]\nuse = \"claude\"\n";
const GATE: &str = r#"{"hooks": {"PreToolUse": [{"matcher": "Write|Edit", "hooks": [
    {"type": "command", "command": "\"$CLAUDE_PROJECT_DIR\"/.claude/hooks/gate.sh"}]}]}}"#;
const ALLOW: &str =
    "#!/bin/sh\necho '{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"allow\"}}'\n";
const DENY: &str = "#!/bin/sh\necho 'hands off' >&2\nexit 2\n";

fn filled(folder: Folder, gate: &str) -> Folder {
    use std::os::unix::fs::PermissionsExt as _;
    folder.file(".claude/settings.json", GATE);
    let script = folder.file(".claude/hooks/gate.sh", gate);
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_script_of_the_project_allows_and_denies() {
    let allowing = filled(Folder::with_config(WRITE, USE), ALLOW);
    let ran = allowing.run(&["run", "--json", "write"]).exits(0);
    assert_eq!(ran.event("tool_started")["approved_by"], serde_json::json!({"hook": "claude"}));
    assert_eq!(allowing.read("a.txt"), "x");
    let denying = filled(Folder::with_config(WRITE, USE), DENY);
    let ran = denying.run(&["run", "--json", "write"]).exits(0);
    assert!(ran.event("tool_result")["content"].to_string().contains("hands off"));
}

#[test]
fn an_allow_never_satisfies_a_rule_of_access() {
    let rule = "[access]\napprove = [{ tool = \"write_file\", by = [\"manager\"] }]\n";
    let folder = filled(Folder::with_config(WRITE, &format!("{rule}{USE}")), ALLOW);
    folder.run(&["run", "write"]).exits(4);
    assert!(!folder.path().join("a.txt").exists());
}

#[test]
fn a_folder_that_was_not_accepted_is_refused_and_a_changed_script_or_setting_is_asked_about_again() {
    let folder = filled(Folder::cloned(WRITE, USE), DENY);
    folder.run(&["run", "write"]).exits(2).says("accepted");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "write"]).exits(0);
    folder.file(".claude/hooks/gate.sh", ALLOW);
    folder.run(&["run", "write"]).exits(2).says("gate.sh");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "write"]).exits(0);
    folder.file(".claude/settings.json", "{}");
    folder.run(&["run", "write"]).exits(2).says("settings.json");
    folder.run(&["trust", "--yes"]).exits(0);
    folder.file(".claude/settings.local.json", GATE);
    folder.run(&["run", "write"]).exits(2).says("accepted");
}

#[test]
fn the_users_own_file_does_not_run_what_a_folder_brings_along() {
    let folder = filled(Folder::cloned(WRITE, ""), DENY);
    folder.users_file(USE);
    folder.run(&["run", "write"]).exits(2).says("accepted with the project's own file");
}

#[test]
fn handlers_are_listed_with_their_files_and_what_does_not_run_is_said() {
    let folder = filled(Folder::with_config(WRITE, USE), DENY);
    let listed = folder.run(&["hooks"]).exits(0);
    assert!(listed.out.contains("PreToolUse \"Write|Edit\"") && listed.out.contains("settings.json"), "{}", listed.out);
    let lines: Vec<Value> = folder.run(&["hooks", "--json"]).exits(0).events();
    let line = lines.iter().find(|line| line["hook"] == "claude" && line["point"] == "before_tool").unwrap();
    assert_eq!(line["handlers"][0]["on_failure"], "ignore");
    let never = r#"{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "x"}]}],
        "PreToolUse": [{"hooks": [{"type": "command", "command": "no-such-program-here"}]}]}}"#;
    folder.file(".claude/settings.local.json", never);
    folder.run(&["check"]).exits(0).says("SessionStart is never fired").says("no-such-program-here");
    let http = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "http", "url": "http://127.0.0.1:1"}]}]}}"#;
    folder.file(".claude/settings.local.json", http);
    folder.run(&["run", "write"]).exits(2).says("http");
}

#[test]
fn deleting_a_conversation_erases_its_transcript() {
    let folder = filled(Folder::with_config(WRITE, USE), DENY);
    folder.run(&["run", "-c", "talk", "write"]).exits(0);
    let transcript = folder.path().join(".turnbuckle/claude/talk.jsonl");
    assert!(transcript.exists());
    folder.run(&["delete", "talk", "--yes"]).exits(0);
    assert!(!transcript.exists());
}

#[test]
fn a_command_hook_that_answers_in_the_other_vocabulary_fails_with_the_hint() {
    let hook = "[[hooks]]\nuse = \"command\"\non = \"before_tool\"\nrun = '''echo '{\"decision\":\"block\"}' '''\n";
    let folder = Folder::with_config(WRITE, hook);
    let ran = folder.run(&["run", "--json", "write"]).exits(0);
    let said = ran.event("tool_result")["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(said.contains("use = \"claude\""), "{said}");
}
