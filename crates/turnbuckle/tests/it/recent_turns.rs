//! What the newest turns keep when a context has become too large: results go before what users said.

use serde_json::json;
use turnbuckle::context::CutCause;
use turnbuckle::context::plan::Retention;
use turnbuckle::model::Request;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, Limits, Message, Outcome, Scope};

use crate::context::Narrow;

fn limited(model: Recorder, context_tokens: u64) -> AgentBuilder {
    let limits = Limits { context_tokens, injection_reserve: context_tokens / 8, ..Limits::default() };
    Agent::builder("a", model).limits(limits)
}

fn results(request: &Request) -> Vec<String> {
    let result = |message: &Message| matches!(message, Message::Result { .. }).then(|| message.content().text());
    request.messages.iter().filter_map(result).collect()
}

/// Answers with so many words.
fn words(count: usize) -> FunctionTool {
    function_with_schema("words", "Words.", json!({"type": "object"}), Effect::Pure, move |_, _| async move {
        Ok("word ".repeat(count))
    })
}

fn user_messages(request: &Request) -> Vec<String> {
    let said = |message: &Message| matches!(message, Message::User(_)).then(|| message.content().text());
    request.messages.iter().filter_map(said).collect()
}

#[tokio::test]
async fn a_result_of_the_turn_before_gives_way_before_what_the_user_said_in_it() {
    let call = |n: usize| ScriptReply::calls(&format!("c{n}"), "words", json!({}));
    let script = [ScriptReply::says("noted"), call(1), ScriptReply::says("read"), call(2), ScriptReply::says("done")];
    for retention in [Retention::default(), Retention::Turns(9), Retention::Last(9)] {
        let model = Recorder::of(Script::of(script.clone()));
        let mut rig = Rig::new(limited(model.clone(), 8_000).tool(words(3_500).retention(retention)).build().unwrap());
        for message in ["the bird is a heron", "read the first", "read the second"] {
            assert_eq!(rig.ended(message).await.unwrap().outcome, Outcome::Completed);
        }
        let last = model.requests().last().unwrap().clone();
        assert_eq!(user_messages(&last), ["the bird is a heron", "read the first", "read the second"]);
        let results = results(&last);
        assert!(results[0].starts_with("[left out to save room"), "{} bytes", results[0].len());
        assert_eq!(results[1].len(), 17_500, "the model has not read that one yet");
        let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
        assert_eq!(cuts.iter().map(|cut| (cut.turns, cut.results)).collect::<Vec<_>>(), [(0, 1)], "{retention:?}");
    }
}

#[tokio::test]
async fn the_turn_before_goes_last_and_a_cut_leaves_at_most_60_percent() {
    // Two messages fit into what a cut leaves, or they do not.
    for (words, stays) in [(1_500, true), (2_500, false)] {
        let model = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
        let mut rig = Rig::new(limited(model.clone(), 8_000).build().unwrap());
        let mut least = usize::MAX;
        for n in 0..12 {
            let message = format!("{n} {}", "word ".repeat(words));
            assert_eq!(rig.ended(message).await.unwrap().outcome, Outcome::Completed);
            let said = user_messages(model.requests().last().unwrap());
            least = least.min(if n == 0 { usize::MAX } else { said.len() });
        }
        assert_eq!(least > 1, stays, "{least} messages");
        let cuts = rig.conversations.cuts(&rig.id, Scope::local()).await.unwrap();
        assert!(!cuts.is_empty() && cuts.iter().all(|cut| cut.after <= 7_000 * 6 / 10), "{cuts:?}");
    }
}

#[tokio::test]
async fn an_open_turn_that_is_too_large_by_itself_does_not_take_the_turn_before_with_it() {
    let call = |n: usize| ScriptReply::calls(&format!("c{n}"), "words", json!({}));
    let script = [ScriptReply::says("noted"), call(1).and_calls("c2", "words", json!({})), ScriptReply::says("done")];
    let model = Recorder::of(Script::of(script));
    let kept = words(3_000).retention(Retention::Keep);
    let mut rig = Rig::new(limited(model.clone(), 8_000).tool(kept).build().unwrap());
    for message in ["the bird is a heron", "read both"] {
        assert_eq!(rig.ended(message).await.unwrap().outcome, Outcome::Completed);
    }
    let last = model.requests().last().unwrap().clone();
    assert_eq!(user_messages(&last), ["the bird is a heron", "read both"]);
}

#[tokio::test]
async fn a_refusal_with_a_limit_below_the_reserve_leaves_the_newest_turns_that_fit() {
    let model = Narrow::new(3_900, 100);
    let asked = model.asked.clone();
    let (model, limits) = (Recorder::of(model), Limits::default());
    assert!(limits.injection_reserve > 3_900);
    let mut rig = Rig::new(Agent::builder("a", model.clone()).limits(limits).build().unwrap());
    let long = |n: usize| format!("{n} {}", "word ".repeat(140));
    let mut refused = 0;
    for n in 0..40 {
        let ended = rig.ended(long(n)).await.unwrap();
        assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
        refused += ended.warnings.len();
        if !ended.warnings.is_empty() {
            let said = user_messages(model.requests().last().unwrap());
            assert!(said.len() >= 8, "{} of {n} messages stayed", said.len());
            assert_eq!(said, (n + 1 - said.len()..=n).map(long).collect::<Vec<_>>(), "the newest ones stay");
        }
    }
    assert!((1..=4).contains(&refused), "{refused} refusals: {:?}", asked.lock().unwrap());
}

#[tokio::test]
async fn after_a_refusal_results_become_notes_before_turns_are_left_out() {
    let store = MemoryStore::default();
    let turn = |n: usize| [ScriptReply::calls(&format!("c{n}"), "words", json!({})), ScriptReply::says("read")];
    let script = Script::of((0..4).flat_map(turn).collect::<Vec<_>>());
    let mut rig = Rig::on(Agent::builder("a", script).tool(words(900)).build().unwrap(), store.clone());
    for n in 0..4 {
        rig.ended(format!("message {n}")).await.unwrap();
    }
    let model = Recorder::of(Narrow::new(3_000, 100));
    let mut again = Rig::on(Agent::builder("a", model.clone()).tool(words(900)).build().unwrap(), store);
    again.id = rig.id.clone();
    let ended = again.ended("and now?").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed, "{:?}", ended.reason);
    let last = model.requests().last().unwrap().clone();
    assert_eq!(user_messages(&last), ["message 0", "message 1", "message 2", "message 3", "and now?"]);
    let cuts = again.conversations.cuts(&again.id, Scope::local()).await.unwrap();
    assert!(cuts.len() == 1 && cuts[0].turns == 0 && cuts[0].results >= 2, "{cuts:?}");
    assert_eq!(cuts[0].cause, CutCause::Refused);
}
