//! A turn, as a script and a trace.

use expect_test::expect;
use turnbuckle::hook::{OnStop, Stopping, stop};
use turnbuckle::models::Script;

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
    let hook = stop("lint", |turn: Stopping| async move {
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
