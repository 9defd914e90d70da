//! Summaries: what stands in the place of the oldest turns.

use crate::context::plan::Plan;
use crate::context::reducer::Reducer;

/// Shows a summary in the place of the oldest turns, if one was made. It makes none itself: an agent that has this reducer has
/// them made between turns, when its contexts come near their limit, and a turn never waits for one.
///
/// Without a summary it does nothing, and [`Window`](super::Window) leaves turns out. What was left out is covered by the next
/// summary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summaries;

impl Reducer for Summaries {
    fn name(&self) -> &str {
        "summary"
    }

    fn prepare(&self, plan: &mut Plan) {
        plan.show_summary();
    }

    fn reduce(&self, _: &mut Plan) {}

    fn wants_summaries(&self) -> bool {
        true
    }
}
