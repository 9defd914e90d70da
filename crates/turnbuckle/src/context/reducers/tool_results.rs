//! Tool-result retention: results that a tool does not ask to keep become notes.

use std::collections::HashMap;

use crate::context::plan::{Plan, PlannedResult, Pressure, Retention};
use crate::context::reducer::Reducer;
use crate::message::Text;

/// Replaces results of tools by notes, the oldest first. A note says what was there, how big it was and how to get it back.
///
/// Which results it may touch is said by each tool's [`Retention`]. If the open turn would fail otherwise, it goes further: it
/// replaces every result that the model has read and that need not be kept, and shortens those that the model has not read yet
/// to their beginning and end, so that together they take half of the context.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolResults;

impl Reducer for ToolResults {
    fn name(&self) -> &str {
        "tool_results"
    }

    fn reduce(&self, plan: &mut Plan) {
        let touchable = match plan.pressure() {
            Pressure::Normal => outside_retention(plan),
            Pressure::Urgent => places(plan, |result| result.was_read && result.retention != Retention::Keep),
        };
        for place in touchable {
            if !plan.is_too_large() {
                return;
            }
            plan.stub(place);
        }
        if plan.pressure() == Pressure::Urgent {
            shorten_unread(plan);
            shorten_kept(plan);
        }
    }
}

fn places(plan: &Plan, which: impl Fn(&PlannedResult) -> bool) -> Vec<usize> {
    (0..plan.results().len()).filter(|place| which(&plan.results()[*place])).collect()
}

/// The results that were read and that their tools do not ask to keep, the oldest first.
fn outside_retention(plan: &Plan) -> Vec<usize> {
    let mut newer: HashMap<&Text, u32> = HashMap::new();
    let mut found = Vec::new();
    for (place, result) in plan.results().iter().enumerate().rev() {
        let newer = newer.entry(&result.tool).or_default();
        let age = plan.turns().len() - 1 - result.turn;
        let is_kept = match result.retention {
            Retention::Turns(turns) => age < turns as usize,
            Retention::Last(last) => *newer < last,
            Retention::Keep => true,
        };
        *newer += 1;
        if result.was_read && !is_kept {
            found.push(place);
        }
    }
    found.reverse();
    found
}

/// Results that the model has not read yet share half of the context. Those that need less than their share leave the rest to
/// the others.
fn shorten_unread(plan: &mut Plan) {
    let mut unread = places(plan, |result| !result.was_read);
    unread.sort_by_key(|place| plan.results()[*place].tokens);
    let (mut room, mut left) = (plan.limit() / 2, unread.len() as u64);
    for place in unread {
        let share = room / left.max(1);
        if plan.results()[place].tokens > share {
            plan.shorten(place, share);
        }
        (room, left) = (room.saturating_sub(plan.results()[place].tokens), left - 1);
    }
}

/// A result that must be kept may take a quarter of the context by itself.
fn shorten_kept(plan: &mut Plan) {
    let most = plan.limit() / 4;
    for place in places(plan, |result| result.was_read && result.retention == Retention::Keep && result.tokens > most) {
        if !plan.is_too_large() {
            return;
        }
        plan.shorten(place, most);
    }
}
