//! Nobody answers in time: the store knows, and whoever looks carries the turn on.

use std::time::Duration;

use serde_json::json;
use turnbuckle::conversation::ResolveError;
use turnbuckle::event::{EventKind, Resolved};
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::{Author, SystemAuthor};
use turnbuckle::store::Answer;
use turnbuckle::testing::Rig;
use turnbuckle::tools::{SubAgent, client, human};
use turnbuckle::trace::trace_told;
use turnbuckle::{Agent, AgentBuilder, Outcome, Scope, TurnStatus};

use crate::faulty_store::FaultyStore;
use crate::kit::{adder, assert_valid, sum};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn waits(rig: &mut Rig) {
    let rest = rig.run("go").await.unwrap();
    assert!(matches!(rest, TurnStatus::Waiting(_)), "{rest:?}");
}

/// A process that begins now: everything but the store and the time of day is new.
fn restarted(agent: AgentBuilder, store: &FaultyStore, passed: Duration) -> Rig {
    let rig = Rig::on(agent.build().unwrap(), store.clone());
    rig.clock.advance(passed);
    rig
}

async fn take_up(rig: &mut Rig) -> usize {
    rig.listen().await.unwrap();
    let due = rig.conversations.recover_due().await.unwrap();
    rig.settle().await;
    due
}

async fn outcome(rig: &Rig) -> Option<(Outcome, Option<Author>)> {
    let log = rig.log().await.unwrap();
    assert_valid(&log);
    match &log.last()?.kind {
        EventKind::TurnEnded(ended) => Some((ended.outcome, ended.by().cloned())),
        _ => None,
    }
}

#[tokio::test]
async fn an_unanswered_call_becomes_an_error_result_by_the_system_also_after_a_restart() {
    let store = FaultyStore::shared();
    let gated = || adder(sum()).approve(["add"]);
    waits(&mut Rig::on(gated().build().unwrap(), store.clone())).await;
    let mut rig = restarted(gated(), &store, DAY - Duration::from_millis(1));
    assert_eq!(take_up(&mut rig).await, 0);
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(take_up(&mut rig).await, 1);
    let log = rig.log().await.unwrap();
    let expiry = |kind: &EventKind| match kind {
        EventKind::Resolution { decision, by, .. } => Some((*decision, by.clone())),
        _ => None,
    };
    let found = log.iter().find_map(|event| expiry(&event.kind));
    assert_eq!(found, Some((Resolved::Expired, Author::System(SystemAuthor::Expiry))));
    let told = trace_told(rig.told(), 1);
    assert!(told.contains("dispatch  c1 ! [expired] nobody answered in time"), "{told}");
    assert_eq!(outcome(&rig).await, Some((Outcome::Completed, None)));
    assert_eq!(take_up(&mut rig).await, 0);
}

#[tokio::test]
async fn an_answer_after_the_time_is_stale_and_the_turn_goes_on_without_it() {
    let mut rig = Rig::new(adder(sum()).approve(["add"]).build().unwrap());
    waits(&mut rig).await;
    rig.clock.advance(DAY);
    let late = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    assert!(matches!(late, Err(ResolveError::Stale { .. })), "{late:?}");
    rig.settle().await;
    assert_eq!(outcome(&rig).await, Some((Outcome::Completed, None)));
    assert!(rig.conversations.carry_on_expired(&rig.id, &"c1".into(), Scope::local()).await.unwrap().is_none());
}

#[tokio::test]
async fn an_expired_call_has_its_error_result_without_an_agent_and_its_own_agent_goes_on() {
    let store = FaultyStore::shared();
    let gated = || adder(sum()).approve(["add"]);
    waits(&mut Rig::on(gated().build().unwrap(), store.clone())).await;
    let other = Agent::builder("other", Script::says(["never"]));
    let mut other = restarted(other, &store, DAY);
    let late = other.conversations.answer(&other.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    assert!(matches!(late, Err(ResolveError::Stale { .. })), "{late:?}");
    other.settle().await;
    let log = other.log().await.unwrap();
    assert_valid(&log);
    let [resolution, result] = &log[log.len() - 2..] else { panic!("{log:#?}") };
    let EventKind::Resolution { decision: Resolved::Expired, by, .. } = &resolution.kind else { panic!("{log:#?}") };
    assert_eq!(*by, Author::System(SystemAuthor::Expiry));
    let EventKind::ToolResult { ok: false, content, .. } = &result.kind else { panic!("{log:#?}") };
    assert_eq!(content.text(), "[expired] nobody answered in time");
    assert_eq!(outcome(&other).await, None, "it is not this agent's turn");
    let mut own = restarted(gated(), &store, DAY + Duration::from_secs(60));
    assert_eq!(take_up(&mut own).await, 1);
    assert_eq!(outcome(&own).await, Some((Outcome::Completed, None)));
}

#[tokio::test]
async fn questions_of_people_and_clients_lapse_each_for_itself() {
    let script = Script::of([
        ScriptReply::calls("c1", "ask", json!({"question": "who?"})).and_calls("c2", "run", json!({})),
        ScriptReply::says("so"),
    ]);
    let agent =
        Agent::builder("a", script).tool(human("ask", "Asks.")).tool(client("run", "Runs.", json!({"type": "object"})));
    let mut rig = Rig::new(agent.build().unwrap());
    waits(&mut rig).await;
    let (call, answer) = ("c1".into(), Answer::Result(json!("ann")));
    let handle = rig.conversations.resolve(&rig.id, &call, answer, None, Scope::local()).await.unwrap();
    assert!(matches!(rig.follow(handle).await.unwrap(), TurnStatus::Waiting(_)));
    rig.clock.advance(DAY);
    assert_eq!(take_up(&mut rig).await, 1);
    let told = trace_told(rig.told(), 2);
    assert!(told.contains("ann") && told.contains("run() ! [expired] nobody answered in time"), "{told}");
    assert_eq!(outcome(&rig).await, Some((Outcome::Completed, None)));
}

#[tokio::test]
async fn a_reply_that_nobody_approved_in_time_is_rejected() {
    let ask = guard("editor", |_, _| async { Ok(AfterModel::Ask("publish?".into())) });
    let agent = Agent::builder("a", Script::says(["draft"])).hook(ask);
    let mut rig = Rig::new(agent.build().unwrap());
    waits(&mut rig).await;
    rig.clock.advance(DAY);
    assert_eq!(take_up(&mut rig).await, 1);
    assert_eq!(outcome(&rig).await, Some((Outcome::Rejected, Some(Author::System(SystemAuthor::Expiry)))));
}

#[tokio::test]
async fn a_pause_that_nobody_looked_at_in_time_halts_the_turn() {
    let pause = stop("look", |_| async { Ok(OnStop::Pause("look at this".into())) });
    let agent = Agent::builder("a", Script::says(["done"])).hook(pause);
    let mut rig = Rig::new(agent.build().unwrap());
    waits(&mut rig).await;
    rig.clock.advance(DAY);
    assert_eq!(take_up(&mut rig).await, 1);
    assert_eq!(outcome(&rig).await, Some((Outcome::Halted, Some(Author::System(SystemAuthor::Expiry)))));
}

#[tokio::test]
async fn waiting_and_downtime_count_in_no_time_limit() {
    let store = FaultyStore::shared();
    let agent = || {
        let limits = turnbuckle::Limits { turn_timeout: Duration::from_secs(60), ..Default::default() };
        adder(sum()).approve(["add"]).limits(limits)
    };
    waits(&mut Rig::on(agent().build().unwrap(), store.clone())).await;
    let mut rig = restarted(agent(), &store, DAY / 2);
    rig.listen().await.unwrap();
    let handle = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
    assert_eq!((ended.outcome, ended.ms), (Outcome::Completed, 0));
}

#[tokio::test]
async fn a_sub_agent_whose_question_lapsed_is_closed_also_where_its_agent_is_not_known() {
    let store = FaultyStore::shared();
    let script = Script::of([ScriptReply::calls("s1", "adder", json!({"task": "add"})), ScriptReply::says("ok")]);
    let inside = adder(sum()).approve(["add"]).build().unwrap();
    let outer = Agent::builder("outer", script).tool(SubAgent::new(inside, "Adds."));
    waits(&mut Rig::on(outer.build().unwrap(), store.clone())).await;
    let mut other = restarted(Agent::builder("other", Script::says(["never"])), &store, DAY);
    assert_eq!(take_up(&mut other).await, 1);
    let log = other.log().await.unwrap();
    assert!(
        matches!(&log.last().unwrap().kind, EventKind::ToolResult { call, ok: false, .. } if call.as_str() == "s1")
    );
    let inside = other.conversations.log(&"c_1/s1".into(), Scope::local()).await.unwrap();
    let EventKind::TurnEnded(ended) = &inside.last().unwrap().kind else { panic!("{inside:#?}") };
    assert_eq!(ended.outcome, Outcome::Cancelled);
}
