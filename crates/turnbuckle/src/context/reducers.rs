//! Ready-made reducers.
//!
//! | reducer | what it does |
//! |---|---|
//! | [`ToolResults`] | replaces old results of tools by notes that say how to get them back |
//! | [`Window`] | leaves whole turns out, the oldest first |
//! | [`Summaries`] | shows a summary in the place of the oldest turns, if one was made |
//!
//! An agent that names none has all of them, in this order.

mod summaries;
mod tool_results;
mod window;

use std::sync::Arc;

pub use summaries::Summaries;
pub use tool_results::ToolResults;
pub use window::Window;

use super::reducer::Reducer;

/// The reducers of an agent that names none.
pub(crate) fn standard() -> Arc<[Arc<dyn Reducer>]> {
    Arc::new([Arc::new(ToolResults), Arc::new(Window), Arc::new(Summaries)])
}
