//! A hook's own failure: error, panic, timeout. It never fails open in silence, and it never leaves half an edit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use turnbuckle::event::EventKind;
use turnbuckle::hook::*;
use turnbuckle::message::{Reply, ToolCall};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, BoxError, Outcome, Scope, Turn, TurnId, TurnStatus};

use crate::kit::{adder, assert_valid, sum};

/// Fails at one point, in one way.
#[derive(Clone, Copy)]
struct Broken {
    at: Point,
    how: How,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Error,
    Panic,
    PanicLater,
    /// Its error comes from one that must block.
    MustBlock,
}

#[derive(Debug, thiserror::Error)]
#[error("broken")]
struct Tampered(#[source] MustBlock);

impl Broken {
    async fn at<T: Default>(&self, point: Point) -> Result<T, BoxError> {
        if self.at != point {
            return Ok(T::default());
        }
        match self.how {
            How::Error => Err("broken".into()),
            How::Panic => panic!("broken"),
            How::MustBlock => Err(Tampered(MustBlock("somebody changed it".into())).into()),
            How::PanicLater => {
                tokio::task::yield_now().await;
                panic!("broken")
            }
        }
    }
}

impl Hook for Broken {
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        turn.inject("half an edit");
        self.at(Point::BeforeAgent).await
    }
    async fn before_model(&self, _: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        self.at(Point::BeforeModel).await
    }
    async fn wrap_model_call<'a>(
        &self,
        _: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        let failed = self.at::<()>(Point::WrapModelCall).await;
        match failed {
            Ok(()) => next.run(request, out).await,
            Err(error) => Err(ModelError::Protocol(error.to_string())),
        }
    }
    async fn after_model(&self, _: &Turn, _: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        self.at(Point::AfterModel).await
    }
    async fn before_tool(&self, _: &Turn, _: &ToolCall) -> Result<BeforeTool, BoxError> {
        self.at(Point::BeforeTool).await
    }
    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        self.at::<()>(Point::WrapToolCall).await?;
        next.run(call).await
    }
    async fn after_tool(&self, _: &Turn, _: &ToolCall, _: &Output) -> Result<AfterTool, BoxError> {
        self.at(Point::AfterTool).await
    }
    async fn on_stop(&self, _: &OnStopContext) -> Result<OnStop, BoxError> {
        self.at(Point::OnStop).await
    }
    async fn after_agent(&self, _: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        self.at(Point::AfterAgent).await
    }
    async fn on_ended(&self, _: &turnbuckle::TurnReport) -> Result<(), BoxError> {
        self.at(Point::OnEnded).await
    }
}

const BLOCKING: [Point; 7] = [
    Point::BeforeAgent,
    Point::BeforeModel,
    Point::WrapModelCall,
    Point::AfterModel,
    Point::BeforeTool,
    Point::WrapToolCall,
    Point::AfterTool,
];
const IGNORED: [Point; 3] = [Point::OnStop, Point::AfterAgent, Point::OnEnded];
const WAYS: [How; 3] = [How::Error, How::Panic, How::PanicLater];

fn at_a_tool(point: Point) -> bool {
    matches!(point, Point::BeforeTool | Point::WrapToolCall | Point::AfterTool)
}

#[tokio::test]
async fn a_failure_that_blocks_ends_the_turn_or_the_call_and_names_the_hook() {
    for (point, how) in BLOCKING.into_iter().flat_map(|point| WAYS.map(|how| (point, how))) {
        let mut rig = Rig::new(adder(sum()).hook(Broken { at: point, how }).build().unwrap());
        let trace = rig.trace("go").await;
        assert_valid(&rig.log().await.unwrap());
        if at_a_tool(point) {
            assert!(trace.contains("dispatch  add(2, 2) ! ") && trace.contains("broken"), "{point} {how:?}\n{trace}");
            assert!(trace.ends_with("end       completed\n"), "{point} {how:?}\n{trace}");
        } else if (point, how) == (Point::WrapModelCall, How::Error) {
            // A wrap that returns an error has answered: it is the model's error, not the hook's.
            assert!(trace.contains("end       failed: the model's answer makes no sense: broken"), "{trace}");
        } else {
            assert!(
                trace.contains(&format!("end       failed by hook broken: hook broken failed at {point}")),
                "{point} {how:?}\n{trace}"
            );
        }
    }
}

#[tokio::test]
async fn a_failure_that_is_ignored_is_as_if_the_hook_were_not_there() {
    let ignored = BLOCKING.into_iter().chain(IGNORED).filter(|point| *point != Point::WrapToolCall);
    for (point, how) in ignored.flat_map(|point| WAYS.map(|how| (point, how))) {
        if (point, how) == (Point::WrapModelCall, How::Error) {
            continue;
        }
        let model = Recorder::of(sum());
        let agent = Agent::builder("a", model.clone()).tool(crate::kit::add());
        let hook = Broken { at: point, how }.on_failure(OnFailure::Ignore);
        let mut rig = Rig::new(agent.hook(hook).build().unwrap());
        let ended = rig.ended("go").await.unwrap();
        assert_eq!((ended.outcome, ended.text()), (Outcome::Completed, "4".to_owned()), "{point} {how:?}");
        if point == Point::BeforeAgent {
            assert_eq!(model.requests()[0].messages[0].content().text(), "go", "half an edit was left");
        }
    }
}

#[tokio::test]
async fn a_failure_that_must_block_is_never_ignored() {
    for point in BLOCKING.into_iter().chain([Point::OnStop, Point::AfterAgent]) {
        // An error of a wrap is the answer of the model or the tool, not the hook's failure.
        if matches!(point, Point::WrapModelCall | Point::WrapToolCall) {
            continue;
        }
        let hook = Broken { at: point, how: How::MustBlock }.on_failure(OnFailure::Ignore);
        let mut rig = Rig::new(adder(sum()).hook(hook).build().unwrap());
        let trace = rig.trace("go").await;
        let expected = match at_a_tool(point) {
            true => "dispatch  add(2, 2) ! ".to_owned(),
            false => format!("end       failed by hook broken: hook broken failed at {point}: broken"),
        };
        assert!(trace.contains(&expected) && trace.contains("broken"), "{point}\n{trace}");
    }
}

#[tokio::test]
async fn every_run_leaves_a_record() {
    let mut rig = Rig::new(adder(sum()).hook(Broken { at: Point::OnStop, how: How::Error }).build().unwrap());
    rig.run("go").await.unwrap();
    let records = rig.conversations.records(&rig.id, &TurnId::from("t_1"), Scope::local()).await.unwrap();
    let lines: Vec<_> = records.iter().map(|record| format!("{} {}", record.point, record.decision)).collect();
    assert_eq!(
        lines,
        [
            "before_agent continue",
            "before_model continue",
            "after_model continue",
            "wrap_model_call wrap",
            "before_tool continue",
            "after_tool continue",
            "wrap_tool_call wrap",
            "before_model continue",
            "after_model continue",
            "wrap_model_call wrap",
            "on_stop failed",
            "after_agent continue",
            "on_ended continue",
        ]
    );
    assert_eq!(records[0].tokens, 3);
    assert_eq!(records[10].failure.as_deref(), Some("broken"));
}

#[tokio::test]
async fn a_hook_that_takes_too_long_is_dropped_and_its_edits_with_it() {
    let slow = |name: &'static str| {
        pre(name, |mut turn: BeforeAgentContext| async move {
            turn.inject("too late");
            std::future::pending::<()>().await;
            turn.proceed()
        })
        .timeout(Duration::from_secs(2))
    };
    let mut rig = Rig::new(adder(sum()).hook(slow("slow")).build().unwrap());
    let handle = rig.send("go").await.unwrap();
    rig.clock.pass(Duration::from_secs(2)).await;
    let TurnStatus::Ended(ended) = rig.follow(handle).await.unwrap() else { panic!("it waits") };
    assert_eq!(ended.reason.as_deref(), Some("hook slow failed at before_agent: it took longer than 2s"));

    let model = Recorder::of(Script::says(["ok"]));
    let agent = Agent::builder("a", model.clone()).hook(slow("slow").on_failure(OnFailure::Ignore));
    let mut rig = Rig::new(agent.build().unwrap());
    let handle = rig.send("go").await.unwrap();
    rig.clock.pass(Duration::from_secs(2)).await;
    rig.follow(handle).await.unwrap();
    assert_eq!(model.requests()[0].messages[0].content().text(), "go");
}

#[tokio::test]
async fn a_hook_that_blocks_its_thread_delays_the_turn_and_breaks_nothing() {
    let clock = turnbuckle::testing::PausedClock::default();
    let rig_clock = clock.clone();
    let busy = pre("busy", move |turn: BeforeAgentContext| {
        // Time passes while the hook holds the thread: nobody can drop it.
        rig_clock.advance(Duration::from_secs(120));
        async move { turn.proceed() }
    });
    let agent = adder(sum()).hook(busy).build().unwrap();
    let clock_for_rig = Arc::new(clock);
    let mut rig = Rig::with(agent, turnbuckle::stores::MemoryStore::default(), |builder| builder.clock(clock_for_rig));
    let ended = rig.ended("go").await.unwrap();
    assert_eq!((ended.outcome, ended.ms), (Outcome::Completed, 120_000));
}

/// Fails when the tool has run so often, and says that its failure does not matter.
struct CarelessAudit {
    runs: usize,
}

impl Hook for CarelessAudit {
    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        for _ in 0..self.runs {
            let _ = next.run(call).await;
        }
        panic!("the audit file is gone")
    }
}

#[tokio::test]
async fn a_wrap_whose_failure_is_ignored_never_makes_its_tool_run_again() {
    for (runs, fails, expected) in [
        (0, false, "paid"),
        (1, false, "paid"),
        (1, true, "the tool failed: it was begun, and a hook around it failed: it panicked: the audit file is gone"),
    ] {
        let paid = Arc::new(AtomicU32::new(0));
        let count = paid.clone();
        let pay = function_with_schema("pay", "Pays.", json!({"type": "object"}), Effect::Never, move |_, _| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { if fails { Err("declined".into()) } else { Ok("paid") } }
        });
        let script = Script::of([ScriptReply::calls("c1", "pay", json!({})), ScriptReply::says("done")]);
        let audit = CarelessAudit { runs }.on_failure(OnFailure::Ignore);
        let mut rig = Rig::new(Agent::builder("a", script).tool(pay).hook(audit).build().unwrap());
        rig.ended("go").await.unwrap();
        let result = |kind: &EventKind| match kind {
            EventKind::ToolResult { content, .. } => Some(content.text()),
            _ => None,
        };
        assert_eq!(rig.log().await.unwrap().iter().find_map(|event| result(&event.kind)).unwrap(), expected);
        assert_eq!(paid.load(Ordering::SeqCst), 1);
    }
}
