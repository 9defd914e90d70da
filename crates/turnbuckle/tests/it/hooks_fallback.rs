//! `fallback`: when a model fails the next one is asked, and no error is lost.

use std::sync::Arc;

use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hooks::retry::RetryOptions;
use turnbuckle::hooks::{Fallback, Retry};
use turnbuckle::model::{Model, ModelError, Retry as Advice};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, AgentBuilder, Outcome};

/// Says or fails the same at every call.
fn always(reply: ScriptReply) -> Recorder {
    Recorder::of(Script::of([reply]).when_exhausted(OnExhausted::Repeat))
}

fn agent(models: &[&Recorder]) -> AgentBuilder {
    let others = models[1..].iter().map(|model| Arc::new((*model).clone()) as Arc<dyn Model>);
    Agent::builder("a", models[0].clone()).hook(Fallback::to(others).unwrap())
}

#[tokio::test]
async fn the_first_model_that_answers_answers() {
    let (first, second, third) =
        (always(ScriptReply::fails(500)), always(ScriptReply::fails(400)), always(ScriptReply::says("third")));
    let mut rig = Rig::new(agent(&[&first, &second, &third]).build().unwrap());
    let ended = rig.ended("hi").await.unwrap();
    assert_eq!((ended.text(), ended.model_calls), ("third".to_owned(), 3));
    assert_eq!([&first, &second, &third].map(|model| model.requests().len()), [1, 1, 1]);
}

#[tokio::test]
async fn a_model_that_answers_leaves_the_others_alone() {
    let (first, second) = (always(ScriptReply::says("first")), always(ScriptReply::says("second")));
    let mut rig = Rig::new(agent(&[&first, &second]).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().text(), "first");
    assert!(second.requests().is_empty());
}

#[tokio::test]
async fn if_all_fail_every_error_is_told() {
    let (first, second) = (always(ScriptReply::fails(500)), always(ScriptReply::fails(418)));
    let mut rig = Rig::new(agent(&[&first, &second]).build().unwrap());
    let ended = rig.ended("hi").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    let reason = ended.reason.unwrap();
    assert!(reason.contains("status 500") && reason.contains("status 418"), "{reason}");
}

#[tokio::test]
async fn a_retry_behind_it_tries_each_model_again() {
    let (first, second) = (always(ScriptReply::fails(400)), always(ScriptReply::says("second")));
    let retry = Retry::new(RetryOptions { max_attempts: 2, ..RetryOptions::default() }).unwrap();
    let mut rig = Rig::new(agent(&[&first, &second]).hook(retry).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().text(), "second");
    assert_eq!(first.requests().len(), 1, "a bad request is not tried again, another model is");
}

#[tokio::test]
async fn a_reply_that_broke_off_stands_for_itself_unless_told_otherwise() {
    let broken = ScriptReply { fail_after_chunks: Some(1), ..ScriptReply::chunks(["par", "tial"]) };
    let (first, second) = (always(broken), always(ScriptReply::says("whole")));
    let mut rig = Rig::new(agent(&[&first, &second]).build().unwrap());
    let ended = rig.ended("hi").await.unwrap();
    let reason = ended.reason.unwrap();
    assert!(reason.contains("the connection to the model broke: scripted"), "{reason}");
    assert!(second.requests().is_empty());
    let second: Arc<dyn Model> = Arc::new(second);
    let hook = Fallback::to([second]).unwrap().after_text();
    let mut rig = Rig::new(Agent::builder("a", first).hook(hook).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().text(), "whole");
}

#[tokio::test]
async fn a_model_that_was_not_asked_is_named_with_the_reason_and_models_of_one_name_are_told_apart() {
    let broken = ScriptReply { fail_after_chunks: Some(1), ..ScriptReply::chunks(["half ", "way"]) };
    let (first, second, third) = (always(ScriptReply::fails(529)), always(broken), always(ScriptReply::says("third")));
    let mut rig = Rig::new(agent(&[&first, &second, &third]).build().unwrap());
    let reason = rig.ended("hi").await.unwrap().reason.unwrap();
    assert!(third.requests().is_empty());
    assert_eq!(
        &*reason,
        "2 of 3 models failed: the agent's model script: the model answered with status 529: scripted; script (1): the \
         connection to the model broke: scripted; not asked, because text had been shown (after_text = false): script (2)"
    );
    let notices: Vec<String> = rig.told().iter().filter_map(|told| notice(&told.item)).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].starts_with("the agent's model script failed, script (1) is asked instead"), "{notices:?}");
}

fn notice(item: &FeedItem) -> Option<String> {
    match item {
        FeedItem::Live(LiveEvent::Notice { text, .. }) => Some(text.to_string()),
        _ => None,
    }
}

#[tokio::test]
async fn a_used_up_budget_is_no_reason_to_ask_another_model() {
    let (first, second) = (always(ScriptReply::fails(500)), always(ScriptReply::says("second")));
    let limits = turnbuckle::Limits { max_model_calls: 1, ..Default::default() };
    let mut rig = Rig::new(agent(&[&first, &second]).limits(limits).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().outcome, Outcome::Exhausted);
    assert!(second.requests().is_empty());
}

#[test]
fn the_advice_of_all_errors_is_the_soonest() {
    let status = |status| ModelError::Status { status, message: String::new(), retry_after: None };
    let all = |statuses: &[u16]| ModelError::ModelsFailed {
        errors: statuses.iter().map(|code| ("m".to_owned(), status(*code))).collect(),
        not_asked: Vec::new(),
    };
    assert_eq!(all(&[400, 404]).retry(), Advice::Never);
    assert_eq!(all(&[400, 529]).retry(), Advice::Soon);
    assert!(Fallback::to([]).is_err());
}
