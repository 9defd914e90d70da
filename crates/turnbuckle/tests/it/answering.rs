//! Who may answer, checked again by whoever carries the turn on; and answers that meet other answers and orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::json;
use turnbuckle::access::{Access, AccessTo, Action, AnswerRule, OwnerOnly};
use turnbuckle::clock::Clock;
use turnbuckle::conversation::{Always, Conversations, ResolveError};
use turnbuckle::event::{Event, EventKind, Outcome, Resolved};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::Author;
use turnbuckle::store::{
    Answer, Batch, ConversationStatus, GivenAnswer, InboxItem, InboxKind, LEASE, Lease, ScratchWrite, Store,
};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{SubAgent, client, function_with_schema, human};
use turnbuckle::{Actor, Agent, AgentBuilder, Scope, TurnStatus};

use crate::access::{Paid, ann, process, refund, roles, support, user, waiting};
use crate::approving::{approve_always, by, clerk, resolve, rule};
use crate::asking::soon;
use crate::evidence::busy;
use crate::faulty_store::FaultyStore;

fn manager(id: &str) -> Scope {
    user(id, "manager")
}

async fn resolutions(rig: &Rig) -> Vec<(Resolved, Author)> {
    let log = rig.conversations.log(&rig.id, ann()).await.unwrap();
    let of = |event: &Arc<Event>| match &event.kind {
        EventKind::Resolution { decision, by, .. } => Some((*decision, by.clone())),
        _ => None,
    };
    log.iter().filter_map(of).collect()
}

#[tokio::test]
async fn who_may_approve_a_tool_says_nothing_about_who_gives_its_result() {
    let script = Script::of([ScriptReply::calls("c1", "refund", json!({})), ScriptReply::says("done")]);
    let tool = client("refund", "Runs in the browser.", json!({"type": "object"})).requires_approval();
    let agent = Agent::builder("support", script).tool(tool);
    let rig = process(agent, &FaultyStore::shared(), &PausedClock::default(), rule(&["manager"], true, 1));
    rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    resolve(&rig, "c1", Answer::Approve, manager("mia")).await.unwrap().wait().await.unwrap();
    let given = resolve(&rig, "c1", Answer::Result(json!("done")), ann()).await;
    assert!(matches!(given.unwrap().wait().await.unwrap(), TurnStatus::Ended(_)), "it is ann's browser");
}

#[tokio::test]
async fn another_process_goes_by_who_may_answer_where_it_was_asked_not_by_rules_of_its_own() {
    let paid = Paid::default();
    let (store, clock, mut rig) = waiting(&paid, OwnerOnly).await;
    clock.advance(LEASE);
    // Bob's own configuration lets managers answer; that of the process that asks does not.
    let desk = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone())).access(roles()).build();
    let approved = desk.answer(&rig.id, &"c1".into(), Answer::Approve, None, manager("bob")).await;
    assert!(matches!(approved, Err(ResolveError::NotFound { .. } | ResolveError::Forbidden { .. })), "{approved:?}");
    resolve(&rig, "c1", Answer::Deny(None), ann()).await.unwrap().wait().await.unwrap();
    rig.settle().await;
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn rules_in_code_are_asked_again_where_the_turn_is_carried_on() {
    let paid = Paid::default();
    let only = |name: &'static str| {
        move |actor: &Actor, _: AccessTo<'_>, _: Action| actor.user_id().is_some_and(|id| **id == *name)
    };
    let (store, clock, rig) = waiting(&paid, only("ann")).await;
    clock.advance(LEASE);
    let desk = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone())).access(only("bob")).build();
    desk.answer(&rig.id, &"c1".into(), Answer::Approve, None, Scope::user("bob")).await.unwrap();
    let mut own = process(support(&paid), &store, &clock, only("ann"));
    own.conversations.resume(&rig.id, ann()).await.unwrap().unwrap().wait().await.unwrap();
    own.settle().await;
    assert!(paid.lock().unwrap().is_empty(), "bob may not answer here");
}

#[tokio::test]
async fn arguments_that_are_no_object_are_no_edit() {
    let paid = Paid::default();
    let (_, _, rig) = waiting(&paid, OwnerOnly).await;
    for arguments in [json!(null), json!([5]), json!("euro")] {
        let edited = resolve(&rig, "c1", Answer::ApproveWith(Arc::new(arguments)), ann()).await;
        assert!(matches!(edited, Err(ResolveError::Unfit { .. })), "{edited:?}");
    }
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_question_is_found_behind_results_that_fill_the_window() {
    let paid = Paid::default();
    let large = function_with_schema("large", "Says much.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        Ok("much ".repeat(40_000))
    });
    let mut calls = ScriptReply::calls("c1", "refund", json!({"euro": 5}));
    for n in 0..4 {
        calls = calls.and_calls(&format!("l{n}"), "large", json!({}));
    }
    let agent = Agent::builder("support", Script::of([calls])).tool(refund(&paid)).tool(large);
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let rig = process(agent, &store, &clock, OwnerOnly);
    assert!(matches!(rig.conversations.turn(&rig.id, "go", ann()).await.unwrap(), TurnStatus::Waiting(_)));
    clock.advance(LEASE);
    let desk = Conversations::without_agent(store).clock(Arc::new(clock.clone())).build();
    desk.answer(&rig.id, &"c1".into(), Answer::Deny(None), None, ann()).await.unwrap();
}

/// An approval of mia's in the inbox.
fn stored_approval(clock: &PausedClock) -> InboxItem {
    let kind =
        InboxKind::Answer { call: "c1".into(), answer: Answer::Approve, digest: None, via: None, standing: None };
    InboxItem { id: "l_1".into(), from: manager("mia").actor().clone(), at: clock.now(), kind }
}

#[tokio::test]
async fn a_denial_ends_a_question_also_behind_an_approval_that_another_process_stored() {
    let both = [(Resolved::Approved, by("mia")), (Resolved::Denied, by("max"))];
    // Nobody works on the turn.
    let paid = Paid::default();
    let (store, clock, rig) = waiting(&paid, rule(&["manager"], false, 2)).await;
    store.deliver(&rig.id, stored_approval(&clock)).await.unwrap();
    let denied = resolve(&rig, "c1", Answer::Deny(None), manager("max")).await;
    assert!(matches!(denied.unwrap().wait().await.unwrap(), TurnStatus::Ended(_)));
    assert_eq!(resolutions(&rig).await, both);
    // A tool of the turn runs.
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let mut rig = process(busy(&paid), &store, &clock, rule(&["manager"], false, 2));
    let _turn = rig.conversations.send(&rig.id, "pay me", ann()).await.unwrap();
    rig.settle().await;
    store.deliver(&rig.id, stored_approval(&clock)).await.unwrap();
    resolve(&rig, "c1", Answer::Deny(None), manager("max")).await.unwrap();
    assert_eq!(resolutions(&rig).await, both);
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_turn_is_carried_on_for_those_who_wait_for_it_whoever_else_only_records_an_answer() {
    let paid = Paid::default();
    let (_, _, rig) = waiting(&paid, roles()).await;
    let (id, call) = (rig.id.clone(), "c1".into());
    let (recorded, resumed) = tokio::join!(
        rig.conversations.answer(&id, &call, Answer::Approve, None, manager("mia")),
        rig.conversations.resume(&id, ann())
    );
    recorded.unwrap();
    let waited = soon(resumed.unwrap().unwrap().wait()).await;
    assert!(matches!(waited.unwrap(), TurnStatus::Ended(_)));
    assert_eq!(paid.lock().unwrap().len(), 1);

    // Of two approvals one is only recorded, and whoever gave the other waits for the turn.
    for resolves_first in [true, false] {
        let paid = Paid::default();
        let (_, _, rig) = waiting(&paid, rule(&["manager"], false, 2)).await;
        let answer = async || rig.conversations.answer(&id, &call, Answer::Approve, None, manager("mia")).await;
        let resolve = async || resolve(&rig, "c1", Answer::Approve, manager("max")).await;
        let (recorded, resolved) = match resolves_first {
            true => {
                let (resolved, recorded) = tokio::join!(resolve(), answer());
                (recorded, resolved)
            }
            false => tokio::join!(answer(), resolve()),
        };
        recorded.unwrap();
        assert!(matches!(soon(resolved.unwrap().wait()).await.unwrap(), TurnStatus::Ended(_)));
        assert_eq!(paid.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_was_stored_for_a_process_that_left_is_recorded_and_no_more() {
    let paid = Paid::default();
    let (store, clock, _) = waiting(&paid, roles()).await;
    let mut rig = process(support(&paid), &store.clone().slow_to_deliver(), &clock, roles());
    let claim = store.claim(&rig.id, &"another".into(), clock.now()).await.unwrap();
    let (conversations, id) = (rig.conversations.clone(), rig.id.clone());
    let answer = async move { conversations.answer(&id, &"c1".into(), Answer::Approve, None, manager("mia")).await };
    let answered = tokio::spawn(answer);
    while store.inbox(&rig.id, turnbuckle::store::InboxFilter::Control).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let batch = Batch::new(&rig.id, claim.epoch, claim.seq);
    store.append(Batch { lease: Lease::Release, ..batch }).await.unwrap();
    assert!(!answered.await.unwrap().unwrap().is_stored_for_owner, "the owner left, and it is in the log");
    rig.settle().await;
    assert_eq!(resolutions(&rig).await, [(Resolved::Approved, by("mia"))]);
    assert!(paid.lock().unwrap().is_empty(), "it was to be recorded only");
    let handle = rig.conversations.resume(&rig.id, ann()).await.unwrap().unwrap();
    assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
    assert_eq!(paid.lock().unwrap().len(), 1);
}

/// Someone with access to the database writes an answer of bob's into the log, who may not answer.
async fn forge(store: &FaultyStore, rig: &Rig, clock: &PausedClock, decision: Resolved, answer: Answer) {
    clock.advance(LEASE);
    let claim = store.claim(&rig.id, &"forger".into(), clock.now()).await.unwrap();
    let log = store.log(&rig.id, 1, usize::MAX).await.unwrap();
    let asked = log.iter().rev().find_map(|event| match &event.kind {
        EventKind::Suspension { call, .. } => Some((call.clone(), event.turn.clone())),
        _ => None,
    });
    let (call, turn) = asked.unwrap();
    let mut scratch = (*claim.scratch.unwrap()).clone();
    scratch.answers.push((call.clone(), answer));
    scratch.answered_by.push((call.clone(), Scope::user("bob").actor().clone()));
    let kind = EventKind::Resolution { call, decision, by: by("bob"), reason: None, evidence: Box::default() };
    let event = Arc::new(Event { seq: claim.seq + 1, turn, at: clock.now(), kind });
    let batch = Batch {
        events: &[event],
        scratch: ScratchWrite::Put(&Arc::new(scratch)),
        status: Some(ConversationStatus::Running),
        lease: Lease::Release,
        ..Batch::new(&rig.id, claim.epoch, claim.seq)
    };
    store.append(batch).await.unwrap();
}

/// How a turn ends whose question is answered by someone who may not, and what its log says.
async fn forged(agent: impl Fn() -> AgentBuilder, decision: Resolved, answer: Answer) -> (Outcome, String) {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let first = process(agent(), &store, &clock, roles());
    assert!(matches!(first.conversations.turn(&first.id, "go", ann()).await.unwrap(), TurnStatus::Waiting(_)));
    forge(&store, &first, &clock, decision, answer).await;
    let second = process(agent(), &store, &clock, roles());
    let handle = second.conversations.resume(&second.id, ann()).await.unwrap().unwrap();
    let TurnStatus::Ended(ended) = handle.wait().await.unwrap() else { panic!("it waits again") };
    let log = second.conversations.log(&second.id, ann()).await.unwrap();
    (ended.outcome, format!("{log:?}"))
}

#[tokio::test]
async fn whoever_carries_a_turn_on_checks_again_who_answered_every_kind_of_question() {
    let asks = || {
        let script =
            Script::of([ScriptReply::calls("h", "ask", json!({"question": "which?"})), ScriptReply::says("done")]);
        Agent::builder("support", script).tool(human("ask", "Asks."))
    };
    let (_, log) = forged(asks, Resolved::Answered, Answer::Result(json!("the left one"))).await;
    assert!(log.contains("[stale]") && !log.contains("the left one"), "a result: {log}");

    let paid = Paid::default();
    let (_, log) = forged(|| support(&paid), Resolved::Denied, Answer::Deny(None)).await;
    assert!(log.contains("[stale]") && !log.contains("[denied by"), "a denial: {log}");

    let reply = || {
        let ask = guard("ask", |_, _| async { Ok(AfterModel::Ask("fine?".into())) });
        Agent::builder("support", Script::says(["the secret"])).hook(ask)
    };
    let (outcome, _) = forged(reply, Resolved::Approved, Answer::Approve).await;
    assert_eq!(outcome, Outcome::Rejected, "a whole reply");

    let pause = || {
        let pause = stop("pause", |_| async { Ok(OnStop::Pause("look".into())) });
        Agent::builder("support", Script::says(["one", "two"])).hook(pause)
    };
    let (outcome, _) = forged(pause, Resolved::Approved, Answer::Approve).await;
    assert_eq!(outcome, Outcome::Halted, "a pause");

    let inside = || {
        let script = Script::of([ScriptReply::calls("s1", "support", json!({"task": "?"})), ScriptReply::says("ok")]);
        Agent::builder("boss", script).tool(SubAgent::new(asks().build().unwrap(), "Asks."))
    };
    let (_, log) = forged(inside, Resolved::Answered, Answer::Result(json!("the left one"))).await;
    assert!(log.contains("[stale]"), "a question of a sub-agent: {log}");
}

#[test]
fn those_who_approved_a_call_have_not_approved_that_it_runs_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let agent = || {
        let count = count.clone();
        let tool = function_with_schema("refund", "Pays.", json!({"type": "object"}), Effect::Ask, move |_, _| {
            count.fetch_add(1, Relaxed);
            std::future::pending::<Result<String, turnbuckle::BoxError>>()
        });
        let script = Script::of([ScriptReply::calls("c1", "refund", json!({})), ScriptReply::says("done")]);
        Agent::builder("support", script).tool(tool.requires_approval())
    };
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dies = runtime();
    dies.block_on(async {
        let mut first = process(agent(), &store, &clock, roles());
        first.conversations.turn(&first.id, "go", ann()).await.unwrap();
        resolve(&first, "c1", Answer::Approve, manager("mia")).await.unwrap();
        first.settle().await;
    });
    drop(dies);
    assert_eq!(count.load(Relaxed), 1);
    runtime().block_on(async {
        clock.advance(LEASE * 2);
        let second = process(agent(), &store, &clock, roles());
        let handle = second.conversations.resume(&second.id, ann()).await.unwrap().unwrap();
        assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Waiting(_)), "may it run again?");
        forge(&store, &second, &clock, Resolved::Approved, Answer::Approve).await;
        let mut third = process(agent(), &store, &clock, roles());
        let _handle = third.conversations.resume(&third.id, ann()).await.unwrap().unwrap();
        third.settle().await;
    });
    assert_eq!(count.load(Relaxed), 1, "mia approved it once");
}

/// Every question needs two managers.
struct TwoManagers;

impl Access for TwoManagers {
    fn may(&self, _: &Actor, _: AccessTo<'_>, _: Action) -> bool {
        true
    }
    fn answer_rule(&self, _: Option<&str>) -> Option<AnswerRule> {
        Some(AnswerRule { roles: vec!["manager".into()], n: 2, ..AnswerRule::default() })
    }
}

#[tokio::test]
async fn a_pause_needs_as_many_approvals_as_the_rule_says() {
    let pause = stop("pause", |_| async { Ok(OnStop::Pause("look".into())) });
    let agent = Agent::builder("support", Script::says(["one"])).hook(pause);
    let rig = process(agent, &FaultyStore::shared(), &PausedClock::default(), TwoManagers);
    let TurnStatus::Waiting(pending) = rig.conversations.turn(&rig.id, "go", ann()).await.unwrap() else {
        panic!("it does not pause")
    };
    let call = pending[0].call.as_str();
    let approve = async |id| resolve(&rig, call, Answer::Approve, manager(id)).await.unwrap().wait().await.unwrap();
    assert!(matches!(approve("mia").await, TurnStatus::Waiting(_)), "one was enough");
    assert!(matches!(approve("max").await, TurnStatus::Ended(ended) if ended.outcome == Outcome::Completed));
}

#[tokio::test]
async fn access_to_a_sub_agents_conversation_is_asked_about_the_one_it_works_for() {
    let script = Script::of([ScriptReply::calls("s1", "inner", json!({"task": "?"})), ScriptReply::says("ok")]);
    let inner = Agent::builder("inner", Script::says(["yes"])).build().unwrap();
    let boss = Agent::builder("boss", script).tool(SubAgent::new(inner, "Says yes."));
    let by_id = |_: &Actor, to: AccessTo<'_>, _: Action| to.id.as_str() == "c_1";
    let rig = process(boss, &FaultyStore::shared(), &PausedClock::default(), by_id);
    rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    assert!(rig.conversations.log(&"c_1/s1".into(), ann()).await.is_ok());
}

/// A desk with these access rules.
fn desk(agent: AgentBuilder, store: &FaultyStore, access: impl Access) -> Conversations {
    let builder = Conversations::builder(agent.build().unwrap(), store.clone()).ids(Arc::new(SystemIds::default()));
    builder.access(access).build()
}

#[tokio::test]
async fn a_standing_approval_counts_only_where_its_giver_may_answer() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let everyone = |_: &Actor, _: AccessTo<'_>, _: Action| true;
    let open = desk(clerk(&paid, "clerk", &[5]), &store, everyone);
    open.turn(&"first".into(), "pay", ann()).await.unwrap();
    let mia = manager("mia");
    approve_always(&open, "c1", &Always::default(), &mia).await;
    let used = open_turn(&desk(clerk(&paid, "clerk", &[5]), &store, everyone), "used").await;
    assert!(matches!(used, TurnStatus::Ended(_)), "{used:?}");
    let closed = open_turn(&desk(clerk(&paid, "clerk", &[5]), &store, OwnerOnly), "closed").await;
    assert!(matches!(closed, TurnStatus::Waiting(_)), "mia may not answer here: {closed:?}");
}

async fn open_turn(desk: &Conversations, id: &str) -> TurnStatus {
    desk.turn(&id.into(), "pay", ann()).await.unwrap()
}

#[tokio::test]
async fn the_standing_approval_that_was_shown_is_the_one_that_is_stored() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let desk = desk(clerk(&paid, "clerk", &[5]), &store, roles());
    desk.turn(&"first".into(), "pay", ann()).await.unwrap();
    let (id, call, mia) = ("first".into(), "c1".into(), manager("mia"));
    let shown = desk.propose_standing(&id, &call, &Always::default(), &mia).await.unwrap();
    let mut wider = shown.clone();
    wider.requester = "eve".into();
    let answer = async |answer: GivenAnswer, by: Scope| desk.resolve(&id, &call, answer, None, by).await;
    let refused = answer(Answer::Approve.always(wider), mia.clone()).await;
    assert!(matches!(refused, Err(ResolveError::Stale { .. })), "{refused:?}");
    let other = answer(Answer::Approve.always(shown.clone()), manager("max")).await;
    assert!(matches!(other, Err(ResolveError::Stale { .. })), "it is mia's to give: {other:?}");
    for not_plain in [Answer::Deny(None), Answer::ApproveWith(Arc::new(json!({"euro": 5, "note": 1})))] {
        let unfit = answer(not_plain.always(shown.clone()), mia.clone()).await;
        assert!(matches!(unfit, Err(ResolveError::Unfit { .. })), "{unfit:?}");
    }
    assert!(desk.standing(&mia).await.unwrap().is_empty(), "with no answer nothing begins");
    assert_eq!(desk.snapshot(&id, ann()).await.unwrap().pending.values().count(), 1, "and nothing was answered");
    answer(Answer::Approve.always(shown.clone()), mia.clone()).await.unwrap().wait().await.unwrap();
    assert_eq!(desk.standing(&mia).await.unwrap(), std::slice::from_ref(&shown));
    let late = answer(Answer::Approve.always(shown), mia.clone()).await;
    assert!(matches!(late, Err(ResolveError::Stale { .. })), "{late:?}");
    assert_eq!(desk.standing(&mia).await.unwrap().len(), 1);
}
