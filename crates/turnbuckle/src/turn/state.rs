//! `State` is a fold over events; `next` is a pure function of it. The same two serve a live turn and a revived one.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::context::layout::Page;
use crate::context::tokens;
use crate::event::{Event, EventKind, Outcome, Place, Prompt, Refusal, Resolved, TurnEnded};
use crate::id::{CallId, TurnId};
use crate::live::ConversationState;
use crate::message::{Text, ToolCall, Usage};
use crate::scope::{By, System};
use crate::store::Totals;
use crate::tool::Executor;

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
    pub(crate) by: Option<By>,
}

impl Verdict {
    pub(crate) fn new(outcome: Outcome, reason: impl Into<Text>) -> Self {
        Self { outcome, reason: Some(reason.into()), by: None }
    }
    pub(crate) fn failed(reason: impl Into<Text>) -> Self {
        Self::new(Outcome::Failed, reason)
    }
    pub(crate) fn exhausted(limit: impl Into<Text>) -> Self {
        Self::new(Outcome::Exhausted, limit).by(By::System(System::Limit))
    }
    pub(crate) fn by(mut self, by: By) -> Self {
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
    /// History as messages, as far as it was needed. Written by `build`.
    pub(crate) page: Page,
}

/// The turn under way.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTurn {
    pub(crate) id: TurnId,
    /// Whether its message is in the log.
    pub(crate) accepted: bool,
    /// Who sent the message.
    pub(crate) by: Option<By>,
    /// Where in history it begins.
    pub(crate) first: usize,
    /// Calls without a result.
    pub(crate) calls: Vec<OpenCall>,
    /// Questions that are not about a tool call: a whole reply, a pause.
    pub(crate) questions: Vec<Question>,
    /// Whether the model's last reply called for nothing.
    pub(crate) spoke: bool,
    /// Whether the next request is ready. Not from the log: a revived turn builds again.
    pub(crate) built: bool,
    /// Model calls whose replies are in the log.
    pub(crate) model_calls: u32,
    pub(crate) usage: Usage,
    /// Refused stops since the last tool call.
    pub(crate) refused: u32,
    /// Whether any stop of this turn was refused.
    pub(crate) stop_active: bool,
    pub(crate) last_refusals: Vec<Refusal>,
    /// Decided, and not yet written.
    pub(crate) verdict: Option<Verdict>,
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenCall {
    /// With the arguments it runs with, once they are known.
    pub(crate) call: ToolCall,
    pub(crate) executor: Executor,
    pub(crate) started: bool,
    /// Who allowed it.
    pub(crate) approved_by: Option<By>,
    /// The last question about it. In a box: few calls are asked about, and calls are moved often.
    pub(crate) question: Option<Box<Question>>,
    /// How many questions that its tool asked were answered.
    pub(crate) answers: usize,
}

impl OpenCall {
    /// Whether there is something to do that needs no answer.
    pub(super) fn can_go_on(&self) -> bool {
        self.question.as_ref().is_none_or(|question| question.answer.is_some())
    }
}

/// Something asked of a person or a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) call: CallId,
    pub(crate) prompt: Prompt,
    pub(crate) expires: Timestamp,
    pub(crate) answer: Option<(Resolved, By)>,
    pub(crate) reason: Option<Text>,
}

impl OpenTurn {
    fn new(id: TurnId, first: usize) -> Self {
        Self {
            id,
            accepted: false,
            by: None,
            first,
            calls: Vec::new(),
            questions: Vec::new(),
            spoke: false,
            built: false,
            model_calls: 0,
            usage: Usage::default(),
            refused: 0,
            stop_active: false,
            last_refusals: Vec::new(),
            verdict: None,
        }
    }

    /// Who approved the reply that was asked about, if it is not in the log yet.
    pub(crate) fn approved_reply(&self) -> Option<&By> {
        self.questions.iter().find_map(|question| match (&question.prompt, &question.answer) {
            (Prompt::Approval { .. }, Some((Resolved::Approved, by))) => Some(by),
            _ => None,
        })
    }

    /// Whether a person approved a pause: the turn ends without asking the stop hooks again.
    pub(crate) fn stop_approved(&self) -> bool {
        let approved = |question: &Question| {
            matches!((&question.prompt, &question.answer), (Prompt::Pause { .. }, Some((Resolved::Approved, _))))
        };
        self.questions.iter().any(approved)
    }

    fn open_question(&mut self, id: &CallId) -> Option<&mut Question> {
        let of_calls = self.calls.iter_mut().filter_map(|open| open.question.as_deref_mut());
        of_calls.chain(&mut self.questions).find(|question| question.call == *id && question.answer.is_none())
    }

    /// Everything that waits for an answer.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = &Question> {
        let of_calls = self.calls.iter().filter_map(|open| open.question.as_deref());
        of_calls.chain(&self.questions).filter(|question| question.answer.is_none())
    }
}

impl State {
    /// An empty log; history may hold `room` tokens.
    pub fn new(room: u64) -> Self {
        let (history, ended) = (Vec::with_capacity(8), Vec::new());
        Self { seq: 0, history, turn: None, totals: Totals::default(), room, ended, page: Page::default() }
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
        state.shorten(room, 0);
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
        self.shorten(self.room, 0);
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
        self.shorten(room, open);
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

    /// Whole turns fall out, oldest first.
    fn shorten(&mut self, room: u64, open: u64) {
        let (excess, mut gone) = (self.excess(room, open), self.gone());
        let (mut turns, mut events) = (0, 0);
        for (length, tokens) in &self.ended {
            if gone >= excess {
                break;
            }
            (turns, events, gone) = (turns + 1, events + length, gone + tokens);
        }
        if turns == 0 {
            return;
        }
        // What is kept of the page begins with what falls out.
        self.page = Page::default();
        self.ended.drain(..turns);
        self.history.drain(..events);
        if let Some(turn) = &mut self.turn {
            turn.first -= events;
        }
    }
}

fn is_for_next_turn(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Injection { place: Place::NextTurn, .. })
}

impl OpenTurn {
    fn apply(&mut self, kind: &EventKind) {
        self.built = false;
        match kind {
            EventKind::UserMessage { by, .. } => {
                self.accepted = true;
                self.by = Some(by.clone());
            }
            EventKind::AssistantMessage { attempt, usage, .. } => {
                self.spoke = true;
                self.questions.clear();
                self.model_calls = self.model_calls.saturating_add(*attempt);
                self.usage += *usage;
            }
            EventKind::ToolCall { call, name, arguments, executor } => {
                self.spoke = false;
                self.refused = 0;
                self.last_refusals.clear();
                let call = ToolCall { call: call.clone(), name: name.clone(), arguments: arguments.clone() };
                self.calls.push(OpenCall {
                    call,
                    executor: *executor,
                    started: false,
                    approved_by: None,
                    question: None,
                    answers: 0,
                });
            }
            EventKind::ToolStarted { call, arguments, approved_by, .. } => {
                if let Some(open) = self.calls.iter_mut().find(|open| open.call.call == *call) {
                    open.started = true;
                    open.question = None;
                    open.call.arguments = arguments.clone();
                    open.approved_by = approved_by.clone();
                }
            }
            EventKind::ToolResult { call, .. } => self.calls.retain(|open| open.call.call != *call),
            EventKind::Suspension { call, prompt, expires } => self.ask(call, prompt, *expires),
            EventKind::Resolution { call, decision, by, reason } => self.answer(call, *decision, by, reason),
            EventKind::StopFeedback { refusals } => {
                self.spoke = false;
                self.questions.clear();
                self.refused = self.refused.saturating_add(1);
                self.stop_active = true;
                self.last_refusals.clone_from(refusals);
            }
            EventKind::Injection { .. } | EventKind::TurnEnded(_) => {}
        }
    }

    fn ask(&mut self, call: &CallId, prompt: &Prompt, expires: Timestamp) {
        let question = Question { call: call.clone(), prompt: prompt.clone(), expires, answer: None, reason: None };
        match self.calls.iter_mut().find(|open| open.call.call == *call) {
            Some(open) => {
                // A tool that asks in its own words speaks of other arguments than its own.
                if let (false, Prompt::Approval { arguments, .. } | Prompt::ClientExec { arguments, .. }) =
                    (open.started, prompt)
                {
                    open.call.arguments = arguments.clone();
                }
                open.question = Some(Box::new(question));
            }
            None => self.questions.push(question),
        }
    }

    fn answer(&mut self, call: &CallId, decision: Resolved, by: &By, reason: &Option<Text>) {
        if let Some(open) = self.calls.iter_mut().find(|open| open.started && open.call.call == *call) {
            open.answers += 1;
        }
        let Some(question) = self.open_question(call) else { return };
        question.answer = Some((decision, by.clone()));
        question.reason.clone_from(reason);
        let about_reply = matches!(question.prompt, Prompt::Approval { tool: None, .. });
        // Neither let through nor refused: asking the stop hooks again would pause for ever.
        if decision == Resolved::Expired && matches!(question.prompt, Prompt::Pause { .. }) {
            self.verdict = Some(Verdict::new(Outcome::Halted, "nobody answered in time").by(by.clone()));
            return;
        }
        if about_reply && decision != Resolved::Approved {
            let reason = reason.clone().unwrap_or_else(|| "the reply was not approved".into());
            self.verdict = Some(Verdict::new(Outcome::Rejected, reason).by(by.clone()));
        }
    }
}
