//! Claude-style hooks: scripts as people have them, run as real processes, and what becomes of the turn.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnbuckle::event::EventKind;
use turnbuckle::hook::{Decision, HookEntry, HookExt, OnFailure, Record};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::scope::Author;
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, ConversationId, Conversations, Scope};
use turnbuckle_tools::ClaudeHooks;
use turnbuckle_tools::claude::{ClaudePlaces, ClaudeSettings};

/// A project with settings, and an agent with a `shell` tool that only notes what it is called with.
pub(crate) struct Project {
    folder: TempDir,
    calls: Arc<Mutex<Vec<Value>>>,
}

/// What came of a turn.
pub(crate) struct Played {
    pub(crate) events: Vec<EventKind>,
    pub(crate) records: Vec<Record>,
    calls: Vec<Value>,
}

impl Played {
    /// The result of the first call.
    pub(crate) fn result(&self) -> (bool, String) {
        let found = self.events.iter().find_map(|event| match event {
            EventKind::ToolResult { ok, content, .. } => Some((*ok, content.text())),
            _ => None,
        });
        found.unwrap()
    }

    /// How the runs of handlers came out, in order.
    pub(crate) fn outcomes(&self) -> Vec<&str> {
        self.records.iter().filter_map(|record| record.outcome.as_deref()).collect()
    }

    pub(crate) fn end(&self) -> (String, String) {
        let found = self.events.iter().find_map(|event| match event {
            EventKind::TurnEnded(ended) => {
                Some((ended.outcome.to_string(), ended.reason().map(|reason| reason.to_string()).unwrap_or_default()))
            }
            _ => None,
        });
        found.unwrap_or_else(|| ("waiting".to_owned(), String::new()))
    }

    fn approved_by(&self) -> Option<Author> {
        self.events.iter().find_map(|event| match event {
            EventKind::ToolStarted { approvals, .. } => approvals.as_ref()?.last.clone(),
            _ => None,
        })
    }
}

impl Project {
    pub(crate) fn new(settings: Value) -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join(".claude")).unwrap();
        fs::write(folder.path().join(".claude/settings.json"), settings.to_string()).unwrap();
        Self { folder, calls: Arc::default() }
    }

    /// With one handler of an event, for everything.
    pub(crate) fn with(event: &str, command: &str) -> Self {
        Self::new(json!({"hooks": {event: [{"hooks": [{"type": "command", "command": command}]}]}}))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn script(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn settings(&self) -> ClaudeSettings {
        let project = self.path().to_owned();
        ClaudeSettings::load(&ClaudePlaces {
            project,
            reads_project: true,
            home: None,
            managed: None,
            plugins: Vec::new(),
        })
    }

    pub(crate) fn hook(&self) -> HookEntry {
        ClaudeHooks::new(self.settings(), self.path(), self.path().join(".turnbuckle")).into()
    }

    /// A turn in which the model calls `shell` with `ls`, and then says that it is done.
    pub(crate) async fn play(&self) -> Played {
        self.play_with(self.hook()).await
    }

    pub(crate) async fn play_with(&self, hook: HookEntry) -> Played {
        let agent = self.agent(hook, script());
        let conversations = Conversations::builder(agent, MemoryStore::default()).build();
        self.play_in(&conversations).await
    }

    /// An agent with the tool and the hook.
    pub(crate) fn agent(&self, hook: HookEntry, model: impl turnbuckle::model::Model) -> Agent {
        let schema = json!({
            "type": "object", "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
            "required": ["command"], "additionalProperties": false,
        });
        let calls = self.calls.clone();
        let shell = function_with_schema("shell", "Runs.", schema, Effect::Pure, move |_, arguments: Value| {
            calls.lock().unwrap().push(arguments.clone());
            async move { Ok(format!("ran {}", arguments["command"].as_str().unwrap())) }
        });
        Agent::builder("coder", model).tool(shell).approve(["shell"]).hook(hook).build().unwrap()
    }

    /// One more turn of the conversation.
    pub(crate) async fn play_in(&self, conversations: &Conversations) -> Played {
        let id = ConversationId::from("c");
        let handle = conversations.send(&id, "go", Scope::local()).await.unwrap();
        let turn = handle.turn().clone();
        handle.wait().await.unwrap();
        let records = conversations.records(&id, &turn, Scope::local()).await.unwrap();
        let log = conversations.log(&id, Scope::local()).await.unwrap();
        let calls = self.calls.lock().unwrap().clone();
        Played { events: log.iter().map(|event| event.kind.clone()).collect(), records, calls }
    }
}

/// The model calls `shell` with `ls`, and then says that it is done.
pub(crate) fn script() -> Script {
    let step = ScriptReply::calls("c1", "shell", json!({"command": "ls"}));
    Script::of([step, ScriptReply::says("done")]).when_exhausted(OnExhausted::Repeat)
}

pub(crate) const ALLOW: &str =
    r#"echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'"#;

/// The handler, and one before it that lets the call run.
pub(crate) fn allowed_and(event: &str, command: &str) -> Project {
    let group = |command: &str| json!([{"hooks": [{"type": "command", "command": command}]}]);
    match event {
        "PreToolUse" => Project::new(json!({"hooks": {"PreToolUse": [
            {"hooks": [{"type": "command", "command": ALLOW}, {"type": "command", "command": command}]}]}})),
        event => Project::new(json!({"hooks": {"PreToolUse": group(ALLOW), event: group(command)}})),
    }
}

#[tokio::test]
async fn allow_opens_the_gate_and_the_log_says_which_hook_did() {
    let played = Project::with("PreToolUse", ALLOW).play().await;
    assert_eq!(played.result(), (true, "ran ls".to_owned()));
    assert_eq!(played.approved_by(), Some(Author::hook(&"claude".into())));
}

#[tokio::test]
async fn silence_is_no_approval() {
    let played = Project::with("PreToolUse", "exit 0").play().await;
    assert_eq!(played.end().0, "waiting");
    assert!(played.calls.is_empty());
}

#[tokio::test]
async fn exit_2_denies_with_stderr_and_beats_an_allow() {
    let played = allowed_and("PreToolUse", "echo 'no ls here' >&2; exit 2").play().await;
    let (ok, text) = played.result();
    assert!(!ok && text.contains("no ls here"), "{text}");
    assert!(played.calls.is_empty());
    assert_eq!(played.outcomes(), ["ok", "blocked"]);
}

#[tokio::test]
async fn a_script_sees_the_names_and_fields_that_it_expects() {
    let check = r#"jq -e '.tool_name == "Bash" and .tool_input.command == "ls" and .hook_event_name == "PreToolUse"
        and .session_id == "c" and .permission_mode == "default" and (.tool_use_id | length > 0)
        and (.transcript_path | endswith(".jsonl")) and .cwd == $ENV.CLAUDE_PROJECT_DIR' >/dev/null || exit 2
        test "$CLAUDECODE" = 1 -a "$PWD" = "$CLAUDE_PROJECT_DIR" || exit 2"#;
    let played = allowed_and("PreToolUse", check).play().await;
    assert_eq!(played.outcomes(), ["ok", "ok"], "{:?}", played.result());
}

#[tokio::test]
async fn a_hook_that_echoes_its_stdin_decides_nothing() {
    for event in ["PreToolUse", "PostToolUse", "Stop", "UserPromptSubmit"] {
        let played = allowed_and(event, "cat").play().await;
        assert_eq!(played.end().0, "completed", "{event}");
        assert_eq!(played.outcomes(), ["ok", "ok"], "{event}");
    }
}

#[tokio::test]
async fn a_script_need_not_read_its_stdin_and_can_rely_on_the_last_newline() {
    let played = allowed_and("PreToolUse", "exec <&-; exit 0").play().await;
    assert_eq!(played.outcomes(), ["ok", "ok"]);
    let played = allowed_and("PreToolUse", "set -e; read -r line; test -n \"$line\"").play().await;
    assert_eq!(played.outcomes(), ["ok", "ok"]);
}

#[tokio::test]
async fn a_background_child_that_holds_stdout_is_not_waited_for() {
    let began = Instant::now();
    let played = allowed_and("PreToolUse", "sleep 20 & echo done").play().await;
    assert_eq!(played.outcomes(), ["ok", "ok"]);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn death_by_a_signal_is_never_a_good_end() {
    let played = allowed_and("PreToolUse", "kill -9 $$").play().await;
    assert_eq!(played.outcomes(), ["ok", "signalled"]);
    assert!(played.result().0, "it fails open, as documented");
    let hook = allowed_and("PreToolUse", "kill -9 $$");
    let played = hook.play_with(hook.hook().on_failure(OnFailure::Block)).await;
    assert!(!played.result().0 && played.result().1.contains("signalled"), "{:?}", played.result());
}

#[tokio::test]
async fn json_with_unknown_keys_is_read_and_text_before_it_makes_it_text() {
    let deny = r#"{"metrics":{"ms":1},"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"never","x":1}}"#;
    let played = allowed_and("PreToolUse", &format!("echo '{deny}'")).play().await;
    assert!(played.result().1.contains("never"));
    let played = allowed_and("PreToolUse", &format!("echo 'Welcome!'; echo '{deny}'")).play().await;
    assert!(played.result().0, "a banner before the object makes it plain text");
}

#[tokio::test]
async fn json_is_read_on_every_exit_code_and_stderr_is_never_an_answer() {
    let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"never"}}"#;
    let played = allowed_and("PreToolUse", &format!("echo '{deny}'; exit 1")).play().await;
    assert!(played.result().1.contains("never"));
    let played = allowed_and("PreToolUse", &format!("{ALLOW} >&2; exit 2")).play().await;
    assert!(!played.result().0, "exit 2 blocks, whatever stands on stderr");
    let played = allowed_and("PreToolUse", &format!("{ALLOW}; echo no >&2; exit 2")).play().await;
    assert!(!played.result().0 && played.result().1.contains("no"), "an allow cannot undo exit 2");
}

#[tokio::test]
async fn a_model_cannot_get_past_a_denial_by_what_a_script_cuts_or_repeats_of_its_arguments() {
    // A sign of two units, cut in the middle: `JSON.stringify("git push 🔧".slice(0, 10))`.
    let cut = r#"printf '%s' '{"decision":"block","reason":"not git push \ud83d"}'"#;
    let (ok, text) = allowed_and("PreToolUse", cut).play().await.result();
    assert!(!ok && text.contains("not git push \u{fffd}"), "{text}");
    // Arguments that are nested as deeply as the model likes.
    let deep = r#"python3 -c 'print("{\"decision\":\"block\",\"input\":" + "[" * 200 + "]" * 200 + "}")'"#;
    let played = allowed_and("PreToolUse", deep).play().await;
    assert_eq!(played.outcomes(), ["ok", "blocked"]);
    let (ok, text) = played.result();
    assert!(!ok && text.contains("nested too deeply"), "{text}");
    let played = allowed_and("SessionStart", deep).play().await;
    assert_eq!(played.outcomes(), ["invalid_json", "ok"], "where nothing can be blocked it is a failure");
}

#[tokio::test]
async fn an_input_is_changed_without_a_decision_and_the_gate_still_asks() {
    let rewrite = r#"echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"command":"ls -l","description":"x","timeout":1500}}}'"#;
    let played = Project::with("PreToolUse", rewrite).play().await;
    assert_eq!(played.end().0, "waiting");
    let played = allowed_and("PreToolUse", rewrite).play().await;
    assert_eq!(played.calls, [json!({"command": "ls -l", "timeout": 2})]);
    assert!(played.approved_by().is_some());
}

#[tokio::test]
async fn the_old_words_approve_and_block_still_decide() {
    let played = Project::with("PreToolUse", r#"echo '{"decision":"approve"}'"#).play().await;
    assert!(played.result().0);
    let played = allowed_and("PreToolUse", r#"echo '{"decision":"block","reason":"old"}'"#).play().await;
    assert!(!played.result().0 && played.result().1.contains("old"));
}

#[tokio::test]
async fn a_deny_without_a_reason_is_a_deny() {
    let deny = r#"echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny"}}'"#;
    let played = allowed_and("PreToolUse", deny).play().await;
    assert!(!played.result().0 && played.result().1.contains("gave no reason"));
    assert!(!played.result().1.contains("echo"), "the model is not told what runs: {}", played.result().1);
    let played = allowed_and("PreToolUse", "true --token s3cr3t; exit 2").play().await;
    assert!(!played.result().0 && !played.result().1.contains("s3cr3t"), "{}", played.result().1);
    let played = allowed_and("PreToolUse", r#"echo '{"continue":false}' # s3cr3t"#).play().await;
    assert!(!played.end().1.contains("s3cr3t"), "a parent's model reads why a sub-agent ended: {}", played.end().1);
}

#[tokio::test]
async fn continue_false_ends_the_turn_at_every_event() {
    for event in ["PreToolUse", "PostToolUse", "Stop", "UserPromptSubmit"] {
        let played = allowed_and(event, r#"echo '{"continue":false,"stopReason":"enough"}'"#).play().await;
        assert_eq!(played.end(), ("halted".to_owned(), "enough".to_owned()), "{event}");
        let ends = |record: &&Record| record.outcome.as_deref() == Some("blocked");
        let decisions: Vec<Decision> = played.records.iter().filter(ends).map(|record| record.decision).collect();
        assert_eq!(decisions, [if event == "Stop" { Decision::Prevent } else { Decision::Halt }], "{event}");
    }
}

#[tokio::test]
async fn a_message_that_is_blocked_is_not_kept() {
    let played = Project::with("UserPromptSubmit", "echo secret >&2; exit 2").play().await;
    assert_eq!(played.end(), ("halted".to_owned(), "secret".to_owned()));
    assert!(!played.events.iter().any(|event| matches!(event, EventKind::UserMessage { .. })));
}

#[tokio::test]
async fn ten_megabytes_of_output_go_to_a_file_and_bad_utf_8_is_replaced() {
    let project = Project::with("UserPromptSubmit", "head -c 10000000 /dev/zero | tr '\\0' x");
    let played = project.play_with(project.hook().durable()).await;
    let injected = played.events.iter().find_map(|event| match event {
        EventKind::Injection { content, .. } => Some(content.text()),
        _ => None,
    });
    let injected = injected.unwrap();
    assert!(injected.len() < 5000 && injected.contains("all of them in"), "{injected}");
    let project = Project::with("UserPromptSubmit", "printf 'a\\377b'");
    let played = project.play_with(project.hook().durable()).await;
    let is_there = |event: &EventKind| matches!(event, EventKind::Injection { content, .. } if content.text().contains("a\u{fffd}b"));
    assert!(played.events.iter().any(is_there));
}

#[tokio::test]
async fn fifty_handlers_run_side_by_side_and_are_merged_in_order() {
    let handlers: Vec<Value> = (0..50)
        .map(|n| json!({"type": "command", "command": format!("sleep 0.5; echo line {n} >&2; exit 2")}))
        .collect();
    let project = Project::new(json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": handlers}]}}));
    let began = Instant::now();
    let played = project.play().await;
    assert!(began.elapsed() < Duration::from_secs(12), "one after the other they would need 25 seconds");
    let text = played.result().1;
    let places: Vec<usize> = (0..50).map(|n| text.find(&format!("line {n}\n")).unwrap_or(text.len())).collect();
    assert!(places.is_sorted(), "{text}");
    assert_eq!(played.outcomes().len(), 50);
}

#[tokio::test]
async fn a_handler_that_takes_too_long_gets_time_to_clean_up_and_decides_nothing() {
    let handler =
        json!({"type": "command", "timeout": 0.3, "command": "trap 'touch cleaned; exit 0' TERM; sleep 20 & wait"});
    let allow = json!({"type": "command", "command": ALLOW});
    let project = Project::new(json!({"hooks": {"PreToolUse": [{"hooks": [allow, handler]}]}}));
    let played = project.play().await;
    assert_eq!(played.outcomes(), ["ok", "timeout"]);
    assert!(played.result().0 && project.path().join("cleaned").exists());
}

#[tokio::test]
async fn a_handler_can_say_that_its_failure_blocks() {
    for command in ["exit 1", "/no/such/program", "kill -9 $$", "echo '{\"continue\": 1}'"] {
        let handler = json!({"type": "command", "onFailure": "block", "command": command});
        let allow = json!({"type": "command", "command": ALLOW});
        let project = Project::new(json!({"hooks": {"PreToolUse": [{"hooks": [allow, handler]}]}}));
        let played = project.play().await;
        assert!(!played.result().0, "{command}: {:?}", played.result());
    }
}

#[tokio::test]
async fn an_interpreter_that_finds_no_script_blocks_and_is_marked() {
    let played = allowed_and("PreToolUse", "python3 missing.py").play().await;
    assert!(!played.result().0);
    assert_eq!(played.outcomes(), ["ok", "blocked_suspect"]);
}

#[tokio::test]
async fn a_matcher_that_cannot_be_read_blocks() {
    let allow = json!({"hooks": [{"type": "command", "command": ALLOW}]});
    let bad = json!({"matcher": "Bash(", "hooks": [{"type": "command", "command": "exit 0"}]});
    let project = Project::new(json!({"hooks": {"PreToolUse": [allow, bad]}}));
    let played = project.play().await;
    assert!(!played.result().0 && played.result().1.contains("cannot be read"));
    assert!(project.settings().warnings.iter().any(|warning| warning.contains("matcher")));
}

#[tokio::test]
async fn what_handlers_add_stands_beside_the_result() {
    let before = r#"echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","additionalContext":"from before"}}'"#;
    let after = r#"jq -e '.tool_response.stdout == "ran ls"' >/dev/null && echo '{"decision":"block","reason":"format it","hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"from after"}}'"#;
    let group = |command: &str| json!([{"hooks": [{"type": "command", "command": command}]}]);
    let played =
        Project::new(json!({"hooks": {"PreToolUse": group(before), "PostToolUse": group(after)}})).play().await;
    let (ok, text) = played.result();
    assert!(ok, "nothing is undone");
    for part in ["ran ls", "[claude] from before", "[claude] format it", "[claude] from after"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[tokio::test]
async fn permission_requests_are_answered_where_a_person_would_be_asked() {
    let allow = r#"echo '{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow","updatedPermissions":[{"type":"setMode"}]}}}'"#;
    let played = Project::with("PermissionRequest", allow).play().await;
    assert!(played.result().0 && played.approved_by().is_some());
    let played = Project::with("PermissionRequest", "echo no >&2; exit 2").play().await;
    assert_eq!(played.end().0, "waiting", "exit 2 is not honoured there");
    let played = allowed_and("PermissionRequest", "touch fired").play().await;
    assert_eq!(played.outcomes(), ["ok"], "nobody would have been asked");
}

#[tokio::test]
async fn the_same_refused_stop_is_fed_back_up_to_the_cap() {
    let played = allowed_and("Stop", "echo again >&2; exit 2").play().await;
    let refused = played.events.iter().filter(|event| matches!(event, EventKind::StopFeedback { .. })).count();
    assert_eq!((refused, played.end().0.as_str()), (8, "completed"));
    let played = allowed_and(
        "Stop",
        r#"jq -e .stop_hook_active >/dev/null && exit 0; echo '{"decision":"block","reason":"once"}'"#,
    )
    .play()
    .await;
    let refused = played.events.iter().filter(|event| matches!(event, EventKind::StopFeedback { .. })).count();
    assert_eq!(refused, 1);
}

#[tokio::test]
async fn the_transcript_is_private_and_can_be_searched_literally() {
    let find = r#"path=$(jq -r .transcript_path); test "$(stat -c %a "$path")" = 600 || exit 1; grep -q '"role":"assistant"' "$path" || exit 1"#;
    let played = allowed_and("Stop", find).play().await;
    assert_eq!(played.outcomes(), ["ok", "ok"]);
}

#[tokio::test]
async fn scripts_in_the_usual_languages_work_unchanged() {
    let python = "#!/usr/bin/env python3\nimport json, sys\nd = json.load(sys.stdin)\nif d['tool_input'].get('command', '').startswith('ls'):\n    print('use fd', file=sys.stderr)\n    sys.exit(2)\n";
    let bash = "#!/bin/bash\nset -euo pipefail\ninput=$(cat)\ncmd=$(jq -r '.tool_input.command // empty' <<<\"$input\")\n[[ $cmd == ls* ]] && { echo 'use fd' >&2; exit 2; }\nexit 0\n";
    for (name, text) in [("hook.py", python), ("hook.sh", bash)] {
        let project = allowed_and("PreToolUse", &format!("\"$CLAUDE_PROJECT_DIR\"/{name}"));
        project.script(name, text);
        let played = project.play().await;
        assert!(played.result().1.contains("use fd"), "{name}: {:?}", played.result());
    }
    let exec = json!({"type": "command", "command": "${CLAUDE_PROJECT_DIR}/hook.sh", "args": []});
    let project = Project::new(json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [exec]}]}}));
    project.script("hook.sh", bash);
    assert!(project.play().await.result().1.contains("use fd"), "the exec form");
}

#[test]
fn one_bad_entry_does_not_void_a_file_and_the_same_handler_of_two_files_runs_once() {
    let good = json!({"hooks": [{"type": "command", "command": "a"}]});
    let project = Project::new(json!({"hooks": {
        "Stop": [good, {"hooks": [{"type": "agent", "prompt": "p"}]}],
        "Setup": [good], "Nonsense": [good], "StopFailure": [{"hooks": 3}],
    }}));
    let local =
        json!({"hooks": {"Stop": [good, {"hooks": [{"type": "command", "command": "b", "onFailure": "block"}]}]}});
    fs::write(project.path().join(".claude/settings.local.json"), local.to_string()).unwrap();
    let settings = project.settings();
    let commands: Vec<String> = settings.handlers.iter().map(|handler| handler.action.to_string()).collect();
    assert_eq!(commands, ["a", "b"]);
    assert_eq!(settings.unsupported.len(), 1, "a handler that could block and does not run is not only a warning");
    assert_eq!(
        (settings.warnings.len(), settings.notices.len()),
        (2, 1),
        "{:?} {:?}",
        settings.warnings,
        settings.notices
    );
}
