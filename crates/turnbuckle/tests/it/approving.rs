//! Who may approve which call, how many must, and with which arguments.

use std::sync::Arc;

use serde_json::{Value, json};
use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::conversation::{Always, Conversations, ConversationsBuilder, ResolveError, TurnHandle};
use turnbuckle::event::{Approvals, EventKind, Outcome, Resolved};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::message::ToolCall;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::{Author, SystemAuthor};
use turnbuckle::store::{ActKind, Answer, LEASE, StandingApproval};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tools::SubAgent;
use turnbuckle::{Agent, AgentBuilder, BoxError, Scope, Turn, TurnStatus};

use crate::access::{Paid, ann, process, refund, roles, support, user, waiting};
use crate::faulty_store::FaultyStore;
use crate::kit::assert_valid;

pub fn rule(by: &[&str], not_requester: bool, n: u32) -> RoleAccess {
    let by = by.iter().map(|role| (*role).into()).collect();
    RoleAccess { approve: vec![ApproveRule { tool: "refund".into(), by, not_requester, n }], ..RoleAccess::default() }
}

fn resolutions(log: &[Arc<turnbuckle::event::Event>]) -> Vec<(Resolved, Author, bool)> {
    let of = |kind: &EventKind| match kind {
        EventKind::Resolution { decision, by, evidence, .. } => Some((*decision, by.clone(), evidence.open)),
        _ => None,
    };
    log.iter().filter_map(|event| of(&event.kind)).collect()
}

pub async fn resolve(rig: &Rig, call: &str, answer: Answer, scope: Scope) -> Result<TurnHandle, ResolveError> {
    rig.conversations.resolve(&rig.id, &call.into(), answer, None, scope).await
}

pub fn by(id: &str) -> Author {
    Author::User(id.into())
}

#[tokio::test]
async fn two_different_managers_must_approve_and_the_requester_is_none_of_them() {
    let paid = Paid::default();
    let (_, _, mut rig) = waiting(&paid, rule(&["manager"], true, 2)).await;
    let approve = |scope: Scope| resolve(&rig, "c1", Answer::Approve, scope);
    assert!(matches!(approve(ann()).await, Err(ResolveError::Forbidden { .. })), "the owner has no such role");
    let requester = approve(ann().role("manager")).await;
    assert!(matches!(requester, Err(ResolveError::Forbidden { .. })), "{requester:?}");
    let first = approve(user("mia", "manager")).await.unwrap().wait().await.unwrap();
    let TurnStatus::Waiting(pending) = first else { panic!("one approval was enough") };
    assert_eq!(pending[0].approvals, [by("mia")]);
    let twice = approve(user("mia", "manager")).await;
    assert!(matches!(twice, Err(ResolveError::Stale { .. })), "{twice:?}");
    let second = approve(user("max", "manager")).await.unwrap().wait().await.unwrap();
    assert!(matches!(second, TurnStatus::Ended(ended) if ended.outcome == Outcome::Completed));
    rig.settle().await;
    let log = rig.conversations.log(&rig.id, ann()).await.unwrap();
    assert_valid(&log);
    let approved = Resolved::Approved;
    assert_eq!(resolutions(&log), [(approved, by("mia"), true), (approved, by("max"), false)]);
    let started = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolStarted { approvals, .. } => approvals.as_deref().cloned(),
        _ => None,
    });
    let both = Approvals { last: Some(by("max")), all: vec![by("mia"), by("max")], rule: None };
    assert_eq!(started, Some(both));
    assert_eq!(paid.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn one_denial_ends_a_question_that_needs_two_approvals() {
    let paid = Paid::default();
    let (_, _, rig) = waiting(&paid, rule(&["manager"], false, 2)).await;
    let answer = |answer, scope: Scope| resolve(&rig, "c1", answer, scope);
    answer(Answer::Approve, user("mia", "manager")).await.unwrap();
    let denied = answer(Answer::Deny(Some("no".into())), user("max", "manager")).await.unwrap().wait().await.unwrap();
    assert!(matches!(denied, TurnStatus::Ended(_)));
    assert!(paid.lock().unwrap().is_empty());
}

#[tokio::test]
async fn processes_without_the_agent_or_its_rules_check_against_what_is_stored_with_the_question() {
    let paid = Paid::default();
    let (store, clock, _gone) = waiting(&paid, rule(&["manager"], true, 2)).await;
    let desk = |builder: ConversationsBuilder| {
        clock.advance(LEASE);
        builder.clock(Arc::new(clock.clone())).ids(Arc::new(SystemIds::default())).build()
    };
    let id = "c_1".into();
    let answer = |scope: Scope| {
        let desk = desk(Conversations::without_agent(store.clone()));
        let id: turnbuckle::ConversationId = "c_1".into();
        async move { desk.answer(&id, &"c1".into(), Answer::Approve, None, scope).await }
    };
    let stranger = answer(Scope::user("bob")).await;
    assert!(matches!(stranger, Err(ResolveError::NotFound { .. })), "{stranger:?}");
    assert!(
        matches!(answer(ann()).await, Err(ResolveError::Forbidden { .. })),
        "the owner reads, and has no such role"
    );
    assert_eq!(
        desk(Conversations::without_agent(store.clone())).pending(user("mia", "manager")).await.unwrap().len(),
        1
    );
    answer(user("mia", "manager")).await.unwrap();
    answer(user("max", "manager")).await.unwrap();
    // The agent that carries the turn on has lost its rules, and a person insists: what is stored counts.
    let mut own = process(support(&paid), &store, &clock, turnbuckle::access::OwnerOnly);
    own.conversations.accept_changes(&id, ann()).await.unwrap();
    let turn = own.conversations.resume(&id, ann()).await.unwrap().unwrap();
    own.follow(turn).await.unwrap();
    assert_eq!(paid.lock().unwrap()[0].1, [by("mia"), by("max")]);
}

#[tokio::test]
async fn a_rule_asks_for_approval_whatever_the_tool_the_agent_or_a_hook_says() {
    struct Opens;
    impl Hook for Opens {
        async fn after_model(&self, _: &Turn, _: &Arc<turnbuckle::Reply>) -> Result<AfterModel, BoxError> {
            Ok(AfterModel::Approve)
        }
    }
    let paid = Paid::default();
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let rig = process(support(&paid).hook(Opens), &store, &clock, roles());
    let free = rig.conversations.turn(&rig.id, "pay", ann()).await.unwrap();
    assert!(matches!(free, TurnStatus::Ended(_)), "the hook opens the gate");
    let log = rig.conversations.log(&rig.id, ann()).await.unwrap();
    let by_hook = |kind: &EventKind| matches!(kind, EventKind::ToolStarted { approvals: Some(approvals), .. } if approvals.last == Some(Author::hook(&"opens".into())));
    assert!(log.iter().any(|event| by_hook(&event.kind)), "{log:#?}");

    let rig = process(support(&paid).hook(Opens), &FaultyStore::shared(), &clock, rule(&["manager"], false, 1));
    let held = rig.conversations.turn(&rig.id, "pay", ann()).await.unwrap();
    assert!(matches!(held, TurnStatus::Waiting(_)), "and does not satisfy a rule: {held:?}");
}

/// At `before_tool`: what becomes of each amount.
pub struct Judge;

impl Hook for Judge {
    async fn before_tool(&self, _: &Turn, call: &ToolCall) -> Result<BeforeTool, BoxError> {
        Ok(match call.arguments["euro"].as_i64().unwrap_or_default() {
            1 => BeforeTool::Deny("too little".into()),
            2 => BeforeTool::Ask("really two?".into()),
            3 => BeforeTool::Rewrite(json!({"euro": 30})),
            4 => BeforeTool::Halt("stop it".into()),
            40 => BeforeTool::Rewrite(json!({"euro": 41})),
            _ => BeforeTool::Continue,
        })
    }
}

/// What came of approving with these arguments.
async fn edited(euro: Value) -> (Paid, Rig, Result<TurnStatus, ResolveError>) {
    let paid = Paid::default();
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let rig = process(support(&paid).hook(Judge), &store, &clock, roles());
    rig.conversations.turn(&rig.id, "pay", ann()).await.unwrap();
    let answer = Answer::ApproveWith(Arc::new(json!({"euro": euro})));
    let status = match rig.conversations.resolve(&rig.id, &"c1".into(), answer, None, user("mia", "manager")).await {
        Ok(handle) => Ok(handle.wait().await.unwrap()),
        Err(error) => Err(error),
    };
    (paid, rig, status)
}

#[tokio::test]
async fn edited_arguments_run_as_the_approvers_and_their_digest_is_of_what_runs() {
    let (paid, rig, status) = edited(json!(7)).await;
    assert!(matches!(status, Ok(TurnStatus::Ended(_))));
    assert_eq!(paid.lock().unwrap()[0].0, json!({"euro": 7}));
    let log = rig.conversations.log(&rig.id, ann()).await.unwrap();
    let resolved = log.iter().find_map(|event| match &event.kind {
        EventKind::Resolution { by, evidence, .. } => Some((by.clone(), evidence.clone())),
        _ => None,
    });
    let (by_whom, evidence) = resolved.unwrap();
    let started = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolStarted { digest, arguments, .. } => Some((digest.text().clone(), arguments.value())),
        _ => None,
    });
    let (digest, arguments) = started.unwrap();
    assert_eq!(by_whom, by("mia"));
    assert_eq!(evidence.arguments.as_deref(), Some(&json!({"euro": 7})));
    assert_eq!((evidence.digest, &*arguments), (Some(digest), &json!({"euro": 7})));
}

#[tokio::test]
async fn edited_arguments_are_validated_and_judged_by_hooks_like_the_models_own() {
    let (_, _, unfit) = edited(json!("many")).await;
    assert!(matches!(unfit, Err(ResolveError::Unfit { .. })), "{unfit:?}");
    let (paid, rig, denied) = edited(json!(1)).await;
    assert!(matches!(denied, Ok(TurnStatus::Ended(_))));
    assert!(
        paid.lock().unwrap().is_empty()
            && format!("{:?}", rig.conversations.log(&rig.id, ann()).await).contains("too little")
    );
    let (paid, _, asked) = edited(json!(2)).await;
    assert!(matches!(asked, Ok(TurnStatus::Ended(_))), "an Ask counts as answered by the approver");
    assert_eq!(paid.lock().unwrap().len(), 1);
    let (_, _, halted) = edited(json!(4)).await;
    assert!(matches!(halted, Ok(TurnStatus::Ended(ended)) if ended.outcome == Outcome::Halted));
}

#[tokio::test]
async fn a_rewrite_of_edited_arguments_is_shown_to_the_same_approver_once_more_and_only_once() {
    let (paid, rig, status) = edited(json!(3)).await;
    let Ok(TurnStatus::Waiting(pending)) = status else { panic!("{status:?}") };
    let turnbuckle::event::Question::Approval { arguments, .. } = &pending[0].question else { panic!("{pending:?}") };
    assert_eq!(**arguments, json!({"euro": 30}));
    let approve = |answer, scope: Scope| resolve(&rig, "c1", answer, scope);
    let other = approve(Answer::Approve, user("max", "manager")).await;
    assert!(matches!(other, Err(ResolveError::Forbidden { .. })), "only the one who edited: {other:?}");
    let again = Answer::ApproveWith(Arc::new(json!({"euro": 40})));
    approve(again, user("mia", "manager")).await.unwrap().wait().await.unwrap();
    assert!(paid.lock().unwrap().is_empty(), "a second rewrite ends it");

    let (paid, rig, _) = edited(json!(3)).await;
    let approved = resolve(&rig, "c1", Answer::Approve, user("mia", "manager"));
    approved.await.unwrap().wait().await.unwrap();
    assert_eq!(paid.lock().unwrap()[0].0, json!({"euro": 30}));
}

#[tokio::test]
async fn changed_arguments_void_earlier_approvals() {
    let paid = Paid::default();
    let (_, _, rig) = waiting(&paid, rule(&["manager"], false, 2)).await;
    let answer = |answer, scope: Scope| resolve(&rig, "c1", answer, scope);
    answer(Answer::Approve, user("mia", "manager")).await.unwrap();
    let edit = Answer::ApproveWith(Arc::new(json!({"euro": 6})));
    let status = answer(edit, user("max", "manager")).await.unwrap().wait().await.unwrap();
    let TurnStatus::Waiting(pending) = status else { panic!("mia approved other arguments") };
    assert_eq!(pending[0].approvals, [by("max")]);
    answer(Answer::Approve, user("mia", "manager")).await.unwrap().wait().await.unwrap();
    assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 6}), vec![by("max"), by("mia")])]);
}

#[tokio::test]
async fn approvals_of_a_sub_agents_call_are_given_in_the_names_of_those_who_gave_them() {
    let paid = Paid::default();
    let script = Script::of([ScriptReply::calls("s1", "support", json!({"task": "pay"})), ScriptReply::says("ok")]);
    let boss = Agent::builder("boss", script).tool(SubAgent::new(support(&paid).build().unwrap(), "Pays."));
    let rig = process(boss, &FaultyStore::shared(), &PausedClock::default(), rule(&["manager"], true, 2));
    assert!(matches!(rig.conversations.turn(&rig.id, "go", ann()).await.unwrap(), TurnStatus::Waiting(_)));
    let approve = |scope: Scope| resolve(&rig, "s1", Answer::Approve, scope);
    assert!(matches!(approve(ann().role("manager")).await, Err(ResolveError::Forbidden { .. })));
    approve(user("mia", "manager")).await.unwrap();
    let ended = approve(user("max", "manager")).await.unwrap().wait().await.unwrap();
    assert!(matches!(ended, TurnStatus::Ended(ended) if ended.text() == "ok"));
    assert_eq!(paid.lock().unwrap()[0].1, [by("mia"), by("max")]);
    let child = rig.conversations.log(&rig.id.child(&"s1".into()), ann()).await.unwrap();
    assert_eq!(resolutions(&child).len(), 2);
}

#[tokio::test]
async fn the_log_says_how_an_answer_came_if_not_through_a_door_of_ours() {
    let paid = Paid::default();
    let (_, _, rig) = waiting(&paid, roles()).await;
    let mia = user("mia", "manager").via("link");
    rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, mia).await.unwrap();
    let log = rig.conversations.log(&rig.id, ann()).await.unwrap();
    let json = log.iter().map(|event| serde_json::to_value(&**event).unwrap());
    let resolution = json.into_iter().find(|event| event["type"] == "resolution").unwrap();
    assert_eq!((&resolution["by"], &resolution["via"]), (&json!({"user": "mia"}), &json!("link")));
}

#[tokio::test]
async fn a_link_for_nobody_denies_whatever_the_rule_and_does_no_more() {
    for access in [roles(), rule(&["manager"], true, 2)] {
        let paid = Paid::default();
        let (_, _, rig) = waiting(&paid, access).await;
        let nobody = Scope::link_for_nobody;
        for more in [Answer::Approve, Answer::ApproveWith(json!({"euro": 1}).into()), Answer::Error("no".into())] {
            let refused = resolve(&rig, "c1", more, nobody()).await;
            assert!(matches!(refused, Err(ResolveError::Forbidden { .. })), "{refused:?}");
        }
        let system = resolve(&rig, "c1", Answer::Deny(None), Scope::system()).await;
        assert!(matches!(system, Err(ResolveError::Forbidden { .. })), "the runtime itself denies nothing: {system:?}");
        let other = resolve(&rig, "c1", Answer::Deny(None), Scope::system().via("mcp")).await;
        assert!(matches!(other, Err(ResolveError::Forbidden { .. })), "{other:?}");
        let denied = resolve(&rig, "c1", Answer::Deny(None), nobody()).await.unwrap().wait().await.unwrap();
        assert!(matches!(denied, TurnStatus::Ended(_)));
        assert!(paid.lock().unwrap().is_empty());
        let log = rig.conversations.log(&rig.id, ann()).await.unwrap();
        assert_valid(&log);
        assert_eq!(resolutions(&log), [(Resolved::Denied, Author::System(SystemAuthor::Program), false)]);
    }
}

#[tokio::test]
async fn a_denial_by_nobody_that_another_process_recorded_holds_where_the_turn_is_carried_on() {
    for access in [roles(), rule(&["manager"], true, 2)] {
        let paid = Paid::default();
        let (store, clock, _gone) = waiting(&paid, access.clone()).await;
        clock.advance(LEASE);
        let desk = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone()));
        let desk = desk.ids(Arc::new(SystemIds::default())).build();
        let deny = Answer::Deny(Some("no".into()));
        desk.answer(&"c_1".into(), &"c1".into(), deny, None, Scope::link_for_nobody()).await.unwrap();
        let own = process(support(&paid), &store, &clock, access);
        let turn = own.conversations.resume(&own.id, ann()).await.unwrap().unwrap();
        assert!(matches!(turn.wait().await.unwrap(), TurnStatus::Ended(_)));
        assert!(paid.lock().unwrap().is_empty());
    }
}

/// A process in a project, with the access rules of most tests here.
pub fn in_project(agent: AgentBuilder, store: &FaultyStore, project: &str) -> Conversations {
    let builder = Conversations::builder(agent.build().unwrap(), store.clone()).ids(Arc::new(SystemIds::default()));
    builder.access(roles()).project(project.to_owned()).build()
}

/// A refund of these amounts, one a turn.
pub fn clerk(paid: &Paid, name: &str, amounts: &[i64]) -> AgentBuilder {
    let replies = amounts.iter().enumerate().flat_map(|(nth, euro)| {
        let call = format!("c{}", nth + 1);
        [ScriptReply::calls(&call, "refund", json!({"euro": euro, "note": nth})), ScriptReply::says("done")]
    });
    Agent::builder(name.to_owned(), Script::of(replies)).tool(refund(paid).standing_by(["/euro"]))
}

/// Approves a call from now on, and waits for what its turn comes to.
pub async fn approve_always(desk: &Conversations, call: &str, always: &Always, by: &Scope) -> StandingApproval {
    let (approval, handle) = desk.approve_always(&"first".into(), &call.into(), always, by).await.unwrap();
    if handle.left().is_none() {
        handle.wait().await.unwrap();
    }
    approval
}

async fn is_asked(conversations: &Conversations, id: &str, scope: Scope) -> bool {
    let id = id.into();
    match conversations.turn(&id, "pay", scope.clone()).await.unwrap() {
        TurnStatus::Ended(_) => false,
        TurnStatus::Waiting(_) => {
            conversations.cancel(&id, scope).await.unwrap();
            true
        }
    }
}

#[tokio::test]
async fn a_standing_approval_covers_its_agent_tool_arguments_project_and_requester_and_nothing_else() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let desk = in_project(clerk(&paid, "clerk", &[5]), &store, "/shop");
    desk.turn(&"first".into(), "pay", ann()).await.unwrap();
    let (id, call, mia) = ("first".into(), "c1".into(), user("mia", "manager"));
    let shown = desk.propose_standing(&id, &call, &Always::default(), &mia).await.unwrap();
    assert!(
        shown.to_string().starts_with(
            "agent clerk may call refund with euro = 5 and any other arguments for user ann in /shop until "
        ),
        "{shown}"
    );
    assert!(desk.standing(&mia).await.unwrap().is_empty(), "it is only shown");
    let handle = desk.resolve(&id, &call, Answer::Approve.always(shown.clone()), None, mia.clone()).await.unwrap();
    handle.wait().await.unwrap();
    let given = shown;
    assert_eq!(desk.standing(&mia).await.unwrap(), std::slice::from_ref(&given));

    assert!(!is_asked(&desk, "same", ann()).await, "the same amount with another note");
    let log = desk.log(&"same".into(), ann()).await.unwrap();
    let evidence = log.iter().find_map(|event| match &event.kind {
        EventKind::Resolution { by, evidence, .. } => Some((by.clone(), evidence.standing.clone())),
        _ => None,
    });
    assert_eq!(evidence, Some((by("mia"), Some(given.id.clone()))), "each use is recorded");
    assert_valid(&log);
    assert_eq!(paid.lock().unwrap().last().unwrap().1, [by("mia")]);

    let other_amount = in_project(clerk(&paid, "clerk", &[6]), &store, "/shop");
    assert!(is_asked(&other_amount, "amount", ann()).await);
    let other_agent = in_project(clerk(&paid, "other", &[5]), &store, "/shop");
    assert!(is_asked(&other_agent, "agent", ann()).await);
    let other_project = in_project(clerk(&paid, "clerk", &[5]), &store, "/home");
    assert!(is_asked(&other_project, "project", ann()).await);
    assert!(is_asked(&desk, "requester", Scope::user("eve")).await);
    let asks = clerk(&paid, "clerk", &[5]).hook(gate("ask", |_, _| async { Ok(BeforeTool::Ask("sure?".into())) }));
    assert!(is_asked(&in_project(asks, &store, "/shop"), "hook", ann()).await, "never what a hook asks");

    let stranger = desk.revoke_standing(&given.id, &Scope::user("eve")).await.unwrap();
    assert!(!stranger && desk.revoke_standing(&given.id, &mia).await.unwrap());
    let acts = desk.acts(mia.clone()).await.unwrap();
    assert!(acts.iter().any(|act| act.kind == ActKind::Revoked && act.about == given.id), "{acts:?}");
    assert!(is_asked(&desk, "revoked", ann()).await);
}

#[tokio::test]
async fn a_standing_approval_never_answers_a_rule_that_wants_several_or_another_person() {
    for access in [rule(&[], false, 2), rule(&[], true, 1)] {
        let (paid, store) = (Paid::default(), FaultyStore::shared());
        let free = in_project(clerk(&paid, "clerk", &[5]), &store, "");
        free.turn(&"first".into(), "pay", ann()).await.unwrap();
        approve_always(&free, "c1", &Always::default(), &ann()).await;
        let agent = clerk(&paid, "clerk", &[5]).build().unwrap();
        let ruled =
            Conversations::builder(agent, store.clone()).ids(Arc::new(SystemIds::default())).access(access).build();
        assert!(matches!(ruled.turn(&"ruled".into(), "pay", ann()).await.unwrap(), TurnStatus::Waiting(_)));
        let made = ruled.approve_always(&"ruled".into(), &"c1".into(), &Always::default(), &ann()).await;
        assert!(made.is_err(), "and none can be made of it: {made:?}");
    }
}

#[tokio::test]
async fn a_standing_approval_that_is_used_up_is_asked_about_again() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let desk = in_project(clerk(&paid, "clerk", &[5]), &store, "");
    desk.turn(&"first".into(), "pay", ann()).await.unwrap();
    let mut twice = Always::default();
    twice.times = Some(2);
    approve_always(&desk, "c1", &twice, &ann()).await;
    let mut asked = Vec::new();
    for id in ["one", "two", "three"] {
        asked.push(is_asked(&desk, id, ann()).await);
    }
    assert_eq!(asked, [false, false, true]);
}

#[tokio::test]
async fn a_standing_approval_that_is_given_elsewhere_holds_in_the_project_of_the_turn() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let desk = in_project(clerk(&paid, "clerk", &[5]), &store, "/shop");
    desk.turn(&"first".into(), "pay", ann()).await.unwrap();
    let elsewhere = Conversations::without_agent(store.clone()).project("/home/mia").build();
    let given = approve_always(&elsewhere, "c1", &Always::default(), &user("mia", "manager")).await;
    assert_eq!(&*given.project, "/shop");
    assert!(!is_asked(&desk, "same", ann()).await);
}

#[tokio::test]
async fn a_standing_approval_of_a_sub_agents_call_covers_that_sub_agent() {
    let (paid, store) = (Paid::default(), FaultyStore::shared());
    let boss = || {
        let script = Script::of([ScriptReply::calls("s1", "clerk", json!({"task": "pay"})), ScriptReply::says("ok")]);
        let clerk = clerk(&paid, "clerk", &[5]).build().unwrap();
        in_project(Agent::builder("boss", script).tool(SubAgent::new(clerk, "Pays.")), &store, "/shop")
    };
    let desk = boss();
    desk.turn(&"first".into(), "pay", ann()).await.unwrap();
    let given = approve_always(&desk, "s1", &Always::default(), &user("mia", "manager")).await;
    assert_eq!((&*given.agent, &*given.tool), ("clerk", "refund"));
    assert!(!is_asked(&boss(), "same", ann()).await);
}

#[tokio::test]
async fn a_rule_for_all_tools_does_not_ask_whether_a_person_may_be_asked() {
    let access = RoleAccess {
        approve: vec![ApproveRule { tool: "*".into(), by: vec!["manager".into()], not_requester: false, n: 1 }],
        ..RoleAccess::default()
    };
    let script = Script::of([ScriptReply::calls("q", "ask_human", json!({"question": "Which?"}))]);
    let agent = Agent::builder("support", script).tool(turnbuckle::tools::human("ask_human", "Asks."));
    let rig = process(agent, &FaultyStore::shared(), &PausedClock::default(), access);
    let TurnStatus::Waiting(pending) = rig.conversations.turn(&rig.id, "go", ann()).await.unwrap() else { panic!() };
    assert!(matches!(pending[0].question, turnbuckle::event::Question::Elicitation { .. }), "{pending:?}");
}

#[tokio::test]
async fn someone_who_may_answer_and_comes_too_late_is_told_that() {
    let paid = Paid::default();
    let (store, clock, _gone) = waiting(&paid, rule(&["manager"], false, 1)).await;
    // A process that knows nothing but what is stored.
    let desk = Conversations::without_agent(store).clock(Arc::new(clock)).ids(Arc::new(SystemIds::default())).build();
    let (id, call) = ("c_1".into(), "c1".into());
    let answer = |scope| desk.answer(&id, &call, Answer::Approve, None, scope);
    answer(user("mia", "manager")).await.unwrap();
    let late = answer(user("max", "manager")).await;
    assert!(matches!(late, Err(ResolveError::Stale { .. })), "{late:?}");
    let stranger = answer(user("bob", "")).await;
    assert!(matches!(stranger, Err(ResolveError::NotFound { .. })), "{stranger:?}");
}
