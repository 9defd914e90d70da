//! The sliding window: whole turns are left out, the oldest first.

use crate::context::plan::{Plan, PlannedTurn, Pressure};
use crate::context::reducer::Reducer;

/// Leaves whole turns out, the oldest first. The open turn always stays.
///
/// Turns that make no difference are not given up. If leaving out all turns before the last one would not be enough, other reducers
/// first make the recent turns smaller. If the open turn alone is too large, nothing is left out before they have tried to make that
/// one smaller, too, and then the turn before it goes only if the context does not fit with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window;

impl Reducer for Window {
    fn name(&self) -> &str {
        "window"
    }

    fn reduce(&self, plan: &mut Plan) {
        let older = |turn: &&PlannedTurn| !turn.is_left_out && !turn.is_open && !turn.is_recent;
        let tokens = |which: &dyn Fn(&&PlannedTurn) -> bool| -> u64 {
            plan.turns().iter().filter(which).map(|turn| turn.tokens).sum()
        };
        let least = match plan.pressure() {
            Pressure::Normal => plan.tokens() - tokens(&older),
            Pressure::Recent => tokens(&|turn| turn.is_open),
            Pressure::Urgent | Pressure::Last => 0,
        };
        if least > plan.target() {
            return;
        }
        if plan.pressure() < Pressure::Urgent {
            while plan.is_too_large() && plan.leave_out_oldest() {}
            return;
        }
        while plan.is_too_large() && plan.turns().iter().any(|turn| older(&turn)) && plan.leave_out_oldest() {}
        while plan.tokens() > plan.limit() && plan.leave_out_oldest() {}
    }
}
