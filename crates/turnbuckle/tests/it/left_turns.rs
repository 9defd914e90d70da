//! Whose turn it is: an open turn is carried on by its own agent, with everything that guards it, or it is left.

use std::sync::{Arc, Mutex};

use serde_json::json;
use turnbuckle::agent::MissingPart;
use turnbuckle::conversation::{
    Cancelled, Conversations, LeftReason, OnChangedAgent, ResolveError, SendError, TurnError, WhileBusy,
};
use turnbuckle::event::{Cause, EventKind, Outcome, Resolved};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::{Answer, Batch, InboxItem, LEASE, Lease, ScratchWrite, Store};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{SubAgent, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, Reply, Scope, Turn, TurnStatus};

use crate::faulty_store::FaultyStore;
use crate::kit::{Seen, Spy, assert_valid};

/// Calls that the refund tool has paid.
type Paid = Arc<Mutex<Vec<String>>>;

fn refund(paid: &Paid) -> turnbuckle::tools::FunctionTool {
    let paid = paid.clone();
    let schema = json!({"type": "object"});
    let tool = function_with_schema("refund", "Pays.", schema, Effect::Idempotent, move |turn, _| {
        let paid = paid.clone();
        async move {
            paid.lock().unwrap().push(turn.call().unwrap().to_string());
            Ok("paid")
        }
    });
    tool.requires_approval()
}

fn script() -> Script {
    Script::of([ScriptReply::calls("c1", "refund", json!({})), ScriptReply::says("a forbidden word")])
}

/// Rejects every reply that says something forbidden.
struct Guard;

impl Hook for Guard {
    async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, turnbuckle::BoxError> {
        match reply.content.text().contains("forbidden") {
            true => Ok(AfterModel::Reject("forbidden".into())),
            false => Ok(AfterModel::Continue),
        }
    }
}

fn support(paid: &Paid) -> AgentBuilder {
    Agent::builder("support", script()).tool(refund(paid)).hook(Guard)
}

/// A process with this agent on the store. Its clock is past the lease of every process before it.
fn process(agent: AgentBuilder, store: &FaultyStore, clock: &PausedClock) -> Rig {
    let clock = clock.clone();
    let mut rig = Rig::with(agent.build().unwrap(), store.clone(), |builder| {
        builder.ids(Arc::new(SystemIds::default())).clock(Arc::new(clock.clone()))
    });
    clock.advance(LEASE);
    rig.clock = clock;
    rig
}

/// The turn of `support` waits for an approval, and its process is gone.
async fn waiting(paid: &Paid) -> (FaultyStore, PausedClock, Rig) {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let mut rig = process(support(paid), &store, &clock);
    assert!(matches!(rig.run("pay me").await.unwrap(), TurnStatus::Waiting(_)));
    (store, clock, rig)
}

/// The same, and the answer is recorded: nothing is missing but an agent that carries the turn on.
async fn answered(paid: &Paid) -> (FaultyStore, PausedClock, Rig) {
    let (store, clock, rig) = waiting(paid).await;
    let desk = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone())).build();
    let recorded = desk.answer(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    assert_eq!((&*recorded.agent, recorded.is_stored_for_owner), ("support", false));
    (store, clock, rig)
}

fn resolutions(log: &[Arc<turnbuckle::event::Event>]) -> Vec<Resolved> {
    let resolved = |kind: &EventKind| match kind {
        EventKind::Resolution { decision, .. } => Some(*decision),
        _ => None,
    };
    log.iter().filter_map(|event| resolved(&event.kind)).collect()
}

async fn outcome(rig: &Rig) -> Option<Arc<turnbuckle::event::TurnEnded>> {
    let log = rig.log().await.unwrap();
    assert_valid(&log);
    log.iter().rev().find_map(|event| match &event.kind {
        EventKind::TurnEnded(ended) => Some(ended.clone()),
        _ => None,
    })
}

#[tokio::test]
async fn an_agent_of_another_name_never_carries_a_turn_on() {
    let paid = Paid::default();
    let (store, clock, _gone) = answered(&paid).await;
    let other = Agent::builder("chatty", Script::says(["a forbidden word"]));
    let mut rig = process(other, &store, &clock);
    let resumed = rig.conversations.resume(&rig.id, Scope::local()).await;
    let Err(SendError::Left { left, .. }) = resumed else { panic!("{resumed:?}") };
    assert_eq!((&*left.agent, &left.reason), ("support", &LeftReason::OtherAgent));
    let insisted = rig.conversations.accept_changes(&rig.id, Scope::local()).await;
    assert!(matches!(insisted, Err(SendError::Left { .. })), "nobody can insist: {insisted:?}");
    assert!(matches!(rig.send("hello").await, Err(SendError::Left { .. })));
    rig.conversations.recover_due().await.unwrap();
    rig.settle().await;
    assert_eq!(outcome(&rig).await, None, "maintenance leaves it");
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn its_own_agent_carries_a_turn_on_with_the_guards_it_began_with_asked_or_unasked() {
    for asked in [true, false] {
        let paid = Paid::default();
        let (store, clock, _gone) = answered(&paid).await;
        let mut rig = process(support(&paid), &store, &clock);
        match asked {
            true => {
                let turn = rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().unwrap();
                rig.follow(turn).await.unwrap();
            }
            false => {
                rig.conversations.recover_due().await.unwrap();
                rig.settle().await;
            }
        }
        assert_eq!(outcome(&rig).await.unwrap().outcome, Outcome::Rejected, "the guard judged the reply");
        assert_eq!(*paid.lock().unwrap(), ["c1"]);
    }
}

#[tokio::test]
async fn an_agent_that_lost_a_tool_or_a_blocking_hook_leaves_its_turn_until_a_person_insists() {
    let paid = Paid::default();
    let without_tool = Agent::builder("support", script()).hook(Guard);
    let without_guard = Agent::builder("support", script()).tool(refund(&paid));
    let other_use = Agent::builder("support", script()).tool(refund(&paid));
    let other_use = other_use.hook(HookEntry::from(Guard).configured("command", &json!({})));
    let hook = |name: &str| MissingPart::Hook { name: name.into(), used: "code".into() };
    let cases = [
        (without_tool, MissingPart::Tool("refund".into())),
        (without_guard, hook("guard")),
        (other_use, hook("guard")),
    ];
    for (agent, lacks) in cases {
        let (store, clock, _gone) = answered(&paid).await;
        let mut rig = process(agent, &store, &clock);
        let left = rig.conversations.left_turn(&rig.id, Scope::local()).await.unwrap().unwrap();
        assert_eq!(left.reason, LeftReason::Changed { missing: vec![lacks] });
        rig.conversations.recover_due().await.unwrap();
        rig.settle().await;
        assert_eq!(outcome(&rig).await, None);
        let resumed = rig.conversations.resume(&rig.id, Scope::local()).await;
        assert!(matches!(resumed, Err(SendError::Left { .. })), "{resumed:?}");

        rig.conversations.accept_changes(&rig.id, Scope::local()).await.unwrap().unwrap();
        let turn = rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().unwrap();
        rig.follow(turn).await.unwrap();
        let ended = outcome(&rig).await.unwrap();
        let told = ended.warnings().iter().find(|warning| warning.cause == Some(Cause::AgentChanged)).unwrap();
        assert!(told.text.contains("carried on without") && told.text.contains("user local insisted"), "{}", told.text);
    }
}

#[tokio::test]
async fn a_program_can_decide_by_itself_about_agents_that_changed() {
    let paid = Paid::default();
    let (store, clock, _gone) = answered(&paid).await;
    let agent = Agent::builder("support", script()).tool(refund(&paid)).build().unwrap();
    let mut rig = Rig::with(agent, store.clone(), |builder| {
        builder.clock(Arc::new(clock.clone())).on_changed_agent(|left| match left.agent.starts_with("supp") {
            true => OnChangedAgent::CarryOn,
            false => OnChangedAgent::Leave,
        })
    });
    clock.advance(LEASE);
    rig.conversations.recover_due().await.unwrap();
    rig.settle().await;
    assert_eq!(outcome(&rig).await.unwrap().outcome, Outcome::Completed);
}

#[tokio::test]
async fn what_changed_otherwise_is_told_and_does_not_leave_the_turn() {
    let paid = Paid::default();
    let (store, clock, _gone) = answered(&paid).await;
    let more = support(&paid).system("another prompt").hook(Spy::new("spy", &Seen::default()));
    let mut rig = process(more, &store, &clock);
    let turn = rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().unwrap();
    rig.follow(turn).await.unwrap();
    let ended = outcome(&rig).await.unwrap();
    assert!(ended.warnings()[0].text.contains("hook spy was added"), "{:?}", ended.warnings());
}

#[tokio::test]
async fn answering_needs_no_agent_and_resolving_with_another_agent_only_records() {
    let paid = Paid::default();
    let (store, clock, _gone) = waiting(&paid).await;
    let mut other = process(Agent::builder("approver", Script::says(["never"])), &store, &clock);
    let handle = other.conversations.resolve(&other.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    let handle = handle.unwrap();
    assert_eq!(handle.left().map(|left| &*left.agent), Some("support"));
    assert!(matches!(handle.wait().await, Err(TurnError::Left(_))));
    assert_eq!(resolutions(&other.log().await.unwrap()), [Resolved::Approved]);
    let again = other.conversations.answer(&other.id, &"c1".into(), Answer::Deny(None), None, Scope::local()).await;
    assert!(matches!(again, Err(ResolveError::Stale { .. })), "{again:?}");
    assert!(matches!(other.send("hi").await, Err(SendError::Left { .. })));

    let mut own = process(support(&paid), &store, &clock);
    let turn = own.conversations.resume(&own.id, Scope::local()).await.unwrap().unwrap();
    own.follow(turn).await.unwrap();
    assert_eq!(*paid.lock().unwrap(), ["c1"], "the approval was used by the agent that asked");
}

#[tokio::test]
async fn resolving_with_an_agent_that_lacks_the_tool_is_refused_before_anything_is_written() {
    let paid = Paid::default();
    let (store, clock, _gone) = waiting(&paid).await;
    let rig = process(Agent::builder("support", script()).hook(Guard), &store, &clock);
    let before = rig.log().await.unwrap().len();
    let refused = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await;
    assert!(matches!(refused, Err(ResolveError::Changed { .. })), "{refused:?}");
    assert_eq!(rig.log().await.unwrap().len(), before);
    rig.conversations.answer(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    assert_eq!(resolutions(&rig.log().await.unwrap()), [Resolved::Approved]);
}

#[tokio::test]
async fn an_answer_of_the_same_agent_that_is_only_recorded_is_taken_up_by_maintenance() {
    let paid = Paid::default();
    let (_, _, mut rig) = waiting(&paid).await;
    rig.conversations.answer(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    rig.settle().await;
    assert!(paid.lock().unwrap().is_empty(), "it is only recorded");
    rig.conversations.recover_due().await.unwrap();
    rig.settle().await;
    assert_eq!(*paid.lock().unwrap(), ["c1"]);
}

#[tokio::test]
async fn a_question_expires_whatever_the_configuration_and_the_turn_is_left() {
    let paid = Paid::default();
    let (store, clock, _gone) = waiting(&paid).await;
    let mut other = process(Agent::builder("other", Script::says(["never"])), &store, &clock);
    clock.advance(std::time::Duration::from_secs(25 * 3600));
    other.conversations.recover_due().await.unwrap();
    other.settle().await;
    assert_eq!(resolutions(&other.log().await.unwrap()), [Resolved::Expired]);
    assert_eq!(outcome(&other).await, None);
    assert_eq!(other.conversations.recover_due().await.unwrap(), 0, "and is not taken up again and again");
    let mut own = process(support(&paid), &store, &clock);
    let turn = own.conversations.resume(&own.id, Scope::local()).await.unwrap().unwrap();
    assert!(matches!(own.follow(turn).await.unwrap(), TurnStatus::Ended(_)));
    assert!(other.listen().await.is_ok());
}

#[tokio::test]
async fn another_agent_can_cancel_a_turn_and_the_hooks_of_its_own_agent_are_told() {
    let (paid, seen, foreign) = (Paid::default(), Seen::default(), Seen::default());
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let spied = || support(&paid).hook(Spy::new("audit", &seen));
    let mut rig = process(spied(), &store, &clock);
    assert!(matches!(rig.run("pay me").await.unwrap(), TurnStatus::Waiting(_)));
    seen.lock().unwrap().clear();
    let other = Agent::builder("other", Script::says(["never"])).hook(Spy::new("foreign", &foreign));
    let mut other = process(other, &store, &clock);
    let cancelled = other.conversations.cancel(&other.id, Scope::local()).await.unwrap();
    assert!(matches!(cancelled, Cancelled::Local { .. }));
    other.settle().await;
    assert_eq!(outcome(&other).await.unwrap().outcome, Outcome::Cancelled);
    assert_eq!(*foreign.lock().unwrap(), Vec::<String>::new(), "hooks of another agent see nothing of it");
    let mut own = process(spied(), &store, &clock);
    own.conversations.recover_due().await.unwrap();
    own.conversations.drain(std::time::Duration::from_secs(5)).await;
    own.settle().await;
    assert!(seen.lock().unwrap().contains(&"audit on_ended".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn interrupting_the_turn_of_another_agent_cancels_it_and_runs_the_new_message() {
    let paid = Paid::default();
    let (store, clock, _gone) = answered(&paid).await;
    let mut other = process(Agent::builder("other", Script::says(["never", "hello"])), &store, &clock);
    let sent = other.conversations.send_while(&other.id, "hi", Scope::local(), WhileBusy::Interrupt).await.unwrap();
    let TurnStatus::Ended(ended) = other.follow(sent).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.text(), "hello");
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_message_that_was_stored_for_an_agent_is_not_taken_up_by_another() {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let mut other = process(Agent::builder("other", Script::says(["never"])), &store, &clock);
    let now = clock_now(&clock);
    store.open(&other.id, Scope::local().actor(), now).await.unwrap();
    let item = InboxItem::message(&"t_9".into(), "hi".into(), Scope::local().actor().clone(), now);
    store.deliver(&other.id, item.for_agent("support".into())).await.unwrap();
    assert_eq!(other.conversations.recover_due().await.unwrap(), 0);
    assert!(matches!(other.send("me first").await, Err(SendError::Left { .. })));
    let mut own = process(Agent::builder("support", Script::says(["here"])), &store, &clock);
    own.conversations.recover_due().await.unwrap();
    own.settle().await;
    assert_eq!(outcome(&own).await.unwrap().outcome, Outcome::Completed);
}

fn clock_now(clock: &PausedClock) -> turnbuckle::Timestamp {
    turnbuckle::clock::Clock::now(clock)
}

#[tokio::test]
async fn a_turn_is_carried_on_only_in_the_project_that_it_began_in() {
    let paid = Paid::default();
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let in_project = |project: &str| {
        let mut rig = Rig::with(support(&paid).build().unwrap(), store.clone(), |builder| {
            builder.ids(Arc::new(SystemIds::default())).clock(Arc::new(clock.clone())).project(project)
        });
        clock.advance(LEASE);
        rig.clock = clock.clone();
        rig
    };
    let mut first = in_project("/p");
    assert!(matches!(first.run("pay me").await.unwrap(), TurnStatus::Waiting(_)));
    clock.advance(LEASE);
    let desk = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone())).build();
    desk.answer(&first.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    let mut other = in_project("/q");
    other.conversations.recover_due().await.unwrap();
    other.settle().await;
    assert!(paid.lock().unwrap().is_empty(), "what was approved means another file here");
    let left = other.conversations.left_turn(&first.id, Scope::local()).await.unwrap().unwrap();
    assert_eq!(left.reason, LeftReason::OtherProject { project: "/p".into() });
    let mut own = in_project("/p");
    own.conversations.recover_due().await.unwrap();
    own.settle().await;
    assert_eq!(paid.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_program_itself_never_insists() {
    let paid = Paid::default();
    let (store, clock, rig) = answered(&paid).await;
    let changed = process(Agent::builder("support", script()).tool(refund(&paid)), &store, &clock);
    let insisted = changed.conversations.accept_changes(&rig.id, Scope::system()).await;
    assert!(matches!(insisted, Err(SendError::Left { .. })), "{insisted:?}");
    assert!(changed.conversations.accept_changes(&rig.id, Scope::local()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_sub_agent_that_lost_its_guard_leaves_the_turn_of_its_parent() {
    let paid = Paid::default();
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let parent = |guarded: bool| {
        let inner = Agent::builder("clerk", script()).tool(refund(&paid));
        let inner = if guarded { inner.hook(Guard) } else { inner };
        let outer = Script::of([ScriptReply::calls("s1", "clerk", json!({"task": "pay"})), ScriptReply::says("done")]);
        Agent::builder("boss", outer).tool(SubAgent::new(inner.build().unwrap(), "Pays."))
    };
    let mut rig = process(parent(true), &store, &clock);
    assert!(matches!(rig.run("go").await.unwrap(), TurnStatus::Waiting(_)));
    let changed = process(parent(false), &store, &clock);
    let left = changed.conversations.left_turn(&changed.id, Scope::local()).await.unwrap().unwrap();
    assert_eq!(
        left.to_string(),
        "agent boss has changed since the turn began: it lacks hook guard (use = \"code\") of sub-agent clerk"
    );
    let mut stranger = process(Agent::builder("stranger", Script::says(["never"])), &store, &clock);
    stranger.conversations.cancel(&stranger.id, Scope::local()).await.unwrap();
    stranger.settle().await;
    let child = stranger.id.child(&"s1".into());
    let log = store.log(&child, 1, usize::MAX).await.unwrap();
    assert_valid(&log);
    assert!(matches!(&log.last().unwrap().kind, EventKind::TurnEnded(ended) if ended.outcome == Outcome::Cancelled));
}

#[tokio::test]
async fn a_turn_of_an_older_program_goes_by_the_name_of_its_agent_alone() {
    let paid = Paid::default();
    let (store, clock, rig) = answered(&paid).await;
    // An older program recorded the name of the agent, and nothing that it is made of.
    let mut scratch = store.scratch(&rig.id).await.unwrap().unwrap();
    scratch.parts = None;
    let claim = store.claim(&rig.id, &"editor".into(), clock_now(&clock)).await.unwrap();
    let shared = Arc::new(scratch);
    let (scratch, lease) = (ScratchWrite::Put(&shared), Lease::Release);
    let batch = Batch { scratch, lease, ..Batch::new(&rig.id, claim.epoch, claim.seq) };
    store.append(batch).await.unwrap();
    let other = process(Agent::builder("other", Script::says(["never"])), &store, &clock);
    assert!(matches!(other.conversations.resume(&rig.id, Scope::local()).await, Err(SendError::Left { .. })));
    let mut own = process(Agent::builder("support", script()).tool(refund(&paid)), &store, &clock);
    own.conversations.resume(&rig.id, Scope::local()).await.unwrap().unwrap().wait().await.unwrap();
    own.settle().await;
    assert_eq!(outcome(&own).await.unwrap().outcome, Outcome::Completed);
    assert_eq!(paid.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_turn_is_left_if_a_tool_no_longer_needs_approval_unless_a_person_insists() {
    let paid = Paid::default();
    let (store, clock, rig) = answered(&paid).await;
    let free = function_with_schema("refund", "Pays.", json!({"type": "object"}), Effect::Idempotent, |_, _| async {
        Ok("paid")
    });
    let agent = Agent::builder("support", script()).tool(free).hook(Guard);
    let mut own = process(agent, &store, &clock);
    let resumed = own.conversations.resume(&rig.id, Scope::local()).await;
    let Err(SendError::Left { left, .. }) = resumed else { panic!("carried on without its gate: {resumed:?}") };
    assert!(left.can_insist() && left.to_string().ends_with("it lacks the approval of tool refund"), "{left}");
    own.conversations.accept_changes(&rig.id, Scope::local()).await.unwrap();
    own.conversations.resume(&rig.id, Scope::local()).await.unwrap().unwrap().wait().await.unwrap();
    own.settle().await;
    let told: Vec<String> =
        outcome(&own).await.unwrap().warnings().iter().map(|warning| warning.text.to_string()).collect();
    assert!(told.iter().any(|text| text.contains("tool refund no longer needs approval")), "{told:?}");
}

#[tokio::test]
async fn nothing_can_be_sent_without_an_agent() {
    let paid = Paid::default();
    let (store, clock, rig) = waiting(&paid).await;
    let desk = Conversations::without_agent(store).clock(Arc::new(clock)).build();
    assert!(matches!(desk.send(&rig.id, "hi", Scope::local()).await, Err(SendError::NoAgent)));
    assert_eq!(desk.snapshot(&rig.id, Scope::local()).await.unwrap().pending.len(), 1);
}
