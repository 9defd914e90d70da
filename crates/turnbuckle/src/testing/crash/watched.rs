//! An agent whose tools, hooks and model calls each begin and end with a boundary.

use std::sync::Arc;

use super::life::BoundaryKind;
use super::mortal::inside;
use super::world::{World, call_of};
use crate::BoxError;
use crate::BoxFuture;
use crate::agent::Agent;
use crate::conversation::TurnReport;
use crate::feed::FeedEvent;
use crate::hook::erased::DynHook;
use crate::hook::*;
use crate::message::{Reply, Text, ToolCall, Usage};
use crate::model::{Model, ModelError, Request, Sink};
use crate::tool::{Effect, Output, Reconcile, Spec, Tool};
use crate::turn::Turn;

/// A copy of `agent` that can die in `world`.
pub(super) fn agent(agent: &Agent, world: &World) -> Agent {
    let hooks = agent.hooks().iter().map(|entry| watched_hook(entry, world)).collect();
    let model = Arc::new(WatchedModel { model: agent.model().clone(), world: world.clone() });
    agent.remade(hooks, model, |tool| Arc::new(WatchedTool::new(tool.clone(), world)))
}

fn watched_hook(entry: &HookEntry, world: &World) -> HookEntry {
    let code = match &*entry.code {
        Code::Hook(hook) => {
            Code::Hook(Arc::new(WatchedHook { name: entry.name.clone(), hook: hook.clone(), world: world.clone() }))
        }
        Code::Group(group) => {
            let mut group = group.clone();
            for member in &mut group.members {
                *member = watched_member(member, world);
            }
            Code::Group(group)
        }
    };
    let mut watched = entry.clone();
    watched.code = Arc::new(code);
    watched
}

fn watched_member(original: &Member, world: &World) -> Member {
    let (original, world) = (original.clone(), world.clone());
    member(original.name.clone(), move |turn: Turn| {
        let (original, world) = (original.clone(), world.clone());
        async move {
            world.life.through(BoundaryKind::Hook, format!("member {}", original.name), (original.append)(turn)).await
        }
    })
}

struct WatchedModel {
    model: Arc<dyn Model>,
    world: World,
}

impl Model for WatchedModel {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let what = format!("model call {} of {}", request.ordinal, request.agent);
        Box::pin(self.world.life.through(BoundaryKind::Model, what, self.model.stream(request, out)))
    }
    fn name(&self) -> &str {
        self.model.name()
    }
    fn price(&self, usage: &Usage) -> Option<f64> {
        self.model.price(usage)
    }
}

struct WatchedTool {
    spec: Spec,
    tool: Arc<dyn Tool>,
    world: World,
}

impl WatchedTool {
    fn new(tool: Arc<dyn Tool>, world: &World) -> Self {
        let mut spec = tool.spec().clone();
        if let Effect::Reconcile(asks) = &spec.effect {
            spec.effect = Effect::Reconcile(Arc::new(WatchedReconcile { asks: asks.clone(), world: world.clone() }));
        }
        Self { spec, tool, world: world.clone() }
    }
}

fn what(call: &ToolCall, turn: &Turn) -> String {
    format!("{} ({}){}", call.name, call.call, inside(turn.conversation()))
}

impl Tool for WatchedTool {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn call<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        let run = async move {
            {
                let mut deeds = self.world.deeds();
                deeds.agents.insert(turn.conversation().clone(), turn.agent().clone());
                deeds.runs.entry(call_of(turn)).or_default().push(self.world.life.number);
            }
            self.tool.call(turn, call).await
        };
        Box::pin(self.world.life.through(BoundaryKind::Tool, format!("tool {}", what(call, turn)), run))
    }
    fn agent(&self) -> Option<&Agent> {
        self.tool.agent()
    }
}

struct WatchedReconcile {
    asks: Arc<dyn Reconcile>,
    world: World,
}

impl Reconcile for WatchedReconcile {
    fn reconcile<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> BoxFuture<'a, Result<Option<Output>, BoxError>> {
        let ask = async move {
            let answer = self.asks.reconcile(turn, call).await;
            let no = matches!(answer, Ok(None));
            self.world.deeds().asked.entry(call_of(turn)).or_default().push((self.world.life.number, no));
            answer
        };
        Box::pin(self.world.life.through(BoundaryKind::Tool, format!("reconcile {}", what(call, turn)), ask))
    }
}

struct WatchedHook {
    name: Text,
    hook: Arc<dyn DynHook>,
    world: World,
}

type Decided<'a, T> = BoxFuture<'a, Result<T, BoxError>>;

impl WatchedHook {
    fn at<'a, T: Send + 'a, E: Send + 'a>(
        &'a self,
        point: Point,
        run: BoxFuture<'a, Result<T, E>>,
    ) -> BoxFuture<'a, Result<T, E>> {
        Box::pin(self.world.life.through(BoundaryKind::Hook, format!("hook {} at {point}", self.name), run))
    }
}

impl DynHook for WatchedHook {
    fn points(&self) -> Points {
        self.hook.points()
    }
    fn on_conversation<'a>(&'a self, meeting: &'a mut OnConversationContext) -> Decided<'a, ()> {
        self.at(Point::OnConversation, self.hook.on_conversation(meeting))
    }
    fn before_agent<'a>(&'a self, turn: &'a mut BeforeAgentContext) -> Decided<'a, BeforeAgent> {
        self.at(Point::BeforeAgent, self.hook.before_agent(turn))
    }
    fn before_model<'a>(&'a self, turn: &'a mut BeforeModelContext) -> Decided<'a, BeforeModel> {
        self.at(Point::BeforeModel, self.hook.before_model(turn))
    }
    fn wrap_model_call<'a>(
        &'a self,
        entry: &'a HookEntry,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.at(Point::WrapModelCall, self.hook.wrap_model_call(entry, request, out, next))
    }
    /// Transformers do not wait: nothing can happen between two of them.
    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        self.hook.transformer()
    }
    fn after_model<'a>(&'a self, turn: &'a Turn, reply: &'a Arc<Reply>) -> Decided<'a, AfterModel> {
        self.at(Point::AfterModel, self.hook.after_model(turn, reply))
    }
    fn before_tool<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> Decided<'a, BeforeTool> {
        self.at(Point::BeforeTool, self.hook.before_tool(turn, call))
    }
    fn wrap_tool_call<'a>(
        &'a self,
        entry: &'a HookEntry,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Decided<'a, Output> {
        self.at(Point::WrapToolCall, self.hook.wrap_tool_call(entry, call, next))
    }
    fn after_tool<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall, output: &'a Output) -> Decided<'a, AfterTool> {
        self.at(Point::AfterTool, self.hook.after_tool(turn, call, output))
    }
    fn on_stop<'a>(&'a self, turn: &'a OnStopContext) -> Decided<'a, OnStop> {
        self.at(Point::OnStop, self.hook.on_stop(turn))
    }
    fn after_agent<'a>(&'a self, turn: &'a mut AfterAgentContext) -> Decided<'a, AfterAgent> {
        self.at(Point::AfterAgent, self.hook.after_agent(turn))
    }
    fn background<'a>(&'a self, snapshot: &'a BackgroundContext) -> Decided<'a, ()> {
        self.at(Point::Background, self.hook.background(snapshot))
    }
    fn on_ended<'a>(&'a self, ended: &'a TurnReport) -> Decided<'a, ()> {
        self.at(Point::OnEnded, self.hook.on_ended(ended))
    }
    /// What is told is told after it happened, and what happened has its boundaries: no more here.
    fn on_event<'a>(&'a self, told: &'a Arc<FeedEvent>) -> Decided<'a, ()> {
        self.hook.on_event(told)
    }
}
