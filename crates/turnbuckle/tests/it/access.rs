//! Who may do what: every actor, every action, every entry; and who may approve which call.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnbuckle::access::{Access, AccessTo, Action, RoleAccess};
use turnbuckle::conversation::{Conversations, ResolveError, SendError, WhileBusy};
use turnbuckle::event::EventKind;
use turnbuckle::feed::Delivery;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::scope::{Author, SystemAuthor};
use turnbuckle::store::{Answer, LEASE};
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, SubAgent, function_with_schema};
use turnbuckle::{Actor, Agent, AgentBuilder, Scope, TurnStatus};

use crate::faulty_store::FaultyStore;

/// The arguments that the tool was paid with, and who approved.
pub type Paid = Arc<Mutex<Vec<(Value, Vec<Author>)>>>;

pub fn refund(paid: &Paid) -> FunctionTool {
    let paid = paid.clone();
    let schema = json!({"type": "object", "properties": {"euro": {"type": "integer"}}, "required": ["euro"]});
    let tool = function_with_schema("refund", "Pays.", schema, Effect::Never, move |turn, arguments| {
        let paid = paid.clone();
        async move {
            paid.lock().unwrap().push((arguments, turn.approvals().to_vec()));
            Ok(format!("paid for {:?}", turn.scope().user_id()))
        }
    });
    tool.requires_approval()
}

pub fn support(paid: &Paid) -> AgentBuilder {
    let script = Script::of([ScriptReply::calls("c1", "refund", json!({"euro": 5})), ScriptReply::says("done")]);
    Agent::builder("support", script).tool(refund(paid))
}

pub fn user(id: &str, role: &str) -> Scope {
    if role.is_empty() { Scope::user(id.to_owned()) } else { Scope::user(id.to_owned()).role(role.to_owned()) }
}

pub fn ann() -> Scope {
    Scope::user("ann")
}

pub fn roles() -> RoleAccess {
    RoleAccess {
        read: vec!["reader".into()],
        say: vec!["speaker".into()],
        answer: vec!["manager".into()],
        cancel: vec!["operator".into()],
        delete: vec!["admin".into()],
        approve: Vec::new(),
    }
}

/// A process on the store. Its clock is past the lease of every process before it.
pub fn process(agent: AgentBuilder, store: &FaultyStore, clock: &PausedClock, access: impl Access) -> Rig {
    let mut rig = Rig::with(agent.build().unwrap(), store.clone(), |builder| {
        builder.ids(Arc::new(SystemIds::default())).clock(Arc::new(clock.clone())).access(access)
    });
    clock.advance(LEASE);
    rig.clock = clock.clone();
    rig
}

/// A turn of ann's waits for approval of its refund.
pub async fn waiting(paid: &Paid, access: impl Access) -> (FaultyStore, PausedClock, Rig) {
    let (store, clock) = (FaultyStore::shared(), PausedClock::default());
    let rig = process(support(paid), &store, &clock, access);
    let status = rig.conversations.turn(&rig.id, "pay me", ann()).await.unwrap();
    assert!(matches!(status, TurnStatus::Waiting(_)));
    (store, clock, rig)
}

/// What an entry says to an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    Forbidden,
    NotFound,
}

fn of_send<T>(result: Result<T, SendError>) -> Verdict {
    match result {
        Ok(_) | Err(SendError::Busy { .. } | SendError::Left { .. } | SendError::NoAgent) => Verdict::Yes,
        Err(SendError::Forbidden { .. }) => Verdict::Forbidden,
        Err(SendError::NotFound { .. }) => Verdict::NotFound,
        Err(error) => panic!("{error:?}"),
    }
}

fn of_resolve<T>(result: Result<T, ResolveError>) -> Verdict {
    match result {
        Ok(_) | Err(ResolveError::Stale { .. }) => Verdict::Yes,
        Err(ResolveError::Forbidden { .. }) => Verdict::Forbidden,
        Err(ResolveError::NotFound { .. }) => Verdict::NotFound,
        Err(error) => panic!("{error:?}"),
    }
}

/// Everything that the library lets somebody do, by the action that it needs.
const ENTRIES: &[(&str, Action)] = &[
    ("send", Action::Say),
    ("turn", Action::Say),
    ("queue", Action::Say),
    ("interrupt", Action::Cancel),
    ("resume", Action::Say),
    ("accept_changes", Action::Say),
    ("close", Action::Say),
    ("resolve", Action::Answer),
    ("answer", Action::Answer),
    ("question", Action::Answer),
    ("cancel", Action::Cancel),
    ("subscribe", Action::Read),
    ("snapshot", Action::Read),
    ("log", Action::Read),
    ("records", Action::Read),
    ("jobs", Action::Read),
    ("left_turn", Action::Read),
    ("list", Action::Read),
    ("pending", Action::Answer),
    ("export", Action::Read),
    ("sub_agents", Action::Read),
    ("delete", Action::Delete),
    ("delete_user", Action::Delete),
    ("hold", Action::Delete),
    ("release", Action::Delete),
];

/// Enters at a call of a conversation.
async fn enter(entry: &str, at: (&str, &str), conversations: &Conversations, scope: Scope) -> Verdict {
    let (id, call) = (&at.0.into(), &at.1.into());
    match entry {
        "send" => of_send(conversations.send(id, "hi", scope).await),
        "turn" => match conversations.turn(id, "hi", scope).await {
            Err(turnbuckle::conversation::RunError::Send(error)) => of_send::<()>(Err(error)),
            _ => Verdict::Yes,
        },
        "queue" => of_send(conversations.send_while(id, "hi", scope, WhileBusy::Queue).await),
        "interrupt" => of_send(conversations.send_while(id, "hi", scope, WhileBusy::Interrupt).await),
        "resume" => of_send(conversations.resume(id, scope).await),
        "accept_changes" => of_send(conversations.accept_changes(id, scope).await),
        "close" => of_send(conversations.close(id, scope).await),
        "resolve" => of_resolve(conversations.resolve(id, call, Answer::Deny(None), None, scope).await),
        "answer" => of_resolve(conversations.answer(id, call, Answer::Deny(None), None, scope).await),
        "question" => of_resolve(conversations.question(id, call, &scope).await),
        "cancel" => of_send(conversations.cancel(id, scope).await),
        "subscribe" => of_send(conversations.subscribe(id, Delivery::Lossy, scope).await),
        "snapshot" => of_send(conversations.snapshot(id, scope).await),
        "log" => of_send(conversations.log(id, scope).await),
        "records" => of_send(conversations.records(id, &"t_1".into(), scope).await),
        "jobs" => of_send(conversations.jobs(id, scope).await),
        "left_turn" => of_send(conversations.left_turn(id, scope).await),
        "list" => match conversations.list(scope).await.unwrap().is_empty() {
            true => Verdict::NotFound,
            false => Verdict::Yes,
        },
        "pending" => match conversations.pending(scope).await.unwrap().is_empty() {
            true => Verdict::NotFound,
            false => Verdict::Yes,
        },
        "export" => of_send(conversations.export(id, scope).await),
        "sub_agents" => of_send(conversations.sub_agents(id, scope).await),
        "delete" => of_send(conversations.delete(id, scope).await),
        "delete_user" => match conversations.delete_user("ann", scope).await.unwrap().kept.pop() {
            Some((_, error)) => of_send::<()>(Err(error)),
            None => Verdict::NotFound,
        },
        "hold" => of_send(conversations.place_hold(id, scope).await),
        "release" => of_send(conversations.lift_hold(id, scope).await),
        other => panic!("{other}"),
    }
}

/// Who holds which role.
const ACTORS: &[(&str, &str)] = &[
    ("ann", ""),
    ("bob", ""),
    ("rita", "reader"),
    ("sam", "speaker"),
    ("mia", "manager"),
    ("otto", "operator"),
    ("ada", "admin"),
];

/// The rule in one place: the owner, or the role of the action; every role reads.
fn expected(actor: (&str, &str), entry: &str, action: Action) -> Verdict {
    let (id, role) = actor;
    let own = match action {
        Action::Read => !role.is_empty(),
        Action::Say => role == "speaker",
        Action::Answer => role == "manager",
        Action::Cancel => role == "operator",
        Action::Delete => role == "admin",
    };
    // An interruption is a message as well as a cancellation, and no role here may both.
    let own = own && entry != "interrupt";
    match (id == "ann" || own, role) {
        (true, _) => Verdict::Yes,
        (false, "") => Verdict::NotFound,
        // What is not theirs to answer is not listed.
        (false, _) if entry == "pending" => Verdict::NotFound,
        (false, _) => Verdict::Forbidden,
    }
}

#[tokio::test]
async fn every_actor_at_every_entry_may_what_the_rule_says_in_this_process_and_another() {
    for (entry, action) in ENTRIES {
        for actor in ACTORS {
            for elsewhere in [false, true] {
                let paid = Paid::default();
                let (store, clock, rig) = waiting(&paid, roles()).await;
                let other = process(support(&paid), &store, &clock, roles());
                let conversations = if elsewhere { &other.conversations } else { &rig.conversations };
                let said = enter(entry, ("c_1", "c1"), conversations, user(actor.0, actor.1)).await;
                assert_eq!(said, expected(*actor, entry, *action), "{actor:?} at {entry}, elsewhere: {elsewhere}");
            }
        }
    }
}

#[tokio::test]
async fn every_actor_may_the_same_while_another_process_has_the_conversation() {
    let orders = ["resolve", "answer", "cancel", "send", "queue", "log", "snapshot", "delete", "hold", "export"];
    for (entry, action) in ENTRIES.iter().filter(|(entry, _)| orders.contains(entry)) {
        for actor in ACTORS {
            let paid = Paid::default();
            let (store, clock) = (FaultyStore::shared(), PausedClock::default());
            // The first call runs on and keeps the conversation; the second waits.
            let busy =
                function_with_schema("busy", "Never ends.", json!({"type": "object"}), Effect::Pure, |_, _| async {
                    std::future::pending::<()>().await;
                    Ok("never")
                });
            let calls = ScriptReply::calls("b1", "busy", json!({})).and_calls("c1", "refund", json!({"euro": 5}));
            let agent = Agent::builder("support", Script::of([calls])).tool(busy).tool(refund(&paid));
            let mut owner = process(agent, &store, &clock, roles());
            let _turn = owner.conversations.send(&owner.id, "pay me", ann()).await.unwrap();
            owner.settle().await;
            let builder = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone()));
            let there = builder.ids(Arc::new(SystemIds::default())).access(roles()).build();
            let said = enter(entry, ("c_1", "c1"), &there, user(actor.0, actor.1)).await;
            let sends = ["send", "queue"].contains(entry) && said != Verdict::Yes;
            let wanted = expected(*actor, entry, *action);
            assert!(
                said == wanted || sends && wanted != Verdict::Yes,
                "{actor:?} at {entry}: {said:?}, not {wanted:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_sub_agents_conversation_is_read_by_those_who_may_read_the_one_it_works_for() {
    let paid = Paid::default();
    let script = Script::of([ScriptReply::calls("s1", "support", json!({"task": "pay"})), ScriptReply::says("ok")]);
    let boss = Agent::builder("boss", script).tool(SubAgent::new(support(&paid).build().unwrap(), "Pays."));
    let rig = process(boss, &FaultyStore::shared(), &PausedClock::default(), roles());
    // A speaker's message makes the sub-agent's conversation; it belongs to the owner of the main one all the same.
    rig.conversations.subscribe(&rig.id, Delivery::Lossy, ann()).await.unwrap();
    rig.conversations.turn(&rig.id, "go", user("sam", "speaker")).await.unwrap();
    let child = rig.id.child(&"s1".into());
    for (actor, readable) in [(("ann", ""), true), (("rita", "reader"), true), (("bob", ""), false)] {
        let read = rig.conversations.log(&child, user(actor.0, actor.1)).await;
        assert_eq!(read.is_ok(), readable, "{actor:?}: {read:?}");
        let sent = rig.conversations.send(&child, "hi", user(actor.0, actor.1)).await;
        assert!(matches!(sent, Err(SendError::NotFound { .. })));
    }
}

/// What a sub-agent asks is answered in the conversation that it works for, and its own can only be read.
#[tokio::test]
async fn every_actor_at_every_entry_may_the_same_where_a_sub_agent_asks() {
    let readable = ["log", "records", "jobs", "left_turn"];
    for (entry, action) in ENTRIES {
        for actor in ACTORS {
            for child in [false, true] {
                let paid = Paid::default();
                let calls = ScriptReply::calls("s1", "support", json!({"task": "pay"}));
                let script = Script::of([calls, ScriptReply::says("ok")]);
                let clerk = SubAgent::new(support(&paid).build().unwrap(), "Pays.");
                let boss = Agent::builder("boss", script).tool(clerk);
                let rig = process(boss, &FaultyStore::shared(), &PausedClock::default(), roles());
                let status = rig.conversations.turn(&rig.id, "pay me", ann()).await.unwrap();
                assert!(matches!(status, TurnStatus::Waiting(_)));
                let at = if child { ("c_1/s1", "c1") } else { ("c_1", "s1") };
                let said = enter(entry, at, &rig.conversations, user(actor.0, actor.1)).await;
                let by_rule = expected(*actor, entry, *action);
                let wanted = match child && !["list", "pending", "delete_user"].contains(entry) {
                    true if readable.contains(entry) => by_rule,
                    true => Verdict::NotFound,
                    false => by_rule,
                };
                assert_eq!(said, wanted, "{actor:?} at {entry} of {at:?}");
            }
        }
    }
}

#[tokio::test]
async fn someone_who_may_not_is_told_who_could() {
    let paid = Paid::default();
    let (_, _, rig) = waiting(&paid, roles()).await;
    let said = rig.conversations.send(&rig.id, "hi", user("rita", "reader")).await.unwrap_err();
    assert_eq!(said.to_string(), "you may not say here, but its owner, or role speaker may");
    let answered =
        rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, user("rita", "reader")).await;
    assert!(answered.unwrap_err().to_string().contains("user ann, or role manager"));
}

#[tokio::test]
async fn a_closure_decides_and_the_system_never_answers() {
    let paid = Paid::default();
    let by_name = |actor: &Actor, _: AccessTo<'_>, action: Action| {
        actor.user_id().is_some_and(|id| &**id == "ann" || (&**id == "zoe" && action != Action::Say))
    };
    let (_, _, mut rig) = waiting(&paid, by_name).await;
    let zoe = || Scope::user("zoe");
    assert!(matches!(rig.conversations.send(&rig.id, "hi", zoe()).await, Err(SendError::Forbidden { .. })));
    let system = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::system()).await;
    assert!(matches!(system, Err(ResolveError::Forbidden { .. })), "{system:?}");
    let handle = rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, zoe()).await.unwrap();
    handle.wait().await.unwrap();
    rig.settle().await;
    assert_eq!(*paid.lock().unwrap(), [(json!({"euro": 5}), vec![Author::User("zoe".into())])]);
}

#[tokio::test]
async fn a_tool_that_cancels_its_turn_is_not_called_recovery() {
    let stop = function_with_schema("stop", "Stops.", json!({"type": "object"}), Effect::Pure, |turn, _| async move {
        turn.cancellation().cancel();
        std::future::pending::<()>().await;
        Ok("never")
    });
    let agent = Agent::builder("a", Script::of([ScriptReply::calls("c1", "stop", json!({}))])).tool(stop);
    let mut rig = turnbuckle::testing::Rig::new(agent.build().unwrap());
    rig.run("go").await.unwrap();
    let log = rig.log().await.unwrap();
    let EventKind::TurnEnded(ended) = &log.last().unwrap().kind else { panic!("it is not over") };
    assert_eq!(ended.by(), Some(&Author::System(SystemAuthor::Program)));
}

#[tokio::test]
async fn what_the_program_does_by_itself_is_not_called_recovery() {
    let paid = Paid::default();
    let (_, _, mut rig) = waiting(&paid, roles()).await;
    rig.conversations.cancel(&rig.id, Scope::system()).await.unwrap();
    rig.settle().await;
    let log = rig.conversations.log(&rig.id, ann()).await.unwrap();
    let EventKind::TurnEnded(ended) = &log.last().unwrap().kind else { panic!("it is not over") };
    assert_eq!(ended.by(), Some(&Author::System(SystemAuthor::Program)));
}
