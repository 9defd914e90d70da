//! The `around` option: which calls a hook wraps.

use serde::Deserialize;

use crate::hook::{Point, Points};

/// Which calls a hook wraps: the `around` option of every ready-made hook that can stand around model calls and around
/// tool calls.
///
/// In configuration: `around = "model_calls"`, `"tool_calls"` or `"both"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WrappedCalls {
    /// Model calls only.
    ModelCalls,
    /// Tool calls only.
    ToolCalls,
    /// Model calls and tool calls.
    Both,
}

impl WrappedCalls {
    /// Whether model calls are wrapped.
    pub fn includes_models(self) -> bool {
        self != Self::ToolCalls
    }

    /// Whether tool calls are wrapped.
    pub fn includes_tools(self) -> bool {
        self != Self::ModelCalls
    }

    /// The points of the wraps, for [`Settings::only`](crate::hook::Settings::only).
    pub fn points(self) -> Points {
        let models = self.includes_models().then_some(Point::WrapModelCall);
        let tools = self.includes_tools().then_some(Point::WrapToolCall);
        models.into_iter().chain(tools).collect()
    }
}
