//! A turn, as a script and a trace.

use expect_test::expect;
use turnbuckle::hook::{OnStop, OnStopContext, stop};
use turnbuckle::models::Script;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome};

use crate::kit::{adder, check, sum};

#[tokio::test]
async fn a_turn_calls_a_tool_and_answers() {
    check(
        adder(sum()),
        "what is 2+2?",
        expect![[r#"
        accept    "what is 2+2?"
        build     1 message, 1 tool
        call      add(2, 2)
        dispatch  add(2, 2) = 4
        build     3 messages, 1 tool
        call      "4"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_refused_stop_goes_back_to_the_model() {
    let script = Script::says(["done", "really done"]);
    let hook = stop("lint", |turn: OnStopContext| async move {
        Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Refuse("fix it".into()) })
    });
    check(
        adder(script).hook(hook),
        "do it",
        expect![[r#"
        accept    "do it"
        build     1 message, 1 tool
        call      "done"
        refuse    lint: "fix it"
        build     3 messages, 1 tool
        call      "really done"
        end       completed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_is_none_or_only_a_beginning_completes_the_turn_with_a_warning() {
    for (reason, warning) in [("refusal", "refused"), ("length", "cut off"), ("end", "")] {
        let script = format!(r#"{{"replies": [{{"text": "Once upon", "stop_reason": "{reason}"}}]}}"#);
        let mut rig = Rig::new(Agent::builder("a", Script::from_json(&script).unwrap()).build().unwrap());
        let ended = rig.ended("go on").await.unwrap();
        let warned: Vec<String> = ended.warnings.iter().map(|warning| warning.text.to_string()).collect();
        assert_eq!((ended.outcome, warned.len()), (Outcome::Completed, usize::from(!warning.is_empty())), "{warned:?}");
        assert!(warned.iter().all(|text| text.contains(warning)), "{warned:?}");
    }
}
