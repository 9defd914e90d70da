//! What an approval covers: the arguments that were judged, in every conversation that they pass through, and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};
use turnbuckle::conversation::{Always, ResolveError};
use turnbuckle::event::{Event, EventKind, Evidence, Outcome, Question};
use turnbuckle::hook::*;
use turnbuckle::message::{Reply, ToolCall};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::Author;
use turnbuckle::store::{Answer, InboxFilter, InboxKind, LEASE, Store};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::{SubAgent, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxError, Scope, Turn, TurnStatus};

use crate::access::{Paid, ann, process, refund, roles, support, user, waiting};
use crate::approving::{Judge, approve_always, by, clerk, in_project, resolve, rule};
use crate::faulty_store::{Fault, FaultyStore};
use crate::kit::{add, assert_valid, sum};

/// An agent whose sub-agent pays.
pub fn boss(inside: AgentBuilder) -> AgentBuilder {
    let inside = inside.build().unwrap();
    let call = ScriptReply::calls("s1", inside.name(), json!({"task": "pay"}));
    Agent::builder("boss", Script::of([call, ScriptReply::says("ok")])).tool(SubAgent::new(inside, "Pays."))
}

fn with(euro: i64) -> Answer {
    Answer::ApproveWith(Arc::new(json!({"euro": euro})))
}

fn manager(id: &str) -> Scope {
    user(id, "manager")
}

async fn log_of(rig: &Rig, id: &str) -> Vec<Arc<Event>> {
    rig.conversations.log(&id.into(), ann()).await.unwrap()
}

fn evidence(log: &[Arc<Event>]) -> Vec<Evidence> {
    let of = |event: &Arc<Event>| match &event.kind {
        EventKind::Resolution { evidence, .. } => Some((**evidence).clone()),
        _ => None,
    };
    log.iter().filter_map(of).collect()
}

/// Arguments, digest and approvals of every start.
fn starts(log: &[Arc<Event>]) -> Vec<(Value, String, Vec<Author>)> {
    let of = |event: &Arc<Event>| match &event.kind {
        EventKind::ToolStarted { arguments, digest, approvals, .. } => Some((
            (*arguments.value()).clone(),
            digest.text().to_string(),
            approvals.as_ref().map_or_else(Vec::new, |approvals| approvals.all.clone()),
        )),
        _ => None,
    };
    log.iter().filter_map(of).collect()
}

async fn answered(rig: &Rig, call: &str, answer: Answer, scope: Scope) -> TurnStatus {
    resolve(rig, call, answer, scope).await.unwrap().wait().await.unwrap()
}

#[tokio::test]
async fn a_sub_agents_tool_runs_with_the_arguments_that_all_its_approvers_approved() {
    let paid = Paid::default();
    let rig =
        process(boss(support(&paid)), &FaultyStore::shared(), &PausedClock::default(), rule(&["manager"], false, 2));
    rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    assert!(matches!(answered(&rig, "s1", with(10), manager("max")).await, TurnStatus::Waiting(_)));
    assert!(matches!(answered(&rig, "s1", Answer::Approve, manager("mia")).await, TurnStatus::Ended(_)));
    assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 10}), vec![by("max"), by("mia")])]);
}

#[test]
fn approvals_that_a_crash_cut_off_on_their_way_to_a_sub_agent_arrive_once() {
    for dies_at in ["max", "mia"] {
        let paid = Paid::default();
        let (is_dying, clock) = (Arc::new(AtomicBool::new(true)), PausedClock::default());
        let dies = is_dying.clone();
        let store = FaultyStore::with(move |batch| {
            let is_last = |event: &Arc<Event>| matches!(&event.kind, EventKind::Resolution { by: who, .. } if *who == by(dies_at));
            match dies.load(Relaxed) && batch.conversation.is_sub_agent() && batch.events.iter().any(is_last) {
                true => Fault::Delay(usize::MAX),
                false => Fault::Nothing,
            }
        });
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let start = || process(boss(support(&paid)), &store, &clock, rule(&["manager"], false, 2));
        let dying = runtime();
        dying.block_on(async {
            let first = start();
            first.conversations.turn(&first.id, "go", ann()).await.unwrap();
            answered(&first, "s1", with(10), manager("max")).await;
            resolve(&first, "s1", Answer::Approve, manager("mia")).await.unwrap();
            for _ in 0..500 {
                tokio::task::yield_now().await;
            }
        });
        drop(dying);
        is_dying.store(false, Relaxed);
        assert!(paid.lock().unwrap().is_empty());
        runtime().block_on(async {
            clock.advance(LEASE * 2);
            let second = start();
            let handle = second.conversations.resume(&second.id, ann()).await.unwrap().unwrap();
            assert!(matches!(handle.wait().await.unwrap(), TurnStatus::Ended(_)));
            assert_valid(&log_of(&second, "c_1").await);
        });
        assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 10}), vec![by("max"), by("mia")])], "{dies_at}");
    }
}

#[tokio::test]
async fn an_edit_of_a_sub_agents_call_is_checked_by_its_own_tool_and_leaves_the_parents_call_alone() {
    let paid = Paid::default();
    let schema = json!({"type": "object", "required": ["other"]});
    let same_name = function_with_schema("refund", "Another one.", schema, Effect::Pure, |_, _| async { Ok("") });
    let boss = boss(support(&paid)).tool(same_name);
    let rig = process(boss, &FaultyStore::shared(), &PausedClock::default(), roles());
    rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    let many = Answer::ApproveWith(Arc::new(json!({"euro": "many"})));
    let unfit = resolve(&rig, "s1", many, manager("mia")).await;
    assert!(matches!(unfit, Err(ResolveError::Unfit { .. })), "{unfit:?}");
    let ended = answered(&rig, "s1", with(7), manager("mia")).await;
    assert!(matches!(ended, TurnStatus::Ended(ended) if ended.text() == "ok"));
    assert_eq!(paid.lock().unwrap()[0].0, json!({"euro": 7}));
    let (outside, inside) = (log_of(&rig, "c_1").await, log_of(&rig, "c_1/s1").await);
    let outer: Vec<_> = starts(&outside).into_iter().map(|(arguments, ..)| arguments).collect();
    assert_eq!(outer, [json!({"task": "pay"}), json!({"task": "pay"})]);
    let digests: Vec<_> = starts(&outside).into_iter().map(|(_, digest, _)| digest).collect();
    assert_eq!(digests[0], digests[1]);
    let ran = starts(&inside)[0].1.clone();
    assert_eq!(evidence(&outside)[0].digest.as_deref(), Some(&*ran), "the digest is of what runs");
    assert_eq!(evidence(&inside)[0].digest.as_deref(), Some(&*ran));
}

#[tokio::test]
async fn an_approval_counts_for_what_was_asked_when_it_was_given() {
    let paid = Paid::default();
    let (_, _, mut rig) = waiting(&paid, rule(&["manager"], false, 2)).await;
    // Both are on their way before either is written.
    let (edit, approval) = tokio::join!(
        resolve(&rig, "c1", with(1000), manager("max")),
        resolve(&rig, "c1", Answer::Approve, manager("mia"))
    );
    edit.unwrap();
    assert!(matches!(approval, Err(ResolveError::Stale { .. })), "mia never saw 1000: {approval:?}");
    rig.settle().await;
    assert!(paid.lock().unwrap().is_empty());
    // A denial is one of whatever is asked.
    let denied = answered(&rig, "c1", Answer::Deny(None), manager("mia")).await;
    assert!(matches!(denied, TurnStatus::Ended(_)));
}

#[tokio::test]
async fn an_approval_that_is_stored_for_another_process_says_what_it_approves() {
    let paid = Paid::default();
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let mut owner = process(busy(&paid), &store, &clock, rule(&["manager"], false, 2));
    let _turn = owner.conversations.send(&owner.id, "pay me", ann()).await.unwrap();
    owner.settle().await;
    let builder = turnbuckle::Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone()));
    let there = builder.ids(Arc::new(turnbuckle::id::SystemIds::default())).build();
    there.answer(&owner.id, &"c1".into(), Answer::Approve, None, manager("mia")).await.unwrap();
    let stored = store.inbox(&owner.id, InboxFilter::Control).await.unwrap();
    let asked = owner.conversations.snapshot(&owner.id, ann()).await.unwrap().pending.get(&"c1".into()).cloned();
    let Question::Approval { digest: asked, .. } = asked.unwrap().question else { panic!("no approval") };
    let [item] = &stored[..] else { panic!("{stored:?}") };
    assert!(matches!(&item.kind, InboxKind::Answer { digest: Some(digest), .. } if *digest == asked), "{item:?}");
}

/// The first call of the turn runs on and keeps the conversation; the second waits.
pub fn busy(paid: &Paid) -> AgentBuilder {
    let busy = function_with_schema("busy", "Never ends.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        std::future::pending::<()>().await;
        Ok("never")
    });
    let calls = ScriptReply::calls("b1", "busy", json!({})).and_calls("c1", "refund", json!({"euro": 5}));
    Agent::builder("support", Script::of([calls])).tool(busy).tool(refund(paid))
}

/// Two managers approve an edit that a hook then changes. Everyone who approved is asked once more.
async fn second_look(rig: Rig, call: &str, paid: &Paid) {
    rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    answered(&rig, call, with(3), manager("max")).await;
    let TurnStatus::Waiting(pending) = answered(&rig, call, Answer::Approve, manager("mia")).await else {
        panic!("nobody has seen what the hook made of it")
    };
    let Question::Approval { arguments, .. } = &pending[0].question else { panic!("{pending:?}") };
    assert_eq!(**arguments, json!({"euro": 30}));
    let other = resolve(&rig, call, Answer::Approve, manager("zoe")).await;
    assert!(matches!(other, Err(ResolveError::Forbidden { .. })), "only those who approved before: {other:?}");
    let one = answered(&rig, call, Answer::Approve, manager("max")).await;
    assert!(matches!(one, TurnStatus::Waiting(_)), "two were needed, so two are");
    assert!(paid.lock().unwrap().is_empty());
    assert!(matches!(answered(&rig, call, Answer::Approve, manager("mia")).await, TurnStatus::Ended(_)));
    assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 30}), vec![by("max"), by("mia")])]);
    let log = log_of(&rig, "c_1").await;
    assert_valid(&log);
    let failed = |kind: &EventKind| matches!(kind, EventKind::ToolResult { ok: false, .. });
    assert!(!log.iter().any(|event| failed(&event.kind)), "{log:#?}");
}

#[tokio::test]
async fn a_second_look_needs_as_many_people_as_the_first() {
    let (paid, inner_paid) = (Paid::default(), Paid::default());
    let rules = || rule(&["manager"], false, 2);
    let plain = process(support(&paid).hook(Judge), &FaultyStore::shared(), &PausedClock::default(), rules());
    second_look(plain, "c1", &paid).await;
    let inside = boss(support(&inner_paid).hook(Judge));
    let inside = process(inside, &FaultyStore::shared(), &PausedClock::default(), rules());
    second_look(inside, "s1", &inner_paid).await;
}

#[tokio::test]
async fn a_rewrite_inside_a_sub_agent_is_shown_to_the_same_approver_and_to_nobody_else() {
    let paid = Paid::default();
    let boss = boss(support(&paid).hook(Judge));
    let rig = process(boss, &FaultyStore::shared(), &PausedClock::default(), roles());
    rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    assert!(matches!(answered(&rig, "s1", with(3), manager("mia")).await, TurnStatus::Waiting(_)));
    let other = resolve(&rig, "s1", Answer::Approve, manager("max")).await;
    assert!(matches!(other, Err(ResolveError::Forbidden { .. })), "{other:?}");
    assert!(matches!(answered(&rig, "s1", Answer::Approve, manager("mia")).await, TurnStatus::Ended(_)));
    assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 30}), vec![by("mia")])]);
}

#[tokio::test]
async fn a_sub_agent_that_used_a_standing_approval_is_answered_once() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let desk = in_project(clerk(&paid, "clerk", &[5]), &store, "/shop");
    desk.turn(&"first".into(), "pay", ann()).await.unwrap();
    approve_always(&desk, "c1", &Always::default(), &ann()).await;
    let calls = [5, 6].map(|euro| ScriptReply::calls(&format!("c{euro}"), "refund", json!({"euro": euro})));
    let script = Script::of(calls.into_iter().chain([ScriptReply::says("done")]));
    let inside = Agent::builder("clerk", script).tool(refund(&paid).standing_by(["/euro"]));
    let outside = in_project(boss(inside), &store, "/shop");
    let id = "second".into();
    let TurnStatus::Waiting(_) = outside.turn(&id, "go", ann()).await.unwrap() else { panic!("6 is asked about") };
    let handle = outside.resolve(&id, &"s1".into(), Answer::Approve, None, ann()).await.unwrap();
    let status = handle.wait().await.unwrap();
    assert!(matches!(status, TurnStatus::Ended(_)), "the answer was not passed on: {status:?}");
    assert_eq!(paid.lock().unwrap().len(), 3, "the first, and two of the sub-agent");
}

#[tokio::test]
async fn pauses_that_a_denial_closed_are_no_answers() {
    let pause = |name| stop(name, |_| async { Ok(OnStop::Pause("look".into())) });
    let script = Script::says(["one", "two"]);
    let inside = Agent::builder("inner", script).hook(pause("a")).hook(pause("b"));
    let rig = Rig::new(boss(inside).build().unwrap());
    rig.conversations.turn(&rig.id, "go", Scope::local()).await.unwrap();
    for (answer, ends) in [(Answer::Deny(None), false), (Answer::Approve, false), (Answer::Approve, true)] {
        let status = answered(&rig, "s1", answer, Scope::local()).await;
        assert_eq!(matches!(status, TurnStatus::Ended(_)), ends, "{status:?}");
    }
}

/// At `after_model`: approves the reply, asks a person about it, or changes what is called.
struct Judges(fn(&Reply) -> AfterModel);

impl Hook for Judges {
    async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        Ok(if reply.calls.is_empty() { AfterModel::Continue } else { (self.0)(reply) })
    }
}

/// Calls the tool with another amount.
fn other_amount(reply: &Reply) -> AfterModel {
    let mut reply = reply.clone();
    reply.calls[0].arguments = Arc::new(json!({"euro": 500}));
    AfterModel::Modify(Box::new(reply))
}

/// A refund of 3, which `Judge` makes one of 30.
fn pays_three(paid: &Paid) -> AgentBuilder {
    let script = Script::of([ScriptReply::calls("c1", "refund", json!({"euro": 3})), ScriptReply::says("done")]);
    Agent::builder("support", script).tool(refund(paid))
}

#[tokio::test]
async fn an_approved_reply_opens_the_gates_of_the_calls_that_were_judged_and_no_others() {
    let run = async |agent: AgentBuilder| {
        let rig = process(agent, &FaultyStore::shared(), &PausedClock::default(), roles());
        let status = rig.conversations.turn(&rig.id, "pay", ann()).await.unwrap();
        (rig, status)
    };
    let paid = Paid::default();
    let approves = || Judges(|_| AfterModel::Approve).named("approves");
    let (_, rewritten) = run(pays_three(&paid).hook(approves()).hook(Judge)).await;
    assert!(matches!(rewritten, TurnStatus::Waiting(_)), "a hook before the tool changed the arguments: {rewritten:?}");
    let changes = Judges(other_amount).named("changes");
    let (_, modified) = run(pays_three(&paid).hook(approves()).hook(changes)).await;
    assert!(matches!(modified, TurnStatus::Waiting(_)), "a hook behind it changed the reply: {modified:?}");
    assert!(paid.lock().unwrap().is_empty());
    let changes = Judges(other_amount).named("changes");
    let (rig, approved) = run(pays_three(&paid).hook(changes).hook(approves())).await;
    assert!(matches!(approved, TurnStatus::Ended(_)), "it approved what the other hook made: {approved:?}");
    let hook = Author::Hook("approves".into());
    assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 500}), vec![hook])]);
    assert_valid(&log_of(&rig, "c_1").await);
}

#[tokio::test]
async fn a_person_who_approves_a_reply_approves_its_calls_as_shown_and_is_listed() {
    let asks = || Judges(|_| AfterModel::Ask("all of it?".into())).named("asks");
    let approve = async |agent: AgentBuilder| {
        let rig = process(agent, &FaultyStore::shared(), &PausedClock::default(), roles());
        let status = rig.conversations.turn(&rig.id, "pay", ann()).await.unwrap();
        let TurnStatus::Waiting(pending) = status else { panic!("{status:?}") };
        let status = answered(&rig, pending[0].call.as_str(), Answer::Approve, manager("mia")).await;
        (rig, status)
    };
    let paid = Paid::default();
    let (rig, ended) = approve(pays_three(&paid).hook(asks())).await;
    assert!(matches!(ended, TurnStatus::Ended(_)), "{ended:?}");
    assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 3}), vec![by("mia")])]);
    assert_eq!(starts(&log_of(&rig, "c_1").await)[0].2, [by("mia")]);
    let (_, waits) = approve(pays_three(&paid).hook(asks()).hook(Judge)).await;
    assert!(matches!(waits, TurnStatus::Waiting(_)), "30 was never shown: {waits:?}");
    assert_eq!(paid.lock().unwrap().len(), 1);
}

/// Runs the tool with other arguments than it was given.
struct Greedy;

impl Hook for Greedy {
    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let other = ToolCall { arguments: Arc::new(json!({"euro": 5000})), ..call.clone() };
        next.run(&other).await
    }
}

#[tokio::test]
async fn a_wrap_cannot_run_a_tool_with_other_arguments_than_those_approved() {
    let paid = Paid::default();
    let rig = process(support(&paid).hook(Greedy), &FaultyStore::shared(), &PausedClock::default(), roles());
    rig.conversations.turn(&rig.id, "pay", ann()).await.unwrap();
    let ended = answered(&rig, "c1", Answer::Approve, manager("mia")).await;
    assert!(matches!(ended, TurnStatus::Ended(ended) if ended.outcome == Outcome::Completed));
    assert!(paid.lock().unwrap().is_empty());
    let log = format!("{:?}", log_of(&rig, "c_1").await);
    assert!(log.contains("other arguments than those decided on"), "{log}");
    // The same arguments in a call of the wrap's own are the same call.
    struct Copies;
    impl Hook for Copies {
        async fn wrap_tool_call<'a>(
            &self,
            _: &'a Turn,
            call: &'a ToolCall,
            next: ToolNext<'a>,
        ) -> Result<Output, BoxError> {
            let copy = ToolCall { arguments: Arc::new((*call.arguments).clone()), ..call.clone() };
            next.to_owned().run(&copy).await
        }
    }
    let agent = Agent::builder("adder", sum()).tool(add()).hook(Copies).build().unwrap();
    assert!(Rig::new(agent).trace("go").await.contains("add(2, 2) = 4"));
}

#[tokio::test]
async fn an_answer_that_is_passed_on_to_a_sub_agent_says_how_it_came() {
    let paid = Paid::default();
    let rig =
        process(boss(support(&paid)), &FaultyStore::shared(), &PausedClock::default(), rule(&["manager"], false, 2));
    rig.conversations.turn(&rig.id, "go", ann()).await.unwrap();
    answered(&rig, "s1", Answer::Approve, manager("max").via("link")).await;
    answered(&rig, "s1", Answer::Approve, manager("mia")).await;
    let vias: Vec<_> = evidence(&log_of(&rig, "c_1/s1").await).into_iter().map(|evidence| evidence.via).collect();
    assert_eq!(vias, [Some("link".into()), None]);
}
