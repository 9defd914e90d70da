//! Claude-style handlers that are no commands, plugins, and what of an answer is not used.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::models::Script;
use turnbuckle_tools::ClaudeHooks;
use turnbuckle_tools::claude::{ClaudePlaces, ClaudePlugin, ClaudeSettings, PluginOptions};

use crate::claude::{ALLOW, Played, Project};

/// A service that gives each post the same answer, and notes what it was sent.
struct Service {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn answering(status: &'static str, body: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = Vec::new();
                let mut buffer = [0; 65536];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    request.extend_from_slice(&buffer[..count]);
                    if request.ends_with(b"}\n") {
                        break;
                    }
                }
                noted.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { port, requests }
    }
}

async fn asked(event: &str, handler: Value) -> Played {
    let group = |handler: Value| json!([{"hooks": [handler]}]);
    let allow = json!({"type": "command", "command": ALLOW});
    let settings = match event {
        "PreToolUse" => json!({"hooks": {"PreToolUse": [{"hooks": [allow, handler]}]}}),
        event => json!({"hooks": {"PreToolUse": group(allow), event: group(handler)}}),
    };
    Project::new(settings).play().await
}

const DENIES: &str = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"not today"}}"#;

#[tokio::test]
async fn a_service_decides_by_its_answer_and_is_sent_what_a_program_reads() {
    let service = Service::answering("200 OK", DENIES);
    let url = format!("http://localhost:{}/hook", service.port);
    let handler =
        json!({"type": "http", "url": url, "headers": {"X-Key": "a $HOME b $NOT_ALLOWED"}, "allowedEnvVars": ["HOME"]});
    let played = asked("PreToolUse", handler).await;
    assert!(!played.result().0 && played.result().1.contains("not today"));
    assert_eq!(played.outcomes(), ["ok", "blocked"]);
    let request = service.requests.lock().unwrap()[0].clone();
    let home = std::env::var("HOME").unwrap_or_default();
    assert!(request.to_lowercase().contains(&format!("x-key: a {} b \r\n", home.to_lowercase())), "{request}");
    assert!(request.contains("\"tool_name\":\"Bash\"") && request.starts_with("POST /hook "), "{request}");
}

#[tokio::test]
async fn a_service_cannot_block_by_its_status_and_no_redirect_is_followed() {
    for (status, body, outcome) in [
        ("200 OK", "", "ok"),
        ("500 Oops", DENIES, "nonblocking_error"),
        ("302 Found", "", "nonblocking_error"),
        ("200 OK", "hello", "nonblocking_error"),
        ("200 OK", "{\"continue\": 3}", "invalid_json"),
    ] {
        let service = Service::answering(status, body);
        let handler = json!({"type": "http", "url": format!("http://127.0.0.1:{}/", service.port)});
        let played = asked("PreToolUse", handler).await;
        assert!(played.result().0, "{status} {body}");
        assert_eq!(played.outcomes(), ["ok", outcome], "{status} {body}");
        assert_eq!(service.requests.lock().unwrap().len(), 1);
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let handler = json!({"type": "http", "url": format!("http://127.0.0.1:{closed}/"), "onFailure": "block"});
    assert!(!asked("PreToolUse", handler).await.result().0, "its failure blocks if it says so");
}

/// A turn with a `prompt` handler, whose model answers with `judgement`.
async fn judged(event: &str, more: Value, judgement: &str) -> Played {
    let mut handler = json!({"type": "prompt", "prompt": "Is this fine? $ARGUMENTS", "model": "judge"});
    for (key, value) in more.as_object().unwrap() {
        handler[key] = value.clone();
    }
    let allow = json!([{"hooks": [{"type": "command", "command": ALLOW}]}]);
    let settings = match event {
        "PreToolUse" => json!({"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": ALLOW}, handler]}]}}),
        event => json!({"hooks": {"PreToolUse": allow, event: [{"hooks": [handler]}]}}),
    };
    let project = Project::new(settings);
    let model = Script::says([judgement, "{\"ok\": true}"]);
    let hook = ClaudeHooks::new(project.settings(), project.path(), project.path().join(".turnbuckle"));
    project.play_with(hook.named_model("judge", Arc::new(model)).into()).await
}

#[tokio::test]
async fn a_model_judges_and_what_its_no_means_depends_on_the_event() {
    let no = "```json\n{\"ok\": false, \"reason\": \"rm is rude\"}\n```";
    let played = judged("PreToolUse", json!({}), no).await;
    assert_eq!(played.end(), ("halted".to_owned(), "rm is rude".to_owned()));
    assert_eq!(played.outcomes(), ["ok", "blocked"], "its record says that it did that");
    let played = judged("PreToolUse", json!({"continueOnBlock": true}), no).await;
    assert!(!played.result().0 && played.result().1.contains("rm is rude"));
    let played = judged("Stop", json!({}), no).await;
    assert!(played.events.iter().any(|event| matches!(event, turnbuckle::event::EventKind::StopFeedback { .. })));
    assert_eq!(played.end().0, "completed");
    let played = judged("UserPromptSubmit", json!({}), no).await;
    assert_eq!(played.end(), ("halted".to_owned(), "rm is rude".to_owned()));
    let played = judged("PreToolUse", json!({}), "{\"ok\": true}").await;
    assert!(played.result().0);
    let played = judged("PreToolUse", json!({}), "I would rather not say").await;
    assert_eq!(
        (played.result().0, played.outcomes()),
        (true, vec!["ok", "invalid_json"]),
        "it fails open, as documented"
    );
}

#[tokio::test]
async fn a_judgement_that_is_nested_too_deeply_blocks_where_it_could_have_blocked() {
    let deep = format!("{{\"ok\": false, \"reason\": {}{}}}", "[".repeat(200), "]".repeat(200));
    let played = judged("PreToolUse", json!({}), &deep).await;
    assert_eq!(played.outcomes(), ["ok", "blocked"]);
    let (ok, text) = played.result();
    assert!(!ok && text.contains("nested too deeply"), "{text}");
}

#[tokio::test]
async fn a_plugin_has_its_folder_its_data_and_its_options() {
    let project = Project::new(json!({}));
    let root = project.path().join("plugin");
    fs::create_dir_all(root.join("hooks")).unwrap();
    fs::create_dir_all(root.join(".claude-plugin")).unwrap();
    let check = r#"test "$CLAUDE_PLUGIN_OPTION_API_LEVEL" = 3 && echo x > "$CLAUDE_PLUGIN_DATA/kept" && test -e "$CLAUDE_PLUGIN_ROOT/say.sh""#;
    let exec = json!({"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/say.sh", "args": ["${user_config.api-level}", "${CLAUDE_PLUGIN_DATA}"]});
    let hooks = json!({"description": "d", "hooks": {"PreToolUse": [{"hooks": [
        {"type": "command", "command": ALLOW}, {"type": "command", "command": format!("{check} || exit 2")}, exec]}]}});
    fs::write(root.join("hooks/hooks.json"), hooks.to_string()).unwrap();
    let manifest =
        json!({"name": "tidy", "hooks": {"PostToolUse": [{"hooks": [{"type": "command", "command": "touch after"}]}]}});
    fs::write(root.join(".claude-plugin/plugin.json"), manifest.to_string()).unwrap();
    project.script("plugin/say.sh", "#!/bin/sh\ntest \"$1\" = 3 && test -d \"$2\" || exit 2\n");
    let options = [("api-level".to_owned(), "3".to_owned())].into();
    let plugin = ClaudePlugin::WithOptions(PluginOptions { folder: "plugin".into(), options });
    let places = |plugins| ClaudePlaces {
        project: project.path().to_owned(),
        reads_project: true,
        home: None,
        managed: None,
        plugins,
    };
    let settings = ClaudeSettings::load(&places(vec![plugin]));
    assert!(settings.unsupported.is_empty(), "{:?}", settings.unsupported);
    let played =
        project.play_with(ClaudeHooks::new(settings, project.path(), project.path().join(".turnbuckle")).into()).await;
    assert_eq!(played.outcomes(), ["ok", "ok", "ok", "ok"], "{:?}", played.result());
    assert!(project.path().join("after").exists(), "hooks of the manifest run as well");
    assert!(project.path().join(".turnbuckle/claude/plugins/tidy/kept").exists());
    let without = ClaudeSettings::load(&places(vec![ClaudePlugin::Folder("plugin".into())]));
    assert!(without.unsupported.iter().any(|one| one.place.contains("api-level")), "{:?}", without.unsupported);
}

#[test]
fn what_a_shell_would_read_as_code_is_refused_and_so_are_kinds_that_an_event_does_not_have() {
    let command =
        |event: &str, handler: Value| Project::new(json!({"hooks": {event: [{"hooks": [handler]}]}})).settings();
    let injected = command("PreToolUse", json!({"type": "command", "command": "echo ${user_config.x}"}));
    assert_eq!((injected.handlers.len(), injected.unsupported.len()), (0, 1));
    let started = command("SessionStart", json!({"type": "http", "url": "http://127.0.0.1:1"}));
    assert_eq!((started.handlers.len(), started.warnings.len()), (0, 1));
    let aside = command("PreToolUse", json!({"type": "prompt", "prompt": "x", "async": true}));
    assert_eq!((aside.handlers.len(), aside.unsupported.len()), (0, 1));
}
