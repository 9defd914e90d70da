//! What becomes of a call before anything runs: normal form → validate → `before_tool` → approval, or the answer to what was asked.

mod decision;
mod standing;

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::Value;
use smallvec::SmallVec;

pub(super) use self::decision::{CallDecision, DecidedCall, ReadyCall};
use self::standing::StandingUse;
use super::active::{ActiveTurn, Interrupt};
use super::answer::NOBODY_ANSWERED;
use super::changes::{self, Applied};
use super::perform::{after_tool, normal_form};
use super::redaction;
use super::state::{OpenCall, OpenQuestion, Verdict};
use super::view::{InTool, OwnAnswer, Turn};
use crate::access::AnswerRule;
use crate::agent::CompiledTool;
use crate::change::{Edited, text_of};
use crate::digest::{self, CallDigest};
use crate::event::{Approvals, Executor, Outcome, Question, Resolved, StandingBasis};
use crate::hook::call::HookCaller;
use crate::hook::{BeforeTool, HookFailure, Point, Record};
use crate::json_schema::JsonSchema;
use crate::message::{Text, ToolCall};
use crate::scope::{Actor, Author};
use crate::store::{Answer, ApprovedReply, Scratch};
use crate::tool::{Approval, Effect, Output};

/// Decides calls concurrently, and whether one of them ends the turn. If one does, what was decided of the others is
/// returned all the same: results that exist are logged.
pub(super) async fn decide(
    active: &mut ActiveTurn,
    calls: SmallVec<[OpenCall; 1]>,
) -> (SmallVec<[DecidedCall; 1]>, Option<Interrupt>) {
    let (turn, scratch) = (&active.turn, &*active.scratch);
    let (mut decided, mut interrupted, mut records) = (SmallVec::new(), None, Vec::new());
    let mut note = |review: CallReview<'_>, decision| {
        records.extend(review.records);
        interrupted = interrupted.take().or(review.halted.map(|verdict| Interrupt::from(*verdict)));
        match decision {
            Ok(decision) => {
                let (call, standing) = (review.open.call.call, review.standing);
                decided.push(DecidedCall { call, standing, decision });
            }
            Err(interrupt) => interrupted = interrupted.take().or(Some(interrupt)),
        }
    };
    let mut calls = calls.into_iter();
    if calls.len() == 1 {
        // Most replies have one call, which is not moved into a list and out again.
        if let Some(open) = calls.next() {
            let mut review = CallReview::new(turn, scratch, open);
            let decision = review.decide().await;
            note(review, decision);
        }
    } else {
        let mut reviews: Vec<_> = calls.map(|open| CallReview::new(turn, scratch, open)).collect();
        let decisions = join_all(reviews.iter_mut().map(CallReview::decide)).await;
        reviews.into_iter().zip(decisions).for_each(|(review, decision)| note(review, decision));
    }
    active.records.extend(records);
    (decided, interrupted)
}

/// One call under review.
struct CallReview<'a> {
    turn: &'a Turn,
    open: OpenCall,
    /// What was answered to the question about it.
    answer: Option<Answer>,
    /// Who gave it, with their roles: several if several had to approve.
    answered_by: Vec<Actor>,
    /// The approval of the whole reply.
    approved_reply: Option<&'a ApprovedReply>,
    /// Whether the log says that the call runs, and nothing was answered since.
    logged: bool,
    /// See [`DecidedCall::standing`].
    standing: Vec<StandingUse>,
    /// Set if a hook ends the turn here although the call has its result.
    halted: Option<Box<Verdict>>,
    records: Vec<Record>,
}

/// What the `before_tool` hooks said of a call.
enum HookAnswer {
    /// The call has its result, which no `after_tool` hook sees.
    Finish(Output),
    /// A hook gave the result.
    Answer(Output),
    /// No objection; a person is to be asked for these reasons. `approved_by` is a hook that approved the call as it is now.
    Proceed { questions: Vec<Text>, approved_by: Option<Author> },
}

impl<'a> CallReview<'a> {
    fn new(turn: &'a Turn, scratch: &'a Scratch, mut open: OpenCall) -> Self {
        if let Some(arguments) = redaction::effective(scratch.effective.as_deref(), &open.call.call) {
            open.call.arguments = arguments.clone();
        }
        let answered = scratch.answers.iter().find(|(call, _)| *call == open.call.call);
        let (answer, answered_by) = (answered.map(|(_, answer)| answer.clone()), scratch.answered_by(&open.call.call));
        let (approved_reply, logged) = (scratch.approved_reply.as_ref(), open.started && open.question.is_none());
        Self {
            turn,
            open,
            answer,
            answered_by,
            approved_reply,
            logged,
            standing: Vec::new(),
            halted: None,
            records: Vec::new(),
        }
    }

    async fn decide(&mut self) -> Result<CallDecision, Interrupt> {
        let turn = self.turn;
        let Some(compiled) = turn.ctx.agent.tool(&self.open.call.name) else {
            return Ok(CallDecision::Finish(self.unknown_tool()));
        };
        if let Some(question) = self.open.question.take() {
            return self.answered(compiled, question).await;
        }
        if self.open.started {
            return Ok(self.again(compiled));
        }
        self.fresh(compiled).await
    }

    /// The agent has no such tool. It may have had one when the call was started.
    fn unknown_tool(&self) -> Output {
        let name = &self.open.call.name;
        Output::error(match self.open.started {
            false => format!("there is no tool named {name:?}"),
            true => format!("[interrupted] there is no tool named {name:?} any more: whether it happened is unknown"),
        })
    }

    /// Brings the arguments to their normal form and validates them. `Some` is what is wrong with them, for the model to read.
    async fn complaint(&mut self, compiled: &CompiledTool) -> Result<Option<String>, Interrupt> {
        if compiled.tool.spec().normalize.is_some() {
            let normal = normal_form(self.turn, compiled, &self.open.call.arguments);
            // In a box: few tools have a normal form, and the future of every call would be larger.
            match Box::pin(self.turn.ctx.abort.race(normal)).await? {
                Ok(Some(arguments)) => self.open.call.arguments = Arc::new(arguments),
                Ok(None) => {}
                Err(refusal) => return Ok(Some(self.stored_text(refusal.to_string()))),
            }
        }
        Ok(compiled.complaint(&self.open.call.arguments).map(|complaint| self.stored_text(complaint)))
    }

    /// The form that a text about the arguments, which may quote them, has in the log.
    fn stored_text(&self, text: String) -> String {
        let (agent, name) = (&self.turn.ctx.agent, &self.open.call.name);
        if !agent.redacts_arguments() {
            return text;
        }
        let text = Value::String(text);
        match redaction::form_of(agent, Some(name), &text).0.unwrap_or(text) {
            Value::String(text) => text,
            _ => "the arguments do not fit".to_owned(),
        }
    }

    /// Whether the log would have another form of the arguments.
    fn is_redacted(&self) -> bool {
        redaction::form_of(&self.turn.ctx.agent, Some(&self.open.call.name), &self.open.call.arguments).0.is_some()
    }

    async fn fresh(&mut self, compiled: &CompiledTool) -> Result<CallDecision, Interrupt> {
        if let Some(complaint) = self.complaint(compiled).await? {
            return Ok(CallDecision::Finish(Output::error(complaint)));
        }
        let spec = compiled.tool.spec();
        if spec.needs_user && *self.turn.ctx.scope.actor() == Actor::System {
            return Ok(CallDecision::Finish(Output::error("this tool needs a user, and the system called it")));
        }
        let (mut questions, approved_by) = match self.before_tool(compiled).await? {
            HookAnswer::Finish(output) => return Ok(CallDecision::Finish(output)),
            HookAnswer::Answer(output) => return self.finish(output).await,
            HookAnswer::Proceed { questions, approved_by } => (questions, approved_by),
        };
        // A reason to ask is a question that no approval from elsewhere answers.
        questions.extend(compiled.tool.always_ask(&self.open.call.arguments));
        let rule = self.turn.ctx.services.access.answer_rule(Some(&self.open.call.name));
        // What a hook or an approval of the whole reply lets through is not what such a rule asks for. What a person or the
        // model's host does is not gated, also if the rule is for all tools.
        let can_be_gated = matches!(spec.executor, Executor::Server | Executor::Client);
        let is_required = can_be_gated && rule.as_ref().is_some_and(|rule| rule.required);
        let mut approved = match approved_by {
            Some(hook) => Approvals { last: Some(hook.clone()), all: vec![hook], rule: None },
            None => self.approved_with_reply(),
        };
        if compiled.approval == Approval::Required && approved.last.is_none() {
            approved = self.allowed_by_rule();
        }
        let gated = is_required || (compiled.approval == Approval::Required && approved.last.is_none());
        if gated || !questions.is_empty() {
            let is_limited = rule.as_ref().is_some_and(|rule| rule.n > 1 || rule.not_requester);
            let basis = (questions.is_empty() && !is_limited).then(|| compiled.standing.clone());
            if let Some(basis) = &basis {
                self.standing = self.standing_uses(compiled, basis, rule.as_ref()).await?;
            }
            questions.extend(spec.approval_note.clone());
            let why = (!questions.is_empty()).then(|| questions.join("; ").into());
            return Ok(CallDecision::suspend(self.approval(why, basis), rule));
        }
        Ok(self.proceed(compiled, approved))
    }

    /// Who approved the call with the whole reply: nobody, if it runs with other arguments than those that were judged.
    fn approved_with_reply(&self) -> Approvals {
        let approved = self.approved_reply.filter(|reply| reply.covers(&self.open.call.call, &self.digest()));
        let all = approved.map(|reply| reply.approvals.clone()).unwrap_or_default();
        Approvals { last: all.last().cloned(), all, rule: None }
    }

    /// The acting user, if a rule that they gave for this run allows the call: nobody else is asked.
    fn allowed_by_rule(&self) -> Approvals {
        let ToolCall { call, name, arguments } = &self.open.call;
        let user = self.turn.ctx.scope.user_id();
        let rule = user.and_then(|_| self.turn.ctx.agent.allows(name, arguments));
        let by = user.filter(|_| rule.is_some()).map(|user| Author::User(user.clone()));
        if let Some(rule) = &rule {
            tracing::info!(conversation = %self.turn.ctx.conversation, %call, tool = %name, %rule, "allowed by a rule");
        }
        Approvals { all: by.iter().cloned().collect(), last: by, rule }
    }

    /// Nothing stands in the way of the call: run it, or ask the person or client that runs it for its result.
    fn proceed(&self, compiled: &CompiledTool, approved: Approvals) -> CallDecision {
        let (tool, arguments) = (self.open.call.name.clone(), self.open.call.arguments.clone());
        match compiled.tool.spec().executor {
            Executor::Server => self.run(compiled, approved, None),
            // It would find the redacted form in the log, and run with that.
            Executor::Client if self.is_redacted() => CallDecision::Finish(Output::error(
                "[not run] the arguments hold what must not be stored, and a client cannot be given them",
            )),
            Executor::Client => CallDecision::suspend(Question::ClientExec { tool, arguments }, None),
            Executor::Human => {
                let question = arguments
                    .get("question")
                    .and_then(Value::as_str)
                    .map_or_else(|| arguments.to_string().into(), Text::from);
                let schema = arguments.get("schema").cloned().map(Arc::new);
                // A schema of the model's own. One that cannot be used could not refuse any answer.
                match schema.as_deref().map(JsonSchema::compile) {
                    Some(Err(error)) => {
                        CallDecision::Finish(Output::error(format!("`schema` cannot be used: {error}")))
                    }
                    _ => CallDecision::suspend(Question::Elicitation { question, schema }, None),
                }
            }
            Executor::Provider => {
                CallDecision::Finish(Output::error("the model's host runs this tool, and gave no result for it"))
            }
        }
    }

    fn run(&self, compiled: &CompiledTool, approved: Approvals, answer: Option<OwnAnswer>) -> CallDecision {
        let (mut turn, call) = (self.turn.clone(), self.open.call.clone());
        turn.in_tool = Some(Arc::new(InTool { call: call.call.clone(), approvals: approved, answer }));
        let call = ReadyCall { turn, call, tool: compiled.tool.clone(), reconcile: false };
        // An answer is used once: the log says so before the tool runs with it.
        CallDecision::Run { call, is_logged: self.logged }
    }

    fn digest(&self) -> CallDigest {
        let ToolCall { name, arguments, .. } = &self.open.call;
        CallDigest::of_call(name.clone(), arguments.clone(), self.turn.ctx.conversation.clone())
    }

    fn approval(&self, why: Option<Text>, standing: Option<Arc<StandingBasis>>) -> Question {
        let ToolCall { name, arguments, .. } = self.open.call.clone();
        let digest = self.digest().text().clone();
        Question::Approval { tool: Some(name), arguments, digest, why, again: false, redacted: false, standing }
    }

    /// The call was started, and the process died before its result: the tool's effect policy decides.
    fn again(&self, compiled: &CompiledTool) -> CallDecision {
        let approved =
            || Approvals { last: self.open.approved_by.clone(), all: self.open.approvals.clone(), rule: None };
        match compiled.tool.spec().effect {
            Effect::Pure | Effect::Idempotent => self.run(compiled, approved(), self.answer_before_crash()),
            Effect::Reconcile(_) => match self.run(compiled, approved(), self.answer_before_crash()) {
                CallDecision::Run { call, is_logged } => {
                    CallDecision::Run { call: ReadyCall { reconcile: true, ..call }, is_logged }
                }
                other => other,
            },
            Effect::Ask => {
                let why = "it was started and left no result; may it run again?";
                let mut question = self.approval(Some(why.into()), None);
                if let Question::Approval { again, .. } = &mut question {
                    *again = true;
                }
                CallDecision::suspend(question, None)
            }
            Effect::Never => CallDecision::Finish(Output::error(
                "[interrupted] it was started and left no result: whether it happened is unknown",
            )),
        }
    }

    /// What was answered to the tool's own question before the process died is still its answer.
    fn answer_before_crash(&self) -> Option<OwnAnswer> {
        self.own_answer(self.open.answered.clone()).filter(|own| own.count > 0)
    }

    fn own_answer(&self, asked: Option<Box<OpenQuestion>>) -> Option<OwnAnswer> {
        let (by, count) = (self.answered_by.clone(), self.open.answers);
        self.answer.clone().map(|answer| OwnAnswer { answer, asked, by, count })
    }

    /// A person or a client has answered, or nobody did in time.
    async fn answered(
        &mut self,
        compiled: &CompiledTool,
        question: Box<OpenQuestion>,
    ) -> Result<CallDecision, Interrupt> {
        let Some((resolved, by)) = question.answer.clone() else {
            return Ok(CallDecision::suspend(question.question, question.rule.as_deref().cloned()));
        };
        // A tool that waits asks its own question. Whether a call may run again is asked with the call's digest.
        let own_question = self.open.started && !self.is_about_this_call(&question.question);
        let failed = |text: &str| Ok(CallDecision::Finish(Output::error(text)));
        match resolved {
            // The log of an older program: now the result is written with the resolution.
            Resolved::Expired => failed(NOBODY_ANSWERED),
            Resolved::Cancelled => failed("[cancelled]"),
            _ if !self.turn.ctx.accepts_answer(&question, &self.answered_by).await? => {
                failed("[stale] those who answered this may not answer it")
            }
            _ if own_question => {
                let approved =
                    Approvals { last: self.open.approved_by.clone(), all: self.open.approvals.clone(), rule: None };
                Ok(self.run(compiled, approved, self.own_answer(Some(question))))
            }
            Resolved::Denied => {
                let why = question.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                failed(&format!("[denied by {by}]{why}"))
            }
            // An approval expires, also once it was given: the process may have died before it could be used.
            Resolved::Approved if question.expires <= self.turn.ctx.clock().now() => {
                failed("[expired] the approval lapsed before the call could run")
            }
            Resolved::Approved if question.edit.is_some() => self.edited(compiled, question).await,
            Resolved::Approved if self.is_about_this_call(&question.question) => {
                Ok(self.proceed(compiled, Approvals { last: Some(by), all: question.approvals, rule: None }))
            }
            Resolved::Approved => failed("[stale] the approval was for other arguments"),
            Resolved::Answered => self.finish(self.given()).await,
        }
    }

    /// The call was approved with other arguments than those that were shown: they are judged like the model's own. What a
    /// hook wants to ask counts as answered. If they come out changed, those who approved see that once more, and only once.
    async fn edited(
        &mut self,
        compiled: &CompiledTool,
        question: Box<OpenQuestion>,
    ) -> Result<CallDecision, Interrupt> {
        let named = question.edit.as_ref().map(|edit| edit.by.to_string()).unwrap_or_default();
        if let Some(complaint) = self.complaint(compiled).await? {
            return Ok(self.ask_again(*question, &format!("the arguments that {named} gave do not fit: {complaint}")));
        }
        let edited = self.open.call.arguments.clone();
        match self.before_tool(compiled).await? {
            HookAnswer::Finish(output) => return Ok(CallDecision::Finish(output)),
            HookAnswer::Answer(output) => return self.finish(output).await,
            HookAnswer::Proceed { .. } => {}
        }
        if self.is_about_this_call(&question.question) {
            let last = question.answer.map(|(_, by)| by);
            return Ok(self.proceed(compiled, Approvals { last, all: question.approvals, rule: None }));
        }
        let OpenQuestion { rule, approvals, .. } = *question;
        let Some(rule) = AnswerRule::second_look(rule.as_deref(), &approvals) else {
            let text = format!("[denied] the arguments that {named} edited were changed, and changed again");
            return Ok(CallDecision::Finish(Output::error(text)));
        };
        let why = match self.open.call.arguments == edited {
            true => format!("the arguments that {named} edited have another normal form"),
            false => format!("a hook changed the arguments that {named} edited"),
        };
        Ok(CallDecision::suspend(self.approval(Some(why.into()), None), Some(rule)))
    }

    /// Asks about the model's own arguments again: those that an approver put in their place cannot run. They may have been
    /// recorded where the tool is not known.
    fn ask_again(&self, question: OpenQuestion, why: &str) -> CallDecision {
        let (shown, rule) = (question.shown().clone(), question.rule.as_deref().cloned());
        match shown {
            Question::Approval { tool: Some(tool), arguments, digest, again, standing, .. }
                if digest == digest::of_call(&tool, &arguments, &self.turn.ctx.conversation) =>
            {
                let why = Some(why.into());
                let (tool, redacted) = (Some(tool), false);
                let asked = Question::Approval { tool, arguments, digest, why, again, redacted, standing };
                CallDecision::suspend(asked, rule)
            }
            // Of arguments that are redacted only the form of the log is left.
            _ => CallDecision::Finish(Output::error(format!("[not run] {why}"))),
        }
    }

    /// Whether an approval was asked for this tool, with these arguments, in this conversation.
    fn is_about_this_call(&self, question: &Question) -> bool {
        matches!(question, Question::Approval { digest, .. } if digest == self.digest().text())
    }

    fn given(&self) -> Output {
        match &self.answer {
            Some(Answer::Result(value)) => Output::from(value.clone()),
            Some(Answer::Error(text)) => Output::error(&**text),
            _ => Output::error("[the answer is lost]"),
        }
    }

    /// A result that no server tool made passes the `after_tool` hooks as well.
    async fn finish(&mut self, output: Output) -> Result<CallDecision, Interrupt> {
        let (output, halted) = after_tool(self.turn, &self.open.call, output.capped(), &mut self.records).await?;
        let halt = |(hook, reason)| Verdict::by_hook(Outcome::Halted, reason, &hook, Point::AfterTool);
        self.halted = halted.map(halt).map(Box::new);
        Ok(CallDecision::Finish(output))
    }

    async fn before_tool(&mut self, compiled: &CompiledTool) -> Result<HookAnswer, Interrupt> {
        let turn = self.turn;
        let mut questions = Vec::new();
        let mut approved: Option<(Author, CallDigest)> = None;
        let hooks = turn.ctx.agent.hooks_at(Point::BeforeTool);
        if hooks.is_empty() {
            return Ok(HookAnswer::Proceed { questions, approved_by: None });
        }
        let id = self.open.call.call.clone();
        let mut caller = HookCaller::new(&turn.ctx, Point::BeforeTool)
            .for_call(&id)
            .given(|| serde_json::to_string(&self.open.call).unwrap_or_default());
        for entry in hooks {
            let (Some(hook), true) = (entry.hook(), entry.matches_tool(&self.open.call.name)) else { continue };
            let run = caller.run(entry, pin!(hook.before_tool(turn, &self.open.call))).await?;
            let decision = match caller.record(&entry.name, run, &mut self.records) {
                Ok(decision) => decision,
                Err(failure) if entry.ignores(Point::BeforeTool, &failure) => continue,
                Err(failure) => return Ok(HookAnswer::Finish(blocked(&entry.name, &failure))),
            };
            let (rewritten, decision) = match decision {
                BeforeTool::Rewrite(arguments) => (Some(arguments), BeforeTool::Continue),
                BeforeTool::Approve(arguments) => (arguments, BeforeTool::Approve(None)),
                BeforeTool::RewriteAndAsk(arguments, why) => (Some(arguments), BeforeTool::Ask(why)),
                other => (None, other),
            };
            if let Some(arguments) = rewritten {
                let ToolCall { name, arguments: before, .. } = &self.open.call;
                let text = |arguments| changes::text_of_arguments(&turn.ctx, name, arguments);
                let applied = Applied::new(Edited::Arguments, text(before), text(&arguments));
                changes::note_edit(&turn.ctx, entry, &mut self.records, applied);
                self.open.call.arguments = Arc::new(arguments);
                if let Some(complaint) = self.complaint(compiled).await? {
                    let text = format!("hook {} rewrote the arguments, and {complaint}", entry.name);
                    return Ok(HookAnswer::Finish(Output::error(text)));
                }
            }
            match decision {
                BeforeTool::Continue | BeforeTool::Rewrite(_) => {}
                BeforeTool::Approve(_) => approved = Some((Author::hook(&entry.name), self.digest())),
                BeforeTool::Deny(reason) => {
                    return Ok(HookAnswer::Finish(Output::error(format!("[denied by {}] {reason}", entry.name))));
                }
                BeforeTool::Answer(output) => {
                    let applied = Applied::new(Edited::Result, None, text_of(&output.content));
                    changes::note_edit(&turn.ctx, entry, &mut self.records, applied);
                    return Ok(HookAnswer::Answer(output));
                }
                BeforeTool::Ask(why) | BeforeTool::RewriteAndAsk(_, why) => questions.push(why),
                BeforeTool::Halt(reason) => {
                    return Err(Verdict::by_hook(Outcome::Halted, reason, &entry.name, Point::BeforeTool).into());
                }
            }
        }
        // What a hook approved is the call with the arguments that it saw or gave.
        let approved = approved.filter(|(_, digest)| digest.text() == self.digest().text());
        Ok(HookAnswer::Proceed { questions, approved_by: approved.map(|(hook, _)| hook) })
    }
}

/// A blocking failure at a tool point ends the call, naming the hook.
fn blocked(hook: &Text, failure: &HookFailure) -> Output {
    Output::error(format!("[blocked] hook {hook} failed: {failure}"))
}
