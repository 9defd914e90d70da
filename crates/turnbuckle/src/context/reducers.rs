//! Ready-made reducers.
//!
//! | reducer | what it does |
//! |---|---|
//! | [`ToolResults`] | replaces old results of tools by notes that say how to get them back |
//! | [`Window`] | leaves whole turns out, the oldest first |
//!
//! An agent that names none has both, in this order.

mod tool_results;
mod window;

use std::sync::Arc;

pub use tool_results::ToolResults;
pub use window::Window;

use super::reducer::Reducer;

/// The reducers of an agent that names none.
pub(crate) fn standard() -> Arc<[Arc<dyn Reducer>]> {
    Arc::new([Arc::new(ToolResults), Arc::new(Window)])
}
