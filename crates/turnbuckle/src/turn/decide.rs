//! What becomes of a call, before anything runs: validate → `before_tool` → gate, or the answer to what was asked.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::Value;
use smallvec::SmallVec;

use super::active::{ActiveTurn, Interrupt};
use super::perform::after_tool;
use super::state::{OpenCall, OpenQuestion, Verdict};
use super::view::{InTool, Turn};
use crate::agent::CompiledTool;
use crate::digest;
use crate::event::{EventKind, Outcome, Question, Resolved};
use crate::hook::run::Run;
use crate::hook::{BeforeTool, HookFailure, OnFailure, Point, Record};
use crate::id::CallId;
use crate::message::{Text, ToolCall};
use crate::scope::{Actor, Author};
use crate::store::{Answer, Scratch};
use crate::tool::{Approval, Effect, Executor, Output, Tool};

/// Why a person is asked about a call that was started once and left no result.
pub(crate) const AGAIN: &str = "it was started and left no result; may it run again?";

/// What becomes of a call.
#[allow(clippy::large_enum_variant, reason = "most calls run: a box for each would cost more than the room")]
pub(super) enum Decided {
    /// It runs now; `event` says so in the log first, unless it says so already.
    Run { ready_call: ReadyCall, event: Option<EventKind> },
    /// Someone must answer first.
    Suspend(Question),
    /// It has its result.
    Finish(Output),
}

/// A call on its way to its tool.
pub(super) struct ReadyCall {
    pub(super) turn: Turn,
    pub(super) call: ToolCall,
    pub(super) tool: Arc<dyn Tool>,
    /// Ask the world first: the call was started once and left no result.
    pub(super) reconcile: bool,
}

/// Decides calls side by side; also whether one of them ends the turn. Results that are there are there all the same.
pub(super) async fn decide(
    active: &mut ActiveTurn,
    calls: SmallVec<[OpenCall; 1]>,
) -> (SmallVec<[(CallId, Decided); 1]>, Option<Interrupt>) {
    let mut reviews: SmallVec<[CallReview<'_>; 1]> =
        calls.into_iter().map(|open| CallReview::new(&active.turn, &active.scratch, open)).collect();
    let words: SmallVec<[_; 1]> = match &mut reviews[..] {
        [desk] => [desk.decide().await].into_iter().collect(),
        reviews => join_all(reviews.iter_mut().map(CallReview::decide)).await.into(),
    };
    let (mut decided, mut interrupted) = (SmallVec::new(), None);
    for (desk, word) in reviews.into_iter().zip(words) {
        active.records.extend(desk.records);
        interrupted = interrupted.or(desk.halted.map(Interrupt::from));
        match word {
            Ok(what) => decided.push((desk.open.call.call, what)),
            Err(interrupt) => interrupted = interrupted.or(Some(interrupt)),
        }
    }
    (decided, interrupted)
}

/// One call on the table.
struct CallReview<'a> {
    turn: &'a Turn,
    open: OpenCall,
    answer: Option<Answer>,
    /// Who approved the whole reply.
    approved: Option<Author>,
    /// Whether the log says that the call runs, and nothing was answered since.
    announced: bool,
    /// A hook ends the turn here, though the call has its result.
    halted: Option<Verdict>,
    records: Vec<Record>,
}

impl<'a> CallReview<'a> {
    fn new(turn: &'a Turn, scratch: &Scratch, open: OpenCall) -> Self {
        let answered = scratch.answers.iter().find(|(call, _)| *call == open.call.call);
        let (answer, approved) = (answered.map(|(_, answer)| answer.clone()), scratch.approved.clone());
        let announced = open.started && open.question.is_none();
        Self { turn, open, answer, approved, announced, halted: None, records: Vec::new() }
    }

    async fn decide(&mut self) -> Result<Decided, Interrupt> {
        let turn = self.turn;
        let Some(compiled) = turn.ctx.agent.tool(&self.open.call.name) else {
            return Ok(Decided::Finish(self.gone()));
        };
        if let Some(question) = self.open.question.take() {
            return self.answered(compiled, *question).await;
        }
        if self.open.started {
            return Ok(self.again(compiled));
        }
        self.fresh(compiled).await
    }

    /// The agent has no such tool; it may have had one when the call was started.
    fn gone(&self) -> Output {
        let name = &self.open.call.name;
        Output::error(match self.open.started {
            false => format!("there is no tool named {name:?}"),
            true => format!("[interrupted] there is no tool named {name:?} any more: whether it happened is unknown"),
        })
    }

    async fn fresh(&mut self, compiled: &CompiledTool) -> Result<Decided, Interrupt> {
        if let Some(complaint) = compiled.complaint(&self.open.call.arguments) {
            return Ok(Decided::Finish(Output::error(complaint)));
        }
        let spec = compiled.tool.spec();
        if spec.needs_user && *self.turn.ctx.scope.actor() == Actor::System {
            return Ok(Decided::Finish(Output::error("this tool needs a user, and the system called it")));
        }
        let asks = match self.before_tool(compiled).await? {
            Word::Finish(output) => return Ok(Decided::Finish(output)),
            Word::Answer(output) => return self.finish(output).await,
            Word::GoOn { asks } => asks,
        };
        let gated = spec.gate == Approval::Required && self.approved.is_none();
        if gated || !asks.is_empty() {
            let why = (!asks.is_empty()).then(|| asks.join("; ").into());
            return Ok(Decided::Suspend(self.approval(why)));
        }
        Ok(self.go(compiled, self.approved.clone()))
    }

    /// Everybody who must allow it has: by executor, run it, or ask for its result.
    fn go(&self, compiled: &CompiledTool, approved_by: Option<Author>) -> Decided {
        let (tool, arguments) = (self.open.call.name.clone(), self.open.call.arguments.clone());
        match compiled.tool.spec().executor {
            Executor::Server => self.run(compiled, approved_by, None),
            Executor::Client => Decided::Suspend(Question::ClientExec { tool, arguments }),
            Executor::Human => {
                let question = arguments
                    .get("question")
                    .and_then(Value::as_str)
                    .map_or_else(|| arguments.to_string().into(), Text::from);
                let schema = arguments.get("schema").cloned().map(Arc::new);
                Decided::Suspend(Question::Elicitation { question, schema })
            }
            Executor::Provider => {
                Decided::Finish(Output::error("the model's host runs this tool, and gave no result for it"))
            }
        }
    }

    fn run(&self, compiled: &CompiledTool, approved_by: Option<Author>, answer: Option<Answer>) -> Decided {
        let call = self.open.call.clone();
        // An answer is used once: the log says so before the tool runs by it.
        let event = (!self.announced).then(|| EventKind::ToolStarted {
            call: call.call.clone(),
            arguments: call.arguments.clone(),
            digest: self.digest(),
            approved_by: approved_by.clone(),
        });
        let mut turn = self.turn.clone();
        let answers = self.open.answers;
        turn.in_tool = Some(Arc::new(InTool { call: call.call.clone(), approved_by, answer, answers }));
        let ready_call = ReadyCall { turn, call, tool: compiled.tool.clone(), reconcile: false };
        Decided::Run { ready_call, event }
    }

    fn digest(&self) -> Text {
        digest::of_call(&self.open.call.name, &self.open.call.arguments, &self.turn.ctx.conversation)
    }

    fn approval(&self, why: Option<Text>) -> Question {
        let ToolCall { name, arguments, .. } = self.open.call.clone();
        Question::Approval { tool: Some(name), arguments, digest: self.digest(), why }
    }

    /// It was started, and the process died before the result: the tool's effect policy decides.
    fn again(&self, compiled: &CompiledTool) -> Decided {
        let approved_by = self.open.approved_by.clone();
        match compiled.tool.spec().effect {
            Effect::Pure | Effect::Idempotent => self.run(compiled, approved_by, self.own_answer()),
            Effect::Reconcile(_) => match self.run(compiled, approved_by, self.own_answer()) {
                Decided::Run { mut ready_call, event } => {
                    ready_call.reconcile = true;
                    Decided::Run { ready_call, event }
                }
                other => other,
            },
            Effect::Ask => Decided::Suspend(self.approval(Some(AGAIN.into()))),
            Effect::Never => Decided::Finish(Output::error(
                "[interrupted] it was started and left no result: whether it happened is unknown",
            )),
        }
    }

    /// What was answered to the tool's own question before the process died is still its answer.
    fn own_answer(&self) -> Option<Answer> {
        self.answer.clone().filter(|_| self.open.answers > 0)
    }

    /// A person, a client or the time has answered.
    async fn answered(&mut self, compiled: &CompiledTool, question: OpenQuestion) -> Result<Decided, Interrupt> {
        let Some((resolved, by)) = question.answer else { return Ok(Decided::Suspend(question.question)) };
        // A tool that waits asks in its own words; whether it may run again is asked with its own digest.
        let own_question = self.open.started && !self.evidence_fits(&question.question);
        let reason = question.reason;
        match resolved {
            Resolved::Expired => Ok(Decided::Finish(Output::error("[expired] nobody answered in time"))),
            Resolved::Cancelled => Ok(Decided::Finish(Output::error("[cancelled]"))),
            _ if own_question => Ok(self.run(compiled, self.open.approved_by.clone(), self.answer.clone())),
            Resolved::Denied => {
                let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                Ok(Decided::Finish(Output::error(format!("[denied by {by}]{why}"))))
            }
            // Evidence expires, also once it was given: the process may have died before it could be used.
            Resolved::Approved if question.expires <= self.turn.ctx.clock.now() => {
                Ok(Decided::Finish(Output::error("[expired] the approval lapsed before the call could run")))
            }
            Resolved::Approved if self.evidence_fits(&question.question) => Ok(self.go(compiled, Some(by))),
            Resolved::Approved => Ok(Decided::Finish(Output::error("[stale] the approval was for other arguments"))),
            Resolved::Answered => self.finish(self.given()).await,
        }
    }

    /// An approval is bound to tool, arguments and conversation.
    fn evidence_fits(&self, question: &Question) -> bool {
        matches!(question, Question::Approval { digest, .. } if *digest == self.digest())
    }

    fn given(&self) -> Output {
        match &self.answer {
            Some(Answer::Result(value)) => Output::from(value.clone()),
            Some(Answer::Error(text)) => Output::error(&**text),
            _ => Output::error("[the answer is lost]"),
        }
    }

    /// A result that no server tool made passes `after_tool`, too.
    async fn finish(&mut self, output: Output) -> Result<Decided, Interrupt> {
        let (output, halted) = after_tool(self.turn, &self.open.call, output.capped(), &mut self.records).await?;
        self.halted = halted.map(|(hook, reason)| Verdict::new(Outcome::Halted, reason).by(Author::Hook(hook)));
        Ok(Decided::Finish(output))
    }

    async fn before_tool(&mut self, compiled: &CompiledTool) -> Result<Word, Interrupt> {
        let turn = self.turn;
        let mut asks = Vec::new();
        for entry in &turn.ctx.agent.chains().before_tool {
            let (Some(hook), true) = (entry.hook(), entry.matches_tool(&self.open.call.name)) else { continue };
            let run = Run::new(&self.turn.ctx, entry, Point::BeforeTool).for_call(&self.open.call.call);
            let finished = run.decide(hook.before_tool(self.turn, &self.open.call)).await?;
            let decision = match finished.recorded(&self.turn.ctx, &mut self.records) {
                Ok(decision) => decision,
                Err(_) if entry.failure_policy(Point::BeforeTool) == OnFailure::Ignore => continue,
                Err(failure) => return Ok(Word::Finish(blocked(&entry.name, &failure))),
            };
            match decision {
                BeforeTool::Continue => {}
                BeforeTool::Rewrite(arguments) => {
                    if let Some(complaint) = compiled.complaint(&arguments) {
                        let text = format!("hook {} rewrote the arguments, and {complaint}", entry.name);
                        return Ok(Word::Finish(Output::error(text)));
                    }
                    self.open.call.arguments = Arc::new(arguments);
                }
                BeforeTool::Deny(reason) => {
                    return Ok(Word::Finish(Output::error(format!("[denied by {}] {reason}", entry.name))));
                }
                BeforeTool::Answer(output) => return Ok(Word::Answer(output)),
                BeforeTool::Ask(why) => asks.push(why),
                BeforeTool::Halt(reason) => {
                    return Err(Verdict::new(Outcome::Halted, reason).by(Author::hook(&entry.name)).into());
                }
            }
        }
        Ok(Word::GoOn { asks })
    }
}

/// What the `before_tool` hooks said of a call.
enum Word {
    Finish(Output),
    Answer(Output),
    GoOn { asks: Vec<Text> },
}

/// A blocking failure at a tool point ends the call, naming the hook.
fn blocked(hook: &Text, failure: &HookFailure) -> Output {
    Output::error(format!("[blocked] hook {hook} failed: {failure}"))
}
