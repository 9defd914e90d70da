//! Sub-agents: a tool with an agent inside. Scope, cancel and budget are the parent's.

use std::sync::Arc;

use expect_test::expect;
use serde_json::json;
use turnbuckle::conversation::{ResolveError, SendError};
use turnbuckle::event::{EventKind, Question, TurnEnded};
use turnbuckle::feed::{Delivery, FeedItem, LiveEvent};
use turnbuckle::hook::*;
use turnbuckle::message::ToolCall;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::Rig;
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::{FunctionTool, SubAgent, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxError, Limits, Outcome, Scope, Turn, TurnStatus};

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
    let progress =
        rig.told().iter().filter(|told| matches!(&told.item, FeedItem::Live(LiveEvent::ToolProgress { .. })));
    assert!(progress.count() > 5);
    let inside = rig.conversations.log(&"c_1/s1".into(), Scope::local()).await.unwrap();
    assert_valid(&inside);
}

#[tokio::test]
async fn if_it_waits_the_parents_call_is_open_and_the_answer_is_passed_on() {
    let mut rig = Rig::new(outer(inner().approve(["add"])).build().unwrap());
    let TurnStatus::Waiting(pending) = rig.run("go").await.unwrap() else { panic!("it does not wait") };
    assert_eq!(pending[0].call.as_str(), "s1");
    assert!(matches!(&pending[0].question, Question::Approval { tool: Some(tool), .. } if &**tool == "add"));
    let answer = rig.conversations.resolve(&rig.id, &"s1".into(), Answer::Approve, None, Scope::local()).await;
    let TurnStatus::Ended(ended) = rig.follow(answer.unwrap()).await.unwrap() else { panic!("it waits again") };
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
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
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
        post(name, |mut turn: AfterAgentContext| async move {
            turn.set_result("changed");
            turn.proceed()
        })
    };
    let mut rig = Rig::new(outer(inner().hook(shout("main").main_agent_only())).build().unwrap());
    assert!(rig.trace("go").await.contains("inner(\"add 2 and 2\") = 4"));
    let mut rig = Rig::new(outer(inner().hook(shout("both"))).build().unwrap());
    assert!(rig.trace("go").await.contains("inner(\"add 2 and 2\") = changed"));
}

/// An agent inside that asks before it works, and then works until it is stopped.
fn asks_and_never_ends(reached: &Arc<tokio::sync::Notify>) -> AgentBuilder {
    Agent::builder("inner", sum()).tool(endless("add", reached)).approve(["add"])
}

/// A tool that never returns.
fn endless(name: &'static str, reached: &Arc<tokio::sync::Notify>) -> FunctionTool {
    let reached = reached.clone();
    function_with_schema(name, "Never ends.", json!({"type": "object"}), Effect::Idempotent, move |_, _| {
        reached.notify_one();
        std::future::pending::<Result<String, BoxError>>()
    })
}

/// How the only turn inside ended, if it did.
async fn end_inside(rig: &Rig) -> Option<Arc<TurnEnded>> {
    let log = rig.conversations.log(&"c_1/s1".into(), Scope::local()).await.unwrap();
    assert_valid(&log);
    log.iter().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended.clone()),
        _ => None,
    })
}

#[tokio::test]
async fn cancelling_the_parent_reaches_a_sub_agent_that_has_waited() {
    let reached = Arc::new(tokio::sync::Notify::new());
    let mut rig = Rig::new(outer(asks_and_never_ends(&reached)).build().unwrap());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    let answer = rig.conversations.resolve(&rig.id, &"s1".into(), Answer::Approve, None, Scope::local()).await;
    reached.notified().await;
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    let TurnStatus::Ended(ended) = rig.follow(answer.unwrap()).await.unwrap() else { panic!("it waits again") };
    assert_eq!(ended.outcome, Outcome::Cancelled);
    assert_eq!(end_inside(&rig).await.map(|ended| ended.outcome), Some(Outcome::Cancelled));
}

#[tokio::test]
async fn a_sub_agent_that_has_waited_still_spends_its_parents_tokens() {
    let hungry = Script::of([ScriptReply::calls("c", "add", json!({"a": 1, "b": 1})).costing(40, 20)])
        .when_exhausted(OnExhausted::Repeat);
    let inner = Agent::builder("inner", hungry).tool(add()).approve(["add"]);
    let limits = Limits { max_tokens: 100, ..Limits::default() };
    let mut rig = Rig::new(outer(inner).limits(limits).build().unwrap());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    let answer = rig.conversations.resolve(&rig.id, &"s1".into(), Answer::Approve, None, Scope::local()).await;
    let TurnStatus::Ended(ended) = rig.follow(answer.unwrap()).await.unwrap() else { panic!("it waits again") };
    assert_eq!((ended.outcome, ended.reason.as_deref()), (Outcome::Exhausted, Some("max_tokens")));
    assert_eq!(ended.usage.total(), 120);
}

#[tokio::test]
async fn a_parent_that_is_cancelled_while_its_sub_agent_waits_closes_the_books_of_both() {
    let mut rig = Rig::new(outer(inner().approve(["add"])).build().unwrap());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    rig.settle().await;
    assert_valid(&rig.log().await.unwrap());
    let ended = end_inside(&rig).await.expect("the sub-agent's turn is closed");
    assert_eq!((ended.outcome, ended.by().cloned()), (Outcome::Cancelled, Some(Scope::local().by())));
    assert_eq!(rig.conversations.resident_count(), 1, "nothing of the sub-agent stays in memory");
}

#[tokio::test]
async fn a_question_that_lapses_closes_the_turn_of_the_sub_agent_that_asked_it() {
    let mut rig = Rig::new(outer(inner().approve(["add"])).build().unwrap());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    rig.clock.advance(Limits::default().approval_timeout * 2);
    rig.conversations.recover_due().await.unwrap();
    rig.settle().await;
    let log = rig.log().await.unwrap();
    assert!(serde_json::to_string(&log).unwrap().contains("[expired] nobody answered in time"));
    assert_eq!(end_inside(&rig).await.map(|ended| ended.outcome), Some(Outcome::Cancelled));
}

#[tokio::test]
async fn from_outside_a_sub_agents_conversation_can_be_read_and_nothing_else() {
    let mut rig = Rig::new(outer(inner().approve(["add"])).build().unwrap());
    let (inside, scope) = ("c_1/s1".into(), Scope::local());
    let early = rig.conversations.subscribe(&inside, Delivery::Lossy, scope.clone()).await;
    assert!(matches!(early, Err(SendError::NotFound { .. })), "{early:?}");
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    let door = &rig.conversations;
    assert!(matches!(door.snapshot(&inside, scope.clone()).await, Err(SendError::NotFound { .. })));
    assert!(matches!(door.send(&inside, "and?", scope.clone()).await, Err(SendError::NotFound { .. })));
    assert!(matches!(door.cancel(&inside, scope.clone()).await, Err(SendError::NotFound { .. })));
    assert!(matches!(door.resume(&inside, scope.clone()).await, Err(SendError::NotFound { .. })));
    assert!(matches!(door.close(&inside, scope.clone()).await, Err(SendError::NotFound { .. })));
    let answer = door.resolve(&inside, &"c1".into(), Answer::Approve, None, scope.clone()).await;
    assert!(matches!(answer, Err(ResolveError::NotFound { .. })), "{answer:?}");
    let log = door.log(&inside, scope.clone()).await.unwrap();
    door.records(&inside, &log[0].turn, scope.clone()).await.unwrap();
    door.jobs(&inside, scope).await.unwrap();
}

#[tokio::test]
async fn a_sub_agent_whose_time_is_up_is_stopped() {
    let reached = Arc::new(tokio::sync::Notify::new());
    let limits = Limits { turn_timeout: std::time::Duration::from_secs(2 * 60 * 60), ..Limits::default() };
    let inner = Agent::builder("inner", sum()).tool(endless("add", &reached)).limits(limits.clone());
    let mut rig = Rig::new(outer(inner).limits(limits).build().unwrap());
    let handle = rig.send("go").await.unwrap();
    reached.notified().await;
    rig.settle().await;
    // As long as a call of a sub-agent may take, and less than its turn may.
    rig.clock.advance(std::time::Duration::from_secs(30 * 60));
    let TurnStatus::Ended(_) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
    assert_eq!(end_inside(&rig).await.map(|ended| ended.outcome), Some(Outcome::Cancelled));
}

#[tokio::test]
async fn a_turn_that_is_halted_at_another_call_stops_its_sub_agents() {
    let reached = Arc::new(tokio::sync::Notify::new());
    let inner = Agent::builder("inner", sum()).tool(endless("add", &reached));
    let both = ScriptReply::calls("s1", "inner", json!({"task": "add"})).and_calls("s2", "stop", json!({}));
    let wait = reached.clone();
    let stop = function_with_schema("stop", "Stops.", json!({"type": "object"}), Effect::Pure, move |_, _| {
        let wait = wait.clone();
        async move {
            wait.notified().await;
            Ok("stopped".to_owned())
        }
    });
    struct Halts;
    impl Hook for Halts {
        async fn after_tool(&self, _: &Turn, _: &ToolCall, _: &Output) -> Result<AfterTool, BoxError> {
            Ok(AfterTool::Halt("enough".into()))
        }
    }
    let agent = Agent::builder("outer", Script::of([both])).tool(SubAgent::new(inner.build().unwrap(), "Adds."));
    let mut rig = Rig::new(agent.tool(stop).hook(Halts.for_tools(["stop"])).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Halted);
    assert_eq!(end_inside(&rig).await.map(|ended| ended.outcome), Some(Outcome::Cancelled));
}

#[tokio::test]
async fn a_sub_agent_that_needs_approval_itself_is_still_cancelled_with_its_parent() {
    let agent = outer(inner().approve(["add"])).approve(["inner"]).build().unwrap();
    let mut rig = Rig::new(agent);
    let TurnStatus::Waiting(pending) = rig.run("go").await.unwrap() else { panic!("it does not wait") };
    assert!(matches!(&pending[0].question, Question::Approval { tool: Some(tool), .. } if &**tool == "inner"));
    let approved = rig.conversations.resolve(&rig.id, &"s1".into(), Answer::Approve, None, Scope::local()).await;
    let TurnStatus::Waiting(pending) = rig.follow(approved.unwrap()).await.unwrap() else { panic!("it ended") };
    assert!(matches!(&pending[0].question, Question::Approval { tool: Some(tool), .. } if &**tool == "add"));
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    rig.settle().await;
    let inside = rig.conversations.log(&"c_1/s1".into(), Scope::local()).await.unwrap();
    let outcome = inside.iter().rev().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended.outcome),
        _ => None,
    });
    assert_eq!(outcome, Some(Outcome::Cancelled), "the sub-agent's turn does not stay open: {inside:#?}");
}
