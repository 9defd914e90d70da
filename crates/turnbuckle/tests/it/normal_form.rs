//! Arguments are brought to their normal form before anything judges them: hooks, people and digests see one spelling.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::event::{EventKind, Question};
use turnbuckle::hook::{BeforeTool, gate};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::Rig;
use turnbuckle::tool::{Effect, Normalize, Output, Spec, Tool};
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, Scope, ToolCall, Turn, TurnStatus};

/// Takes words without the white space around them.
struct Trims;

impl Normalize for Trims {
    fn normalize<'a>(&'a self, arguments: &'a Value) -> BoxFuture<'a, Result<Option<Value>, BoxError>> {
        Box::pin(async move {
            match arguments["word"].as_str() {
                Some("panic") => panic!("no form"),
                Some("far") => Err("it leads outside".into()),
                Some(word) if word.trim() != word => Ok(Some(json!({"word": word.trim()}))),
                _ => Ok(None),
            }
        })
    }
}

struct Say(Spec);

impl Say {
    fn new() -> Self {
        let schema = json!({"type": "object", "properties": {"word": {"type": "string", "maxLength": 5}}});
        let mut spec = Spec::server("say", "For tests.", schema, Effect::Pure);
        spec.normalize = Some(Arc::new(Trims));
        Self(spec)
    }
}

impl Tool for Say {
    fn spec(&self) -> &Spec {
        &self.0
    }
    fn call<'a>(&'a self, _: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async move { Ok(Output::ok(format!("said {}", call.arguments))) })
    }
}

fn agent(word: &str) -> AgentBuilder {
    let script = Script::of([ScriptReply::calls("c1", "say", json!({"word": word})), ScriptReply::says("done")]);
    Agent::builder("a", script).tool(Say::new())
}

/// What the `before_tool` hook saw, and the result.
async fn judged(word: &str, answer: impl Fn() -> BeforeTool + Send + Sync + 'static) -> (Vec<Value>, String) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = |seen: Arc<Mutex<Vec<Value>>>, answer: Arc<dyn Fn() -> BeforeTool + Send + Sync>| {
        move |_: Turn, call: ToolCall| {
            seen.lock().unwrap().push((*call.arguments).clone());
            let answer = answer();
            async { Ok(answer) }
        }
    };
    let first = gate("first", sees(seen.clone(), Arc::new(answer)));
    let second = gate("second", sees(seen.clone(), Arc::new(|| BeforeTool::Continue)));
    let mut rig = Rig::new(agent(word).hook(first).hook(second).build().unwrap());
    rig.ended("go").await.unwrap();
    let log = rig.log().await.unwrap();
    let result = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolResult { content, .. } => Some(content.text()),
        _ => None,
    });
    let seen = seen.lock().unwrap().clone();
    (seen, result.unwrap())
}

#[tokio::test]
async fn hooks_and_the_tool_get_the_normal_form_which_is_what_is_validated() {
    let (seen, result) = judged("  hello  ", || BeforeTool::Continue).await;
    assert_eq!(seen, [json!({"word": "hello"}), json!({"word": "hello"})]);
    assert_eq!(result, r#"said {"word":"hello"}"#);
}

#[tokio::test]
async fn what_a_hook_rewrites_is_brought_to_its_normal_form_as_well() {
    let (seen, result) = judged("hi", || BeforeTool::Rewrite(json!({"word": " other   "}))).await;
    assert_eq!(seen, [json!({"word": "hi"}), json!({"word": "other"})]);
    assert_eq!(result, r#"said {"word":"other"}"#);
    let (_, result) = judged("hi", || BeforeTool::Rewrite(json!({"word": "far"}))).await;
    assert_eq!(result, "hook first rewrote the arguments, and it leads outside");
}

#[tokio::test]
async fn a_call_without_a_normal_form_is_refused_before_any_hook_is_asked() {
    for (word, said) in [("far", "it leads outside"), ("panic", "it panicked: no form")] {
        assert_eq!(judged(word, || BeforeTool::Continue).await, (Vec::new(), said.to_owned()));
    }
    let (seen, result) = judged(" longer ", || BeforeTool::Continue).await;
    assert!(seen.is_empty() && result.contains("do not fit the tool's schema"), "{result}");
}

#[tokio::test]
async fn people_approve_the_normal_form_and_the_log_keeps_what_the_model_wrote() {
    let mut rig = Rig::new(agent(" hello ").approve(["say"]).build().unwrap());
    let TurnStatus::Waiting(_) = rig.run("go").await.unwrap() else { panic!("it does not wait") };
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let handle = conversations.resolve(&id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    rig.follow(handle).await.unwrap();
    let log = rig.log().await.unwrap();
    let mut forms = Vec::new();
    for event in &log {
        match &event.kind {
            EventKind::ToolCall { arguments, .. } => forms.push(("call", arguments["word"].clone(), None)),
            EventKind::Suspension { question: Question::Approval { arguments, digest, .. }, .. } => {
                forms.push(("asked", arguments["word"].clone(), Some(digest.clone())));
            }
            EventKind::ToolStarted { arguments, digest, .. } => {
                forms.push(("started", arguments["word"].clone(), Some(digest.text().clone())));
            }
            _ => {}
        }
    }
    let [("call", written, None), ("asked", asked, asked_digest), ("started", started, digest)] = &forms[..] else {
        panic!("{forms:?}")
    };
    assert_eq!((written, asked, started), (&json!(" hello "), &json!("hello"), &json!("hello")));
    assert_eq!(asked_digest, digest);
}
