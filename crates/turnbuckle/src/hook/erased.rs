//! The boxed twin of [`Hook`] that sits in lists, and how it finds out which points a hook implements.

use std::any::TypeId;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::next::{wrapped, wrapped_tool};
use super::{AfterAgent, AfterModel, AfterTool, BeforeAgent, BeforeModel, BeforeTool, OnStop};
use super::{
    AfterAgentContext, BackgroundContext, BeforeAgentContext, BeforeModelContext, Hook, HookEntry, ModelNext,
    OnConversationContext, OnStopContext, Point, Points,
};
use super::{ToolNext, Transformer};
use crate::BoxError;
use crate::BoxFuture;
use crate::conversation::TurnReport;
use crate::feed::FeedEvent;
use crate::message::{Reply, ToolCall};
use crate::model::{ModelError, Request, Sink};
use crate::tool::Output;
use crate::turn::Turn;

/// What a default method returns. Nobody else can make one, so the type itself says "not implemented".
#[derive(Debug)]
pub(crate) struct Unhooked<F>(F);

impl<F> Unhooked<F> {
    pub(super) fn new(future: F) -> Self {
        Self(future)
    }
}

impl<F: Future + Unpin> Future for Unhooked<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// Decides to go on. Zero-sized (no `async` body is), so boxing it allocates nothing.
#[derive(Debug)]
pub(crate) struct Pass<T>(PhantomData<fn() -> T>);

impl<T> Pass<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Default> Future for Pass<T> {
    type Output = Result<T, BoxError>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(T::default()))
    }
}

type Decided<'a, T> = BoxFuture<'a, Result<T, BoxError>>;

/// [`Hook`] with boxed futures.
pub(crate) trait DynHook: Send + Sync {
    fn points(&self) -> Points;
    fn on_conversation<'a>(&'a self, meeting: &'a mut OnConversationContext) -> Decided<'a, ()>;
    fn before_agent<'a>(&'a self, turn: &'a mut BeforeAgentContext) -> Decided<'a, BeforeAgent>;
    fn before_model<'a>(&'a self, turn: &'a mut BeforeModelContext) -> Decided<'a, BeforeModel>;
    /// With all that goes around it: see [`wrapped`].
    fn wrap_model_call<'a>(
        &'a self,
        entry: &'a HookEntry,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>>;
    fn transformer(&self) -> Option<Box<dyn Transformer>>;
    fn after_model<'a>(&'a self, turn: &'a Turn, reply: &'a Arc<Reply>) -> Decided<'a, AfterModel>;
    fn before_tool<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> Decided<'a, BeforeTool>;
    /// With all that goes around it: see [`wrapped_tool`].
    fn wrap_tool_call<'a>(
        &'a self,
        entry: &'a HookEntry,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Decided<'a, Output>;
    fn after_tool<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall, output: &'a Output) -> Decided<'a, AfterTool>;
    fn on_stop<'a>(&'a self, turn: &'a OnStopContext) -> Decided<'a, OnStop>;
    fn after_agent<'a>(&'a self, turn: &'a mut AfterAgentContext) -> Decided<'a, AfterAgent>;
    fn background<'a>(&'a self, snapshot: &'a BackgroundContext) -> Decided<'a, ()>;
    fn on_ended<'a>(&'a self, ended: &'a TurnReport) -> Decided<'a, ()>;
    fn on_event<'a>(&'a self, told: &'a Arc<FeedEvent>) -> Decided<'a, ()>;
}

/// Each future makes the hook's own at its first poll, so that a panic on the way is contained like any other.
impl<H: Hook> DynHook for H {
    fn points(&self) -> Points {
        implemented(self)
    }
    fn on_conversation<'a>(&'a self, meeting: &'a mut OnConversationContext) -> Decided<'a, ()> {
        Box::pin(async move { Hook::on_conversation(self, meeting).await })
    }
    fn before_agent<'a>(&'a self, turn: &'a mut BeforeAgentContext) -> Decided<'a, BeforeAgent> {
        Box::pin(async move { Hook::before_agent(self, turn).await })
    }
    fn before_model<'a>(&'a self, turn: &'a mut BeforeModelContext) -> Decided<'a, BeforeModel> {
        Box::pin(async move { Hook::before_model(self, turn).await })
    }
    fn wrap_model_call<'a>(
        &'a self,
        entry: &'a HookEntry,
        request: &'a Request,
        out: &'a mut dyn Sink,
        next: ModelNext<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(wrapped(self, entry, request, out, next))
    }
    fn transformer(&self) -> Option<Box<dyn Transformer>> {
        Hook::transformer(self)
    }
    fn after_model<'a>(&'a self, turn: &'a Turn, reply: &'a Arc<Reply>) -> Decided<'a, AfterModel> {
        Box::pin(async move { Hook::after_model(self, turn, reply).await })
    }
    fn before_tool<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall) -> Decided<'a, BeforeTool> {
        Box::pin(async move { Hook::before_tool(self, turn, call).await })
    }
    fn wrap_tool_call<'a>(
        &'a self,
        entry: &'a HookEntry,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Decided<'a, Output> {
        Box::pin(wrapped_tool(self, entry, call, next))
    }
    fn after_tool<'a>(&'a self, turn: &'a Turn, call: &'a ToolCall, output: &'a Output) -> Decided<'a, AfterTool> {
        Box::pin(async move { Hook::after_tool(self, turn, call, output).await })
    }
    fn on_stop<'a>(&'a self, turn: &'a OnStopContext) -> Decided<'a, OnStop> {
        Box::pin(async move { Hook::on_stop(self, turn).await })
    }
    fn after_agent<'a>(&'a self, turn: &'a mut AfterAgentContext) -> Decided<'a, AfterAgent> {
        Box::pin(async move { Hook::after_agent(self, turn).await })
    }
    fn background<'a>(&'a self, snapshot: &'a BackgroundContext) -> Decided<'a, ()> {
        Box::pin(async move { Hook::background(self, snapshot).await })
    }
    fn on_ended<'a>(&'a self, ended: &'a TurnReport) -> Decided<'a, ()> {
        Box::pin(async move { Hook::on_ended(self, ended).await })
    }
    fn on_event<'a>(&'a self, told: &'a Arc<FeedEvent>) -> Decided<'a, ()> {
        Box::pin(async move { Hook::on_event(self, told).await })
    }
}

/// The points whose method does not return the default's type.
fn implemented<H: Hook>(hook: &H) -> Points {
    type S<T> = &'static T;
    type M<T> = &'static mut T;
    let unhooked_model = TypeId::of::<Unhooked<BoxFuture<'static, Result<Reply, ModelError>>>>();
    let unhooked_tool = TypeId::of::<Unhooked<Decided<'static, Output>>>();
    Points::default()
        .set(Point::OnConversation, returned1::<H, M<OnConversationContext>, _>(H::on_conversation) != passed::<()>())
        .set(Point::BeforeAgent, returned1::<H, M<BeforeAgentContext>, _>(H::before_agent) != passed::<BeforeAgent>())
        .set(Point::BeforeModel, returned1::<H, M<BeforeModelContext>, _>(H::before_model) != passed::<BeforeModel>())
        .set(
            Point::WrapModelCall,
            returned4::<H, S<Turn>, S<Request>, M<dyn Sink>, ModelNext<'static>, _>(H::wrap_model_call)
                != unhooked_model,
        )
        .set(Point::Stream, hook.transformer().is_some())
        .set(Point::AfterModel, returned2::<H, S<Turn>, S<Arc<Reply>>, _>(H::after_model) != passed::<AfterModel>())
        .set(Point::BeforeTool, returned2::<H, S<Turn>, S<ToolCall>, _>(H::before_tool) != passed::<BeforeTool>())
        .set(
            Point::WrapToolCall,
            returned3::<H, S<Turn>, S<ToolCall>, ToolNext<'static>, _>(H::wrap_tool_call) != unhooked_tool,
        )
        .set(
            Point::AfterTool,
            returned3::<H, S<Turn>, S<ToolCall>, S<Output>, _>(H::after_tool) != passed::<AfterTool>(),
        )
        .set(Point::OnStop, returned1::<H, S<OnStopContext>, _>(H::on_stop) != passed::<OnStop>())
        .set(Point::AfterAgent, returned1::<H, M<AfterAgentContext>, _>(H::after_agent) != passed::<AfterAgent>())
        .set(Point::Background, returned1::<H, S<BackgroundContext>, _>(H::background) != passed::<()>())
        .set(Point::OnEnded, returned1::<H, S<TurnReport>, _>(H::on_ended) != passed::<()>())
        .set(Point::OnEvent, returned1::<H, S<Arc<FeedEvent>>, _>(H::on_event) != passed::<()>())
}

fn passed<T: 'static>() -> TypeId {
    TypeId::of::<Unhooked<Pass<T>>>()
}
fn returned1<H, A, R: 'static>(_: fn(&'static H, A) -> R) -> TypeId {
    TypeId::of::<R>()
}
fn returned2<H, A, B, R: 'static>(_: fn(&'static H, A, B) -> R) -> TypeId {
    TypeId::of::<R>()
}
fn returned3<H, A, B, C, R: 'static>(_: fn(&'static H, A, B, C) -> R) -> TypeId {
    TypeId::of::<R>()
}
fn returned4<H, A, B, C, D, R: 'static>(_: fn(&'static H, A, B, C, D) -> R) -> TypeId {
    TypeId::of::<R>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl Hook for Nothing {}

    struct Some3;
    impl Hook for Some3 {
        async fn before_agent(&self, _: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
            Ok(BeforeAgent::Continue)
        }
        async fn wrap_model_call<'a>(
            &self,
            _: &'a Turn,
            request: &'a Request,
            out: &'a mut dyn Sink,
            next: ModelNext<'a>,
        ) -> Result<Reply, ModelError> {
            next.run(request, out).await
        }
        async fn on_ended(&self, _: &TurnReport) -> Result<(), BoxError> {
            Ok(())
        }
    }

    #[test]
    fn a_hook_is_asked_only_at_the_points_it_implements() {
        assert_eq!(implemented(&Nothing), Points::default());
        let points: Vec<_> = implemented(&Some3).iter().collect();
        assert_eq!(points, [Point::BeforeAgent, Point::WrapModelCall, Point::OnEnded]);
    }

    #[test]
    fn a_point_that_is_not_implemented_allocates_nothing() {
        assert_eq!(size_of::<Unhooked<Pass<OnStop>>>(), 0);
    }
}
