//! The turn under way, as far as the log tells: what it said, what it called, what it asked.

use std::sync::Arc;
use std::time::Duration;

use super::Verdict;
use crate::access::AnswerRule;
use crate::call_map::CallMap;
use crate::clock::Timestamp;
use crate::event::{Cause, Event, EventKind, Evidence, Executor, Outcome, Question, Refusal, Resolved};
use crate::id::{CallId, TurnId};
use crate::limits::UsedBudget;
use crate::message::{Text, ToolCall, Usage};
use crate::scope::{Actor, Author, is_link_for_nobody};

/// The turn under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenTurn {
    pub(crate) id: TurnId,
    /// Whether its message is in the log.
    pub(crate) accepted: bool,
    /// Who sent the message.
    pub(crate) by: Option<Author>,
    /// Where in history it begins.
    pub(crate) first: usize,
    /// Calls without a result, in the order in which the model made them.
    pub(crate) calls: CallMap<OpenCall>,
    /// How many of `calls` wait for an answer. Counted, so that `next` does not look at all of them for each result.
    asking: usize,
    /// Questions that are not about a tool call: a whole reply, a pause.
    pub(crate) questions: Vec<OpenQuestion>,
    /// Whether the model's last reply called for nothing.
    pub(crate) spoke: bool,
    /// Model calls whose replies are in the log.
    pub(crate) model_calls: u32,
    pub(crate) usage: Usage,
    /// Refused stops since the last tool call.
    pub(crate) refused: u32,
    /// Whether any stop of this turn was refused.
    pub(crate) stop_active: bool,
    pub(crate) last_refusals: Vec<Refusal>,
    /// How the turn must end, because of an answer or its absence; `turn_ended` is not in the log yet.
    pub(crate) verdict: Option<Verdict>,
    /// Dollars that the replies in the log cost.
    pub(crate) cost: f64,
    /// Time from the first event of the turn to the last, without the time that it waited for answers. It includes the
    /// time that no process worked on the turn after a crash; see [`Scratch::worked`](crate::store::Scratch).
    pub(crate) worked: Duration,
    /// When the last event was written.
    last_at: Option<Timestamp>,
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
    /// Everyone who approved it.
    pub(crate) approvals: Vec<Author>,
    /// The last question about it. In a box: few calls are asked about, and calls are moved often.
    pub(crate) question: Option<Box<OpenQuestion>>,
    /// The last question about it that was answered, once the call runs with the answer.
    pub(crate) answered: Option<Box<OpenQuestion>>,
    /// How many questions that its tool asked were answered.
    pub(crate) answers: usize,
}

impl OpenCall {
    /// Whether there is something to do that needs no answer.
    pub(crate) fn can_go_on(&self) -> bool {
        self.question.as_ref().is_none_or(|question| question.answer.is_some())
    }
}

/// Something asked of a person or a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenQuestion {
    pub(crate) call: CallId,
    pub(crate) question: Question,
    pub(crate) expires: Timestamp,
    /// Who may answer, if there is a rule for it.
    pub(crate) rule: Option<Arc<AnswerRule>>,
    /// Who approved, in order. Of these arguments: changed ones void earlier approvals.
    pub(crate) approvals: Vec<Author>,
    /// Set if an approver put other arguments in the place of those asked about.
    pub(crate) edit: Option<Edit>,
    pub(crate) answer: Option<(Resolved, Author)>,
    pub(crate) reason: Option<Text>,
    /// How answers came that did not come through a program of Turnbuckle.
    vias: Vec<(Author, Text)>,
}

/// Arguments that an approver changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edit {
    /// Who changed them last.
    pub(crate) by: Author,
    /// What was asked at first.
    pub(crate) shown: Question,
}

impl OpenQuestion {
    /// Notes one approval. Arguments that the approver changed are what is asked about from now on.
    fn approve(&mut self, by: &Author, evidence: &Evidence) {
        if evidence.arguments.is_some() {
            let shown = self.edit.take().map_or_else(|| self.question.clone(), |edit| edit.shown);
            self.edit = Some(Edit { by: by.clone(), shown });
        }
        self.question.note_approval(by, evidence, &mut self.approvals);
    }

    /// How many people must approve.
    pub(crate) fn approvals_needed(&self) -> usize {
        self.rule.as_ref().map_or(1, |rule| rule.n as usize)
    }

    /// What was asked, before any approver changed it.
    pub(crate) fn shown(&self) -> &Question {
        self.edit.as_ref().map_or(&self.question, |edit| &edit.shown)
    }

    /// How the answer of this author came, if not through a program of Turnbuckle.
    pub(crate) fn via_of(&self, by: &Author) -> Option<&Text> {
        self.vias.iter().rev().find(|(other, _)| other == by).map(|(_, via)| via)
    }

    /// Whether people answered it, and not the time or the end of its turn.
    pub(crate) fn has_answer_of_people(&self) -> bool {
        matches!(&self.answer, Some((Resolved::Approved | Resolved::Denied | Resolved::Answered, _)))
    }

    /// Whether it was denied through a link that names no user.
    pub(crate) fn is_denied_by_nobody(&self, by: &[Actor]) -> bool {
        let through_link = |actor: &Actor| is_link_for_nobody(actor, self.via_of(&actor.author()).map(|via| &**via));
        matches!(&self.answer, Some((Resolved::Denied, _))) && by.last().is_some_and(through_link)
    }

    /// Whether those who answered may, by the rule that is stored with the question. It was checked where the answer was
    /// given, and is checked again by whoever carries the turn on. `by` are those who gave it, with their roles.
    pub(crate) fn is_answered_by(&self, by: &[Actor]) -> bool {
        if self.is_denied_by_nobody(by) {
            return true;
        }
        let Some(rule) = &self.rule else { return true };
        match &self.answer {
            Some((Resolved::Approved, _)) => rule.is_met_by(by),
            Some((Resolved::Denied | Resolved::Answered, _)) => by.last().is_some_and(|actor| rule.permits(actor)),
            Some((Resolved::Expired | Resolved::Cancelled, _)) | None => true,
        }
    }
}

impl OpenTurn {
    pub(super) fn new(id: TurnId, first: usize) -> Self {
        Self {
            id,
            accepted: false,
            by: None,
            first,
            calls: CallMap::default(),
            asking: 0,
            questions: Vec::new(),
            spoke: false,
            model_calls: 0,
            usage: Usage::default(),
            refused: 0,
            stop_active: false,
            last_refusals: Vec::new(),
            verdict: None,
            cost: 0.0,
            worked: Duration::ZERO,
            last_at: None,
        }
    }

    /// What the turn has used, as far as the log tells once `more` events are in it.
    pub(crate) fn used_after(&self, more: &[Arc<Event>]) -> UsedBudget {
        let mut used = UsedBudget { calls: self.model_calls, usage: self.usage, cost: self.cost };
        for event in more {
            if let EventKind::AssistantMessage { attempt, usage, cost, .. } = &event.kind {
                used = used.plus(&UsedBudget { calls: *attempt, usage: *usage, cost: *cost });
            }
        }
        used
    }

    /// The question about a whole reply that was approved, if the reply is not in the log yet.
    pub(crate) fn approved_reply(&self) -> Option<&OpenQuestion> {
        let is_approved = |question: &&OpenQuestion| {
            matches!((&question.question, &question.answer), (Question::Approval { .. }, Some((Resolved::Approved, _))))
        };
        self.questions.iter().find(is_approved)
    }

    /// Pauses that people approved: the turn ends without asking the stop hooks again.
    pub(crate) fn approved_pauses(&self) -> impl Iterator<Item = &OpenQuestion> {
        let is_approved = |question: &&OpenQuestion| {
            matches!((&question.question, &question.answer), (Question::Pause { .. }, Some((Resolved::Approved, _))))
        };
        self.questions.iter().filter(is_approved)
    }

    /// Whether people denied a pause, and the turn has not gone on since.
    pub(crate) fn is_pause_denied(&self) -> bool {
        let denied = |question: &OpenQuestion| {
            matches!((&question.question, &question.answer), (Question::Pause { .. }, Some((Resolved::Denied, _))))
        };
        self.questions.iter().any(denied)
    }

    /// Whether people denied the reply that is not in the log.
    pub(crate) fn is_reply_denied(&self) -> bool {
        let denied = |question: &OpenQuestion| {
            matches!((&question.question, &question.answer), (Question::Approval { .. }, Some((Resolved::Denied, _))))
        };
        self.questions.iter().any(denied)
    }

    fn open_question(&mut self, id: &CallId) -> Option<&mut OpenQuestion> {
        let of_call = self.calls.get_mut(id).and_then(|open| open.question.as_deref_mut());
        let others = self.questions.iter_mut().filter(|question| question.call == *id);
        of_call.into_iter().chain(others).find(|question| question.answer.is_none())
    }

    /// Everything that waits for an answer.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = &OpenQuestion> {
        let of_calls = self.calls.values().filter_map(|open| open.question.as_deref());
        of_calls.chain(&self.questions).filter(|question| question.answer.is_none())
    }
}

impl OpenTurn {
    /// Whether nothing can be done before a question is answered.
    fn is_waiting(&self) -> bool {
        self.questions.iter().any(|question| question.answer.is_none())
            || (!self.calls.is_empty() && !self.has_ready_call())
    }

    /// Whether something can be done for a call without an answer.
    pub(crate) fn has_ready_call(&self) -> bool {
        self.calls.len() > self.asking
    }

    pub(super) fn apply(&mut self, event: &Event) {
        if let (Some(last), false) = (self.last_at, self.is_waiting()) {
            self.worked += event.at.since(last);
        }
        self.last_at = Some(event.at);
        match &event.kind {
            EventKind::UserMessage { by, .. } => {
                // A later one steers the turn.
                self.by.get_or_insert_with(|| by.clone());
                self.accepted = true;
            }
            EventKind::AssistantMessage { attempt, usage, cost, .. } => {
                self.spoke = true;
                self.questions.clear();
                self.model_calls = self.model_calls.saturating_add(*attempt);
                self.usage += *usage;
                self.cost += cost;
            }
            EventKind::ToolCall { call, name, arguments, executor } => {
                self.spoke = false;
                self.refused = 0;
                self.last_refusals.clear();
                let call = ToolCall { call: call.clone(), name: name.clone(), arguments: arguments.value() };
                let id = call.call.clone();
                let replaced = self.calls.insert(
                    id,
                    OpenCall {
                        call,
                        executor: *executor,
                        started: false,
                        approved_by: None,
                        approvals: Vec::new(),
                        question: None,
                        answered: None,
                        answers: 0,
                    },
                );
                self.asking -= usize::from(replaced.is_some_and(|open| !open.can_go_on()));
            }
            EventKind::ToolStarted { call, arguments, approvals, .. } => {
                if let Some(open) = self.calls.get_mut(call) {
                    self.asking -= usize::from(!open.can_go_on());
                    open.started = true;
                    open.answered = open.question.take();
                    open.call.arguments = arguments.value();
                    (open.approved_by, open.approvals) = match approvals {
                        Some(approvals) => (approvals.last.clone(), approvals.all.clone()),
                        None => (None, Vec::new()),
                    };
                }
            }
            EventKind::ToolResult { call, .. } => {
                let removed = self.calls.remove(call);
                self.asking -= usize::from(removed.is_some_and(|open| !open.can_go_on()));
            }
            EventKind::Suspension { call, question, expires, rule } => self.ask(call, question, *expires, rule),
            EventKind::Resolution { call, decision, by, reason, evidence } => {
                self.answer(call, (*decision, by), reason, evidence);
            }
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

    fn ask(&mut self, call: &CallId, question: &Question, expires: Timestamp, rule: &Option<Arc<AnswerRule>>) {
        let asked = OpenQuestion {
            call: call.clone(),
            question: question.clone(),
            expires,
            rule: rule.clone(),
            approvals: Vec::new(),
            edit: None,
            answer: None,
            reason: None,
            vias: Vec::new(),
        };
        match self.calls.get_mut(call) {
            Some(open) => {
                self.asking += usize::from(open.can_go_on());
                // A tool that asks in its own words speaks of other arguments than its own.
                if let (false, Question::Approval { arguments, .. } | Question::ClientExec { arguments, .. }) =
                    (open.started, question)
                {
                    open.call.arguments = arguments.clone();
                }
                open.question = Some(Box::new(asked));
            }
            None => {
                // A stop that is paused anew has only its own pauses.
                if matches!(question, Question::Pause { .. }) {
                    self.questions.retain(|other| other.answer.is_none());
                }
                self.questions.push(asked);
            }
        }
    }

    fn answer(
        &mut self,
        call: &CallId,
        (decision, by): (Resolved, &Author),
        reason: &Option<Text>,
        evidence: &Evidence,
    ) {
        if let (Some(via), Some(question)) = (&evidence.via, self.open_question(call)) {
            question.vias.push((by.clone(), via.clone()));
        }
        if decision == Resolved::Approved {
            if let Some(question) = self.open_question(call) {
                question.approve(by, evidence);
            }
            // A call that was started asks in the words of its sub-agent: those are not its own arguments.
            if let (Some(edited), Some(open)) = (&evidence.arguments, self.calls.get_mut(call))
                && !open.started
            {
                open.call.arguments.clone_from(edited);
            }
        }
        if evidence.open {
            return;
        }
        if let Some(open) = self.calls.get_mut(call) {
            open.answers += usize::from(open.started);
            self.asking -= usize::from(!open.can_go_on());
        }
        let Some(question) = self.open_question(call) else { return };
        question.answer = Some((decision, by.clone()));
        question.reason.clone_from(reason);
        let about_reply = matches!(question.question, Question::Approval { tool: None, .. });
        // Neither let through nor refused: asking the stop hooks again would pause for ever.
        if decision == Resolved::Expired && matches!(question.question, Question::Pause { .. }) {
            self.verdict =
                Some(Verdict::new(Outcome::Halted, "nobody answered in time", Cause::Expired).by(by.clone()));
            return;
        }
        if about_reply && decision != Resolved::Approved {
            let reason = reason.clone().unwrap_or_else(|| "the reply was not approved".into());
            self.verdict = Some(Verdict::new(Outcome::Rejected, reason, Cause::NotApproved).by(by.clone()));
        }
    }
}
