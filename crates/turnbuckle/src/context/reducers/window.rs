//! The sliding window: whole turns are left out, the oldest first, and steps of long turns.

use crate::context::plan::{Plan, PlannedStep, PlannedTurn, Pressure};
use crate::context::reducer::Reducer;

/// Leaves whole turns out, the oldest first. The open turn always stays, but if it is too long by itself, its oldest steps go: replies
/// of the model with their calls and results.
///
/// Before a whole turn goes, steps of ended turns go, the oldest first: so what users said in them stays, and what was answered in the
/// end.
///
/// Turns that make no difference are not given up. If leaving out all turns before the last one would not be enough, other reducers
/// first make the recent turns smaller, and then their steps go as well. If the open turn alone is too large, nothing is left out before they have tried to make that
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
        if plan.pressure() == Pressure::Urgent && plan.tokens() <= plan.limit() {
            // It fits. What would still not make enough room is not given up.
            let steps: u64 = steps_that_can_go(plan).map(|step| step.tokens).sum();
            if plan.tokens().saturating_sub(tokens(&older) + steps) > plan.enough() {
                return;
            }
        }
        plan.leave_out_ended_steps();
        if plan.pressure() < Pressure::Urgent {
            while plan.is_too_large() && plan.leave_out_oldest() {}
            return;
        }
        while plan.is_too_large() && plan.turns().iter().any(|turn| older(&turn)) && plan.leave_out_oldest() {}
        leave_out_steps(plan);
        while plan.tokens() > plan.limit() && plan.leave_out_oldest() {}
        if plan.pressure() == Pressure::Last && plan.tokens() > plan.limit() {
            plan.leave_out_steps(plan.limit(), 0);
        }
    }
}

/// Leaves the oldest steps of the open turn out, if they are what fills the context: a quarter of it, or three quarters of what the
/// rest leaves. Then at most half of that stays. So the steps behind a cut have room to grow, and the next cut is far off.
fn leave_out_steps(plan: &mut Plan) {
    let tokens: u64 = steps_that_can_go(plan).map(|step| step.tokens).sum();
    let room = plan.limit().saturating_sub(plan.tokens().saturating_sub(tokens));
    if tokens >= plan.limit() / 4 || tokens > room / 4 * 3 {
        plan.leave_out_steps(plan.target(), (plan.limit() / 8).min(room / 2));
    }
}

/// Those of the open turn but the last one, which stays.
fn steps_that_can_go(plan: &Plan) -> impl Iterator<Item = &PlannedStep> {
    let older = plan.steps().split_last().map_or(&[][..], |(_, older)| older);
    older.iter().filter(|step| !step.is_left_out && (!step.is_kept || plan.pressure() == Pressure::Last))
}
