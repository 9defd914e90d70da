//! Hooks that do nothing, so that only calling them costs: at all six lifecycle points, or at none.

use std::sync::Arc;

use turnbuckle::hook::{AfterAgent, AfterModel, BeforeAgent, BeforeModel, Hook, HookEntry, HookExt};
use turnbuckle::hook::{AfterAgentContext, BeforeAgentContext, BeforeModelContext, ModelNext, ToolNext};
use turnbuckle::model::{ModelError, Request, Sink};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Reply, ToolCall, Turn};

/// How often one hook with all six points is called in the measured turn: `before_agent`, `wrap_tool_call` and
/// `after_agent` once, `before_model`, `wrap_model_call` and `after_model` twice.
pub const CALLS: usize = 9;

/// Implements the six lifecycle points.
#[derive(Debug)]
pub struct All;

impl Hook for All {
    async fn before_agent(&self, _: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        Ok(BeforeAgent::Continue)
    }
    async fn before_model(&self, _: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        Ok(BeforeModel::Continue)
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
    async fn after_model(&self, _: &Turn, _: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        Ok(AfterModel::Continue)
    }
    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        next.run(call).await
    }
    async fn after_agent(&self, _: &mut AfterAgentContext) -> Result<AfterAgent, BoxError> {
        Ok(AfterAgent::Continue)
    }
}

/// Implements no point.
#[derive(Debug)]
pub struct Nothing;

impl Hook for Nothing {}

/// So many interested hooks, each with a name of its own.
pub fn interested(count: usize) -> Vec<HookEntry> {
    (1..=count).map(|number| All.named(format!("all_{number}"))).collect()
}

/// So many hooks that mind nothing.
pub fn uninterested(count: usize) -> Vec<HookEntry> {
    (1..=count).map(|number| Nothing.named(format!("nothing_{number}"))).collect()
}
