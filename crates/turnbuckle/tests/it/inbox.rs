//! Two processes, one store: what one asks of a conversation, the one that has it carries out.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use turnbuckle::clock::Clock;
use turnbuckle::conversation::{ResolveError, SendError, TurnError};
use turnbuckle::event::EventKind;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Answer, InboxFilter, InboxItem, InboxKind, Store, StoreError};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Outcome, RunError, Scope, TurnStatus, WhileBusy};

use crate::faulty_store::FaultyStore;
use crate::kit::{add, assert_valid};

/// An agent whose reply calls a tool that waits for `go`, and one that a person must allow.
fn agent(go: &Arc<Notify>) -> Agent {
    let go = go.clone();
    let slow = function_with_schema("slow", "Waits.", json!({"type": "object"}), Effect::Pure, move |_, _| {
        let go = go.clone();
        async move {
            go.notified().await;
            Ok("slept")
        }
    });
    let both = ScriptReply::calls("c1", "slow", json!({})).and_calls("c2", "add", json!({"a": 2, "b": 2}));
    let script = Script::of([both, ScriptReply::says("done"), ScriptReply::says("next")]);
    Agent::builder("a", script).tool(slow).tool(add()).approve(["add"]).build().unwrap()
}

/// Another process at the same store, with the same clock.
fn elsewhere(store: &FaultyStore, clock: &PausedClock) -> Conversations {
    let builder = Conversations::builder(agent(&Arc::default()), store.clone()).clock(Arc::new(clock.clone()));
    builder.ids(Arc::new(SystemIds::default())).build()
}

struct TwoProcesses {
    here: Rig,
    there: Conversations,
    store: FaultyStore,
    go: Arc<Notify>,
    turn: turnbuckle::conversation::TurnHandle,
}

/// The turn is under way here: a tool runs, and a question is open.
async fn under_way() -> TwoProcesses {
    let (store, go) = (FaultyStore::shared(), Arc::new(Notify::new()));
    let mut here = Rig::on(agent(&go), store.clone());
    let there = elsewhere(&store, &here.clock);
    let turn = here.send("go").await.unwrap();
    here.settle().await;
    TwoProcesses { here, there, store, go, turn }
}

/// The process that has the conversation looks into its inbox once a second.
async fn a_second(rig: &mut Rig) {
    rig.clock.advance(Duration::from_secs(1));
    rig.settle().await;
}

#[tokio::test]
async fn an_answer_is_handed_over_to_the_process_that_has_the_turn() {
    let TwoProcesses { mut here, there, store, go, turn } = under_way().await;
    let handle = there.resolve(&here.id, &"c2".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    assert!(handle.is_remote());
    assert!(matches!(handle.wait().await, Err(TurnError::Remote)));
    a_second(&mut here).await;
    let log = here.log().await.unwrap();
    let ran =
        |event: &EventKind| matches!(event, EventKind::ToolResult { call, ok: true, .. } if call.as_str() == "c2");
    assert!(log.iter().any(|event| ran(&event.kind)), "carried out while the other tool runs: {log:#?}");
    assert!(store.inbox(&here.id, InboxFilter::All).await.unwrap().is_empty(), "and its letter is gone");
    go.notify_one();
    let TurnStatus::Ended(ended) = here.follow(turn).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.text(), "done");
    assert_valid(&here.log().await.unwrap());
}

/// A program that hears that its turn waits ends: an answer or an order that was handed over to it must not be left then.
#[tokio::test]
async fn a_process_that_is_told_to_wait_has_looked_at_what_was_handed_over_to_it() {
    for cancel in [false, true] {
        let TwoProcesses { mut here, there, go, turn, .. } = under_way().await;
        match cancel {
            true => drop(there.cancel(&here.id, Scope::local()).await.unwrap()),
            false => {
                let approve = there.resolve(&here.id, &"c2".into(), Answer::Approve, None, Scope::local()).await;
                assert!(approve.unwrap().is_remote());
            }
        }
        // The other tool ends before a second is over: the turn would wait now.
        go.notify_one();
        let TurnStatus::Ended(ended) = here.follow(turn).await.unwrap() else { panic!("it waits") };
        assert_eq!(ended.outcome, if cancel { Outcome::Cancelled } else { Outcome::Completed });
    }
}

#[tokio::test]
async fn a_call_that_somebody_has_answered_is_stale_before_the_answer_is_carried_out() {
    let TwoProcesses { here, there, .. } = under_way().await;
    let call = "c2".into();
    let resolve = |answer| there.resolve(&here.id, &call, answer, None, Scope::local());
    assert!(resolve(Answer::Deny(None)).await.unwrap().is_remote());
    assert!(matches!(resolve(Answer::Approve).await, Err(ResolveError::Stale { .. })));
}

#[tokio::test]
async fn an_answer_that_is_stale_or_does_not_fit_is_refused_before_it_is_handed_over() {
    let TwoProcesses { here, there, store, .. } = under_way().await;
    let resolve = async |call: &str, answer, digest: Option<&str>| {
        there.resolve(&here.id, &call.into(), answer, digest.map(Into::into), Scope::local()).await.map(drop)
    };
    assert!(matches!(resolve("c9", Answer::Approve, None).await, Err(ResolveError::Stale { .. })));
    assert!(matches!(resolve("c1", Answer::Approve, None).await, Err(ResolveError::Stale { .. })));
    assert!(matches!(resolve("c2", Answer::Approve, Some("other")).await, Err(ResolveError::Stale { .. })));
    assert!(matches!(resolve("c2", Answer::Result(json!(4)), None).await, Err(ResolveError::Unfit { .. })));
    assert!(store.inbox(&here.id, InboxFilter::All).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_turn_is_cancelled_from_another_process() {
    let TwoProcesses { mut here, there, store, turn, .. } = under_way().await;
    there.cancel(&here.id, Scope::local()).await.unwrap();
    a_second(&mut here).await;
    let TurnStatus::Ended(ended) = here.follow(turn).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.outcome, Outcome::Cancelled);
    assert!(store.inbox(&here.id, InboxFilter::All).await.unwrap().is_empty());
    assert_valid(&here.log().await.unwrap());
}

#[tokio::test]
async fn orders_that_come_too_late_change_nothing_and_go() {
    let TwoProcesses { mut here, there, store, go, turn } = under_way().await;
    there.resolve(&here.id, &"c2".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    a_second(&mut here).await;
    let first = turn.turn().clone();
    go.notify_one();
    here.follow(turn).await.unwrap();
    let item = |id: &str, kind| {
        let from = Scope::local().actor().clone();
        InboxItem { id: id.into(), from, at: here.clock.now(), kind }
    };
    store.deliver(&here.id, item("l1", InboxKind::Cancel { turn: first })).await.unwrap();
    let answer =
        InboxKind::Answer { call: "c2".into(), answer: Answer::Deny(None), digest: None, via: None, standing: None };
    let stale = store.deliver(&here.id, item("l2", answer)).await;
    assert!(matches!(stale, Err(StoreError::NotAsked { .. })), "{stale:?}");
    let TurnStatus::Ended(ended) = here.run("again").await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.outcome, Outcome::Completed);
    assert!(store.inbox(&here.id, InboxFilter::All).await.unwrap().is_empty());
    assert_valid(&here.log().await.unwrap());
}

#[tokio::test]
async fn a_message_to_a_conversation_that_another_process_has_is_refused_queued_or_interrupts() {
    let TwoProcesses { mut here, there, go, turn, .. } = under_way().await;
    let busy = there.turn(&here.id, "now", Scope::local()).await;
    assert!(matches!(busy, Err(RunError::Send(SendError::Busy { .. }))), "{busy:?}");
    let busy = there.send(&here.id, "now", Scope::local()).await;
    assert!(matches!(busy, Err(SendError::Busy { .. })));
    let queued = there.send_while(&here.id, "then", Scope::local(), WhileBusy::Queue).await.unwrap();
    assert!(queued.is_remote());
    there.resolve(&here.id, &"c2".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    a_second(&mut here).await;
    go.notify_one();
    here.follow(turn).await.unwrap();
    here.settle().await;
    let log = here.log().await.unwrap();
    let said: Vec<_> = log.iter().filter(|event| matches!(event.kind, EventKind::UserMessage { .. })).collect();
    assert_eq!(said.len(), 2, "taken up by the process that had the conversation: {log:#?}");
    assert_eq!(said[1].turn, *queued.turn());
    assert_valid(&log);
}

#[tokio::test]
async fn an_interruption_from_another_process_is_carried_out_whose_sender_goes_while_it_is_stored() {
    let TwoProcesses { mut here, store, turn, .. } = under_way().await;
    let there = elsewhere(&store.slow_to_deliver(), &here.clock);
    tokio::select! {
        biased;
        _ = there.send_while(&here.id, "stop that", Scope::local(), WhileBusy::Interrupt) => panic!("stored too soon"),
        () = yields(20) => {}
    }
    yields(200).await;
    a_second(&mut here).await;
    let cancelled = |kind: &EventKind| matches!(kind, EventKind::TurnEnded(end) if end.outcome == Outcome::Cancelled);
    let log = here.log().await.unwrap();
    assert!(log.iter().any(|event| event.turn == *turn.turn() && cancelled(&event.kind)), "{log:#?}");
}

async fn yields(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn interrupting_from_another_process_cancels_the_turn_and_begins_the_next() {
    let TwoProcesses { mut here, there, turn, .. } = under_way().await;
    there.send_while(&here.id, "stop that", Scope::local(), WhileBusy::Interrupt).await.unwrap();
    a_second(&mut here).await;
    let TurnStatus::Ended(ended) = here.follow(turn).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.outcome, Outcome::Cancelled);
    here.settle().await;
    let log = here.log().await.unwrap();
    assert!(matches!(&log.last().unwrap().kind, EventKind::TurnEnded(ended) if ended.outcome == Outcome::Completed));
    assert_valid(&log);
}

#[test]
fn a_letter_to_a_process_that_died_is_carried_out_by_whoever_takes_the_conversation_up() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let process = runtime();
    let TwoProcesses { here, store, .. } = process.block_on(under_way());
    let (id, clock) = (here.id.clone(), here.clock.clone());
    let there = elsewhere(&store, &clock);
    let other = runtime();
    other.block_on(there.cancel(&id, Scope::local())).unwrap();
    drop(process);
    other.block_on(async {
        clock.advance(turnbuckle::store::LEASE);
        assert_eq!(there.recover_due().await.unwrap(), 1);
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        let log = there.log(&id, Scope::local()).await.unwrap();
        let last = &log.last().unwrap().kind;
        assert!(matches!(last, EventKind::TurnEnded(ended) if ended.outcome == Outcome::Cancelled), "{last:?}");
        assert_valid(&log);
        assert_eq!(there.recover_due().await.unwrap(), 0, "nothing is left to do");
    });
}
