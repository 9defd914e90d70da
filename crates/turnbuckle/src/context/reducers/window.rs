//! The sliding window: whole turns are left out, the oldest first.

use crate::context::plan::{Plan, Pressure};
use crate::context::reducer::Reducer;

/// Leaves whole turns out, the oldest first. The open turn always stays.
///
/// If leaving all of them out would not make enough room, it is the open turn that is too large: then it does nothing before
/// other reducers have tried to make that one smaller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window;

impl Reducer for Window {
    fn name(&self) -> &str {
        "window"
    }

    fn reduce(&self, plan: &mut Plan) {
        let open: u64 = plan.turns().iter().filter(|turn| turn.is_open).map(|turn| turn.tokens).sum();
        if plan.pressure() == Pressure::Normal && open > plan.target() {
            return;
        }
        while plan.is_too_large() && plan.leave_out_oldest() {}
    }
}
