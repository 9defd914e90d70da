//! What happens at once: answers, cancellations and messages that meet a driver between two things.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use turnbuckle::conversation::{ResolveError, SendError, TurnError};
use turnbuckle::event::{EventKind, Outcome};
use turnbuckle::feed::FeedEvent;
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::*;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::{Agent, AgentBuilder, BoxError, Conversations, Message, Scope, TurnReport, TurnStatus, WhileBusy};

use crate::faulty_store::{Fault, FaultyStore};
use crate::kit::{add, adder};

type Id = turnbuckle::ConversationId;

fn asker() -> AgentBuilder {
    let call = ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2}));
    adder(Script::of([call, ScriptReply::says("4"), ScriptReply::says("5")]))
        .hook(gate("ask", |_, _| async { Ok(BeforeTool::Ask("sure?".into())) }))
}

async fn waiting(conversations: &Conversations, id: &Id) {
    let rest = conversations.send(id, "hi", Scope::local()).await.unwrap().wait().await.unwrap();
    assert!(matches!(rest, TurnStatus::Waiting(_)));
}

async fn last(conversations: &Conversations, id: &Id) -> EventKind {
    conversations.log(id, Scope::local()).await.unwrap().last().unwrap().kind.clone()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hiccups_over_an_answer_does_not_lock_the_conversation() {
    let fails = AtomicBool::new(true);
    let store = FaultyStore::with(move |batch| {
        let resolves = batch.events.iter().any(|event| matches!(event.kind, EventKind::Resolution { .. }));
        if resolves && fails.swap(false, Ordering::SeqCst) { Fault::Fail } else { Fault::Nothing }
    });
    let conversations = Conversations::builder(asker().build().unwrap(), store).build();
    let id: Id = "c_1".into();
    waiting(&conversations, &id).await;
    let call = "c1".into();
    let resolve = || conversations.resolve(&id, &call, Answer::Approve, None, Scope::local());
    assert!(matches!(resolve().await, Err(ResolveError::Store(_))));
    tokio::time::sleep(LEASE).await;
    assert!(matches!(resolve().await.unwrap().wait().await.unwrap(), TurnStatus::Ended(_)));
}

fn slow() -> Agent {
    let wait = pre("slow", |turn: BeforeAgentContext| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        turn.proceed()
    });
    Agent::builder("a", Script::says(["one", "two"])).hook(wait).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn of_two_messages_sent_at_once_one_is_refused() {
    let conversations = Conversations::in_memory(slow());
    let id: Id = "c_1".into();
    let send = || conversations.send(&id, "hello", Scope::local());
    let (first, second) = tokio::join!(send(), send());
    assert!(first.is_ok() && matches!(second, Err(SendError::Busy { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_interruption_at_once_cancels_the_turn_that_is_about_to_begin() {
    let conversations = Conversations::in_memory(slow());
    let id: Id = "c_1".into();
    let (first, second) = tokio::join!(
        conversations.send(&id, "first", Scope::local()),
        conversations.send_while(&id, "second", Scope::local(), WhileBusy::Interrupt)
    );
    let TurnStatus::Ended(first) = first.unwrap().wait().await.unwrap() else { panic!("it waits") };
    assert_eq!(first.outcome, Outcome::Cancelled);
    assert!(matches!(second.unwrap().wait().await.unwrap(), TurnStatus::Ended(ended) if ended.text() == "one"));
}

/// Sees every event, taking its time.
struct SlowEye(Arc<Mutex<Vec<String>>>, u64);
impl Hook for SlowEye {
    async fn on_event(&self, told: &FeedEvent) -> Result<(), BoxError> {
        self.0.lock().unwrap().push(told.cursor.to_string());
        tokio::time::sleep(Duration::from_millis(self.1)).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_has_just_begun_to_wait_can_be_cancelled() {
    let conversations = Conversations::in_memory(asker().hook(SlowEye(Arc::default(), 20)).build().unwrap());
    let id: Id = "c_1".into();
    waiting(&conversations, &id).await;
    conversations.cancel(&id, Scope::local()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(last(&conversations, &id).await, EventKind::TurnEnded(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_cancellation_is_lost_between_threads() {
    for number in 0..500 {
        let conversations = Conversations::in_memory(asker().build().unwrap());
        let id: Id = format!("c_{number}").into();
        waiting(&conversations, &id).await;
        conversations.cancel(&id, Scope::local()).await.unwrap();
        // Refused while the cancelled turn is being closed, taken as soon as it is: a lost cancellation would never end.
        let taken = async {
            while conversations.send(&id, "next", Scope::local()).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), taken).await.expect("the cancellation was lost");
    }
}

#[tokio::test(start_paused = true)]
async fn observers_see_every_event_once_also_beside_background_work() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let aside = background("aside", |_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(())
    });
    let agent = Agent::builder("a", Script::says(["one", "two"])).hook(SlowEye(seen.clone(), 0)).hook(aside);
    let conversations = Conversations::in_memory(agent.build().unwrap());
    let id: Id = "c_1".into();
    for _ in 0..2 {
        conversations.send(&id, "hi", Scope::local()).await.unwrap().wait().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    conversations.drain(Duration::from_secs(5)).await;
    let mut all = seen.lock().unwrap().clone();
    let deliveries = all.len();
    all.sort();
    all.dedup();
    assert_eq!(deliveries, all.len());
}

#[tokio::test]
async fn an_answer_after_the_time_is_stale() {
    let clock = turnbuckle::testing::PausedClock::default();
    let builder = Conversations::builder(asker().build().unwrap(), MemoryStore::default());
    let conversations = builder.clock(Arc::new(clock.clone())).build();
    let id: Id = "c_1".into();
    waiting(&conversations, &id).await;
    clock.advance(Duration::from_secs(48 * 3600));
    let late = conversations.resolve(&id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    assert!(matches!(late, Err(ResolveError::Stale { .. })));
}

#[tokio::test]
async fn advice_beside_a_pause_is_noted_when_the_pause_is_over() {
    let agent = Agent::builder("a", Script::says(["one", "two"]))
        .hook(stop("coach", |_| async { Ok(OnStop::Advise("mind the gap".into())) }))
        .hook(stop("human", |_| async { Ok(OnStop::Pause("look".into())) }));
    let conversations = Conversations::in_memory(agent.build().unwrap());
    let id: Id = "c_1".into();
    let rest = conversations.send(&id, "hi", Scope::local()).await.unwrap().wait().await.unwrap();
    let TurnStatus::Waiting(pending) = rest else { panic!("it does not wait") };
    let answer = conversations.resolve(&id, &pending[0].call, Answer::Approve, None, Scope::local()).await;
    answer.unwrap().wait().await.unwrap();
    let log = conversations.log(&id, Scope::local()).await.unwrap();
    assert!(log.iter().any(|event| matches!(event.kind, EventKind::Injection { .. })), "the advice is lost");
}

fn editor() -> Agent {
    let ask = guard("editor", |_, _| async { Ok(AfterModel::Ask("publish?".into())) });
    Agent::builder("a", Script::of([ScriptReply::says("a draft").costing(10, 5)])).hook(ask).build().unwrap()
}

#[tokio::test]
async fn what_was_spent_before_a_wait_still_counts_after_it() {
    let conversations = Conversations::in_memory(editor());
    let id: Id = "c_1".into();
    let rest = conversations.send(&id, "hi", Scope::local()).await.unwrap().wait().await.unwrap();
    let TurnStatus::Waiting(pending) = rest else { panic!("it does not wait") };
    let answer = conversations.resolve(&id, &pending[0].call, Answer::Approve, None, Scope::local()).await.unwrap();
    assert!(!answer.turn().as_str().is_empty());
    let TurnStatus::Ended(ended) = answer.wait().await.unwrap() else { panic!("it waits again") };
    assert_eq!((ended.usage.input, ended.model_calls), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_waited_for_a_person_is_logged_as_cancelled_when_the_turn_is() {
    let conversations = Conversations::in_memory(editor());
    let id: Id = "c_1".into();
    waiting(&conversations, &id).await;
    conversations.cancel(&id, Scope::local()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let log = serde_json::to_string(&conversations.log(&id, Scope::local()).await.unwrap()).unwrap();
    assert!(log.contains(r#""stop_reason":"cancelled""#) && log.contains("a draft"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_cut_off_leaves_a_record() {
    let slow = stop("slow", |_| async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        Ok(OnStop::Accept)
    });
    let conversations = Conversations::in_memory(Agent::builder("a", Script::says(["x"])).hook(slow).build().unwrap());
    let id: Id = "c_1".into();
    let handle = conversations.send(&id, "hi", Scope::local()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    conversations.cancel(&id, Scope::local()).await.unwrap();
    let turn = handle.turn().clone();
    handle.wait().await.unwrap();
    let records = conversations.records(&id, &turn, Scope::local()).await.unwrap();
    assert_eq!(records.iter().map(|record| record.decision.name()).collect::<Vec<_>>(), ["cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_sent_while_on_ended_hooks_run_is_taken() {
    struct Slow;
    impl Hook for Slow {
        async fn on_ended(&self, _: &TurnReport) -> Result<(), BoxError> {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Ok(())
        }
    }
    let agent = Agent::builder("a", Script::says(["one", "two"])).hook(Slow).build().unwrap();
    let conversations = Conversations::in_memory(agent);
    let id: Id = "c_1".into();
    let _first = conversations.send(&id, "hi", Scope::local()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let second = conversations.send(&id, "hi", Scope::local()).await.unwrap();
    assert!(matches!(second.wait().await.unwrap(), TurnStatus::Ended(ended) if ended.text() == "two"));
}

#[tokio::test]
async fn a_durable_greeting_of_a_revived_turn_joins_the_log_and_the_context() {
    struct Greeter;
    impl Hook for Greeter {
        async fn on_conversation(&self, meeting: &mut OnConversationContext) -> Result<(), BoxError> {
            if meeting.lifecycle() == Lifecycle::Revived {
                meeting.inject("welcome back");
            }
            Ok(())
        }
    }
    let store = MemoryStore::default();
    let id: Id = "c_1".into();
    let model =
        Recorder::of(Script::of([ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2})), ScriptReply::says("4")]));
    let open = || {
        let asks = gate("ask", |_, _| async { Ok(BeforeTool::Ask("sure?".into())) });
        let agent = Agent::builder("adder", model.clone()).tool(add()).hook(asks).hook(Greeter.durable());
        Conversations::builder(agent.build().unwrap(), store.clone()).build()
    };
    waiting(&open(), &id).await;
    let second = open();
    let answer = second.resolve(&id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    answer.wait().await.unwrap();
    let log = second.log(&id, Scope::local()).await.unwrap();
    assert!(log.iter().any(|event| matches!(event.kind, EventKind::Injection { .. })));
    // A provider refuses a call whose result does not stand right behind it.
    let said = |message: &Message| match message {
        Message::Assistant { calls, .. } => format!("{} call", calls.len()),
        other => other.content().text(),
    };
    let sent: Vec<String> = model.requests().last().unwrap().messages.iter().map(said).collect();
    assert_eq!(sent, ["hi", "1 call", "4", "welcome back"]);
}

#[tokio::test]
async fn a_waiting_conversation_cannot_be_closed() {
    let conversations = Conversations::in_memory(asker().build().unwrap());
    let id: Id = "c_1".into();
    waiting(&conversations, &id).await;
    assert!(matches!(conversations.close(&id, Scope::local()).await, Err(SendError::Busy { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_result_that_comes_with_the_cancellation_is_too_late() {
    let schema = json!({"type": "object"});
    let tool = turnbuckle::tools::function_with_schema("work", "Works.", schema, Effect::Pure, |turn, _| async move {
        turn.cancellation().cancelled().await;
        Ok("late")
    });
    let script = Script::of([ScriptReply::calls("c1", "work", json!({}))]);
    let conversations = Conversations::in_memory(Agent::builder("a", script).tool(tool).build().unwrap());
    let id: Id = "c_1".into();
    let handle = conversations.send(&id, "hi", Scope::local()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    conversations.cancel(&id, Scope::local()).await.unwrap();
    handle.wait().await.unwrap();
    let log = serde_json::to_string(&conversations.log(&id, Scope::local()).await.unwrap()).unwrap();
    assert!(log.contains("[cancelled]") && !log.contains("late"), "{log}");
}

#[tokio::test]
async fn a_turn_driven_by_its_caller_goes_on_when_the_caller_goes() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = gate.clone();
    let wait = pre("wait", move |turn: BeforeAgentContext| {
        let opened = opened.clone();
        async move {
            opened.notified().await;
            turn.proceed()
        }
    });
    let agent = Agent::builder("a", Script::says(["one"])).hook(wait).build().unwrap();
    let conversations = Conversations::in_memory(agent);
    let id: Id = "c_1".into();
    {
        let turn = conversations.turn(&id, "hi", Scope::local());
        tokio::select! { biased; _ = turn => panic!("it did not wait"), () = tokio::task::yield_now() => {} }
    }
    gate.notify_one();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(
        matches!(last(&conversations, &id).await, EventKind::TurnEnded(ended) if ended.outcome == Outcome::Completed)
    );
}

/// An agent whose turns wait for `go`.
fn held_back(go: &Arc<tokio::sync::Notify>) -> Agent {
    let go = go.clone();
    let wait = pre("wait", move |turn: BeforeAgentContext| {
        let go = go.clone();
        async move {
            go.notified().await;
            turn.proceed()
        }
    });
    Agent::builder("a", Script::says(["one", "two"])).hook(wait).build().unwrap()
}

async fn yields(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_interruption_is_carried_out_whose_sender_goes_while_it_is_stored() {
    let go = Arc::new(tokio::sync::Notify::new());
    let mut rig = Rig::on(held_back(&go), FaultyStore::slow_deliver());
    let first = rig.send("first").await.unwrap();
    rig.settle().await;
    let interrupt = rig.conversations.send_while(&rig.id, "second", Scope::local(), WhileBusy::Interrupt);
    tokio::select! {
        biased;
        _ = interrupt => panic!("it is stored too soon"),
        () = yields(10) => {}
    }
    yields(100).await;
    go.notify_one();
    let TurnStatus::Ended(first) = rig.follow(first).await.unwrap() else { panic!("it waits") };
    assert_eq!(first.outcome, Outcome::Cancelled);
    let log = rig.log().await.unwrap();
    crate::kit::assert_valid(&log);
    assert!(matches!(&log.last().unwrap().kind, EventKind::TurnEnded(ended) if ended.outcome == Outcome::Completed));
}

#[tokio::test]
async fn an_interruption_that_cannot_be_stored_cancels_nothing() {
    let store = FaultyStore::shared();
    let mut rig = Rig::on(asker().build().unwrap(), store.clone());
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    store.refuse_deliveries();
    let interrupt = rig.conversations.send_while(&rig.id, "stop", Scope::local(), WhileBusy::Interrupt).await;
    assert!(matches!(interrupt, Err(SendError::Store(_))), "{interrupt:?}");
    rig.settle().await;
    let answer = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    let TurnStatus::Ended(ended) = rig.follow(answer.unwrap()).await.unwrap() else { panic!("it waits again") };
    assert_eq!(ended.outcome, Outcome::Completed);
}

#[tokio::test]
async fn who_queues_a_message_is_not_told_of_a_failure_that_the_message_outlives() {
    let fails = AtomicBool::new(true);
    let store = FaultyStore::with(move |batch| {
        let ends = batch.events.iter().any(|event| matches!(event.kind, EventKind::TurnEnded { .. }));
        if ends && fails.swap(false, Ordering::SeqCst) { Fault::Fail } else { Fault::Nothing }
    });
    let go = Arc::new(tokio::sync::Notify::new());
    let mut rig = Rig::on(held_back(&go), store.slow_to_deliver());
    let first = rig.send("first").await.unwrap();
    rig.settle().await;
    let queued = rig.conversations.send_while(&rig.id, "second", Scope::local(), WhileBusy::Queue);
    // The first turn fails while the message is being stored, and its lease lapses.
    let meanwhile = async {
        yields(5).await;
        go.notify_one();
        yields(30).await;
        rig.clock.advance(LEASE);
    };
    let (second, ()) = tokio::join!(queued, meanwhile);
    assert!(matches!(first.wait().await, Err(TurnError::Store(_))));
    go.notify_one();
    let TurnStatus::Ended(second) = second.unwrap().wait().await.unwrap() else { panic!("it waits") };
    assert_eq!((second.outcome, second.text()), (Outcome::Completed, "two".to_owned()));
}

#[tokio::test]
async fn a_queue_has_a_bound_and_a_cancellation_still_gets_in() {
    let go = Arc::new(tokio::sync::Notify::new());
    let mut rig = Rig::on(held_back(&go), FaultyStore::shared());
    let first = rig.send("first").await.unwrap();
    rig.settle().await;
    let queue = || rig.conversations.send_while(&rig.id, "more", Scope::local(), WhileBusy::Queue);
    for _ in 0..MAX_INBOX - 1 {
        queue().await.unwrap();
    }
    let refused = loop {
        match queue().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, SendError::Full { .. }), "{refused:?}");
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    let TurnStatus::Ended(first) = rig.follow(first).await.unwrap() else { panic!("it waits") };
    assert_eq!(first.outcome, Outcome::Cancelled);
}
