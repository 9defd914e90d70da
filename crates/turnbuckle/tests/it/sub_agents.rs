//! Sub-agents: a tool with an agent inside. Scope, cancel and budget are the parent's.

use std::sync::Arc;

use expect_test::expect;
use serde_json::json;
use turnbuckle::event::Prompt;
use turnbuckle::hook::*;
use turnbuckle::live::{Live, Telling};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::Rig;
use turnbuckle::tools::SubAgent;
use turnbuckle::{Agent, AgentBuilder, Limits, Outcome, Rest, Scope, Turn};

use crate::kit::{add, assert_valid, sum};

fn outer(inner: AgentBuilder) -> AgentBuilder {
    let call = ScriptReply::calls("s1", "inner", json!({"task": "add 2 and 2"}));
    Agent::builder("outer", Script::of([call, ScriptReply::says("it is 4")]))
        .tool(SubAgent::new(inner.build().unwrap(), "Adds."))
}

fn inner() -> AgentBuilder {
    Agent::builder("inner", sum()).tool(add())
}

#[tokio::test]
async fn its_answer_is_the_result_and_its_work_shows_as_progress() {
    let mut rig = Rig::new(outer(inner()).build().unwrap());
    expect![[r#"
        accept    "go"
        build     1 message, 1 tool
        call      inner("add 2 and 2")
        dispatch  inner("add 2 and 2") = 4
        build     3 messages, 1 tool
        call      "it is 4"
        end       completed
    "#]]
    .assert_eq(&rig.trace("go").await);
    let progress = rig.told().iter().filter(|told| matches!(&told.what, Telling::Live(Live::ToolProgress { .. })));
    assert!(progress.count() > 5);
    let inside = rig.conversations.log(&"c_1/s1".into(), Scope::local()).await.unwrap();
    assert_valid(&inside);
}

#[tokio::test]
async fn if_it_waits_the_parents_call_is_open_and_the_answer_is_passed_on() {
    let mut rig = Rig::new(outer(inner().approve(["add"])).build().unwrap());
    let Rest::Waiting(pending) = rig.run("go").await.unwrap() else { panic!("it does not wait") };
    assert_eq!(pending[0].call.as_str(), "s1");
    assert!(matches!(&pending[0].prompt, Prompt::Approval { tool: Some(tool), .. } if &**tool == "add"));
    let answer = rig.conversations.resolve(&rig.id, &"s1".into(), Answer::Approve, None, Scope::local()).await;
    let Rest::Ended(ended) = rig.follow(answer.unwrap()).await.unwrap() else { panic!("it waits again") };
    assert_eq!(ended.text(), "it is 4");
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn cancelling_the_parent_closes_the_books_of_both() {
    let reached = Arc::new(tokio::sync::Notify::new());
    let block = {
        let reached = reached.clone();
        gate("block", move |turn: Turn, _| {
            assert_eq!(turn.parent_agent(), Some("outer"));
            let reached = reached.clone();
            async move {
                reached.notify_one();
                std::future::pending().await
            }
        })
    };
    let mut rig = Rig::new(outer(inner().hook(block)).build().unwrap());
    let handle = rig.send("go").await.unwrap();
    reached.notified().await;
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    let Rest::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.outcome, Outcome::Cancelled);
    rig.settle().await;
    assert_valid(&rig.log().await.unwrap());
    let inside = rig.conversations.log(&"c_1/s1".into(), Scope::local()).await.unwrap();
    assert_valid(&inside);
    assert!(serde_json::to_string(inside.last().unwrap()).unwrap().contains("\"outcome\":\"cancelled\""));
}

#[tokio::test]
async fn it_spends_its_parents_tokens() {
    let hungry = Script::of([ScriptReply::calls("c", "add", json!({"a": 1, "b": 1})).costing(40, 20)])
        .when_exhausted(OnExhausted::Repeat);
    let inner = Agent::builder("inner", hungry).tool(add());
    let limits = Limits { max_tokens: 100, ..Limits::default() };
    let mut rig = Rig::new(outer(inner).limits(limits).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!((ended.outcome, ended.reason.as_deref()), (Outcome::Exhausted, Some("max_tokens")));
    assert_eq!(ended.usage.total(), 120);
    assert_valid(&rig.log().await.unwrap());
}

#[tokio::test]
async fn hooks_for_the_main_agent_only_do_not_run_inside() {
    let shout = |name: &str| {
        post(name, |mut turn: Settled| async move {
            turn.set_result("changed");
            turn.proceed()
        })
    };
    let mut rig = Rig::new(outer(inner().hook(shout("main").main_agent_only())).build().unwrap());
    assert!(rig.trace("go").await.contains("inner(\"add 2 and 2\") = 4"));
    let mut rig = Rig::new(outer(inner().hook(shout("both"))).build().unwrap());
    assert!(rig.trace("go").await.contains("inner(\"add 2 and 2\") = changed"));
}
