//! Which part of the log contexts are made of.
//!
//! A window holds the events of the open turn and of the ended turns that contexts show. What it holds follows from the log
//! and from what is recorded beside it, so a revived conversation sends what a live one would have sent.
//!
//! Once a [`Cut`] is recorded, the window begins where the cut says, has stubs in the place of the results that the cut names,
//! and grows until the next cut. Before the first cut it drops whole turns, oldest first, that are beyond its capacity. That is
//! more than a context may show, so a live conversation makes a cut long before. It happens to logs that were written without
//! cuts, and if a turn adds more than a context can hold; the next model call records it as a cut.

use std::sync::Arc;

use super::plan::{Plan, ToolFacts};
use super::tokens;
use crate::call_map::CallMap;
use crate::cut::Cut;
use crate::event::{Event, EventKind, InjectionTarget, TurnEnded};
use crate::message::Text;
use crate::store::Totals;

/// The newest part of a log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    /// Oldest first: those of ended turns, then those since the last turn ended.
    events: Vec<Arc<Event>>,
    /// The ended turns that are still in `events`, oldest first.
    ended: Vec<EndedTurn>,
    /// How many of `events` belong to `ended`.
    counted: usize,
    /// Tokens of these.
    ended_tokens: u64,
    /// Tokens of the events behind `counted`.
    open_tokens: u64,
    /// Of all ended turns, also of those that have left the window. The model calls tell a script where to go on.
    totals: Totals,
    /// Tokens that ended turns may hold together before there is a cut.
    capacity: u64,
    /// The last cut. Its stubs stand in `events`.
    cut: Option<Arc<Cut>>,
}

/// An ended turn in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct EndedTurn {
    events: usize,
    tokens: u64,
}

impl Window {
    /// A window on an empty log.
    pub(crate) fn new(capacity: u64) -> Self {
        let events = Vec::with_capacity(8);
        let (ended, totals) = (Vec::new(), Totals::default());
        Self { events, ended, counted: 0, ended_tokens: 0, open_tokens: 0, totals, capacity, cut: None }
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
        self.open_tokens += tokens::of_event(event);
        self.events.push(event.clone());
    }

    /// A turn ended whose events begin at `first`. One that was halted or rejected leaves only what it left for the
    /// next turn.
    pub(crate) fn end_turn(&mut self, event: &Arc<Event>, ended: &TurnEnded, first: usize) {
        self.totals = self.totals_after(ended, first, &[]);
        if ended.outcome.joins_history() {
            self.events.push(event.clone());
        } else {
            let mut index = 0;
            self.events.retain(|event| {
                index += 1;
                index <= first || is_for_next_turn(event)
            });
        }
        let rest = &self.events[self.counted..];
        if !rest.is_empty() {
            let tokens = rest.iter().map(|event| tokens::of_event(event)).sum();
            self.ended.push(EndedTurn { events: rest.len(), tokens });
            self.ended_tokens += tokens;
        }
        (self.counted, self.open_tokens) = (self.events.len(), 0);
        self.trim();
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
        self.ended_tokens + self.open_tokens
    }

    /// Tokens of turns that were dropped and that no cut tells of.
    pub(crate) fn dropped(&self) -> u64 {
        if self.cut.is_some() { 0 } else { self.gone() }
    }

    /// What reducers may change.
    pub(crate) fn plan(&self, facts: &dyn Fn(&str) -> ToolFacts, limit: u64, target: u64) -> Plan {
        let stubs = self.cut.as_ref().map_or(&[][..], |cut| &cut.stubs);
        Plan::new(&self.events, self.ended.iter().map(|turn| turn.events), stubs, facts, limit, target)
    }

    /// Takes over what reducers made of a plan of this window, recorded as `cut`. Returns how many events are gone.
    pub(crate) fn follow(&mut self, plan: &Plan, cut: Arc<Cut>) -> usize {
        let gone = plan.events_left_out();
        self.drop_oldest(plan.turns_left_out(), gone);
        for event in plan.changed() {
            self.put(event.clone());
        }
        self.cut = Some(cut);
        self.recount();
        gone
    }

    /// Takes over the totals of the whole log and the capacity, for a window that was filled from the end of a log.
    /// False if events are missing that would still be in the window.
    pub(crate) fn complete(&mut self, capacity: u64, totals: Totals, is_whole_log: bool) -> bool {
        (self.capacity, self.totals) = (capacity, totals);
        let complete = is_whole_log || self.gone() <= self.excess();
        self.trim();
        complete
    }

    /// Takes over the totals of the whole log and its last cut, for a window that was filled from where the cut begins.
    pub(crate) fn complete_from(&mut self, capacity: u64, totals: Totals, cut: Arc<Cut>) {
        (self.capacity, self.totals) = (capacity, totals);
        let mut names: CallMap<Text> = CallMap::default();
        let mut shortened = Vec::with_capacity(cut.stubs.len());
        for event in &self.events {
            match &event.kind {
                EventKind::ToolCall { call, name, .. } => drop(names.insert(call.clone(), name.clone())),
                EventKind::ToolResult { call, .. } => {
                    let stub = cut.stubs.binary_search_by_key(&event.seq, |stub| stub.seq).ok().map(|at| cut.stubs[at]);
                    let name = names.get_mut(call);
                    shortened.extend(stub.zip(name).and_then(|(stub, name)| stub.shorten(event, name)));
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

    /// Puts an event in the place of the one with the same seq.
    fn put(&mut self, event: Arc<Event>) {
        if let Ok(place) = self.events.binary_search_by_key(&event.seq, |event| event.seq) {
            self.events[place] = event;
        }
    }

    /// Counts everything anew, after events were replaced.
    fn recount(&mut self) {
        let count = |events: &[Arc<Event>]| events.iter().map(|event| tokens::of_event(event)).sum::<u64>();
        let mut begin = 0;
        for turn in &mut self.ended {
            turn.tokens = count(&self.events[begin..begin + turn.events]);
            begin += turn.events;
        }
        self.ended_tokens = self.ended.iter().map(|turn| turn.tokens).sum();
        self.open_tokens = count(&self.events[self.counted..]);
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
            self.ended_tokens -= self.ended.drain(..turns).map(|turn| turn.tokens).sum::<u64>();
            self.events.drain(..events);
            self.counted -= events;
        }
    }
}

fn is_for_next_turn(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. })
}
