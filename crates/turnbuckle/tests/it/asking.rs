//! What is asked of a conversation: it is stored before it is acknowledged, it reaches whoever has the turn, and a refusal
//! says the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::Notify;
use turnbuckle::conversation::{Cancelled, ResolveError, SendError, TurnError};
use turnbuckle::event::EventKind;
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::store::{Answer, InboxFilter, InboxItem, InboxKind, Store};
use turnbuckle::testing::PausedClock;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, ConversationId, Conversations, Limits, Outcome, Scope, TurnStatus, WhileBusy};

use crate::faulty_store::{Fault, FaultyStore};
use crate::kit::{add, assert_valid};

fn id() -> ConversationId {
    "c".into()
}

fn process(agent: Agent, store: &FaultyStore, clock: &PausedClock) -> Conversations {
    let builder = Conversations::builder(agent, store.clone()).clock(Arc::new(clock.clone()));
    builder.ids(Arc::new(SystemIds::default())).build()
}

/// Adds when a person has allowed it, then says so for ever.
fn asker() -> Agent {
    let call = ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2}));
    let script = Script::of([call, ScriptReply::says("4")]).when_exhausted(OnExhausted::Repeat);
    Agent::builder("a", script).tool(add()).approve(["add"]).build().unwrap()
}

/// Its turns wait for `go` before the model is asked.
fn gated(go: &Arc<Notify>) -> Agent {
    let go = go.clone();
    let gate = pre("gate", move |turn: BeforeAgentContext| {
        let go = go.clone();
        async move {
            go.notified().await;
            turn.proceed()
        }
    });
    let script = Script::says(["done"]).when_exhausted(OnExhausted::Repeat);
    Agent::builder("a", script).hook(gate).build().unwrap()
}

async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A promise that is broken fails, rather than hangs.
pub async fn soon<F: Future>(wanted: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(10), wanted).await.expect("nobody told")
}

async fn waiting(door: &Conversations) {
    assert!(matches!(door.turn(&id(), "go", Scope::local()).await.unwrap(), TurnStatus::Waiting(_)));
}

async fn outcome(door: &Conversations) -> Option<Outcome> {
    let log = door.log(&id(), Scope::local()).await.unwrap();
    assert_valid(&log);
    match &log.last().unwrap().kind {
        EventKind::TurnEnded(ended) => Some(ended.outcome),
        _ => None,
    }
}

#[tokio::test]
async fn a_cancellation_says_where_it_is_carried_out() {
    let (store, clock, go) = (FaultyStore::shared(), PausedClock::default(), Arc::new(Notify::new()));
    let (here, there) = (process(gated(&go), &store, &clock), process(gated(&go), &store, &clock));
    let turn = here.send(&id(), "go", Scope::local()).await.unwrap();
    settle().await;
    let meant = turn.turn().clone();
    let item = there.cancel(&id(), Scope::local()).await.unwrap();
    assert_eq!(item, Cancelled::Remote { turn: meant.clone() });
    assert_eq!(here.cancel(&id(), Scope::local()).await.unwrap(), Cancelled::Local { turn: meant });
    soon(turn.wait()).await.unwrap();
    settle().await;
    assert_eq!(outcome(&here).await, Some(Outcome::Cancelled));
    for door in [&here, &there] {
        assert_eq!(door.cancel(&id(), Scope::local()).await.unwrap(), Cancelled::NotRunning);
    }
    assert!(store.inbox(&id(), InboxFilter::All).await.unwrap().is_empty(), "no order is left lying about");
}

#[test]
fn a_cancellation_that_was_acknowledged_survives_a_crash() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let process_that_dies = runtime();
    process_that_dies.block_on(async {
        let door = process(gated(&Arc::default()), &store, &clock);
        let _turn = door.send(&id(), "go", Scope::local()).await.unwrap();
        settle().await;
        assert!(matches!(door.cancel(&id(), Scope::local()).await.unwrap(), Cancelled::Local { .. }));
    });
    drop(process_that_dies);
    runtime().block_on(async {
        clock.advance(turnbuckle::store::LEASE);
        let go = Arc::new(Notify::new());
        go.notify_one();
        let door = process(gated(&go), &store, &clock);
        assert_eq!(door.recover_due().await.unwrap(), 1);
        settle().await;
        assert_eq!(outcome(&door).await, Some(Outcome::Cancelled));
    });
}

#[tokio::test]
async fn a_cancellation_is_not_lost_with_a_claim_that_fails() {
    let (store, clock, go) = (FaultyStore::shared(), PausedClock::default(), Arc::new(Notify::new()));
    let here = process(gated(&go), &store, &clock);
    let there = process(gated(&go), &store.slow_to_claim(), &clock);
    let turn = here.send(&id(), "go", Scope::local()).await.unwrap();
    settle().await;
    // A driver there is on its way to a claim that it will not get.
    let c = id();
    let (resumed, cancelled) = tokio::join!(there.resume(&c, Scope::local()), there.cancel(&c, Scope::local()));
    assert!(resumed.is_err());
    cancelled.unwrap();
    clock.advance(Duration::from_secs(1));
    let TurnStatus::Ended(ended) = soon(turn.wait()).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.outcome, Outcome::Cancelled);
}

#[tokio::test]
async fn a_huge_turn_is_cancelled_from_another_process_also_behind_a_note_of_an_earlier_one() {
    let (store, clock, go) = (FaultyStore::shared(), PausedClock::default(), Arc::new(Notify::new()));
    let opened = go.clone();
    let aside = background("aside", move |turn: BackgroundContext| {
        let opened = opened.clone();
        async move {
            opened.notified().await;
            turn.leave_note("by the way");
            Ok(())
        }
    });
    let long = function_with_schema("long", "Much.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        Ok("word ".repeat(200))
    });
    let script = [
        ScriptReply::says("one"),
        ScriptReply::calls("c1", "long", json!({})),
        ScriptReply::calls("c2", "add", json!({"a": 2, "b": 2})),
    ];
    // Little room for history: less than this turn takes.
    let limits = Limits { context_tokens: 4000, injection_reserve: 3900, ..Limits::default() };
    let agent =
        Agent::builder("a", Script::of(script)).tool(long).tool(add()).approve(["add"]).limits(limits).hook(aside);
    let agent = agent.build().unwrap();
    let (here, there) = (process(agent.clone(), &store, &clock), process(agent, &store, &clock));
    here.turn(&id(), "first", Scope::local()).await.unwrap();
    waiting(&here).await;
    go.notify_one();
    settle().await;
    let log = here.log(&id(), Scope::local()).await.unwrap();
    assert!(matches!(log.last().unwrap().kind, EventKind::Injection { .. }), "{log:#?}");
    assert!(matches!(there.cancel(&id(), Scope::local()).await.unwrap(), Cancelled::Local { .. }));
    settle().await;
    assert_eq!(outcome(&there).await, Some(Outcome::Cancelled));
}

#[tokio::test]
async fn whoever_waits_for_a_queued_turn_is_told_when_another_process_ran_it() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let (here, there) = (process(asker(), &store, &clock), process(asker(), &store, &clock));
    waiting(&here).await;
    let second = here.send_while(&id(), "second", Scope::local(), WhileBusy::Queue).await.unwrap();
    let answer = there.resolve(&id(), &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    soon(answer.wait()).await.unwrap();
    settle().await;
    here.turn(&id(), "third", Scope::local()).await.unwrap();
    let rest = soon(second.wait()).await;
    match rest {
        Ok(TurnStatus::Ended(ended)) => assert_eq!(ended.text(), "4"),
        other => panic!("{other:?}"),
    }
    assert_valid(&here.log(&id(), Scope::local()).await.unwrap());
}

#[tokio::test]
async fn whoever_waits_for_a_queued_turn_is_told_when_another_process_has_the_conversation() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let (go, held) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let here = process(gated(&go), &store.slow_to_claim(), &clock);
    let there = process(gated(&held), &store, &clock);
    let first = here.send(&id(), "first", Scope::local()).await.unwrap();
    settle().await;
    let second = here.send_while(&id(), "second", Scope::local(), WhileBusy::Queue).await.unwrap();
    go.notify_one();
    soon(first.wait()).await.unwrap();
    // On its way to the next claim, the process here is overtaken.
    let overtaking = soon(there.resume(&id(), Scope::local())).await.unwrap().unwrap();
    assert_eq!(overtaking.turn(), second.turn());
    assert!(matches!(soon(second.wait()).await, Err(TurnError::Remote)));
    held.notify_one();
    soon(overtaking.wait()).await.unwrap();
}

#[tokio::test]
async fn a_message_that_meets_a_close_keeps_its_conversation() {
    let (store, clock, go) = (FaultyStore::shared(), PausedClock::default(), Arc::new(Notify::new()));
    let door = process(gated(&go), &store, &clock);
    go.notify_one();
    door.turn(&id(), "first", Scope::local()).await.unwrap();
    settle().await;
    let c = id();
    let (closed, sent) = tokio::join!(door.close(&c, Scope::local()), door.send(&c, "second", Scope::local()));
    closed.unwrap();
    let second = sent.unwrap();
    settle().await;
    let third = door.send(&id(), "third", Scope::local()).await;
    assert!(matches!(third, Err(SendError::Busy { .. })), "two would write at once: {third:?}");
    go.notify_one();
    assert!(matches!(soon(second.wait()).await.unwrap(), TurnStatus::Ended(_)));
    door.close(&id(), Scope::local()).await.unwrap();
    settle().await;
    assert_eq!(door.resident_count(), 0);
    assert_eq!(outcome(&door).await, Some(Outcome::Completed));
}

#[tokio::test]
async fn an_answer_that_meets_a_driver_on_its_way_to_the_claim_is_not_stale() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    waiting(&process(asker(), &store, &clock)).await;
    settle().await;
    let door = process(asker(), &store.slow_to_claim(), &clock);
    let (call, scope) = ("c1".into(), Scope::local);
    let c = id();
    let (sent, answered) =
        tokio::join!(door.send(&c, "too early", scope()), door.resolve(&c, &call, Answer::Approve, None, scope()));
    assert!(matches!(sent, Err(SendError::Busy { .. })), "{sent:?}");
    assert!(answered.is_ok(), "{answered:?}");
}

#[tokio::test]
async fn answers_that_are_too_long_are_refused() {
    let door = process(asker(), &FaultyStore::shared(), &PausedClock::default());
    waiting(&door).await;
    let resolve = async |answer| door.resolve(&id(), &"c1".into(), answer, None, Scope::local()).await.map(drop);
    let long = |size: usize| "x".repeat(size);
    for answer in [
        Answer::Deny(Some(long((16 << 10) + 1).into())),
        Answer::Error(long((1 << 20) + 1).into()),
        Answer::Result(json!(long(10 << 20))),
    ] {
        assert!(matches!(resolve(answer).await, Err(ResolveError::TooLong { .. })));
    }
    resolve(Answer::Deny(Some(long(16 << 10).into()))).await.unwrap();
}

#[tokio::test]
async fn a_store_that_fails_is_not_told_as_a_conversation_that_is_not_there() {
    let store = FaultyStore::shared();
    let door = process(asker(), &store, &PausedClock::default());
    waiting(&door).await;
    store.break_down();
    let answer = door.resolve(&id(), &"c1".into(), Answer::Approve, None, Scope::local()).await;
    assert!(matches!(answer, Err(ResolveError::Store(_))), "{answer:?}");
}

#[tokio::test]
async fn what_finds_no_room_to_wait_is_told_so() {
    let store = FaultyStore::shared();
    let clock = PausedClock::default();
    waiting(&process(asker(), &store, &clock)).await;
    settle().await;
    let door = process(asker(), &store.slow_to_claim(), &clock);
    let answers = join_all((0..80).map(|_| {
        let door = &door;
        async move { door.resolve(&id(), &"c1".into(), Answer::Approve, None, Scope::local()).await.map(drop) }
    }));
    let answers = answers.await;
    let full = answers.iter().filter(|answer| matches!(answer, Err(ResolveError::Full { .. }))).count();
    assert_eq!(full, 80 - 1 - 64, "one is being carried out, and 64 wait");
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
}

#[tokio::test]
async fn an_approval_that_could_not_be_used_in_time_is_none() {
    let dies = Arc::new(AtomicBool::new(true));
    let once = dies.clone();
    let store = FaultyStore::with(move |batch| {
        let starts = batch.events.iter().any(|event| matches!(event.kind, EventKind::ToolStarted { .. }));
        if starts && once.load(Ordering::Relaxed) { Fault::Fail } else { Fault::Nothing }
    });
    let clock = PausedClock::default();
    let door = process(asker(), &store, &clock);
    waiting(&door).await;
    let approved = door.resolve(&id(), &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    assert!(matches!(soon(approved.wait()).await, Err(TurnError::Store(_))), "the process stops before the tool does");
    dies.store(false, Ordering::Relaxed);
    clock.advance(Duration::from_secs(48 * 3600));
    let door = process(asker(), &store, &clock);
    let handle = door.resume(&id(), Scope::local()).await.unwrap().unwrap();
    assert!(matches!(soon(handle.wait()).await.unwrap(), TurnStatus::Ended(_)));
    let log = door.log(&id(), Scope::local()).await.unwrap();
    assert!(!log.iter().any(|event| matches!(event.kind, EventKind::ToolStarted { .. })), "it ran: {log:#?}");
    let text = serde_json::to_string(&log).unwrap();
    assert!(text.contains("[expired] the approval lapsed"), "{text}");
}

#[tokio::test]
async fn a_claim_is_renewed_and_the_inbox_is_read_as_long_as_the_turn_runs() {
    let (store, clock, go) = (FaultyStore::shared(), PausedClock::default(), Arc::new(Notify::new()));
    let (here, there) = (process(gated(&go), &store, &clock), process(gated(&go), &store, &clock));
    let turn = here.send(&id(), "go", Scope::local()).await.unwrap();
    settle().await;
    // Longer than a lease that was renewed once. Nothing but the timers wakes the turn.
    for _ in 0..25 {
        clock.advance(Duration::from_secs(1));
        settle().await;
    }
    assert_eq!(there.recover_due().await.unwrap(), 0, "the turn still has its claim");
    assert!(matches!(there.cancel(&id(), Scope::local()).await.unwrap(), Cancelled::Remote { .. }));
    clock.advance(Duration::from_secs(1));
    soon(turn.wait()).await.unwrap();
    assert_eq!(outcome(&here).await, Some(Outcome::Cancelled));
}

#[tokio::test]
async fn an_answer_to_a_turn_that_was_interrupted_does_not_wait_for_the_next_one() {
    let (store, clock, go) = (FaultyStore::shared(), PausedClock::default(), Arc::new(Notify::new()));
    let hold = go.clone();
    let first = Arc::new(AtomicBool::new(true));
    let gate = pre("gate", move |turn: BeforeAgentContext| {
        let (hold, first) = (hold.clone(), first.swap(false, Ordering::Relaxed));
        async move {
            if !first {
                hold.notified().await;
            }
            turn.proceed()
        }
    });
    let call = ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2}));
    let script = Script::of([call, ScriptReply::says("4")]).when_exhausted(OnExhausted::Repeat);
    let agent = Agent::builder("a", script).tool(add()).approve(["add"]).hook(gate).build().unwrap();
    let door = process(agent, &store.slow_to_claim(), &clock);
    waiting(&door).await;
    let (c, call) = (id(), "c1".into());
    let next = door.send_while(&c, "something else", Scope::local(), WhileBusy::Interrupt);
    let answer = door.resolve(&c, &call, Answer::Approve, None, Scope::local());
    let (next, answered) = soon(async { tokio::join!(next, answer) }).await;
    // Whichever came first: the answer is taken or refused while the next turn is held up.
    assert!(matches!(answered, Ok(_) | Err(ResolveError::Stale { .. })), "{answered:?}");
    go.notify_one();
    soon(next.unwrap().wait()).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_was_stored_in_time_counts_however_late_it_is_taken_up() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let ask = ScriptReply::calls("c1", "ask", json!({"question": "How many?"}));
    let script = Script::of([ask, ScriptReply::says("thanks")]);
    let ask = turnbuckle::tools::human("ask", "Asks a person.");
    let limits = Limits { approval_timeout: Duration::from_secs(60), ..Limits::default() };
    let agent = Agent::builder("a", script).tool(ask).limits(limits).build().unwrap();
    let door = process(agent.clone(), &store, &clock);
    waiting(&door).await;
    clock.advance(Duration::from_secs(59));
    let answer = InboxKind::Answer {
        call: "c1".into(),
        answer: Answer::Result(json!("three")),
        digest: None,
        via: None,
        standing: None,
    };
    let from = Scope::local().actor().clone();
    let item = InboxItem { id: "l_1".into(), from, at: turnbuckle::clock::Clock::now(&clock), kind: answer };
    store.deliver(&id(), item).await.unwrap();
    clock.advance(Duration::from_secs(60));
    let other = process(agent, &store, &clock);
    assert_eq!(other.recover_due().await.unwrap(), 1);
    settle().await;
    assert_eq!(outcome(&other).await, Some(Outcome::Completed));
    let log = other.log(&id(), Scope::local()).await.unwrap();
    let result = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolResult { ok, content, .. } => Some((*ok, content.text())),
        _ => None,
    });
    assert_eq!(result, Some((true, "three".to_owned())));
}

#[tokio::test]
async fn a_conversation_in_which_a_turn_runs_cannot_be_closed() {
    let (store, clock, go) = (FaultyStore::shared(), PausedClock::default(), Arc::new(Notify::new()));
    let door = process(gated(&go), &store, &clock);
    let turn = door.send(&id(), "go", Scope::local()).await.unwrap();
    let closed = soon(door.close(&id(), Scope::local())).await;
    assert!(matches!(closed, Err(SendError::Busy { .. })), "{closed:?}");
    go.notify_one();
    soon(turn.wait()).await.unwrap();
    soon(door.close(&id(), Scope::local())).await.unwrap();
}
