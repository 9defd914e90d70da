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
fn the_users_own_file_runs_what_a_folder_brings_along_only_once_the_folder_is_accepted() {
    let folder = filled(Folder::cloned(WRITE, ""), DENY);
    folder.users_file(USE);
    folder.run(&["run", "write"]).exits(2).says("accepted").says("turnbuckle trust");
    let listed = folder.run(&["hooks"]).exits(0).out;
    assert!(listed.contains("settings.json, not accepted; its failure is ignored"), "{listed}");
    folder.run(&["trust", "--yes"]).exits(0);
    let ran = folder.run(&["run", "--json", "write"]).exits(0);
    assert!(ran.event("tool_result")["content"].to_string().contains("hands off"));
    folder.file(".claude/hooks/gate.sh", ALLOW);
    folder.run(&["run", "write"]).exits(2).says("gate.sh");
    folder.users_file("[[hooks]]\nuse = \"claude\"\nproject = false\n");
    let ran = folder.run(&["run", "--json", "write"]);
    assert!(!ran.out.contains("hands off"), "the folder's handlers are left out: {}", ran.out);
}

#[test]
fn the_users_own_handlers_run_anywhere_and_without_a_projects_files_if_that_is_asked_for() {
    let folder = filled(Folder::foreign(), DENY);
    folder.users_file(&format!(
        "[agent]\nmodel = \"script:{}\"\n{USE}",
        folder.file("script.json", &replies()).display()
    ));
    let own = folder.home().join(".claude/settings.json");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(
        own,
        r#"{"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "touch own"}]}]}}"#,
    )
    .unwrap();
    folder.run(&["run", "write"]).exits(2).says("turnbuckle trust");
    let ran = folder.run(&["run", "--ignore-project", "--json", "write"]);
    assert!(!ran.out.contains("hands off"), "the folder's gate is left out, as asked: {}", ran.out);
    assert!(folder.path().join("own").exists(), "the user's own handler ran: {}", ran.err);
    let bare = Folder::foreign();
    bare.users_file(&format!("[agent]\nmodel = \"script:{}\"\n{USE}", bare.file("script.json", &replies()).display()));
    bare.run(&["run", "write"]).exits(4);
}

fn replies() -> String {
    format!("{{\"replies\": [{WRITE}]}}")
}

#[test]
fn a_plugin_inside_the_folder_needs_acceptance_whoever_names_it() {
    let folder = Folder::cloned(WRITE, "");
    folder.file(
        "plugin/hooks/hooks.json",
        r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch ran; exit 2"}]}]}}"#,
    );
    folder.users_file("[[hooks]]\nuse = \"claude\"\nproject = false\nplugins = [\"plugin\"]\n");
    folder.run(&["run", "write"]).exits(2).says("turnbuckle trust");
    assert!(!folder.path().join("ran").exists());
    folder.run(&["run", "--ignore-project", "--model", "script:script.json", "write"]).exits(4);
    assert!(!folder.path().join("ran").exists());
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "write"]).exits(0);
    assert!(folder.path().join("ran").exists());
}

#[test]
fn a_pipe_as_settings_hangs_no_command_before_or_after_acceptance() {
    let folder = Folder::cloned(WRITE, USE);
    std::fs::create_dir(folder.path().join(".claude")).unwrap();
    let pipe = folder.path().join(".claude/settings.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for command in [&["run", "write"][..], &["hooks"], &["check"], &["hooks", "import"], &["trust", "list"]] {
        let ran = folder.run(command);
        assert!(ran.code == 0 || ran.err.contains("it is a pipe") || ran.err.contains("trust"), "{command:?}: {ran:?}");
    }
    folder.run(&["trust", "--yes"]);
    folder.run(&["run", "--trust-hooks", "write"]).exits(2).says("it is a pipe");
    folder.run(&["hooks", "import"]).exits(2).says("it is a pipe");
}

#[test]
fn a_handler_calls_a_tool_of_a_server_of_the_configuration() {
    const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../turnbuckle-mcp/tests/it/server.py");
    let server = format!("[[tools.mcp]]\nname = \"test\"\ncommand = [\"python3\", \"{SERVER}\", \"good\"]\n");
    let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"echoed"}}"#;
    let handler = serde_json::json!({"type": "mcp_tool", "server": "test", "tool": "echo", "input": {"text": deny}});
    let settings = serde_json::json!({"hooks": {"PreToolUse": [{"matcher": "Write", "hooks": [handler]}]}}).to_string();
    let folder = Folder::with_config(WRITE, &format!("{USE}{server}"));
    folder.file(".claude/settings.json", &settings);
    let ran = folder.run(&["run", "--json", "write"]).exits(0);
    assert!(ran.event("tool_result")["content"].to_string().contains("echoed"), "{}", ran.out);
    let event = br#"{"tool_name": "Write", "tool_input": {"file_path": "/a"}}"#;
    let tried = folder.run_with_stdin(&["hooks", "test", "PreToolUse"], event).exits(0);
    assert!(tried.out.contains("the call is denied, and the model reads why: echoed"), "{}", tried.out);
    let without = Folder::with_config(WRITE, USE);
    without.file(".claude/settings.json", &settings);
    without.run(&["check"]).exits(0).says("\"test\", which is not configured");
}

#[test]
fn a_handler_has_no_terminal_though_the_program_has_one() {
    let folder = Folder::with_config(r#"{ "text": "done" }"#, USE);
    let look = "if (exec 3</dev/tty) 2>/dev/null; then echo tty; else echo none; fi > seen; ps -o sid= -p $$ | tr -d ' ' >> seen; echo $$ >> seen";
    let settings =
        serde_json::json!({"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": look}]}]}});
    folder.file(".claude/settings.json", &settings.to_string());
    let run = format!("'{}' run hi", env!("CARGO_BIN_EXE_turnbuckle"));
    let mut on_terminal = std::process::Command::new("script");
    on_terminal.args(["-qec", &run, "/dev/null"]).current_dir(folder.path()).env("HOME", folder.home());
    on_terminal.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    assert!(on_terminal.status().unwrap().success());
    let seen = folder.read("seen");
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[0], "none", "{seen}");
    assert_eq!(lines[1], lines[2], "it leads a session of its own: {seen}");
}

#[test]
fn a_file_named_with_config_runs_what_a_folder_brings_along_only_if_that_was_accepted() {
    let folder = filled(Folder::cloned(WRITE, USE), DENY);
    folder.file("other.toml", &format!("[agent]\nmodel = \"script:script.json\"\n{USE}"));
    folder.run(&["run", "--config", "other.toml", "write"]).exits(2).says("turnbuckle trust --folder");
    folder.run(&["trust", "--folder", "--yes"]).exits(0);
    folder.run(&["run", "--config", "other.toml", "write"]).exits(0);
}

#[test]
fn sessions_begin_and_end_with_the_process() {
    let folder = Folder::with_config(r#"{ "text": "one" }, { "text": "two" }"#, USE);
    let note = r#"{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "jq -r .source >> noted"}]}],
        "SessionEnd": [{"hooks": [{"type": "command", "timeout": 30, "command": "jq -r .reason >> noted; echo bye >&2; exit 2"}]}]}}"#;
    folder.file(".claude/settings.json", note);
    folder.run(&["trust", "--yes"]).exits(0);
    folder.run(&["run", "-c", "talk", "hi"]).exits(0).says("bye");
    folder.run(&["run", "-c", "talk", "again"]).exits(0);
    assert_eq!(folder.read("noted"), "startup\nother\nresume\nother\n");
}

#[test]
fn handlers_are_listed_with_their_files_and_what_does_not_run_is_said() {
    let folder = filled(Folder::with_config(WRITE, USE), DENY);
    let listed = folder.run(&["hooks"]).exits(0);
    assert!(listed.out.contains("PreToolUse \"Write|Edit\"") && listed.out.contains("settings.json"), "{}", listed.out);
    let lines: Vec<Value> = folder.run(&["hooks", "--json"]).exits(0).events();
    let line = lines.iter().find(|line| line["hook"] == "claude" && line["point"] == "before_tool").unwrap();
    assert_eq!(line["handlers"][0]["on_failure"], "ignore");
    let never = r#"{"hooks": {"Setup": [{"hooks": [{"type": "command", "command": "x"}]}],
        "PreToolUse": [{"hooks": [{"type": "command", "command": "no-such-program-here"}]}]}}"#;
    folder.file(".claude/settings.local.json", never);
    folder.run(&["check"]).exits(0).says("Setup is never fired").says("no-such-program-here");
    let script = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "sh \"$CLAUDE_PROJECT_DIR\"/.claude/gone.sh"}]}]}}"#;
    folder.file(".claude/settings.local.json", script);
    folder.run(&["check"]).exits(0).says("/.claude/gone.sh\", which is not there");
    let unused = filled(Folder::with_config(WRITE, ""), DENY);
    unused.run(&["hooks"]).exits(0).says("do not run").says("hooks import");
    unused.run(&["check"]).exits(0).says("do not run");
    let agent = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "agent", "prompt": "x"}]}]}}"#;
    folder.file(".claude/settings.local.json", agent);
    folder.run(&["run", "write"]).exits(2).says("agent");
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

#[test]
fn check_lists_only_points_with_handlers_and_names_matchers_that_fit_no_tool() {
    let folder = filled(Folder::with_config(WRITE, USE), DENY);
    let fits = folder.run(&["check"]).exits(0);
    assert!(!fits.err.contains("fits no tool"), "{}", fits.err);
    let found: Value = serde_json::from_str(&folder.run(&["check", "--json"]).exits(0).out).unwrap();
    let hooks = found["hooks"].as_array().unwrap();
    let points: Vec<&Value> = hooks.iter().filter(|one| one["hook"] == "claude").map(|one| &one["point"]).collect();
    assert_eq!(points, ["before_tool"], "elsewhere it only writes the transcript");
    for (matcher, hint) in [
        ("Wirte", "did you mean `Write`?"),
        ("write_file", "scripts call it `Write`"),
        ("mcp__memory", "`mcp__memory__.*` is every tool of that server"),
        ("Teleport", "is the tool in `builtin`?"),
    ] {
        let command = r#"{"type": "command", "command": "true"}"#;
        let settings = format!(r#"{{"hooks": {{"PostToolUse": [{{"matcher": "{matcher}", "hooks": [{command}]}}]}}}}"#);
        folder.file(".claude/settings.local.json", &settings);
        folder
            .run(&["check"])
            .exits(0)
            .says(&format!("the matcher \"{matcher}\" of PostToolUse fits no tool"))
            .says(hint);
    }
}
