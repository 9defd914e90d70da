//! Which part of the log contexts are made of.
//!
//! A window holds the events of the open turn and of the ended turns that contexts show. What it holds follows from the log
//! and from what is recorded beside it, so a revived conversation sends what a live one would have sent.
//!
//! Once a [`Cut`] is recorded, the window begins where the cut says, has stubs in the place of the results that the cut names and
//! notes in the place of steps that it leaves out, and grows until the next cut. Before the first cut it drops whole turns, oldest first, that are beyond its capacity. That is
//! more than a context may show, so a live conversation makes a cut long before. It happens to logs that were written without
//! cuts, and if a turn adds more than a context can hold; the next model call records it as a cut.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::layout;
use super::plan::{Plan, ToolFacts};
use super::tokens;
use crate::call_map::CallMap;
use crate::cut::steps::{self, Fate};
use crate::cut::{Cut, Factor, LeftOutSteps};
use crate::event::{Event, EventKind, InjectionTarget, TurnEnded, share_repeated};
use crate::message::Text;
use crate::store::Totals;
use crate::summary::Summary;

/// How many events a new window has room for.
const FIRST_ROOM: usize = 8;
/// How many ended turns say how large the next one may become.
const RECENT_TURNS: usize = 32;

/// The newest part of a log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    /// Oldest first: those of ended turns, then those since the last turn ended.
    events: Vec<Arc<Event>>,
    /// Tokens of each of `events`: a text is looked through once, when it comes.
    counts: SmallVec<[u32; FIRST_ROOM]>,
    /// The ended turns that are still in `events`, oldest first.
    ended: SmallVec<[EndedTurn; 1]>,
    /// How many of `events` belong to `ended`.
    counted: usize,
    /// Tokens of these.
    ended_tokens: u64,
    /// Tokens of the events behind `counted`.
    open_tokens: u64,
    /// Of all ended turns, also of those that have left the window. The model calls tell a script where to go on.
    totals: Totals,
    /// How many events of the turns in `ended` were dropped because they are [over](is_over).
    over: usize,
    /// Tokens that ended turns may hold together before there is a cut.
    capacity: u64,
    /// The last cut. Its stubs stand in `events`.
    cut: Option<Arc<Cut>>,
    /// The summary that it shows before them.
    summary: Option<Arc<Summary>>,
    /// Tokens of that.
    summary_tokens: u64,
}

/// An ended turn in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EndedTurn {
    events: usize,
    tokens: u64,
    /// How many more events it had that are [over](is_over).
    over: usize,
}

impl Window {
    /// A window on an empty log.
    pub(crate) fn new(capacity: u64) -> Self {
        let events = Vec::with_capacity(FIRST_ROOM);
        let (ended, totals) = (SmallVec::new(), Totals::default());
        let counts = SmallVec::new();
        let (cut, summary) = (None, None);
        Self {
            events,
            counts,
            ended,
            counted: 0,
            ended_tokens: 0,
            open_tokens: 0,
            totals,
            over: 0,
            capacity,
            cut,
            summary,
            summary_tokens: 0,
        }
    }

    /// What corrects estimates of this conversation, as its last cut has it; `None` before the first one.
    pub(crate) fn factor(&self) -> Option<Factor> {
        self.cut.as_ref().map(|cut| cut.factor)
    }

    pub(crate) fn events(&self) -> &[Arc<Event>] {
        &self.events
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn push(&mut self, event: &Arc<Event>) {
        let count = count_of(event);
        self.open_tokens += u64::from(count);
        self.events.push(event.clone());
        self.counts.push(count);
    }

    fn sum(&self, events: Range<usize>) -> u64 {
        self.counts[events].iter().map(|count| u64::from(*count)).sum()
    }

    /// A turn ended whose events begin at `first`. One that was halted or rejected leaves only what it left for the
    /// next turn.
    pub(crate) fn end_turn(&mut self, event: &Arc<Event>, ended: &TurnEnded, first: usize) {
        self.totals = self.totals_after(ended, first, &[]);
        let mut over = 0;
        if ended.outcome.joins_history() {
            let before = self.events.len();
            self.keep_from(first, |event| !is_over(event));
            over = before - self.events.len();
            self.events.push(event.clone());
            self.counts.push(count_of(event));
        } else {
            self.keep_from(first, is_for_next_turn);
        }
        let rest = self.counted..self.events.len();
        if !rest.is_empty() {
            let (events, tokens) = (rest.len(), self.sum(rest));
            self.ended.push(EndedTurn { events, tokens, over });
            self.ended_tokens += tokens;
            self.over += over;
        }
        (self.counted, self.open_tokens) = (self.events.len(), 0);
        self.trim();
    }

    /// Drops the events from `first` on that are not to be kept.
    fn keep_from(&mut self, first: usize, is_kept: impl Fn(&Event) -> bool) {
        let mut kept = first;
        for place in first..self.events.len() {
            if is_kept(&self.events[place]) {
                self.events.swap(kept, place);
                self.counts.swap(kept, place);
                kept += 1;
            }
        }
        self.events.truncate(kept);
        self.counts.truncate(kept);
    }

    /// Whether nothing of a log of so many events is missing but what [`is_over`].
    pub(crate) fn is_whole(&self, seq: u64) -> bool {
        (self.events.len() + self.over) as u64 == seq
    }

    /// What the log comes to when the open turn, which begins at `first`, ends like this with `more` events before its
    /// end.
    pub(crate) fn totals_after(&self, ended: &TurnEnded, first: usize, more: &[Arc<Event>]) -> Totals {
        let joined = match ended.outcome.joins_history() {
            true => self.open_tokens + more.iter().map(|event| tokens::of_event(event)).sum::<u64>(),
            false => {
                // Notes that were left between turns stay, whatever becomes of the turn behind them.
                let between = self.events[self.counted..first.max(self.counted)].iter();
                let left = self.events[first.max(self.counted)..].iter().chain(more).filter(|e| is_for_next_turn(e));
                between.chain(left).map(|event| tokens::of_event(event)).sum()
            }
        };
        Totals {
            model_calls: self.totals.model_calls.saturating_add(u64::from(ended.model_calls)),
            tokens: self.totals.tokens + joined,
        }
    }

    /// Tokens of everything in it.
    pub(crate) fn tokens(&self) -> u64 {
        self.summary_tokens + self.ended_tokens + self.open_tokens
    }

    /// The summary that contexts show before the events.
    pub(crate) fn summary(&self) -> Option<&Arc<Summary>> {
        self.summary.as_ref()
    }

    /// When the last cut was made.
    pub(crate) fn last_cut(&self) -> Option<&Arc<Cut>> {
        self.cut.as_ref()
    }

    /// Tokens that are not covered by a summary up to this event.
    pub(crate) fn uncovered(&self, covered: u64) -> u64 {
        let first = self.events.partition_point(|event| event.seq <= covered);
        self.sum(first..self.events.len())
    }

    /// Tokens of the open turn.
    pub(crate) fn open_tokens(&self) -> u64 {
        self.open_tokens
    }

    /// Tokens of what was said in the open turn, and of what was added to it: they stay, whatever is left out.
    pub(crate) fn open_said(&self) -> u64 {
        let open = self.events[self.counted..].iter().zip(&self.counts[self.counted..]);
        open.filter(|(event, _)| !steps::is_part_of_step(&event.kind)).map(|(_, count)| u64::from(*count)).sum()
    }

    /// Tokens of the open turn that stay when its steps are left out: what was said, the last reply, and steps with a result of a
    /// tool of which `is_kept` is true.
    pub(crate) fn open_words(&self, is_kept: &dyn Fn(&str) -> bool) -> u64 {
        let (mut words, mut step, mut stays) = (0, 0, false);
        for (event, count) in self.events[self.counted..].iter().zip(&self.counts[self.counted..]) {
            let tokens = u64::from(*count);
            if !steps::is_part_of_step(&event.kind) {
                words += tokens;
                continue;
            }
            if matches!(event.kind, EventKind::AssistantMessage { .. }) {
                words += if stays { step } else { 0 };
                (step, stays) = (0, false);
            }
            step += tokens;
            stays |= matches!(&event.kind, EventKind::ToolCall { name, .. } if is_kept(name));
        }
        words + step
    }

    /// Tokens of the largest of the last turns, the open one counted.
    pub(crate) fn largest_turn(&self) -> u64 {
        let recent = self.ended.iter().rev().take(RECENT_TURNS).map(|turn| turn.tokens);
        recent.fold(self.open_tokens, u64::max)
    }

    /// The last event of the oldest ended turns that a summary should cover, so that at most `rest` tokens of them stay beside it.
    /// `None` if that is nothing that `covered` does not cover.
    pub(crate) fn worth_summarising(&self, covered: u64, rest: u64) -> Option<u64> {
        let (mut left, mut end, mut last) = (self.ended_tokens, 0, None);
        for turn in &self.ended {
            if left <= rest {
                break;
            }
            left -= turn.tokens;
            end += turn.events;
            last = self.events.get(end - 1).map(|event| event.seq);
        }
        last.filter(|last| *last > covered)
    }

    /// Tokens of turns that were dropped and that no cut tells of.
    pub(crate) fn dropped(&self) -> u64 {
        if self.cut.is_some() { 0 } else { self.gone() }
    }

    /// What reducers may change.
    pub(crate) fn plan(
        &self,
        newest: Option<&Arc<Summary>>,
        facts: &dyn Fn(&str) -> ToolFacts,
        limit: u64,
        target: u64,
    ) -> Plan {
        let stubs = self.cut.as_ref().map_or(&[][..], |cut| &cut.stubs);
        let ended = self.ended.iter().map(|turn| turn.events);
        let shortened = (stubs, self.left_out());
        let mut plan = Plan::new((&self.events, &self.counts), ended, shortened, facts, limit, target);
        let newer = newest.filter(|newest| self.summary.as_ref().is_none_or(|shown| shown.version < newest.version));
        plan.set_summaries(self.summary_tokens, newer.map(|newer| (newer.last, summary_tokens(newer))));
        plan
    }

    /// Takes over what reducers made of a plan of this window, recorded as `cut`. Returns how many events of ended turns are gone.
    pub(crate) fn follow(&mut self, plan: &Plan, cut: Arc<Cut>, newest: Option<&Arc<Summary>>) -> usize {
        if plan.shows_newer_summary() {
            self.show(newest.cloned());
        }
        let before = self.counted;
        self.drop_oldest(plan.turns_left_out(), plan.events_left_out());
        for event in plan.changed_results().chain(plan.changed_calls()) {
            self.put(event.clone());
        }
        if plan.steps_left_out().0 > 0 {
            self.take_out_steps(&cut.left_out);
        }
        self.cut = Some(cut);
        self.recount();
        before - self.counted
    }

    /// Steps of the turns in the window that are left out.
    pub(crate) fn left_out(&self) -> &[LeftOutSteps] {
        self.cut.as_ref().map_or(&[], |cut| &cut.left_out)
    }

    /// Takes the steps out of the turns that are left out from now on. A note has the place of the first event of each turn's.
    fn take_out_steps(&mut self, left_out: &[LeftOutSteps]) {
        let earlier = self.cut.take();
        let before = earlier.as_ref().map_or(&[][..], |cut| &cut.left_out);
        let (mut kept, mut begin) = (0, 0);
        for turn in 0..self.ended.len() {
            let (end, first) = (begin + self.ended[turn].events, kept);
            kept = self.keep_shown(begin..end, kept, left_out, before);
            self.ended[turn].events = kept - first;
            begin = end;
        }
        let counted = kept;
        kept = self.keep_shown(begin..self.events.len(), kept, left_out, before);
        self.counted = counted;
        self.events.truncate(kept);
        self.counts.truncate(kept);
    }

    /// Moves those of the events in `places` that are still shown to `kept` and behind it. Returns the place behind the last one.
    fn keep_shown(
        &mut self,
        places: Range<usize>,
        mut kept: usize,
        left_out: &[LeftOutSteps],
        before: &[LeftOutSteps],
    ) -> usize {
        for place in places {
            match steps::fate(left_out, before, &self.events[place]) {
                Fate::LeftOut => continue,
                Fate::Shown => {}
                Fate::Noted(note) => {
                    self.counts[place] = count_of(&note);
                    self.events[place] = note;
                }
            }
            self.events.swap(kept, place);
            self.counts.swap(kept, place);
            kept += 1;
        }
        kept
    }

    /// Takes over the totals of the whole log and the capacity, for a window that was filled from the end of a log.
    /// False if events are missing that would still be in the window.
    pub(crate) fn complete(&mut self, capacity: u64, totals: Totals, is_whole_log: bool) -> bool {
        (self.capacity, self.totals) = (capacity, totals);
        if is_whole_log {
            // Stored by a version that may have counted differently.
            self.totals.tokens = self.ended_tokens;
        }
        let complete = is_whole_log || self.gone() <= self.excess();
        self.trim();
        complete
    }

    /// Gives back the room that was left for more events while the window was filled.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.events.shrink_to_fit();
        self.counts.shrink_to_fit();
        self.ended.shrink_to_fit();
    }

    /// Makes it as small as one that was read back. Events that others hold as well stay as they are.
    pub(crate) fn pack(&mut self) {
        share_repeated(&mut self.events);
        self.shrink_to_fit();
    }

    /// Takes over the totals of the whole log and its last cut, for a window that was filled from where the cut begins.
    pub(crate) fn complete_from(
        &mut self,
        capacity: u64,
        totals: Totals,
        cut: Arc<Cut>,
        summary: Option<Arc<Summary>>,
    ) {
        self.show(summary);
        (self.capacity, self.totals) = (capacity, totals);
        let mut names: CallMap<Text> = CallMap::default();
        let mut shortened = Vec::with_capacity(cut.stubs.len());
        let stub = |seq: u64| cut.stubs.binary_search_by_key(&seq, |stub| stub.seq).ok().map(|at| cut.stubs[at]);
        for event in &self.events {
            match &event.kind {
                EventKind::ToolCall { call, name, .. } => {
                    names.insert(call.clone(), name.clone());
                    shortened.extend(stub(event.seq).and_then(|stub| stub.shorten(event, name)));
                }
                EventKind::ToolResult { call, .. } => {
                    let name = names.get_mut(call);
                    shortened.extend(stub(event.seq).zip(name).and_then(|(stub, name)| stub.shorten(event, name)));
                }
                _ => {}
            }
        }
        for event in shortened {
            self.put(event);
        }
        self.cut = Some(cut);
        self.recount();
    }

    fn show(&mut self, summary: Option<Arc<Summary>>) {
        self.summary_tokens = summary.as_ref().map_or(0, summary_tokens);
        self.summary = summary;
    }

    /// Puts an event in the place of the one with the same seq.
    fn put(&mut self, event: Arc<Event>) {
        if let Ok(place) = self.events.binary_search_by_key(&event.seq, |event| event.seq) {
            self.counts[place] = count_of(&event);
            self.events[place] = event;
        }
    }

    /// Adds everything up anew, after events were replaced.
    fn recount(&mut self) {
        let mut begin = 0;
        for place in 0..self.ended.len() {
            let end = begin + self.ended[place].events;
            self.ended[place].tokens = self.sum(begin..end);
            begin = end;
        }
        self.ended_tokens = self.ended.iter().map(|turn| turn.tokens).sum();
        self.open_tokens = self.sum(self.counted..self.events.len());
    }

    /// Tokens of ended turns that have left the window, as long as there is no cut.
    fn gone(&self) -> u64 {
        self.totals.tokens.saturating_sub(self.ended_tokens)
    }

    /// Tokens of ended turns that are beyond the capacity. It grows in steps of a quarter of the capacity, so that the
    /// provider's prompt cache holds between two steps.
    fn excess(&self) -> u64 {
        let step = (self.capacity / 4).max(1);
        self.totals.tokens.saturating_sub(self.capacity).div_ceil(step).saturating_mul(step)
    }

    /// Drops the turns that do not fit any more.
    fn trim(&mut self) {
        if self.cut.is_some() || self.totals.tokens <= self.capacity {
            return;
        }
        let (excess, mut gone) = (self.excess(), self.gone());
        let (mut turns, mut events) = (0, 0);
        for turn in &self.ended {
            if gone >= excess {
                break;
            }
            (turns, events, gone) = (turns + 1, events + turn.events, gone + turn.tokens);
        }
        self.drop_oldest(turns, events);
    }

    fn drop_oldest(&mut self, turns: usize, events: usize) {
        if turns > 0 {
            for turn in self.ended.drain(..turns) {
                self.ended_tokens -= turn.tokens;
                self.over -= turn.over;
            }
            self.events.drain(..events);
            self.counts.drain(..events);
            self.counted -= events;
        }
    }
}

fn summary_tokens(summary: &Arc<Summary>) -> u64 {
    tokens::of_message(&layout::summary_message(summary))
}

fn count_of(event: &Event) -> u32 {
    u32::try_from(tokens::of_event(event)).unwrap_or(u32::MAX)
}

/// Whether an event says nothing to later contexts and names no call: only the turn that it belongs to needs it. The arguments that
/// a call was started with would be in memory twice.
fn is_over(event: &Event) -> bool {
    matches!(event.kind, EventKind::ToolStarted { .. } | EventKind::Resolution { .. })
}

fn is_for_next_turn(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. })
}
