//! `State` is a fold over the log; `next` is a pure function of it and of the turn's [`Progress`]. The same two serve a
//! live turn and a revived one.

mod open_turn;

use std::sync::Arc;

pub(crate) use self::open_turn::{OpenCall, OpenQuestion, OpenTurn};
use crate::context::plan::Plan;
use crate::context::window::Window;
use crate::cut::Cut;
use crate::cut::steps::{self, Fate};
use crate::event::{Cause, Event, EventKind, Outcome};
use crate::feed::ConversationState;
use crate::id::{CallId, TurnId};
use crate::message::Text;
use crate::scope::{Author, SystemAuthor};
use crate::store::Totals;
use crate::summary::Summary;

/// What comes next for a conversation. A stage never calls another: it changes the state, and `next` looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
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

/// What a turn has done since its last write. It is not in the log: after a crash it starts empty, and the turn builds
/// its request again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// The request of the next model call is ready. Set by `build`, reset by every write.
    pub(crate) request_ready: bool,
    /// A stage decided how the turn ends, and `end` has not written it yet.
    pub(crate) verdict: Option<Verdict>,
}

/// The stage that comes next.
pub(crate) fn next(state: &State, progress: &Progress) -> Stage {
    let Some(turn) = &state.turn else { return Stage::Idle };
    if progress.verdict.is_some() || turn.verdict.is_some() {
        Stage::End
    } else if !turn.accepted {
        Stage::Accept
    } else if turn.questions.iter().any(|question| question.answer.is_none()) {
        Stage::Waiting
    } else if turn.approved_reply().is_some() {
        Stage::Call
    } else if turn.has_ready_call() {
        Stage::Dispatch
    } else if !turn.calls.is_empty() {
        Stage::Waiting
    } else if turn.spoke {
        Stage::End
    } else if progress.request_ready {
        Stage::Call
    } else {
        Stage::Build
    }
}

/// How a turn is going to end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<Text>,
    pub(crate) cause: Option<Cause>,
    pub(crate) by: Option<Author>,
}

impl Verdict {
    pub(crate) fn new(outcome: Outcome, reason: impl Into<Text>, cause: Cause) -> Self {
        Self { outcome, reason: Some(reason.into()), cause: Some(cause), by: None }
    }
    pub(crate) fn completed() -> Self {
        Self { outcome: Outcome::Completed, reason: None, cause: None, by: None }
    }
    pub(crate) fn failed(reason: impl Into<Text>, cause: Cause) -> Self {
        Self::new(Outcome::Failed, reason, cause)
    }
    pub(crate) fn exhausted(limit: impl Into<Text>) -> Self {
        let limit = limit.into();
        Self::new(Outcome::Exhausted, limit.clone(), Cause::Limit { limit }).by(Author::System(SystemAuthor::Limit))
    }
    /// A hook ends the turn on purpose.
    pub(crate) fn by_hook(outcome: Outcome, reason: Text, hook: &Text, point: crate::point::Point) -> Self {
        Self::new(outcome, reason, Cause::HookDecided { hook: hook.clone(), point }).by(Author::hook(hook))
    }
    pub(crate) fn by(mut self, by: Author) -> Self {
        self.by = Some(by);
        self
    }
}

/// A conversation, as far as its log tells: nothing in it comes from anywhere else.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    /// The seq of the last event.
    pub(crate) seq: u64,
    /// The turn under way.
    pub(crate) turn: Option<OpenTurn>,
    /// The part of the log that contexts are made of.
    pub(crate) window: Window,
}

impl State {
    /// An empty log. Ended turns may hold `capacity` tokens together, as long as there is no cut.
    pub(crate) fn new(capacity: u64) -> Self {
        Self { seq: 0, turn: None, window: Window::new(capacity) }
    }

    /// The state of a log of which `log` is the end, `totals` are the sums and `cut` is the last cut, with the summary that it
    /// shows; `None` if older events
    /// are needed. It is the very state that a fold over the whole log has, with every cut made when it was made.
    pub(crate) fn revive(
        capacity: u64,
        totals: Totals,
        cut: Option<(&Arc<Cut>, Option<&Arc<Summary>>)>,
        log: &[Arc<Event>],
    ) -> Option<Box<Self>> {
        if let Some((cut, summary)) = cut {
            let begin = log.iter().position(|event| event.seq == cut.first)?;
            let mut state = Box::new(Self::new(u64::MAX));
            for event in &log[begin..] {
                match steps::fate(&cut.left_out, &[], event) {
                    Fate::Shown => state.apply(event),
                    Fate::LeftOut => state.apply_unseen(event),
                    Fate::Noted(note) => {
                        state.window.push(&note);
                        state.apply_unseen(event);
                    }
                }
            }
            state.window.complete_from(capacity, totals, cut.clone(), summary.cloned());
            return Some(state);
        }
        let is_whole = log.first().is_none_or(|first| first.seq == 1);
        let end_of_a_turn = || log.iter().position(|event| matches!(event.kind, EventKind::TurnEnded(_)));
        let begin = if is_whole { 0 } else { end_of_a_turn()? + 1 };
        let mut state = Box::new(Self::new(u64::MAX));
        log[begin..].iter().for_each(|event| state.apply(event));
        state.seq = log.last().map_or(0, |last| last.seq);
        let before = state.window.len();
        let complete = state.window.complete(capacity, totals, is_whole);
        if let Some(turn) = &mut state.turn {
            turn.first -= before - state.window.len();
        }
        complete.then_some(state)
    }

    /// Makes a cut: contexts show what reducers left of a plan of the window.
    pub(crate) fn cut(&mut self, plan: &Plan, cut: Arc<Cut>, newest: Option<&Arc<Summary>>) {
        let gone = self.window.follow(plan, cut, newest);
        if let Some(turn) = &mut self.turn {
            turn.first -= gone;
        }
    }

    /// Takes up an inbox message: the turn exists from now on, before its first event. This is the one thing that a fold of
    /// the log does not give; the inbox has it.
    pub(crate) fn begin(&mut self, id: TurnId) {
        self.turn = Some(OpenTurn::new(id, self.window.len()));
    }

    /// Folds one event in.
    pub(crate) fn apply(&mut self, event: &Arc<Event>) {
        self.seq = event.seq;
        if let EventKind::TurnEnded(ended) = &event.kind {
            let first = self.turn.take().map_or(self.window.len(), |turn| turn.first);
            return self.window.end_turn(event, ended, first);
        }
        if let (EventKind::UserMessage { .. }, None) = (&event.kind, &self.turn) {
            self.begin(event.turn.clone());
        }
        self.window.push(event);
        if let Some(turn) = &mut self.turn {
            turn.apply(event);
        }
    }

    /// Folds an event in that contexts do not show: it belongs to a step that is left out.
    fn apply_unseen(&mut self, event: &Arc<Event>) {
        self.seq = event.seq;
        if let Some(turn) = &mut self.turn {
            turn.apply(event);
        }
    }

    /// The events of the open turn that contexts show, with a note in the place of steps that are left out.
    pub(crate) fn turn_events(&self) -> &[Arc<Event>] {
        self.turn.as_ref().map_or(&[], |turn| &self.window.events()[turn.first..])
    }

    /// Whether a call of this id is in the window.
    pub(crate) fn has_call(&self, id: &CallId) -> bool {
        self.window.events().iter().any(|event| event.kind.names_call() == Some(id))
    }

    /// Whether the window holds every call of the log.
    pub(crate) fn is_whole(&self) -> bool {
        self.window.is_whole(self.seq)
    }
}
