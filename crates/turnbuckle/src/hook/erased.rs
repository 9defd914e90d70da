//! [`Hook`] as an object that lists can hold, and how the points are found that a hook implements.

use std::any::TypeId;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::Value;
use stackfuture::StackFuture;

use super::next::{wrapped, wrapped_tool};
use super::{AfterAgent, AfterModel, AfterTool, BeforeAgent, BeforeCompaction, BeforeModel, BeforeTool, OnStop};
use super::{
    AfterAgentContext, BackgroundContext, BeforeAgentContext, BeforeCompactionContext, BeforeModelContext, Hook,
    HookEntry, LoggedContext, ModelNext, OnConversationContext, OnStopContext, Point, Points,
};
use super::{AsyncTransformer, Settings, ToolNext, Transformer};
use crate::feed::FeedEvent;
use crate::message::{Reply, ToolCall};
use crate::model::{ModelError, Request, Sink};
use crate::point::with_points;
use crate::report::TurnReport;
use crate::store::SideStore;
use crate::tool::Output;
use crate::turn::Turn;
use crate::{BoxError, BoxFuture};

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

/// A hook's future, stored in place if it is small: most hooks hold a few pointers, and a box for each call would cost
/// more than the call. A larger one is boxed.
pub(crate) type HookFuture<'a, T> = StackFuture<'a, Result<T, BoxError>, 160>;

/// An argument of a hook's method, from a row of the table of points.
macro_rules! arg {
    ($lifetime:lifetime ref $Type:ty) => { &$lifetime $Type };
    ($lifetime:lifetime mut $Type:ty) => { &$lifetime mut $Type };
}
#[cfg(feature = "testing")]
pub(crate) use arg;

macro_rules! define_dyn_hook {
    ($($(#[$doc:meta])* $Point:ident, $method:ident, $policy:ident,
        $(special)? $(($($kind:ident $arg:ident: $Type:ty),+) -> $Decision:ty)?;)+) => {
        /// [`Hook`] as an object.
        pub(crate) trait DynHook: Send + Sync {
            fn points(&self) -> Points;
            fn side_store(&self) -> Option<Arc<dyn SideStore>>;
            fn redact_arguments(&self, arguments: &Value) -> Result<Option<Value>, BoxError>;
            fn redact_text(&self, text: &str) -> Result<Option<String>, BoxError>;
            $($(fn $method<'a>(&'a self, $($arg: arg!('a $kind $Type)),+) -> HookFuture<'a, $Decision>;)?)+
            /// With all that goes around it: see [`wrapped`].
            fn wrap_model_call<'a>(
                &'a self,
                entry: &'a HookEntry,
                request: &'a Request,
                out: &'a mut dyn Sink,
                next: ModelNext<'a>,
            ) -> BoxFuture<'a, Result<Reply, ModelError>>;
            fn transformer(&self) -> Option<Box<dyn Transformer>>;
            fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>>;
            /// With all that goes around it: see [`wrapped_tool`].
            fn wrap_tool_call<'a>(
                &'a self,
                entry: &'a HookEntry,
                call: &'a ToolCall,
                next: ToolNext<'a>,
            ) -> BoxFuture<'a, Result<Output, BoxError>>;
        }

        /// Each future makes the hook's own future at its first poll, so that a panic on the way is contained as well.
        impl<H: Hook> DynHook for H {
            fn points(&self) -> Points {
                implemented(self)
            }
            fn side_store(&self) -> Option<Arc<dyn SideStore>> {
                Hook::side_store(self)
            }
            fn redact_arguments(&self, arguments: &Value) -> Result<Option<Value>, BoxError> {
                Hook::redact_arguments(self, arguments)
            }
            fn redact_text(&self, text: &str) -> Result<Option<String>, BoxError> {
                Hook::redact_text(self, text)
            }
            $($(fn $method<'a>(&'a self, $($arg: arg!('a $kind $Type)),+) -> HookFuture<'a, $Decision> {
                HookFuture::from_or_box(async move { Hook::$method(self, $($arg),+).await })
            })?)+
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
            fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>> {
                Hook::async_transformer(self)
            }
            fn wrap_tool_call<'a>(
                &'a self,
                entry: &'a HookEntry,
                call: &'a ToolCall,
                next: ToolNext<'a>,
            ) -> BoxFuture<'a, Result<Output, BoxError>> {
                Box::pin(wrapped_tool(self, entry, call, next))
            }
        }

        /// The points whose method does not return the default's type. The match has an arm for every point, so a new
        /// one cannot be forgotten.
        fn implemented<H: Hook>(hook: &H) -> Points {
            let is_implemented = |point: &Point| match point {
                $($(Point::$Point => {
                    type Arguments<H> = (&'static H, $(arg!('static $kind $Type)),+);
                    returned(|(hook, $($arg),+): Arguments<H>| Hook::$method(hook, $($arg),+)) != default_of::<$Decision>()
                })?)+
                Point::WrapModelCall => {
                    type Arguments<H> =
                        (&'static H, &'static Turn, &'static Request, &'static mut dyn Sink, ModelNext<'static>);
                    let wrap = |(hook, turn, request, out, next): Arguments<H>| {
                        Hook::wrap_model_call(hook, turn, request, out, next)
                    };
                    returned(wrap) != TypeId::of::<Unhooked<BoxFuture<'static, Result<Reply, ModelError>>>>()
                }
                Point::WrapToolCall => {
                    type Arguments<H> = (&'static H, &'static Turn, &'static ToolCall, ToolNext<'static>);
                    let wrap = |(hook, turn, call, next): Arguments<H>| Hook::wrap_tool_call(hook, turn, call, next);
                    returned(wrap) != TypeId::of::<Unhooked<BoxFuture<'static, Result<Output, BoxError>>>>()
                }
                Point::Stream => hook.transformer().is_some() || hook.async_transformer().is_some(),
            };
            Point::ALL.into_iter().filter(is_implemented).collect()
        }
    };
}
with_points!(define_dyn_hook);

/// The type that the default of a deciding method returns.
fn default_of<T: 'static>() -> TypeId {
    TypeId::of::<Unhooked<Pass<T>>>()
}

/// The type that a method returns. The method is not called.
fn returned<A, R: 'static>(_: fn(A) -> R) -> TypeId {
    TypeId::of::<R>()
}

macro_rules! define_shared_hook {
    ($($(#[$doc:meta])* $Point:ident, $method:ident, $policy:ident,
        $(special)? $(($($kind:ident $arg:ident: $Type:ty),+) -> $Decision:ty)?;)+) => {
        /// A shared hook is a hook: keep a clone to read its state from outside. Every method returns the future of the
        /// hook inside as it is, so a point that the hook does not implement is not implemented here either.
        impl<H: Hook> Hook for Arc<H> {
            fn name(&self) -> String {
                (**self).name()
            }
            fn settings(&self) -> Settings {
                (**self).settings()
            }
            fn side_store(&self) -> Option<Arc<dyn SideStore>> {
                (**self).side_store()
            }
            fn redact_arguments(&self, arguments: &Value) -> Result<Option<Value>, BoxError> {
                (**self).redact_arguments(arguments)
            }
            fn redact_text(&self, text: &str) -> Result<Option<String>, BoxError> {
                (**self).redact_text(text)
            }
            $($(fn $method(
                &self,
                $($arg: arg!('_ $kind $Type)),+
            ) -> impl Future<Output = Result<$Decision, BoxError>> + Send {
                (**self).$method($($arg),+)
            })?)+
            fn wrap_model_call<'a>(
                &self,
                turn: &'a Turn,
                request: &'a Request,
                out: &'a mut dyn Sink,
                next: ModelNext<'a>,
            ) -> impl Future<Output = Result<Reply, ModelError>> + Send {
                (**self).wrap_model_call(turn, request, out, next)
            }
            fn transformer(&self) -> Option<Box<dyn Transformer>> {
                (**self).transformer()
            }
            fn async_transformer(&self) -> Option<Box<dyn AsyncTransformer>> {
                (**self).async_transformer()
            }
            fn wrap_tool_call<'a>(
                &self,
                turn: &'a Turn,
                call: &'a ToolCall,
                next: ToolNext<'a>,
            ) -> impl Future<Output = Result<Output, BoxError>> + Send {
                (**self).wrap_tool_call(turn, call, next)
            }
        }
    };
}
with_points!(define_shared_hook);

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
        assert_eq!(implemented(&Arc::new(Some3)), implemented(&Some3));
        assert_eq!(implemented(&Arc::new(Nothing)), Points::default());
    }

    #[test]
    fn a_point_that_is_not_implemented_allocates_nothing() {
        assert_eq!(size_of::<Unhooked<Pass<OnStop>>>(), 0);
    }
}
