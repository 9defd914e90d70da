//! An answer that must be an object: validated, asked for once more, on the message and in the log.

use serde_json::{Value, json};
use turnbuckle::event::EventKind;
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::{Author, SystemAuthor};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{
    Agent, BuildError, Message, Outcome, OutputSchema, Part, Reply, Scope, TurnReport, TurnStatus, UserInput,
};

use crate::kit::{add, assert_valid};

fn number() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false})
}

/// The agent has a tool, and is asked for a number.
async fn asked(model: &Recorder, hooks: Vec<HookEntry>) -> (TurnReport, Rig) {
    let mut agent = Agent::builder("a", model.clone()).tool(add());
    for hook in hooks {
        agent = agent.hook(hook);
    }
    let rig = Rig::new(agent.build().unwrap());
    let say = UserInput::new("how many?").with_schema(OutputSchema::new(number()).unwrap());
    let TurnStatus::Ended(ended) = rig.conversations.turn(&rig.id, say, Scope::local()).await.unwrap() else {
        panic!("waits")
    };
    assert_valid(&rig.log().await.unwrap());
    (*ended, rig)
}

#[tokio::test]
async fn the_object_is_on_the_message_and_in_the_log_and_no_tool_is_offered() {
    for text in ["{\"n\": 3}", "```json\n{\"n\": 3}\n```", " {\"n\":3}\n"] {
        let model = Recorder::of(Script::says([text]));
        let (ended, rig) = asked(&model, Vec::new()).await;
        assert_eq!(ended.object(), Some(&json!({"n": 3})), "{text}");
        let log = rig.log().await.unwrap();
        let object = log.iter().find_map(|event| match &event.kind {
            EventKind::AssistantMessage { extras, .. } => extras.as_ref()?.object.clone(),
            _ => None,
        });
        assert_eq!(object.as_deref(), Some(&json!({"n": 3})));
        let request = model.requests().remove(0);
        assert_eq!((request.schema.as_deref(), request.tools().len()), (Some(&number()), 0));
    }
}

#[tokio::test]
async fn a_reply_that_does_not_fit_is_asked_for_once_more_with_the_complaint() {
    let model = Recorder::of(Script::says(["three", "{\"n\": 3}"]));
    let (ended, _) = asked(&model, Vec::new()).await;
    assert_eq!((ended.object(), ended.model_calls), (Some(&json!({"n": 3})), 2));
    let requests = model.requests();
    let [.., Message::Assistant { content: said, .. }, Message::Note(note)] = &requests[1].messages[..] else {
        panic!("{:?}", requests[1].messages)
    };
    assert_eq!(said.text(), "three");
    assert!(note.text().contains("must be JSON"), "{note:?}");
}

#[tokio::test]
async fn a_second_reply_that_does_not_fit_ends_the_turn_rejected() {
    let model = Recorder::of(Script::says(["{\"n\": \"three\"}", "{\"n\": 3, \"m\": 4}", "{\"n\": 3}"]));
    let (ended, rig) = asked(&model, Vec::new()).await;
    assert_eq!(
        (ended.outcome, ended.by, ended.model_calls),
        (Outcome::Rejected, Some(Author::System(SystemAuthor::Limit)), 2)
    );
    assert!(ended.reason.unwrap().contains("'m' was unexpected"));
    let said = |kind: &EventKind| matches!(kind, EventKind::AssistantMessage { .. });
    assert!(!rig.log().await.unwrap().iter().any(|event| said(&event.kind)), "what was rejected is no history");
}

#[tokio::test]
async fn a_model_that_calls_a_tool_all_the_same_is_told_to_answer() {
    let call = ScriptReply::calls("c1", "add", json!({"a": 1, "b": 2}));
    let model = Recorder::of(Script::of([call, ScriptReply::says("{\"n\": 3}")]));
    let (ended, _) = asked(&model, Vec::new()).await;
    assert_eq!(ended.object(), Some(&json!({"n": 3})));
    assert!(model.requests()[1].messages.last().unwrap().content().text().contains("no tools to call"));
}

#[tokio::test]
async fn what_a_guard_puts_in_its_place_is_held_to_the_schema_too() {
    let spoil = || {
        guard("spoiler", |_, reply: std::sync::Arc<Reply>| async move {
            let spoilt = Reply { content: Part::text("no").into(), object: None, ..(*reply).clone() };
            Ok(AfterModel::Modify(Box::new(spoilt)))
        })
    };
    let model = Recorder::of(Script::says(["{\"n\": 3}", "{\"n\": 4}"]));
    let (ended, _) = asked(&model, vec![spoil().into()]).await;
    assert_eq!(ended.outcome, Outcome::Rejected);
}

#[tokio::test]
async fn an_agent_may_want_the_same_of_every_answer() {
    let agent = Agent::builder("a", Script::says(["{\"n\": 1}"])).schema(number()).build().unwrap();
    assert_eq!(agent.run("how many?").await.unwrap().object(), Some(&json!({"n": 1})));
    let wrong = Agent::builder("a", Script::says(["x"])).schema(json!({"type": "nonsense"})).build();
    assert!(matches!(wrong, Err(BuildError::BadAnswerSchema { .. })));
    assert!(OutputSchema::new(json!(7)).is_err());
}

#[test]
fn a_revived_turn_still_knows_what_its_answer_must_look_like() {
    let store = crate::faulty_store::FaultyStore::shared();
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let hang = stop("hang", |_| async { std::future::pending().await });
    let refuse = stop("hang", |turn: OnStopContext| async move {
        let first = turn.assistant_message().is_some_and(|reply| reply.content.text().contains('1'));
        Ok(if first { OnStop::Refuse("one more".into()) } else { OnStop::Accept })
    });
    let process = runtime();
    let agent = Agent::builder("a", Script::says(["{\"n\": 1}"])).hook(hang).build().unwrap();
    let rig = Rig::on(agent, store.clone());
    let turn = process.block_on(async {
        let say = UserInput::new("how many?").with_schema(OutputSchema::new(number()).unwrap());
        let turn = rig.conversations.send(&rig.id, say, Scope::local()).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        turn
    });
    drop((process, turn));
    runtime().block_on(async {
        let script = Script::says(["never", "two", "{\"n\": 2}"]);
        let rig = Rig::on(Agent::builder("a", script).hook(refuse).build().unwrap(), store);
        rig.clock.advance(turnbuckle::store::LEASE);
        let turn = rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().unwrap();
        let TurnStatus::Ended(ended) = turn.wait().await.unwrap() else { panic!("it waits") };
        assert_eq!(ended.object(), Some(&json!({"n": 2})));
    });
}
