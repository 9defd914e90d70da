//! Which part of the log contexts are made of.
//!
//! A window holds the events of the open turn and of as many ended turns before it as fit its capacity. Older turns
//! leave it whole, oldest first. What it holds follows from the log and the capacity alone, so a revived conversation
//! sends what a live one would have sent.

use std::sync::Arc;

use super::tokens;
use crate::event::{Event, EventKind, InjectionTarget, TurnEnded};
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
    /// Tokens of the events behind `counted`.
    open_tokens: u64,
    /// Of all ended turns, also of those that have left the window. The model calls tell a script where to go on.
    totals: Totals,
    /// Tokens that ended turns may hold together.
    capacity: u64,
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
        Self { events, ended, counted: 0, open_tokens: 0, totals, capacity }
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

    /// How many events at the front a context of the open turn leaves out, so that the turn has room beside the ended
    /// ones. They stay in the window: if this turn is rejected, the next one may show them again.
    pub(crate) fn left_out(&self, capacity: u64) -> usize {
        self.surplus(capacity, self.open_tokens).1
    }

    /// Takes over the totals of the whole log and the capacity, for a window that was filled from the end of a log.
    /// False if events are missing that would still be in the window.
    pub(crate) fn complete(&mut self, capacity: u64, totals: Totals, is_whole_log: bool) -> bool {
        (self.capacity, self.totals) = (capacity, totals);
        let complete = is_whole_log || self.gone() <= self.excess(capacity, 0);
        self.trim();
        complete
    }

    /// Tokens of ended turns that have left the window.
    fn gone(&self) -> u64 {
        let kept: u64 = self.ended.iter().map(|turn| turn.tokens).sum();
        self.totals.tokens.saturating_sub(kept)
    }

    /// Tokens of ended turns that must be left out so that `open` more fit. It grows in steps of a quarter of the
    /// capacity, so that the provider's prompt cache holds between two steps.
    fn excess(&self, capacity: u64, open: u64) -> u64 {
        let step = (capacity / 4).max(1);
        self.totals.tokens.saturating_add(open).saturating_sub(capacity).div_ceil(step).saturating_mul(step)
    }

    /// How many turns, and how many events, are too much: whole turns, oldest first.
    fn surplus(&self, capacity: u64, open: u64) -> (usize, usize) {
        let (excess, mut gone) = (self.excess(capacity, open), self.gone());
        let (mut turns, mut events) = (0, 0);
        for turn in &self.ended {
            if gone >= excess {
                break;
            }
            (turns, events, gone) = (turns + 1, events + turn.events, gone + turn.tokens);
        }
        (turns, events)
    }

    /// Drops the turns that do not fit any more.
    fn trim(&mut self) {
        let (turns, events) = self.surplus(self.capacity, 0);
        if turns > 0 {
            self.ended.drain(..turns);
            self.events.drain(..events);
            self.counted -= events;
        }
    }
}

fn is_for_next_turn(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. })
}
