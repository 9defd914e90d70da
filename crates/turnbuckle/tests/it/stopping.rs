//! Stop hooks: when the model says it is done, nobody takes its word for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use expect_test::expect;
use serde_json::json;
use turnbuckle::event::{EventKind, Resolved};
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::*;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, BoxError, Limits, Outcome, Scope, TurnStatus};

use crate::kit::{adder, assert_valid, check};

/// Refuses each stop with another reason.
fn never_content() -> impl Hook {
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    stop("picky", move |_| {
        let count = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move { Ok(OnStop::Refuse(format!("reason {count}").into())) }
    })
}

fn echo() -> Script {
    Script::says(["done"]).when_exhausted(OnExhausted::Repeat)
}

#[tokio::test]
async fn all_refusals_go_back_in_one_event_in_registration_order() {
    let refuse = |name: &'static str| {
        stop(name, move |turn: OnStopContext| async move {
            Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Refuse(format!("{name} says no").into()) })
        })
    };
    check(
        adder(Script::says(["done", "done now"])).hook(refuse("lint")).hook(refuse("tests")),
        "do it",
        expect![[r#"
            accept    "do it"
            build     1 message, 1 tool
            call      "done"
            refuse    lint: "lint says no"
            refuse    tests: "tests says no"
            build     3 messages, 1 tool
            call      "done now"
            end       completed
        "#]],
    )
    .await;
}

#[tokio::test]
async fn after_the_bound_a_refusal_is_overruled_with_a_warning_and_the_hook_is_told() {
    let limits = Limits { max_stop_refusals: 2, ..Limits::default() };
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    struct FeedEvent(Arc<std::sync::Mutex<Vec<String>>>);
    impl Hook for FeedEvent {
        async fn on_ended(&self, ended: &turnbuckle::TurnReport) -> Result<(), BoxError> {
            self.0.lock().unwrap().extend(ended.warnings.iter().map(|warning| warning.text.to_string()));
            Ok(())
        }
    }
    check(
        adder(echo()).limits(limits).hook(never_content()).hook(FeedEvent(told.clone())),
        "do it",
        expect![[r#"
            accept    "do it"
            build     1 message, 1 tool
            call      "done"
            refuse    picky: "reason 0"
            build     3 messages, 1 tool
            call      "done"
            refuse    picky: "reason 1"
            build     5 messages, 1 tool
            call      "done"
            end       completed
            warning   picky: overruled after 2 refused stops in a row
        "#]],
    )
    .await;
    assert_eq!(*told.lock().unwrap(), ["overruled after 2 refused stops in a row"]);
}

#[tokio::test]
async fn the_same_refusal_twice_with_nothing_done_is_no_progress() {
    let stubborn = stop("stubborn", |_| async { Ok(OnStop::Refuse("no".into())) });
    check(
        adder(echo()).hook(stubborn),
        "do it",
        expect![[r#"
            accept    "do it"
            build     1 message, 1 tool
            call      "done"
            refuse    stubborn: "no"
            build     3 messages, 1 tool
            call      "done"
            end       completed
            warning   stubborn: overruled: the same refusal twice, and nothing was done in between
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_tool_call_in_between_is_progress() {
    let call = ScriptReply::calls("c", "add", json!({"a": 1, "b": 1}));
    let script =
        Script::of([ScriptReply::says("1"), call.clone(), ScriptReply::says("2"), call, ScriptReply::says("3")]);
    let twice = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let hook = stop("lint", move |_| {
        let count = twice.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move { Ok(if count < 2 { OnStop::Refuse("same".into()) } else { OnStop::Accept }) }
    });
    let mut rig = Rig::new(adder(script).hook(hook).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.text(), "3");
    assert!(ended.warnings.is_empty());
}

#[tokio::test]
async fn advice_is_noted_for_the_next_turn() {
    let advise = stop("coach", |turn: OnStopContext| async move {
        let first = turn.user_message().text() == "one";
        Ok(if first { OnStop::Advise("write shorter".into()) } else { OnStop::Accept })
    });
    let model = Recorder::of(Script::says(["a", "b", "c"]));
    let mut rig = Rig::new(Agent::builder("a", model.clone()).hook(advise).build().unwrap());
    for message in ["one", "two", "three"] {
        rig.run(message).await.unwrap();
    }
    let users = |index: usize| -> Vec<String> {
        let messages = model.requests()[index].messages.clone();
        messages
            .iter()
            .filter(|message| matches!(message, turnbuckle::Message::User(_)))
            .map(|m| m.content().text())
            .collect()
    };
    assert_eq!(users(1), ["one", "twowrite shorter"]);
    assert_eq!(users(2), ["one", "twowrite shorter", "three"]);
}

#[tokio::test]
async fn prevention_ends_the_turn_whatever_others_refuse() {
    let prevent = stop("brake", |_| async { Ok(OnStop::Prevent("enough".into())) });
    let mut rig = Rig::new(adder(echo()).hook(never_content()).hook(prevent).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!((ended.outcome, ended.reason.as_deref()), (Outcome::Halted, Some("enough")));
}

async fn paused(answer: Answer) -> String {
    let pause = stop("human", |turn: OnStopContext| async move {
        Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Pause("look at it".into()) })
    });
    let mut rig = Rig::new(adder(Script::says(["done", "done better"])).hook(pause).build().unwrap());
    let TurnStatus::Waiting(pending) = rig.run("go").await.unwrap() else { panic!("it does not wait") };
    let handle = rig.conversations.resolve(&rig.id, &pending[0].call, answer, None, Scope::local()).await.unwrap();
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits again") };
    assert_valid(&rig.log().await.unwrap());
    ended.text()
}

#[tokio::test]
async fn a_person_who_approves_a_pause_ends_the_turn_and_one_who_denies_refuses_the_stop() {
    assert_eq!(paused(Answer::Approve).await, "done");
    assert_eq!(paused(Answer::Deny(Some("the title is missing".into()))).await, "done better");
}

#[tokio::test]
async fn a_stop_hook_that_fails_is_ignored_unless_it_says_otherwise() {
    let broken = || stop("broken", |_| async { Err::<OnStop, BoxError>("no compiler".into()) });
    let mut rig = Rig::new(adder(echo()).hook(broken()).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Completed);
    let mut rig = Rig::new(adder(echo()).hook(broken().on_failure(OnFailure::Block)).build().unwrap());
    assert_eq!(rig.ended("go").await.unwrap().outcome, Outcome::Failed);
}

#[tokio::test]
async fn stop_hooks_run_side_by_side_and_tell_what_they_do() {
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let meet = |name: &'static str| {
        let barrier = barrier.clone();
        stop(name, move |turn: OnStopContext| {
            let barrier = barrier.clone();
            async move {
                turn.progress(format!("running {name}…"));
                barrier.wait().await;
                Ok(OnStop::Accept)
            }
        })
    };
    let mut rig = Rig::new(adder(echo()).hook(meet("lint")).hook(meet("tests")).build().unwrap());
    rig.run("go").await.unwrap();
    let said: Vec<_> = rig
        .told()
        .iter()
        .filter_map(|told| match &told.item {
            FeedItem::Live(LiveEvent::HookProgress { text, .. }) => Some(text.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(said, ["running lint…", "running tests…"]);
}

#[tokio::test]
async fn a_stop_hook_sees_what_the_tools_did() {
    let script = Script::of([ScriptReply::calls("c1", "add", json!({"a": 1, "b": 2})), ScriptReply::says("3")]);
    let look = stop("look", |turn: OnStopContext| async move {
        let trace = turn.tool_trace();
        assert_eq!(
            (trace.len(), &*trace[0].name, trace[0].ok, trace[0].content.text()),
            (1, "add", true, "3".to_owned())
        );
        Ok(OnStop::Advise("seen".into()))
    });
    let mut rig = Rig::new(adder(script).hook(look).build().unwrap());
    assert!(rig.trace("go").await.contains("inject    look: \"seen\""));
}

#[tokio::test]
async fn when_one_of_two_pauses_is_denied_nobody_has_to_answer_the_other() {
    let asked = Arc::new(AtomicBool::new(false));
    let pause = |name: &'static str| {
        let asked = asked.clone();
        stop(name, move |_| {
            let first = !asked.load(Ordering::SeqCst);
            async move { Ok(if first { OnStop::Pause("look".into()) } else { OnStop::Accept }) }
        })
    };
    let agent = Agent::builder("a", Script::says(["one", "two"])).hook(pause("first")).hook(pause("second"));
    let mut rig = Rig::new(agent.build().unwrap());
    let TurnStatus::Waiting(pending) = rig.run("go").await.unwrap() else { panic!("it does not wait") };
    assert_eq!(pending.len(), 2);
    asked.store(true, Ordering::SeqCst);
    let deny = Answer::Deny(Some("not yet".into()));
    let turn = rig.conversations.resolve(&rig.id, &pending[0].call, deny, None, Scope::local()).await.unwrap();
    assert!(matches!(rig.follow(turn).await.unwrap(), TurnStatus::Ended(_)));
    let resolved: Vec<Resolved> = rig
        .log()
        .await
        .unwrap()
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Resolution { decision, .. } => Some(*decision),
            _ => None,
        })
        .collect();
    assert_eq!(resolved, [Resolved::Denied, Resolved::Cancelled]);
}
