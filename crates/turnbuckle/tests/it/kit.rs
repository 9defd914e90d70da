//! What many test files share: an adder, a spy on every point, a log checker.

use std::sync::{Arc, Mutex};

use expect_test::Expect;
use serde_json::json;
use turnbuckle::conversation::TurnReport;
use turnbuckle::event::{Event, EventKind};
use turnbuckle::feed::FeedEvent;
use turnbuckle::hook::*;
use turnbuckle::message::{Reply, ToolCall};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::tool::{Effect, Output};
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, AgentBuilder, BoxError, Turn};

/// A tool that adds two numbers.
pub fn add() -> FunctionTool {
    let number = json!({"type": "integer"});
    let schema = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
    function_with_schema("add", "Adds.", schema, Effect::Pure, |_, args| async move {
        Ok((args["a"].as_i64().unwrap() + args["b"].as_i64().unwrap()).to_string())
    })
}

/// An agent that can add.
pub fn adder(script: Script) -> AgentBuilder {
    Agent::builder("adder", script).tool(add())
}

/// Calls the adder, then says the sum.
pub fn sum() -> Script {
    Script::of([ScriptReply::calls("c1", "add", json!({"a": 2, "b": 2})), ScriptReply::says("4")])
}

/// One message, and what came of it as text.
pub async fn check(agent: AgentBuilder, message: &str, expected: Expect) {
    let mut rig = Rig::new(agent.build().unwrap());
    expected.assert_eq(&rig.trace(message).await);
    assert_valid(&rig.log().await.unwrap());
}

/// What every log keeps to: seq without gaps from 1; one `turn_ended` a turn, its last but for notes; of an ended turn
/// every call has exactly one result, and no result is of an unknown call.
pub fn assert_valid(log: &[Arc<Event>]) {
    let mut turns = Vec::new();
    for (event, seq) in log.iter().zip(1..) {
        assert_eq!(event.seq, seq, "seq has a gap: {log:#?}");
        if !turns.contains(&&event.turn) {
            turns.push(&event.turn);
        }
    }
    for (index, turn) in turns.iter().enumerate() {
        let of_turn: Vec<&EventKind> =
            log.iter().filter(|event| event.turn == **turn).map(|event| &event.kind).collect();
        let ends = of_turn.iter().filter(|kind| matches!(kind, EventKind::TurnEnded(_))).count();
        let may_be_open = index + 1 == turns.len();
        assert!(ends == 1 || (ends == 0 && may_be_open), "turn {turn} ended {ends} times: {log:#?}");
        let results =
            |id| of_turn.iter().filter(|kind| matches!(kind, EventKind::ToolResult { call, .. } if call == id)).count();
        for kind in &of_turn {
            match kind {
                EventKind::ToolCall { call, .. } if ends == 1 => {
                    assert_eq!(results(call), 1, "call {call} has not one result: {log:#?}");
                }
                EventKind::ToolResult { call: id, .. } | EventKind::ToolStarted { call: id, .. } => {
                    let asked = |kind: &&&EventKind| matches!(kind, EventKind::ToolCall { call, .. } if call == id);
                    assert!(of_turn.iter().any(|kind| asked(&kind)), "nobody called {id}: {log:#?}");
                }
                _ => {}
            }
        }
    }
}

/// Counts awaits, and stops for good at one of them.
#[derive(Default)]
pub struct Ticker {
    stop_at: usize,
    count: std::sync::atomic::AtomicUsize,
    pub stopped: tokio::sync::Notify,
}

impl Ticker {
    pub fn stopping_at(stop_at: usize) -> Arc<Self> {
        Arc::new(Self { stop_at, ..Self::default() })
    }
    pub async fn tick(&self) {
        let count = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if count == self.stop_at {
            self.stopped.notify_one();
            std::future::pending::<()>().await;
        }
        tokio::task::yield_now().await;
    }
}

/// What spies saw, in order: `NAME POINT`.
pub type Seen = Arc<Mutex<Vec<String>>>;

/// A hook at every point that passes everywhere and remembers where it was.
#[derive(Clone)]
pub struct Spy {
    pub name: &'static str,
    pub seen: Seen,
    /// Makes every point an await, and stops at one of them.
    pub ticker: Option<Arc<Ticker>>,
}

impl Spy {
    pub fn new(name: &'static str, seen: &Seen) -> Self {
        Self { name, seen: seen.clone(), ticker: None }
    }
    async fn at(&self, point: &str) {
        self.seen.lock().unwrap().push(format!("{} {point}", self.name));
        if let Some(ticker) = &self.ticker {
            ticker.tick().await;
        }
    }
}

impl Hook for Spy {
    fn name(&self) -> String {
        self.name.to_owned()
    }
    async fn on_conversation(&self, _: &mut OnConversationContext) -> Result<(), BoxError> {
        self.at("on_conversation").await;
        Ok(())
    }
    async fn before_agent(&self, _: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        self.at("before_agent").await;
        Ok(BeforeAgent::Continue)
    }
    async fn before_model(&self, _: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        self.at("before_model").await;
        Ok(BeforeModel::Continue)
    }
    async fn wrap_model_call<'a>(
        &self,
        _: &'a Turn,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> Result<Reply, ModelError> {
        self.at("wrap_model_call").await;
        let reply = next.run(request, out).await;
        self.at("/wrap_model_call").await;
        reply
    }
    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        struct Pass(Spy);
        impl Transformer for Pass {
            fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
                self.0.seen.lock().unwrap().push(format!("{} stream", self.0.name));
                out.push(text);
                Ok(())
            }
        }
        Some(Box::new(Pass(self.clone())))
    }
    async fn after_model(&self, _: &Turn, _: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        self.at("after_model").await;
        Ok(AfterModel::Continue)
    }
    async fn before_tool(&self, _: &Turn, _: &ToolCall) -> Result<BeforeTool, BoxError> {
        self.at("before_tool").await;
        Ok(BeforeTool::Continue)
    }
    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        self.at("wrap_tool_call").await;
        let output = next.run(call).await;
        self.at("/wrap_tool_call").await;
        output
    }
    async fn after_tool(&self, _: &Turn, _: &ToolCall, _: &Output) -> Result<AfterTool, BoxError> {
        self.at("after_tool").await;
        Ok(AfterTool::Continue)
    }
    async fn on_stop(&self, _: &OnStopContext) -> Result<OnStop, BoxError> {
        self.at("on_stop").await;
        Ok(OnStop::Accept)
    }
    async fn after_agent(&self, _: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        self.at("after_agent").await;
        Ok(AfterAgent::Continue)
    }
    async fn background(&self, _: &BackgroundContext) -> Result<(), BoxError> {
        self.at("background").await;
        Ok(())
    }
    async fn on_ended(&self, _: &TurnReport) -> Result<(), BoxError> {
        self.at("on_ended").await;
        Ok(())
    }
    async fn before_compaction(&self, _: &mut BeforeCompactionContext) -> Result<BeforeCompaction, BoxError> {
        self.at("before_compaction").await;
        Ok(BeforeCompaction::Continue)
    }
    async fn on_logged(&self, _: &LoggedContext) -> Result<(), BoxError> {
        self.at("on_logged").await;
        Ok(())
    }
    async fn on_event(&self, _: &FeedEvent) -> Result<(), BoxError> {
        let mut seen = self.seen.lock().unwrap();
        let mark = format!("{} on_event", self.name);
        if !seen.contains(&mark) {
            seen.push(mark);
        }
        Ok(())
    }
}

/// What each model call was sent, rebuilt from the log and its cuts.
pub fn rebuilt(
    log: &[Arc<Event>],
    cuts: &[turnbuckle::store::Cut],
) -> Vec<(turnbuckle::sent::SentCall, Arc<Vec<turnbuckle::Message>>)> {
    let mut calls = Vec::new();
    let stored = turnbuckle::sent::Stored { log, cuts, summaries: &[] };
    turnbuckle::sent::each_call(stored, None, &mut |call, window| calls.push((call, window.messages())));
    calls
}
