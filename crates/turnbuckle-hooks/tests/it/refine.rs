//! `refine`: of all drafts the best is the reply, and no draft is told.

use std::sync::Arc;

use serde_json::json;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, Limits, TurnReport};
use turnbuckle_hooks::Refine;
use turnbuckle_hooks::refine::RefineOptions;

use crate::kit::add;

fn marks(marks: &[f64]) -> Arc<Script> {
    let said = marks.iter().map(|marks| json!({"marks": marks, "critique": "more verbs"}).to_string());
    Arc::new(Script::says(said))
}

fn refine(critic: Arc<Script>) -> Refine {
    Refine::new(RefineOptions::default(), Some(critic)).unwrap()
}

async fn refined(drafts: Script, critic: Arc<Script>) -> (TurnReport, Recorder, Rig) {
    let model = Recorder::of(drafts);
    let mut rig = Rig::new(Agent::builder("a", model.clone()).hook(refine(critic)).build().unwrap());
    let ended = rig.ended("write").await.unwrap();
    (ended, model, rig)
}

#[tokio::test]
async fn a_draft_is_bettered_until_it_is_good_enough() {
    let (ended, model, rig) = refined(Script::says(["one", "two", "three"]), marks(&[3.0, 8.0])).await;
    assert_eq!((ended.text(), ended.model_calls), ("two".to_owned(), 2));
    let tail = format!("{:?}", model.requests()[1].messages);
    assert!(tail.contains("one") && tail.contains("more verbs"), "{tail}");
    let told = rig.told().iter().filter_map(|told| match &told.item {
        FeedItem::Live(LiveEvent::TextDelta { text, .. }) => Some(text.to_string()),
        _ => None,
    });
    assert_eq!(told.collect::<String>(), "two", "no other draft was told");
}

#[tokio::test]
async fn the_best_draft_is_kept_and_the_rounds_are_bounded() {
    let (ended, ..) = refined(Script::says(["one", "two", "three", "four"]), marks(&[3.0, 7.0, 5.0])).await;
    assert_eq!((ended.text(), ended.model_calls), ("two".to_owned(), 3));
}

#[tokio::test]
async fn a_critic_that_makes_no_sense_leaves_the_best_draft() {
    let odd = Arc::new(Script::says(["nice", "very nice"]));
    assert_eq!(refined(Script::says(["one", "two"]), odd).await.0.text(), "one");
    assert_eq!(refined(Script::says(["one", "two"]), marks(&[11.0])).await.0.text(), "one");
}

#[tokio::test]
async fn a_model_that_fails_or_a_used_up_budget_leaves_the_best_draft() {
    let failing = Script::of([ScriptReply::says("one"), ScriptReply::fails(500)]);
    assert_eq!(refined(failing, marks(&[3.0])).await.0.text(), "one");
    let limits = Limits { max_model_calls: 1, ..Limits::default() };
    let agent = Agent::builder("a", Script::says(["one", "two"])).hook(refine(marks(&[3.0]))).limits(limits);
    assert_eq!(Rig::new(agent.build().unwrap()).ended("write").await.unwrap().text(), "one");
}

#[tokio::test]
async fn a_draft_with_calls_goes_on_as_it_is() {
    let script = Script::of([ScriptReply::calls("c1", "add", json!({"a": 1, "b": 1})), ScriptReply::says("2")]);
    let agent = Agent::builder("a", script).tool(add()).hook(refine(marks(&[9.0])));
    let ended = Rig::new(agent.build().unwrap()).ended("1+1").await.unwrap();
    assert_eq!((ended.text(), ended.model_calls), ("2".to_owned(), 2));
}

#[tokio::test]
async fn without_a_critic_the_model_criticises_itself_in_a_context_of_its_own() {
    let model = Recorder::of(Script::says([r#"{"marks": 9}"#]));
    let hook = Refine::new(RefineOptions::default(), None).unwrap();
    let mut rig = Rig::new(Agent::builder("a", model.clone()).system("SECRET").hook(hook).build().unwrap());
    rig.ended("write").await.unwrap();
    assert_eq!(model.requests().len(), 2);
    assert!(!model.requests()[1].system.contains("SECRET"));
}

#[test]
fn options_out_of_range_are_refused() {
    for (options, option) in [
        (RefineOptions { rounds: 0, ..RefineOptions::default() }, "rounds"),
        (RefineOptions { good_enough: 11.0, ..RefineOptions::default() }, "good_enough"),
    ] {
        assert_eq!(Refine::new(options, None).unwrap_err().option, option);
    }
}
