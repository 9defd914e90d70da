//! Arguments are brought to their normal form before anything judges them: hooks, people and digests see one spelling.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::access::OwnerOnly;
use turnbuckle::conversation::{Conversations, ResolveError};
use turnbuckle::event::{EventKind, Question};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::message::Reply;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::{Effect, Normalize, Output, Spec, Tool};
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, Scope, ToolCall, Turn, TurnStatus};

use crate::access::{ann, process};
use crate::faulty_store::FaultyStore;

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
            EventKind::ToolCall { arguments, .. } => forms.push(("call", arguments.value()["word"].clone(), None)),
            EventKind::Suspension { question, .. } => {
                let Question::Approval { arguments, digest, .. } = &**question else { continue };
                forms.push(("asked", arguments["word"].clone(), Some(digest.clone())));
            }
            EventKind::ToolStarted { arguments, digest, .. } => {
                forms.push(("started", arguments.value()["word"].clone(), Some(digest.text().clone())));
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

/// What a hook at `after_model` saw of each call, and what it says.
#[derive(Clone)]
struct Judges {
    seen: Arc<Mutex<Vec<Value>>>,
    says: fn(&Reply) -> AfterModel,
}

impl Judges {
    fn new(says: fn(&Reply) -> AfterModel) -> Self {
        Self { seen: Arc::default(), says }
    }
}

impl Hook for Judges {
    async fn after_model(&self, turn: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        assert_eq!(turn.assistant_message().map(|reply| &reply.calls), Some(&reply.calls));
        self.seen.lock().unwrap().extend(reply.calls.iter().map(|call| (*call.arguments).clone()));
        Ok(if reply.calls.is_empty() { AfterModel::Continue } else { (self.says)(reply) })
    }
}

/// The arguments of the one call as the model gave them, and those it ran with, if it ran.
async fn written_and_started(rig: &Rig) -> (Value, Option<Value>) {
    let log = rig.log().await.unwrap();
    let written = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolCall { arguments, .. } => Some((*arguments.value()).clone()),
        _ => None,
    });
    let started = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolStarted { arguments, .. } => Some((*arguments.value()).clone()),
        _ => None,
    });
    (written.unwrap(), started)
}

#[tokio::test]
async fn a_hook_that_opens_gates_judges_the_normal_form() {
    let judge = Judges::new(|reply| match reply.calls[0].arguments["word"].as_str() {
        Some(word) if word.starts_with(' ') => AfterModel::Approve,
        _ => AfterModel::Continue,
    });
    let mut rig = Rig::new(agent(" hello").approve(["say"]).hook(judge.clone().named("judge")).build().unwrap());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)), "a spelling opened the gate");
    assert_eq!(*judge.seen.lock().unwrap(), [json!({"word": "hello"})]);

    let approves = Judges::new(|_| AfterModel::Approve).named("approves");
    let mut rig = Rig::new(agent(" hello").approve(["say"]).hook(approves).build().unwrap());
    rig.ended("go").await.unwrap();
    assert_eq!(written_and_started(&rig).await, (json!({"word": " hello"}), Some(json!({"word": "hello"}))));
}

#[tokio::test]
async fn a_reply_that_a_hook_modifies_keeps_the_spelling_of_calls_that_it_left_alone() {
    let judge = Judges::new(|reply| {
        AfterModel::Modify(Box::new(Reply { content: "calling".to_owned().into(), ..reply.clone() }))
    });
    let mut rig = Rig::new(agent(" hello").hook(judge.named("judge")).build().unwrap());
    rig.ended("go").await.unwrap();
    assert_eq!(written_and_started(&rig).await, (json!({"word": " hello"}), Some(json!({"word": "hello"}))));
}

#[tokio::test]
async fn who_is_asked_about_a_whole_reply_sees_the_normal_form_of_its_calls() {
    let asks = Judges::new(|_| AfterModel::Ask("fine?".into())).named("asks");
    let mut rig = Rig::new(agent(" hello").approve(["say"]).hook(asks).build().unwrap());
    let TurnStatus::Waiting(pending) = rig.run("go").await.unwrap() else { panic!("it does not wait") };
    let Question::Approval { arguments, .. } = &pending[0].question else { panic!("{pending:?}") };
    assert_eq!(arguments["calls"][0]["arguments"], json!({"word": "hello"}));
    let handle = rig.conversations.resolve(&rig.id, &pending[0].call, Answer::Approve, None, Scope::local()).await;
    assert!(matches!(rig.follow(handle.unwrap()).await.unwrap(), TurnStatus::Ended(_)), "it was approved as it runs");
    assert_eq!(written_and_started(&rig).await, (json!({"word": " hello"}), Some(json!({"word": "hello"}))));
}

#[tokio::test]
async fn stop_hooks_see_what_tools_ran_with() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let look = stop("look", move |turn: OnStopContext| {
        sees.lock().unwrap().extend(turn.tool_trace().iter().map(|traced| (*traced.arguments).clone()));
        async { Ok(OnStop::Accept) }
    });
    let mut rig = Rig::new(agent(" hello").hook(look).build().unwrap());
    rig.ended("go").await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [json!({"word": "hello"})]);
}

#[tokio::test]
async fn edited_arguments_are_recorded_in_their_normal_form_with_the_digest_of_what_runs() {
    let mut rig = Rig::new(agent("hi").approve(["say"]).build().unwrap());
    rig.run("go").await.unwrap();
    let edit = |word: &str| Answer::ApproveWith(Arc::new(json!({"word": word})));
    let far = rig.conversations.resolve(&rig.id, &"c1".into(), edit("far"), None, Scope::local()).await;
    assert!(matches!(far, Err(ResolveError::Unfit { .. })), "{far:?}");
    let handle = rig.conversations.resolve(&rig.id, &"c1".into(), edit(" hello  "), None, Scope::local()).await;
    assert!(matches!(rig.follow(handle.unwrap()).await.unwrap(), TurnStatus::Ended(_)));
    let log = rig.log().await.unwrap();
    let resolved = log.iter().find_map(|event| match &event.kind {
        EventKind::Resolution { evidence, .. } => Some((evidence.arguments.clone(), evidence.digest.clone())),
        _ => None,
    });
    let started = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolStarted { arguments, digest, .. } => {
            Some((Some(arguments.value()), Some(digest.text().clone())))
        }
        _ => None,
    });
    assert_eq!(resolved, started);
    assert_eq!(resolved.unwrap().0.as_deref(), Some(&json!({"word": "hello"})));
}

#[tokio::test]
async fn an_edit_by_a_process_without_the_tool_is_shown_again_if_its_normal_form_is_another() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let start = || process(agent("hi").approve(["say"]), &store, &clock, OwnerOnly);
    let first = start();
    first.conversations.turn(&first.id, "go", ann()).await.unwrap();
    let builder = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone()));
    let desk = builder.ids(Arc::new(SystemIds::default())).build();
    let edit = Answer::ApproveWith(Arc::new(json!({"word": " hello  "})));
    desk.answer(&first.id, &"c1".into(), edit, None, ann()).await.unwrap();
    let second = start();
    let handle = second.conversations.resume(&second.id, ann()).await.unwrap().unwrap();
    let TurnStatus::Waiting(pending) = handle.wait().await.unwrap() else { panic!("nobody saw what would run") };
    let Question::Approval { arguments, .. } = &pending[0].question else { panic!("{pending:?}") };
    assert_eq!(**arguments, json!({"word": "hello"}));
    let handle = second.conversations.resolve(&second.id, &"c1".into(), Answer::Approve, None, ann()).await.unwrap();
    assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
}
