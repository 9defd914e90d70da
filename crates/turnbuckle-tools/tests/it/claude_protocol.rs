//! Claude-style hooks, sentence by sentence: answers that are addressed to another event, fields that mean nothing, compaction, tools of
//! servers, variables for later commands, and what scripts find in the transcript.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{HookEntry, HookExt, OnFailure};
use turnbuckle::hooks::{ToolAnswer, ToolServers};
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::Summary;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tools::SubAgent;
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, Conversations, Limits, Reply, Scope};
use turnbuckle_tools::claude::{ClaudeEvent, Dialect};
use turnbuckle_tools::{ClaudeHooks, Shell, ShellOptions};

use crate::claude::{ALLOW, Project, allowed_and, script};

fn group(handler: Value) -> Value {
    json!([{"hooks": [handler]}])
}

fn command(line: &str) -> Value {
    json!({"type": "command", "command": line})
}

/// A denial that names the wrong event.
const MISADDRESSED: &str =
    r#"echo '{"hookSpecificOutput":{"hookEventName":"PostToolUse","permissionDecision":"deny"}}'"#;

#[tokio::test]
async fn an_answer_for_another_event_is_a_failure_that_blocks_where_failures_do() {
    let played = allowed_and("PreToolUse", MISADDRESSED).play().await;
    assert_eq!(played.outcomes(), ["ok", "invalid_json"]);
    assert!(played.result().0, "by default the call runs: {:?}", played.result());
    let blocking = json!({"type": "command", "command": MISADDRESSED, "onFailure": "block"});
    let project = Project::new(json!({"hooks": {"PreToolUse": [{"hooks": [command(ALLOW), blocking]}]}}));
    let (ok, text) = project.play().await.result();
    assert!(!ok && text.contains("is for \"PostToolUse\""), "{text}");
    let project = allowed_and("PreToolUse", MISADDRESSED);
    let (ok, _) = project.play_with(project.hook().on_failure(OnFailure::Block)).await.result();
    assert!(!ok, "and so where the hook's configuration says it");
    let stops = r#"echo '{"continue":false,"hookSpecificOutput":{"permissionDecision":"deny"}}'"#;
    let played = allowed_and("PreToolUse", stops).play().await;
    assert_eq!(played.end().0, "halted", "the universal fields still count");
}

#[tokio::test]
async fn null_counts_as_absent_and_the_decision_beside_it_holds() {
    let block = r#"echo '{"hookSpecificOutput":null,"continue":null,"decision":"block","reason":"not today"}'"#;
    let played = allowed_and("PreToolUse", block).play().await;
    assert_eq!(played.outcomes(), ["ok", "blocked"]);
    let (ok, text) = played.result();
    assert!(!ok && text.contains("not today"), "{text}");
}

#[tokio::test]
async fn of_two_decisions_in_one_answer_the_stricter_holds() {
    let both = |old: &str, new: &str| {
        let specific =
            json!({"hookEventName": "PreToolUse", "permissionDecision": new, "permissionDecisionReason": "the new"});
        command(&format!("echo '{}'", json!({"decision": old, "reason": "the old", "hookSpecificOutput": specific})))
    };
    for (old, new, reason) in
        [("block", "allow", "the old"), ("block", "ask", "the old"), ("approve", "deny", "the new")]
    {
        let played = Project::new(json!({"hooks": {"PreToolUse": group(both(old, new))}})).play().await;
        assert_eq!(played.outcomes(), ["blocked"], "{old} and {new}");
        let (ok, text) = played.result();
        assert!(!ok && text.contains(reason), "{old} and {new}: {text}");
    }
    let played = Project::new(json!({"hooks": {"PreToolUse": group(both("approve", "ask"))}})).play().await;
    assert_eq!(played.end().0, "waiting");
    let played = Project::new(json!({"hooks": {"PreToolUse": group(both("approve", "allow"))}})).play().await;
    assert!(played.result().0);
}

#[tokio::test]
async fn a_gate_for_a_program_is_asked_however_the_program_is_started() {
    let gate = json!({"type": "command", "if": "Bash(touch *)", "command": "echo 'no touching' >&2; exit 2"});
    let project = Project::new(json!({"hooks": {"PreToolUse": [{"hooks": [command(ALLOW), gate]}]}}));
    let run = async |line: &str| {
        let step = ScriptReply::calls("c1", "shell", json!({"command": line}));
        let agent = project.agent(project.hook(), Script::of([step, ScriptReply::says("done")]));
        project.play_in(&Conversations::builder(agent, MemoryStore::default()).build()).await.result()
    };
    for line in [
        "touch x",
        "tou\\\nch x",
        "\"tou\\\nch\" x",
        "true &&\\\ntouch x",
        "timeout 5 touch x",
        "/usr/bin/timeout -k 1 5 touch x",
        "setsid touch x",
        "nice -n 3 ionice -c 3 touch x",
        "sh -c 'touch x'",
        "find . -exec touch {} +",
    ] {
        let (ok, text) = run(line).await;
        assert!(!ok && text.contains("no touching"), "{line:?}: {text}");
    }
    for line in ["echo touch x", "echo 'tou\\\nch x'", "timeout 5 ls", "touchpad x"] {
        assert!(run(line).await.0, "{line:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_to_be_read_blocks_since_it_may_be_a_denial() {
    let deny = |padding: &str| {
        format!(
            r#"head -c 1100000 /dev/zero | tr '\0' '{padding}' > padding
            case '{padding}' in
                x) printf '{{"decision":"block","reason":"'; cat padding; echo '"}}' ;;
                *) cat padding; echo '{{"decision":"block"}}' ;;
            esac"#
        )
    };
    for padding in ["x", " "] {
        let played = allowed_and("PreToolUse", &deny(padding)).play().await;
        assert_eq!(played.outcomes(), ["ok", "blocked"], "{padding:?}");
        let (ok, text) = played.result();
        assert!(!ok && text.contains("counts as a block"), "{padding:?}: {text}");
        for event in ["PreToolUse", "PermissionRequest"] {
            let gate = json!({"type": "command", "command": deny(padding)});
            let (ok, text) = Project::new(json!({"hooks": {event: group(gate)}})).play().await.result();
            assert!(!ok && text.contains("counts as a block"), "{event}, {padding:?}: {text}");
        }
        let once = format!("test -e padding || {{ {}\n}}", deny(padding));
        let gate = json!({"type": "command", "command": once});
        let project = Project::new(json!({"hooks": {"PreToolUse": group(command(ALLOW)), "Stop": group(gate)}}));
        let played = project.play().await;
        assert_eq!(played.outcomes(), ["ok", "blocked", "ok"], "the turn may not stop at once: {padding:?}");
    }
}

#[tokio::test]
async fn a_model_cannot_get_past_a_denial_that_repeats_its_arguments_by_writing_more() {
    let project =
        allowed_and("PreToolUse", "printf '{\"decision\":\"block\",\"reason\":\"no: '; tr -d '\"\\\\\\n'; echo '\"}'");
    let long = "x".repeat(1_500_000);
    let step = ScriptReply::calls("c1", "shell", json!({ "command": long }));
    let model = Script::of([step, ScriptReply::says("done")]).when_exhausted(OnExhausted::Repeat);
    let agent = project.agent(project.hook(), model);
    let played = project.play_in(&Conversations::builder(agent, MemoryStore::default()).build()).await;
    assert_eq!(played.outcomes(), ["ok", "blocked"]);
    let (ok, text) = played.result();
    assert!(!ok && text.contains("no: {"), "the denial is read, not only its length: {}", &text[..text.len().min(200)]);
}

/// The notices of a turn.
async fn notices(project: &Project) -> Vec<String> {
    let mut rig = Rig::new(project.agent(project.hook(), script()));
    assert!(rig.ended("go").await.is_some());
    let notice = |item: &FeedItem| match item {
        FeedItem::Live(LiveEvent::Notice { text, .. }) => Some(text.to_string()),
        _ => None,
    };
    rig.told().iter().filter_map(|told| notice(&told.item)).collect()
}

#[tokio::test]
async fn what_an_answer_says_and_is_not_used_is_told() {
    let say = |event: &str, rest: Value| {
        let mut specific = json!({"hookEventName": event});
        specific.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let answer = json!({"terminalSequence": "\u{7}", "hookSpecificOutput": specific});
        command(&format!("echo '{answer}'"))
    };
    let project = Project::new(json!({"hooks": {
        "PreToolUse": group(command(ALLOW)),
        "UserPromptSubmit": group(say("UserPromptSubmit", json!({"sessionTitle": "t", "suppressOriginalPrompt": true}))),
        "PostToolUse": group(say("PostToolUse", json!({"classifierContext": "x", "updatedInput": {}, "permissionDecision": "deny"}))),
        "SessionStart": group(say("SessionStart", json!({"initialUserMessage": "x", "watchPaths": ["a"], "reloadSkills": true}))),
    }}));
    let told = notices(&project).await.join("\n");
    for key in [
        "terminalSequence",
        "sessionTitle",
        "suppressOriginalPrompt",
        "classifierContext",
        "updatedInput",
        "permissionDecision",
        "initialUserMessage",
        "watchPaths",
        "reloadSkills",
    ] {
        assert!(told.contains(&format!("`{key}` is not used")), "{key} in\n{told}");
    }
    let permits = r#"echo '{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow","updatedPermissions":[]}}}'"#;
    let told = notices(&Project::with("PermissionRequest", permits)).await.join("\n");
    assert!(told.contains("`updatedPermissions` are not used"), "{told}");
}

/// Makes the same summary of everything. A script makes none.
struct Summariser;

impl Model for Summariser {
    fn stream<'a>(&'a self, _: &'a Request, _: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(std::future::ready(Ok(Reply::text("## Facts\nthe sky is blue"))))
    }
}

/// Turns that are long enough for a summary, and how many summaries there are behind them.
async fn compacted(project: &Project, hook: HookEntry) -> usize {
    let made =
        summaries(Agent::builder("a", Script::says(["ok"]).when_exhausted(OnExhausted::Repeat)).hook(hook)).await;
    assert!(project.path().join("fired").exists(), "PreCompact was never fired");
    made.len()
}

/// Turns that are long enough for a summary, and the summaries behind them.
pub(crate) async fn summaries(agent: AgentBuilder) -> Vec<Arc<Summary>> {
    let limits = Limits { context_tokens: 4_000, injection_reserve: 100, ..Limits::default() };
    let agent = agent.limits(limits).summary_model(Summariser).build().unwrap();
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let id = "c".into();
    for turn in 0..45 {
        let message = format!("message-{turn} {}", "word ".repeat(150));
        conversations.send(&id, message, Scope::local()).await.unwrap().wait().await.unwrap();
        conversations.drain(Duration::from_secs(600)).await;
    }
    conversations.summaries(&id, Scope::local()).await.unwrap()
}

#[tokio::test]
async fn compaction_is_seen_before_and_after_and_can_be_blocked() {
    let see = r#"jq -e '.trigger == "auto" and has("custom_instructions") and has("permission_mode") == false' >/dev/null && touch fired"#;
    let project = Project::new(json!({"hooks": {
        "PreCompact": [{"matcher": "manual", "hooks": [command("exit 2")]}, {"matcher": "auto", "hooks": [command(see)]}],
        "PostCompact": group(command("jq -r '.trigger + \" \" + .compact_summary' >> made")),
    }}));
    let made = compacted(&project, project.hook()).await;
    assert!(made > 0);
    let seen = std::fs::read_to_string(project.path().join("made")).unwrap();
    assert_eq!(seen.matches("the sky is blue").count(), made, "{seen}");
    assert!(seen.starts_with("auto "), "{seen}");
    let blocked = Project::with("PreCompact", "touch fired; echo 'not now' >&2; exit 2");
    assert_eq!(compacted(&blocked, blocked.hook()).await, 0);
    let fails = "touch fired; exit 3";
    let project = Project::with("PreCompact", fails);
    assert!(compacted(&project, project.hook()).await > 0, "a failure is ignored by default");
    let project = Project::with("PreCompact", fails);
    assert_eq!(compacted(&project, project.hook().on_failure(OnFailure::Block)).await, 0);
}

/// Servers that note what they are called with.
#[derive(Debug, Default)]
struct Servers(Mutex<Vec<Value>>);

impl ToolServers for Servers {
    fn call<'a>(
        &'a self,
        server: &'a str,
        tool: &'a str,
        input: Map<String, Value>,
    ) -> BoxFuture<'a, Result<ToolAnswer, BoxError>> {
        self.0.lock().unwrap().push(json!([server, tool, input]));
        let answer = |text: &str, is_error| Ok(ToolAnswer { text: text.to_owned(), is_error });
        Box::pin(async move {
            match tool {
                "deny" => answer(
                    r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"says the server"}}"#,
                    false,
                ),
                "break" => answer("it broke", true),
                "hang" => std::future::pending().await,
                _ => Err("there is no such server".into()),
            }
        })
    }
}

#[tokio::test]
async fn a_tool_of_a_server_decides_like_a_program_and_its_failure_is_one() {
    for (tool, blocks, outcome) in [
        ("deny", false, "blocked"),
        ("break", false, "nonblocking_error"),
        ("gone", true, "nonblocking_error"),
        ("hang", true, "timeout"),
    ] {
        let handler = json!({"type": "mcp_tool", "server": "s", "tool": tool, "timeout": 0.2,
            "input": {"line": "${tool_input.command}!"}, "onFailure": if blocks { "block" } else { "ignore" }});
        let project = Project::new(json!({"hooks": {"PreToolUse": [{"hooks": [command(ALLOW), handler]}]}}));
        let servers = Arc::new(Servers::default());
        let hook = ClaudeHooks::new(project.settings(), project.path(), project.path().join(".turnbuckle"));
        let played = project.play_with(hook.tool_servers(servers.clone()).into()).await;
        assert_eq!(played.outcomes(), ["ok", outcome]);
        assert_eq!(played.result().0, tool == "break", "{tool}: {:?}", played.result());
        assert_eq!(*servers.0.lock().unwrap(), [json!(["s", tool, {"line": "ls!"}])]);
    }
    let project = Project::new(json!({"hooks": {"PreToolUse": group(json!({"type": "mcp_tool", "server": "s"}))}}));
    assert!(project.settings().unsupported[0].place.contains("has no `tool`"));
}

#[tokio::test]
async fn variables_of_a_session_start_reach_later_commands_and_nobody_else() {
    let set = r#"echo "export GREETING='hello there'" >> "$CLAUDE_ENV_FILE""#;
    let project = Project::new(json!({"hooks": {
        "SessionStart": [{"hooks": [command(set), command("echo 'export SECOND=2' >> \"$CLAUDE_ENV_FILE\"")]}],
        "PreToolUse": group(command(&format!("test -z \"$CLAUDE_ENV_FILE\" && {ALLOW}"))),
    }}));
    let step = ScriptReply::calls("c1", "shell", json!({"command": "echo $GREETING $SECOND"}));
    let model = Script::of([step, ScriptReply::says("done")]).when_exhausted(OnExhausted::Repeat);
    let shell = Shell::new(ShellOptions::in_folder(project.path()));
    let agent = Agent::builder("coder", model).tool(shell).approve(["shell"]).hook(project.hook()).build().unwrap();
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let id = "with-variables".into();
    let report = conversations.send(&id, "go", Scope::local()).await.unwrap().wait().await.unwrap();
    let log = conversations.log(&id, Scope::local()).await.unwrap();
    let result = log.iter().find_map(|event| match &event.kind {
        turnbuckle::event::EventKind::ToolResult { content, .. } => Some(content.text()),
        _ => None,
    });
    assert!(result.as_deref().is_some_and(|text| text.contains("hello there 2")), "{result:?} {report:?}");
    let left: Vec<_> = std::fs::read_dir(project.path().join(".turnbuckle/claude")).unwrap().collect();
    assert!(
        left.iter().all(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "jsonl")),
        "{left:?}"
    );
}

#[tokio::test]
async fn the_error_of_a_command_begins_with_its_exit_code() {
    let project = Project::new(json!({"hooks": {
        "PreToolUse": group(command(ALLOW)),
        "PostToolUse": group(command("touch worked")),
        "PostToolUseFailure": group(command("jq -r .error > error")),
    }}));
    let step = ScriptReply::calls("c1", "shell", json!({"command": "echo broken; exit 3"}));
    let shell = Shell::new(ShellOptions::in_folder(project.path()));
    let model = Script::of([step, ScriptReply::says("done")]);
    let agent = Agent::builder("coder", model).tool(shell).approve(["shell"]).hook(project.hook()).build().unwrap();
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    conversations.send(&"failing".into(), "go", Scope::local()).await.unwrap().wait().await.unwrap();
    let error = std::fs::read_to_string(project.path().join("error")).unwrap();
    assert!(error.starts_with("Exit code 3\nbroken\n"), "{error}");
    assert!(!project.path().join("worked").exists());
}

#[tokio::test]
async fn a_sub_agents_handlers_find_both_transcripts() {
    let check = r#"jq -r '.agent_type + " " + .session_id + " " + .transcript_path + " " + .agent_transcript_path' | {
        read -r kind session parent own
        { echo "$kind $session"; grep -c '"role":"user"' "$parent"; grep -c 'looked' "$own"; } >> seen; }"#;
    let project =
        Project::new(json!({"hooks": {"SubagentStop": [{"matcher": "reviewer", "hooks": [command(check)]}]}}));
    let inner = Agent::builder("reviewer", Script::says(["looked"])).hook(project.hook()).build().unwrap();
    let step = ScriptReply::calls("c1", "reviewer", json!({"task": "look"}));
    let model = Script::of([step, ScriptReply::says("done")]);
    let outer =
        Agent::builder("coder", model).tool(SubAgent::new(inner, "Looks.")).hook(project.hook()).build().unwrap();
    let conversations = Conversations::builder(outer, MemoryStore::default()).build();
    conversations.send(&"c".into(), "go", Scope::local()).await.unwrap().wait().await.unwrap();
    assert_eq!(std::fs::read_to_string(project.path().join("seen")).unwrap(), "reviewer c\n1\n1\n");
}

#[tokio::test]
async fn a_gate_for_the_old_name_of_sub_agents_still_holds() {
    let gate = || json!({"type": "command", "command": "jq -r .tool_name >> seen; echo 'no helpers' >&2; exit 2"});
    let mut ruled = gate();
    ruled["if"] = json!("Task");
    for group in [
        json!({"matcher": "Task", "hooks": [gate()]}),
        json!({"matcher": "Bash|Task", "hooks": [gate()]}),
        json!({"matcher": "^Task$", "hooks": [gate()]}),
        json!({"hooks": [ruled]}),
    ] {
        let project = Project::new(json!({"hooks": {"PreToolUse": [group]}}));
        let inner = Agent::builder("reviewer", Script::says(["looked"])).build().unwrap();
        let step = ScriptReply::calls("c1", "reviewer", json!({"task": "look"}));
        let model = Script::of([step, ScriptReply::says("done")]);
        let outer = Agent::builder("coder", model).tool(SubAgent::new(inner, "Looks.")).hook(project.hook());
        let conversations = Conversations::builder(outer.build().unwrap(), MemoryStore::default()).build();
        let (ok, text) = project.play_in(&conversations).await.result();
        assert!(!ok && text.contains("no helpers"), "{group}: {text}");
        let seen = std::fs::read_to_string(project.path().join("seen")).unwrap();
        assert_eq!(seen, "Agent\n", "scripts are told the name of today");
    }
}

#[tokio::test]
async fn a_session_that_ends_leaves_a_transcript_of_its_last_reply() {
    let project = Project::with("SessionEnd", "cp \"$(jq -r .transcript_path)\" kept");
    let model = Script::says(["the last words"]).when_exhausted(OnExhausted::Repeat);
    let conversations = Conversations::builder(project.agent(project.hook(), model), MemoryStore::default()).build();
    project.play_in(&conversations).await;
    conversations.close(&"c".into(), Scope::local()).await.unwrap();
    let kept = std::fs::read_to_string(project.path().join("kept")).unwrap();
    assert!(kept.contains("the last words") && kept.contains("\"role\":\"assistant\""), "{kept}");
}

#[tokio::test]
async fn what_was_added_at_the_start_and_at_a_prompt_is_stored_and_stands_in_later_turns() {
    let project = Project::new(json!({"hooks": {
        "SessionStart": group(command("echo remember the milk")),
        "UserPromptSubmit": group(command("echo mind the gap")),
    }}));
    let recorder = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let agent = project.agent(project.hook(), recorder.clone());
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    project.play_in(&conversations).await;
    project.play_in(&conversations).await;
    let last = recorder.requests().last().unwrap().clone();
    let text = last.messages.iter().map(|message| message.content().text()).collect::<String>();
    assert_eq!(text.matches("remember the milk").count(), 1, "{text}");
    assert_eq!(text.matches("mind the gap").count(), 2, "{text}");
}

#[tokio::test]
async fn a_reason_beyond_ten_thousand_characters_goes_to_a_file_wherever_it_was_said() {
    let long = r#"x=$(head -c 20000 /dev/zero | tr '\0' x)
        echo "{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"deny\",\"permissionDecisionReason\":\"$x\"}}""#;
    let (ok, text) = Project::with("PreToolUse", long).play().await.result();
    assert!(!ok && text.contains("[20000 characters, all of them in ") && text.len() < 4000, "{text}");
}

#[tokio::test]
async fn an_event_that_is_tried_says_what_a_run_would_do() {
    let payload: Map<String, Value> =
        serde_json::from_value(json!({"tool_name": "Bash", "tool_input": {"command": "ls"}})).unwrap();
    let tried = async |project: &Project, closed: bool| {
        let hooks = ClaudeHooks::new(project.settings(), project.path(), project.path().join(".turnbuckle"));
        let hooks = if closed { hooks.fail_closed() } else { hooks };
        let trial = hooks.try_event(ClaudeEvent::PreToolUse, payload.clone()).await.unwrap();
        (trial.runs[0].outcome, trial.verdict.join("\n"))
    };
    let fails = Project::with("PreToolUse", "exit 3");
    assert!(!tried(&fails, false).await.1.contains("denied"));
    let (outcome, verdict) = tried(&fails, true).await;
    assert!(outcome == "nonblocking_error" && verdict.contains("the call is denied"), "{verdict}");
    let unreadable = Project::new(json!({"hooks": {"PreToolUse": [{"matcher": "Bash(", "hooks": [command("true")]}]}}));
    let (outcome, verdict) = tried(&unreadable, false).await;
    assert!(outcome == "unreadable_matcher" && verdict.contains("the call is denied"), "{verdict}");
    let kept = std::fs::read_dir(unreadable.path().join(".turnbuckle/claude")).unwrap().count();
    assert_eq!(kept, 0, "nothing of a trial is kept");
}

#[tokio::test]
async fn an_older_dialect_reads_answers_as_its_documentation_said() {
    let mut old = Dialect::default();
    (old.json_on_every_exit, old.permission_request_exit_2, old.object_ends_with_brace) = (false, true, false);
    let play = async |event: &str, line: &str, dialect: &Dialect| {
        let project = Project::with(event, line);
        let hooks = ClaudeHooks::new(project.settings(), project.path(), project.path().join(".turnbuckle"));
        let played = project.play_with(hooks.dialect(dialect.clone()).into()).await;
        (played.outcomes()[0].to_owned(), played.end().0)
    };
    let of = |outcome: &str, end: &str| (outcome.to_owned(), end.to_owned());
    let denies = r#"echo '{"decision":"block","reason":"x"}'; exit 1"#;
    assert_eq!(play("PreToolUse", denies, &Dialect::default()).await, of("blocked", "completed"));
    assert_eq!(play("PreToolUse", denies, &old).await, of("nonblocking_error", "waiting"));
    let refuses = "echo no >&2; exit 2";
    assert_eq!(play("PermissionRequest", refuses, &Dialect::default()).await, of("nonblocking_error", "waiting"));
    assert_eq!(play("PermissionRequest", refuses, &old).await, of("blocked", "completed"));
    let half = "echo '{\"decision\": and then text'";
    assert_eq!(play("PreToolUse", half, &Dialect::default()).await.0, "ok", "plain text");
    assert_eq!(play("PreToolUse", half, &old).await.0, "invalid_json");
}

#[tokio::test]
async fn what_a_hook_adds_at_a_prompt_reaches_the_model_as_a_reminder() {
    let project = Project::with("UserPromptSubmit", "printf '\\033[31mmind\\033[0m the gap'");
    let recorder = Recorder::of(Script::says(["done"]));
    let agent = project.agent(project.hook(), recorder.clone());
    project.play_in(&Conversations::builder(agent, MemoryStore::default()).build()).await;
    let asked = recorder.requests()[0].messages.iter().map(|message| message.content().text()).collect::<String>();
    assert!(asked.contains("<system-reminder>\nmind the gap\n</system-reminder>"), "{asked}");
}

/// A model that is configured to take more trouble than usual.
struct Careful(Script);

impl Model for Careful {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.0.stream(request, out)
    }
    fn effort(&self) -> Option<&str> {
        Some("high")
    }
}

#[tokio::test]
async fn handlers_are_told_how_much_trouble_the_model_takes_if_that_is_configured() {
    let see = r#"cat >> seen; echo "env=${CLAUDE_EFFORT-none}" >> seen"#;
    for (event, in_event) in [("PreToolUse", true), ("Stop", true), ("UserPromptSubmit", false)] {
        let project = allowed_and(event, see);
        let seen = || std::fs::read_to_string(project.path().join("seen")).unwrap();
        project.play().await;
        assert!(seen().contains("env=none") && !seen().contains("effort"), "{event}: {}", seen());
        let agent = project.agent(project.hook(), Careful(script()));
        let conversations = Conversations::builder(agent, MemoryStore::default()).build();
        project.play_in(&conversations).await;
        assert!(seen().contains("env=high"), "{event}: {}", seen());
        assert_eq!(seen().contains(r#""effort":{"level":"high"}"#), in_event, "{event}: {}", seen());
    }
}
