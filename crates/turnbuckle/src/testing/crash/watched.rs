//! An agent whose tools, hooks and model calls each begin and end with a boundary.

use std::sync::Arc;

use serde_json::Value;

use super::crashing_store::inside;
use super::life::BoundaryKind;
use super::world::{World, call_of};
use crate::BoxError;
use crate::BoxFuture;
use crate::agent::Agent;
use crate::feed::FeedEvent;
use crate::hook::erased::{DynHook, HookFuture, arg};
use crate::hook::*;
use crate::message::{Reply, Text, ToolCall, Usage};
use crate::model::{Model, ModelError, Request, Sink};
use crate::point::with_points;
use crate::report::TurnReport;
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
    fn summarises(&self) -> bool {
        self.model.summarises()
    }
    fn context_window(&self) -> Option<u64> {
        self.model.context_window()
    }
    fn effort(&self) -> Option<&str> {
        self.model.effort()
    }
    fn count_tokens(&self, text: &str) -> Option<u64> {
        self.model.count_tokens(text)
    }
    fn body_fields(&self, request: &Request) -> Option<Value> {
        self.model.body_fields(request)
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
    fn allowed_by(&self, rules: &[String], arguments: &serde_json::Value) -> bool {
        self.tool.allowed_by(rules, arguments)
    }

    fn standing_covers(&self, parts: &[crate::store::ArgumentMatch], arguments: &serde_json::Value) -> bool {
        self.tool.standing_covers(parts, arguments)
    }

    fn always_ask(&self, arguments: &serde_json::Value) -> Option<crate::message::Text> {
        self.tool.always_ask(arguments)
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

impl WatchedHook {
    fn at<'a, T: Send + 'a>(&'a self, point: Point, run: HookFuture<'a, T>) -> HookFuture<'a, T> {
        // What observers are told has happened before, and what happened has its boundaries: no more here.
        if point == Point::OnEvent {
            return run;
        }
        HookFuture::from_or_box(self.through(point, run))
    }

    fn through<'a, T: Send + 'a, E: Send + 'a>(
        &'a self,
        point: Point,
        run: impl Future<Output = Result<T, E>> + Send + 'a,
    ) -> impl Future<Output = Result<T, E>> + Send + 'a {
        self.world.life.through(BoundaryKind::Hook, format!("hook {} at {point}", self.name), run)
    }
}

macro_rules! forward_points {
    ($($(#[$doc:meta])* $Point:ident, $method:ident, $policy:ident,
        $(special)? $(($($kind:ident $arg:ident: $Type:ty),+) -> $Decision:ty)?;)+) => {
        impl DynHook for WatchedHook {
            fn side_store(&self) -> Option<Arc<dyn crate::store::SideStore>> {
                self.hook.side_store()
            }
            fn redact_arguments(&self, arguments: &serde_json::Value) -> Result<Option<serde_json::Value>, crate::BoxError> {
                self.hook.redact_arguments(arguments)
            }
            fn redact_text(&self, text: &str) -> Result<Option<String>, crate::BoxError> {
                self.hook.redact_text(text)
            }
            fn points(&self) -> Points {
                self.hook.points()
            }
            $($(fn $method<'a>(&'a self, $($arg: arg!('a $kind $Type)),+) -> HookFuture<'a, $Decision> {
                self.at(Point::$Point, self.hook.$method($($arg),+))
            })?)+
            fn wrap_model_call<'a>(
                &'a self,
                entry: &'a HookEntry,
                request: &'a Request,
                out: &'a mut dyn Sink,
                next: ModelNext<'a>,
            ) -> BoxFuture<'a, Result<Reply, ModelError>> {
                let run = self.hook.wrap_model_call(entry, request, out, next);
                Box::pin(self.through(Point::WrapModelCall, run))
            }
            /// Transformers do not wait: nothing can happen between two of them.
            fn transformer(&self) -> Option<Box<dyn Transformer>> {
                self.hook.transformer()
            }
            fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>> {
                self.hook.async_transformer()
            }
            fn wrap_tool_call<'a>(
                &'a self,
                entry: &'a HookEntry,
                call: &'a ToolCall,
                next: ToolNext<'a>,
            ) -> BoxFuture<'a, Result<Output, BoxError>> {
                Box::pin(self.through(Point::WrapToolCall, self.hook.wrap_tool_call(entry, call, next)))
            }
        }
    };
}
with_points!(forward_points);
