//! `use = "claude"`: several settings files and sections, what an acceptance covers of them, and what people are told of handlers that
//! do not run.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::program::Folder;

const WRITE: &str = r#"{ "tool_calls": [{ "id": "c1", "name": "write_file", "arguments": { "path": "a.txt", "content": "x" } }] }, { "text": "done" }"#;
const USE: &str = "[[hooks]]\nuse = \"claude\"\n";
const ALLOW: &str =
    "#!/bin/sh\necho '{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"allow\"}}'\n";

fn script(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn users_settings(folder: &Folder, settings: &serde_json::Value) {
    let own = folder.home().join(".claude/settings.json");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(own, settings.to_string()).unwrap();
}

fn handler(event: &str, command: &str) -> serde_json::Value {
    json!({"hooks": {event: [{"hooks": [{"type": "command", "command": command}]}]}})
}

#[test]
fn a_plugins_own_scripts_are_part_of_the_acceptance_wherever_the_plugin_lies() {
    let elsewhere = tempfile::tempdir().unwrap();
    let root = elsewhere.path().join("my plugin");
    let hooks = json!({"hooks": {"PreToolUse": [{"hooks": [
        {"type": "command", "command": "\"${CLAUDE_PLUGIN_ROOT}\"/scripts/gate.sh"},
        {"type": "command", "command": "sh", "args": ["${CLAUDE_PLUGIN_ROOT}/scripts/more.sh"]},
        {"type": "command", "command": "cd \"$CLAUDE_PLUGIN_ROOT/scripts\" && ./third.sh"}]}]}});
    script(&root.join("hooks/hooks.json"), &hooks.to_string());
    for name in ["gate.sh", "more.sh", "third.sh"] {
        script(&root.join("scripts").join(name), ALLOW);
    }
    let config = format!("{USE}plugins = [{:?}]\n", root.display().to_string());
    let folder = Folder::cloned(WRITE, &config);
    let shown = folder.run(&["trust", "--yes"]).exits(0).out;
    for name in ["gate.sh", "more.sh", "third.sh"] {
        assert!(shown.contains(&format!("my plugin/scripts/{name}")), "{name}: {shown}");
    }
    assert!(!shown.contains("computed names"), "{shown}");
    folder.run(&["run", "write"]).exits(0);
    for name in ["gate.sh", "more.sh", "third.sh"] {
        script(&root.join("scripts").join(name), "#!/bin/sh\ntouch ran\n");
        folder.run(&["run", "write"]).exits(2).says(name);
        assert!(!folder.path().join("ran").exists());
        script(&root.join("scripts").join(name), ALLOW);
        folder.run(&["run", "write"]).exits(0);
    }
}

#[test]
fn the_users_own_plugin_that_lies_elsewhere_is_accepted_with_the_users_file() {
    let elsewhere = tempfile::tempdir().unwrap();
    let hooks = handler("UserPromptSubmit", "${CLAUDE_PLUGIN_ROOT}/note.sh");
    script(&elsewhere.path().join("hooks/hooks.json"), &hooks.to_string());
    script(&elsewhere.path().join("note.sh"), "#!/bin/sh\ntouch noted\n");
    let folder = Folder::cloned(r#"{ "text": "done" }"#, "");
    folder.users_file(&format!("{USE}plugins = [{:?}]\n", elsewhere.path().display().to_string()));
    folder.run(&["run", "hi"]).exits(0);
    assert!(folder.path().join("noted").exists());
    folder.file(".claude/settings.json", "{}");
    folder.run(&["run", "hi"]).exits(2).says("turnbuckle trust");
    folder.run(&["trust", "--yes"]).exits(0);
    script(&elsewhere.path().join("note.sh"), "#!/bin/sh\ntouch changed\n");
    folder.run(&["run", "hi"]).exits(0);
    assert!(folder.path().join("changed").exists(), "it is not the project's to accept");
}

#[test]
fn trust_says_which_commands_lead_to_files_that_it_cannot_look_at() {
    let folder = Folder::cloned(WRITE, USE);
    folder.file(".claude/gates/a.sh", "true\n");
    let settings = json!({"hooks": {"PreToolUse": [{"hooks": [
        {"type": "command", "command": "cat .claude/gates/*.sh | sh"},
        {"type": "command", "command": "sh", "args": ["-c", "for f in .claude/gates/?.sh; do sh $f; done"]},
        {"type": "command", "command": "sh .claude/gates/a.sh"}]}]}});
    folder.file(".claude/settings.json", &settings.to_string());
    let shown = folder.run(&["trust", "--yes"]).exits(0).out;
    let note = shown.split("computed names are in").nth(1).unwrap_or_default().replace("\n        ", "");
    assert!(note.contains("cat .claude/gates/*.sh | sh") && note.contains("gates/?.sh"), "{shown}");
    assert!(note.contains("may change without being asked about"), "{shown}");
    assert!(!note.contains("sh .claude/gates/a.sh"), "{shown}");
}

#[test]
fn a_project_that_switches_all_handlers_off_must_be_accepted_and_everybody_is_told() {
    let folder = Folder::cloned(WRITE, "");
    folder.users_file(USE);
    users_settings(&folder, &handler("PreToolUse", "exit 2"));
    folder.file(".claude/settings.json", r#"{"disableAllHooks": true}"#);
    folder.run(&["run", "write"]).exits(2).says("turnbuckle trust");
    let listed = folder.run(&["hooks"]).exits(0);
    assert!(listed.err.contains("`disableAllHooks`"), "{}", listed.err);
    let shown = folder.run(&["trust", "--yes"]).exits(0).out.replace("\n        ", "");
    assert!(shown.contains("switches off the handlers of your own ~/.claude/settings.json"), "{shown}");
    let ran = folder.run(&["run", "write"]);
    assert!(ran.err.contains("switches off 1 handler of") && ran.err.contains("/.claude/settings.json"), "{}", ran.err);
    let ran = folder.run(&["run", "--ignore-project", "--model", "script:script.json", "--json", "write"]);
    assert!(ran.event("tool_result")["ok"] == false, "without the project the user's gate holds: {}", ran.out);
    assert!(!ran.err.contains("disableAllHooks"), "what is left out switches nothing off: {}", ran.err);
}

#[test]
fn a_folder_with_nothing_but_settings_says_how_they_are_accepted_or_left_out() {
    let folder = Folder::cloned(WRITE, "");
    std::fs::remove_file(folder.path().join("turnbuckle.toml")).unwrap();
    folder.users_file(USE);
    folder.file(".claude/settings.json", &handler("PreToolUse", "exit 2").to_string());
    let refused = folder.run(&["run", "--model", "script:script.json", "write"]).exits(2);
    for name in ["turnbuckle trust", "--trust-hooks", "--ignore-project"] {
        assert!(refused.err.contains(name), "{name} in {}", refused.err);
    }
    assert!(!refused.err.contains("--store"), "no database is concerned: {}", refused.err);
}

#[test]
fn a_handler_runs_once_though_the_users_file_and_the_projects_both_use_the_settings() {
    let folder = Folder::cloned(r#"{ "text": "done" }, { "text": "done" }"#, USE);
    folder.users_file(USE);
    users_settings(&folder, &handler("UserPromptSubmit", "echo user >> noted"));
    folder.file(".claude/settings.json", &handler("UserPromptSubmit", "echo project >> noted").to_string());
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0);
    assert_eq!(folder.read("noted"), "user\nproject\n");
    let listed = folder.run(&["hooks"]).exits(0).out;
    assert_eq!(listed.matches("echo user").count(), 1, "{listed}");
    assert_eq!(listed.matches("echo project").count(), 1, "{listed}");
    let tried = folder.run_with_stdin(&["hooks", "test", "UserPromptSubmit"], br#"{"prompt": "hi"}"#).exits(0).out;
    assert_eq!(tried.matches("handler   ").count(), 2, "{tried}");
}

#[test]
fn the_options_of_the_projects_section_hold_for_the_projects_handlers() {
    let folder = Folder::cloned(
        r#"{ "text": "done" }"#,
        "[[hooks]]\nuse = \"claude\"\nreplaced = [{ event = \"UserPromptSubmit\", command = \"echo project >> noted\" }]\n",
    );
    folder.users_file(USE);
    users_settings(&folder, &handler("UserPromptSubmit", "echo user >> noted"));
    folder.file(".claude/settings.json", &handler("UserPromptSubmit", "echo project >> noted").to_string());
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "hi"]).exits(0);
    assert_eq!(folder.read("noted"), "user\n");
}

#[test]
fn a_misspelt_event_is_told_at_the_start_and_by_every_command_that_shows_hooks() {
    let folder = Folder::cloned(r#"{ "text": "done" }"#, USE);
    folder.file(".claude/settings.json", &handler("PreToolUze", "exit 2").to_string());
    let told = "there is no event \"PreToolUze\" (did you mean PreToolUse?); its handlers do not run";
    let shown = folder.run(&["trust", "--yes"]).exits(0).out.replace("\n        ", "");
    assert!(shown.contains(told), "{shown}");
    for command in [&["run", "hi"][..], &["hooks"], &["check"]] {
        let ran = folder.run(command).exits(0);
        assert_eq!(ran.err.matches(told).count(), 1, "{command:?}: {}", ran.err);
    }
    let imported = folder.run(&["hooks", "import"]).exits(0).out;
    assert!(imported.contains(told), "{imported}");
}

#[test]
fn an_event_that_is_another_word_is_told_without_a_guess() {
    let folder = Folder::cloned(r#"{ "text": "done" }"#, USE);
    folder.file(".claude/settings.json", &handler("Foo", "exit 2").to_string());
    folder.run(&["trust", "--yes"]).exits(0);
    let ran = folder.run(&["check"]).exits(0);
    assert!(ran.err.contains("there is no event \"Foo\"; its handlers do not run"), "{}", ran.err);
}

#[test]
fn a_decision_among_other_text_is_told_and_blocks_where_failures_block() {
    let deny =
        r#"echo Loading; echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny"}}'"#;
    let folder = Folder::with_config(WRITE, USE);
    folder.file(".claude/settings.json", &handler("PreToolUse", deny).to_string());
    let ran = folder.run(&["run", "--json", "write"]);
    assert!(ran.out.contains("text before or behind the JSON"), "{}", ran.out);
    let blocking = json!({"hooks": {"PreToolUse": [{"hooks": [{"command": deny, "onFailure": "block"}]}]}});
    folder.file(".claude/settings.json", &blocking.to_string());
    let ran = folder.run(&["run", "--json", "write"]).exits(0);
    assert!(ran.event("tool_result")["ok"] == false, "{}", ran.out);
}

#[test]
fn check_says_whether_a_missing_script_blocks_or_lets_everything_pass() {
    for (command, hint) in [
        ("python3 .claude/gone.py", "exits 2, which blocks everything"),
        ("bash .claude/gone.sh", "it would let everything pass"),
        ("no-such-program-here", "it would let everything pass"),
        ("if", "which blocks everything"),
    ] {
        let folder = Folder::with_config(WRITE, USE);
        folder.file(".claude/settings.json", &handler("PreToolUse", command).to_string());
        folder.run(&["check"]).exits(0).says(hint);
    }
    // Nothing waits for this one, and `onFailure` would be refused.
    let aside = json!({"hooks": {"Stop": [{"hooks": [{"command": "no-such-program-here", "async": true}]}]}});
    let folder = Folder::with_config(WRITE, USE);
    folder.file(".claude/settings.json", &aside.to_string());
    let checked = folder.run(&["check"]).exits(0);
    assert!(checked.err.contains("was not found") && !checked.err.contains("onFailure"), "{}", checked.err);
}

#[test]
fn a_failure_outside_of_a_turn_is_told_once_before_the_program_ends() {
    let failures =
        [("Notification", WRITE, 4), ("StopFailure", r#"{ "error": { "status": 400, "message": "no" } }"#, 1)];
    for (event, replies, code) in failures {
        let folder = Folder::with_config(replies, USE);
        folder.file(".claude/settings.json", &handler(event, "echo no bell >&2; exit 5").to_string());
        let ran = folder.run(&["run", "write"]).exits(code);
        let told = format!("the handler of {event} failed (nonblocking_error): exit code 5: no bell");
        assert_eq!(ran.err.matches(&told).count(), 1, "{}", ran.err);
    }
}

#[test]
fn a_call_of_a_sub_agent_stands_in_the_transcript_as_scripts_expect_it() {
    let replies = r#"{ "tool_calls": [{ "id": "c1", "name": "reviewer", "arguments": { "task": "look" } }] }, { "text": "done" }"#;
    let folder = Folder::with_config(replies, &format!("{USE}[[agents]]\nname = \"reviewer\"\nsystem = \"x\"\n"));
    folder.file(
        "script.json",
        &format!("{{\"replies\": [{replies}], \"agents\": {{\"reviewer\": [{{\"text\": \"fine\"}}]}}}}"),
    );
    folder.file(".claude/settings.json", &handler("Stop", "cp \"$(jq -r .transcript_path)\" seen").to_string());
    folder.run(&["run", "go"]).exits(0);
    let seen = folder.read("seen");
    let used = seen.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let used: Vec<_> =
        used.flat_map(|line| line["message"]["content"].as_array().cloned().unwrap_or_default()).collect();
    let used = used.iter().find(|part| part["type"] == "tool_use").unwrap();
    assert_eq!(used["name"], "Agent", "{seen}");
    assert_eq!(used["input"], json!({"prompt": "look", "description": "reviewer", "subagent_type": "reviewer"}));
}

#[test]
fn the_hooks_of_a_point_are_tried_with_handlers_of_other_points_beside_them() {
    let folder = Folder::with_config(WRITE, USE);
    let settings = json!({"hooks": {
        "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo more"}]}],
        "PreToolUse": [{"hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}]}});
    folder.file(".claude/settings.json", &settings.to_string());
    let event = br#"{"tool_name": "write_file", "tool_input": {"path": "a", "content": "x"}}"#;
    let tried = folder.run_with_stdin(&["hooks", "test", "before_tool"], event).exits(0).out;
    assert!(tried.contains("deny") && tried.contains("no"), "{tried}");
}
