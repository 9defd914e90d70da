//! Money, tokens and time that a turn has used are not forgotten by a crash.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use turnbuckle::hook::{AfterModel, guard};
use turnbuckle::message::Usage;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::crash::Kit;
use turnbuckle::testing::{PausedClock, Rig};
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, AgentBuilder, BoxFuture, Limits, Outcome, Reply, Scope, TurnReport, TurnStatus};

/// A script that costs a dollar and 15 tokens a reply.
struct Priced(Script);

impl Model for Priced {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let mut reply = self.0.stream(request, out).await?;
            reply.usage = Usage { input: 10, output: 5, ..Usage::default() };
            Ok(reply)
        })
    }
    fn price(&self, _: &Usage) -> Option<f64> {
        Some(1.0)
    }
}

/// Calls a tool twice, which never returns in a process that is going to die, then says that it is done.
fn agent(dies: bool) -> AgentBuilder {
    let wait =
        function_with_schema("wait", "Waits.", json!({"type": "object"}), Effect::Pure, move |_, _| async move {
            if dies {
                std::future::pending::<()>().await;
            }
            Ok("waited")
        });
    let calls = |id| ScriptReply::calls(id, "wait", json!({}));
    Agent::builder("a", Priced(Script::of([calls("c1"), calls("c2"), ScriptReply::says("done")]))).tool(wait)
}

/// A turn whose first process works for so long and dies at its tool; the second one carries it on.
fn after_a_crash(limits: Limits, work: Duration) -> TurnReport {
    let (store, clock) = (MemoryStore::default(), PausedClock::default());
    let process = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rig = |dies| {
        let agent = agent(dies).limits(limits.clone()).build().unwrap();
        Rig::with(agent, store.clone(), |builder| builder.clock(Arc::new(clock.clone())))
    };
    let first = process();
    first.block_on(async {
        let mut rig = rig(true);
        let turn = rig.send("go").await.unwrap();
        rig.settle().await;
        // The model's reply and the start of the tool are written before this time passes, the renewal after it.
        clock.advance(work);
        rig.settle().await;
        drop(turn);
    });
    drop(first);
    clock.advance(Duration::from_secs(3600));
    process().block_on(async {
        let mut rig = rig(false);
        rig.listen().await.unwrap();
        let turn = rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().expect("no turn is open");
        let TurnStatus::Ended(report) = rig.follow(turn).await.unwrap() else { panic!("it waits") };
        *report
    })
}

#[test]
fn what_a_turn_cost_before_a_crash_is_in_its_end() {
    let report = after_a_crash(Limits::default(), Duration::ZERO);
    assert_eq!((report.outcome, report.model_calls), (Outcome::Completed, 3));
    assert!((report.cost - 3.0).abs() < 1e-9, "{report:?}");
    assert_eq!(report.usage.total(), 45);
}

#[test]
fn max_cost_does_not_begin_anew_after_a_crash() {
    let report = after_a_crash(Limits { max_cost: 1.5, ..Limits::default() }, Duration::ZERO);
    assert_eq!(report.outcome, Outcome::Exhausted, "{report:?}");
    assert!((report.cost - 2.0).abs() < 1e-9, "{report:?}");
}

#[test]
fn an_hour_without_a_process_is_not_time_at_work() {
    let report = after_a_crash(Limits { turn_timeout: Duration::from_secs(60), ..Limits::default() }, Duration::ZERO);
    assert_eq!(report.outcome, Outcome::Completed, "{report:?}");
    assert!(report.ms < 60_000, "{report:?}");
}

/// Crashes at every boundary of a turn with a discarded attempt: what was spent is never less than without a crash.
#[test]
fn spending_is_kept_wherever_the_process_dies() {
    let report = Kit::new(|_| {
        let again = guard("again", |turn: turnbuckle::Turn, reply: Arc<Reply>| async move {
            let _ = turn;
            Ok(match reply.content.text().contains("draft") {
                true => AfterModel::Regenerate("finish it".into()),
                false => AfterModel::Continue,
            })
        });
        let script = Script::of([
            ScriptReply::says("a draft"),
            ScriptReply::calls("c1", "wait", json!({})),
            ScriptReply::says("done"),
        ]);
        let wait = function_with_schema("wait", "", json!({"type": "object"}), Effect::Pure, |_, _| async { Ok("ok") });
        Agent::builder("a", Priced(script)).tool(wait).hook(again).build()
    })
    .say("go")
    .run();
    report.assert_kept();
}

/// A sub-agent whose process dies after its first reply: what that cost is the parent's as well, exactly once.
#[test]
fn what_a_sub_agent_cost_before_a_crash_is_its_parents_cost() {
    let (store, clock) = (MemoryStore::default(), PausedClock::default());
    let process = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rig = |dies| {
        let helper = agent(dies).build().unwrap();
        let delegate = ScriptReply::calls("d1", "a", json!({"task": "help"}));
        let boss = Agent::builder("boss", Priced(Script::of([delegate, ScriptReply::says("all done")])));
        let boss = boss.tool(turnbuckle::tools::SubAgent::new(helper, "Helps.")).build().unwrap();
        Rig::with(boss, store.clone(), |builder| builder.clock(Arc::new(clock.clone())))
    };
    let first = process();
    first.block_on(async {
        let mut rig = rig(true);
        let turn = rig.send("go").await.unwrap();
        rig.settle().await;
        drop(turn);
    });
    drop(first);
    clock.advance(Duration::from_secs(3600));
    let report = process().block_on(async {
        let mut rig = rig(false);
        rig.listen().await.unwrap();
        let turn = rig.conversations.resume(&rig.id, Scope::local()).await.unwrap().expect("no turn is open");
        let TurnStatus::Ended(report) = rig.follow(turn).await.unwrap() else { panic!("it waits") };
        *report
    });
    assert_eq!(report.outcome, Outcome::Completed, "{report:?}");
    // Two replies of the parent and three of the sub-agent, of which one was given before the crash.
    assert!((report.cost - 5.0).abs() < 1e-9, "{report:?}");
    assert_eq!(report.usage.total(), 75);
}
