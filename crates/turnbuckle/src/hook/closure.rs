//! Hooks from closures, for the common case. A closure is handed what it may read and returns its decision, the way a
//! plug is handed a connection: `|turn| async move { turn.proceed() }`.

use std::future::Future;
use std::sync::Arc;

use super::{AfterAgent, AfterModel, BeforeAgent, BeforeModel, BeforeTool, Hook, OnStop};
use super::{
    AfterAgentContext, BackgroundContext, BeforeAgentContext, BeforeModelContext, OnStopContext, TransformOutput,
    Transformer,
};
use crate::BoxError;
use crate::feed::FeedEvent;
use crate::message::{Reply, ToolCall};
use crate::turn::Turn;

/// A closure at `before_agent`.
#[derive(Debug, Clone)]
pub struct Pre<F> {
    name: String,
    run: F,
}

/// A closure at `before_agent`: it may inject, rewrite or halt.
///
/// ```
/// use turnbuckle::hook::{BeforeAgentContext, pre};
/// let clock = pre("clock", |mut turn: BeforeAgentContext| async move {
///     turn.inject("It is noon.");
///     turn.proceed()
/// });
/// # fn is_hook(_: impl turnbuckle::hook::Hook) {}
/// # is_hook(clock);
/// ```
pub fn pre<F>(name: impl Into<String>, run: F) -> Pre<F> {
    Pre { name: name.into(), run }
}

impl<F> Pre<F> {
    /// Before each model call instead of once a turn; the closure is handed an [`BeforeModelContext`].
    pub fn every_call(self) -> EveryCall<F> {
        EveryCall { name: self.name, run: self.run }
    }
}

impl<F, Fut> Hook for Pre<F>
where
    F: Fn(BeforeAgentContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(BeforeAgentContext, BeforeAgent), BoxError>> + Send + 'static,
{
    fn name(&self) -> String {
        self.name.clone()
    }
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        let (edited, decision) = (self.run)(BeforeAgentContext::new(turn.turn.clone())).await?;
        (turn.injected, turn.rewritten) = (edited.injected, edited.rewritten);
        Ok(decision)
    }
}

/// A closure at `before_model`.
#[derive(Debug, Clone)]
pub struct EveryCall<F> {
    name: String,
    run: F,
}

impl<F, Fut> Hook for EveryCall<F>
where
    F: Fn(BeforeModelContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(BeforeModelContext, BeforeModel), BoxError>> + Send + 'static,
{
    fn name(&self) -> String {
        self.name.clone()
    }
    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        let (edited, decision) = (self.run)(BeforeModelContext::new(turn.turn.clone())).await?;
        (turn.injected, turn.edited) = (edited.injected, edited.edited);
        Ok(decision)
    }
}

/// A closure at `after_agent`.
#[derive(Debug, Clone)]
pub struct Post<F> {
    name: String,
    run: F,
}

/// A closure at `after_agent`: it may change the result shown or leave content for the next turn.
pub fn post<F>(name: impl Into<String>, run: F) -> Post<F> {
    Post { name: name.into(), run }
}

impl<F, Fut> Hook for Post<F>
where
    F: Fn(AfterAgentContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(AfterAgentContext, AfterAgent), BoxError>> + Send + 'static,
{
    fn name(&self) -> String {
        self.name.clone()
    }
    async fn after_agent(&self, turn: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        let mut view = AfterAgentContext::new(turn.turn.clone());
        view.shown = turn.shown.clone();
        let (edited, decision) = (self.run)(view).await?;
        (turn.injected, turn.result) = (edited.injected, edited.result);
        Ok(decision)
    }
}

macro_rules! closure_hook {
    ($(#[$doc:meta])* $function:ident -> $Hook:ident, $point:ident($($arg:ident: $borrowed:ty => $owned:ty),+) -> $decision:ty) => {
        $(#[$doc])*
        pub fn $function<F>(name: impl Into<String>, run: F) -> $Hook<F> {
            $Hook { name: name.into(), run }
        }

        #[doc = concat!("A closure at `", stringify!($point), "`.")]
        #[derive(Debug, Clone)]
        pub struct $Hook<F> {
            name: String,
            run: F,
        }

        impl<F, Fut> Hook for $Hook<F>
        where
            F: Fn($($owned),+) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<$decision, BoxError>> + Send + 'static,
        {
            fn name(&self) -> String {
                self.name.clone()
            }
            async fn $point(&self, $($arg: $borrowed),+) -> Result<$decision, BoxError> {
                (self.run)($($arg.clone()),+).await
            }
        }
    };
}

closure_hook! {
    /// A closure at `after_model`: judges a complete reply.
    guard -> GuardFn, after_model(turn: &Turn => Turn, reply: &Arc<Reply> => Arc<Reply>) -> AfterModel
}
closure_hook! {
    /// A closure at `before_tool`: judges a call.
    gate -> GateFn, before_tool(turn: &Turn => Turn, call: &ToolCall => ToolCall) -> BeforeTool
}
closure_hook! {
    /// A closure at `on_stop`: judges whether the turn may end.
    stop -> StopFn, on_stop(turn: &OnStopContext => OnStopContext) -> OnStop
}
closure_hook! {
    /// A closure after a completed turn, aside.
    background -> BackgroundFn, background(snapshot: &BackgroundContext => BackgroundContext) -> ()
}
closure_hook! {
    /// A closure on every log and live event.
    observe -> ObserveFn, on_event(told: &FeedEvent => FeedEvent) -> ()
}

/// A closure on the stream.
#[derive(Debug, Clone)]
pub struct TransformFn<F> {
    name: String,
    run: F,
}

/// A closure on each chunk of text or thinking: what it returns gets through. It sees chunks as they come, cut anywhere;
/// to hold something back across chunks, implement [`Transformer`].
pub fn transform<F>(name: impl Into<String>, run: F) -> TransformFn<F>
where
    F: Fn(&str) -> String + Clone + Send + Sync + 'static,
{
    TransformFn { name: name.into(), run }
}

impl<F> Hook for TransformFn<F>
where
    F: Fn(&str) -> String + Clone + Send + Sync + 'static,
{
    fn name(&self) -> String {
        self.name.clone()
    }
    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        Some(Box::new(PerChunk(self.run.clone())))
    }
}

struct PerChunk<F>(F);

impl<F: Fn(&str) -> String + Send> Transformer for PerChunk<F> {
    fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
        out.push(&(self.0)(text));
        Ok(())
    }
}
