//! A layer around tool calls.

use std::fmt;
use std::task::{Context, Poll};

use tower::{Layer, Service};
use turnbuckle::hook::{Hook, OwnedToolNext, ToolNext};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, BoxFuture, ToolCall, Turn};

use super::Line;

/// One call of a tool, as a layer sees it. Clones are further attempts at the same call.
#[derive(Clone, Debug)]
pub struct ToolTask {
    /// The tool call with its arguments. A layer that changes them makes the call fail: nothing else was approved.
    pub call: ToolCall,
    turn: Turn,
    next: OwnedToolNext,
}

impl ToolTask {
    /// The turn that the call belongs to.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }
}

/// The service that a layer wraps: it runs the inner hooks, and finally the tool.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ToolService;

impl Service<ToolTask> for ToolService {
    type Response = Output;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Output, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: ToolTask) -> Self::Future {
        Box::pin(async move { task.next.run(&task.call).await })
    }
}

/// A hook that sends tool calls through a service. Made by [`around_tools`].
pub struct AroundTools<S>(Line<S>);

/// Puts `layer` around all tool calls of an agent, or those that the hook's `tools` name.
pub fn around_tools<L>(layer: L) -> AroundTools<L::Service>
where
    L: Layer<ToolService>,
{
    AroundTools(Line::new(layer.layer(ToolService)))
}

impl<S> Hook for AroundTools<S>
where
    S: Service<ToolTask, Response = Output> + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn name(&self) -> String {
        "tower_tools".into()
    }

    async fn wrap_tool_call<'a>(
        &self,
        turn: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        let task = ToolTask { call: call.clone(), turn: turn.clone(), next: next.to_owned() };
        self.0.call(task).await.map_err(Into::into)
    }
}

impl<S> fmt::Debug for AroundTools<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AroundTools")
    }
}
