//! Tool-result retention: results that a tool does not ask to keep become notes, and large arguments of old calls become short.

use std::collections::{HashMap, HashSet};

use crate::context::plan::{Plan, PlannedItem, Pressure, Retention};
use crate::context::reducer::Reducer;
use crate::message::Text;

/// How often unread results are measured and shortened again.
const ROUNDS: usize = 8;

/// Replaces results of tools by notes, the oldest first. A note says what was there, how big it was and how to get it back.
///
/// Which results it may touch is said by each tool's [`Retention`]. If that is not enough, it shortens the arguments of the same
/// tools' calls: of a file that was written, its path and its beginning stay. A call and its result stay a pair.
///
/// If older history is not enough, [`Retention::Turns`] and [`Retention::Last`] protect the results of ended turns no longer:
/// otherwise a whole turn would have to go, with what the user said in it. [`Retention::Keep`] does.
///
/// If there is still little room, it replaces every result that the model has read and that need not be kept, and shortens the
/// arguments of calls that it has read. If the open turn would fail otherwise, it goes further: it shortens those that the model has not read yet to their beginning and end, so that together they take half of the
/// context, and shortens the arguments of any call. If that is not enough, because of a long message for example, those that the
/// model has not read yet share what the rest leaves of the context, down to a few lines each.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolResults;

impl Reducer for ToolResults {
    fn name(&self) -> &str {
        "tool_results"
    }

    fn reduce(&self, plan: &mut Plan) {
        let fits = plan.tokens() <= plan.limit();
        let (results, calls) = match plan.pressure() {
            Pressure::Normal => (outside_retention(plan, plan.results()), outside_retention(plan, plan.calls())),
            Pressure::Recent => {
                let can_go = |item: &PlannedItem| item.retention != Retention::Keep && !plan.turns()[item.turn].is_open;
                (places(plan.results(), can_go), places(plan.calls(), can_go))
            }
            Pressure::Urgent => {
                // The last results of a tool stay if the context fits and steps without them make enough room.
                let last = if fits && steps_are_enough(plan) { newest(plan.results()) } else { HashSet::new() };
                let can_go = |result: &PlannedItem| result.was_read && result.retention != Retention::Keep;
                let mut results = places(plan.results(), can_go);
                results.retain(|place| !last.contains(place));
                (results, places(plan.calls(), |call| call.was_read || !fits))
            }
            Pressure::Last => return fit_unread(plan),
        };
        for place in results {
            if !plan.is_too_large() {
                return;
            }
            plan.stub(place);
        }
        if plan.pressure() == Pressure::Urgent && !fits {
            // Results that nobody has read yet are worth more than what the model wrote itself.
            shorten_large_calls(plan);
            shorten_unread(plan, plan.limit() / 2);
            shorten_kept(plan);
        }
        for place in calls {
            if !plan.is_too_large() {
                return;
            }
            plan.shorten_call(place, 0);
        }
    }
}

/// A call may take an eighth of the context by itself.
fn shorten_large_calls(plan: &mut Plan) {
    let most = plan.limit() / 8;
    for place in 0..plan.calls().len() {
        if plan.calls()[place].tokens > most {
            plan.shorten_call(place, most);
        }
    }
}

fn places(items: &[PlannedItem], which: impl Fn(&PlannedItem) -> bool) -> Vec<usize> {
    (0..items.len()).filter(|place| which(&items[*place])).collect()
}

/// Whether the context has enough room without the steps of the open turn that can go.
fn steps_are_enough(plan: &Plan) -> bool {
    let older = plan.steps().split_last().map_or(&[][..], |(_, older)| older);
    let can_go = older.iter().filter(|step| !step.is_kept && !step.is_left_out);
    plan.tokens().saturating_sub(can_go.map(|step| step.tokens).sum()) <= plan.enough()
}

/// The places of results that are the last ones of a tool that says so.
fn newest(items: &[PlannedItem]) -> HashSet<usize> {
    let mut newer: HashMap<&Text, u32> = HashMap::new();
    let mut found = HashSet::new();
    for (place, one) in items.iter().enumerate().rev() {
        let newer = newer.entry(&one.tool).or_default();
        if matches!(one.retention, Retention::Last(last) if *newer < last) {
            found.insert(place);
        }
        *newer += 1;
    }
    found
}

/// The places of those that were read and that their tools do not ask to keep, the oldest first.
fn outside_retention(plan: &Plan, items: &[PlannedItem]) -> Vec<usize> {
    let mut newer: HashMap<&Text, u32> = HashMap::new();
    let mut found = Vec::new();
    for (place, one) in items.iter().enumerate().rev() {
        let newer = newer.entry(&one.tool).or_default();
        let age = plan.turns().len() - 1 - one.turn;
        let is_kept = match one.retention {
            Retention::Turns(turns) => age < turns as usize,
            Retention::Last(last) => *newer < last,
            Retention::Keep => true,
        };
        *newer += 1;
        if one.was_read && !is_kept {
            found.push(place);
        }
    }
    found.reverse();
    found
}

/// Results that the model has not read yet share so many tokens. Those that need less than their share leave the rest to the
/// others.
fn shorten_unread(plan: &mut Plan, mut room: u64) {
    let mut unread = places(plan.results(), |result| !result.was_read);
    unread.sort_by_key(|place| plan.results()[*place].tokens);
    let mut left = unread.len() as u64;
    for place in unread {
        let share = room / left.max(1);
        if plan.results()[place].tokens > share {
            plan.shorten(place, share);
        }
        (room, left) = (room.saturating_sub(plan.results()[place].tokens), left - 1);
    }
}

/// Results that the model has not read yet share what everything else leaves of the context.
fn fit_unread(plan: &mut Plan) {
    let unread = |plan: &Plan| -> u64 {
        plan.results().iter().filter(|result| !result.was_read).map(|result| result.tokens).sum()
    };
    let mut room = unread(plan);
    // How many tokens a beginning and an end have is known afterwards, so what is still too much is taken off again.
    for _ in 0..ROUNDS {
        let excess = plan.tokens().saturating_sub(plan.limit());
        if excess == 0 || room == 0 {
            return;
        }
        room = room.min(unread(plan)).saturating_sub(excess);
        shorten_unread(plan, room);
    }
}

/// A result that must be kept may take a quarter of the context by itself.
fn shorten_kept(plan: &mut Plan) {
    let most = plan.limit() / 4;
    let is_large =
        |result: &PlannedItem| result.was_read && result.retention == Retention::Keep && result.tokens > most;
    for place in places(plan.results(), is_large) {
        if !plan.is_too_large() {
            return;
        }
        plan.shorten(place, most);
    }
}
