//! A context as reducers see it: turns and steps that can be left out, results and arguments of calls that can be shortened. A plan never changes the log.

mod item;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use self::item::ToolFacts;
pub use self::item::{ItemKind, PlannedItem, Retention};
pub use self::steps::PlannedStep;
use self::steps::Steps;
use crate::cut::{LeftOutSteps, Stub};
use crate::event::{Event, EventKind, Executor};
use crate::id::CallId;
use crate::message::{Content, Part, Text};

/// How much a plan must shrink. Reducers run once for each, in this order, as long as the plan is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Pressure {
    /// The context is too large; older history makes room.
    Normal,
    /// Older history is not enough. Results that a tool asks to keep for some turns are given up before the turn behind them
    /// is left out: a result can be had again, and what a user said cannot. If a provider said that a request was too long,
    /// reducers begin here.
    Recent,
    /// The context still does not fit, and without more room the turn fails; or it fits, but has more than [`Plan::enough`], so the
    /// next calls would make cuts, too. If it fits, only what the model has read may go.
    Urgent,
    /// All of that was not enough, and it does not fit. What the model has not read yet is all that is left to be shortened.
    Last,
}

/// A turn in a plan.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PlannedTurn {
    /// What contexts show of it, in tokens.
    pub tokens: u64,
    /// How many of the log's events it has in the window.
    pub(crate) events: usize,
    /// The seq of the last of them.
    pub(crate) last: u64,
    /// Whether it is the one under way, which cannot be left out.
    pub is_open: bool,
    /// Whether it is the one before that: left out when everything else was tried.
    pub is_recent: bool,
    /// Whether it is left out.
    pub is_left_out: bool,
}

/// Calls with fewer tokens are not worth shortening.
const SMALL_CALL: u64 = 150;

/// What is left of each string in the arguments of a call that is shortened as far as possible, in bytes.
const LEAST_ARGUMENT: u32 = 160;

/// What contexts show of a conversation, to be made smaller.
///
/// Whatever is done to a plan, the context that it makes is valid: turns are left out whole, the oldest first, and so are steps of a
/// turn, a result that is shortened stays behind its call, and a call that is shortened keeps its id, its tool and the
/// fields of its arguments.
#[derive(Debug)]
pub struct Plan {
    turns: Vec<PlannedTurn>,
    results: Vec<PlannedItem>,
    calls: Vec<PlannedItem>,
    /// Those of each turn.
    steps: Vec<Steps>,
    /// The tool by which the model finds what is not shown.
    found_by: Option<Text>,
    tokens: u64,
    limit: u64,
    target: u64,
    pressure: Pressure,
    /// Tokens of the summary that is shown before the turns.
    shown_summary: u64,
    /// A newer summary that could be shown.
    newer_summary: Option<NewerSummary>,
}

/// A summary that is newer than the one that is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewerSummary {
    /// The seq of the last event that it covers.
    pub(crate) last: u64,
    pub(crate) tokens: u64,
    /// Whether it is shown from now on.
    is_used: bool,
}

impl Plan {
    /// A plan of `events`, given with the tokens of each, of which the first belong to ended turns of so many events each, and the rest to the open turn.
    pub(crate) fn new(
        (events, counts): (&[Arc<Event>], &[u32]),
        ended: impl Iterator<Item = usize>,
        (stubs, left_out): (&[Stub], &[LeftOutSteps]),
        facts: &dyn Fn(&str) -> ToolFacts,
        limit: u64,
        target: u64,
    ) -> Self {
        let mut plan = Self {
            turns: Vec::new(),
            results: Vec::new(),
            calls: Vec::new(),
            steps: Vec::new(),
            found_by: None,
            tokens: 0,
            limit,
            target,
            pressure: Pressure::Normal,
            shown_summary: 0,
            newer_summary: None,
        };
        let (mut begin, mut recent) = (0, None);
        for count in ended {
            let end = (begin + count).min(events.len());
            let speaks = |event: &Arc<Event>| matches!(event.kind, EventKind::UserMessage { .. });
            // Of a turn that was halted or rejected there may be a note for the next one, and nothing else.
            recent = events[begin..end].iter().any(speaks).then_some(plan.turns.len()).or(recent);
            plan.add_turn((&events[begin..end], &counts[begin..end]), (stubs, left_out), facts);
            begin = end;
        }
        let rest = &events[begin..];
        plan.add_turn((rest, &counts[begin..]), (stubs, left_out), facts);
        if let Some(open) = plan.turns.last_mut() {
            open.is_open = true;
        }
        let spoke = rest.iter().rev().find(|event| matches!(event.kind, EventKind::AssistantMessage { .. }));
        let spoke = spoke.map_or(0, |event| event.seq);
        let open = plan.turns.len() - 1;
        for turn in &mut plan.turns[recent.unwrap_or(open)..open] {
            turn.is_recent = true;
        }
        for item in plan.results.iter_mut().chain(&mut plan.calls) {
            item.was_read = item.turn != open || item.event.seq < spoke;
            item.step = plan.steps[item.turn].place_of(item.event.seq);
        }
        plan.keep_steps();
        plan
    }

    /// Finds the steps with results that their tools ask to keep: all of them, or, of the open turn, the last ones.
    fn keep_steps(&mut self) {
        let mut newer: HashMap<&Text, u32> = HashMap::new();
        for result in self.results.iter().rev() {
            let newer = newer.entry(&result.tool).or_default();
            let is_kept = match result.retention {
                Retention::Keep => true,
                Retention::Last(last) => *newer < last && self.turns[result.turn].is_open,
                Retention::Turns(_) => false,
            };
            *newer += 1;
            if let (Some(step), true) = (result.step, is_kept) {
                self.steps[result.turn].shown[step].is_kept = true;
            }
        }
    }

    fn add_turn(
        &mut self,
        (events, counts): (&[Arc<Event>], &[u32]),
        (stubs, left_out): (&[Stub], &[LeftOutSteps]),
        facts: &dyn Fn(&str) -> ToolFacts,
    ) {
        let mut names: HashMap<&CallId, &Text> = HashMap::new();
        let last = events.last().map_or(u64::MAX, |event| event.seq);
        let (is_open, is_recent, is_left_out) = (false, false, false);
        let mut turn = PlannedTurn { tokens: 0, events: events.len(), last, is_open, is_recent, is_left_out };
        for (event, count) in events.iter().zip(counts) {
            let tokens = u64::from(*count);
            turn.tokens += tokens;
            let (kind, name) = match &event.kind {
                // What a provider's host did is read by it in another form, and stays as it is.
                EventKind::ToolCall { executor: Executor::Provider, .. } => continue,
                EventKind::ToolCall { call, name, .. } => {
                    names.insert(call, name);
                    (ItemKind::Call, name)
                }
                EventKind::ToolResult { call, .. } => match names.get(call) {
                    Some(name) => (ItemKind::Result, *name),
                    None => continue,
                },
                _ => continue,
            };
            let stub = stub_of(stubs, event);
            if kind == ItemKind::Call && tokens <= SMALL_CALL && stub.is_none() {
                continue;
            }
            let ToolFacts { retention, recovery } = facts(name);
            let item = PlannedItem {
                kind,
                turn: self.turns.len(),
                tool: name.clone(),
                retention,
                tokens,
                was_read: true,
                step: None,
                event: event.clone(),
                stub,
                recovery,
                is_changed: false,
            };
            match kind {
                ItemKind::Result => self.results.push(item),
                ItemKind::Call => self.calls.push(item),
            }
        }
        self.tokens += turn.tokens;
        self.turns.push(turn);
        self.steps.push(Steps::of(events, counts, left_out));
    }

    /// Says what summaries there are: the tokens of the one that is shown, and a newer one with its last event and its tokens.
    pub(crate) fn set_summaries(&mut self, shown: u64, newer: Option<(u64, u64)>) {
        self.shown_summary = shown;
        self.newer_summary = newer.map(|(last, tokens)| NewerSummary { last, tokens, is_used: false });
        self.tokens += shown;
    }

    /// Shows the newest summary in the place of the turns that it covers, if that saves anything. The turn before the open one stays
    /// all the same if the target leaves room for it: the next message is mostly about what was said there. False if there is no
    /// summary that is not shown already.
    pub fn show_summary(&mut self) -> bool {
        let Some(newer) = self.newer_summary.filter(|newer| !newer.is_used) else { return false };
        let all = self.turns.iter().take_while(|turn| !turn.is_open && turn.last <= newer.last).count();
        let recent = self.turns[..all].iter().position(|turn| turn.is_recent).unwrap_or(all);
        let with = |covered: usize| {
            let gone = self.turns[..covered].iter().filter(|turn| !turn.is_left_out).map(|turn| turn.tokens);
            self.tokens - self.shown_summary - gone.sum::<u64>() + newer.tokens
        };
        let covered = if with(recent) <= self.target { recent } else { all };
        let tokens = with(covered);
        if all == 0 || tokens >= self.tokens {
            return false;
        }
        for turn in &mut self.turns[..covered] {
            turn.is_left_out = true;
        }
        self.tokens = tokens;
        self.newer_summary = Some(NewerSummary { is_used: true, ..newer });
        true
    }

    /// Whether the newest summary is shown from now on.
    pub(crate) fn shows_newer_summary(&self) -> bool {
        self.newer_summary.is_some_and(|newer| newer.is_used)
    }

    /// What contexts show, in tokens: history and the open turn, without system prompt, tools and what hooks add.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// What they may show.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// What reducers reduce to, so that the next reduction is far off and the provider's prompt cache holds until then.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// What is small enough if more cannot be had from ended turns: half of the room that [`target`](Self::target) would leave.
    pub fn enough(&self) -> u64 {
        self.target + self.limit.saturating_sub(self.target) / 2
    }

    /// Whether more is to be done.
    pub fn is_too_large(&self) -> bool {
        self.tokens > self.target
    }

    /// How much it must shrink.
    pub fn pressure(&self) -> Pressure {
        self.pressure
    }

    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        self.pressure = pressure;
    }

    /// The turns, the oldest first; the last one is the open one.
    pub fn turns(&self) -> &[PlannedTurn] {
        &self.turns
    }

    /// The results of all turns, the oldest first.
    pub fn results(&self) -> &[PlannedItem] {
        &self.results
    }

    /// The calls of all turns whose arguments can be shortened, the oldest first.
    pub fn calls(&self) -> &[PlannedItem] {
        &self.calls
    }

    /// Leaves the oldest turn out that is not left out yet. False if only the open one is there.
    pub fn leave_out_oldest(&mut self) -> bool {
        let Some(turn) = self.turns.iter_mut().find(|turn| !turn.is_left_out && !turn.is_open) else { return false };
        turn.is_left_out = true;
        self.tokens -= turn.tokens;
        true
    }

    /// The steps of the open turn that contexts show, the oldest first. The last one cannot be left out.
    pub fn steps(&self) -> &[PlannedStep] {
        self.steps.last().map_or(&[], |steps| &steps.shown)
    }

    /// Leaves steps of the open turn out, the oldest first, until the plan has `target` tokens or those that could still go have
    /// no more than `keep`. One note stands in the place of all of them; what users and hooks said between them stays. Steps with
    /// results that are to be kept go only under [`Pressure::Last`]. Returns how many steps it left out: none if that would save
    /// nothing.
    pub fn leave_out_steps(&mut self, target: u64, keep: u64) -> usize {
        self.leave_out_steps_of(self.turns.len() - 1, target, keep)
    }

    /// Leaves steps of ended turns out, those of the oldest turn first, until the plan is small enough, in the same way: so what
    /// users said in these turns stays, and their last replies. Under [`Pressure::Normal`] those of recent turns stay. Returns how
    /// many it left out.
    pub fn leave_out_ended_steps(&mut self) -> usize {
        let mut gone = 0;
        for turn in 0..self.turns.len() - 1 {
            if !self.is_too_large() {
                break;
            }
            if self.pressure > Pressure::Normal || !self.turns[turn].is_recent {
                gone += self.leave_out_steps_of(turn, self.target, 0);
            }
        }
        gone
    }

    fn leave_out_steps_of(&mut self, turn: usize, target: u64, keep: u64) -> usize {
        let kept_go = self.pressure == Pressure::Last;
        let (planned, steps) = (&mut self.turns[turn], &mut self.steps[turn]);
        if planned.is_left_out {
            return 0;
        }
        let (before, excess) = (steps.newly_left_out(), self.tokens.saturating_sub(target));
        let can_go = |step: &PlannedStep| kept_go || !step.is_kept;
        let Some(saved) = steps.leave_out(can_go, (excess, keep), self.found_by.as_ref()) else { return 0 };
        planned.tokens -= saved;
        self.tokens -= saved;
        steps.newly_left_out() - before
    }

    /// Replaces the result at this place of [`results`](Self::results) by a note that says what was there and how to get it
    /// back. False if that would save nothing.
    pub fn stub(&mut self, result: usize) -> bool {
        self.replace(result, 0, 0)
    }

    /// Shortens the result at this place of [`results`](Self::results) to its beginning and its end, so that about `tokens` are
    /// left. False if that would save nothing.
    pub fn shorten(&mut self, result: usize, tokens: u64) -> bool {
        let Some(planned) = self.results.get(result) else { return false };
        // As many bytes as have so many tokens on average, in this text.
        let text = |content: &Content| content.parts().iter().filter_map(Part::as_text).map(str::len).sum::<usize>();
        let bytes = planned.content().map_or(0, text) as u64;
        let bytes = u128::from(bytes) * u128::from(tokens) / u128::from(planned.tokens.max(1));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let (head, tail) = ((bytes / 4 * 3).max(Stub::MIN_HEAD), bytes / 4);
        self.replace(result, head, tail)
    }

    /// Shortens the arguments of the call at this place of [`calls`](Self::calls) to the beginnings of their strings, so that
    /// about `tokens` are left. False if that would save nothing.
    pub fn shorten_call(&mut self, call: usize, tokens: u64) -> bool {
        let Some(planned) = self.calls.get(call) else { return false };
        let EventKind::ToolCall { arguments, .. } = &planned.event.kind else { return false };
        let (mut strings, mut bytes) = (0, 0);
        measure(&arguments.value(), &mut strings, &mut bytes);
        let shown =
            u128::from(bytes) * u128::from(tokens) / u128::from(planned.tokens.max(1)) / u128::from(strings.max(1));
        self.replace_call(call, u32::try_from(shown).unwrap_or(u32::MAX).max(LEAST_ARGUMENT))
    }

    fn replace_call(&mut self, call: usize, head: u32) -> bool {
        let Some(planned) = self.calls.get_mut(call) else { return false };
        let EventKind::ToolCall { arguments, .. } = &planned.event.kind else { return false };
        let stub = match planned.stub {
            Some(stub) => Stub { head, ..stub },
            None => Stub::of_call(planned.event.seq, &arguments.value(), head),
        };
        Self::shrink(planned, &mut self.turns, &mut self.steps, &mut self.tokens, stub)
    }

    fn replace(&mut self, result: usize, head: u32, tail: u32) -> bool {
        let Some(planned) = self.results.get_mut(result) else { return false };
        let Some(content) = planned.content() else { return false };
        let stub = planned.stub.unwrap_or_else(|| Stub::of(planned.event.seq, content, planned.recovery));
        Self::shrink(planned, &mut self.turns, &mut self.steps, &mut self.tokens, Stub { head, tail, ..stub })
    }

    fn shrink(
        item: &mut PlannedItem,
        turns: &mut [PlannedTurn],
        steps: &mut [Steps],
        total: &mut u64,
        stub: Stub,
    ) -> bool {
        let (turn, steps) = (&mut turns[item.turn], &mut steps[item.turn]);
        if turn.is_left_out || steps.is_left_out(item.step) {
            return false;
        }
        let Some(saved) = item.shorten(stub) else { return false };
        turn.tokens -= saved;
        if let Some(step) = item.step {
            steps.shown[step].tokens -= saved;
        }
        *total -= saved;
        true
    }

    /// How many turns are left out.
    pub(crate) fn turns_left_out(&self) -> usize {
        self.turns.iter().filter(|turn| turn.is_left_out).count()
    }

    /// How many of them have something behind this event.
    pub(crate) fn turns_left_out_behind(&self, last: u64) -> usize {
        self.turns.iter().filter(|turn| turn.is_left_out && turn.last > last).count()
    }

    /// How many events at the front belong to them.
    pub(crate) fn events_left_out(&self) -> usize {
        self.turns.iter().filter(|turn| turn.is_left_out).map(|turn| turn.events).sum()
    }

    /// The results that were shortened, as events, in the order of the log.
    pub(crate) fn changed_results(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.shown(&self.results).filter(|result| result.is_changed).map(|result| &result.event)
    }

    /// The calls that were shortened, as events, in the order of the log.
    pub(crate) fn changed_calls(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.shown(&self.calls).filter(|call| call.is_changed).map(|call| &call.event)
    }

    /// All results and calls that are shown shortened, in the order of the log.
    pub(crate) fn stubs(&self) -> Vec<Stub> {
        let all = self.shown(&self.results).chain(self.shown(&self.calls));
        let mut stubs: Vec<Stub> = all.filter_map(|item| item.stub).collect();
        stubs.sort_unstable_by_key(|stub| stub.seq);
        stubs
    }

    fn shown<'p>(&'p self, items: &'p [PlannedItem]) -> impl Iterator<Item = &'p PlannedItem> {
        items.iter().filter(|item| !self.turns[item.turn].is_left_out && !self.steps[item.turn].is_left_out(item.step))
    }

    /// Says by which tool the model finds what is not shown.
    pub(crate) fn set_found_by(&mut self, tool: Option<Text>) {
        self.found_by = tool;
    }

    /// How many steps were left out, in all turns and in ended ones.
    pub(crate) fn steps_left_out(&self) -> (usize, usize) {
        let mut count = (0, 0);
        for (turn, steps) in self.turns.iter().zip(&self.steps).filter(|(turn, _)| !turn.is_left_out) {
            let gone = steps.newly_left_out();
            count = (count.0 + gone, if turn.is_open { count.1 } else { count.1 + gone });
        }
        count
    }

    /// All steps of the shown turns that are left out, by earlier cuts, too, in the order of the log.
    pub(crate) fn left_out_steps(&self) -> Vec<LeftOutSteps> {
        let shown = self.turns.iter().zip(&self.steps).filter(|(turn, _)| !turn.is_left_out);
        shown.filter_map(|(_, steps)| steps.left_out(self.found_by.as_ref())).collect()
    }
}

fn stub_of(stubs: &[Stub], event: &Event) -> Option<Stub> {
    stubs.binary_search_by_key(&event.seq, |stub| stub.seq).ok().map(|at| stubs[at])
}

/// Counts the strings that can be shortened, and their bytes.
fn measure(value: &serde_json::Value, strings: &mut u64, bytes: &mut u64) {
    use serde_json::Value::{Array, Object, String};
    match value {
        String(text) if text.len() > LEAST_ARGUMENT as usize => {
            *strings += 1;
            *bytes += text.len() as u64;
        }
        Array(items) => items.iter().for_each(|item| measure(item, strings, bytes)),
        Object(fields) => fields.values().for_each(|field| measure(field, strings, bytes)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
