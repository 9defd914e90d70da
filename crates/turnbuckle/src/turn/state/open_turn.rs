//! The turn under way, as far as the log tells: what it said, what it called, what it asked.

use super::Verdict;
use crate::clock::Timestamp;
use crate::event::{EventKind, Outcome, Question, Refusal, Resolved};
use crate::id::{CallId, TurnId};
use crate::message::{Text, ToolCall, Usage};
use crate::scope::Author;
use crate::tool::Executor;

/// The turn under way.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTurn {
    pub(crate) id: TurnId,
    /// Whether its message is in the log.
    pub(crate) accepted: bool,
    /// Who sent the message.
    pub(crate) by: Option<Author>,
    /// Where in history it begins.
    pub(crate) first: usize,
    /// Calls without a result.
    pub(crate) calls: Vec<OpenCall>,
    /// Questions that are not about a tool call: a whole reply, a pause.
    pub(crate) questions: Vec<OpenQuestion>,
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
    pub(crate) approved_by: Option<Author>,
    /// The last question about it. In a box: few calls are asked about, and calls are moved often.
    pub(crate) question: Option<Box<OpenQuestion>>,
    /// How many questions that its tool asked were answered.
    pub(crate) answers: usize,
}

impl OpenCall {
    /// Whether there is something to do that needs no answer.
    pub(in crate::turn) fn can_go_on(&self) -> bool {
        self.question.as_ref().is_none_or(|question| question.answer.is_some())
    }
}

/// Something asked of a person or a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenQuestion {
    pub(crate) call: CallId,
    pub(crate) question: Question,
    pub(crate) expires: Timestamp,
    pub(crate) answer: Option<(Resolved, Author)>,
    pub(crate) reason: Option<Text>,
}

impl OpenTurn {
    pub(super) fn new(id: TurnId, first: usize) -> Self {
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
    pub(crate) fn approved_reply(&self) -> Option<&Author> {
        self.questions.iter().find_map(|question| match (&question.question, &question.answer) {
            (Question::Approval { .. }, Some((Resolved::Approved, by))) => Some(by),
            _ => None,
        })
    }

    /// Whether a person approved a pause: the turn ends without asking the stop hooks again.
    pub(crate) fn stop_approved(&self) -> bool {
        let approved = |question: &OpenQuestion| {
            matches!((&question.question, &question.answer), (Question::Pause { .. }, Some((Resolved::Approved, _))))
        };
        self.questions.iter().any(approved)
    }

    fn open_question(&mut self, id: &CallId) -> Option<&mut OpenQuestion> {
        let of_calls = self.calls.iter_mut().filter_map(|open| open.question.as_deref_mut());
        of_calls.chain(&mut self.questions).find(|question| question.call == *id && question.answer.is_none())
    }

    /// Everything that waits for an answer.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = &OpenQuestion> {
        let of_calls = self.calls.iter().filter_map(|open| open.question.as_deref());
        of_calls.chain(&self.questions).filter(|question| question.answer.is_none())
    }
}

impl OpenTurn {
    pub(super) fn apply(&mut self, kind: &EventKind) {
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
            EventKind::Suspension { call, question, expires } => self.ask(call, question, *expires),
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

    fn ask(&mut self, call: &CallId, question: &Question, expires: Timestamp) {
        let asked =
            OpenQuestion { call: call.clone(), question: question.clone(), expires, answer: None, reason: None };
        match self.calls.iter_mut().find(|open| open.call.call == *call) {
            Some(open) => {
                // A tool that asks in its own words speaks of other arguments than its own.
                if let (false, Question::Approval { arguments, .. } | Question::ClientExec { arguments, .. }) =
                    (open.started, question)
                {
                    open.call.arguments = arguments.clone();
                }
                open.question = Some(Box::new(asked));
            }
            None => self.questions.push(asked),
        }
    }

    fn answer(&mut self, call: &CallId, decision: Resolved, by: &Author, reason: &Option<Text>) {
        if let Some(open) = self.calls.iter_mut().find(|open| open.started && open.call.call == *call) {
            open.answers += 1;
        }
        let Some(question) = self.open_question(call) else { return };
        question.answer = Some((decision, by.clone()));
        question.reason.clone_from(reason);
        let about_reply = matches!(question.question, Question::Approval { tool: None, .. });
        // Neither let through nor refused: asking the stop hooks again would pause for ever.
        if decision == Resolved::Expired && matches!(question.question, Question::Pause { .. }) {
            self.verdict = Some(Verdict::new(Outcome::Halted, "nobody answered in time").by(by.clone()));
            return;
        }
        if about_reply && decision != Resolved::Approved {
            let reason = reason.clone().unwrap_or_else(|| "the reply was not approved".into());
            self.verdict = Some(Verdict::new(Outcome::Rejected, reason).by(by.clone()));
        }
    }
}
