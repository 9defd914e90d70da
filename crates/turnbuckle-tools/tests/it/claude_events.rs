//! Claude-style hooks at the events around turns: sessions, batches of calls, notifications, and handlers that nobody waits for.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnbuckle::event::EventKind;
use turnbuckle::feed::Delivery;
use turnbuckle::hook::{HookExt, Point, Record};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Recorder;
use turnbuckle::{Conversations, Scope};
use turnbuckle_tools::claude::end_sessions;

use crate::claude::{ALLOW, Project, allowed_and, script};

fn group(command: &str) -> Value {
    json!([{"hooks": [{"type": "command", "command": command}]}])
}

/// The lines of a file that handlers write, once there are so many.
async fn lines(path: &Path, count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{lines:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_session_starts_once_in_a_process_and_ends_when_the_process_lets_it_go() {
    let note = |more: &str| format!("jq -r '.hook_event_name + \" \" + (.source // .reason)' >> noted; {more}");
    let project = Project::new(json!({"hooks": {
        "SessionStart": [{"matcher": "startup|resume", "hooks": [{"type": "command", "command": note("echo remember the milk")}]}],
        "SessionEnd": group(&note("")),
    }}));
    let model = || Script::says(["done"]).when_exhausted(OnExhausted::Repeat);
    let store = MemoryStore::default();
    let conversations = Conversations::builder(project.agent(project.hook().durable(), model()), store.clone()).build();
    let first = project.play_in(&conversations).await;
    let injected = first.events.iter().find_map(|event| match event {
        EventKind::Injection { content, .. } => Some(content.text()),
        _ => None,
    });
    assert!(injected.unwrap().contains("remember the milk"), "plain text is context there");
    project.play_in(&conversations).await;
    drop(conversations);
    let later = Conversations::builder(project.agent(project.hook().durable(), model()), store).build();
    project.play_in(&later).await;
    let noted = project.path().join("noted");
    assert_eq!(lines(&noted, 2).await, ["SessionStart startup", "SessionStart resume"]);
    // One of this test's two hooks was let go with its process; a closed conversation is told at once.
    later.close(&"c".into(), Scope::local()).await.unwrap();
    assert_eq!(lines(&noted, 3).await[2], "SessionEnd other");
    assert!(end_sessions("prompt_input_exit").await.is_empty());
    assert_eq!(lines(&noted, 4).await[3..], ["SessionEnd prompt_input_exit"]);
}

#[tokio::test]
async fn a_batch_of_results_is_seen_once_and_its_context_reaches_the_model() {
    let batch = r#"jq -e '.tool_calls | length == 1 and .[0].tool_name == "Bash" and .[0].tool_response == "ran ls"' >/dev/null || exit 1
        echo fired >> fired
        echo '{"hookSpecificOutput":{"hookEventName":"PostToolBatch","additionalContext":"mind the gap"}}'"#;
    let project = allowed_and("PostToolBatch", batch);
    let recorder = Recorder::of(script());
    let agent = project.agent(project.hook(), recorder.clone());
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let played = project.play_in(&conversations).await;
    assert_eq!(played.end().0, "completed");
    assert_eq!(std::fs::read_to_string(project.path().join("fired")).unwrap(), "fired\n");
    let requests = recorder.requests();
    let text =
        |index: usize| requests[index].messages.iter().map(|message| message.content().text()).collect::<String>();
    assert!(!text(0).contains("mind the gap") && text(1).contains("mind the gap"));
}

#[tokio::test]
async fn a_batch_has_the_arguments_that_its_tools_ran_with() {
    let rewrite = r#"echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"ls -a"}}}'"#;
    let project = Project::new(json!({"hooks": {
        "PreToolUse": group(rewrite),
        "PostToolBatch": group("jq -r '.tool_calls[0].tool_input.command' >> seen"),
    }}));
    assert_eq!(project.play().await.result(), (true, "ran ls -a".to_owned()));
    assert_eq!(std::fs::read_to_string(project.path().join("seen")).unwrap(), "ls -a\n");
}

#[tokio::test]
async fn a_batch_that_is_blocked_ends_the_turn_before_the_next_call_of_the_model() {
    for answer in ["echo stop here >&2; exit 2", r#"echo '{"decision":"block","reason":"stop here"}'"#] {
        let played = allowed_and("PostToolBatch", answer).play().await;
        assert_eq!(played.end(), ("halted".to_owned(), "stop here".to_owned()));
        assert!(played.result().0, "the result stays in the conversation");
    }
}

#[tokio::test]
async fn somebody_who_is_asked_is_notified() {
    let note = "jq -r '.notification_type + \": \" + .message' >> noted";
    let project = Project::new(json!({"hooks": {"Notification": [
        {"matcher": "permission_prompt", "hooks": [{"type": "command", "command": note}]},
        {"matcher": "idle_prompt", "hooks": [{"type": "command", "command": "touch wrong"}]}]}}));
    let conversations = Conversations::builder(project.agent(project.hook(), script()), MemoryStore::default()).build();
    assert_eq!(project.play_in(&conversations).await.end().0, "waiting");
    let noted = lines(&project.path().join("noted"), 1).await;
    assert_eq!(noted, ["permission_prompt: permission is needed to use Bash"]);
    assert!(!project.path().join("wrong").exists());
}

#[tokio::test]
async fn nobody_waits_for_an_async_handler_and_the_next_turn_reads_what_it_says() {
    let say = r#"read -r line; while ! test -e go; do sleep 0.02; done
        echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","additionalContext":"from aside"}}'; touch said"#;
    let handlers = json!([{"type": "command", "command": ALLOW}, {"type": "command", "async": true, "command": say}]);
    let project = Project::new(json!({"hooks": {"PreToolUse": [{"hooks": handlers}]}}));
    let recorder = Recorder::of(script());
    let agent = project.agent(project.hook(), recorder.clone());
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let played = project.play_in(&conversations).await;
    assert!(played.result().0, "what it decides has no effect");
    std::fs::write(project.path().join("go"), "").unwrap();
    let began = Instant::now();
    loop {
        project.play_in(&conversations).await;
        let last = recorder.requests().pop().unwrap();
        if last.messages.iter().any(|message| message.content().text().contains("from aside")) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_async_handler_leaves_a_record_once_it_has_ended() {
    for (command, outcome) in [("exit 1", "nonblocking_error"), ("exit 0", "ok")] {
        let handlers =
            json!([{"type": "command", "command": ALLOW}, {"type": "command", "async": true, "command": command}]);
        let project = Project::new(json!({"hooks": {"PreToolUse": [{"hooks": handlers}]}}));
        let agent = project.agent(project.hook(), script());
        let conversations = Conversations::builder(agent, MemoryStore::default()).build();
        let began = Instant::now();
        let record = loop {
            let played = project.play_in(&conversations).await;
            let of_handler = |record: &&Record| record.hook.ends_with(command);
            if let Some(record) = played.records.iter().find(of_handler) {
                break record.clone();
            }
            assert!(began.elapsed() < Duration::from_secs(60));
        };
        assert_eq!(record.outcome.as_deref(), Some(outcome));
        assert_eq!(record.failure.is_some(), command == "exit 1");
    }
}

/// The command of each handler that has a record, and how it came out.
fn outcomes(records: &[Record]) -> Vec<(String, String)> {
    let outcome = |record: &Record| Some((record.hook.to_string(), record.outcome.as_ref()?.to_string()));
    records.iter().filter_map(outcome).collect()
}

#[tokio::test]
async fn what_runs_outside_of_a_turn_leaves_its_record_at_the_next_event_of_one() {
    let project = Project::new(json!({"hooks": {
        "SessionStart": [{"hooks": [{"type": "command", "command": "true"}, {"type": "command", "command": "exit 3"}]}],
        "StopFailure": group("exit 4")}}));
    let model = Script::of([ScriptReply::fails(400), ScriptReply::says("done")]);
    let conversations = Conversations::builder(project.agent(project.hook(), model), MemoryStore::default()).build();
    let first = project.play_in(&conversations).await;
    let of = |name: &str, outcome: &str| (format!("claude: {name}"), outcome.to_owned());
    assert_eq!(outcomes(&first.records), [of("true", "ok"), of("exit 3", "nonblocking_error")]);
    conversations.drain(Duration::from_secs(60)).await;
    let second = project.play_in(&conversations).await;
    assert_eq!(outcomes(&second.records), [of("exit 4", "nonblocking_error")]);
    assert_eq!(second.records.iter().find(|record| record.outcome.is_some()).unwrap().point, Point::OnEnded);
}

#[tokio::test]
async fn what_ran_outside_of_a_turn_goes_with_its_conversation_and_its_failure_is_told() {
    let project = Project::new(json!({"hooks": {"StopFailure": group("exit 4"), "SessionEnd": group("true")}}));
    let model = || Script::of([ScriptReply::fails(400), ScriptReply::says("done")]);
    let id = "c".into();
    let agent = project.agent(project.hook(), model());
    let conversations = Conversations::builder(agent.clone(), MemoryStore::default()).build();
    let mut feed = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await.unwrap();
    project.play_in(&conversations).await;
    conversations.close(&id, Scope::local()).await.unwrap();
    let mut told = Vec::new();
    while let Some(event) = feed.next().await {
        told.push(format!("{event:?}"));
    }
    assert!(told.iter().any(|event| event.contains("exit 4: the handler of StopFailure failed")), "{told:?}");
    let again = project.play_in(&Conversations::builder(agent, MemoryStore::default()).build()).await;
    assert!(outcomes(&again.records).is_empty(), "{:?}", outcomes(&again.records));
}

#[tokio::test]
async fn a_deleted_conversation_leaves_no_records_to_another_one_of_its_id() {
    let project = Project::new(json!({"hooks": {"StopFailure": group("exit 4")}}));
    let agent = project.agent(project.hook(), Script::of([ScriptReply::fails(400), ScriptReply::says("done")]));
    let conversations = Conversations::builder(agent.clone(), MemoryStore::default()).build();
    project.play_in(&conversations).await;
    conversations.drain(Duration::from_secs(60)).await;
    conversations.delete(&"c".into(), Scope::local()).await.unwrap();
    let another = project.play_in(&Conversations::builder(agent, MemoryStore::default()).build()).await;
    assert!(outcomes(&another.records).is_empty(), "{:?}", outcomes(&another.records));
}

#[tokio::test]
async fn a_long_text_of_an_async_handler_goes_to_a_file_and_nothing_of_it_is_lost() {
    let say = r"head -c 20000 /dev/zero | tr '\0' x; echo; echo the end";
    let handlers = json!([{"type": "command", "async": true, "command": say}]);
    let project = Project::new(json!({"hooks": {"UserPromptSubmit": [{"hooks": handlers}]}}));
    let recorder = Recorder::of(Script::says(["done"]).when_exhausted(OnExhausted::Repeat));
    let agent = project.agent(project.hook(), recorder.clone());
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let began = Instant::now();
    let told = loop {
        project.play_in(&conversations).await;
        let request = recorder.requests().pop().unwrap();
        let mut texts = request.messages.iter().map(|message| message.content().text());
        if let Some(told) = texts.find(|text| text.contains("characters, all of them in")) {
            break told;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let (path, _) = told.split_once("all of them in ").unwrap().1.split_once(']').unwrap();
    let whole = std::fs::read_to_string(path).unwrap();
    assert!(whole.len() > 20_000 && whole.ends_with("the end"), "{}", whole.len());
}

#[tokio::test]
async fn an_async_handler_that_wakes_tells_the_model_at_its_next_call() {
    let wake = json!({"type": "command", "asyncRewake": true, "command": "echo wake up >&2; touch woken; exit 2"});
    // The batch is held until the other one has spoken.
    let hold = "while ! test -e woken; do sleep 0.02; done; sleep 0.3";
    let project = Project::new(json!({"hooks": {
        "PreToolUse": [{"hooks": [{"type": "command", "command": ALLOW}, wake]}], "PostToolUse": group(hold)}}));
    let recorder = Recorder::of(script());
    let agent = project.agent(project.hook(), recorder.clone());
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let began = Instant::now();
    loop {
        project.play_in(&conversations).await;
        let told = |request: &turnbuckle::model::Request| {
            request.messages.iter().any(|message| message.content().text().contains("wake up"))
        };
        if recorder.requests().iter().any(told) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}
