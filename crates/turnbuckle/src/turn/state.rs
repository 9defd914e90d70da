//! `State` is a fold over events; `next` is a pure function of it. The same two serve a live turn and a revived one.

mod open_turn;

use std::sync::Arc;

pub use self::open_turn::OpenTurn;
pub(crate) use self::open_turn::{OpenCall, OpenQuestion};
use crate::context::layout::{ContextCache, Overlay};
use crate::context::tokens;
use crate::event::{Event, EventKind, InjectionTarget, Outcome, TurnEnded};
use crate::feed::ConversationState;
use crate::id::{CallId, TurnId};
use crate::message::{Message, Text};
use crate::model::Segments;
use crate::scope::{Author, SystemAuthor};
use crate::store::Totals;

/// What comes next for a conversation. A stage never calls another: it changes the state, and `next` looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The inbox message meets the `before_agent` hooks and becomes history.
    Accept,
    /// The context of the next model call is assembled.
    Build,
    /// The model speaks.
    Call,
    /// Tools run.
    Dispatch,
    /// Stop hooks judge; the turn is written off.
    End,
    /// Someone must answer first.
    Waiting,
    /// No turn is open.
    Idle,
}

impl From<Stage> for ConversationState {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Accept => Self::Accept,
            Stage::Build => Self::Build,
            Stage::Call => Self::Call,
            Stage::Dispatch => Self::Dispatch,
            Stage::End => Self::End,
            Stage::Waiting => Self::Waiting,
            Stage::Idle => Self::Idle,
        }
    }
}

/// What comes next.
pub fn next(state: &State) -> Stage {
    let Some(turn) = &state.turn else { return Stage::Idle };
    if turn.verdict.is_some() {
        Stage::End
    } else if !turn.accepted {
        Stage::Accept
    } else if turn.questions.iter().any(|question| question.answer.is_none()) {
        Stage::Waiting
    } else if turn.approved_reply().is_some() {
        Stage::Call
    } else if turn.calls.iter().any(OpenCall::can_go_on) {
        Stage::Dispatch
    } else if !turn.calls.is_empty() {
        Stage::Waiting
    } else if turn.spoke {
        Stage::End
    } else if turn.built {
        Stage::Call
    } else {
        Stage::Build
    }
}

/// How a turn is going to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<Text>,
    pub(crate) by: Option<Author>,
}

impl Verdict {
    pub(crate) fn new(outcome: Outcome, reason: impl Into<Text>) -> Self {
        Self { outcome, reason: Some(reason.into()), by: None }
    }
    pub(crate) fn failed(reason: impl Into<Text>) -> Self {
        Self::new(Outcome::Failed, reason)
    }
    pub(crate) fn exhausted(limit: impl Into<Text>) -> Self {
        Self::new(Outcome::Exhausted, limit).by(Author::System(SystemAuthor::Limit))
    }
    pub(crate) fn by(mut self, by: Author) -> Self {
        self.by = Some(by);
        self
    }
}

/// A conversation, as far as its log tells.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The last event's.
    pub(crate) seq: u64,
    /// Of the log: what contexts are made of, and all of the open turn.
    pub(crate) history: Vec<Arc<Event>>,
    pub(crate) turn: Option<OpenTurn>,
    /// Of all ended turns, also those that history no longer holds. By its model calls a script goes on where it
    /// stopped.
    pub(crate) totals: Totals,
    /// Tokens that history may hold; whole turns beyond it fall out.
    room: u64,
    /// Tokens of each ended turn in history, with its number of events.
    ended: Vec<(usize, u64)>,
    /// Events that the contexts of the open turn leave out, so that it finds room. They stay in history until it has
    /// ended: it may not join, and then the next turn has them again. Not from the log; written by `build`.
    left_out: usize,
    /// History as messages, as far as it was needed. Written by `build`.
    pub(crate) cache: ContextCache,
}

impl State {
    /// An empty log; history may hold `room` tokens.
    pub fn new(room: u64) -> Self {
        let (history, ended) = (Vec::with_capacity(8), Vec::new());
        Self {
            seq: 0,
            history,
            turn: None,
            totals: Totals::default(),
            room,
            ended,
            left_out: 0,
            cache: ContextCache::default(),
        }
    }

    /// The state whose log ends in `log` and comes to `totals`; `None` if more of the log is needed to tell.
    ///
    /// It is the very state that a fold over the whole log has.
    pub fn revive(room: u64, totals: Totals, log: &[Arc<Event>]) -> Option<Box<Self>> {
        let whole = log.first().is_none_or(|first| first.seq == 1);
        let end_of_a_turn = || log.iter().position(|event| matches!(event.kind, EventKind::TurnEnded(_)));
        let begin = if whole { 0 } else { end_of_a_turn()? + 1 };
        let mut state = Box::new(Self::new(u64::MAX));
        log[begin..].iter().for_each(|event| state.apply(event));
        state.seq = log.last().map_or(0, |last| last.seq);
        (state.room, state.totals) = (room, totals);
        let complete = whole || state.gone() <= state.excess(room, 0);
        state.shorten(room);
        complete.then_some(state)
    }

    /// Takes up an inbox message: the turn exists from now on.
    pub fn begin(&mut self, id: TurnId) {
        self.turn = Some(OpenTurn::new(id, self.history.len()));
    }

    /// What all its ended turns come to.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether a call of this id is in history.
    pub(crate) fn has_call(&self, id: &CallId) -> bool {
        self.history.iter().any(|event| event.kind.names_call() == Some(id))
    }

    /// Whether nothing of the log has left history.
    pub(crate) fn is_whole(&self) -> bool {
        self.history.len() as u64 == self.seq
    }

    /// Folds one event in.
    pub fn apply(&mut self, event: &Arc<Event>) {
        self.seq = event.seq;
        if let EventKind::TurnEnded(ended) = &event.kind {
            return self.end(event, ended);
        }
        if let (EventKind::UserMessage { .. }, None) = (&event.kind, &self.turn) {
            self.begin(event.turn.clone());
        }
        self.history.push(event.clone());
        if let Some(turn) = &mut self.turn {
            turn.apply(&event.kind);
        }
    }

    fn end(&mut self, event: &Arc<Event>, ended: &TurnEnded) {
        self.totals = self.totals_after(ended, &[]);
        self.leave_out(0);
        let first = self.turn.take().map_or(self.history.len(), |turn| turn.first);
        let counted = self.counted();
        if ended.outcome.joins_history() {
            self.history.push(event.clone());
        } else {
            let kept = self.history.split_off(first).into_iter().filter(|event| is_for_next_turn(event));
            self.history.extend(kept);
        }
        let left = &self.history[counted..];
        if !left.is_empty() {
            self.ended.push((left.len(), left.iter().map(|event| tokens::of_event(event)).sum()));
        }
        self.shorten(self.room);
    }

    /// What the log comes to when the open turn ends like this, with `more` events before its end.
    pub(crate) fn totals_after(&self, ended: &TurnEnded, more: &[Arc<Event>]) -> Totals {
        let counted = self.counted();
        let first = self.turn.as_ref().map_or(self.history.len(), |turn| turn.first).max(counted);
        let joins = |event: &&Arc<Event>| ended.outcome.joins_history() || is_for_next_turn(event);
        // Notes between turns stand and fall with the turn that follows them.
        let between = self.history[counted..first].iter();
        let events = between.chain(self.history[first..].iter().chain(more).filter(joins));
        Totals {
            model_calls: self.totals.model_calls.saturating_add(u64::from(ended.model_calls)),
            tokens: self.totals.tokens + events.map(|event| tokens::of_event(event)).sum::<u64>(),
        }
    }

    /// How many events of history belong to ended turns.
    fn counted(&self) -> usize {
        self.ended.iter().map(|(events, _)| events).sum()
    }

    /// Makes room for the open turn beside the ended ones.
    pub(crate) fn make_room(&mut self, room: u64) {
        let Some(turn) = &self.turn else { return };
        let open: u64 = self.history[turn.first..].iter().map(|event| tokens::of_event(event)).sum();
        let (_, events) = self.superfluous(room, open);
        self.leave_out(events);
    }

    fn leave_out(&mut self, events: usize) {
        if self.left_out != events {
            self.left_out = events;
            // What is kept of the page begins with what was shown before.
            self.cache = ContextCache::default();
        }
    }

    /// History as messages, for a call of the open turn.
    pub(crate) fn show(&mut self, overlay: &Overlay<'_>) -> (Arc<Vec<Message>>, Segments) {
        let open = self.turn.as_ref().map_or(self.history.len(), |turn| turn.first);
        self.cache.show(&self.history[self.left_out..], open - self.left_out, overlay)
    }

    /// Tokens of ended turns that have left history.
    fn gone(&self) -> u64 {
        let kept: u64 = self.ended.iter().map(|(_, tokens)| tokens).sum();
        self.totals.tokens.saturating_sub(kept)
    }

    /// Tokens of ended turns that must leave history, so that `open` more find room. It grows in steps of a quarter of
    /// the room, so that the provider's cache holds between them; and it depends on the log alone, so that a revived
    /// conversation sends what a live one would.
    fn excess(&self, room: u64, open: u64) -> u64 {
        let step = (room / 4).max(1);
        self.totals.tokens.saturating_add(open).saturating_sub(room).div_ceil(step).saturating_mul(step)
    }

    /// How many turns, and how many events, are too much: whole turns, oldest first.
    fn superfluous(&self, room: u64, open: u64) -> (usize, usize) {
        let (excess, mut gone) = (self.excess(room, open), self.gone());
        let (mut turns, mut events) = (0, 0);
        for (length, tokens) in &self.ended {
            if gone >= excess {
                break;
            }
            (turns, events, gone) = (turns + 1, events + length, gone + tokens);
        }
        (turns, events)
    }

    /// What is too much falls out.
    fn shorten(&mut self, room: u64) {
        let (turns, events) = self.superfluous(room, 0);
        if turns == 0 {
            return;
        }
        // What is kept of the page begins with what falls out.
        self.cache = ContextCache::default();
        self.ended.drain(..turns);
        self.history.drain(..events);
        if let Some(turn) = &mut self.turn {
            turn.first -= events;
        }
    }
}

fn is_for_next_turn(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Injection { place: InjectionTarget::NextTurn, .. })
}
