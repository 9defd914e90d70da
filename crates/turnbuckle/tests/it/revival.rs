//! A turn that a crash left is carried on: by the rules of its log, and by the effect policy of the tool that was at work.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use turnbuckle::conversation::{Cancelled, TurnReport};
use turnbuckle::event::{EventKind, Question};
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::*;
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::projection::Pending;
use turnbuckle::store::{Answer, LEASE, Store};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder, Limits, Outcome, Scope, Turn, TurnStatus};

use crate::faulty_store::FaultyStore;
use crate::kit::assert_valid;

/// What tools did to the world: their call ids, in order.
type World = Arc<Mutex<Vec<String>>>;

/// Calls a tool that has its effect and, in a process that is going to die, never returns.
fn agent(world: &World, effect: Effect, dies: bool) -> AgentBuilder {
    let world = world.clone();
    let book = function_with_schema("book", "Books.", json!({"type": "object"}), effect, move |turn, _| {
        let world = world.clone();
        async move {
            world.lock().unwrap().push(turn.call().unwrap().to_string());
            if dies {
                std::future::pending::<()>().await;
            }
            Ok("booked")
        }
    });
    let script = Script::of([ScriptReply::calls("c1", "book", json!({})), ScriptReply::says("done")]);
    Agent::builder("a", script).tool(book)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// Runs a turn until nothing moves any more, and kills the process there.
fn killed(agent: AgentBuilder, store: &(impl Store + Clone)) {
    let process = runtime();
    let mut rig = Rig::on(agent.build().unwrap(), store.clone());
    process.block_on(async {
        let turn = rig.send("go").await.unwrap();
        rig.settle().await;
        drop(turn);
    });
    drop(process);
}

/// A new process, in which the lease of the dead one has lapsed.
fn reborn(agent: AgentBuilder, store: &(impl Store + Clone)) -> Rig {
    let rig = Rig::with(agent.build().unwrap(), store.clone(), |builder| builder.ids(Arc::new(SystemIds::default())));
    rig.clock.advance(LEASE);
    rig
}

async fn resumed(rig: &mut Rig) -> TurnStatus {
    rig.listen().await.unwrap();
    let turn = rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().expect("no turn is open");
    rig.follow(turn).await.unwrap()
}

async fn ended(rig: &mut Rig) -> TurnReport {
    let TurnStatus::Ended(ended) = resumed(rig).await else { panic!("it waits") };
    assert_valid(&rig.log().await.unwrap());
    *ended
}

async fn result(rig: &Rig) -> String {
    let log = rig.log().await.unwrap();
    let found = log.iter().find_map(|event| match &event.kind {
        EventKind::ToolResult { content, .. } => Some(content.text()),
        _ => None,
    });
    found.unwrap()
}

/// Died while the tool was at work; revived under `effect`: what the world saw, and what the model read.
fn after_death(effect: Effect) -> (Vec<String>, String) {
    let (world, store) = (World::default(), FaultyStore::shared());
    killed(agent(&world, effect.clone(), true), &store);
    runtime().block_on(async {
        let mut rig = reborn(agent(&world, effect, false), &store);
        assert_eq!(ended(&mut rig).await.text(), "done");
        let result = result(&rig).await;
        (world.lock().unwrap().clone(), result)
    })
}

#[test]
fn pure_and_idempotent_tools_run_again_with_the_same_call_id() {
    for effect in [Effect::Pure, Effect::Idempotent] {
        assert_eq!(after_death(effect), (vec!["c1".to_owned(), "c1".to_owned()], "booked".to_owned()));
    }
}

#[test]
fn a_tool_that_must_never_run_twice_leaves_an_error_that_says_nobody_knows() {
    let (world, result) = after_death(Effect::Never);
    assert_eq!(world, ["c1"]);
    assert!(result.contains("whether it happened is unknown"), "{result}");
}

#[test]
fn a_tool_that_reconciles_asks_the_world_and_runs_only_if_it_did_not_happen() {
    let found = Effect::reconcile(|_, call| async move { Ok(Some(Output::ok(format!("{} stands", call.call)))) });
    assert_eq!(after_death(found), (vec!["c1".to_owned()], "c1 stands".to_owned()));
    let lost = Effect::reconcile(|_, _| async { Ok(None) });
    assert_eq!(after_death(lost), (vec!["c1".to_owned(), "c1".to_owned()], "booked".to_owned()));
    let unreachable = Effect::reconcile(|_, _| async { Err("the world does not answer".into()) });
    let (world, result) = after_death(unreachable);
    assert_eq!(world, ["c1"], "what cannot be found out is not done again");
    assert!(result.contains("the world does not answer"), "{result}");
}

#[test]
fn a_tool_that_asks_runs_again_only_if_a_person_says_so() {
    for (answer, times) in [(Answer::Approve, 2), (Answer::Deny(None), 1)] {
        let (world, store) = (World::default(), FaultyStore::shared());
        killed(agent(&world, Effect::Ask, true), &store);
        runtime().block_on(async {
            let mut rig = reborn(agent(&world, Effect::Ask, false), &store);
            let TurnStatus::Waiting(pending) = resumed(&mut rig).await else { panic!("it did not ask") };
            let [Pending { call, .. }] = &pending[..] else { panic!("{pending:?}") };
            assert_eq!(world.lock().unwrap().len(), 1);
            let turn = rig.conversations.resolve(&rig.id, call, answer, None, Scope::local()).await.unwrap();
            assert!(matches!(rig.follow(turn).await.unwrap(), TurnStatus::Ended(_)));
            assert_eq!(*world.lock().unwrap(), vec!["c1"; times]);
            assert_valid(&rig.log().await.unwrap());
        });
    }
}

/// Revived, approved, and killed again in the middle of the tool.
fn approved_and_killed(agent: AgentBuilder, store: &FaultyStore) {
    let process = runtime();
    let mut rig = reborn(agent, store);
    process.block_on(async {
        assert!(matches!(resumed(&mut rig).await, TurnStatus::Waiting(_)));
        let call = "c1".into();
        let turn = rig.conversations.resolve(&rig.id, &call, Answer::Approve, None, Scope::local()).await.unwrap();
        rig.settle().await;
        drop(turn);
    });
    drop(process);
}

#[test]
fn an_approval_to_run_again_serves_for_one_run() {
    let (world, store) = (World::default(), FaultyStore::shared());
    killed(agent(&world, Effect::Ask, true), &store);
    approved_and_killed(agent(&world, Effect::Ask, true), &store);
    assert_eq!(*world.lock().unwrap(), ["c1", "c1"]);
    runtime().block_on(async {
        let mut rig = reborn(agent(&world, Effect::Ask, false), &store);
        rig.clock.advance(LEASE);
        assert!(matches!(resumed(&mut rig).await, TurnStatus::Waiting(_)), "it is asked again");
        assert_eq!(world.lock().unwrap().len(), 2);
    });
}

#[test]
fn a_tool_that_asked_in_its_own_words_and_must_never_run_twice_does_not() {
    let (world, store) = (World::default(), FaultyStore::shared());
    let agent = || {
        let world = world.clone();
        let book =
            function_with_schema("book", "Books.", json!({"type": "object"}), Effect::Never, move |turn: Turn, _| {
                let world = world.clone();
                async move {
                    if turn.answer().is_none() {
                        return Ok(Output::wait(Question::Pause { hook: "book".into(), reason: "really?".into() }));
                    }
                    world.lock().unwrap().push("booked".to_owned());
                    std::future::pending().await
                }
            });
        let script = Script::of([ScriptReply::calls("c1", "book", json!({})), ScriptReply::says("done")]);
        Agent::builder("a", script).tool(book)
    };
    killed(agent(), &store);
    approved_and_killed(agent(), &store);
    runtime().block_on(async {
        let mut rig = reborn(agent(), &store);
        rig.clock.advance(LEASE);
        assert_eq!(ended(&mut rig).await.text(), "done");
        assert!(result(&rig).await.contains("whether it happened is unknown"));
        assert_eq!(*world.lock().unwrap(), ["booked"]);
    });
}

#[test]
fn a_call_of_a_tool_that_is_gone_is_an_error_that_says_whether_it_may_have_happened() {
    let (world, store) = (World::default(), FaultyStore::shared());
    killed(agent(&world, Effect::Idempotent, true), &store);
    runtime().block_on(async {
        let without = Agent::builder("a", Script::says(["never asked", "done"]));
        let mut rig = reborn(without, &store);
        // An agent without the tool carries the turn on only if a person insists.
        rig.conversations.accept_changes(&rig.id, Scope::local()).await.unwrap().expect("nothing is missing");
        assert_eq!(ended(&mut rig).await.text(), "done");
        let result = result(&rig).await;
        assert!(result.contains("no tool named") && result.contains("whether it happened is unknown"), "{result}");
    });
}

#[test]
fn a_revived_turn_keeps_its_limits_and_says_that_the_configuration_changed() {
    let (world, store) = (World::default(), FaultyStore::shared());
    let limits = |calls| Limits { max_model_calls: calls, ..Limits::default() };
    killed(agent(&world, Effect::Pure, true).limits(limits(2)), &store);
    runtime().block_on(async {
        let mut rig = reborn(agent(&world, Effect::Pure, false).limits(limits(1)), &store);
        assert_eq!(ended(&mut rig).await.outcome, Outcome::Completed);
        let notice = |what: &FeedItem| {
            matches!(what, FeedItem::Live(LiveEvent::Notice { text, .. }) if text.contains("configuration changed"))
        };
        assert!(rig.told().iter().any(|told| notice(&told.item)));
    });
}

#[test]
fn the_bag_of_a_revived_turn_comes_from_the_scope_source() {
    struct Desk(&'static str);
    let agent = |dies: bool| {
        let read = function_with_schema(
            "read",
            "Reads.",
            json!({"type": "object"}),
            Effect::Pure,
            move |turn, _| async move {
                if dies {
                    std::future::pending::<()>().await;
                }
                let user = turn.scope().user_id().map(ToString::to_string);
                Ok(format!("{user:?} at {}", turn.scope().get::<Desk>().map_or("no desk", |desk| desk.0)))
            },
        );
        let script = Script::of([ScriptReply::calls("c1", "read", json!({})), ScriptReply::says("done")]);
        Agent::builder("a", script).tool(read)
    };
    let store = FaultyStore::shared();
    killed(agent(true), &store);
    runtime().block_on(async {
        let mut rig = Rig::with(agent(false).build().unwrap(), store, |builder| {
            builder.scope_source(|actor| Scope::of(actor.clone()).with(Desk("the front desk")))
        });
        rig.clock.advance(LEASE);
        ended(&mut rig).await;
        assert_eq!(result(&rig).await, "Some(\"local\") at the front desk");
    });
}

#[test]
fn stop_hooks_that_died_run_again_and_the_model_is_not_asked_again() {
    let store = FaultyStore::shared();
    let agent = |model: &Recorder, dies: bool| {
        let judge = stop("judge", move |_| async move {
            if dies {
                std::future::pending::<()>().await;
            }
            Ok(OnStop::Advise("well done".into()))
        });
        Agent::builder("a", model.clone()).hook(judge.timeout(Duration::from_secs(3600)))
    };
    let model = Recorder::of(Script::says(["said"]));
    killed(agent(&model, true), &store);
    runtime().block_on(async {
        let mut rig = reborn(agent(&model, false), &store);
        assert_eq!(ended(&mut rig).await.text(), "said");
        assert_eq!(model.requests().len(), 1);
    });
}

#[test]
fn hooks_and_tools_of_a_revived_turn_see_the_context_that_they_would_have_seen() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let agent = |dies: bool| {
        let (in_tool, in_stop) = (seen.clone(), seen.clone());
        let look = function_with_schema("look", "Looks.", json!({"type": "object"}), Effect::Pure, move |turn, _| {
            let seen = in_tool.clone();
            async move {
                let texts =
                    turn.context().map(|request| request.messages.iter().map(|said| said.content().text()).collect());
                seen.lock().unwrap().push(texts.map_or("nothing".to_owned(), |texts: Vec<_>| texts.join("|")));
                if dies {
                    std::future::pending::<()>().await;
                }
                Ok("looked")
            }
        });
        let stop = stop("stop", move |turn: OnStopContext| {
            let seen = in_stop.clone();
            async move {
                seen.lock().unwrap().push(format!("{:?}", turn.context().map(|request| request.messages.len())));
                Ok(OnStop::Accept)
            }
        });
        let inject = pre("weather", |mut turn: BeforeAgentContext| async move {
            turn.inject(" rain");
            turn.proceed()
        });
        let script = Script::of([ScriptReply::calls("c1", "look", json!({})), ScriptReply::says("done")]);
        Agent::builder("a", script).tool(look).hook(inject).hook(stop)
    };
    let store = FaultyStore::shared();
    killed(agent(true), &store);
    runtime().block_on(async {
        let mut rig = reborn(agent(false), &store);
        ended(&mut rig).await;
    });
    assert_eq!(*seen.lock().unwrap(), ["go rain", "go rain", "Some(3)"]);
}

#[test]
fn a_message_that_is_cancelled_stays_cancelled_behind_a_turn_that_a_crash_left() {
    // Not durable: no letter says once more what is cancelled.
    let (world, store) = (World::default(), MemoryStore::default());
    killed(agent(&world, Effect::Pure, true), &store);
    runtime().block_on(async {
        let rig = reborn(agent(&world, Effect::Pure, false), &store);
        let (id, door) = (&rig.id, &rig.conversations);
        // Cancelled while its driver is on its way, and about to find the other turn.
        let (sent, cancelled) =
            tokio::join!(door.send(id, "and then?", Scope::local()), door.cancel(id, Scope::local()));
        let sent = sent.unwrap();
        assert_eq!(cancelled.unwrap(), Cancelled::Local { turn: sent.turn().clone() });
        let TurnStatus::Ended(ended) = sent.wait().await.unwrap() else { panic!("it waits") };
        assert_eq!(ended.outcome, Outcome::Cancelled);
        let log = rig.log().await.unwrap();
        assert_valid(&log);
        let ends: Vec<_> = log.iter().filter_map(|event| outcome(&event.kind)).collect();
        assert_eq!(ends, [Outcome::Completed, Outcome::Cancelled]);
    });
}

fn outcome(kind: &EventKind) -> Option<Outcome> {
    match kind {
        EventKind::TurnEnded(ended) => Some(ended.outcome),
        _ => None,
    }
}

#[test]
fn what_was_cancelled_stays_cancelled() {
    let (world, store) = (World::default(), FaultyStore::shared());
    let process = runtime();
    process.block_on(async {
        let mut rig = Rig::on(agent(&world, Effect::Pure, true).build().unwrap(), store.clone());
        let turn = rig.send("go").await.unwrap();
        rig.settle().await;
        rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
        assert!(
            matches!(rig.follow(turn).await.unwrap(), TurnStatus::Ended(ended) if ended.outcome == Outcome::Cancelled)
        );
    });
    drop(process);
    runtime().block_on(async {
        let rig = reborn(agent(&world, Effect::Pure, false), &store);
        assert!(rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().is_none());
        assert_eq!(world.lock().unwrap().len(), 1);
    });
}

#[test]
fn durable_and_transient_injections_stand_in_their_places_after_a_revival() {
    let store = FaultyStore::shared();
    let agent = |model: &Recorder, world: &World, dies| {
        let inject = |text: &'static str| {
            move |mut turn: BeforeAgentContext| async move {
                turn.inject(text);
                turn.proceed()
            }
        };
        let world = world.clone();
        let book = function_with_schema("book", "Books.", json!({"type": "object"}), Effect::Pure, move |_, _| {
            let world = world.clone();
            async move {
                world.lock().unwrap().push("book".to_owned());
                if dies {
                    std::future::pending::<()>().await;
                }
                Ok("booked")
            }
        });
        Agent::builder("a", model.clone())
            .tool(book)
            .hook(pre("profile", inject("durable")).durable())
            .hook(pre("weather", inject("transient")))
    };
    let replies = || {
        Script::of([ScriptReply::calls("c1", "book", json!({})), ScriptReply::says("done"), ScriptReply::says("next")])
    };
    let (model, world) = (Recorder::of(replies()), World::default());
    killed(agent(&model, &world, true), &store);
    runtime().block_on(async {
        let mut rig = reborn(agent(&model, &world, false), &store);
        ended(&mut rig).await;
        rig.ended("and then?").await.unwrap();
    });
    let requests = model.requests();
    let texts =
        |index: usize| requests[index].messages.iter().map(|message| message.content().text()).collect::<Vec<_>>();
    assert_eq!(texts(0), ["gotransientdurable"]);
    assert_eq!(texts(1), ["gotransientdurable", "", "booked"], "the same bytes before and after the crash");
    assert_eq!(texts(2), ["godurable", "", "booked", "done", "and then?transientdurable"]);
}
