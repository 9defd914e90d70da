//! The firing table: every point × every ending, with order and count. The table in the docs is written by this test.

use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::expect_file;
use serde_json::json;
use tokio::sync::Notify;
use turnbuckle::hook::*;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::{SubAgent, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxError, Limits, Scope, TurnStatus, WhileBusy};

use crate::kit::{Seen, Spy, add, adder, assert_valid, sum};

const POINTS: [&str; 15] = [
    "on_conversation",
    "before_agent",
    "before_model",
    "wrap_model_call",
    "stream",
    "after_model",
    "before_tool",
    "wrap_tool_call",
    "after_tool",
    "on_stop",
    "after_agent",
    "on_ended",
    "background",
    "on_logged",
    "on_event",
];

/// Blocks for ever at one point and says that it does.
#[derive(Clone)]
struct Block {
    at: &'static str,
    reached: Arc<Notify>,
}

impl Block {
    async fn here(&self, point: &str) {
        if self.at == point {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

impl Hook for Block {
    async fn before_agent(&self, _: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        self.here("accept").await;
        Ok(BeforeAgent::Continue)
    }
    async fn before_model(&self, _: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        self.here("build").await;
        Ok(BeforeModel::Continue)
    }
    async fn after_model(&self, _: &turnbuckle::Turn, _: &Arc<turnbuckle::Reply>) -> Result<AfterModel, BoxError> {
        self.here("call").await;
        Ok(AfterModel::Continue)
    }
    async fn before_tool(&self, _: &turnbuckle::Turn, _: &turnbuckle::ToolCall) -> Result<BeforeTool, BoxError> {
        self.here("dispatch").await;
        Ok(BeforeTool::Continue)
    }
    async fn on_stop(&self, _: &OnStopContext) -> Result<OnStop, BoxError> {
        self.here("end").await;
        Ok(OnStop::Accept)
    }
}

struct Ending {
    name: &'static str,
    seen: Vec<String>,
}

fn spied(agent: AgentBuilder) -> (Agent, Seen) {
    let seen = Seen::default();
    (agent.hook(Spy::new("spy", &seen)).build().unwrap(), seen)
}

async fn run(name: &'static str, agent: AgentBuilder, outcome: &str) -> Ending {
    let (agent, seen) = spied(agent);
    let mut rig = Rig::new(agent);
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.outcome.to_string(), outcome, "{name}: {:?}", ended.reason);
    rig.conversations.drain(std::time::Duration::from_secs(1)).await;
    assert_valid(&rig.log().await.unwrap());
    Ending { name, seen: seen.lock().unwrap().clone() }
}

async fn cancelled(stage: &'static str, name: &'static str) -> Ending {
    let block = Block { at: stage, reached: Arc::default() };
    let reached = block.reached.clone();
    let seen = Seen::default();
    let agent = adder(sum()).hook(Spy::new("spy", &seen)).hook(block).build().unwrap();
    let mut rig = Rig::new(agent);
    let handle = rig.send("go").await.unwrap();
    reached.notified().await;
    rig.conversations.cancel(&rig.id, Scope::local()).await.unwrap();
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("{name} waits") };
    assert_eq!(ended.outcome.to_string(), "cancelled", "{name}");
    rig.conversations.drain(std::time::Duration::from_secs(1)).await;
    assert_valid(&rig.log().await.unwrap());
    let seen = seen.lock().unwrap().clone();
    Ending { name, seen }
}

/// A message comes while the tool runs, and is given to the model at its next call.
async fn steered() -> Ending {
    let (seen, go, reached) = (Seen::default(), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let tool = {
        let (go, reached) = (go.clone(), reached.clone());
        function_with_schema("add", "Waits.", json!({"type": "object"}), Effect::Pure, move |_, _| {
            let (go, reached) = (go.clone(), reached.clone());
            async move {
                reached.notify_one();
                go.notified().await;
                Ok("4")
            }
        })
    };
    let agent = Agent::builder("adder", sum()).tool(tool).hook(Spy::new("spy", &seen)).build().unwrap();
    let mut rig = Rig::new(agent);
    let handle = rig.send("go").await.unwrap();
    reached.notified().await;
    let id = rig.id.clone();
    rig.conversations.send_while(&id, "in Roman numerals", Scope::local(), WhileBusy::Steer).await.unwrap();
    go.notify_one();
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.outcome.to_string(), "completed");
    rig.conversations.drain(std::time::Duration::from_secs(1)).await;
    assert_valid(&rig.log().await.unwrap());
    let seen = seen.lock().unwrap().clone();
    Ending { name: "steered", seen }
}

/// Everything but the store is dropped in mid-wait; another process answers, and the turn goes on.
async fn resumed() -> Ending {
    let store = MemoryStore::default();
    let seen = Seen::default();
    let agent = || adder(sum()).approve(["add"]).hook(Spy::new("spy", &seen)).build().unwrap();
    let mut first = Rig::on(agent(), store.clone());
    let TurnStatus::Waiting(pending) = first.run("go").await.unwrap() else { panic!("it does not wait") };
    drop(first);
    seen.lock().unwrap().clear();
    let mut second = Rig::on(agent(), store);
    second.listen().await.unwrap();
    let call = &pending[0].call;
    let answered = second.conversations.resolve(&second.id, call, Answer::Approve, None, Scope::local()).await;
    let TurnStatus::Ended(ended) = second.follow(answered.unwrap()).await.unwrap() else { panic!("it waits again") };
    assert_eq!(ended.text(), "4");
    second.conversations.drain(std::time::Duration::from_secs(1)).await;
    assert_valid(&second.log().await.unwrap());
    let seen = seen.lock().unwrap().clone();
    Ending { name: "resumed", seen }
}

async fn sub_agent() -> Ending {
    let seen = Seen::default();
    let inner = Agent::builder("inner", sum()).tool(add()).hook(Spy::new("spy", &seen)).build().unwrap();
    let script = Script::of([ScriptReply::calls("s1", "inner", json!({"task": "add"})), ScriptReply::says("done")]);
    let agent = Agent::builder("outer", script).tool(SubAgent::new(inner, "Adds.")).build().unwrap();
    let mut rig = Rig::new(agent);
    assert_eq!(rig.ended("go").await.unwrap().text(), "done");
    rig.conversations.drain(std::time::Duration::from_secs(1)).await;
    let seen = seen.lock().unwrap().clone();
    Ending { name: "sub-agent", seen }
}

#[tokio::test]
async fn every_point_fires_as_the_table_in_the_docs_says() {
    let halt = pre("halt", |turn: BeforeAgentContext| async move { turn.halt("no") });
    let reject = guard("reject", |_, _| async { Ok(AfterModel::Reject("no".into())) });
    let forever = Script::of([ScriptReply::calls("c", "add", json!({"a": 1, "b": 1}))])
        .when_exhausted(turnbuckle::models::OnExhausted::Repeat);
    let few = Limits { max_model_calls: 2, ..Limits::default() };
    let table = [
        run("completed", adder(sum()), "completed").await,
        run("halted", adder(sum()).hook(halt), "halted").await,
        run("rejected", adder(sum()).hook(reject), "rejected").await,
        run("exhausted", adder(forever).limits(few), "exhausted").await,
        run("failed", adder(Script::of([ScriptReply::fails(400)])), "failed").await,
        cancelled("accept", "cancelled in accept").await,
        cancelled("build", "… build").await,
        cancelled("call", "… call").await,
        cancelled("dispatch", "… dispatch").await,
        cancelled("end", "… end").await,
        resumed().await,
        steered().await,
        sub_agent().await,
    ];
    expect_file!["../../../../docs/firing.md"].assert_eq(&written(&table));
}

fn written(endings: &[Ending]) -> String {
    let mut page = String::from(
        "# Which points fire when\n\n\
         A hook at every point, registered before the hook that ends the turn (after it for `halted` and `rejected`), on a\n\
         turn that calls one tool and then answers. The number says how often the point fired. `on_event` is marked, not\n\
         counted. `resumed` counts what fires after the restart: the call was decided before it. `steered` is a completed\n\
         turn that was given a second message while its tool ran. `before_compaction` is not in it: it fires between turns,\n\
         once for each try at a summary of old turns. This table is written by\n\
         `crates/turnbuckle/tests/it/firing.rs`.\n\n| point |",
    );
    for ending in endings {
        write!(page, " {} |", ending.name).unwrap();
    }
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(endings.len()));
    for point in POINTS {
        write!(page, "\n| `{point}` |").unwrap();
        for ending in endings {
            let count = ending.seen.iter().filter(|seen| **seen == format!("spy {point}")).count();
            match (count, point) {
                (0, _) => page.push_str(" |"),
                (_, "on_event") => page.push_str(" ✓ |"),
                _ => write!(page, " {count} |").unwrap(),
            }
        }
    }
    page.push_str("\n\nIn order, for a completed turn:\n\n```\n");
    for line in endings[0].seen.iter().filter(|line| !line.ends_with("on_event")) {
        writeln!(page, "{}", line.trim_start_matches("spy ")).unwrap();
    }
    page.push_str("```\n");
    page
}

#[tokio::test]
async fn a_hook_that_passes_everywhere_leaves_the_same_log_as_none() {
    let logs = [false, true].map(|spied| async move {
        let seen = Seen::default();
        let agent = adder(sum());
        let agent = if spied { agent.hook(Spy::new("spy", &seen)) } else { agent };
        let mut rig = Rig::new(agent.build().unwrap());
        rig.run("what is 2+2?").await.unwrap();
        rig.run("again").await.unwrap();
        rig.conversations.drain(std::time::Duration::from_secs(1)).await;
        serde_json::to_string(&rig.log().await.unwrap()).unwrap()
    });
    let [none, passing] = logs;
    assert_eq!(none.await, passing.await);
}

#[tokio::test]
async fn hooks_run_in_registration_order_and_the_first_wrap_is_the_outermost() {
    let seen = Seen::default();
    let agent = adder(sum()).hook(Spy::new("a", &seen)).hook(Spy::new("b", &seen)).build().unwrap();
    let mut rig = Rig::new(agent);
    rig.run("go").await.unwrap();
    rig.conversations.drain(std::time::Duration::from_secs(1)).await;
    let seen = seen.lock().unwrap().clone();
    for point in POINTS.iter().filter(|point| !point.starts_with("wrap")) {
        let names: Vec<_> =
            seen.iter().filter(|line| line.ends_with(&format!(" {point}"))).map(|line| &line[..1]).collect();
        assert!(names.chunks(2).all(|pair| pair == ["a", "b"]), "{point}: {names:?}");
        assert!(!names.is_empty(), "{point}");
    }
    for wrap in ["wrap_model_call", "wrap_tool_call"] {
        let around: Vec<_> = seen.iter().filter(|line| line.ends_with(wrap)).take(4).cloned().collect();
        assert_eq!(around, [format!("a {wrap}"), format!("b {wrap}"), format!("b /{wrap}"), format!("a /{wrap}")]);
    }
}

#[tokio::test]
async fn a_tool_that_is_denied_never_reaches_its_wraps() {
    let seen = Seen::default();
    let deny = gate("deny", |_, _| async { Ok(BeforeTool::Deny("no".into())) });
    let danger = function_with_schema("add", "Must not run.", json!({"type": "object"}), Effect::Never, |_, _| async {
        panic!("it ran");
        #[allow(unreachable_code)]
        Ok("")
    });
    let agent = Agent::builder("a", sum()).tool(danger).hook(deny).hook(Spy::new("spy", &seen)).build().unwrap();
    let mut rig = Rig::new(agent);
    rig.run("go").await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(!seen.iter().any(|line| line.contains("wrap_tool_call") || line.contains("after_tool")), "{seen:?}");
}
