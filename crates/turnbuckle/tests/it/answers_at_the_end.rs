//! Answers that other processes store while a turn is about to end: what was acknowledged is in the log, and nothing follows from
//! it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use serde_json::json;
use turnbuckle::access::Access;
use turnbuckle::clock::Clock;
use turnbuckle::conversation::{Conversations, WhileBusy};
use turnbuckle::event::{EventKind, Outcome, Resolved};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::Scope;
use turnbuckle::store::{Answer, Batch, InboxFilter, InboxItem, InboxKind, LEASE, Store};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder, BoxError, ToolCall, Turn, TurnStatus};

use crate::access::{Paid, ann, process, refund, roles, support, user};
use crate::approving::rule;
use crate::faulty_store::{Fault, FaultyStore};
use crate::kit::assert_valid;

/// An answer of a manager's, as another process stores it.
fn stored(call: &str, who: &str, answer: Answer) -> InboxItem {
    let kind = InboxKind::Answer { call: call.into(), answer, digest: None, via: None, standing: None };
    let from = user(who, "manager").actor().clone();
    InboxItem { id: format!("l_{call}_{who}").as_str().into(), from, at: PausedClock::default().now(), kind }
}

fn ends_turn(batch: &Batch<'_>) -> bool {
    batch.events.last().is_some_and(|last| matches!(last.kind, EventKind::TurnEnded(_)))
}

/// A store into which another process puts one of these before each try to end a turn.
fn late(items: impl Into<VecDeque<InboxItem>>) -> FaultyStore {
    late_from(&Arc::new(Mutex::new(items.into())))
}

/// The same, for items that are known later.
fn late_from(items: &Arc<Mutex<VecDeque<InboxItem>>>) -> FaultyStore {
    let items = items.clone();
    FaultyStore::with(move |batch| match ends_turn(batch) {
        true => items.lock().unwrap().pop_front().map_or(Fault::Nothing, Fault::Deliver),
        false => Fault::Nothing,
    })
}

/// A turn of ann's that asks something.
async fn asking(agent: AgentBuilder, store: &FaultyStore, access: impl Access) -> Rig {
    let rig = process(agent, store, &PausedClock::default(), access);
    let status = rig.conversations.turn(&rig.id, "pay me", ann()).await.unwrap();
    assert!(matches!(status, TurnStatus::Waiting(_)), "{status:?}");
    rig
}

/// What the log says behind the questions; and nothing is left in the inbox.
async fn told(store: &FaultyStore, rig: &mut Rig) -> Vec<String> {
    rig.settle().await;
    assert_eq!(store.inbox(&rig.id, InboxFilter::All).await.unwrap(), []);
    let log = store.log(&rig.id, 1, usize::MAX).await.unwrap();
    assert_valid(&log);
    let asked = log.iter().rposition(|event| matches!(event.kind, EventKind::Suspension { .. })).unwrap();
    let line = |kind: &EventKind| match kind {
        EventKind::Resolution { call, decision, by, evidence, .. } => {
            let open = if evidence.open { ", open" } else { "" };
            let edit = evidence.arguments.as_ref().map_or_else(String::new, |edited| format!(" with {edited}"));
            let call = if call.as_str().starts_with("pause") { "pause" } else { call.as_str() };
            format!("{call}: {decision:?}{edit} by {by}{open}")
        }
        EventKind::ToolResult { call, content, .. } => format!("{call}: {}", content.text()),
        EventKind::TurnEnded(ended) => format!("{:?}", ended.outcome),
        other => other.name().to_owned(),
    };
    log[asked + 1..].iter().map(|event| line(&event.kind)).collect()
}

async fn cancel(rig: &Rig) {
    rig.conversations.cancel(&rig.id, ann()).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_was_stored_before_a_cancelled_turn_ended_is_in_its_log_and_nothing_runs() {
    for (answer, decision) in [(Answer::Approve, Resolved::Approved), (Answer::Deny(None), Resolved::Denied)] {
        let (paid, store) = (Paid::default(), late([stored("c1", "mia", answer)]));
        let mut rig = asking(support(&paid), &store, roles()).await;
        cancel(&rig).await;
        let answered = format!("c1: {decision:?} by user mia");
        assert_eq!(told(&store, &mut rig).await, [answered.as_str(), "c1: [cancelled]", "Cancelled"]);
        assert!(paid.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn arguments_that_an_approver_changed_before_a_cancelled_turn_ended_are_in_its_log() {
    let edit = Answer::ApproveWith(Arc::new(json!({"euro": 3})));
    let (paid, store) = (Paid::default(), late([stored("c1", "mia", edit)]));
    let mut rig = asking(support(&paid), &store, roles()).await;
    cancel(&rig).await;
    let log = told(&store, &mut rig).await;
    assert_eq!(log, [r#"c1: Approved with {"euro":3} by user mia"#, "c1: [cancelled]", "Cancelled"]);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_process_without_an_agent_that_cancels_records_what_was_stored_before() {
    let (paid, store) = (Paid::default(), late([stored("c1", "mia", Answer::Approve)]));
    let mut rig = asking(support(&paid), &store, roles()).await;
    let clock = rig.clock.clone();
    let desk = Conversations::without_agent(store.clone()).clock(Arc::new(clock)).access(roles());
    let desk = desk.ids(Arc::new(SystemIds::default())).build();
    desk.cancel(&rig.id, ann()).await.unwrap();
    assert_eq!(told(&store, &mut rig).await, ["c1: Approved by user mia", "c1: [cancelled]", "Cancelled"]);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_and_a_cancellation_that_wait_together_are_both_carried_out() {
    // The process that had the conversation is gone, and both were stored for it.
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let mut rig = asking(support(&paid), &store, roles()).await;
    let turn = rig.conversations.log(&rig.id, ann()).await.unwrap()[0].turn.clone();
    store.deliver(&rig.id, stored("c1", "mia", Answer::Approve)).await.unwrap();
    let (from, at) = (ann().actor().clone(), rig.clock.now());
    let order = InboxItem { id: "l_cancel".into(), from, at, kind: InboxKind::Cancel { turn } };
    store.deliver(&rig.id, order).await.unwrap();
    rig.conversations.recover_due().await.unwrap();
    assert_eq!(told(&store, &mut rig).await, ["c1: Approved by user mia", "c1: [cancelled]", "Cancelled"]);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn answers_that_keep_coming_while_the_turn_ends_are_all_recorded() {
    let paid = Paid::default();
    let calls = ScriptReply::calls("c1", "refund", json!({"euro": 5}));
    let calls = calls.and_calls("c2", "refund", json!({"euro": 6})).and_calls("c3", "refund", json!({"euro": 7}));
    let agent = Agent::builder("support", Script::of([calls])).tool(refund(&paid));
    let items = [stored("c2", "mia", Answer::Approve), stored("c1", "max", Answer::Deny(None))];
    let store = late(items);
    let mut rig = asking(agent, &store, roles()).await;
    cancel(&rig).await;
    let log = told(&store, &mut rig).await;
    let answers = ["c2: Approved by user mia", "c1: Denied by user max", "c3: Cancelled by user ann"];
    assert_eq!(log[..3], answers);
    assert_eq!(log[3..], ["c1: [cancelled]", "c2: [cancelled]", "c3: [cancelled]", "Cancelled"]);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn one_of_two_approvals_is_recorded_and_the_question_ends_with_its_turn() {
    let (paid, store) = (Paid::default(), late([stored("c1", "mia", Answer::Approve)]));
    let mut rig = asking(support(&paid), &store, rule(&["manager"], false, 2)).await;
    cancel(&rig).await;
    let log = told(&store, &mut rig).await;
    assert_eq!(log, ["c1: Approved by user mia, open", "c1: Cancelled by user ann", "c1: [cancelled]", "Cancelled"]);
}

#[tokio::test]
async fn an_answer_of_someone_who_may_not_answer_does_not_keep_the_turn_from_ending() {
    let mut forged = stored("c1", "bob", Answer::Approve);
    forged.from = Scope::user("bob").actor().clone();
    let (paid, store) = (Paid::default(), late([forged, stored("c1", "mia", Answer::Deny(None))]));
    let mut rig = asking(support(&paid), &store, rule(&["manager"], false, 2)).await;
    cancel(&rig).await;
    // Mia's comes while the end is written for the second time.
    assert_eq!(told(&store, &mut rig).await, ["c1: Denied by user mia", "c1: [cancelled]", "Cancelled"]);

    let mut forged = stored("c1", "bob", Answer::Approve);
    forged.from = Scope::user("bob").actor().clone();
    let store = late([forged]);
    let mut rig = asking(support(&paid), &store, roles()).await;
    cancel(&rig).await;
    assert_eq!(told(&store, &mut rig).await, ["c1: Cancelled by user ann", "c1: [cancelled]", "Cancelled"]);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_turn_that_is_interrupted_by_a_message_records_what_was_stored_and_the_next_one_runs() {
    let (paid, store) = (Paid::default(), late([stored("c1", "mia", Answer::Approve)]));
    let mut rig = asking(support(&paid), &store, roles()).await;
    let next = rig.conversations.send_while(&rig.id, "stop that", ann(), WhileBusy::Interrupt).await.unwrap();
    assert!(matches!(next.wait().await.unwrap(), TurnStatus::Ended(_)));
    let log = told(&store, &mut rig).await;
    assert_eq!(log[..3], ["c1: Approved by user mia", "c1: [cancelled]", "Cancelled"]);
    assert_eq!(log.last().unwrap(), "Completed");
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_turn_that_a_hook_halts_records_what_was_stored_before() {
    // A hook ends the turn while another call of it waits for an answer.
    let paid = Paid::default();
    struct Halts;
    impl Hook for Halts {
        async fn after_tool(&self, _: &Turn, _: &ToolCall, _: &Output) -> Result<AfterTool, BoxError> {
            Ok(AfterTool::Halt("enough".into()))
        }
    }
    let calls = ScriptReply::calls("c1", "refund", json!({"euro": 5})).and_calls("e1", "echo", json!({}));
    let object = json!({"type": "object"});
    let echo = function_with_schema("echo", "Says something.", object, Effect::Pure, |_, _| async { Ok("something") });
    let agent = Agent::builder("support", Script::of([calls])).tool(refund(&paid)).tool(echo).hook(Halts);
    let store = late([stored("c1", "mia", Answer::Approve)]);
    let mut rig = process(agent, &store, &PausedClock::default(), roles());
    let status = rig.conversations.turn(&rig.id, "pay me", ann()).await.unwrap();
    let TurnStatus::Ended(ended) = status else { panic!("{status:?}") };
    assert_eq!(ended.outcome, Outcome::Halted);
    let log = told(&store, &mut rig).await;
    assert_eq!(log[log.len() - 3..], ["c1: Approved by user mia", "c1: [not run: turn halted]", "Halted"]);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn of_several_pauses_every_stored_denial_is_recorded_and_feeds_nothing_back() {
    let pause = |name: &'static str| stop(name, |_| async { Ok(OnStop::Pause("look".into())) });
    let agent = || Agent::builder("support", Script::says(["one", "two"])).hook(pause("lint")).hook(pause("tests"));
    let items: Arc<Mutex<VecDeque<InboxItem>>> = Arc::default();
    let store = late_from(&items);
    let mut rig = process(agent(), &store, &PausedClock::default(), roles());
    let TurnStatus::Waiting(pending) = rig.conversations.turn(&rig.id, "go", ann()).await.unwrap() else { panic!() };
    for (asked, who) in pending.iter().zip(["mia", "max"]) {
        items.lock().unwrap().push_back(stored(asked.call.as_str(), who, Answer::Deny(None)));
    }
    cancel(&rig).await;
    let log = told(&store, &mut rig).await;
    assert_eq!(log, ["pause: Denied by user mia", "pause: Denied by user max", "Cancelled"]);
}

#[tokio::test]
async fn a_reply_that_was_denied_before_its_turn_was_cancelled_is_not_in_the_log() {
    let ask = guard("ask", |_, _| async { Ok(AfterModel::Ask("fine?".into())) });
    let items: Arc<Mutex<VecDeque<InboxItem>>> = Arc::default();
    let store = late_from(&items);
    let agent = Agent::builder("support", Script::says(["the secret"])).hook(ask);
    let mut rig = process(agent, &store, &PausedClock::default(), roles());
    let TurnStatus::Waiting(pending) = rig.conversations.turn(&rig.id, "go", ann()).await.unwrap() else { panic!() };
    items.lock().unwrap().push_back(stored(pending[0].call.as_str(), "mia", Answer::Deny(None)));
    cancel(&rig).await;
    let log = told(&store, &mut rig).await;
    assert!(log[0].contains("Denied by user mia") && log[1..] == ["Cancelled"], "{log:?}");
}

#[tokio::test]
async fn a_crash_between_the_answer_and_the_end_loses_neither_the_answer_nor_the_cancellation() {
    let (paid, crashes) = (Paid::default(), Arc::new(AtomicBool::new(true)));
    let (delivered, crashing) = (AtomicBool::new(false), crashes.clone());
    let store = FaultyStore::with(move |batch| match (ends_turn(batch), delivered.load(Relaxed)) {
        (true, false) => {
            delivered.store(true, Relaxed);
            Fault::Deliver(stored("c1", "mia", Answer::Approve))
        }
        (true, true) if crashing.load(Relaxed) => Fault::Fail,
        _ => Fault::Nothing,
    });
    let mut rig = asking(support(&paid), &store, roles()).await;
    cancel(&rig).await;
    rig.settle().await;
    let log = store.log(&rig.id, 1, usize::MAX).await.unwrap();
    assert!(matches!(log.last().unwrap().kind, EventKind::Resolution { .. }), "{log:?}");
    crashes.store(false, Relaxed);
    rig.clock.advance(LEASE);
    let mut second = process(support(&paid), &store, &rig.clock, roles());
    second.conversations.recover_due().await.unwrap();
    assert_eq!(told(&store, &mut second).await, ["c1: Approved by user mia", "c1: [cancelled]", "Cancelled"]);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn warnings_and_records_of_a_turn_outlast_an_end_that_is_written_again() {
    let paid = Paid::default();
    let broken = stop("broken", |_| async { Err::<OnStop, BoxError>("no compiler".into()) });
    let refuse = stop("strict", |turn: OnStopContext| async move {
        Ok(if turn.stop_active() { OnStop::Accept } else { OnStop::Refuse("pay first".into()) })
    });
    let script = Script::of([ScriptReply::says("no"), ScriptReply::calls("c1", "refund", json!({"euro": 5}))]);
    let agent = Agent::builder("support", script).tool(refund(&paid)).hook(broken).hook(refuse);
    let store = late([stored("c1", "mia", Answer::Approve), stored("c1", "max", Answer::Approve)]);
    let mut rig = asking(agent, &store, rule(&["manager"], false, 3)).await;
    let turn = rig.conversations.log(&rig.id, ann()).await.unwrap()[0].turn.clone();
    let before = store.records(&rig.id, &turn).await.unwrap().len();
    cancel(&rig).await;
    told(&store, &mut rig).await;
    let log = store.log(&rig.id, 1, usize::MAX).await.unwrap();
    let EventKind::TurnEnded(ended) = &log.last().unwrap().kind else { panic!("{log:?}") };
    assert_eq!(ended.warnings().len(), 1, "{ended:?}");
    assert_eq!(store.records(&rig.id, &turn).await.unwrap().len(), before);
}

#[tokio::test]
async fn a_pause_that_was_denied_when_the_turn_was_about_to_be_stopped_is_not_approved_by_another_one_after_a_crash() {
    let pause = |name: &'static str| stop(name, |_| async { Ok(OnStop::Pause("look".into())) });
    let agent = || Agent::builder("support", Script::says(["one", "two"])).hook(pause("lint")).hook(pause("tests"));
    let (items, crashes) = (Arc::new(Mutex::new(VecDeque::new())), Arc::new(AtomicBool::new(true)));
    let (late, crashing) = (items.clone(), crashes.clone());
    let store = FaultyStore::with(move |batch| match ends_turn(batch).then(|| late.lock().unwrap().pop_front()) {
        Some(Some(item)) => Fault::Deliver(item),
        Some(None) if crashing.load(Relaxed) => Fault::Fail,
        _ => Fault::Nothing,
    });
    let first = process(agent(), &store, &PausedClock::default(), roles());
    let TurnStatus::Waiting(asked) = first.conversations.turn(&first.id, "go", ann()).await.unwrap() else { panic!() };
    let answers = [("mia", Answer::Deny(None)), ("max", Answer::Approve)];
    let answers = asked.iter().zip(answers).map(|(asked, (who, answer))| stored(asked.call.as_str(), who, answer));
    items.lock().unwrap().extend(answers);
    // Nothing of the interruption but its message is stored.
    let next = first.conversations.send_while(&first.id, "stop that", ann(), WhileBusy::Interrupt).await.unwrap();
    assert!(next.wait().await.is_err(), "the store fails");
    crashes.store(false, Relaxed);
    first.clock.advance(LEASE);
    let second = process(agent(), &store, &first.clock, roles());
    let handle = second.conversations.resume(&second.id, ann()).await.unwrap().unwrap();
    let TurnStatus::Waiting(again) = handle.wait().await.unwrap() else { panic!("a hook's pause was denied") };
    assert_eq!(again.len(), 2, "{again:?}");
    let mut last = None;
    for asked in &again {
        let by = user("mia", "manager");
        let resolved = second.conversations.resolve(&second.id, &asked.call, Answer::Approve, None, by).await;
        last = Some(resolved.unwrap().wait().await.unwrap());
    }
    let Some(TurnStatus::Ended(ended)) = last else { panic!("{last:?}") };
    assert_eq!(ended.outcome, Outcome::Completed);
}
